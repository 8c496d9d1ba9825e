//! Actions: a script as each rank's host goes through it, with every address and kernel resolved.

use std::{
    collections::{HashMap, hash_map::Entry},
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
        compile::{self, Place, Resolved, Target},
    },
    plan::{Launch, RankCall, Region, Script, TensorMap},
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
pub(super) type Action = compile::Action<Command>;

/// What actions are made from.
pub(super) struct Compiler<'a> {
    pub(super) groups: &'a [Group],
    pub(super) modules: &'a mut Modules,
    pub(super) memory: &'a mut Memory,
    /// Limit for one wait, in nanoseconds.
    pub(super) wait_limit: u64,
    /// The tables of peers' addresses made so far, by group, rank and region.
    pub(super) tables: HashMap<(usize, usize, Region), Address>,
}

impl Compiler<'_> {
    /// Makes the actions of all ranks of a script that was found valid, `world` of them.
    ///
    /// # Errors
    /// `NotSupported` where a module has PTX that the emulator does not know, `Invalid` when arguments are not what a kernel takes.
    pub(super) fn compile(&mut self, script: &Script, world: usize) -> Result<Vec<Vec<Action>>, MachineError> {
        compile::compile(script, world, self).map(|compiled| compiled.actions)
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

impl Target for Compiler<'_> {
    type Address = Address;
    type Command = Command;

    fn address(&self, group: usize, rank: usize, region: &Region) -> Result<Address, String> {
        self.groups[group].address(rank, region)
    }

    fn command(&mut self, place: Place<'_>, op: Resolved<'_, Address, Command>) -> Result<Command, MachineError> {
        let Place { group, rank, plan } = place;
        Ok(match op {
            Resolved::Launch(launch) => Command::Launch(self.launch(group, rank, launch)?),
            Resolved::Copy { from, to, bytes } => Command::Copy { from, to, bytes },
            Resolved::Fill { at, byte, bytes } => Command::Fill { at, byte, bytes },
            Resolved::WriteValue { at, value } => Command::WriteValue { at, value },
            Resolved::WaitValue { at, region, value } => Command::WaitValue(Wait { at, value, writers: plan.writers(rank, region, value) }),
            Resolved::Nccl { call, input, output, .. } => Command::Reduce { group, call: call.clone(), input, output },
            Resolved::Matmul { call, operands: [a, b, c], .. } => Command::Matmul { product: call.product, a, b, c },
            Resolved::Fork { side, commands } => Command::Fork { side, commands: commands.into() },
            Resolved::Join { side } => Command::Join { side },
            Resolved::Fetch { from, bytes } => Command::Fetch { from, bytes },
            Resolved::Mark => Command::Mark,
        })
    }
}
