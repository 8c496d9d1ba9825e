//! Several processes for one command: who starts them, which of them this one is, and what they are for.

use std::{
    collections::BTreeMap,
    env,
    num::NonZeroUsize,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use passmuster_bootstrap::{
    Bootstrap, Hub, Rank, Secret,
    own::{self, Launched},
    placement::{OpenHub, Placement},
};

/// How long the processes of a job may take to come together.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Who starts the processes.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// This command does, on this host.
    Own,
    /// torchrun, mpirun, mpiexec or srun did; their variables say who is who, and the processes meet over TCP.
    Env,
    /// mpirun or srun did; they meet by MPI. Needs a binary with the feature `mpi`.
    Mpi,
}

/// The options.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = PROCESSES)]
pub(crate) struct LaunchArgs {
    /// Use several processes, and say who starts them. They share out the cases. Rank 0, or this command, writes one record. If a process is lost, another
    /// runs its cases again. Under torchrun, mpirun and srun with more than one process, `env` is the default.
    ///
    /// Processes meet at port PASSMUSTER_PORT of MASTER_ADDR. The default port is MASTER_PORT + 100, or 29717; the default host is this one, if all of them
    /// run here. They share a secret: PASSMUSTER_SECRET, or the file PASSMUSTER_SECRET_FILE, or ~/.config/passmuster/secret, which is created if it is
    /// missing.
    #[arg(long, value_enum)]
    launcher: Option<Launcher>,
    /// Make each rank of a case a process of its own, N of them, in place of sharing out cases. On GPUs each opens its own. On the emulator, atomics and
    /// fences are then the host processor's, and races are not checked. With --launcher env and mpi, N is the number of processes that were started; on GPUs
    /// you may leave out both options, if all processes run on this host.
    #[arg(long, value_name = "N", requires = "launcher", conflicts_with = "judges")]
    processes: Option<NonZeroUsize>,
    /// With --launcher own, on GPUs: treat these processes as ranks on N nodes, in rank order. They map memory within a node only, and NCCL uses sockets
    /// between nodes (each has its own NCCL_HOSTID). It tests code for several nodes on one host.
    #[arg(long, value_name = "N", requires = "processes")]
    nodes: Option<NonZeroUsize>,
    /// With --launcher own: number of processes that share out the cases, with one thread each. The default is the number of processors.
    #[arg(long, value_name = "N", requires = "launcher")]
    judges: Option<NonZeroUsize>,
    /// Number of cases that a process runs at once. The default is its share of the processors.
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

/// Variables of the environment that cases are judged in.
pub(crate) type Environment = BTreeMap<&'static str, &'static str>;

/// Under which heading help has them.
const PROCESSES: &str = "Processes";

/// What this process is.
pub(crate) enum Part {
    /// The only one.
    Alone,
    /// The one that hands out, tells and writes. Where it is a rank as well, it is that, too.
    Coordinator(Job, Option<Rank>),
    /// One of those that are asked.
    Member(Rank),
}

/// Processes that were brought together, as the coordinator has them.
pub(crate) enum Job {
    /// They were started here.
    Started(Launched),
    /// They came.
    Open(OpenHub),
}

impl AsRef<Hub> for Job {
    /// Where they come to.
    fn as_ref(&self) -> &Hub {
        match self {
            Job::Started(launched) => launched.hub(),
            Job::Open(open) => &open.hub,
        }
    }
}

impl LaunchArgs {
    /// The same on GPUs, where cases are not shared out: the ranks of cases are the processes that a launcher has started, if that is asked for, or if nothing is
    /// and there are several, all of them on this host.
    pub(crate) fn on_gpus(self) -> LaunchArgs {
        let Ok(Some(placement)) = Placement::of_environment() else { return self };
        let all_here = placement.world > 1 && placement.local_world == Some(placement.world);
        match (self.launcher, self.processes) {
            (None, _) if all_here => LaunchArgs { launcher: Some(Launcher::Env), processes: NonZeroUsize::new(placement.world), ..self },
            (Some(Launcher::Env | Launcher::Mpi), None) => LaunchArgs { processes: NonZeroUsize::new(placement.world), ..self },
            _ => self,
        }
    }

    /// Whether several processes are asked for, and not only there.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.launcher.is_some()
    }

    /// Whether the ranks of cases are processes.
    pub(crate) fn has_ranks(&self) -> bool {
        self.processes.is_some()
    }

    /// How many processes the ranks of cases are.
    pub(crate) fn of_ranks(&self) -> Option<NonZeroUsize> {
        self.processes
    }

