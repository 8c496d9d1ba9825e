//! The machine: ranks on the CPU behind the [`Machine`] trait.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    actions::{Action, Compiler},
    execution::{Arithmetic, Coverage, Fault},
    group::{Bytes, Group},
    memory::{AccessError, AllocationId, MOST_BYTES, Memory, SPARSE_BYTES},
    modules::Modules,
    races::{Profile, Races, Report},
    schedule::{Limits, Peers, Schedule, Stopped},
    strategy::{Interleaving, Strategy},
    streams::{Rank, all_streams},
    trace::Trace,
};
use passmuster_plan::{
    algorithms::{Registry, kit::MAX_BLOCKS},
    device::DeviceModel,
    library::Library,
    machine::{
        Elapsed, Fetched, How, Machine, MachineError, MachineInfo, Needed, Run, Stuck, Waived, decode_stuck_report, intervals,
        layout::Layout,
        validation::{self, Members, Needs},
    },
    plan::{BufferSpec, Fill, MAX_RANKS, Region, Role, Script},
};

/// Blocks of a rank that plans let wait for peers. All blocks are resident here; few of them are fast and interleave as many would.
const WAITING_BLOCKS: u32 = 4;

/// Elements of all ranks' inputs together beyond which a call takes minutes.
const MOST_ELEMENTS: u64 = 4 << 20;

/// Multiplications of a product, on all ranks and of all calls together, beyond which a case takes longer than others.
const MOST_MULTIPLICATIONS: u64 = 100_000_000;

/// Places of warps and streams that are named where a run reached a limit.
const NAMED_PLACES: usize = 4;

/// What an [`Emulator`] is opened with.
#[derive(Clone)]
pub struct EmulatorOptions {
    /// The kernels that launches refer to.
    pub library: Library,
    /// The model of every rank's GPU.
    pub device: DeviceModel,
    /// How what advances next is picked, and the seed of that: together they are the schedule.
    pub strategy: Strategy,
    /// The seed.
    pub seed: u64,
    /// After which emulated time a wait in a kernel gives up.
    pub wait_limit: Duration,
    /// The most bytes of all open groups' buffers on all ranks together. A buffer that starts with zeros, or with nothing, counts for no more than
    /// [`SPARSE_BYTES`].
    pub memory_budget: u64,
    /// The most thread instructions of one run; one that takes more is inconclusive.
    pub steps: u64,
    /// Whether what happens in a run is kept for [`Emulator::take_trace`]. Runs are slower then.
    pub trace: bool,
    /// How multimem and tensor cores add, which the PTX ISA leaves open.
    pub arithmetic: Arithmetic,
    /// What the race check takes for granted.
    pub profile: Profile,
    /// Where it is noted what of the kernels has run, if anybody asks.
    pub coverage: Option<Arc<Coverage>>,
}

impl Default for EmulatorOptions {
    fn default() -> EmulatorOptions {
        EmulatorOptions {
            library: Library::default(),
            device: DeviceModel::MEASURED,
            strategy: Strategy::Random,
            seed: 0,
            wait_limit: Duration::from_secs(2),
            memory_budget: 8 << 30,
            steps: 1 << 34,
            trace: false,
            arithmetic: Arithmetic::default(),
            profile: Profile::default(),
            coverage: None,
        }
    }
}

impl EmulatorOptions {
    /// The defaults, with the kernels of a registry.
    pub fn of(registry: &Registry) -> EmulatorOptions {
        EmulatorOptions { library: registry.library(), ..EmulatorOptions::default() }
    }

    /// The schedule.
    pub fn interleaving(&self) -> Interleaving {
        Interleaving { strategy: self.strategy, seed: self.seed }
    }

    /// The same with another schedule.
    pub fn with(&self, interleaving: Interleaving) -> EmulatorOptions {
        EmulatorOptions { strategy: interleaving.strategy, seed: interleaving.seed, ..self.clone() }
    }
}

