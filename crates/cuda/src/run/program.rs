//! Programs: a script as one rank's thread carries it out, with every address, kernel and communicator resolved.
//!
//! Enqueuing a command is one call of the driver, so that ranks start as close together and as fast as the host allows.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    sync::Arc,
};

use super::{communicators::OfGroups, group::Group, products::Products};
use crate::{
    gpu::{
        copies::{self, Batches, Copy},
        device::Device,
        graphs::{Graphs, OfRank},
        kernel::{Kernel, Kernels, Shape},
        scratch::Scratch,
        stream::{Event, Fetch, Stream, Word},
        tensor_map,
    },
    ranks::fault::fault,
    vendor::{
        cublas_lt::{CublasError, Matmul},
        driver::CudaError,
        nccl::{Communicator, LibraryCall, NcclError},
    },
};
use passmuster_plan::{
    library::Library,
    machine::{
        Awaited, Deferred, MachineError,
        arguments::{Addresses, Arguments, check_strides, in_memory, memory_bytes, tensor_maps},
        compile::{self, Compiled, Graph, Place, Resolved, Target},
        validation::{Members, side_stream},
    },
    plan::{Launch, MAX_SIDES, NcclCall, RankCall, Region, Script, TensorMap},
};

/// One operation on a stream.
pub(crate) enum Command {
    Launch {
        kernel: Kernel,
        shape: Shape,
        arguments: Arguments,
        /// SMs that its blocks fill while they wait for other ranks': none where they do not wait.
        fills: u32,
    },
    /// Copies that follow each other and may be done in any order, none of them empty.
    Copies(Vec<Copy>),
    Fill {
        at: u64,
        byte: u8,
        bytes: u64,
    },
    /// Writes of words and waits for them that follow each other, which the driver takes as one.
    Words(Vec<Word>),
    Nccl {
        communicator: Arc<Communicator>,
        call: LibraryCall,
        input: u64,
        output: u64,
    },
    Matmul {
        matmul: Arc<Matmul>,
        operands: [u64; 3],
        /// Address and bytes.
        workspace: (u64, u64),
    },
    Fork {
        side: usize,
        commands: Vec<Command>,
    },
    Join {
        side: usize,
    },
    Fetch {
        from: u64,
        bytes: u64,
    },
    Mark,
}

/// What a rank's thread does next.
pub(super) type Action = compile::Action<Command>;

/// All that one rank does in a script.
pub(crate) struct Program {
    pub(crate) rank: usize,
    pub(crate) device: Arc<Device>,
    /// Those that the script names, then the side streams of each.
    pub(crate) streams: Vec<Arc<Stream>>,
    /// How many streams the script names, and how many side streams each has.
    pub(crate) numbers: (usize, usize),
    /// What each graph captures. Capturing enqueues nothing, so it is done before the ranks start together.
    pub(crate) graphs: Vec<Captured>,
    pub(crate) actions: Vec<Action>,
    /// Communicators it uses, to ask for errors.
    pub(crate) communicators: Vec<Arc<Communicator>>,
    /// What copies outside graphs are joined into.
    pub(crate) batches: Option<Arc<Batches>>,
}

/// A rank's part of a graph.
pub(crate) struct Captured {
    /// The graph, where an earlier script has captured it.
    pub(crate) kept: Arc<OfRank>,
    /// What is in it.
    pub(crate) graph: Arc<compile::Captured<Command>>,
}

/// A call that failed on a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) what: String,
    pub(crate) code: String,
    /// Whether a library does not do such a call: see [`NcclError::refused`].
    pub(crate) refused: bool,
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Failure {
        Failure { what: error.what, code: error.name, refused: false }
    }
}

impl From<NcclError> for Failure {
    fn from(error: NcclError) -> Failure {
        Failure { what: error.what, code: error.code, refused: error.refused }
    }
}

impl From<CublasError> for Failure {
    fn from(error: CublasError) -> Failure {
        Failure { what: error.what, code: error.code, refused: false }
    }
}

/// What was fetched, and how the host came to it, if it did.
pub(super) type PendingFetch = (Deferred<Vec<u8>, CudaError>, Option<Awaited>);

