//! Who judges cases: workers with GPUs, one case at a time. The emulator's is in emulated.rs.

use std::{collections::BTreeMap, time::Duration};

use passmuster::conformance::{
    Case, Fault, Field, Status, Verdict,
    supervisor::{SECOND_LOOKS, StartError, Supervisor, WorkerCommand},
    worker::Request,
};
use passmuster_collectives::{algorithms, machine::MachineInfo, plan::Departure};

use crate::{launch::Environment, progress::progress_bar, worker::Machine};

/// Is told of a verdict, with the place of its case in the list.
pub(crate) type Judged<'a> = dyn Fn((usize, &Verdict)) + Sync + 'a;

/// Who judges cases.
pub(crate) trait Judging {
    /// The machine, as far as it is known before the first of these cases is judged.
    ///
    /// # Errors
    /// Where it cannot be started at all.
    fn machine(&mut self, cases: &[Case]) -> Result<MachineInfo, StartError>;

    /// Judges all cases, with a progress bar, and returns the machine and the verdicts in the order of the cases. `judged` is told of each
    /// verdict when it is there, with the case's place in the list, from whichever thread has it.
    ///
    /// # Errors
    /// Where the machine cannot be started at all.
    fn all(&mut self, cases: &[Case], judged: &Judged<'_>) -> Result<(MachineInfo, Vec<Verdict>), StartError>;

    /// Judges one case. An injected fault that was named as it should is a pass.
    ///
    /// # Errors
    /// Where the machine cannot be started at all.
    fn one(&mut self, case: &Case) -> Result<Verdict, StartError>;
}

/// Judges cases in worker processes: one for each environment that cases ask for, one at a time.
pub(crate) struct Judge {
    arguments: Vec<String>,
    deadline: Duration,
    /// How many more cases are judged a second time, whichever supervisor does it.
    second_looks: u32,
    supervisor: Option<(Environment, Supervisor)>,
}

impl Judge {
    /// `extra` are further arguments of the worker.
    pub(crate) fn new(machine: &Machine, extra: &[String], deadline: Duration) -> Judge {
        let arguments = std::iter::once("worker".into()).chain(machine.arguments()).chain(extra.iter().cloned()).collect();
        Judge { arguments, deadline, second_looks: SECOND_LOOKS, supervisor: None }
    }

    fn supervisor(&mut self, environment: &Environment) -> Result<&mut Supervisor, StartError> {
        if self.supervisor.as_ref().is_none_or(|(current, _)| current != environment) {
            self.supervisor = None;
            let command = WorkerCommand::of_this_program(&self.arguments)
                .map_err(|error| StartError::Failed { reason: error.to_string() })?
                .with_environment(environment);
            let mut supervisor = Supervisor::new(command);
            supervisor.second_looks = self.second_looks;
            self.supervisor = Some((environment.clone(), supervisor));
        }
        Ok(&mut self.supervisor.as_mut().expect("it was just made").1)
    }
}

impl Judging for Judge {
    fn machine(&mut self, cases: &[Case]) -> Result<MachineInfo, StartError> {
        // That of the cases that come first.
        let first = cases.iter().map(Case::environment).min().unwrap_or_default();
        self.supervisor(&first)?.machine()
    }

    fn all(&mut self, cases: &[Case], judged: &Judged<'_>) -> Result<(MachineInfo, Vec<Verdict>), StartError> {
        let bar = progress_bar(cases.len());
        let mut machine = None;
        let mut verdicts: Vec<Option<Verdict>> = vec![None; cases.len()];
        for (environment, indices) in by_environment(cases, Case::environment) {
            let info = self.supervisor(&environment)?.machine()?;
            for index in indices {
                let verdict = self.one(&cases[index])?;
                if verdict.status.is_finding() {
                    bar.suspend(|| eprintln!("{} {}: {}", verdict.status, verdict.case, verdict.reason));
                }
                bar.inc(1);
                judged((index, &verdict));
                verdicts[index] = Some(verdict);
            }
            machine = Some(known_better(machine, info));
        }
        bar.finish_and_clear();
        Ok((machine.unwrap_or_default(), verdicts.into_iter().flatten().collect()))
    }

