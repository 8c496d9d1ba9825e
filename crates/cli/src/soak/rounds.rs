//! Who runs rounds: an emulator in this process, or a worker with GPUs.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use passmuster_harness::{
    conformance::{
        Case, Verdict,
        resources::Resources,
        runner::Settings,
        soak::Round,
        supervisor::{StartError, Supervisor, WorkerCommand},
        worker::{self, Request},
    },
    emulator::{Emulator, EmulatorOptions},
};
use passmuster_plan::{
    algorithms::Registry,
    machine::{Machine as _, MachineInfo},
};

use super::Soak;
use crate::{
    emulated,
    worker::{MachineKind, planted},
};

/// How long a script may take on GPUs.
const DEADLINE: Duration = Duration::from_secs(10);

/// One machine, for all rounds.
pub(super) enum Rounds {
    Emulated { registry: Box<Registry>, machine: Box<Emulator>, options: Box<EmulatorOptions>, deadline: Duration, held: Option<Resources> },
    Worker { supervisor: Box<Supervisor>, deadline: Duration },
}

impl Rounds {
    /// # Errors
    /// Options that do not go together, and a mutant that there is not.
    pub(super) fn new(registry: &Registry, asked: &Soak) -> anyhow::Result<Rounds> {
        if asked.on == MachineKind::Emulator {
            let planted = asked.mutant.as_deref().map(|name| planted(registry, name)).transpose()?;
            let library = planted.map_or_else(|| registry.library(), |mutant| mutant.library_with_all_entries(registry));
            let options = asked.machine.emulator(library, 0)?;
            let machine = Box::new(Emulator::new(options.clone()));
            return Ok(Rounds::Emulated {
                registry: Box::new(registry.clone()),
                machine,
                options: Box::new(options),
                deadline: asked.deadline.unwrap_or(emulated::DEADLINE),
                held: None,
            });
        }
        let mutant = asked.mutant.iter().flat_map(|name| [format!("--mutant={name}"), "--all-entries".into()]);
        let arguments = ["worker".to_owned()].into_iter().chain(asked.machine.arguments()).chain(mutant);
        let supervisor = Box::new(Supervisor::new(WorkerCommand::of_this_program(arguments)?, registry.clone()));
        Ok(Rounds::Worker { supervisor, deadline: asked.deadline.unwrap_or(DEADLINE) })
    }

    /// What it runs on.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub(super) fn machine(&mut self) -> Result<MachineInfo, StartError> {
        match self {
            Rounds::Emulated { machine, .. } => Ok(machine.info()),
            Rounds::Worker { supervisor, .. } => supervisor.machine(),
        }
    }

    /// Runs a round, and looks at what the process holds then.
    ///
    /// # Errors
    /// Where that cannot be seen.
    pub(super) fn judge(&mut self, round: &Round) -> anyhow::Result<Verdict> {
        match self {
            Rounds::Emulated { registry, machine, options, deadline, held } => {
                let schedule = Soak::schedule(round);
                machine.set_interleaving(schedule);
                let settings = Settings { registry, deadline: *deadline, shared_pads: false, progress: &|_| {} };
                let judged = catch_unwind(AssertUnwindSafe(|| round.judge(&mut **machine, &settings)));
                let mut verdict = judged.unwrap_or_else(|panic| {
                    **machine = Emulator::new((**options).clone());
                    worker::panicked(&round.to_string(), panic.as_ref())
                });
                machine.close_groups();
                *held = Some(Resources::now(&**machine)?);
                verdict.schedule = (verdict.status.is_finding()).then(|| schedule.to_string());
                Ok(verdict)
            }
            Rounds::Worker { supervisor, deadline } => Ok(supervisor.judge(&Request::new(round.to_string(), round.deadline(*deadline)))),
        }
    }

    /// Judges a case of a round by itself, under the round's schedule.
    ///
    /// # Errors
    /// Where it is no case.
    pub(super) fn alone(&mut self, case: &str, round: &Round) -> anyhow::Result<Verdict> {
        match self {
            Rounds::Emulated { registry, machine, options, deadline, .. } => {
                let schedule = Soak::schedule(round);
                machine.set_interleaving(schedule);
                let mut verdict = emulated::judge(registry, &Case::resolve(case, registry)?, machine, options, *deadline, false);
                verdict.schedule = Some(schedule.to_string());
                Ok(verdict)
            }
            Rounds::Worker { supervisor, deadline } => Ok(supervisor.judge(&Request::new(case, *deadline))),
        }
    }

    /// What the process of the machine held after the last round.
    pub(super) fn holds(&self) -> Option<Resources> {
        match self {
            Rounds::Emulated { held, .. } => *held,
            Rounds::Worker { supervisor, .. } => supervisor.holds(),
        }
    }

    /// What happened beside the rounds.
    pub(super) fn notes(&self) -> Vec<String> {
        match self {
            Rounds::Emulated { .. } => Vec::new(),
            Rounds::Worker { supervisor, .. } => supervisor.notes().to_vec(),
        }
    }
}