/// Events of one rank.
pub(crate) struct Events {
    /// Orders streams.
    order: Event,
    /// One for each mark.
    marks: Vec<Event>,
    /// Marks that were enqueued.
    marked: usize,
    /// One for each fetch that is still to be enqueued.
    fetches: VecDeque<Fetch>,
    /// Those that were, and how the host came to them.
    pub(crate) fetched: Vec<PendingFetch>,
}

impl Events {
    /// For a program, on the device whose context is current.
    pub(crate) fn of(program: &Program) -> Result<Events, CudaError> {
        let driver = program.device.driver;
        let marks = program.actions.iter().map(|action| match action {
            Action::Enqueue { commands, .. } => commands.iter().map(Command::marks).sum(),
            Action::Mark => 1,
            Action::Replay { .. } | Action::Sleep(_) | Action::Await(_) | Action::Depart(_) => 0,
        });
        let marks = (0..marks.sum()).map(|_| Event::new(driver)).collect::<Result<_, _>>()?;
        let mut fetches = VecDeque::new();
        for action in &program.actions {
            if let Action::Enqueue { commands, .. } = action {
                let bytes = commands.iter().flat_map(Command::fetches);
                bytes.map(|bytes| Fetch::new(driver, bytes)).try_for_each(|fetch| fetch.map(|fetch| fetches.push_back(fetch)))?;
            }
        }
        Ok(Events { order: Event::without_time(driver)?, marks, marked: 0, fetches, fetched: Vec::new() })
    }

    /// Enqueues the next fetch on a stream.
    fn fetch(&mut self, from: u64, stream: &Stream) -> Result<(), CudaError> {
        let fetch = self.fetches.pop_front().expect("one was made for each").start(from, stream)?;
        self.fetched.push((Deferred::pending(fetch), None));
        Ok(())
    }

    /// Notes the time on a stream.
    pub(crate) fn mark(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.marked += 1;
        stream.record(&self.marks[self.marked - 1])
    }

    /// Microseconds from each mark to the next, when all were passed.
    pub(crate) fn intervals(&self) -> Result<Vec<f64>, CudaError> {
        self.marks.windows(2).map(|pair| pair[0].microseconds_until(&pair[1])).collect()
    }
}

impl Program {
    /// Enqueues commands on a stream and its sides; copies in `batches`, which a capture has none of.
    pub(crate) fn enqueue(
        &self,
        stream: usize,
        commands: &[Command],
        events: &mut Events,
        batches: Option<&Batches>,
    ) -> Result<(), Failure> {
        let on = &self.streams[stream];
        for command in commands {
            match command {
                Command::Fork { side, commands } => {
                    let side = side_stream(self.numbers, stream, *side);
                    self.streams[side].follow(on, &events.order)?;
                    self.enqueue(side, commands, events, batches)?;
                }
                Command::Join { side } => on.follow(&self.streams[side_stream(self.numbers, stream, *side)], &events.order)?,
                Command::Mark => events.mark(on)?,
                Command::Fetch { from, .. } => events.fetch(*from, on)?,
                Command::Copies(copies) => on.copies(copies, batches)?,
                command => command.enqueue(on)?,
            }
        }
        Ok(())
    }
}

/// What an action is, in a few words.
pub(crate) fn name(action: &Action) -> String {
    match action {
        Action::Enqueue { stream, commands, .. } => {
            let names: Vec<String> = commands.iter().map(Command::name).collect();
            format!("{} on stream {stream}", names.join(", "))
        }
        Action::Replay { stream, graph } => format!("a replay of graph {} on stream {stream}", graph.index),
        Action::Sleep(time) => format!("a delay of {time:?}"),
        Action::Await(fetch) => format!("a wait for fetch {fetch}"),
        Action::Mark => "a mark".into(),
        Action::Depart(how) => format!("its end: it is {}", how.name()),
    }
}

impl Command {
    fn name(&self) -> String {
        match self {
            Command::Launch { kernel, .. } => format!("`{}`", kernel.entry()),
            Command::Copies(copies) => match &copies[..] {
                [copy] => format!("a copy of {} bytes", copy.bytes),
                copies => format!("{} copies of {} bytes", copies.len(), copies.iter().map(|copy| copy.bytes).sum::<u64>()),
            },
            Command::Fill { bytes, .. } => format!("a fill of {bytes} bytes"),
            Command::Words(words) => format!("{} words", words.len()),
            Command::Nccl { call, .. } => format!("NCCL's {}", call.collective),
            Command::Matmul { .. } => "cuBLASLt's product".into(),
            Command::Fork { side, commands } => {
                let names: Vec<String> = commands.iter().map(Command::name).collect();
                format!("{} on its side {side}", names.join(", "))
            }
            Command::Join { side } => format!("a join of side {side}"),
            Command::Fetch { bytes, .. } => format!("a fetch of {bytes} bytes"),
            Command::Mark => "a mark".into(),
        }
    }

