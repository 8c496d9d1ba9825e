//! The machine: ranks on real GPUs behind the [`Machine`] trait.

pub(crate) mod facts;
mod rank;

use std::{
    collections::BTreeMap,
    mem::ManuallyDrop,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use self::facts::Facts;
use crate::{
    gpu::{
        copies::{Batches, Copy},
        device::Device,
        graphs::Graphs,
        kernel::Kernels,
        memory::{self, Arena},
        stream::{Fetch, Stream},
    },
    ranks::{
        fault::{fault, how_of},
        outcome::{self, Ending, Outcome},
        peers::Peers,
    },
    run::{
        communicators::{Communicators, OfGroups},
        execution::{self, Done, Elsewhere, Stopped},
        group::Group,
        hosts::Hosts,
        products::Products,
        program::{self, Compiler, Failure, InMemory, Program},
        reports::{self, Report},
        stream_memops::Waiters,
    },
    vendor::{
        driver::{CudaError, Driver},
        environment,
        loader::LoadError,
        nccl_log::{Choice, NcclLog},
        nvml::Nvml,
    },
};
use passmuster_plan::{
    library::Library,
    machine::{
        CANARY, Condition, Deferred, GUARD, Machine, MachineError, MachineInfo, Pending, Run, UNCHECKED_PATH, intervals, validation::Needs,
    },
    plan::{BufferSpec, Fill, MAX_WORLD, Region, Script},
};

/// No run takes longer, whatever its deadline.
const LONGEST_RUN: Duration = Duration::from_secs(24 * 60 * 60);

/// Variables of the environment that change what NCCL does and therefore belong to a record.
const RECORDED_VARIABLES: [&str; 4] = ["NCCL_ALGO", "NCCL_PROTO", "NCCL_SYM_KERNEL", "NCCL_NVLS_ENABLE"];

/// What a [`CudaMachine`] is opened with.
#[derive(Clone)]
pub struct CudaOptions {
    /// The GPUs to use, by CUDA's numbers; all of them by default. Rank `r` runs on `gpus[r % gpus.len()]`.
    pub gpus: Option<Vec<usize>>,
    /// The NCCL to load. By default `PASSMUSTER_NCCL_LIB`, else the one on the library path, else one in a Python environment.
    pub nccl_lib: Option<PathBuf>,
    /// The cuBLASLt to load. By default `PASSMUSTER_CUBLASLT_LIB`, else the one on the library path, else one in a Python environment.
    pub cublas_lt_lib: Option<PathBuf>,
    /// The kernels that launches refer to.
    pub library: Library,
    /// After which time a wait in a kernel gives up.
    pub wait_limit: Duration,
    /// Whether copies that follow each other, and may be done in any order, are enqueued as one batch: outside graphs, and where the driver has batches,
    /// which it has since CUDA 13.0. Not by default: where ranks share a GPU, three exchanges of four ranks back to back hung once of once tried (with a GPU
    /// each they do not), and what they gain has not been timed.
    pub batch_copies: bool,
    /// Is called when ranks have started on their devices (true), and when the run has ended (false). Use it to watch a process from which no more
    /// comes. For short runs it is called at the end only.
    pub watch: Option<Watch>,
}

/// See [`CudaOptions::watch`].
pub type Watch = Arc<dyn Fn(bool) + Send + Sync>;

impl Default for CudaOptions {
    fn default() -> CudaOptions {
        CudaOptions {
            gpus: None,
            nccl_lib: None,
            cublas_lt_lib: None,
            library: Library::default(),
            wait_limit: Duration::from_secs(2),
            batch_copies: false,
            watch: None,
        }
    }
}

/// Why there is no [`CudaMachine`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is no CUDA driver.
    #[error("no CUDA driver: {0}")]
    NoDriver(LoadError),
    /// There is a driver, but no GPU that it can use.
    #[error("no GPU: {reason}")]
    NoGpu {
        /// What the driver said.
        reason: String,
    },
    /// A GPU was asked for that there is not.
    #[error("GPU {asked} was asked for, there are {count}, numbered from 0")]
    UnknownGpu {
        /// The number that was asked for.
        asked: usize,
        /// How many GPUs there are.
        count: usize,
    },
    /// A list of GPUs with none in it.
    #[error("the list of GPUs is empty")]
    NoneAsked,
    /// A GPU lacks what symmetric memory needs.
    #[error("GPU {gpu} ({name}) has no virtual memory management with file descriptors, which symmetric memory needs")]
    NoSymmetricMemory {
        /// Its number.
        gpu: usize,
        /// Its name.
        name: String,
    },
    /// The driver failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl OpenError {
    /// Whether this host lacks what it takes, as opposed to having been asked for something wrong.
    pub fn is_absence(&self) -> bool {
        !matches!(self, OpenError::UnknownGpu { .. } | OpenError::NoneAsked)
    }
}