    fn one(&mut self, case: &Case) -> Result<Verdict, StartError> {
        let request = Request::new(case.to_string(), self.deadline + large_case_extra(case));
        let supervisor = self.supervisor(&case.environment())?;
        let verdict = supervisor.judge(&request);
        self.second_looks = supervisor.second_looks;
        Ok(case.fault().map_or(verdict.clone(), |fault| named(case, fault, verdict)))
    }
}

/// Places of cases, by the environment that they need.
pub(crate) fn by_environment(cases: &[Case], of: impl Fn(&Case) -> Environment) -> BTreeMap<Environment, Vec<usize>> {
    let mut places: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (place, case) in cases.iter().enumerate() {
        places.entry(of(case)).or_default().push(place);
    }
    places
}

/// What is told of the machine, of what workers in two environments say: one that has loaded NCCL knows more.
pub(crate) fn known_better(first: Option<MachineInfo>, then: MachineInfo) -> MachineInfo {
    first.filter(|first| !first.nccl.is_empty()).unwrap_or(then)
}

/// More time for payloads that are seconds of copying and comparing: a second for each 128 MiB of all ranks' inputs.
pub(crate) fn large_case_extra(case: &Case) -> Duration {
    Duration::from_secs((case.input_bytes() >> 27).min(600))
}

/// What becomes of a case with an injected fault: a pass where the harness named it.
pub(crate) fn named(case: &Case, fault: Fault, verdict: Verdict) -> Verdict {
    // Any one of these will do: a status, and what must be said.
    let ways: Vec<(Status, Vec<String>)> = match fault {
        // Other people's kernels do not say for whom they wait. Some trap where they have waited long enough, and on GPUs those whose waits are bounded do.
        Fault::Absent(rank) if is_foreign(case) => {
            [(Status::Hang, " did not finish"), (Status::Crash, "the kernel trapped"), (Status::Crash, "CUDA_ERROR_LAUNCH_FAILED")]
                .map(|(status, how)| (status, vec![format!("rank {rank} did not come to "), how.into()]))
                .into()
        }
        Fault::Absent(rank) => vec![(Status::Hang, vec![format!("waited for rank {rank} ")])],
        // The second is the emulator's.
        Fault::IllegalAddress(rank) => {
            ["CUDA_ERROR_ILLEGAL_ADDRESS".into(), format!("ranks [{rank}]: kernel `illegal_address` failed: illegal address")]
                .map(|words| (Status::Crash, vec![words]))
                .into()
        }
        Fault::Killed => vec![(Status::Crash, vec!["signal 9".into()])],
        // On GPUs the rank's process goes on without its thread, and the others' kernels wait for it.
        Fault::Departs { rank, how: Departure::Stalled, .. } => vec![
            (Status::Crash, vec![format!("rank {rank} "), told_of(Departure::Stalled).into(), AGREED.into()]),
            (Status::Hang, vec![format!("waited for rank {rank} ")]),
            (Status::Hang, vec![format!("ranks [{rank}] did not finish")]),
            (Status::Inconclusive, vec![format!("the hosts of ranks [{rank}] did not get to the end")]),
        ],
        Fault::Departs { rank, how, .. } => vec![(Status::Crash, vec![format!("rank {rank} "), told_of(how).into(), AGREED.into()])],
        Fault::LostAtStart(rank) => vec![(Status::Crash, vec![format!("rank {rank} "), told_of(Departure::Exited).into(), AGREED.into()])],
        Fault::Garbage(rank) => vec![(Status::Crash, vec![format!("rank {rank} "), "it sent what is no frame".into(), AGREED.into()])],
        Fault::Capped(rank) => vec![(Status::NotSupported, vec![format!("bytes of memory that rank {rank} shares: ")])],
        Fault::Other { rank, field: Field::Order } => vec![(Status::InfraError, vec![format!("rank {rank} has "), SAME.into()])],
        Fault::Other { rank, field } => {
            vec![(Status::InfraError, vec![format!("rank {rank} has {} of call ", field.name()), SAME.into()])]
        }
        Fault::PortInUse => vec![(Status::InfraError, vec!["cannot listen at ".into(), "the port is in use".into()])],
        // What an aborted run has left may do no harm.
        Fault::Poisoned => vec![(Status::Hang, vec!["waited for rank ".into()]), (Status::Pass, Vec::new())],
    };
    let says = |words: &[String]| words.iter().all(|words| verdict.reason.contains(words));
    let dissent = fault.is_of_processes() && DISSENT.iter().any(|words| verdict.reason.contains(words));
    let was_named = !dissent && ways.iter().any(|(status, words)| verdict.status == *status && says(words));
    if !was_named && matches!(verdict.status, Status::NotSupported | Status::NotRun | Status::Inconclusive) {
        return verdict;
    }
    let reason = match (was_named, verdict.status) {
        (true, Status::Pass) => format!("{fault}: the results are right in spite of it"),
        (true, status) => format!("named as {status}: {}", verdict.reason),
        (false, status) => {
            let (expected, words) = &ways[0];
            format!(
                "the fault {fault} was to be a {expected} that says `{}`, but was a {status}: {}",
                words.join("` and `"),
                verdict.reason
            )
        }
    };
    Verdict { status: if was_named { Status::Pass } else { Status::Fail }, reason, ..verdict }
}

/// What is said where ranks do not agree on what they are about to do.
const SAME: &str = "all ranks must have the same";

/// What is said where every other rank has reported why the job failed.
const AGREED: &str = " report the same";

/// What is said where one has not, or has reported something else.
const DISSENT: [&str; 4] = [" report nothing", " reports: ", " was done", "ranks do not say the same"];

/// What is said of a rank whose process ends so.
fn told_of(how: Departure) -> &'static str {
    match how {
        Departure::Idle => "did not come to ",
        Departure::Killed => "its process was killed by signal 9 (SIGKILL)",
        Departure::Stopped => "it is stopped by signal 19 (SIGSTOP)",
        Departure::Exited => "its process exited with status 0",
        Departure::Panicked => "gave up: it panicked",
        Departure::Stalled => "it did not come in ",
    }
}