    /// How many marks it has.
    fn marks(&self) -> usize {
        match self {
            Command::Mark => 1,
            Command::Fork { commands, .. } => commands.iter().map(Command::marks).sum(),
            _ => 0,
        }
    }

    /// The bytes of each of its fetches.
    fn fetches(&self) -> Vec<u64> {
        match self {
            Command::Fetch { bytes, .. } => vec![*bytes],
            Command::Fork { commands, .. } => commands.iter().flat_map(Command::fetches).collect(),
            _ => Vec::new(),
        }
    }

    /// SMs that waiting blocks of commands fill at once: of those on the stream the most, and of those on each side.
    fn filled_by(commands: &[Command]) -> u64 {
        let mut streams = [0; 1 + MAX_SIDES];
        for command in commands {
            let (stream, fills) = match command {
                Command::Launch { fills, .. } => (0, u64::from(*fills)),
                Command::Fork { side, commands } => (*side, Command::filled_by(commands)),
                _ => continue,
            };
            streams[stream] = fills.max(streams[stream]);
        }
        streams.iter().sum()
    }

    /// Enqueues what needs one stream, and no event or batch.
    fn enqueue(&self, stream: &Stream) -> Result<(), Failure> {
        match self {
            Command::Matmul { matmul, operands, workspace } => matmul.enqueue(*operands, *workspace, stream.raw())?,
            Command::Fork { .. } | Command::Join { .. } | Command::Fetch { .. } | Command::Mark | Command::Copies(_) => {
                unreachable!("the program enqueues them")
            }
            Command::Launch { kernel, shape, arguments, .. } => kernel.launch(stream, shape, arguments)?,
            Command::Fill { at, byte, bytes } => stream.fill(*at, *byte, *bytes)?,
            Command::Words(words) => stream.words(words)?,
            Command::Nccl { communicator, call, input, output } => communicator.enqueue(call, (*input, *output), stream.raw())?,
        }
        Ok(())
    }
}

/// What arguments have in memory, by rank and bytes.
pub(crate) type InMemory = HashMap<(usize, Vec<u8>), Scratch>;

/// What programs are made from.
pub(crate) struct Compiler<'a> {
    pub(crate) groups: &'a [Group],
    pub(crate) library: &'a Library,
    pub(crate) kernels: &'a mut Kernels,
    /// What arguments have in memory so far.
    pub(crate) made: &'a mut InMemory,
    /// The device of each rank of the script.
    pub(crate) devices: &'a [Arc<Device>],
    /// The streams of each rank of the script.
    pub(crate) streams: &'a [Vec<Arc<Stream>>],
    /// How many of them the script names, and how many side streams each of these has.
    pub(crate) numbers: (usize, usize),
    pub(crate) products: &'a mut Products,
    /// What was captured on the open groups so far.
    pub(crate) captured: &'a mut Graphs,
    /// Communicators of the groups that use NCCL, of the ranks here.
    pub(crate) communicators: &'a OfGroups,
    /// The one rank that is in this process; all of them where it is none.
    pub(crate) own: Option<usize>,
    /// Limit for one wait, in nanoseconds.
    pub(crate) wait_limit: u64,
    /// What copies outside graphs are joined into.
    pub(crate) batches: Option<&'a Arc<Batches>>,
}

