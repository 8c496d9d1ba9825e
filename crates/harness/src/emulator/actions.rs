//! Actions: a script as each rank's host goes through it, with every address and kernel resolved.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
};

use super::{
    execution::{Program, Shape},
    group::Group,
    memory::{Address, Init, Memory, Owner},
    modules::Modules,
    ptx::ParameterPlace,
};
use passmuster_collectives::{
    collective::Product,
    machine::{
        MachineError,
        arguments::{Addresses, Arguments, table_bytes, tables},
    },
    plan::{Launch, MatmulCall, NcclCall, Op, Plan, RankCall, Region, Script, Step, TensorMap},
};

/// One operation on a stream.
pub(super) enum Command {
    Launch(Kernel),
    Copy {
        from: Address,
        to: Address,
        bytes: u64,
    },
    Fill {
        at: Address,
        byte: u8,
        bytes: u64,
    },
    WriteValue {
        at: Address,
        value: u32,
    },
    WaitValue(Wait),
    /// A library call, which needs all ranks of the group.
    Reduce {
        group: usize,
        call: RankCall,
        input: Address,
        output: Address,
    },
    /// A product.
    Matmul {
        product: Product,
        a: Address,
        b: Address,
        c: Address,
    },
    /// Hands commands to a side stream.
    Fork {
        side: usize,
        commands: Arc<[Command]>,
    },
    /// Waits for a side stream.
    Join {
        side: usize,
    },
    /// Copies memory to the host.
    Fetch {
        from: Address,
        bytes: u64,
    },
    /// Notes the time.
    Mark,
}

impl Command {
    /// What it is, for people.
    pub(super) fn name(&self) -> &str {
        match self {
            Command::Launch(kernel) => &kernel.entry,
            Command::Copy { .. } => "copy",
            Command::Fill { .. } => "fill",
            Command::WriteValue { .. } => "write of a word",
            Command::WaitValue(_) => "wait for a word",
            Command::Reduce { .. } => "library call",
            Command::Matmul { .. } => "matmul",
            Command::Fork { .. } => "fork",
            Command::Join { .. } => "join",
            Command::Fetch { .. } => "fetch",
            Command::Mark => "mark",
        }
    }
}

/// A stream's wait for a word.
pub(super) struct Wait {
    pub(super) at: Address,
    pub(super) value: u32,
    /// The ranks whose plan has them write it.
    pub(super) writers: Vec<usize>,
}

/// A launch on one rank.
pub(super) struct Kernel {
    pub(super) program: Arc<Program>,
    /// Name of the module.
    pub(super) module: String,
    pub(super) entry: String,
    pub(super) grid: u32,
    pub(super) block: u32,
    pub(super) dynamic_shared: u32,
    pub(super) parameters: Vec<u8>,
}

impl Kernel {
    pub(super) fn shape(&self) -> Shape {
        Shape { grid: [self.grid, 1, 1], block: [self.block, 1, 1], dynamic_shared: self.dynamic_shared }
    }
}

/// What a rank's host does next.
pub(super) enum Action {
    Enqueue {
        stream: usize,
        commands: Arc<[Command]>,
    },
    /// Sleeps for nanoseconds.
    Sleep(u64),
    /// Waits for the fetch of this number.
    Await(usize),
}

/// What actions are made from.
pub(super) struct Compiler<'a> {
    pub(super) groups: &'a [Group],
    pub(super) modules: &'a mut Modules,
    pub(super) memory: &'a mut Memory,
    /// Ranks of the script.
    pub(super) world: usize,
    /// Limit for one wait, in nanoseconds.
    pub(super) wait_limit: u64,
    /// The tables of peers' addresses made so far, by group, rank and region.
    pub(super) tables: HashMap<(usize, usize, Region), Address>,
}

/// A plan's commands for each rank, by group and plan.
type Plans = HashMap<(usize, *const Plan), Vec<Arc<[Command]>>>;

