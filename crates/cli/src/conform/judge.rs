//! Who judges the cases: GPUs in worker processes, emulators here, ranks that are processes, or several processes that share out the cases.

use std::{process::ExitCode, thread, time::Duration};

use anyhow::bail;
use passmuster_bootstrap::{Bootstrap, Rank};
use passmuster_harness::{
    conformance::supervisor::StartError,
    emulator::{EmulatorOptions, Interleaving},
};
use passmuster_plan::machine::MachineError;

use super::{Run, arguments::Cases, callable::Called, files::Files, selection::Replay};
use crate::{
    CANNOT_RUN,
    by_ranks::{self, ByRanks, RankMachine},
    emulated::{self, Emulated},
    judging::{Judge, Judging},
    launch::{Job, Part as Process},
    spread::{self, Spread},
    worker::MachineKind,
};

impl Cases {
    /// The emulator's schedules.
    pub(super) fn schedules(&self, replay: Option<&Replay>, run: &Run) -> anyhow::Result<Vec<Interleaving>> {
        let replayed = replay.and_then(|replay| replay.schedule);
        if run.on == MachineKind::Cuda && (replayed.is_some() || run.schedules != 1) {
            bail!("GPUs have no schedules: --schedules and a token's @SCHEDULE are for the emulator");
        }
        if run.launch.has_ranks() && run.schedules != 1 {
            bail!("--schedules: ranks that are processes run as their hosts let them, and have one schedule");
        }
        Ok(match replayed {
            Some(schedule) => vec![schedule],
            None => (0..run.schedules as usize).map(|n| Interleaving::nth(self.seed, n)).collect(),
        })
    }

    /// What this process is of those that judge the cases together.
    pub(super) fn together(&self, run: &Run) -> anyhow::Result<Process> {
        if run.on == MachineKind::Emulator && run.launch.nodes() > 1 {
            bail!("--nodes is for GPUs: on the emulator ranks are on as many nodes as a case says");
        }
        if run.on == MachineKind::Emulator && run.trace.is_none() {
            return run.launch.join();
        }
        if run.on == MachineKind::Cuda && run.launch.has_ranks() {
            return run.launch.join();
        }
        match run.launch.is_asked_for() {
            true if run.on == MachineKind::Cuda => {
                bail!(
                    "--launcher on GPUs: the ranks of each case are processes, as many as --processes N says; cases are shared out on the emulator only"
                )
            }
            true => bail!("--launcher: several processes share out cases of the emulator, and without --trace"),
            false => Ok(Process::Alone),
        }
    }

    /// Who judges.
    pub(super) fn judge(
        &self,
        run: &Run,
        schedules: &[Interleaving],
        files: &Files,
        together: Process,
    ) -> anyhow::Result<Box<dyn Judging>> {
        if let Some(socket) = &run.callable {
            return Ok(Box::new(Called::connect(run, socket, self.deadline)?));
        }
        if run.launch.has_ranks()
            && let Process::Coordinator(job, own) = together
        {
            return Ok(Box::new(self.by_ranks(run, schedules, job, own)?));
        }
        if run.on == MachineKind::Cuda {
            return Ok(Box::new(Judge::new(&run.registry, &run.machine, &run.elsewhere, self.deadline.unwrap_or(Duration::from_secs(10)))));
        }
        let emulated = self.emulated(run, schedules)?;
        Ok(match (together, files.traced()) {
            (Process::Coordinator(job, own), _) => {
                let own = own.map(|rank| Ok::<_, anyhow::Error>((rank, self.emulated(run, schedules)?.config()))).transpose()?;
                Box::new(Spread::new(job, self.asked(run, schedules), emulated, own))
            }
            (_, Some(trace)) => Box::new(emulated.traced(trace)),
            (_, None) => Box::new(emulated),
        })
    }

    /// Who judges on ranks that are processes. Where this one is a rank as well, it is `own`.
    fn by_ranks(&self, run: &Run, schedules: &[Interleaving], job: Job, own: Option<Rank>) -> anyhow::Result<ByRanks> {
        if let Some(mut rank) = own {
            let machine = self.rank_machine(run, schedules, &rank)?;
            // If it fails, the coordinator learns of it, as of any rank.
            let registry = run.registry.clone();
            thread::spawn(move || by_ranks::serve(&registry, &rank, machine).unwrap_or_else(|error| rank.give_up(&format!("{error:#}"))));
        }
        let launch = run.launch.clone();
        let again = launch.starts_them().then(|| Box::new(move |lost, environment: &_| launch.start(lost, environment)) as by_ranks::Again);
        let on_gpus = run.on == MachineKind::Cuda;
        let default = if on_gpus { by_ranks::DEADLINE_OF_GPUS } else { by_ranks::DEADLINE };
        let silence = if on_gpus { run.machine.gpus.wait_limit + by_ranks::SILENCE } else { by_ranks::SILENCE };
        let schedule = (!on_gpus).then_some(schedules[0]);
        ByRanks::open(&run.registry, job, again, schedule, self.deadline.unwrap_or(default), silence).map_err(|error| match error {
            MachineError::NotSupported { reason } if on_gpus => StartError::CannotRun { reason }.into(),
            error => error.into(),
        })
    }

    /// What the process of a rank opens.
    fn rank_machine(&self, run: &Run, schedules: &[Interleaving], rank: &Rank) -> anyhow::Result<RankMachine> {
        Ok(match run.on {
            MachineKind::Emulator => RankMachine::Emulator(self.options(run)?.with(schedules[0])),
            MachineKind::Cuda => {
                let (gpus, library) = (run.machine.gpus.clone(), run.library.clone());
                RankMachine::Cuda { gpus, library, local_rank: run.launch.local_rank(rank.rank())?, nodes: run.launch.nodes() }
            }
        })
    }

    /// Does what the coordinator asks, until it has no more.
    pub(super) fn serve(&self, run: &Run, schedules: &[Interleaving], mut rank: Rank) -> anyhow::Result<ExitCode> {
        let served = if run.launch.has_ranks() {
            self.rank_machine(run, schedules, &rank).and_then(|machine| by_ranks::serve(&run.registry, &rank, machine))
        } else {
            self.emulated(run, schedules).and_then(|emulated| spread::serve(&rank, &emulated.config(), self.asked(run, schedules)))
        };
        match served {
            Ok(()) => Ok(ExitCode::SUCCESS),
            // The coordinator says why.
            Err(error) if matches!(error.downcast_ref(), Some(StartError::CannotRun { .. })) => Ok(ExitCode::from(CANNOT_RUN)),
            Err(error) => {
                // The others are to know why.
                rank.give_up(&format!("{error:#}"));
                Err(error)
            }
        }
    }

    /// What emulators are opened with.
    fn options(&self, run: &Run) -> anyhow::Result<EmulatorOptions> {
        let mut options = run.machine.emulator(run.library.clone(), self.seed)?;
        options.memory_budget = run.memory.unwrap_or(options.memory_budget);
        options.steps = run.steps.unwrap_or(options.steps);
        options.coverage = run.coverage.clone();
        Ok(options)
    }

    /// Who judges in this process.
    fn emulated(&self, run: &Run, schedules: &[Interleaving]) -> anyhow::Result<Emulated> {
        let options = self.options(run)?;
        let deadline = self.deadline.unwrap_or(emulated::DEADLINE);
        Ok(Emulated::new(run.registry.clone(), options, schedules.to_vec(), deadline).with_threads(run.launch.threads()?))
    }
}