impl Compiler<'_> {
    /// Makes the programs of the ranks here of a script that was found valid.
    ///
    /// # Errors
    /// `NotSupported` when the driver does not take a kernel or blocks that wait for each other do not fit on a device together,
    /// `Invalid` when arguments are not what a kernel takes.
    pub(crate) fn compile(&mut self, script: &Script) -> Result<Vec<Program>, MachineError> {
        let Compiled { actions, graphs } = compile::compile(script, self.devices.len(), self)?;
        self.fits_together(&actions)?;
        let mut captured: Vec<Vec<Captured>> = self.devices.iter().map(|_| Vec::new()).collect();
        for Graph { number, group, plans, ranks } in graphs {
            let kept = self.captured.of(number, group, plans, self.devices);
            for ((captured, kept), graph) in captured.iter_mut().zip(kept).zip(ranks) {
                captured.push(Captured { kept, graph });
            }
        }
        let of_rank = actions.into_iter().zip(captured).enumerate().filter(|(rank, _)| self.own.is_none_or(|own| own == *rank));
        Ok(of_rank
            .map(|(rank, (actions, graphs))| Program {
                rank,
                device: self.devices[rank].clone(),
                streams: self.streams[rank].clone(),
                numbers: self.numbers,
                graphs,
                actions,
                communicators: self.communicators.values().filter_map(|ranks| ranks.get(&rank).cloned()).collect(),
                batches: self.batches.cloned(),
            })
            .collect())
    }

    fn launch(&mut self, group: usize, rank: usize, launch: &Launch) -> Result<Command, MachineError> {
        let not_supported = |reason: String| MachineError::NotSupported { reason };
        let device = &self.devices[rank];
        let kernel = self.kernels.get(device, self.library, launch).map_err(|why| not_supported(format!("rank {rank}: {why}")))?;
        let of_group = &self.groups[group];
        check_strides(&launch.args, |region| of_group.addresses(rank, region)).map_err(not_supported)?;
        let mut encoded: Vec<(&TensorMap, [u64; 16])> = Vec::new();
        for map in tensor_maps(&launch.args) {
            let of_rank = map.of_rank.map_or(rank, |of_node| of_group.first_of_node(rank) + of_node as usize);
            let address = of_group.address(of_rank, &map.region).map_err(|reason| MachineError::Invalid { reason })?;
            encoded.push((map, tensor_map::encode(device.driver, map, address).map_err(fault(rank))?));
        }
        for fields in in_memory(&launch.args) {
            let bytes = self.with_addresses(group, rank, &encoded, |addresses| memory_bytes(fields, addresses));
            self.keep(rank, bytes)?;
        }
        let arguments = self.with_addresses(group, rank, &encoded, |addresses| Arguments::lay_out(&launch.args, addresses));
        kernel.check(&arguments).map_err(|reason| MachineError::Invalid { reason })?;
        let resident = kernel.blocks_per_sm(launch.block.total() as u32, launch.dynamic_shared).map_err(fault(rank))?;
        if resident == 0 {
            return Err(not_supported(format!("kernel `{}` does not fit on GPU {}: {}", launch.entry, device.ordinal, device.name)));
        }
        let fills = if launch.waits_for_peers { (launch.grid.total() as u32).div_ceil(resident) } else { 0 };
        let Launch { grid, block, cluster, dynamic_shared, programmatic, .. } = *launch;
        let shape = Shape { grid, block, cluster, dynamic_shared, programmatic };
        Ok(Command::Launch { kernel, shape, arguments, fills })
    }

    /// What stands behind the names in a launch of a rank, whose tensor maps were encoded and arguments' memory made.
    fn with_addresses<T>(
        &self,
        group: usize,
        rank: usize,
        encoded: &[(&TensorMap, [u64; 16])],
        of_launch: impl FnOnce(&Addresses<'_>) -> T,
    ) -> T {
        let of_group = &self.groups[group];
        of_launch(&Addresses {
            own: &|region| of_group.address(rank, region).expect("validation has found every region"),
            of: &|region| of_group.addresses(rank, region).expect("validation has found every region"),
            memory: &|bytes| self.made[&(rank, bytes.to_vec())].address,
            multicast: &|region| unreachable!("{region}: scripts with multicast addresses are refused before they are compiled"),
            tensor_map: &|map| encoded.iter().find(|(known, _)| *known == map).expect("all were encoded").1,
            wait_limit: self.wait_limit,
        })
    }

    /// Puts what an argument has in memory there, of the rank's device, whose context is current, once.
    fn keep(&mut self, rank: usize, bytes: Vec<u8>) -> Result<(), MachineError> {
        if let Entry::Vacant(entry) = self.made.entry((rank, bytes)) {
            let (bytes, device) = (&entry.key().1, &self.devices[rank]);
            let made = Scratch::new(device.driver, bytes.len().max(1));
            let made = made.and_then(|made| device.service.write(bytes, made.address).map(|()| made));
            entry.insert(made.map_err(fault(rank))?);
        }
        Ok(())
    }

    /// Blocks that wait for other ranks' blocks must all be resident at once, or those that are wait for ever.
    fn fits_together(&self, actions: &[Vec<Action>]) -> Result<(), MachineError> {
        let mut filled: BTreeMap<usize, u64> = BTreeMap::new();
        for (device, actions) in self.devices.iter().zip(actions) {
            *filled.entry(device.ordinal).or_default() += filled_by(actions);
        }
        for device in self.devices {
            let needed = filled[&device.ordinal];
            if needed > u64::from(device.sms) {
                let ranks = self.devices.iter().filter(|other| other.ordinal == device.ordinal).count();
                let reason = format!(
                    "blocks that wait for each other fill {needed} SMs of GPU {}, on which {ranks} ranks run: it has {}",
                    device.ordinal, device.sms
                );
                return Err(MachineError::NotSupported { reason });
            }
        }
        Ok(())
    }
}