/// Ranks on GPUs of this process.
///
/// Rank `r` runs on `gpus[r % gpus.len()]`: one rank a GPU up to as many ranks as GPUs, then several share one, in one context and with
/// memory of their own. That makes worlds larger than the machine testable; it says nothing about their speed, and NCCL refuses it.
///
/// After a hang or a fault the machine refuses everything, and frees nothing when it is dropped: the process is expected to end.
pub struct CudaMachine {
    pub(crate) driver: &'static Driver,
    library: Library,
    wait_limit: Duration,
    watch: Option<Watch>,
    /// Where copies are joined, and the driver has them.
    batches: Option<Arc<Batches>>,
    /// Devices of the ranks, up to [`MAX_WORLD`]: one that several share is there several times.
    pub(crate) of_rank: Vec<Arc<Device>>,
    /// Every device once.
    devices: Vec<Arc<Device>>,
    /// The other ranks, where they are in processes of their own: then one rank is here, and `of_rank` has its device throughout.
    pub(crate) peers: Option<Peers>,
    /// What it goes by when it takes a script.
    pub(crate) facts: Facts,
    groups: Vec<Group>,
    /// Groups that were ever opened.
    rendezvous: u64,
    /// Whether a run hung, faulted or was given up with threads in a library.
    lost: bool,
    /// What NCCL says that it chose.
    nccl_log: NcclLog,
    /// Why it is not known which path NCCL took in the last run that asked for one.
    unchecked: Option<String>,
    held: ManuallyDrop<Held>,
}

/// What is given back in this order when the machine is dropped.
struct Held {
    communicators: Communicators,
    products: Products,
    kernels: Kernels,
    made: InMemory,
    graphs: Graphs,
    streams: Vec<Vec<Arc<Stream>>>,
    arena: Arena,
}