/// Ranks on the CPU, each with streams and memory of its own, that run the PTX of their kernels.
///
/// A run is a function of the script, the groups' contents and the seed: the same ones give the same bytes, the same times and the same
/// findings, on every host. Exact are accesses outside buffers, to memory that was not mapped and of bytes that were never written, deadlocks,
/// and races on the paths that the run takes: by the PTX memory model, and in [`Profile::Hopper`] with named assumptions about the hardware more.
///
/// Every run ends: a hang, a fault or a finding leaves nothing behind, and once its groups are closed the machine is as good as new.
///
/// ```
/// use passmuster_harness::{
///     emulator::{Emulator, EmulatorOptions},
///     machine::Machine,
///     plan::{BufferSpec, Op, Plan, Role, Script, Step},
/// };
/// use std::{sync::Arc, time::Duration};
///
/// let mut machine = Emulator::new(EmulatorOptions::default());
/// let buffer = BufferSpec::new("output", 4, Role::Data);
/// let group = machine.open_group(2, &[buffer.clone()])?;
/// let plan = Plan::per_rank("fill", 2, |rank| vec![Op::Fill { region: buffer.whole(), byte: rank as u8 }]);
/// let script = Script { steps: vec![Step::Enqueue { group, stream: 0, plan: Arc::new(plan) }] };
/// machine.run(&script, Duration::from_secs(1))?;
/// assert_eq!(machine.read(group, 1, &buffer.whole())?, [1; 4]);
/// # Ok::<(), passmuster_plan::machine::MachineError>(())
/// ```
pub struct Emulator {
    pub(super) options: EmulatorOptions,
    modules: Modules,
    pub(super) memory: Memory,
    pub(super) groups: Vec<Group>,
    /// Bytes of all open groups on all ranks.
    used: u64,
    /// Groups that were ever opened.
    rendezvous: u64,
    trace: Option<Trace>,
    /// Thread instructions of the last run.
    instructions: u64,
}

impl Emulator {
    /// A machine without groups.
    pub fn new(options: EmulatorOptions) -> Emulator {
        let modules = Modules::new(options.library.clone(), options.device, options.coverage.clone());
        Emulator { options, modules, memory: Memory::new(), groups: Vec::new(), used: 0, rendezvous: 0, trace: None, instructions: 0 }
    }

    /// Runs scripts under this schedule from now on.
    pub fn set_interleaving(&mut self, interleaving: Interleaving) {
        self.options = self.options.with(interleaving);
    }

    /// What happened in the last run, where the options say that it is to be kept.
    pub fn take_trace(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    /// Thread instructions of the last run: of each instruction of a warp, its active lanes.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    fn group(&self, number: usize) -> Result<&Group, MachineError> {
        let reason = || format!("group {number} is not open: there are {}", self.groups.len());
        self.groups.get(number).ok_or_else(|| MachineError::Invalid { reason: reason() })
    }

    /// The address of a rank's region.
    fn locate(&self, group: usize, rank: usize, region: &Region) -> Result<super::memory::Address, MachineError> {
        let of_group = self.group(group)?;
        if rank >= of_group.world() {
            return invalid(format!("rank {rank}: group {group} has {}", of_group.world()));
        }
        of_group.address(rank, region).map_err(|reason| MachineError::Invalid { reason })
    }

    /// What waits that gave up have left in the reports of these groups, on these ranks.
    fn stuck(&self, needs: &Needs, ranks: &[usize]) -> Result<Vec<Stuck>, MachineError> {
        let mut stuck = Vec::new();
        for &number in &needs.groups {
            let group = &self.groups[number];
            let ranks = || ranks.iter().copied().filter(|&rank| rank < group.world());
            for (spec, rank) in group.buffers_of(Role::StuckReport).flat_map(|spec| ranks().map(move |rank| (spec, rank))) {
                let address = self.locate(number, rank, &spec.whole())?;
                let bytes = self.memory.peek_all(address, spec.bytes, rank).map_err(unexpected)?;
                stuck.extend(decode_stuck_report(&spec.name, rank, (group.world(), group.nodes()), &bytes));
            }
        }
        stuck.sort_by_key(|entry| (entry.rank, entry.block, entry.peer));
        Ok(stuck)
    }

    /// Where waits that give up tell of it.
    fn stuck_reports(&self, needs: &Needs) -> Result<Vec<AllocationId>, MachineError> {
        let mut reports = Vec::new();
        for &number in &needs.groups {
            let group = &self.groups[number];
            for (spec, rank) in group.buffers_of(Role::StuckReport).flat_map(|spec| (0..group.world()).map(move |rank| (spec, rank))) {
                reports.extend(self.memory.find(self.locate(number, rank, &spec.whole())?));
            }
        }
        Ok(reports)
    }