impl Target for Compiler<'_> {
    type Address = u64;
    type Command = Command;

    fn has(&self, rank: usize) -> bool {
        self.own.is_none_or(|own| own == rank)
    }

    fn enter(&mut self, rank: usize) -> Result<(), MachineError> {
        self.devices[rank].make_current().map_err(fault(rank))
    }

    fn address(&self, group: usize, rank: usize, region: &Region) -> Result<u64, String> {
        self.groups[group].address(rank, region)
    }

    fn command(&mut self, place: Place<'_>, op: Resolved<'_, u64, Command>) -> Result<Command, MachineError> {
        let Place { group, rank, .. } = place;
        Ok(match op {
            Resolved::Launch(launch) => return self.launch(group, rank, launch),
            Resolved::Copy { from, to, bytes } => Command::Copies(if bytes > 0 { vec![Copy { from, to, bytes }] } else { Vec::new() }),
            Resolved::Fill { at, byte, bytes } => Command::Fill { at, byte, bytes },
            Resolved::WriteValue { at, value } => Command::Words(vec![Word::Write { at, value }]),
            Resolved::WaitValue { at, value, .. } => {
                Command::Words(vec![Word::Wait { at, value, flush: self.devices[rank].flushes_remote_writes }])
            }
            Resolved::Nccl { call: &NcclCall { ref call, windows, across_nodes }, input, output } => {
                let RankCall { collective, dtype, op, count, root, factor, ref parts, .. } = *call;
                let call = LibraryCall { collective, dtype, op, count, root, factor, parts: parts.clone(), windows };
                Command::Nccl { communicator: self.communicators[&(group, across_nodes)][&rank].clone(), call, input, output }
            }
            Resolved::Matmul { call, operands, workspace } => {
                let [a, b, _] = operands;
                let matmul = self.products.prepare(rank, &self.devices[rank], call, (a, b, workspace))?;
                Command::Matmul { matmul, operands, workspace: (workspace, call.workspace.bytes) }
            }
            Resolved::Fork { side, commands } => Command::Fork { side, commands },
            Resolved::Join { side } => Command::Join { side },
            Resolved::Fetch { from, bytes } => Command::Fetch { from, bytes },
            Resolved::Mark => Command::Mark,
        })
    }

    fn append(commands: &mut Vec<Command>, command: Command) {
        match (commands.last_mut(), command) {
            (Some(Command::Words(words)), Command::Words(more)) => words.extend(more),
            (Some(Command::Copies(copies)), Command::Copies(more)) if copies::may_join(copies, &more) => copies.extend(more),
            (_, command) => commands.push(command),
        }
    }
}

/// SMs that waiting blocks fill at once while a rank goes through its actions: on each stream the most that any plan or graph does.
fn filled_by(actions: &[Action]) -> u64 {
    let mut streams: BTreeMap<usize, u64> = BTreeMap::new();
    for action in actions {
        let (stream, fills) = match action {
            Action::Enqueue { stream, commands, .. } => (stream, Command::filled_by(commands)),
            Action::Replay { stream, graph } => (stream, graph.plans.iter().map(|plan| Command::filled_by(plan)).max().unwrap_or(0)),
            Action::Sleep(_) | Action::Await(_) | Action::Mark | Action::Depart(_) => continue,
        };
        let most = streams.entry(*stream).or_default();
        *most = fills.max(*most);
    }
    streams.values().sum()
}