impl CudaMachine {
    /// Opens the GPUs. It sets no variable of the environment: [`prepare_process`](crate::prepare_process) does, and is to be called before, first thing in
    /// `main`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(options: CudaOptions) -> Result<CudaMachine, OpenError> {
        let driver = Driver::get().map_err(OpenError::NoDriver)?;
        let count = CudaMachine::count()?;
        let gpus = options.gpus.unwrap_or_else(|| (0..count).collect());
        if gpus.is_empty() {
            return Err(OpenError::NoneAsked);
        }
        let mut opened: BTreeMap<usize, Arc<Device>> = BTreeMap::new();
        for &gpu in &gpus {
            if gpu >= count {
                return Err(OpenError::UnknownGpu { asked: gpu, count });
            }
            if opened.contains_key(&gpu) {
                continue;
            }
            let device = Device::open(driver, gpu)?;
            if !device.has_symmetric_memory()? {
                return Err(OpenError::NoSymmetricMemory { gpu, name: device.name.clone() });
            }
            opened.insert(gpu, Arc::new(device));
        }
        let facts = Facts {
            capability: opened.values().map(|device| device.capability).min().unwrap_or_default(),
            sms: opened.values().map(|device| device.sms).min().unwrap_or(1),
            connections: environment::connections(),
            gpus,
        };
        Ok(CudaMachine {
            driver,
            library: options.library,
            wait_limit: options.wait_limit,
            watch: options.watch,
            batches: options.batch_copies.then(|| Batches::of(driver)).flatten().map(Arc::new),
            of_rank: (0..MAX_WORLD).map(|rank| opened[&facts.gpu(rank)].clone()).collect(),
            devices: opened.into_values().collect(),
            peers: None,
            facts,
            groups: Vec::new(),
            rendezvous: 0,
            lost: false,
            nccl_log: NcclLog::new(),
            unchecked: None,
            held: ManuallyDrop::new(Held {
                communicators: Communicators::new(options.nccl_lib),
                products: Products::new(options.cublas_lt_lib),
                kernels: Kernels::default(),
                made: InMemory::new(),
                graphs: Graphs::default(),
                streams: vec![Vec::new(); MAX_WORLD],
                arena: Arena::default(),
            }),
        })
    }

    /// How many GPUs this process sees: at least one.
    pub(crate) fn count() -> Result<usize, OpenError> {
        let driver = Driver::get().map_err(OpenError::NoDriver)?;
        let count = driver.initialise().and_then(|()| driver.device_count()).map_err(|error| match error.is_no_device() {
            true => OpenError::NoGpu { reason: error.to_string() },
            false => OpenError::Cuda(error),
        })?;
        if count == 0 {
            return Err(OpenError::NoGpu { reason: "the driver counts 0".into() });
        }
        Ok(count)
    }

    /// Loads NCCL now rather than at its first call, so that [`Machine::info`] can tell its version.
    ///
    /// # Errors
    /// `NotSupported` when there is none, with what was searched.
    pub fn load_nccl(&mut self) -> Result<(), MachineError> {
        self.held.communicators.load().map(drop)
    }

    /// Loads cuBLASLt now rather than at its first product.
    ///
    /// # Errors
    /// `NotSupported` when there is none, with what was searched.
    pub fn load_cublas_lt(&mut self) -> Result<(), MachineError> {
        self.held.products.load().map(drop)
    }

    /// How many graphs it has captured so far, those of all ranks counted as one. Who captures again what was captured on the same open group gets the
    /// same graph.
    pub fn captured(&self) -> u64 {
        self.held.graphs.captured()
    }

    /// How many batches of copies it has enqueued so far; `None` where the driver has none, or the options want none.
    pub fn batches(&self) -> Option<u64> {
        self.batches.as_ref().map(|batches| batches.made())
    }

    /// Drops what was captured, but on a lost machine, whose devices may still be at it.
    fn drop_graphs(&mut self) {
        if !self.lost {
            self.held.graphs.clear();
        }
    }

    fn still_good(&self) -> Result<(), MachineError> {
        if self.lost { invalid("the machine hung, faulted or was given up before and must not be used again") } else { Ok(()) }
    }

    /// The one rank that is here; none where all are.
    pub(crate) fn own(&self) -> Option<usize> {
        self.peers.as_ref().map(Peers::rank)
    }

    /// Those of the first `world` ranks that are here.
    fn here(&self, world: usize) -> impl Iterator<Item = usize> + use<> {
        let own = self.own();
        (0..world).filter(move |rank| own.is_none_or(|own| own == *rank))
    }

    fn group(&self, number: usize) -> Result<&Group, MachineError> {
        let reason = || format!("group {number} is not open: there are {}", self.groups.len());
        self.groups.get(number).ok_or_else(|| MachineError::Invalid { reason: reason() })
    }

    /// The device and the address of a rank's region, the device's context current.
    fn locate(&self, group: usize, rank: usize, region: &Region) -> Result<(&Device, u64), MachineError> {
        self.still_good()?;
        let of_group = self.group(group)?;
        if rank >= of_group.world {
            return invalid(format!("rank {rank}: group {group} has {}", of_group.world));
        }
        if let Some(own) = self.own().filter(|own| *own != rank) {
            return invalid(format!("rank {rank} is in another process: rank {own} is in this one"));
        }
        let address = of_group.address(rank, region).map_err(|reason| MachineError::Invalid { reason })?;
        let device = &self.of_rank[rank];
        device.make_current().map_err(fault(rank))?;
        Ok((device, address))
    }

    /// Sets fresh buffers and what is between them.
    fn initialise(&self, group: &Group) -> Result<(), MachineError> {
        let of_rank = || self.here(group.world).map(|rank| (rank, &self.of_rank[rank], group.place.bases[rank]));
        for (rank, device, base) in of_rank() {
            let fill = || {
                device.make_current()?;
                device.service.fill(base, CANARY, group.layout.bytes())?;
                // The driver loads its own kernels on first use, which may wait for the device: not when ranks wait for each other.
                device.service.copy(base, base + GUARD / 2, GUARD / 2)?;
                let quarter = GUARD / 4;
                let two = [0, quarter].map(|at| Copy { from: base + at, to: base + GUARD / 2 + at, bytes: quarter });
                device.service.copies(&two, self.batches.as_deref())?;
                group.layout.buffers().try_for_each(|(spec, offset)| match (&spec.fill, spec.fill.contents(rank, spec.bytes)) {
                    (Fill::Byte(byte), _) => device.service.fill(base + offset, *byte, spec.bytes),
                    (_, Some(contents)) => device.service.write(&contents, base + offset),
                    (_, None) => Ok(()),
                })
            };
            fill().map_err(fault(rank))?;
        }
        of_rank().try_for_each(|(rank, device, _)| device.service.synchronise().map_err(fault(rank)))
    }

    /// Waits for what is on its way to hosts: what comes next may write to that memory, or give it back. Nothing can hold it up.
    fn settle(&self) -> Result<(), MachineError> {
        self.devices.iter().try_for_each(|device| {
            let first = || self.of_rank.iter().position(|of_rank| of_rank.ordinal == device.ordinal).unwrap_or_default();
            let rank = self.own().unwrap_or_else(first);
            device.make_current().and_then(|()| device.service.synchronise()).map_err(fault(rank))
        })
    }

    /// Makes the streams that a script needs.
    fn make_streams(&mut self, needs: &Needs) -> Result<(), MachineError> {
        // Streams that exist hold a connection even where this script does not use them.
        let wanted = |rank: usize| if rank < needs.world { needs.all_streams() } else { 0 };
        let crowded = self.devices.iter().any(|device| {
            let ranks = self.here(MAX_WORLD).filter(|rank| self.of_rank[*rank].ordinal == device.ordinal);
            ranks.map(|rank| self.held.streams[rank].len().max(wanted(rank))).sum::<usize>() > self.facts.connections
        });
        if crowded {
            self.held.streams.iter_mut().for_each(Vec::clear);
        }
        for rank in self.here(needs.world) {
            let device = &self.of_rank[rank];
            let streams = &mut self.held.streams[rank];
            let missing = needs.all_streams().saturating_sub(streams.len());
            let made = device.make_current().and_then(|()| Stream::used(self.driver, missing)).map_err(fault(rank))?;
            streams.extend(made.into_iter().map(Arc::new));
        }
        Ok(())
    }

    /// Makes the communicators and windows that a script needs, of the ranks here.
    fn join(&mut self, needs: &Needs) -> Result<OfGroups, MachineError> {
        let mut of_groups = OfGroups::new();
        let Held { communicators, arena, .. } = &mut *self.held;
        for (&number, &windows) in &needs.nccl {
            let group = &self.groups[number];
            let devices = &self.of_rank[..group.world];
            of_groups.insert((number, false), communicators.join(1, devices, self.peers.as_mut())?);
            if windows {
                communicators.register(devices, arena, group.place.chunk, self.peers.as_mut())?;
            }
        }
        for &number in &needs.nccl_across_nodes {
            let Group { world, nodes, .. } = self.groups[number];
            of_groups.insert((number, true), communicators.join(nodes, &self.of_rank[..world], self.peers.as_mut())?);
        }
        Ok(of_groups)
    }

    /// Whether NCCL is there, and new enough for a script that calls it.
    fn nccl_for(&mut self, needs: &Needs) -> Result<(), MachineError> {
        if needs.calls_nccl() { facts::nccl_has(self.held.communicators.load()?.version.0, needs) } else { Ok(()) }
    }

    /// Makes all that ranks here need before they start.
    fn prepare(&mut self, script: &Script, needs: &Needs) -> Result<Arc<[Program]>, MachineError> {
        let ready = self.settle().and_then(|()| self.make_streams(needs)).and_then(|()| self.nccl_for(needs));
        match &mut self.peers {
            Some(peers) if needs.calls_nccl() => peers.agree_on("a run that calls NCCL", ready)?,
            _ => ready?,
        }
        let communicators = self.join(needs)?;
        let (devices, streams, own) = (self.of_rank[..needs.world].to_vec(), self.streams(needs), self.own());
        let Held { kernels, made, products, graphs, .. } = &mut *self.held;
        let mut compiler = Compiler {
            groups: &self.groups,
            library: &self.library,
            kernels,
            made,
            devices: &devices,
            streams: &streams,
            numbers: (needs.streams, needs.sides),
            products,
            captured: graphs,
            communicators: &communicators,
            own,
            wait_limit: u64::try_from(self.wait_limit.as_nanos()).unwrap_or(u64::MAX),
            batches: self.batches.as_ref(),
        };
        Ok(compiler.compile(script)?.into())
    }

    /// Streams of each rank that a script needs; none of those that are not here.
    fn streams(&self, needs: &Needs) -> Vec<Vec<Arc<Stream>>> {
        self.held.streams[..needs.world].iter().map(|streams| streams.iter().take(needs.all_streams()).cloned().collect()).collect()
    }

    /// Sees to it that NCCL did what it was made to do, and not silently something else: why that is not known, or what else it did.
    fn confirm_path(&mut self, needs: &Needs) -> Result<Option<String>, String> {
        // Where no rank is here NCCL may never have been loaded, and has no log.
        if needs.nccl.is_empty() || self.here(needs.world).next().is_none() {
            return Ok(None);
        }
        let unchecked = match self.nccl_log.path(&needs.windowed) {
            Choice::AsAsked => None,
            Choice::Unchecked(why) => Some(why),
            Choice::Other(line) => return Err(line),
        };
        self.unchecked.clone_from(&unchecked);
        Ok(unchecked)
    }

    fn run_valid(&mut self, script: &Script, needs: &Needs, deadline: Duration) -> Result<Run, MachineError> {
        let prepared = self.prepare(script, needs);
        let (number, programs) = match &mut self.peers {
            Some(peers) => peers.begin(prepared)?,
            None => (0, prepared?),
        };
        let (devices, own) = (&self.of_rank[..needs.world], self.own());
        let reports: Vec<_> = needs.groups.iter().flat_map(|&number| reports::of_group(&self.groups[number], devices, own)).collect();
        let waiters = Arc::new(Waiters::of(script, &self.groups, devices, &self.streams(needs)));
        let hosts = Arc::new(Hosts::new(needs.world));
        // What was said while communicators were joined is of their warm-up.
        self.nccl_log.skip();
        let watch = |busy| self.watch.iter().for_each(|watch| watch(busy));
        let begin = Instant::now();
        let (limit, started) = (deadline.min(LONGEST_RUN), &|| watch(true));
        let executed = match &mut self.peers {
            None => execution::execute(&programs, &hosts, limit, started, None),
            Some(peers) => {
                let (board, world) = (peers.board().clone(), needs.world);
                let is_lost = &mut || peers.has_failed();
                execution::execute(&programs, &hosts, limit, started, Some(Elsewhere { board, run: number, world, is_lost }))
            }
        };
        if !matches!(executed, Err(Stopped::Unfinished { on_devices: true, .. })) {
            watch(false);
        }
        let told = || {
            let mut standing = hosts.held(|rank, action| {
                let program = programs.iter().find(|program| program.rank == rank);
                program.map_or_else(String::new, |program| program::name(&program.actions[action]))
            });
            standing.extend(waiters.told());
            standing
        };
        let attempt = Attempt { executed, after: begin.elapsed(), reports: &reports, standing: &told };
        let ran = if self.peers.is_some() { self.end_among(needs, deadline, attempt) } else { self.end_alone(needs, attempt) };
        if matches!(ran, Err(MachineError::Hang { .. } | MachineError::Fault { .. } | MachineError::Inconclusive { .. })) {
            // Last: what is let go goes on.
            waiters.release();
        }
        ran
    }

    /// The run of ranks that are all here.
    fn end_alone(&mut self, needs: &Needs, attempt: Attempt<'_>) -> Result<Run, MachineError> {
        let Attempt { executed, after, reports, standing } = attempt;
        let hang = |after: Duration, unfinished| {
            let stuck = reports::collect(reports);
            let (after_ms, cause, standing) = (after.as_millis() as u64, String::new(), standing());
            MachineError::Hang { after_ms, cause, stuck, unfinished, standing, blamed: Box::default() }
        };
        match executed {
            Ok(of_rank) => match reports::any(reports) {
                Ok(false) => {
                    let (marks, fetched): (Vec<_>, _) = of_rank.into_iter().map(|done| (done.marks, done.fetched)).unzip();
                    let path =
                        self.confirm_path(needs).map_err(|line| MachineError::NotSupported { reason: outcome::other_path(&line) })?;
                    Ok(Run { marks: intervals(&marks), fetched, unchecked_path: path, ..Run::default() })
                }
                Ok(true) => Err(hang(after, Vec::new())),
                Err((rank, error)) => Err(fault(rank)(error)),
            },
            Err(Stopped::Failed { ranks, failure }) => {
                Err(MachineError::fault_of(ranks, how_of(&failure.code), failure.what, failure.code))
            }
            Err(Stopped::Refused(failure)) => {
                Err(MachineError::NotSupported { reason: format!("{} refused: {}", failure.what, failure.code) })
            }
            Err(Stopped::Abandoned { .. }) => unreachable!("nobody is elsewhere"),
            Err(Stopped::Unfinished { ranks, after, on_devices }) => match hang(after, ranks) {
                MachineError::Hang { after_ms, stuck, unfinished, standing, .. } if !on_devices && stuck.is_empty() => {
                    Err(outcome::not_seen_at_work(&unfinished, after_ms, &standing))
                }
                hang => Err(hang),
            },
        }
    }

    /// The run of ranks in processes of their own, by what became of all of them: of this one's marks and fetches.
    fn end_among(&mut self, needs: &Needs, deadline: Duration, attempt: Attempt<'_>) -> Result<Run, MachineError> {
        let Attempt { executed, after, reports, standing } = attempt;
        let (mut run, own) = (Run::default(), self.own().unwrap_or_default());
        let failed = |failure: Failure| Ending::Failed { what: failure.what, code: failure.code };
        let (ending, is_stuck) = match executed {
            Ok(of_rank) => match reports::any(reports) {
                Ok(is_stuck) => {
                    let mut marks = vec![Vec::new(); needs.world];
                    run.fetched = vec![Vec::new(); needs.world];
                    for done in of_rank {
                        (marks[own], run.fetched[own]) = (done.marks, done.fetched);
                    }
                    run.marks = intervals(&marks);
                    match self.confirm_path(needs) {
                        Ok(path) => {
                            run.unchecked_path = path;
                            (Ending::Done, is_stuck)
                        }
                        Err(line) => (Ending::OtherPath(line), is_stuck),
                    }
                }
                Err((_, error)) => (failed(error.into()), false),
            },
            Err(Stopped::Failed { failure, .. }) => (failed(failure), false),
            Err(Stopped::Refused(Failure { what, code, .. })) => (Ending::Refused { what, code }, false),
            Err(Stopped::Unfinished { on_devices, .. }) => (Ending::Late { on_devices }, true),
            Err(Stopped::Abandoned { at_rest }) => (Ending::Abandoned { at_rest }, !at_rest),
        };
        let peers = self.peers.as_mut().expect("the others are elsewhere");
        if matches!(ending, Ending::Failed { .. } | Ending::Refused { .. }) {
            peers.stop();
        }
        let (stuck, standing) = if is_stuck { (reports::collect(reports), standing()) } else { (Vec::new(), Vec::new()) };
        let outcome = Outcome { ending, after_ms: after.as_millis() as u64, stuck, standing };
        let outcomes = peers.end(&outcome, deadline)?;
        outcome::merged(&outcomes[..needs.world.min(outcomes.len())]).map_or(Ok(run), Err)
    }
}

