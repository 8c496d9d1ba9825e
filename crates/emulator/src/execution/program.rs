//! A module in the memory of one rank.

use std::{collections::BTreeSet, fmt, sync::Arc};

use super::{coverage::Covered, fault::Fault};
use crate::memory::{Address, Init, Memory, Owner};
use passmuster_ptx as ptx;
use passmuster_ptx::{Base, Class, Instruction, Module, Operation, Register, Relocated, Signature, Space};

/// The most bytes that a module's global and constant variables have together.
const MOST_VARIABLES: u64 = 1 << 30;

/// What a function takes of the address space whose address is taken: its code is not there.
const CODE_BYTES: u64 = 16;

/// Variables that a hint names.
const MOST_NAMED: usize = 3;

/// What a launch takes of a device, as far as it decides how many of its blocks are resident at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block, static and dynamic.
    pub shared: u32,
    /// Blocks of a cluster; 1 without clusters.
    pub cluster: u32,
    /// Registers of a thread, if somebody knows.
    pub registers: Option<u32>,
}

/// How many blocks of a launch a device holds at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residency {
    /// That many, 0 if not one fits.
    pub blocks: u64,
    /// Why not more, for people: "1 on each of 132 SMs, by shared memory".
    pub bound: String,
}

/// What a device has for a launch.
#[derive(Clone)]
pub struct DeviceLimits {
    /// Streaming multiprocessors, over which blocks are spread in turn.
    pub sms: u32,
    /// Bytes of shared memory that a block may have, static and dynamic.
    pub shared_per_block: u32,
    /// How many blocks are resident at once.
    pub resident: Arc<dyn Fn(&Footprint) -> Residency + Send + Sync>,
}

impl DeviceLimits {
    /// A device on which threads alone bound how many blocks are resident.
    ///
    /// ```
    /// use passmuster_emulator::execution::{DeviceLimits, Footprint};
    ///
    /// let device = DeviceLimits::by_threads(132, 2048, 227 << 10);
    /// let launch = Footprint { threads: 1024, shared: 0, cluster: 1, registers: None };
    /// assert_eq!((device.resident)(&launch).blocks, 264);
    /// ```
    pub fn by_threads(sms: u32, threads_per_sm: u32, shared_per_block: u32) -> DeviceLimits {
        let resident = move |launch: &Footprint| {
            let of_sm = threads_per_sm / launch.threads.next_multiple_of(32);
            Residency { blocks: u64::from(sms * of_sm), bound: format!("{of_sm} on each of {sms} SMs, by threads") }
        };
        DeviceLimits { sms, shared_per_block, resident: Arc::new(resident) }
    }

    /// Enough for any test: 264 blocks of 1024 threads are resident.
    #[cfg(test)]
    pub(crate) fn of_tests() -> DeviceLimits {
        DeviceLimits::by_threads(132, 2048, 227 << 10)
    }
}

impl fmt::Debug for DeviceLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceLimits { sms, shared_per_block, .. } = self;
        f.debug_struct("DeviceLimits").field("sms", sms).field("shared_per_block", shared_per_block).finish_non_exhaustive()
    }
}

/// A module laid out in one rank's memory: its global and constant variables have addresses.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) module: Arc<Module>,
    pub(super) rank: usize,
    /// Of the rank's device.
    pub(super) limits: DeviceLimits,
    /// Generic addresses of the module's variables, by index.
    pub(super) variables: Vec<u64>,
    /// Addresses of functions that are called through them, by index; 0 for the others. No memory that can be read is there.
    pub(super) functions: Vec<u64>,
    /// The largest alignment of dynamic shared memory.
    pub(super) dynamic_align: u32,
    /// Words of its frame that each operation of each function reads or writes, those of products of warpgroups aside; empty where there are none.
    pub(super) touched: Arc<[Vec<Box<[u16]>>]>,
    /// Where what of it runs is noted, if somebody asks.
    pub(super) covered: Option<Covered>,
}

