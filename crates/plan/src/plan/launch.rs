//! Kernel launches: which kernel, how many blocks, and its arguments, without an address.

use std::fmt;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::MAX_RANKS;
use super::{Region, TensorMap};

/// A kernel launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Module that holds the kernel: its path under kernels/ without extension.
    pub module: String,
    /// Entry point.
    pub entry: String,
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Blocks of a cluster, where the launch says so; the kernel itself may, too (`.reqnctapercluster`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Dim3>,
    /// Bytes of dynamic shared memory of each block.
    pub dynamic_shared: u32,
    /// Registers of a thread, if somebody has said: ptxas chooses them, and PTX does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Whether blocks wait for blocks of other ranks, so that all of them must be resident at once.
    pub waits_for_peers: bool,
    /// Whether it is a programmatic dependent launch: it may start as soon as each block of the launch before it on its stream has executed
    /// `griddepcontrol.launch_dependents` or ended, and waits for that launch by itself (`griddepcontrol.wait`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub programmatic: bool,
    /// Variables of its module that the host has set since it loaded the module. The module may lack them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<ModuleVariable>,
    /// Arguments in the kernel's order.
    pub args: Vec<Arg>,
}

/// A global or constant variable of a module, which the host sets on each rank before the first launch from it. Launches that set it to other bytes are from
/// another instance of the module, with other variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleVariable {
    /// As the PTX has it.
    pub name: String,
    /// What its first bytes are, laid out as the fields of a struct. The others stay as the PTX has them.
    pub value: Vec<Arg>,
}

impl Launch {
    /// A launch of `entry` in `module`, of `grid` blocks of `block` threads: no cluster, no dynamic shared memory, no wait for peers.
    pub fn new(module: impl Into<String>, entry: impl Into<String>, (grid, block): (u32, u32), args: Vec<Arg>) -> Launch {
        Launch {
            module: module.into(),
            entry: entry.into(),
            grid: grid.into(),
            block: block.into(),
            cluster: None,
            dynamic_shared: 0,
            registers: None,
            waits_for_peers: false,
            programmatic: false,
            variables: Vec::new(),
            args,
        }
    }

    /// Its arguments, and what the variables of its module are made of.
    pub fn values(&self) -> impl Iterator<Item = &Arg> {
        self.args.iter().chain(self.variables.iter().flat_map(|variable| &variable.value))
    }

    /// The same, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Arg> {
        self.args.iter_mut().chain(self.variables.iter_mut().flat_map(|variable| &mut variable.value))
    }

    /// Whether it takes multicast addresses, which not every machine has.
    pub fn uses_multicast(&self) -> bool {
        self.values().flat_map(Arg::leaves).any(|arg| matches!(arg, Arg::Multicast(_)))
    }
}

/// A kernel argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arg {
    /// Address of this rank's region: 8 bytes.
    Address(Region),
    /// Addresses of a region on every rank of the node, by value: 8 bytes for each of [`MAX_RANKS`], null past their number.
    Peers(Region),
    /// Addresses of a region on the first `length` ranks of the node, by value: `length` x 8 bytes, null past their number.
    PeerArray {
        /// The region.
        region: Region,
        /// Addresses, at most [`MAX_RANKS`].
        length: u32,
    },
    /// Address of a region on one rank of the node: 8 bytes.
    AddressOf {
        /// The region.
        region: Region,
        /// Whose.
        rank: u32,
    },
    /// Bytes from a region on one rank to the same on the next, which are as many between all of them: 8 bytes, 0 on one rank. What kernels add that
    /// have one address for a buffer of all ranks.
    Stride(Region),
    /// The same distance in units of `2^shift` bytes, of which it must be a whole number: what kernels take that keep it in fewer bits.
    ShiftedStride {
        /// The region.
        region: Region,
        /// At most 63.
        shift: u32,
        /// Bytes that it has: 4 or 8.
        bytes: u32,
    },
    /// Address of memory of this rank that holds these, laid out as the fields of a struct: 8 bytes. The machine makes it and nothing writes it.
    InMemory(Vec<Arg>),
    /// Multicast address of a region over all ranks of the group: 8 bytes. Only `multimem` instructions may use it.
    Multicast(Region),
    /// A tensor map by value: 128 bytes, aligned to 64.
    TensorMap(TensorMap),
    /// A value of one byte.
    U8(u8),
    /// A 16-bit value.
    U16(u16),
    /// A 32-bit value.
    U32(u32),
    /// A 64-bit value.
    U64(u64),
    /// The machine's limit for one wait in nanoseconds: 8 bytes.
    WaitLimit,
    /// The fields of a struct passed by value, laid out as C does.
    Struct(Vec<Arg>),
}

