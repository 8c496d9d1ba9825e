//! One launch: which blocks there are, and whose turn it is.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use xxhash_rust::xxh3::Xxh3;

use super::{
    arithmetic::{Adder, Arithmetic},
    block::{BARRIERS, Block, Common, MOST_WARPS, Member},
    executor::{Event, Executor, place},
    fault::{ExecError, Fault, UndefinedValue},
    flight::Beside,
    program::{Footprint, Program, Residency},
    warp::{Frame, Waiting, Warp},
};
use crate::{
    memory::{AccessError, Address, Init, Memory, Owner},
    races::{ActorId, OperationId, Races},
};
use passmuster_ptx::{Function, LaunchBounds, Position, SourceLine};

/// Shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z; 1024 together at most.
    pub block: [u32; 3],
    /// Blocks of a cluster along x, y and z, where the launch says so.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory of each block.
    pub dynamic_shared: u32,
    /// Registers of a thread, if somebody knows.
    pub registers: Option<u32>,
}

/// The most local memory of a thread, in bytes, of all frames that its calls may have: that of compute capability 5.0 and later.
const MOST_LOCAL: u64 = 512 * 1024;

/// The most blocks of a cluster of a launch that does not ask for more, as none here does.
const MOST_IN_CLUSTER: u32 = 8;

/// How the names of blocks' shared memory start.
const SHARED_MEMORY: &str = "shared memory ";

/// Among what has turns, products of a block's warps have the numbers above those of the warps, and flights those above.
const PRODUCTS: usize = MOST_WARPS;
const FLIGHTS: usize = PRODUCTS + MOST_WARPS;

/// What does not change while a launch runs.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) program: Arc<Program>,
    pub(super) entry: usize,
    pub(super) name: Arc<str>,
    pub(super) shape: Shape,
    /// Blocks of a cluster along x, y and z.
    pub(super) cluster: [u32; 3],
    pub(super) parameters: Vec<u8>,
    /// Generic address of the parameters.
    pub(super) parameter_address: u64,
    /// Shared memory of a block, static and dynamic, in bytes.
    pub(super) shared_bytes: u64,
    /// Local memory of a thread, in bytes.
    pub(super) local_bytes: u64,
    /// Whether the operation before it is not done, for which its threads may wait.
    pub(super) prerequisite_runs: bool,
}

impl Launch {
    fn function(&self) -> &Function {
        &self.program.module.functions[self.entry]
    }

    /// Bytes of static shared memory.
    pub(super) fn static_shared(&self) -> u64 {
        self.function().shared_bytes.into()
    }

    /// Whether clusters were asked for, by the kernel itself or by its launch.
    pub(super) fn is_explicit_cluster(&self) -> bool {
        self.shape.cluster.or(self.function().bounds.required_cluster).is_some()
    }

    /// Blocks of a cluster.
    fn members(&self) -> usize {
        self.cluster.iter().product::<u32>() as usize
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> u32 {
        self.shape.block.iter().product()
    }

    /// A fault with what of the launch or the module may be its cause.
    #[cold]
    fn explained(&self, fault: Fault) -> Fault {
        let Fault::Memory { place, error, hint: None } = fault else { return fault };
        let is_shared = |buffer: &str| buffer.starts_with(SHARED_MEMORY);
        let hint = match &error {
            AccessError::OutOfBounds { buffer, .. } if is_shared(buffer) => self.too_little_shared(),
            // Below where buffers are: what a variable has that nobody set.
            AccessError::Unmapped { nearest: None, .. } => self.program.unset_variables(self.entry),
            _ => None,
        };
        Fault::Memory { place, error, hint }
    }

    /// That the kernel has extern shared memory, if it has, and how much of it the launch gives.
    fn too_little_shared(&self) -> Option<String> {
        let given = self.shape.dynamic_shared;
        let declares = self.program.module.dynamic_align > 0;
        declares.then(|| format!("extern shared memory: the launch gives {given} bytes, see `dynamic_shared`"))
    }
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Thread instructions: active lanes of each warp instruction.
    pub instructions: u64,
    /// Memory that others than the block's cluster can see was written. By an atomic only if it is another value then.
    pub wrote: bool,
    /// It ended early because what could run of the warp polls: it read the same again, with a strong or volatile load or an atomic that
    /// changed nothing, or it sleeps. Others should run.
    pub polled: bool,
    /// It ended because all of the warp that has not ended waits at barriers, or for other lanes.
    pub blocked: bool,
    /// `%globaltimer` or `%clock` was read: waiting may end by time alone.
    pub read_clock: bool,
}

/// What a group of lanes does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WarpState {
    /// It waits at a barrier of its block, or of its cluster, which is barrier [`WarpState::CLUSTER`].
    Barrier {
        /// The barrier.
        id: u32,
    },
    /// It waits for other lanes of its warp, named by a member mask.
    Lanes,
    /// It reads the same from this address again and again; of several lanes, the lowest one's.
    Polling {
        /// The address.
        address: u64,
    },
    /// It can run.
    Running,
}

