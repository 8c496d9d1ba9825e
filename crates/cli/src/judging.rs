//! Who judges cases: workers with GPUs, one case at a time. The emulator's is in emulated.rs.

use std::{collections::BTreeMap, time::Duration};

use passmuster_harness::conformance::{
    Case, Verdict,
    supervisor::{SECOND_LOOKS, StartError, Supervisor, WorkerCommand},
    worker::Request,
};
use passmuster_plan::{algorithms::Registry, machine::MachineInfo};

use crate::{
    launch::Environment,
    progress::{findings, progress_bar},
    worker::Machine,
};

/// Gets a verdict, with the place of its case in the list.
pub(crate) type Judged<'a> = dyn Fn((usize, &Verdict)) + Sync + 'a;

/// Who judges cases.
pub(crate) trait Judging {
    /// The machine, as far as it is known before the first of these cases is judged.
    ///
    /// # Errors
    /// Where it cannot be started at all.
    fn machine(&mut self, cases: &[Case]) -> Result<MachineInfo, StartError>;

    /// Judges all cases, with a progress bar, and returns the machine and the verdicts in the order of the cases. `judged` gets each
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
    registry: Registry,
    arguments: Vec<String>,
    deadline: Duration,
    /// How many more cases are judged a second time, whichever supervisor does it.
    second_looks: u32,
    supervisor: Option<(Environment, Supervisor)>,
}

impl Judge {
    /// `extra` are further arguments of the worker.
    pub(crate) fn new(registry: &Registry, machine: &Machine, extra: &[String], deadline: Duration) -> Judge {
        let arguments = std::iter::once("worker".into()).chain(machine.arguments()).chain(extra.iter().cloned()).collect();
        Judge { registry: registry.clone(), arguments, deadline, second_looks: SECOND_LOOKS, supervisor: None }
    }

    fn supervisor(&mut self, environment: &Environment) -> Result<&mut Supervisor, StartError> {
        if self.supervisor.as_ref().is_none_or(|(current, _)| current != environment) {
            self.supervisor = None;
            let command = WorkerCommand::of_this_program(&self.arguments)
                .map_err(|error| StartError::Failed { reason: error.to_string() })?
                .with_environment(environment);
            let mut supervisor = Supervisor::new(command, self.registry.clone());
            supervisor.second_looks = self.second_looks;
            self.supervisor = Some((environment.clone(), supervisor));
        }
        Ok(&mut self.supervisor.as_mut().expect("it was just made").1)
    }
}

impl Judging for Judge {
    fn machine(&mut self, cases: &[Case]) -> Result<MachineInfo, StartError> {
        // That of the cases that come first.
        let first = cases.iter().map(|case| case.environment(&self.registry)).min().unwrap_or_default();
        self.supervisor(&first)?.machine()
    }

    fn all(&mut self, cases: &[Case], judged: &Judged<'_>) -> Result<(MachineInfo, Vec<Verdict>), StartError> {
        let bar = progress_bar(cases.len());
        let mut machine = None;
        let (mut verdicts, mut found): (Vec<Option<Verdict>>, usize) = (vec![None; cases.len()], 0);
        for (environment, indices) in by_environment(cases, |case| case.environment(&self.registry)) {
            let info = self.supervisor(&environment)?.machine()?;
            for index in indices {
                let verdict = self.one(&cases[index])?;
                found += usize::from(verdict.status.is_finding());
                bar.set_message(findings(found));
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
        let supervisor = self.supervisor(&case.environment(&self.registry))?;
        let verdict = supervisor.judge(&request);
        self.second_looks = supervisor.second_looks;
        Ok(verdict)
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

/// What to report of the machine, of what workers in two environments say: one that has loaded NCCL knows more.
pub(crate) fn known_better(first: Option<MachineInfo>, then: MachineInfo) -> MachineInfo {
    first.filter(|first| !first.nccl.is_empty()).unwrap_or(then)
}

/// More time for payloads that are seconds of copying and comparing: a second for each 128 MiB of all ranks' inputs.
pub(crate) fn large_case_extra(case: &Case) -> Duration {
    Duration::from_secs((case.input_bytes() >> 27).min(600))
}

#[cfg(test)]
mod tests {
    use super::*;

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