    /// How many nodes these are said to be on.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.map_or(1, NonZeroUsize::get)
    }

    /// How many cases this process judges at once, if this host has `processes` processes.
    fn threads_of(&self, processes: usize) -> usize {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.map_or((processors / processes.max(1)).max(1), NonZeroUsize::get)
    }

    /// How many cases this process judges at once.
    ///
    /// # Errors
    /// As [`LaunchArgs::join`].
    pub(crate) fn threads(&self) -> anyhow::Result<usize> {
        if own::is_rank() {
            return Ok(self.threads.map_or(1, NonZeroUsize::get));
        }
        let placement = if self.launcher == Some(Launcher::Own) { None } else { Placement::of_environment()? };
        Ok(self.threads_of(placement.map_or(1, |placement| placement.local_world.unwrap_or(placement.world))))
    }

    /// Brings the processes together. Where they share out cases, the job goes on without those that are lost.
    ///
    /// # Errors
    /// Why they cannot be.
    pub(crate) fn join(&self) -> anyhow::Result<Part> {
        if own::is_rank() {
            return Ok(Part::Member(own::join()?));
        }
        let goes_on = !self.has_ranks();
        if let Some(nodes) = self.nodes {
            ensure!(self.starts_them(), "--nodes: only processes that --launcher own starts are said to be on several nodes");
            let processes = self.processes.map_or(0, NonZeroUsize::get);
            ensure!(processes.is_multiple_of(nodes.get()), "--nodes {nodes}: as many of the {processes} processes are on each");
        }
        let part = match self.launcher {
            Some(Launcher::Own) => Ok(Part::Coordinator(self.start(None, &Environment::new())?, None)),
            Some(Launcher::Env) => {
                let placement = Placement::of_environment()?.context(
                    "--launcher env: nobody placed this process: RANK, WORLD_SIZE and LOCAL_RANK, or those of Open MPI, PMI or a Slurm step, must be set",
                )?;
                come(&placement, goes_on)
            }
            Some(Launcher::Mpi) => meet(goes_on),
            None => match Placement::of_environment()? {
                Some(placement) if placement.world > 1 => come(&placement, goes_on),
                _ => Ok(Part::Alone),
            },
        }?;
        let world = match &part {
            Part::Alone => 1,
            Part::Coordinator(job, _) => job.as_ref().world(),
            Part::Member(rank) => rank.world(),
        };
        match self.processes {
            Some(asked) if asked.get() != world => bail!("--processes {asked}: {world} were started"),
            _ => Ok(part),
        }
    }

    /// Whether this command starts the processes itself, and can do so again.
    pub(crate) fn starts_them(&self) -> bool {
        self.launcher == Some(Launcher::Own)
    }

    /// Whether this process is a rank's, or may turn out to be.
    pub(crate) fn is_of_a_rank(&self) -> bool {
        self.has_ranks() && (own::is_rank() || !self.starts_them())
    }

    /// The number of this process, which is a rank's, among those of its host.
    ///
    /// # Errors
    /// As [`Placement::of_environment`].
    pub(crate) fn local_rank(&self, rank: usize) -> anyhow::Result<usize> {
        let placement = if own::is_rank() { None } else { Placement::of_environment()? };
        Ok(placement.map_or(rank, |placement| placement.local_rank))
    }

    /// Starts this command once more for each process, with these variables of the environment besides. The process of a rank that is to be `lost` ends
    /// before it has come to the others.
    ///
    /// # Errors
    /// Why they cannot be started.
    pub(crate) fn start(&self, lost: Option<usize>, environment: &Environment) -> anyhow::Result<Job> {
        let program = env::current_exe()?;
        let processes = self.processes.or(self.judges).map_or_else(|| self.threads_of(1), NonZeroUsize::get);
        let again = |rank| {
            let mut command = Command::new(&program);
            if lost == Some(rank) { command.arg("--version") } else { command.args(env::args_os().skip(1)) }.stdout(Stdio::null());
            command.envs(environment);
            if self.nodes() > 1 {
                command.env("NCCL_HOSTID", format!("passmuster-node-{}", rank * self.nodes() / processes));
            }
            command
        };
        Ok(Job::Started(Launched::start(processes, !self.has_ranks(), again)?))
    }
}

/// Comes to where the others are, or opens that.
fn come(placement: &Placement, goes_on: bool) -> anyhow::Result<Part> {
    let secret = Secret::find()?;
    if placement.rank > 0 {
        let rank = placement.connect(&secret, START_LIMIT)?;
        rank.end_with_hub();
        return Ok(Part::Member(rank));
    }
    let open = placement.open_hub(secret.clone(), START_LIMIT, goes_on)?;
    let rank = placement.connect(&secret, START_LIMIT)?;
    Ok(Part::Coordinator(Job::Open(open), Some(rank)))
}

/// Comes together with those that MPI started.
#[cfg(feature = "mpi")]
fn meet(goes_on: bool) -> anyhow::Result<Part> {
    let mut met = passmuster_bootstrap::mpi::meet(START_LIMIT, goes_on)?;
    let rank = met.connect(START_LIMIT)?;
    Ok(match met.hub.take() {
        Some(open) => Part::Coordinator(Job::Open(open), Some(rank)),
        None => {
            rank.end_with_hub();
            Part::Member(rank)
        }
    })
}

/// The same where this binary has no MPI.
#[cfg(not(feature = "mpi"))]
fn meet(_: bool) -> anyhow::Result<Part> {
    bail!("--launcher mpi: this binary has no MPI; build it with --features mpi")
}