/// How programs came to their end.
struct Attempt<'a> {
    executed: Result<Vec<Done>, Stopped>,
    after: Duration,
    reports: &'a [Report],
    /// Tells where ranks stand.
    standing: &'a dyn Fn() -> Vec<String>,
}

impl Machine for CudaMachine {
    fn info(&self) -> MachineInfo {
        let mut notes = Vec::new();
        let mut note = |name: &str, value: String| notes.push((name.to_owned(), value));
        let device = &self.of_rank[0];
        if let Some(peers) = &self.peers {
            peers.notes().into_iter().for_each(|(name, value)| note(name, value));
        }
        note("compute_capability", format!("{}.{}", device.capability.0, device.capability.1));
        note("multiprocessors", device.sms.to_string());
        let here = || self.devices.iter().map(|device| format!("{} {}", device.ordinal, device.name)).collect();
        let gpus: Vec<String> = self.peers.as_ref().map_or_else(here, Peers::gpu_list);
        note("gpu_list", gpus.join(", "));
        let nvml = Nvml::get().and_then(|nvml| nvml.gpu(&device.bus_id));
        let links = nvml.as_ref().and_then(|gpu| gpu.links());
        if let Some((links, gbps)) = links {
            note("nvlink", format!("{links} x {gbps:.3} GB/s in each direction"));
        }
        if let Some(watts) = nvml.and_then(|gpu| gpu.power_limit()) {
            note("power_limit", format!("{watts:.0} W"));
        }
        if let Some(version) = kernel_driver_version() {
            note("driver_version", version);
        }
        let nccl = self.held.communicators.nccl();
        if let Some(nccl) = nccl {
            note("nccl_library", installed(&nccl.path).to_owned());
        }
        if let Some(library) = self.held.products.library() {
            note("cublas_lt", library.version.clone());
            note("cublas_lt_library", installed(&library.path).to_owned());
        }
        if let Some(why) = self.unchecked.as_deref().or_else(|| self.nccl_log.unchecked()) {
            note(UNCHECKED_PATH, why.to_owned());
        }
        for name in RECORDED_VARIABLES {
            if let Ok(value) = std::env::var(name) {
                note(name, value);
            }
        }
        MachineInfo {
            kind: "cuda".into(),
            gpu: device.name.clone(),
            gpus: gpus.len(),
            driver: self.driver.version().map(|version| version.to_string()).unwrap_or_default(),
            nccl: nccl.map(|nccl| nccl.version.to_string()).unwrap_or_default(),
            link_gbps: links.map(|(links, gbps)| f64::from(links) * gbps),
            notes,
        }
    }