/// Whether a case is of a kernel from elsewhere.
fn is_foreign(case: &Case) -> bool {
    match case {
        Case::Collective(case) => algorithms::find(case.collective, &case.algorithm).is_ok_and(|algorithm| algorithm.is_foreign()),
        Case::Product(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use passmuster_collectives::algorithms::Foreign;
    use rstest::rstest;

    use super::*;

    /// If this fails, a report that leaves open which rank did not come is taken for one that names it, or the other way round.
    #[rstest]
    #[case::ours("one_shot", Status::Hang, "rank 0 block 1 of one_shot waited for rank 1 at its end barrier", true)]
    #[case::ours_by_the_script("one_shot", Status::Hang, "rank 1 did not come to x: it had left; ranks [0] did not finish", false)]
    #[case::theirs("theirs", Status::Hang, "rank 1 did not come to x: it had left; ranks [0] did not finish", true)]
    #[case::another("theirs", Status::Hang, "rank 0 did not come to x: it had left; ranks [1] did not finish", false)]
    #[case::nobody("theirs", Status::Hang, "deadlock; ranks [0] did not finish", false)]
    #[case::bounded(
        "theirs",
        Status::Crash,
        "ranks [0]: kernel failed: CUDA_ERROR_LAUNCH_FAILED; rank 1 did not come to x: it had left",
        true
    )]
    #[case::traps("theirs", Status::Crash, "PTX 3:1: the kernel trapped; rank 1 did not come to x: it had left", true)]
    #[case::something_else("theirs", Status::Crash, "CUDA_ERROR_ILLEGAL_ADDRESS; rank 1 did not come to x: it had left", false)]
    #[case::no_hang("theirs", Status::Pass, "", false)]
    fn an_absent_rank_is_named_or_not(#[case] algorithm: &str, #[case] status: Status, #[case] reason: &str, #[case] passes: bool) {
        const THEIRS: &str = r#"
            name = "theirs"
            collective = "all_reduce"
            entry = "theirs"
            dtypes = ["f32"]
            ops = ["sum"]
            worlds = [2]
            launch = { grid = 1, block = 32 }
        "#;
        // Once in a process, and cases are processes.
        let _ = algorithms::register(vec![Foreign::read(THEIRS, None).unwrap()]);
        let case: Case = format!("all_reduce/{algorithm}:f32,sum:w=2:n=9:fault=absent@r1").parse().unwrap();
        let verdict = named(&case, case.fault().unwrap(), Verdict::without_checks(case.to_string(), status, reason));
        assert_eq!(verdict.status, if passes { Status::Pass } else { Status::Fail }, "{}", verdict.reason);
    }

    /// If this fails, a fault that some rank did not hear of passes, or one that was told as another.
    #[rstest]
    #[case::told(
        "killed@r1",
        Status::Crash,
        "rank 1 of 3: its process was killed by signal 9 (SIGKILL), in a; ranks [0, 2] report the same",
        true
    )]
    #[case::another_rank(
        "killed@r1",
        Status::Crash,
        "rank 0 of 3: its process was killed by signal 9 (SIGKILL); ranks [2] report the same",
        false
    )]
    #[case::otherwise(
        "exited@r1",
        Status::Crash,
        "rank 1 of 3: its process was killed by signal 9 (SIGKILL); ranks [0] report the same",
        false
    )]
    #[case::silent(
        "killed@r1",
        Status::Crash,
        "rank 1 of 3: its process was killed by signal 9 (SIGKILL); ranks [0] report the same; ranks [2] report nothing",
        false
    )]
    #[case::no_crash("killed@r1", Status::Pass, "", false)]
    #[case::stalled_on_gpus(
        "stalled@r1",
        Status::Hang,
        "hang after 2000 ms: rank 0 block 1 of one_shot waited for rank 1 at its end barrier",
        true
    )]
    #[case::stalled_otherwise("stalled@r1", Status::Hang, "hang after 2000 ms: ranks [0] did not finish", false)]
    #[case::capped("capped@r1", Status::NotSupported, "64 bytes of memory that rank 1 shares: File too large", true)]
    #[case::order("other_order@r1", Status::InfraError, "rank 1 has count of call 0 = 3, rank 0 has 4: all ranks must have the same", true)]
    #[case::order_of_some(
        "other_order@r1",
        Status::InfraError,
        "ranks do not say the same: rank 1 has a: all ranks must have the same",
        false
    )]
    #[case::harmless("poisoned", Status::Pass, "", true)]
    #[case::wrong("poisoned", Status::Fail, "3 of 9 elements wrong", false)]
    fn faults_of_processes_are_named_by_all(#[case] fault: &str, #[case] status: Status, #[case] reason: &str, #[case] passes: bool) {
        let case: Case = format!("all_reduce/one_shot:f32,sum:w=3:n=9:fault={fault}").parse().unwrap();
        let verdict = named(&case, case.fault().unwrap(), Verdict::without_checks(case.to_string(), status, reason));
        assert_eq!(verdict.status, if passes { Status::Pass } else { Status::Fail }, "{}", verdict.reason);
        let refused =
            named(&case, case.fault().unwrap(), Verdict::without_checks(case.to_string(), Status::NotSupported, "there are no ranks"));
        assert_eq!(refused.status, Status::NotSupported);
    }

    /// If this fails, a record of NCCL's cases does not say which NCCL, and waivers for that version do not apply.
    #[test]
    fn the_machine_of_a_record_knows_nccl() {
        let told = |nccl: &[&str]| {
            let machines = nccl.iter().map(|nccl| MachineInfo { nccl: (*nccl).into(), ..MachineInfo::default() });
            machines.fold(None, |known, info| Some(known_better(known, info))).unwrap().nccl
        };
        assert_eq!([told(&["", "2.28.9", ""]), told(&["2.28.9"]), told(&["", ""])], ["2.28.9", "2.28.9", ""]);
    }
}