impl Program {
    /// Gives the module's variables memory on `rank`, whose device has these limits, with their initial values. Variables that have none are zero, as PTX says.
    ///
    /// # Errors
    /// [`Fault::BadLaunch`] for a variable that another module defines, and for more than 1 GiB of variables.
    pub fn load(module: Arc<Module>, rank: usize, limits: DeviceLimits, memory: &mut Memory) -> Result<Program, Fault> {
        if let Some(missing) = module.variables.iter().find(|variable| variable.external) {
            return Err(Fault::BadLaunch(format!("variable `{}` is defined in another module", missing.name)));
        }
        let bytes = module.variables.iter().fold(0_u64, |sum, variable| sum.saturating_add(variable.bytes));
        if bytes > MOST_VARIABLES {
            return Err(Fault::BadLaunch(format!("{bytes} bytes of variables in a module: at most {MOST_VARIABLES} are there")));
        }
        let allocate =
            |variable: &ptx::Variable| memory.allocate(Owner::new(rank, 0, variable.name.as_str()), variable.bytes, Init::Zero).0;
        let variables: Vec<u64> = module.variables.iter().map(allocate).collect();
        let mut functions = vec![0; module.functions.len()];
        for &index in module.addressed() {
            let owner = Owner::new(rank, 0, format!("code of `{}`", module.functions[index as usize].name));
            functions[index as usize] = memory.allocate(owner, CODE_BYTES, Init::Uninitialised).0;
        }
        for (variable, &address) in module.variables.iter().zip(&variables) {
            let mut initial = variable.initial.clone();
            for relocation in &variable.relocations {
                // Addresses in global and constant memory are generic ones.
                let start = match relocation.of {
                    Relocated::Variable(index) => variables[index as usize],
                    Relocated::Function(index) => functions[index as usize],
                };
                let value = start.wrapping_add_signed(relocation.offset);
                initial[relocation.at as usize..][..8].copy_from_slice(&value.to_le_bytes());
            }
            memory.write(Address(address), rank, &initial).map_err(|error| Fault::BadLaunch(format!("`{}`: {error}", variable.name)))?;
        }
        let dynamic_align = module.dynamic_align.max(1);
        let touched = touched(&module);
        Ok(Program { module, rank, limits, variables, functions, dynamic_align, touched, covered: None })
    }

    /// Sets the first bytes of a global or constant variable, as the host does.
    ///
    /// # Errors
    /// [`Fault::BadLaunch`] for one that is not there or has fewer bytes.
    pub fn set(&self, name: &str, value: &[u8], memory: &mut Memory) -> Result<(), Fault> {
        let Some(index) = self.module.variables.iter().position(|variable| variable.name == name) else {
            return Err(Fault::BadLaunch(format!("the module has no variable `{name}`")));
        };
        let bytes = self.module.variables[index].bytes;
        if (value.len() as u64) > bytes {
            return Err(Fault::BadLaunch(format!("variable `{name}` has {bytes} bytes, and {} are given", value.len())));
        }
        memory.write(Address(self.variables[index]), self.rank, value).map_err(|error| Fault::BadLaunch(format!("`{name}`: {error}")))
    }