impl WarpState {
    /// The barrier of the cluster.
    pub const CLUSTER: u32 = BARRIERS as u32;
}

/// Where lanes of a warp stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarpPosition {
    /// Linear index of the block.
    pub block: u32,
    /// Warp of the block.
    pub warp: u32,
    /// The lanes, as bits.
    pub lanes: u32,
    /// What they do.
    pub what: WarpState,
    /// The operation that they execute next, or wait at; for polling, the one that reads.
    pub at: Position,
    /// Its source line, where the PTX tells.
    pub source: Option<SourceLine>,
}

/// One launch: its blocks and warps and where each stands.
#[derive(Debug)]
pub struct Grid {
    launch: Launch,
    adder: Adder,
    beside: Beside,
    /// Resident blocks, cluster by cluster; ended ones leave a hole. Where a whole cluster has ended, the next one takes its place.
    blocks: Vec<Option<Block>>,
    /// Clusters that have been started, of all.
    started: u64,
    total: u64,
    /// Warps that can run: slot of the block, and warp; and beside them flights: slot, and their number above all warps.
    candidates: Vec<(usize, usize)>,
    /// Resident blocks.
    live_blocks: usize,
    /// What the launch is to the race check, where there is one.
    operation: Option<OperationId>,
    /// A block that has ended has let dependent launches start.
    let_dependents_start: bool,
    /// How many blocks are resident at once.
    residency: Residency,
    /// Undefined values that it has met.
    undefined: Vec<UndefinedValue>,
    /// What its threads have printed.
    printed: Vec<String>,
}

impl Grid {
    /// A launch of `entry`. `parameters` are the bytes that a launch passes, laid out as in C: the entry's
    /// [`input_bytes`](Function::input_bytes).
    ///
    /// # Errors
    /// [`Fault::UnknownInstruction`] where the kernel may come to an instruction that is not known; [`Fault::BadLaunch`] for an unknown entry or one that is no kernel, parameters of another size, a shape with a zero, blocks of more
    /// than 1024 threads or than the entry allows, a grid that the entry's clusters do not divide, clusters of more than eight blocks, and more shared or local memory than there is.
    pub fn new(program: Arc<Program>, entry: &str, shape: Shape, parameters: &[u8], memory: &mut Memory) -> Result<Grid, Fault> {
        let index = program.entry(entry)?;
        program.module.launchable(entry).map_err(|error| Fault::UnknownInstruction(Box::new(error.clone())))?;
        let function = &program.module.functions[index];
        let (threads, cluster) = check(function, shape).map_err(|why| Fault::BadLaunch(format!("{entry}: {why}")))?;
        let bad = |why: String| Err(Fault::BadLaunch(format!("{entry}: {why}")));
        if parameters.len() != function.input_bytes as usize {
            return bad(format!("{} bytes of parameters: expected {}", parameters.len(), function.input_bytes));
        }
        let fixed = u64::from(function.shared_bytes).next_multiple_of(u64::from(program.dynamic_align));
        let shared_bytes = if shape.dynamic_shared > 0 { fixed + u64::from(shape.dynamic_shared) } else { function.shared_bytes.into() };
        let shared_per_block = program.limits.shared_per_block;
        if shared_bytes > shared_per_block.into() {
            return bad(format!("{shared_bytes} bytes of shared memory: at most {shared_per_block} are there"));
        }
        let members = cluster.iter().product::<u32>();
        let footprint = Footprint { threads, shared: shared_bytes as u32, cluster: members, registers: shape.registers };
        let residency = (program.limits.resident)(&footprint);
        if residency.blocks < u64::from(members) {
            return bad(format!("not one {} fits: {}", if members > 1 { "cluster" } else { "block" }, residency.bound));
        }
        let local_bytes = program.local_bytes(index);
        if local_bytes > MOST_LOCAL {
            return bad(format!("{local_bytes} bytes of local memory of a thread: at most {MOST_LOCAL} are there"));
        }
        let rank = program.rank;
        let owner = Owner::new(rank, 0, format!("parameters ({entry})"));
        let parameter_address = memory.allocate(owner, parameters.len() as u64, Init::Zero);
        memory.write(parameter_address, rank, parameters).map_err(|error| Fault::BadLaunch(format!("{entry}: {error}")))?;
        let launch = Launch {
            local_bytes,
            entry: index,
            name: entry.into(),
            shape,
            cluster,
            parameters: parameters.to_vec(),
            parameter_address: parameter_address.0,
            shared_bytes,
            program,
            prerequisite_runs: false,
        };
        let members = launch.members();
        let total = shape.grid.iter().map(|&size| u64::from(size)).product::<u64>() / members as u64;
        // Blocks past these start as others end, in order.
        let resident = (residency.blocks / members as u64).min(total) as usize;
        let (adder, blocks, candidates) = (Adder::new(Arithmetic::default(), [0; 2]), Vec::new(), Vec::new());
        let beside = Beside::new(0);
        let mut grid = Grid {
            launch,
            adder,
            beside,
            blocks,
            started: 0,
            total,
            candidates,
            live_blocks: 0,
            operation: None,
            let_dependents_start: false,
            residency,
            undefined: Vec::new(),
            printed: Vec::new(),
        };
        grid.blocks.resize_with(resident * members, || None);
        for place in 0..resident {
            grid.start_cluster(place * members, memory);
        }
        Ok(grid)
    }