    fn conditions(&self) -> Vec<Condition> {
        let of = |(gpu, device): (usize, &Arc<Device>)| Nvml::get()?.gpu(&device.bus_id)?.condition(gpu);
        self.devices.iter().enumerate().filter_map(of).collect()
    }

    fn device_bytes(&self) -> Option<u64> {
        let of = |device: &Arc<Device>| device.make_current().and_then(|()| device.memory_in_use());
        self.devices.iter().map(of).sum::<Result<u64, _>>().ok()
    }

    fn max_world(&self) -> usize {
        self.facts.max_world().min(self.peers.as_ref().map_or(usize::MAX, Peers::world))
    }

    fn waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.facts.waiting_blocks(world, groups)
    }

    fn rendezvous(&self) -> u64 {
        self.rendezvous + self.held.communicators.rendezvous()
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.open_nodes(world, 1, buffers)
    }

    fn open_nodes(&mut self, world: usize, nodes: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.still_good()?;
        let layout = match self.peers.is_some() {
            true => self.agree_to_open(world, nodes, buffers)?,
            false if nodes > 1 => return facts::one_process_is_one_node(world, nodes),
            false => self.takes_group(world, buffers)?,
        };
        let not_supported = |reason: String| MachineError::NotSupported { reason };
        let devices = &self.of_rank[..world];
        let place = match &mut self.peers {
            None => self
                .held
                .arena
                .place(world, layout.bytes(), |bytes, ranks| memory::allocate(devices, &self.devices, bytes, ranks))
                .map_err(|error| match error.is_out_of_memory() {
                    true => not_supported(format!("{} bytes for each of {world} ranks: {error}", layout.bytes())),
                    false => fault(0)(error),
                })?,
            // All processes take part, also those that have no rank in the group.
            Some(peers) => self.held.arena.place(world, layout.bytes(), |bytes, _| peers.allocate(&self.of_rank[0], bytes))?,
        };
        let group = Group { world, nodes, layout, place };
        let initialised = self.initialise(&group);
        match &mut self.peers {
            // Nobody reads what is not there yet.
            Some(peers) => peers.agree_on(&format!("opening of group {}", self.groups.len()), initialised)?,
            None => initialised?,
        }
        self.rendezvous += 1;
        self.groups.push(group);
        Ok(self.groups.len() - 1)
    }

    fn close_groups(&mut self) {
        self.groups.clear();
        self.held.made.clear();
        self.drop_graphs();
        self.held.arena.reset();
    }

    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        let (device, address) = self.locate(group, rank, region)?;
        let mut bytes = vec![0; region.bytes as usize];
        device.service.read(address, &mut bytes).map_err(fault(rank))?;
        Ok(bytes)
    }

    fn fetch(&mut self, group: usize, rank: usize, region: &Region) -> Result<Deferred<Vec<u8>>, MachineError> {
        let (device, address) = self.locate(group, rank, region)?;
        if region.bytes == 0 {
            return Ok(Deferred::ready(Vec::new()));
        }
        let fetch = Fetch::new(device.driver, region.bytes).and_then(|fetch| fetch.start(address, &device.service)).map_err(fault(rank))?;
        Ok(Deferred::pending(OfRank { rank, device: self.of_rank[rank].clone(), fetch }))
    }

    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        let (device, address) = self.locate(group, rank, region)?;
        if bytes.len() as u64 != region.bytes {
            return invalid(format!("{} bytes for region {region}", bytes.len()));
        }
        device.service.write(bytes, address).map_err(fault(rank))
    }

    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        self.still_good()?;
        let of_group = self.group(group)?;
        for rank in self.here(of_group.world) {
            let (device, base) = (&self.of_rank[rank], of_group.place.bases[rank]);
            device.make_current().map_err(fault(rank))?;
            for (start, bytes) in of_group.layout.gaps() {
                let mut gap = vec![0; bytes as usize];
                device.service.read(base + start, &mut gap).map_err(fault(rank))?;
                if let Some(at) = gap.iter().position(|&byte| byte != CANARY) {
                    let (buffer, distance) = of_group.layout.beside(start + at as u64).unwrap_or(("", at as i64));
                    return Ok(Some((rank, buffer.to_owned(), distance)));
                }
            }
        }
        Ok(None)
    }

    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError> {
        self.still_good()?;
        let needs = self.facts.takes(script, &self.groups, &self.library)?;
        let run = self.run_valid(script, &needs, deadline);
        self.lost = matches!(run, Err(MachineError::Hang { .. } | MachineError::Fault { .. } | MachineError::Inconclusive { .. }));
        if run.is_err() {
            // One that was captured on another path than was asked for is not to be replayed.
            self.drop_graphs();
        }
        run
    }
}