impl Compiler<'_> {
    /// Makes the actions of all ranks of a script that was found valid.
    ///
    /// # Errors
    /// `NotSupported` where a module has PTX that the emulator does not know, `Invalid` when arguments are not what a kernel takes.
    pub(super) fn compile(&mut self, script: &Script) -> Result<Vec<Vec<Action>>, MachineError> {
        let mut plans = Plans::new();
        let mut graphs: BTreeMap<usize, (usize, &[Arc<Plan>])> = BTreeMap::new();
        let mut actions: Vec<Vec<Action>> = (0..self.world).map(|_| Vec::new()).collect();
        let mut left = vec![false; self.world];
        let mark: Arc<[Command]> = [Command::Mark].into();
        for step in &script.steps {
            match step {
                Step::Enqueue { group, stream, plan } => {
                    self.enqueue(&mut plans, *group, *stream, plan, &left, &mut actions)?;
                }
                Step::Capture { graph, group, plans } => {
                    graphs.insert(*graph, (*group, plans));
                }
                Step::Replay { graph, stream } => {
                    let (group, captured) = graphs[graph];
                    for plan in captured {
                        self.enqueue(&mut plans, group, *stream, plan, &left, &mut actions)?;
                    }
                }
                Step::Delay { rank, microseconds } if !left[*rank] => {
                    actions[*rank].push(Action::Sleep(microseconds.saturating_mul(1000)));
                }
                Step::Delay { .. } => {}
                Step::Leave { rank } => left[*rank] = true,
                Step::Await { fetch } => {
                    let present = actions.iter_mut().zip(&left).filter(|(_, left)| !**left);
                    present.for_each(|(actions, _)| actions.push(Action::Await(*fetch)));
                }
                Step::Mark => {
                    let present = actions.iter_mut().zip(&left).filter(|(_, left)| !**left);
                    present.for_each(|(actions, _)| actions.push(Action::Enqueue { stream: 0, commands: mark.clone() }));
                }
            }
        }
        Ok(actions)
    }

    /// Adds a plan's commands to the ranks that are there, compiling it the first time it is met.
    fn enqueue(
        &mut self,
        plans: &mut Plans,
        group: usize,
        stream: usize,
        plan: &Arc<Plan>,
        left: &[bool],
        actions: &mut [Vec<Action>],
    ) -> Result<(), MachineError> {
        let commands = match plans.entry((group, Arc::as_ptr(plan))) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(self.plan(group, plan)?),
        };
        for (rank, commands) in commands.iter().enumerate().filter(|&(rank, commands)| !left[rank] && !commands.is_empty()) {
            actions[rank].push(Action::Enqueue { stream, commands: commands.clone() });
        }
        Ok(())
    }

    fn plan(&mut self, group: usize, plan: &Plan) -> Result<Vec<Arc<[Command]>>, MachineError> {
        plan.ranks.iter().enumerate().map(|(rank, ops)| self.commands(group, plan, rank, ops)).collect()
    }

    fn commands(&mut self, group: usize, plan: &Plan, rank: usize, ops: &[Op]) -> Result<Arc<[Command]>, MachineError> {
        ops.iter().map(|op| self.command(group, plan, rank, op)).collect()
    }

    fn command(&mut self, group: usize, plan: &Plan, rank: usize, op: &Op) -> Result<Command, MachineError> {
        if let Op::Fork { stream, ops } = op {
            return Ok(Command::Fork { side: *stream, commands: self.commands(group, plan, rank, ops)? });
        }
        let of_group = &self.groups[group];
        let address_on = |rank, region| of_group.address(rank, region).map_err(|reason| MachineError::Invalid { reason });
        let address = |region| address_on(rank, region);
        let target = |to_rank: Option<u32>, region| address_on(to_rank.map_or(rank, |rank| rank as usize), region);
        Ok(match op {
            Op::Launch(launch) => Command::Launch(self.launch(group, rank, launch)?),
            Op::Copy { from, to, to_rank } => Command::Copy { from: address(from)?, to: target(*to_rank, to)?, bytes: from.bytes },
            Op::Fill { region, byte } => Command::Fill { at: address(region)?, byte: *byte, bytes: region.bytes },
            Op::WriteValue { to, value, to_rank } => Command::WriteValue { at: target(*to_rank, to)?, value: *value },
            Op::WaitValue { at, value } => {
                Command::WaitValue(Wait { at: address(at)?, value: *value, writers: plan.writers(rank, at, *value) })
            }
            Op::Nccl(NcclCall { call, .. }) => {
                Command::Reduce { group, input: address(&call.input)?, output: address(&call.output)?, call: call.clone() }
            }
            Op::Matmul(MatmulCall { product, operands, .. }) => {
                let (a, b, c) = (address(&operands.a)?, address(&operands.b)?, address(&operands.c)?);
                Command::Matmul { product: *product, a, b, c }
            }
            Op::Fork { .. } => unreachable!("forks are compiled above"),
            Op::Join { stream } => Command::Join { side: *stream },
            Op::Fetch { from } => Command::Fetch { from: address(from)?, bytes: from.bytes },
            Op::Mark => Command::Mark,
        })
    }

    fn launch(&mut self, group: usize, rank: usize, launch: &Launch) -> Result<Kernel, MachineError> {
        let invalid = |reason| MachineError::Invalid { reason };
        for region in tables(&launch.args) {
            self.table(group, rank, region)?;
        }
        let of_group = &self.groups[group];
        let own = |region: &_| of_group.address(rank, region).expect("validation has found every region").0;
        let of = |region: &_| of_group.addresses(region).expect("validation has found every region");
        let table = |region: &Region| self.tables[&(group, rank, region.clone())].0;
        let multicast = |region: &_| of_group.multicast(rank, region).expect("validation has found every region").0;
        let tensor_map = |map: &TensorMap| unreachable!("{map}: scripts with tensor maps are refused before they are resolved");
        let wait_limit = self.wait_limit;
        let addresses = Addresses { own: &own, of: &of, table: &table, multicast: &multicast, tensor_map: &tensor_map, wait_limit };
        let arguments = Arguments::lay_out(&launch.args, &addresses);
        let module = self.modules.parsed(launch)?;
        let entry = module.accepts(&launch.entry, arguments.sizes()).map_err(invalid)?;
        // A parameter may be aligned to more than its fields are.
        let mut parameters = vec![0; entry.input_bytes as usize];
        for (parameter, bytes) in entry.inputs.iter().zip(arguments.parts()) {
            if let ParameterPlace::Offset(offset) = parameter.place {
                parameters[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
        }
        let program = self.modules.loaded(launch, rank, self.memory)?;
        Ok(Kernel {
            program,
            module: launch.module.clone(),
            entry: launch.entry.clone(),
            grid: launch.grid,
            block: launch.block,
            dynamic_shared: launch.dynamic_shared,
            parameters,
        })
    }

    /// Makes the table of a region's addresses in a rank's memory, once.
    fn table(&mut self, group: usize, rank: usize, region: &Region) -> Result<(), MachineError> {
        if let Entry::Vacant(entry) = self.tables.entry((group, rank, region.clone())) {
            let invalid = |reason| MachineError::Invalid { reason };
            let bytes = table_bytes(&self.groups[group].addresses(region).map_err(invalid)?);
            let owner = Owner::new(rank, group, format!("peers of {}", region.buffer));
            let address = self.memory.allocate(owner, bytes.len() as u64, Init::Zero);
            self.memory.write(address, rank, &bytes).map_err(|error| invalid(error.to_string()))?;
            entry.insert(address);
        }
        Ok(())
    }
}