    /// The same launch with sums of this `arithmetic`. Two seeds are of what that leaves open: one of what a `chip` does always, one of what is the `launch`'s,
    /// how copies go that it starts among that. A new launch has the default and seeds of 0.
    pub fn varied(self, arithmetic: Arithmetic, [chip, launch]: [u64; 2]) -> Grid {
        Grid { adder: Adder::new(arithmetic, [chip, launch]), beside: Beside::new(launch), ..self }
    }

    /// Starts the next cluster, with its first block in this slot.
    fn start_cluster(&mut self, first: usize, memory: &mut Memory) {
        let launch = &self.launch;
        let clusters = [0, 1, 2].map(|axis| launch.shape.grid[axis] / launch.cluster[axis]);
        let corner = coordinates(self.started, clusters);
        let [width, height, _] = launch.shape.grid.map(u64::from);
        let members = (0..launch.members() as u64).map(|rank| {
            let within = coordinates(rank, launch.cluster);
            let at = [0, 1, 2].map(|axis| corner[axis] * launch.cluster[axis] + within[axis]);
            (at, (u64::from(at[0]) + width * (u64::from(at[1]) + height * u64::from(at[2]))) as u32)
        });
        let members: Vec<([u32; 3], u32)> = members.collect();
        let shared = members.iter().map(|(_, index)| match launch.shared_bytes {
            0 => 0,
            bytes => {
                let name = format!("{SHARED_MEMORY}({}, block {index})", launch.name);
                memory.allocate(Owner::new(launch.program.rank, 0, name), bytes, Init::Uninitialised).0
            }
        });
        let shared: Arc<[u64]> = shared.collect();
        let threads = launch.threads();
        for (rank, (at, index)) in members.into_iter().enumerate() {
            let warps =
                (0..threads.div_ceil(32)).map(|warp| Warp::new(&launch.program.module, launch.entry, (threads - warp * 32).min(32)));
            let common = Common::new(index, at, self.started as u32, Member { rank: rank as u32, shared: shared.clone() });
            let block = Block { common, warps: warps.collect(), able: u32::MAX >> (32 - threads.div_ceil(32).min(32)) };
            self.candidates.extend((0..block.warps.len()).map(|warp| (first + rank, warp)));
            self.blocks[first + rank] = Some(block);
            self.live_blocks += 1;
        }
        self.started += 1;
    }

    /// What can go on: slot of the block, and warp of the block, or for what goes on beside its warps a number above theirs. [`Grid::turn`] picks
    /// one of these.
    pub fn able(&self) -> &[(usize, usize)] {
        &self.candidates
    }

    /// The number of the cluster of the block in a slot, if one is there.
    pub fn cluster(&self, slot: usize) -> Option<u32> {
        self.blocks[slot].as_ref().map(|block| block.common.cluster)
    }

