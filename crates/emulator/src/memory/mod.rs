//! The memory of all ranks: buffers in one address space in which every access that goes astray is recognised.
//!
//! Each allocation lies in a window of 2^36 addresses of its own, in the middle, and no window is used twice. So an address says which
//! allocation it was computed from, even out of bounds by up to 32 GiB and long after the allocation was freed. Buffers of ranks, and the local,
//! shared and parameter memory of kernels, are allocations alike. A multicast window is one too, without bytes: it stands for the same offset
//! in a list of allocations, its replicas.
//!
//! Everything is a function of the calls made: the same calls give the same addresses and the same bytes. Nothing here knows threads, order or
//! instructions. What must be known of each byte beyond its value, such as who accessed it, is kept beside the memory in tables indexed by
//! [`AllocationId::index`], which is dense, and by offset: accesses return or take a [`GlobalAddr`] for that.
//!
//! The bytes of an allocation may be in memory that other processes map, too ([`Segment`]): those write them at any time.
//!
//! Bytes that were never written: an allocation that starts [`Init::Uninitialised`] notes which bytes are written, and reading others is an
//! error. [`Memory::peek`] reads them all the same, for a caller that reports the error and goes on. Copies carry what is known of each byte along, so
//! that the finding is where the byte is used.

mod access;
mod address;
mod error;
mod late;
mod shared;
#[cfg(test)]
mod tests;
mod warp;
mod written;

use std::sync::Arc;

pub use access::Taken;
pub use address::{Address, AllocationId, GlobalAddr, MOST_BYTES};
pub use error::{AccessError, LaneError};
pub use late::{Author, Reach};
pub use shared::{MOST_SEGMENT_BYTES, Segment, SegmentId};
pub use warp::WARP;

use late::Late;
use shared::Shared;
use written::Written;

/// The most ranks that one memory knows: an NVLink domain of 72 GPUs. Their rights are a set of bits.
pub const MAX_RANKS: usize = 72;

/// What fresh memory holds where nobody says otherwise: no zero, and no float's common NaN.
pub const CANARY: u8 = 0xc5;

/// Bytes from which on an allocation that starts [`Init::Uninitialised`] holds zeros in place of [`CANARY`], which nobody may read either: the system gives memory for
/// what is touched of it alone, so that a few bytes beyond 4 GiB cost as much as the first few.
pub const SPARSE_BYTES: u64 = 64 << 20;

/// Whose an allocation is, for rights and reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The rank.
    pub rank: usize,
    /// The group of ranks, as the machine numbers them.
    pub group: usize,
    /// The buffer's name: `input`, `two_shot.signals`.
    pub name: Arc<str>,
}

impl Owner {
    /// The buffer `name` that `rank` has in `group`.
    pub fn new(rank: usize, group: usize, name: impl Into<Arc<str>>) -> Owner {
        Owner { rank, group, name: name.into() }
    }
}

/// What an allocation holds at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Zeros, which may be read.
    Zero,
    /// [`CANARY`] in every byte, which may be read.
    Canary,
    /// [`CANARY`] in every byte, of [`SPARSE_BYTES`] or more zeros, and reading one before it is written is an error.
    Uninitialised,
}

impl Init {
    /// What every byte of an allocation of `bytes` bytes holds.
    fn byte(self, bytes: u64) -> u8 {
        match self {
            Init::Zero => 0,
            Init::Uninitialised if bytes >= SPARSE_BYTES => 0,
            Init::Canary | Init::Uninitialised => CANARY,
        }
    }
}

/// Allocations and multicast windows.
#[derive(Debug, Default)]
pub struct Memory {
    allocations: Vec<Allocation>,
    /// What other processes map, too, where allocations may have their bytes.
    segments: Vec<Segment>,
    /// Stores that other ranks do not see yet, where stores are delayed.
    late: Option<Late>,
}