    /// Whether a script makes sense for the open groups, and what it needs.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn validate(&self, script: &Script) -> Result<Needs, MachineError> {
        validation::validate(script, &self.groups, self.modules.library()).map_err(|reason| MachineError::Invalid { reason })
    }

    /// What the host of each rank does, or of one rank only.
    ///
    /// # Errors
    /// `NotSupported` and `Invalid`, of what the rank launches.
    pub(super) fn compile(&mut self, script: &Script, needs: &Needs, only: Option<usize>) -> Result<Vec<Vec<Action>>, MachineError> {
        let wait_limit = u64::try_from(self.options.wait_limit.as_nanos()).unwrap_or(u64::MAX);
        let Emulator { groups, modules, memory, .. } = self;
        Compiler { groups, modules, memory, wait_limit, made: HashMap::new(), only }.compile(script, needs.world)
    }

    /// Carries out what the hosts of the ranks do, to its end or to where it stops.
    ///
    /// # Errors
    /// `Invalid` where the emulator misunderstands itself.
    pub(super) fn carry_out(
        &mut self,
        actions: Vec<Vec<Action>>,
        needs: &Needs,
        deadline: Duration,
        peers: Option<Peers<'_>>,
    ) -> Result<Ended, MachineError> {
        let worlds = self.groups.iter().map(|group| (group.world(), group.node_world())).collect();
        self.modules.begin_run();
        let limits = Limits { deadline, instructions: self.options.steps };
        let reports = self.stuck_reports(needs)?;
        let races = Races::new(self.options.profile, needs.world, all_streams((needs.streams, needs.sides), needs.programmatic), reports);
        let choices = (self.options.interleaving(), self.options.arithmetic);
        let here: Vec<usize> = peers.as_ref().map_or_else(|| (0..needs.world).collect(), |peers| vec![peers.rank()]);
        let ranks = actions.into_iter().map(|actions| Rank::new(actions, (needs.streams, needs.sides), needs.programmatic)).collect();
        let mut schedule = Schedule::new(&mut self.memory, races, worlds, ranks, choices, limits, peers);
        if self.options.trace {
            schedule.keep_trace();
        }
        let stopped = schedule.run().err();
        self.trace = schedule.take_trace();
        self.instructions = schedule.instructions();
        let (now, instructions, unfinished, marks) = (schedule.now(), schedule.instructions(), schedule.unfinished(), schedule.marks());
        let (fetched, undefined) = (schedule.take_fetched(), schedule.take_undefined());
        let (races, printed) = (schedule.races(), schedule.printed());
        let stuck = self.stuck(needs, &here)?;
        Ok(Ended { stopped, now, instructions, unfinished, marks, fetched, undefined, printed, races, stuck })
    }

    fn run_valid(&mut self, script: &Script, needs: &Needs, deadline: Duration) -> Result<Run, MachineError> {
        let actions = self.compile(script, needs, None)?;
        let Ended { stopped, now, instructions, unfinished, marks, fetched, undefined, printed, races, stuck } =
            self.carry_out(actions, needs, deadline, None)?;
        let (races, waived) = told(races, &self.options.interleaving().to_string());
        let hang = |cause, stuck, standing| MachineError::Hang {
            after: Elapsed::EmulatedNs(now),
            cause,
            stuck,
            unfinished: unfinished[..].into(),
            standing,
            blamed: Box::default(),
        };
        let ended = match stopped {
            Some(Stopped::Hang { cause, standing }) => Some(hang(cause, stuck, standing)),
            Some(Stopped::Limit { limit, standing }) if stuck.is_empty() => {
                Some(MachineError::inconclusive(so_far(&limit, now, instructions, &unfinished, &standing)))
            }
            // A kernel whose wait gave up goes on with what is not there: what it does then is no finding of its own.
            Some(stopped) if !stuck.is_empty() => Some(hang(String::new(), stuck, vec![of_stopped(stopped).to_string()])),
            Some(stopped) => Some(of_stopped(stopped)),
            None if stuck.is_empty() => None,
            None => Some(hang(String::new(), stuck, Vec::new())),
        };
        let ended = ended.map(|error| with_printed(error, &printed));
        match ended {
            ended if !races.is_empty() => Err(MachineError::Races { findings: races, waived, ended: ended.map(Box::new) }),
            Some(ended) => Err(ended),
            None => Ok(Run { marks: intervals(&marks), fetched, waived, undefined, ..Run::default() }),
        }
    }

    /// Whether a group may be opened: its layout, and the bytes of all open groups with it.
    ///
    /// # Errors
    /// `Invalid` and `NotSupported`, as [`Machine::open_group`].
    pub(super) fn admit(&self, (world, nodes): (usize, usize), buffers: &[BufferSpec]) -> Result<(Layout, u64), MachineError> {
        if !(1..=MAX_RANKS).contains(&world) {
            return invalid(format!("world size {world}: a group has 1 to {MAX_RANKS} ranks"));
        }
        if nodes == 0 || !world.is_multiple_of(nodes) {
            return invalid(format!("world size {world} on {nodes} nodes: a group has as many ranks on each"));
        }
        let layout = Layout::of(buffers).map_err(|error| MachineError::Invalid { reason: error.into() })?;
        let bytes = buffers.iter().map(held).fold(0, u64::saturating_add).saturating_mul(world as u64);
        let (used, budget) = (self.used.saturating_add(bytes), self.options.memory_budget);
        if used > budget {
            let reason = format!("{used} bytes of buffers on all ranks of all groups: the emulator's memory budget is {budget}");
            return Err(MachineError::NotSupported { reason });
        }
        if let Some(spec) = buffers.iter().find(|spec| spec.bytes.saturating_add(spec.readable) > MOST_BYTES) {
            let behind = if spec.readable > 0 { format!(" and {} behind it", spec.readable) } else { String::new() };
            let reason = format!("buffer `{}` of {} bytes{behind}: the emulator has {MOST_BYTES} at most in one", spec.name, spec.bytes);
            return Err(MachineError::NotSupported { reason });
        }
        if !is_there(buffers, world) {
            let reason = format!("{bytes} bytes of buffers on all ranks: this machine has no more memory for them");
            return Err(MachineError::NotSupported { reason });
        }
        Ok((layout, used))
    }

    /// Opens a group that was admitted.
    ///
    /// # Errors
    /// `Invalid` where the emulator misunderstands itself.
    pub(super) fn add_group(
        &mut self,
        world: (usize, usize),
        (layout, used): (Layout, u64),
        bytes: Bytes<'_>,
    ) -> Result<usize, MachineError> {
        let group = Group::open(self.groups.len(), world, layout, &mut self.memory, bytes).map_err(unexpected)?;
        self.used = used;
        self.rendezvous += 1;
        self.groups.push(group);
        Ok(self.groups.len() - 1)
    }
}

