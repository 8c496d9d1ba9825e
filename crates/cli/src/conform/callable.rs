//! `check`: cases whose calls a callable of somebody else's processes makes. The Python package starts it.

use std::{os::unix::net::UnixStream, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use passmuster_harness::{
    callable::Callables,
    conformance::{Case, Verdict, runner::Settings, supervisor::StartError},
};
use passmuster_plan::{
    algorithms::Registry,
    machine::{Machine as _, MachineInfo},
};
use xshell::Shell;

use super::{Run, arguments::Cases};
use crate::{
    foreign::ForeignArgs,
    gpus::Gpus,
    judging::{Judged, Judging},
    progress::{findings, progress_bar},
    worker::MachineKind,
};

/// How long a call may take, unless --deadline says so.
const DEADLINE: Duration = Duration::from_secs(10);

/// Judge a callable of the processes behind a socket (started by the Python package).
#[derive(clap::Args)]
pub(crate) struct Check {
    #[command(flatten)]
    cases: Cases,
    #[command(flatten)]
    elsewhere: ForeignArgs,
    #[command(flatten)]
    gpus: Gpus,
    /// Where the processes listen.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
}

impl Check {
    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let Check { cases, elsewhere, gpus, socket } = self;
        let run = Run { callable: Some(socket), ..Run::plain("check", registry, MachineKind::Emulator, gpus.into()) };
        cases.run(&run.with(&elsewhere)?, sh)
    }
}

/// Judges one case after the other.
pub(super) struct Called {
    machine: Callables<UnixStream>,
    registry: Registry,
    deadline: Duration,
}

impl Called {
    /// Connects to the processes.
    ///
    /// # Errors
    /// Nobody listens there.
    pub(super) fn connect(run: &Run, socket: &PathBuf, deadline: Option<Duration>) -> anyhow::Result<Called> {
        let stream = UnixStream::connect(socket).with_context(|| format!("nobody listens at {}", socket.display()))?;
        let name = run.known.first().map_or("callable", |known| known.of.name());
        Ok(Called { machine: Callables::new(stream, name), registry: run.registry.clone(), deadline: deadline.unwrap_or(DEADLINE) })
    }

    fn judge(&mut self, case: &Case) -> Verdict {
        let settings = Settings { registry: &self.registry, deadline: self.deadline, shared_pads: false, progress: &|_| {} };
        case.judge(&mut self.machine, &settings)
    }
}

impl Judging for Called {
    fn machine(&mut self, _cases: &[Case]) -> Result<MachineInfo, StartError> {
        Ok(self.machine.info())
    }

    fn all(&mut self, cases: &[Case], judged: &Judged<'_>) -> Result<(MachineInfo, Vec<Verdict>), StartError> {
        let (bar, mut found) = (progress_bar(cases.len()), 0);
        let mut verdicts = Vec::new();
        for (at, case) in cases.iter().enumerate() {
            let verdict = self.judge(case);
            found += usize::from(verdict.status.is_finding());
            judged((at, &verdict));
            bar.set_message(findings(found));
            bar.inc(1);
            verdicts.push(verdict);
        }
        bar.finish_and_clear();
        Ok((self.machine.info(), verdicts))
    }

    fn one(&mut self, case: &Case) -> Result<Verdict, StartError> {
        Ok(self.judge(case))
    }
}