/// What a rank fetches. Any thread may look.
struct OfRank {
    rank: usize,
    device: Arc<Device>,
    fetch: Fetch,
}

impl Pending<Vec<u8>, MachineError> for OfRank {
    fn is_there(&self) -> Result<bool, MachineError> {
        self.device.make_current().and_then(|()| self.fetch.is_there()).map_err(fault(self.rank))
    }

    fn wait(&self) -> Result<(), MachineError> {
        self.device.make_current().and_then(|()| self.fetch.wait()).map_err(fault(self.rank))
    }

    fn take(self: Box<Self>) -> Vec<u8> {
        self.fetch.bytes()
    }
}

impl Drop for OfRank {
    fn drop(&mut self) {
        // For the fetch, which is dropped next, on whatever thread that is.
        let _ = self.device.make_current();
    }
}

impl Drop for CudaMachine {
    fn drop(&mut self) {
        if self.peers.is_some() {
            // Others may be at its memory, and NCCL leaves a communicator with all ranks together: all of it goes with the process.
            std::mem::forget(self.devices.clone());
            return;
        }
        let settled = !self.lost && self.settle().is_ok();
        if settled {
            // NCCL does not let go of a communicator while a graph calls it.
            self.drop_graphs();
        }
        if !settled || !self.held.communicators.leave(&self.of_rank) {
            // Kernels may be running on it, and every call that frees may wait for them: the devices' streams and memory stay as well.
            std::mem::forget(self.devices.clone());
            return;
        }
        // SAFETY: `held` is not touched again.
        unsafe { ManuallyDrop::drop(&mut self.held) };
    }
}

fn invalid<T>(reason: impl Into<String>) -> Result<T, MachineError> {
    Err(MachineError::Invalid { reason: reason.into() })
}

/// Which of the installed libraries it is, without the host's folders: records are published.
fn installed(path: &str) -> &str {
    path.find("/nvidia/").map_or_else(|| path.rsplit('/').next().unwrap_or_default(), |at| &path[at + 1..])
}

/// The kernel driver's version, `580.65.06`, where the system tells it.
fn kernel_driver_version() -> Option<String> {
    if let Ok(version) = std::fs::read_to_string("/sys/module/nvidia/version") {
        return Some(version.trim().to_owned());
    }
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_version = |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    text.split_whitespace().find(is_version).map(str::to_owned)
}