/// Whether the system gives memory for buffers of `world` ranks. If it refused that later, the process could only abort. Small ones are not checked.
fn is_there(buffers: &[BufferSpec], world: usize) -> bool {
    let bytes = buffers.iter().map(|spec| spec.bytes).fold(0, u64::saturating_add);
    if bytes.saturating_mul(world as u64) < SPARSE_BYTES {
        return true;
    }
    let mut reserved: Vec<Vec<u8>> = Vec::new();
    let sizes = (0..world).flat_map(|_| buffers).map(|spec| usize::try_from(spec.bytes).ok());
    sizes.into_iter().all(|size| {
        let mut room = Vec::new();
        let is_there = size.is_some_and(|size| room.try_reserve_exact(size).is_ok());
        reserved.push(room);
        is_there
    })
}

/// Bytes that a buffer takes of the memory budget: of a large one that starts with zeros or with nothing only those that are touched take memory, and runs that touch
/// more are too long for the emulator.
fn held(spec: &BufferSpec) -> u64 {
    match spec.fill {
        Fill::Byte(0) | Fill::Uninitialised | Fill::OfRanks(_) => spec.bytes.min(SPARSE_BYTES),
        Fill::Byte(_) | Fill::Repeated(_) => spec.bytes,
    }
}

/// How a run ended.
pub(super) struct Ended {
    /// Why not at its end, if it did not.
    pub(super) stopped: Option<Stopped>,
    /// Emulated nanoseconds, and thread instructions, since its start.
    pub(super) now: u64,
    pub(super) instructions: u64,
    /// Ranks that are not done, of those that are here.
    pub(super) unfinished: Vec<usize>,
    /// Microseconds between the marks of each rank.
    pub(super) marks: Vec<Vec<f64>>,
    /// What each rank fetched.
    pub(super) fetched: Vec<Vec<Fetched>>,
    /// Undefined values that kernels took, for people.
    pub(super) undefined: Vec<String>,
    /// What kernels printed.
    printed: Vec<String>,
    /// What the race check found.
    races: Vec<Report>,
    /// Waits that gave up, of ranks that are here.
    pub(super) stuck: Vec<Stuck>,
}