    /// For each resident cluster, by number, a digest of its state: its warps, barriers, shared and local memory. That is what it may do next as
    /// long as nobody writes other memory and no clock is read.
    pub fn digests(&self, memory: &Memory) -> Vec<(u32, u128)> {
        let Launch { program, shared_bytes, local_bytes, .. } = &self.launch;
        let bytes_at = |address: u64, bytes: u64| memory.peek_all(Address(address), bytes, program.rank).unwrap_or_default();
        let of_cluster = |blocks: &[Option<Block>]| {
            let mut hasher = Xxh3::new();
            for (slot, block) in blocks.iter().enumerate() {
                let Some(block) = block else { continue };
                slot.hash(&mut hasher);
                block.common.hash_state(&mut hasher);
                hasher.write(&bytes_at(block.common.shared, *shared_bytes));
                self.beside.mbarriers.hash_state(block.common.shared, *shared_bytes, &mut hasher);
                for warp in &block.warps {
                    warp.hash_state(&mut hasher);
                    let local = warp.local.iter().flat_map(|local| local.iter().filter(|&&address| address != 0));
                    local.for_each(|&address| hasher.write(&bytes_at(address, *local_bytes)));
                }
            }
            let number = blocks.iter().flatten().next()?.common.cluster;
            Some((number, hasher.digest128()))
        };
        self.blocks.chunks(self.launch.members()).filter_map(of_cluster).collect()
    }

    /// Whether lanes will never end, whatever they read: from where they are, there is no way out of their function.
    pub fn never_ends(&self) -> bool {
        let functions = &self.launch.program.module.functions;
        let mut groups = self.blocks.iter().flatten().flat_map(|block| &block.warps).flat_map(|warp| &warp.groups);
        groups.any(|group| !functions[group.frame.function].may_leave(group.pc))
    }

    /// Lets one warp that can run execute up to `quantum` warp instructions. `pick(n)` chooses among `n` that can, by their place in a list
    /// whose order is a function of what was chosen before. Within the warp, the lanes that go first are a matter of
    /// rule, not of choice. A `pick` that never takes some of them may let others poll for ever. `now` is what `%globaltimer` and `%clock` show, in nanoseconds.
    ///
    /// Without any warp that can run, nothing is done and nothing is asked.
    ///
    /// # Errors
    /// What stops the launch. It must not be run on then.
    ///
    /// # Panics
    /// If `pick(n)` is not below `n`.
    pub fn turn(&mut self, memory: &mut Memory, now: u64, quantum: u32, pick: &mut dyn FnMut(usize) -> usize) -> Result<Turn, Fault> {
        self.watched_turn(memory, None, now, quantum, pick)
    }

    /// Has the race check told of what the launch does, as operation `operation` of its stream, from its first turn on.
    pub fn watch_as(&mut self, operation: OperationId) {
        self.operation = Some(operation);
    }

    /// Says whether the operation before the launch is still under way: `griddepcontrol.wait` waits as long as it is. Without this it is not.
    pub fn prerequisite_runs(&mut self, runs: bool) {
        self.launch.prerequisite_runs = runs;
    }

    /// Whether a launch that depends on this one may start: every block has said so (`griddepcontrol.launch_dependents`) or has ended.
    pub fn lets_dependents_start(&self) -> bool {
        self.started == self.total && self.blocks.iter().flatten().all(|block| block.common.lets_dependents_start)
    }

    /// Whether a block that has ended has said so. If none does, what depends on this launch starts when it is done.
    pub fn let_dependents_start(&self) -> bool {
        self.let_dependents_start
    }

    /// What the launch is to the race check.
    pub fn operation(&self) -> Option<OperationId> {
        self.operation
    }

