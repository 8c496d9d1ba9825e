//! Cases on ranks that are processes of their own: one case at a time, on all of them.

use std::time::Duration;

use passmuster::{
    conformance::{
        Case, Status, Verdict,
        ranks::{self, Processes},
        runner::Settings,
        supervisor::StartError,
    },
    emulator::{EmulatorOptions, Interleaving, RankEmulator},
};
use passmuster_bootstrap::Rank;
use passmuster_collectives::machine::{Machine, MachineError, MachineInfo};

use crate::{
    judging::{Judged, Judging, named},
    launch::Job,
    progress::progress_bar,
};

/// Wall time of one run by default. Ranks that wait for each other do so until then: nobody sees that all of them do.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Starts the processes of a job once more; none where others started them.
pub(crate) type Again = Box<dyn FnMut() -> anyhow::Result<Option<Job>>>;

/// Judges cases on ranks that are processes.
pub(crate) struct ByRanks {
    /// None where the last one broke, and no other is there yet.
    machine: Option<Processes<Job>>,
    info: MachineInfo,
    again: Again,
    schedule: Interleaving,
    deadline: Duration,
    /// Why there is no machine any more.
    over: Option<String>,
}

impl ByRanks {
    /// On the processes of a job. Every rank runs under this schedule, whose seed decides what its own streams and warps do; `deadline` is wall time.
    ///
    /// # Errors
    /// Where they do not come, or one of them cannot.
    pub(crate) fn open(job: Job, again: Again, schedule: Interleaving, deadline: Duration) -> Result<ByRanks, MachineError> {
        let machine = Processes::open(job)?;
        let info = machine.info();
        Ok(ByRanks { machine: Some(machine), info, again, schedule, deadline, over: None })
    }

    fn judge(&mut self, case: &Case) -> Verdict {
        if self.machine.is_none() && self.over.is_none() {
            match (self.again)() {
                Ok(Some(job)) => match Processes::open(job) {
                    Ok(machine) => self.machine = Some(machine),
                    Err(error) => self.over = Some(error.to_string()),
                },
                Ok(None) => self.over = Some("a rank's process is lost, and whoever started it must start the job again".into()),
                Err(error) => self.over = Some(error.to_string()),
            }
        }
        let Some(machine) = &mut self.machine else {
            return Verdict::without_checks(case.to_string(), Status::NotRun, self.over.clone().unwrap_or_default());
        };
        let settings = Settings { deadline: self.deadline, shared_pads: false, progress: &|_| {} };
        let mut verdict = case.judge(machine, &settings);
        if machine.is_broken() {
            self.machine = None;
        }
        if verdict.status.is_finding() || verdict.status == Status::Inconclusive {
            verdict.schedule = Some(self.schedule.to_string());
        }
        match case.fault() {
            Some(fault) => named(case, fault, verdict),
            None => verdict,
        }
    }
}

impl Judging for ByRanks {
    fn machine(&mut self, _cases: &[Case]) -> Result<MachineInfo, StartError> {
        Ok(self.info.clone())
    }

    fn all(&mut self, cases: &[Case], judged: &Judged<'_>) -> Result<(MachineInfo, Vec<Verdict>), StartError> {
        let bar = progress_bar(cases.len());
        let mut verdicts = Vec::new();
        for (index, case) in cases.iter().enumerate() {
            let verdict = self.judge(case);
            if verdict.status.is_finding() {
                bar.suspend(|| eprintln!("{} {}: {}", verdict.status, verdict.case, verdict.reason));
            }
            bar.inc(1);
            judged((index, &verdict));
            verdicts.push(verdict);
        }
        bar.finish_and_clear();
        Ok((self.info.clone(), verdicts))
    }

    fn one(&mut self, case: &Case) -> Result<Verdict, StartError> {
        Ok(self.judge(case))
    }
}

/// Is a rank of such a job, until it is told to leave.
///
/// # Errors
/// Where the job has failed.
pub(crate) fn serve(rank: &Rank, options: EmulatorOptions) -> anyhow::Result<()> {
    let library = options.library.clone();
    let mut machine = RankEmulator::new(options, Box::new(rank.clone()))?;
    Ok(ranks::serve(rank, &mut machine, &library)?)
}