impl Machine for Emulator {
    fn info(&self) -> MachineInfo {
        let note = |name: &str, value: String| (name.to_owned(), value);
        MachineInfo {
            kind: "emulator".into(),
            gpu: "PTX on the CPU".into(),
            notes: vec![
                note("schedule", self.options.interleaving().to_string()),
                note(
                    "residency",
                    format!("as on {}: threads, blocks, shared memory; registers where a launch gives them", self.options.device.name),
                ),
                note("multimem", format!("sums are {}", self.options.arithmetic.multimem.name())),
                note("tensor cores", format!("sums are {}", self.options.arithmetic.tensor_cores.name())),
                note(
                    "profile",
                    match self.options.profile {
                        Profile::Ptx => "ptx: races are judged by the PTX memory model alone".into(),
                        Profile::Hopper => {
                            "hopper: races that only the assumptions boundary, retired, vector and alias exclude are waived".into()
                        }
                        Profile::Off => "off: races are not looked for".into(),
                    },
                ),
            ],
            ..MachineInfo::default()
        }
    }

    fn max_world(&self) -> usize {
        MAX_RANKS
    }

    /// A few: all blocks are resident, and every one costs time.
    fn waiting_blocks(&self, _: usize, _: usize) -> u32 {
        WAITING_BLOCKS
    }

    /// As many as kernels have flags for: they take longer, and nothing else.
    fn most_waiting_blocks(&self, _: usize, _: usize) -> u32 {
        MAX_BLOCKS
    }

    fn rendezvous(&self) -> u64 {
        self.rendezvous
    }

    fn check_budget(&self, elements: u64) -> Result<(), MachineError> {
        if elements <= MOST_ELEMENTS {
            return Ok(());
        }
        let reason = format!("too large for the emulator: {elements} elements of all ranks' inputs, at most {MOST_ELEMENTS}");
        Err(MachineError::NotSupported { reason })
    }

    fn check_multiplications(&self, multiplications: u64) -> Result<(), MachineError> {
        if multiplications <= MOST_MULTIPLICATIONS {
            return Ok(());
        }
        let reason = format!("too large for the emulator: {multiplications} multiplications on all ranks, at most {MOST_MULTIPLICATIONS}");
        Err(MachineError::NotSupported { reason })
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.open_nodes(world, 1, buffers)
    }

    fn open_nodes(&mut self, world: usize, nodes: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        let admitted = self.admit((world, nodes), buffers)?;
        self.add_group((world, nodes), admitted, Bytes::Own)
    }

    /// Forgets all memory: what is opened next has the addresses that it would have on a new machine.
    fn close_groups(&mut self) {
        self.groups.clear();
        self.modules.unload();
        self.memory = Memory::new();
        self.used = 0;
    }

    /// Bytes that were never written read as [`CANARY`](passmuster_plan::machine::CANARY).
    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        let address = self.locate(group, rank, region)?;
        Ok(self.memory.peek_all(address, region.bytes, rank).map_err(unexpected)?.into_owned())
    }

    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        let address = self.locate(group, rank, region)?;
        if bytes.len() as u64 != region.bytes {
            return invalid(format!("{} bytes for region {region}", bytes.len()));
        }
        self.memory.write(address, rank, bytes).map_err(unexpected)
    }

    /// Of bytes that kernels may read behind a buffer. Any other access outside one ends the run as a finding.
    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        self.group(group)?.broken_canary(&self.memory).map_err(unexpected)
    }

    /// `deadline` is wall time, and what takes longer is inconclusive; all other times are emulated.
    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError> {
        let needs = self.validate(script)?;
        self.run_valid(script, &needs, deadline)
    }
}

