//! The worker of `bench`: a process that owns the machine, judges cases and times rounds as it is asked.

use std::{process::ExitCode, time::Duration};

use passmuster::{
    conformance::{
        CollectiveCase, Status, Verdict,
        process::{requests, say},
        runner::{self, Settings},
    },
    emulator::Emulator,
};
use passmuster_bench::{Contender, Method, Round, SmFreeCheck, Span, Timer, Workload};
use passmuster_collectives::{
    library::Library,
    machine::{MachineError, MachineInfo},
};
use serde::{Deserialize, Serialize};

use crate::{
    CANNOT_RUN,
    foreign::ForeignArgs,
    worker::{Gpus, MachineKind},
};

/// Judge and time as it is told (started by bench).
#[derive(clap::Args)]
pub(crate) struct BenchWorker {
    /// On the emulator.
    #[arg(long)]
    rehearse: bool,
    #[command(flatten)]
    elsewhere: ForeignArgs,
    #[command(flatten)]
    gpus: Gpus,
}

/// What a worker is asked.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// What the machine is.
    Machine,
    /// To judge a case.
    Judge { case: String },
    /// To look whether what a contender leaves is right.
    Check { contender: String, workload: Workload },
    /// Whether a gather gets done while blocks hold every SM.
    SmFreeCheck { contender: String, workload: Workload },
    /// To time one round.
    Round { contender: String, workload: Workload, method: Method },
    /// What the operations of one call take.
    Spans { contender: String, workload: Workload, method: Method },
}

/// What it answers. After a hang or a fault it must not be asked again.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Machine(MachineInfo),
    Verdict(Verdict),
    /// What was looked at, and what is wrong.
    Checked(Result<(String, Option<String>), MachineError>),
    SmFreeCheck(Result<Option<SmFreeCheck>, MachineError>),
    Round(Result<Round, MachineError>),
    Spans(Result<Vec<Vec<Span>>, MachineError>),
}

/// How long one run of the machine may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

impl BenchWorker {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut library = Library::default();
        self.elsewhere.register(&mut library, if self.rehearse { MachineKind::Emulator } else { MachineKind::Cuda })?;
        let mut machine: Box<dyn passmuster_collectives::machine::Machine> = match self.rehearse {
            true => Box::new(Emulator::new(self.gpus.emulator(library)?)),
            false => match self.gpus.open(library, None) {
                Ok(machine) => Box::new(machine),
                Err(error) => {
                    eprintln!("{error}");
                    return Ok(ExitCode::from(CANNOT_RUN));
                }
            },
        };
        let mut timer = Timer::new(&mut *machine, DEADLINE);
        for request in requests() {
            say(&answer(&mut timer, request)?)?;
        }
        // Destructors of a driver that may be wedged have nothing to add.
        std::process::exit(0)
    }
}

fn answer(timer: &mut Timer<'_>, request: Request) -> anyhow::Result<Answer> {
    let find = |workload: &Workload, contender: &str| Contender::find(workload, contender).map_err(anyhow::Error::msg);
    Ok(match request {
        Request::Machine => Answer::Machine(timer.machine().info()),
        Request::Judge { case } => {
            let settings = Settings { deadline: DEADLINE, shared_pads: false, progress: &|_| {} };
            Answer::Verdict(match case.parse::<CollectiveCase>() {
                Ok(parsed) => runner::judge(&parsed, timer.machine(), &settings),
                Err(error) => Verdict::without_checks(case, Status::InfraError, error.to_string()),
            })
        }
        Request::Check { contender, workload } => Answer::Checked(timer.check(&find(&workload, &contender)?, &workload)),
        Request::SmFreeCheck { contender, workload } => Answer::SmFreeCheck(timer.held(&find(&workload, &contender)?, &workload)),
        Request::Round { contender, workload, method } => Answer::Round(timer.round(&find(&workload, &contender)?, &workload, &method)),
        Request::Spans { contender, workload, method } => Answer::Spans(timer.spans(&find(&workload, &contender)?, &workload, &method)),
    })
}