impl Arg {
    /// Itself, or where it is made of others, what it is made of in the end.
    pub fn leaves(&self) -> Vec<&Arg> {
        match self {
            Arg::Struct(fields) | Arg::InMemory(fields) => fields.iter().flat_map(Arg::leaves).collect(),
            leaf => vec![leaf],
        }
    }

    /// The region that it is an address of, or has addresses of.
    pub fn region(&self) -> Option<&Region> {
        match self {
            Arg::Address(region)
            | Arg::AddressOf { region, .. }
            | Arg::Stride(region)
            | Arg::ShiftedStride { region, .. }
            | Arg::Peers(region)
            | Arg::PeerArray { region, .. }
            | Arg::Multicast(region) => Some(region),
            Arg::TensorMap(map) => Some(&map.region),
            Arg::U8(_) | Arg::U16(_) | Arg::U32(_) | Arg::U64(_) | Arg::WaitLimit | Arg::Struct(_) | Arg::InMemory(_) => None,
        }
    }

    /// Whether it leads to other ranks' memory.
    pub fn reaches_peers(&self) -> bool {
        match self {
            Arg::AddressOf { .. } | Arg::Stride(_) | Arg::ShiftedStride { .. } => true,
            Arg::Peers(_) | Arg::PeerArray { .. } | Arg::Multicast(_) => true,
            Arg::TensorMap(map) => map.of_rank.is_some(),
            _ => false,
        }
    }
}

/// Sizes along x, y and z, each at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dim3(pub [u32; 3]);

impl Dim3 {
    /// All of them together.
    pub fn total(self) -> u64 {
        self.0.iter().map(|&size| u64::from(size)).fold(1, u64::saturating_mul)
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Dim3 {
        Dim3([x, 1, 1])
    }
}

impl fmt::Display for Dim3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [x, 1, 1] => write!(f, "{x}"),
            [x, y, 1] => write!(f, "({x}, {y})"),
            [x, y, z] => write!(f, "({x}, {y}, {z})"),
        }
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Launch { entry, grid, block, cluster, dynamic_shared, programmatic, variables, args, .. } = self;
        let shared = if *dynamic_shared > 0 { format!(", {dynamic_shared}") } else { String::new() };
        let cluster = cluster.map(|cluster| format!(", clusters of {cluster}")).unwrap_or_default();
        let programmatic = if *programmatic { ", programmatic" } else { "" };
        write!(f, "launch {entry}<<<{grid}, {block}{shared}{cluster}{programmatic}>>>(")?;
        write_args(f, args)?;
        f.write_str(")")?;
        for ModuleVariable { name, value } in variables {
            write!(f, " with {name} = {{")?;
            write_args(f, value)?;
            f.write_str("}")?;
        }
        Ok(())
    }
}

fn write_args(f: &mut fmt::Formatter<'_>, args: &[Arg]) -> fmt::Result {
    for (i, arg) in args.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        write!(f, "{comma}{arg}")?;
    }
    Ok(())
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Address(region) => write!(f, "&{region}"),
            Arg::Peers(region) => write!(f, "peers {region}"),
            Arg::PeerArray { region, length } => write!(f, "{length} peers {region}"),
            Arg::AddressOf { region, rank } => write!(f, "&{region} of rank {rank}"),
            Arg::Stride(region) => write!(f, "stride of {region}"),
            Arg::ShiftedStride { region, shift, bytes } => write!(f, "stride of {region} >> {shift}, {bytes} bytes"),
            Arg::InMemory(fields) => {
                f.write_str("memory {")?;
                write_args(f, fields)?;
                f.write_str("}")
            }
            Arg::U8(value) => write!(f, "{value}u8"),
            Arg::U16(value) => write!(f, "{value}u16"),
            Arg::Multicast(region) => write!(f, "multicast {region}"),
            Arg::TensorMap(map) => write!(f, "{map}"),
            Arg::U32(value) => write!(f, "{value}"),
            Arg::U64(value) => write!(f, "{value}u64"),
            Arg::WaitLimit => f.write_str("wait limit"),
            Arg::Struct(fields) => {
                f.write_str("{")?;
                write_args(f, fields)?;
                f.write_str("}")
            }
        }
    }
}
