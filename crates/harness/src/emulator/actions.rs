//! Actions: a script as each rank's host goes through it, with every address and kernel resolved.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    execution::{Program, Shape},
    group::Group,
    memory::{Address, Init, Memory, Owner, SPARSE_BYTES},
    modules::{Modules, Variables},
    ptx::ParameterPlace,
    tensor_map,
};
use passmuster_plan::{
    collective::Product,
    machine::{
        MachineError,
        arguments::{Addresses, Arguments, check_strides, in_memory, memory_bytes, tensor_maps},
        compile::{self, Place, Resolved, Target},
        validation::Members,
    },
    plan::{Launch, ModuleVariable, NcclCall, RankCall, Region, Script, TensorMap},
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
    /// A library call, which needs all ranks of the group, or all of an index.
    Reduce {
        among: Among,
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

/// Ranks that call the library together: of a group all, or those that have this place on their nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Among {
    pub(super) group: usize,
    pub(super) index: Option<usize>,
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
    pub(super) shape: Shape,
    pub(super) parameters: Vec<u8>,
    /// Whether it may start before the launch before it is done.
    pub(super) programmatic: bool,
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
    /// What arguments have in memory so far, by rank and bytes.
    pub(super) made: HashMap<(usize, Vec<u8>), Address>,
    /// The rank that is here, where the others have processes of their own.
    pub(super) only: Option<usize>,
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
        let mut encoded: Vec<(&TensorMap, [u64; 16])> = Vec::new();
        check_strides(launch.values(), |region| self.groups[group].addresses(rank, region))
            .map_err(|reason| MachineError::NotSupported { reason })?;
        for map in tensor_maps(launch.values()) {
            let of_group = &self.groups[group];
            let of_rank = map.of_rank.map_or(rank, |of_node| of_group.first_of_node(rank) + of_node as usize);
            let address = of_group.address(of_rank, &map.region).map_err(invalid)?;
            encoded.push((map, tensor_map::encoded(map, address.0).map_err(invalid)?));
        }
        for fields in in_memory(launch.values()) {
            let bytes = self.with_addresses(group, rank, &encoded, |addresses| memory_bytes(fields, addresses));
            self.keep(group, rank, &launch.entry, bytes)?;
        }
        let arguments = self.with_addresses(group, rank, &encoded, |addresses| Arguments::lay_out(&launch.args, addresses));
        let module = self.modules.parsed(launch)?;
        let entry = module.accepts(&launch.entry, arguments.sizes()).map_err(|error| invalid(error.into()))?;
        // A parameter may be aligned to more than its fields are.
        let mut parameters = vec![0; entry.input_bytes as usize];
        for (parameter, bytes) in entry.inputs.iter().zip(arguments.parts()) {
            if let ParameterPlace::Offset(offset) = parameter.place {
                parameters[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
        }
        let of_variable = |variable: &ModuleVariable| {
            let value = |addresses: &Addresses<'_>| memory_bytes(&variable.value, addresses);
            (variable.name.clone(), self.with_addresses(group, rank, &encoded, value))
        };
        // Those of other modules are none of this one's business.
        let known = |variable: &&ModuleVariable| module.variables.iter().any(|known| known.name == variable.name);
        let variables: Variables = launch.variables.iter().filter(known).map(of_variable).collect();
        let program = self.modules.loaded(launch, variables, rank, self.memory)?;
        Ok(Kernel {
            program,
            module: launch.module.clone(),
            entry: launch.entry.clone(),
            shape: Shape {
                grid: launch.grid.0,
                block: launch.block.0,
                cluster: launch.cluster.map(|cluster| cluster.0),
                dynamic_shared: launch.dynamic_shared,
                registers: launch.registers,
            },
            parameters,
            programmatic: launch.programmatic,
        })
    }

    /// What stands behind the names in a launch of a rank, whose arguments' memory was made.
    fn with_addresses<T>(
        &self,
        group: usize,
        rank: usize,
        encoded: &[(&TensorMap, [u64; 16])],
        of_launch: impl FnOnce(&Addresses<'_>) -> T,
    ) -> T {
        let of_group = &self.groups[group];
        of_launch(&Addresses {
            own: &|region| of_group.address(rank, region).expect("validation has found every region").0,
            of: &|region| of_group.addresses(rank, region).expect("validation has found every region"),
            memory: &|bytes| self.made[&(rank, bytes.to_vec())].0,
            multicast: &|region| of_group.multicast(rank, region).expect("validation has found every region").0,
            tensor_map: &|map| encoded.iter().find(|(known, _)| *known == map).expect("all were encoded").1,
            wait_limit: self.wait_limit,
        })
    }

    /// Puts what an argument has in memory there, once.
    fn keep(&mut self, group: usize, rank: usize, entry: &str, bytes: Vec<u8>) -> Result<(), MachineError> {
        if let Entry::Vacant(made) = self.made.entry((rank, bytes)) {
            let owner = Owner::new(rank, group, format!("memory of an argument ({entry})"));
            let bytes = &made.key().1;
            let address = self.memory.allocate(owner, bytes.len() as u64, Init::Zero);
            self.memory.write(address, rank, bytes).map_err(|error| MachineError::Invalid { reason: error.to_string() })?;
            made.insert(address);
        }
        Ok(())
    }
}

impl Target for Compiler<'_> {
    type Address = Address;
    type Command = Command;

    fn has(&self, rank: usize) -> bool {
        self.only.is_none_or(|only| only == rank)
    }

    fn address(&self, group: usize, rank: usize, region: &Region) -> Result<Address, String> {
        self.groups[group].address(rank, region)
    }

    fn command(&mut self, place: Place<'_>, op: Resolved<'_, Address, Command>) -> Result<Command, MachineError> {
        let Place { group, rank, writers, .. } = place;
        if let Resolved::Copy { bytes, .. } | Resolved::Fill { bytes, .. } = op
            && bytes > SPARSE_BYTES
        {
            let what = if matches!(op, Resolved::Fill { .. }) { "fill" } else { "copy" };
            let reason = format!("too large for the emulator: a {what} of {bytes} bytes on rank {rank}, at most {SPARSE_BYTES}");
            return Err(MachineError::NotSupported { reason });
        }
        Ok(match op {
            Resolved::Launch(launch) => Command::Launch(self.launch(group, rank, launch)?),
            Resolved::Copy { from, to, bytes } => Command::Copy { from, to, bytes },
            Resolved::Fill { at, byte, bytes } => Command::Fill { at, byte, bytes },
            Resolved::WriteValue { at, value } => Command::WriteValue { at, value },
            Resolved::WaitValue { at, region, value } => {
                Command::WaitValue(Wait { at, value, writers: writers.of(rank, region, value).to_vec() })
            }
            Resolved::Nccl { call: NcclCall { call, across_nodes, .. }, input, output } => {
                let index = across_nodes.then(|| rank % self.groups[group].node_world());
                Command::Reduce { among: Among { group, index }, call: call.clone(), input, output }
            }
            Resolved::Matmul { call, operands: [a, b, c], .. } => Command::Matmul { product: call.product, a, b, c },
            Resolved::Fork { side, commands } => Command::Fork { side, commands: commands.into() },
            Resolved::Join { side } => Command::Join { side },
            Resolved::Fetch { from, bytes } => Command::Fetch { from, bytes },
            Resolved::Mark => Command::Mark,
        })
    }
}