    /// A [`turn`](Grid::turn) that the race check sees.
    pub fn watched_turn(
        &mut self,
        memory: &mut Memory,
        mut races: Option<&mut Races>,
        now: u64,
        quantum: u32,
        pick: &mut dyn FnMut(usize) -> usize,
    ) -> Result<Turn, Fault> {
        let mut turn = Turn::default();
        if self.candidates.is_empty() {
            return Ok(turn);
        }
        let chosen = pick(self.candidates.len());
        let (slot, index) = self.candidates[chosen];
        if let Some(number) = index.checked_sub(FLIGHTS) {
            if self.beside.fly(number, memory, races)? {
                self.candidates.swap_remove(chosen);
            }
            return Ok(Turn { instructions: 1, wrote: true, ..turn });
        }
        if let Some(warp) = index.checked_sub(PRODUCTS) {
            if !self.multiply(slot, warp, memory, races)? {
                self.candidates.swap_remove(chosen);
            }
            return Ok(Turn { instructions: 1, wrote: true, ..turn });
        }
        let Grid { launch, adder, blocks, candidates, beside, undefined, printed, .. } = self;
        let launch = &*launch;
        let of_cluster = slot / launch.members() * launch.members();
        let of_cluster = of_cluster..of_cluster + launch.members();
        let Some(block) = &mut blocks[slot] else { return Ok(turn) };
        block.warps[index].begin_turn();
        if let (None, Some(races), Some(operation)) = (block.common.actor, races.as_deref_mut(), self.operation) {
            let Common { index, cluster, .. } = block.common;
            block.common.actor = Some(races.begin_block(operation, index, cluster, launch.threads() as usize));
        }
        let mut left = quantum;
        let mut ended = false;
        while let Some(block) = &mut blocks[slot] {
            let Block { common, warps, .. } = &mut *block;
            let mut executor = Executor {
                memory: &mut *memory,
                races: races.as_deref_mut(),
                launch,
                block: common,
                adder,
                beside,
                slot,
                warp: &mut warps[index],
                warp_index: index,
                now,
                turn: &mut turn,
                frame: Frame::default(),
                pc: 0,
                polled: None,
                undefined: &mut *undefined,
                printed: &mut *printed,
            };
            match executor.run(&mut left).map_err(|fault| launch.explained(fault))? {
                Event::Spent => {
                    turn.polled = false;
                    break;
                }
                Event::Idle => break,
                Event::Barrier(id) => {
                    let woken = complete(block, launch, id, races.as_deref_mut())?;
                    wake(block, slot, woken, candidates);
                }
                Event::Cluster => complete_cluster(&mut blocks[of_cluster.clone()], of_cluster.start, races.as_deref_mut(), candidates),
                Event::Ended => {
                    ended = true;
                    for id in 0..BARRIERS as u32 {
                        let woken = complete(block, launch, id, races.as_deref_mut())?;
                        wake(block, slot, woken, candidates);
                    }
                    complete_cluster(&mut blocks[of_cluster.clone()], of_cluster.start, races.as_deref_mut(), candidates);
                }
            }
        }
        let started = beside.take_started();
        let Some(block) = &mut blocks[slot] else { return Ok(turn) };
        if !block.warps[index].is_runnable() {
            candidates.swap_remove(chosen);
            block.able &= !(1 << index);
            turn.blocked = block.warps[index].live != 0;
        }
        candidates.extend(started.into_iter().map(|number| (slot, FLIGHTS + number)));
        if let Some(products) = block.warps[index].products.as_deref_mut().filter(|products| !products.queued && products.is_under_way()) {
            products.queued = true;
            candidates.push((slot, PRODUCTS + index));
        }
        if ended && block.warps.iter().all(|warp| warp.live == 0) {
            self.end_block(slot, memory, races)?;
        }
        Ok(turn)
    }

    /// Does the next product of a warp; whether there are more.
    fn multiply(&mut self, slot: usize, warp: usize, memory: &Memory, races: Option<&mut Races>) -> Result<bool, Fault> {
        let Some(Block { common, warps, .. }) = &mut self.blocks[slot] else { return Ok(false) };
        let Warp { registers, products, .. } = &mut warps[warp];
        let Some(products) = products.as_deref_mut() else { return Ok(false) };
        products.advance(&self.adder, registers, (&self.launch, common.shared), (common.index, warp), memory, races)?;
        products.queued = products.is_under_way();
        Ok(products.queued)
    }

