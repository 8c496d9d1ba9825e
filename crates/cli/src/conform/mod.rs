//! `validate` and `test-gpu`: selected cases, judged on the emulator in this process or on GPUs in worker processes.
//!
//! [`Cases::run`] is the way of both commands: `selection` says which cases, `judge` who judges them, `session` has them judged and makes the record, `output`
//! prints it, `status` is what the command exits with.

mod arguments;
mod callable;
mod files;
mod github;
mod judge;
#[cfg(feature = "bench")]
mod merge;
mod output;
mod presentation;
mod request;
mod selection;
mod session;
mod shrinking;
mod stale;
mod status;
mod suspicion;
mod waivers;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::bail;
use passmuster_harness::{conformance::Case, emulator::Coverage};
use passmuster_plan::{
    algorithms::{Registry, Target},
    library::Library,
};
use xshell::Shell;

use self::{
    arguments::Cases,
    files::Files,
    selection::Replay,
    session::{Judged, Session},
};
use crate::{
    foreign::{ForeignArgs, Known, RegisteredKernel},
    launch::{LaunchArgs, Part as Process},
    print,
    worker::{Machine, MachineKind},
};

pub(crate) use arguments::{TestGpu, Validate};
pub(crate) use callable::Check;
#[cfg(feature = "bench")]
pub(crate) use merge::merged;

/// What a command adds to the cases.
struct Run {
    /// Its name.
    kind: &'static str,
    on: MachineKind,
    machine: Machine,
    registry: Registry,
    library: Library,
    /// The options that name a kernel from elsewhere, again.
    elsewhere: Vec<String>,
    known: Vec<RegisteredKernel>,
    memory: Option<u64>,
    /// The emulator's schedules of each case.
    schedules: u32,
    /// The most thread instructions of one run there.
    steps: Option<u64>,
    trace: Option<PathBuf>,
    /// What the cases execute, if that is asked for, and where it goes as LCOV.
    coverage: Option<Arc<Coverage>>,
    lcov: Option<PathBuf>,
    launch: LaunchArgs,
    /// Where the processes listen that make the calls, if a callable of theirs is judged and no kernel.
    callable: Option<PathBuf>,
}

impl Run {
    /// Nothing but the command and its machine.
    fn plain(kind: &'static str, registry: &Registry, on: MachineKind, machine: Machine) -> Run {
        Run {
            kind,
            on,
            machine,
            registry: registry.clone(),
            library: registry.library(),
            elsewhere: Vec::new(),
            known: Vec::new(),
            memory: None,
            schedules: 1,
            steps: None,
            trace: None,
            coverage: None,
            lcov: None,
            launch: LaunchArgs::default(),
            callable: None,
        }
    }

    /// With these kernels from elsewhere.
    fn with(mut self, elsewhere: &ForeignArgs) -> anyhow::Result<Run> {
        let Known { registry, library, foreign } = elsewhere.beside_in(&self.registry, self.library, self.on)?;
        (self.registry, self.library, self.known) = (registry, library, foreign);
        self.elsewhere = elsewhere.arguments();
        Ok(self)
    }
}

impl Cases {
    /// Selects cases, has them judged, and says what was found.
    fn run(self, run: &Run, sh: &Shell) -> anyhow::Result<ExitCode> {
        let replay = self.replay.as_deref().map(str::parse::<Replay>).transpose()?;
        let cases = self.select(replay.as_ref(), &run.registry, &run.known)?;
        if self.list {
            cases.iter().for_each(|case| println!("{case}"));
            return Ok(ExitCode::SUCCESS);
        }
        if self.plan {
            print_plans(&cases, &run.registry);
            return Ok(ExitCode::SUCCESS);
        }
        if run.trace.is_some() && cases.len() != 1 {
            bail!("--trace is for one case: `{}` selects {}", self.query, cases.len());
        }
        let schedules = self.schedules(replay.as_ref(), run)?;
        let together = self.together(run)?;
        if let Process::Member(rank) = together {
            return self.serve(run, &schedules, rank);
        }
        let files = Files::open(&self, run)?;
        let judge = self.judge(run, &schedules, &files, together);
        let session = Session { asked: &self, run, cases, schedules, files };
        let Judged { record, smaller, written } = match judge.and_then(|mut judge| session.judge(&mut *judge, sh)) {
            Ok(judged) => judged,
            Err(error) => return status::of_error(run.kind, error),
        };
        session.print(&record, &smaller);
        // The verdicts have been printed; a file that cannot be written must not take them back.
        written?;
        Ok(self.status(&session.cases, &record))
    }
}

/// Prints what cases do, as long as somebody reads it.
fn print_plans(cases: &[Case], registry: &Registry) {
    for case in cases.iter().take_while(|_| print::is_read()) {
        match case.describe(registry, Target::default().waiting_blocks) {
            Ok(text) => println!("{text}"),
            Err(reason) => println!("{case}\nnot supported: {reason}\n"),
        }
    }
}
