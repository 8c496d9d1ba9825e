//! The worker of `bench`: a process that owns the machine, judges cases and times rounds as it is asked. Where ranks are processes it starts them, as itself
//! once more, and its machine is all of theirs together.

use std::{
    env,
    num::NonZeroUsize,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use passmuster_bench::{Contender, Method, Round, SmFreeCheck, Span, Timer, Workload};
use passmuster_bootstrap::{
    Bootstrap,
    own::{self, Launched},
};
use passmuster_harness::{
    conformance::{
        CollectiveCase, Status, Verdict,
        process::{requests, say},
        ranks::Processes,
        runner::{self, Settings},
    },
    emulator::Emulator,
};
use passmuster_plan::{
    algorithms::Registry,
    library::Library,
    machine::{Machine, MachineError, MachineInfo},
};
use serde::{Deserialize, Serialize};

use crate::{
    CANNOT_RUN,
    by_ranks::{self, RankMachine},
    foreign::{ForeignArgs, Known},
    gpus::{self, Gpus},
    worker::MachineKind,
};

/// Judge and time what bench asks for (started by bench).
#[derive(clap::Args)]
pub(crate) struct BenchWorker {
    /// On the emulator.
    #[arg(long)]
    rehearse: bool,
    /// Number of ranks, each in a process of its own.
    #[arg(long, value_name = "N")]
    processes: Option<NonZeroUsize>,
    /// Which of several starts it is of, from 0 on.
    #[arg(long, value_name = "K", default_value_t = 0)]
    start: u32,
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
    /// To open and fill what a contender's rounds need.
    GetReady { contender: String, workload: Workload, method: Method },
    /// To run a kernel that does nothing on each GPU.
    RunBeside,
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
    /// That it is ready, or has run beside others.
    Done(Result<(), MachineError>),
    Round(Result<Round, MachineError>),
    Spans(Result<Vec<Vec<Span>>, MachineError>),
}

/// How long one run of the machine may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// How much longer than that ranks in processes with GPUs may take: they compile kernels, and have NCCL connect. Both together are less than the patience of
/// who asks (`workers::SILENCE`), so that a rank that is missing is named.
const GRACE: Duration = Duration::from_secs(60);

impl BenchWorker {
    /// Whether this process may open GPUs itself, as opposed to one that starts ranks' processes.
    pub(crate) fn opens_gpus(&self) -> bool {
        self.processes.is_none() || own::is_rank()
    }

    pub(crate) fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        let on = if self.rehearse { MachineKind::Emulator } else { MachineKind::Cuda };
        let Known { registry, library, .. } = self.elsewhere.beside(registry, on)?;
        if self.processes.is_some() && own::is_rank() {
            self.serve(&registry, library)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut machine: Box<dyn Machine> = match (self.processes, self.rehearse) {
            (Some(ranks), _) => match self.processes(ranks)? {
                Ok(machine) => Box::new(machine),
                Err(reason) => return Ok(cannot_run(&reason)),
            },
            (None, true) => Box::new(Emulator::new(self.gpus.emulator(library)?)),
            (None, false) => match gpus::open(&self.gpus, library, None) {
                Ok(machine) => machine,
                Err(reason) => return Ok(cannot_run(&reason)),
            },
        };
        let mut timer = Timer::new(&mut *machine, DEADLINE).of_start(self.start);
        for request in requests() {
            say(&answer(&registry, &mut timer, request)?)?;
        }
        if self.processes.is_some() {
            // This lets its ranks leave: none of them outlives this process.
            drop(machine);
        }
        // Destructors of a driver that may be wedged have nothing to add.
        std::process::exit(0)
    }

    /// Starts this command once more for each rank: the machine that they are together, or why this host cannot run it.
    fn processes(&self, ranks: NonZeroUsize) -> anyhow::Result<Result<Processes<Launched>, String>> {
        let program = env::current_exe()?;
        let again = |_| {
            let mut command = Command::new(&program);
            // Only this process answers requests.
            command.args(env::args_os().skip(1)).stdout(Stdio::null());
            command
        };
        match Processes::open(Launched::start(ranks.get(), false, again)?) {
            Ok(mut machine) => {
                if !self.rehearse {
                    machine.set_grace(GRACE);
                }
                Ok(Ok(machine))
            }
            Err(MachineError::NotSupported { reason }) => Ok(Err(reason)),
            Err(error) => Err(error.into()),
        }
    }

    /// Serves as one of these ranks, until the coordinator lets it leave.
    fn serve(&self, registry: &Registry, library: Library) -> anyhow::Result<()> {
        let rank = own::join()?;
        let machine = match self.rehearse {
            true => RankMachine::Emulator(self.gpus.emulator(library)?),
            false => RankMachine::Cuda { gpus: self.gpus.clone(), library, local_rank: rank.rank(), nodes: 1 },
        };
        by_ranks::serve(registry, &rank, machine)
    }
}

fn cannot_run(reason: &str) -> ExitCode {
    eprintln!("{reason}");
    ExitCode::from(CANNOT_RUN)
}

fn answer(registry: &Registry, timer: &mut Timer<'_>, request: Request) -> anyhow::Result<Answer> {
    let find = |workload: &Workload, contender: &str| Contender::find(registry, workload, contender).map_err(anyhow::Error::msg);
    Ok(match request {
        Request::Machine => Answer::Machine(timer.machine().info()),
        Request::Judge { case } => {
            let settings = Settings { registry, deadline: DEADLINE, shared_pads: false, progress: &|_| {} };
            Answer::Verdict(match case.parse::<CollectiveCase>() {
                Ok(parsed) => runner::judge(&parsed, timer.machine(), &settings),
                Err(error) => Verdict::without_checks(case, Status::InfraError, error.to_string()),
            })
        }
        Request::Check { contender, workload } => Answer::Checked(timer.check(&find(&workload, &contender)?, &workload)),
        Request::SmFreeCheck { contender, workload } => Answer::SmFreeCheck(timer.held(&find(&workload, &contender)?, &workload)),
        Request::GetReady { contender, workload, method } => {
            Answer::Done(timer.get_ready(&find(&workload, &contender)?, &workload, &method))
        }
        Request::RunBeside => Answer::Done(timer.run_beside()),
        Request::Round { contender, workload, method } => Answer::Round(timer.round(&find(&workload, &contender)?, &workload, &method)),
        Request::Spans { contender, workload, method } => Answer::Spans(timer.spans(&find(&workload, &contender)?, &workload, &method)),
    })
}