    fn end_block(&mut self, slot: usize, memory: &mut Memory, mut races: Option<&mut Races>) -> Result<(), Fault> {
        if let Some(block) = self.blocks[slot].take() {
            self.live_blocks -= 1;
            self.let_dependents_start |= block.common.lets_dependents_start;
            // Products that nobody has waited for are lost.
            self.candidates.retain(|&(other, index)| other != slot || !(PRODUCTS..FLIGHTS).contains(&index));
            if let Some((warp, (function, pc))) = block.common.unlike() {
                let operation = &self.launch.program.module.functions[function].code[pc];
                let why = "other warps of its warpgroup ended without it: all four must execute the same".into();
                let error = ExecError::Asynchronous { lane: None, why };
                return Err(error.at(place(&self.launch, block.common.index, warp, operation)));
            }
            let (gone, late) = self.beside.end_block(slot, block.common.shared, self.launch.shared_bytes);
            if let Some(races) = races.as_deref_mut() {
                gone.into_iter().for_each(|address| races.forget_mbarrier(address));
            }
            late?;
            if let (Some(races), Some(actor)) = (races, block.common.actor) {
                races.end_block(actor);
                memory.find(Address(block.common.shared)).into_iter().for_each(|shared| races.forget(shared));
            }
            free(&block, memory);
        }
        let members = self.launch.members();
        let first = slot / members * members;
        if self.started < self.total && self.blocks[first..first + members].iter().all(Option::is_none) {
            self.start_cluster(first, memory);
        }
        Ok(())
    }

    /// Whether all threads have ended, and all that they started is done.
    pub fn is_done(&self) -> bool {
        self.live_blocks == 0 && self.beside.is_empty()
    }

    /// Where every warp that has not ended stands: for reports of hangs. Blocks that have not started are not among them.
    pub fn standing(&self) -> Vec<WarpPosition> {
        let mut standing = Vec::new();
        for block in self.blocks.iter().flatten() {
            for (warp, Warp { groups, .. }) in block.warps.iter().enumerate() {
                for group in groups {
                    let (what, pc) = match (group.waiting, group.polled) {
                        (Waiting::Barrier(id), _) => (WarpState::Barrier { id }, group.pc),
                        (Waiting::Cluster, _) => (WarpState::Barrier { id: WarpState::CLUSTER }, group.pc),
                        (Waiting::Lanes, _) => (WarpState::Lanes, group.pc),
                        (Waiting::No, Some(address)) => (WarpState::Polling { address }, group.pc.saturating_sub(1)),
                        (Waiting::No, None) => (WarpState::Running, group.pc),
                    };
                    let operation = &self.launch.program.module.functions[group.frame.function].code[pc];
                    let (block, warp, lanes) = (block.common.index, warp as u32, group.lanes);
                    standing.push(WarpPosition { block, warp, lanes, what, at: operation.at, source: operation.source });
                }
            }
        }
        standing
    }

    /// Blocks that run.
    pub(super) fn resident(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().flatten()
    }

    /// What does not change while it runs.
    pub(super) fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Undefined values that its threads got so far, one of each instruction.
    pub fn undefined(&self) -> &[UndefinedValue] {
        &self.undefined
    }

    /// What its threads printed so far, by `printf`: a text a call, the first of them.
    pub fn printed(&self) -> &[String] {
        &self.printed
    }

    /// If blocks have not started because the device holds no more at once, how many are there and why: "only 132 of 1024 blocks fit (1 on each of 132 SMs, by
    /// shared memory)".
    pub fn crowded(&self) -> Option<String> {
        let members = self.launch.members() as u64;
        let total = self.total * members;
        let Residency { blocks, bound } = &self.residency;
        (self.started < self.total).then(|| format!("only {} of {total} blocks fit ({bound})", blocks / members * members))
    }

    /// Frees what the launch allocated: parameters, shared and local memory. All that it stored is seen by everybody from now on.
    pub fn finish(self, memory: &mut Memory) {
        memory.publish_launch(self.launch.parameter_address);
        self.blocks.iter().flatten().for_each(|block| free(block, memory));
        release(self.launch.parameter_address, memory);
    }
}

/// Completes a barrier if all are there; returns the warps that go on, as bits.
fn complete(block: &mut Block, launch: &Launch, id: u32, races: Option<&mut Races>) -> Result<u32, Fault> {
    let index = block.common.index;
    let completed = block.complete(id, &launch.program.module);
    let waited = completed.map_err(|(warp, operation, trouble)| trouble.at(place(launch, index, warp, operation)))?;
    if let (Some(waited), Some(races), Some(actor)) = (waited, races, block.common.actor) {
        let all = block.warps.iter().zip(&waited).all(|(warp, waited)| warp.live & !waited == 0);
        races.barrier(actor, id, &waited, all);
    }
    let woken = waited.iter().flatten().enumerate().filter(|(_, lanes)| **lanes != 0);
    Ok(woken.fold(0, |woken, (warp, _)| woken | 1 << warp))
}