    /// The module, as it is shared by the programs of all ranks.
    pub fn shared_module(&self) -> &Arc<Module> {
        &self.module
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Index and entry of a kernel.
    pub(super) fn entry(&self, name: &str) -> Result<usize, Fault> {
        let functions = &self.module.functions;
        match functions.iter().position(|function| function.name == name) {
            Some(index) if functions[index].entry && !functions[index].external => Ok(index),
            Some(_) => Err(Fault::BadLaunch(format!("`{name}` is a function, not a kernel with a body"))),
            None => {
                let known: Vec<&str> = self.module.entries().map(|entry| entry.name.as_str()).collect();
                Err(Fault::BadLaunch(format!("unknown kernel `{name}`: expected one of {}", known.join(", "))))
            }
        }
    }

    /// Bytes of local memory that a thread of a function needs, calls from it up to `frames` deep included.
    pub(super) fn local_bytes(&self, function: usize) -> u64 {
        let functions = &self.module.functions;
        let own = |index: usize| u64::from(functions[index].local_bytes.next_multiple_of(16));
        if functions.iter().all(|function| function.local_bytes == 0) {
            return 0;
        }
        let mut deep: Vec<u64> = (0..functions.len()).map(own).collect();
        for _ in 0..super::MOST_FRAMES {
            let next = |index: usize| {
                let calls = functions[index].code.iter().filter_map(|operation| match &operation.instruction {
                    Instruction::Call { function, .. } => Some(deep[*function as usize]),
                    Instruction::CallIndirect { signature, .. } => {
                        self.module.callable(signature).map(|function| deep[function as usize]).max()
                    }
                    _ => None,
                });
                own(index) + calls.max().unwrap_or(0)
            };
            deep = (0..functions.len()).map(next).collect();
        }
        deep[function]
    }

    /// Which variables that have no initial value the entry, by index, may read addresses from: what is at them is 0 unless the host sets it.
    pub(super) fn unset_variables(&self, entry: usize) -> Option<String> {
        let reachable = self.module.reachable(entry);
        let mut read = BTreeSet::new();
        for (index, function) in self.module.functions.iter().enumerate() {
            for (at, operation) in function.code.iter().enumerate() {
                if let Instruction::AddressOf { address, .. } | Instruction::Load { address, .. } = &operation.instruction
                    && let Base::Variable(variable) = address.base
                    && reachable.contains(index, at)
                {
                    read.insert(variable);
                }
            }
        }
        let unset = |variable: &&ptx::Variable| variable.initial.is_empty() && variable.bytes >= 8;
        let names = read.into_iter().map(|index| &self.module.variables[index as usize]).filter(unset);
        let names: Vec<String> = names.take(MOST_NAMED).map(|variable| format!("`{}` (.{})", variable.name, variable.space)).collect();
        (!names.is_empty()).then(|| format!("the kernel reads {}, which nobody has set: it is zero", names.join(", ")))
    }

    /// The function whose address this is and which a call of this signature may go to.
    ///
    /// # Errors
    /// Says what the address is.
    pub(super) fn callee(&self, address: u64, signature: &Signature) -> Result<usize, String> {
        let Some(index) = self.functions.iter().position(|&code| code == address && code != 0) else {
            return Err(format!("a call of {}, which is the address of no function", crate::memory::Address(address)));
        };
        let function = &self.module.functions[index];
        match function.signature() {
            Some(takes) if takes == *signature => Ok(index),
            _ => Err(format!("a call of `{}`, whose parameters are not those of the call's prototype", function.name)),
        }
    }

    /// Name of a source file.
    pub(super) fn file(&self, index: u32) -> String {
        self.module.file(index).map_or_else(|| format!("file {index}"), str::to_owned)
    }
}

/// Words that each operation of each function touches, where the module has products of warpgroups.
fn touched(module: &Module) -> Arc<[Vec<Box<[u16]>>]> {
    let later = |operation: &Operation| matches!(operation.instruction, Instruction::WarpgroupMultiply { .. });
    if !module.functions.iter().flat_map(|function| &function.code).any(later) {
        return Arc::default();
    }
    let words = |operation: &Operation| {
        let mut words = Vec::new();
        let mut note = |register: &mut Register, _| words.extend((register.class == Class::Word).then_some(register.index));
        if !later(operation) {
            operation.instruction.clone().for_each_register(&mut note);
        }
        words.into_boxed_slice()
    };
    module.functions.iter().map(|function| function.code.iter().map(words).collect()).collect()
}

/// Whether a kernel, or a function that it calls, uses dynamic shared memory. Of a kernel that is not there, no.
pub fn takes_dynamic_shared(module: &Module, entry: &str) -> bool {
    let functions = &module.functions;
    let mut reached: Vec<usize> = functions.iter().position(|function| function.name == entry).into_iter().collect();
    let mut at = 0;
    while let Some(function) = reached.get(at).map(|&index| &functions[index]) {
        for Operation { instruction, .. } in &function.code {
            if dynamic_align(instruction) > 0 {
                return true;
            }
            if let Instruction::Call { function, .. } = instruction
                && !reached.contains(&(*function as usize))
            {
                reached.push(*function as usize);
            }
        }
        at += 1;
    }
    false
}

/// The alignment of dynamic shared memory that an instruction asks for, or 0.
fn dynamic_align(instruction: &Instruction) -> u32 {
    let address = match instruction {
        Instruction::AddressOf { space: Space::Shared, address, .. } | Instruction::Load { address, .. } => address,
        Instruction::Store { address, .. } | Instruction::Atomic { address, .. } => address,
        Instruction::MapToBlock { address, .. } | Instruction::BlockOfAddress { address, .. } => address,
        Instruction::Prefetch { address, .. } | Instruction::Discard { address, .. } => address,
        _ => return 0,
    };
    match address.base {
        Base::DynamicShared { align } => align,
        _ => 0,
    }
}