#[derive(Debug)]
struct Allocation {
    owner: Owner,
    /// Bytes of the allocation, also after it was freed.
    size: u64,
    /// Ranks that may access it, as bits.
    ranks: u128,
    kind: Kind,
    /// None of a window, and of what was freed or is shared.
    bytes: Vec<u8>,
    /// `None`: all bytes count as written.
    written: Option<Written>,
    /// Where the bytes are, where other processes may write them.
    shared: Option<Box<Shared>>,
}

#[derive(Clone, Debug)]
enum Kind {
    Unicast,
    Multicast(Vec<AllocationId>),
    Freed,
}

impl Memory {
    /// No memory.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Makes `bytes` bytes that only their own rank may access, and returns the address of the first. It is a multiple of 2^35.
    ///
    /// # Panics
    /// For more than [`MOST_BYTES`], a rank beyond [`MAX_RANKS`], or more than 2^28 - 1 allocations in one memory.
    pub fn allocate(&mut self, owner: Owner, bytes: u64, init: Init) -> Address {
        assert!(bytes <= MOST_BYTES, "rank {} {}: {bytes} bytes, of which {MOST_BYTES} are allowed", owner.rank, owner.name);
        let written = (init == Init::Uninitialised).then(|| Written::new(bytes, false));
        // Zeros are the system's: nothing is taken before it is touched.
        self.push(owner, bytes, Kind::Unicast, vec![init.byte(bytes); bytes as usize], written)
    }

    /// Makes a multicast window of `bytes` bytes over replicas, given by their first addresses, that only the owner's rank may use.
    ///
    /// # Errors
    /// `NotAStart`, `UseAfterFree` or `Unmapped` for what is no live buffer's start, `MulticastUsedAsUnicast` for a window as a replica,
    /// `OutOfBounds` for a replica that is smaller than the window.
    pub fn multicast(&mut self, owner: Owner, bytes: u64, replicas: &[Address]) -> Result<Address, AccessError> {
        let mut ids = Vec::with_capacity(replicas.len());
        for &replica in replicas {
            let id = self.start(replica)?;
            let allocation = &self.allocations[id.index()];
            match allocation.kind {
                Kind::Unicast if bytes <= allocation.size => ids.push(id),
                Kind::Unicast => return Err(self.out_of_bounds(id, 0, bytes)),
                _ => return Err(AccessError::MulticastUsedAsUnicast { window: self.name(id), offset: 0 }),
            }
        }
        Ok(self.push(owner, bytes, Kind::Multicast(ids), Vec::new(), None))
    }

    /// Frees what starts at `address`; its addresses stay known as freed. Replicas outlive their multicast window, and the other way round a
    /// window over a freed replica reports the use.
    ///
    /// # Errors
    /// `NotAStart`, `UseAfterFree`, `Unmapped`.
    pub fn free(&mut self, address: Address) -> Result<(), AccessError> {
        let id = self.start(address)?;
        let allocation = &mut self.allocations[id.index()];
        allocation.kind = Kind::Freed;
        allocation.bytes = Vec::new();
        allocation.written = None;
        allocation.shared = None;
        Ok(())
    }

    /// Lets `rank` access what starts at `address`, or with `mapped` false no longer.
    ///
    /// # Errors
    /// `NotAStart`, `UseAfterFree`, `Unmapped`.
    ///
    /// # Panics
    /// For a rank beyond [`MAX_RANKS`].
    pub fn map(&mut self, address: Address, rank: usize, mapped: bool) -> Result<(), AccessError> {
        assert!(rank < MAX_RANKS, "rank {rank}: there are {MAX_RANKS} at most");
        let id = self.start(address)?;
        let ranks = &mut self.allocations[id.index()].ranks;
        *ranks = if mapped { *ranks | 1 << rank } else { *ranks & !(1 << rank) };
        Ok(())
    }