/// The same for the barrier of the cluster of these blocks, of which the first is in slot `first`.
fn complete_cluster(blocks: &mut [Option<Block>], first: usize, races: Option<&mut Races>, candidates: &mut Vec<(usize, usize)>) {
    let (all, any) = blocks.iter().flatten().map(Block::at_cluster).fold((true, false), |so_far, of| (so_far.0 & of.0, so_far.1 | of.1));
    if !all || !any {
        return;
    }
    if let Some(races) = races {
        let actors: Vec<ActorId> = blocks.iter().flatten().filter_map(|block| block.common.actor).collect();
        races.complete_cluster(&actors);
    }
    for (rank, block) in blocks.iter_mut().enumerate() {
        if let Some(block) = block {
            let woken = block.complete_cluster();
            wake(block, first + rank, woken, candidates);
        }
    }
}

/// Lets warps of the block in a slot run.
fn wake(block: &mut Block, slot: usize, warps: u32, candidates: &mut Vec<(usize, usize)>) {
    let woken = warps & !block.able;
    block.able |= woken;
    candidates.extend((0..MOST_WARPS).filter(|warp| woken >> warp & 1 == 1).map(|warp| (slot, warp)));
}

/// Coordinates of the element of an index.
fn coordinates(index: u64, [width, height, _]: [u32; 3]) -> [u32; 3] {
    let (width, height) = (u64::from(width), u64::from(height));
    [index % width, index / width % height, index / (width * height)].map(|at| at as u32)
}

fn release(address: u64, memory: &mut Memory) {
    // What the launch allocated, nobody else frees.
    let freed = memory.free(Address(address));
    debug_assert!(freed.is_ok(), "{freed:?}");
}

/// Frees the shared and local memory of a block.
fn free(block: &Block, memory: &mut Memory) {
    if block.common.shared != 0 {
        release(block.common.shared, memory);
    }
    let locals = block.warps.iter().filter_map(|warp| warp.local.as_deref());
    locals.flatten().filter(|address| **address != 0).for_each(|&address| release(address, memory));
}

/// Checks a shape against what an entry allows; returns threads of a block, and blocks of a cluster along each axis.
fn check(function: &Function, shape: Shape) -> Result<(u32, [u32; 3]), String> {
    let Shape { grid, block, .. } = shape;
    let product = |sizes: [u32; 3]| sizes.iter().try_fold(1_u32, |product, &size| product.checked_mul(size));
    let most = 32 * MOST_WARPS as u32;
    let threads = match product(block) {
        Some(threads @ 1..) if threads <= most => threads,
        _ => return Err(format!("blocks of {block:?} threads: expected 1 to {most} together")),
    };
    if product(grid).is_none_or(|blocks| blocks == 0) {
        return Err(format!("a grid of {grid:?} blocks: expected 1 to {} together", u32::MAX));
    }
    function.bounds.accept(block)?;
    let LaunchBounds { required_cluster, max_cluster, explicit_cluster, blocks_are_clusters, .. } = function.bounds;
    let cluster = required_cluster.or(shape.cluster).unwrap_or([1; 3]);
    let members = product(cluster).unwrap_or(u32::MAX);
    let why = match () {
        _ if blocks_are_clusters => "a grid that counts clusters (.blocksareclusters) is not emulated".into(),
        _ if explicit_cluster && required_cluster.or(shape.cluster).is_none() => {
            "the kernel requires a launch that says what a cluster is (.explicitcluster)".into()
        }
        _ if shape.cluster.is_some_and(|asked| asked != cluster) => {
            format!("clusters of {:?} blocks: the kernel requires {cluster:?} (.reqnctapercluster)", shape.cluster.unwrap_or_default())
        }
        _ if !(1..=MOST_IN_CLUSTER).contains(&members) => {
            format!("clusters of {cluster:?} blocks: expected 1 to {MOST_IN_CLUSTER} together")
        }
        _ if max_cluster.is_some_and(|max| members > max) => {
            format!("clusters of {members} blocks: the kernel allows {} (.maxclusterrank)", max_cluster.unwrap_or_default())
        }
        _ if (0..3).any(|axis| !grid[axis].is_multiple_of(cluster[axis])) => {
            format!("a grid of {grid:?} blocks is no multiple of clusters of {cluster:?}")
        }
        _ => return Ok((threads, cluster)),
    };
    Err(why)
}