/// How far a run came that reached a limit, in a line.
pub(super) fn so_far(limit: &str, now: u64, instructions: u64, unfinished: &[usize], standing: &[String]) -> String {
    let left_out = standing.len().saturating_sub(NAMED_PLACES);
    let more = (left_out > 0).then(|| format!("and {left_out} more places"));
    let places: String = standing.iter().take(NAMED_PLACES).chain(&more).map(|place| format!("; {place}")).collect();
    let microseconds = now as f64 / 1e3;
    format!(
        "{limit}; after {microseconds} us of emulated time and {instructions} thread instructions ranks {unfinished:?} are not done{places}"
    )
}

/// What the race check found: findings in full, and what is waived, in general.
fn told(reports: Vec<Report>, token: &str) -> (Vec<String>, Vec<Waived>) {
    let replay = format!("replay: {token}");
    let (mut findings, mut waived) = (Vec::new(), Vec::new());
    for Report { assumption, what, at, text, times } in reports {
        let first = format!("{text}; {replay}");
        let Some(assumption) = assumption else {
            findings.push(first);
            continue;
        };
        Waived::add(&mut waived, vec![Waived { assumption: assumption.into(), what, first, times, places: vec![Needed { at, times }] }]);
    }
    (findings, waived)
}

pub(super) fn invalid<T>(reason: impl Into<String>) -> Result<T, MachineError> {
    Err(MachineError::Invalid { reason: reason.into() })
}

/// An access that memory refused although the emulator had made sure that it would not.
fn unexpected(error: AccessError) -> MachineError {
    MachineError::Invalid { reason: format!("the emulator's own access was refused: {error}") }
}

/// The error with what kernels printed before it, which often says why.
fn with_printed(error: MachineError, printed: &[String]) -> MachineError {
    match error {
        MachineError::Hang { after, cause, stuck, unfinished, mut standing, blamed } => {
            standing.extend_from_slice(printed);
            MachineError::Hang { after, cause, stuck, unfinished, standing, blamed }
        }
        MachineError::Fault { ranks, what, code, blamed } => {
            let code = [code].into_iter().chain(printed.iter().cloned()).collect::<Vec<_>>().join("; ");
            MachineError::Fault { ranks, what, code, blamed }
        }
        other => other,
    }
}

/// What ended a run before its end, other than a hang.
pub(super) fn of_stopped(stopped: Stopped) -> MachineError {
    let finding = |what| MachineError::Finding { findings: vec![what] };
    match stopped {
        Stopped::Fault { rank, entry, fault } => of_fault(rank, &entry, fault),
        Stopped::Misuse { rank, what, error } => finding(format!("rank {rank} {what}: {error}")),
        Stopped::Limit { limit, .. } => MachineError::inconclusive(limit),
        Stopped::Disagreement(reason) | Stopped::Hang { cause: reason, .. } => finding(reason),
        // Ranks in processes of their own are asked together why they ended.
        Stopped::Peer { .. } | Stopped::Late { .. } => finding("another rank's process has ended the run".into()),
    }
}

/// What a kernel's fault is to the user of the machine: a finding where a device would go on, the device's fault where it would not.
fn of_fault(rank: usize, entry: &str, fault: Fault) -> MachineError {
    match &fault {
        Fault::Memory { error: AccessError::OutOfBounds { .. } | AccessError::Uninitialised { .. }, .. } => {
            MachineError::Finding { findings: vec![fault.to_string()] }
        }
        Fault::UnsupportedInstruction { .. } | Fault::BadLaunch(_) => {
            MachineError::NotSupported { reason: format!("rank {rank}: {fault}") }
        }
        Fault::Assertion { .. } => device_fault(rank, entry, ("device-side assertion", How::Trapped), &fault),
        Fault::Memory { error: AccessError::Misaligned { .. }, .. } => {
            device_fault(rank, entry, ("misaligned address", How::Failed), &fault)
        }
        Fault::Memory { .. } => {
            device_fault(rank, entry, ("illegal address", How::IllegalAddress { kernel: Some(entry.to_owned()) }), &fault)
        }
        Fault::Trap { .. } => device_fault(rank, entry, ("illegal instruction", How::Trapped), &fault),
        _ => device_fault(rank, entry, ("illegal instruction", How::Failed), &fault),
    }
}

fn device_fault(rank: usize, entry: &str, (kind, how): (&str, How), fault: &Fault) -> MachineError {
    MachineError::fault_of(vec![rank], how, format!("kernel `{entry}`"), format!("{kind}: {fault}"))
}