    /// Whether reads of bytes that were never written are errors from now on. Switched on, all bytes count as written so far.
    ///
    /// # Errors
    /// `NotAStart`, `UseAfterFree`, `Unmapped`.
    pub fn track_written(&mut self, address: Address, track: bool) -> Result<(), AccessError> {
        let id = self.start(address)?;
        let allocation = &mut self.allocations[id.index()];
        match track {
            _ if allocation.shared.is_some() => self.track_shared(GlobalAddr { allocation: id, offset: 0 }, track),
            true if allocation.written.is_some() => {}
            true => allocation.written = Some(Written::new(allocation.size, true)),
            false => allocation.written = None,
        }
        Ok(())
    }

    /// Whose the allocation is.
    pub fn owner(&self, id: AllocationId) -> &Owner {
        &self.allocations[id.index()].owner
    }

    /// Length in bytes, also of what was freed.
    pub fn size(&self, id: AllocationId) -> u64 {
        self.allocations[id.index()].size
    }

    /// What an address is, for reports: `rank 3 two_shot.signals+64`. Negative offsets lie before the buffer.
    pub fn describe(&self, address: Address) -> String {
        match self.find(address) {
            Some(id) => {
                let Allocation { owner, size, kind, .. } = &self.allocations[id.index()];
                let offset = address.offset() as i64;
                let state = match kind {
                    Kind::Freed => " (freed)",
                    Kind::Multicast(_) => " (multicast)",
                    Kind::Unicast => "",
                };
                let beyond = if (0..*size as i64).contains(&offset) { "" } else { ", out of bounds" };
                format!("rank {} {}{offset:+}{state}{beyond}", owner.rank, owner.name)
            }
            None if address.window() == 0 => format!("null{:+}", address.0),
            None => format!("{address} (of no buffer)"),
        }
    }

    fn push(&mut self, owner: Owner, size: u64, kind: Kind, bytes: Vec<u8>, written: Option<Written>) -> Address {
        assert!(owner.rank < MAX_RANKS, "rank {}: there are {MAX_RANKS} at most", owner.rank);
        let id = AllocationId::of_index(self.allocations.len());
        let ranks = 1 << owner.rank;
        self.allocations.push(Allocation { owner, size, ranks, kind, bytes, written, shared: None });
        id.address()
    }

    /// The allocation in whose window an address lies, live or not; `None` where it lies in none.
    pub fn find(&self, address: Address) -> Option<AllocationId> {
        let index = address.window().checked_sub(1)?;
        (index < self.allocations.len()).then(|| AllocationId::of_index(index))
    }

    /// The live allocation that starts at an address.
    fn start(&self, address: Address) -> Result<AllocationId, AccessError> {
        let id = self.find(address).ok_or_else(|| self.unmapped(address))?;
        let Allocation { owner, kind, .. } = &self.allocations[id.index()];
        let (buffer, rank, offset) = (owner.name.clone(), owner.rank, address.offset() as i64);
        match kind {
            Kind::Freed => Err(AccessError::UseAfterFree { buffer, rank, offset }),
            _ if offset != 0 => Err(AccessError::NotAStart { buffer, rank, offset }),
            _ => Ok(id),
        }
    }

    fn name(&self, id: AllocationId) -> Arc<str> {
        self.allocations[id.index()].owner.name.clone()
    }

    fn out_of_bounds(&self, id: AllocationId, offset: i64, bytes: u64) -> AccessError {
        let Allocation { owner, size, .. } = &self.allocations[id.index()];
        AccessError::OutOfBounds { buffer: owner.name.clone(), rank: owner.rank, offset, bytes, size: *size }
    }

    /// The error for an address of no window. Windows are dense, so the nearest is the last one.
    #[cold]
    fn unmapped(&self, address: Address) -> AccessError {
        let nearest = match (address.window(), self.allocations.last()) {
            (1.., Some(last)) => Some(format!("rank {} {}", last.owner.rank, last.owner.name).into()),
            _ => None,
        };
        AccessError::Unmapped { address, nearest }
    }
}
