//! How a 64-bit address names an allocation and a byte of it.

use std::fmt;

/// Bits of an address below the window's number.
const WINDOW_BITS: u32 = 36;

/// Where in its window an allocation starts: in the middle, so that what strays by less than 32 GiB in either direction is still known to
/// belong to it.
const START: u64 = 1 << (WINDOW_BITS - 1);

/// The largest allocation in bytes: the upper half of a window, but for one address, which is that of the allocation's end.
pub const MOST_BYTES: u64 = START - 1;

/// A 64-bit virtual address, as kernels compute with it. Zero is null; addresses of all ranks are of one space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` further on.
    pub fn plus(self, bytes: u64) -> Address {
        Address(self.0.wrapping_add(bytes))
    }

    /// The number of the window, counted from one; no allocation has zero.
    pub(super) fn window(self) -> usize {
        (self.0 >> WINDOW_BITS) as usize
    }

    /// The distance in bytes from where the window's allocation starts, which before it wraps to a huge number.
    pub(super) fn offset(self) -> u64 {
        (self.0 & ((1 << WINDOW_BITS) - 1)).wrapping_sub(START)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An allocation or a multicast window. Numbers are dense, in order of creation, and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationId(u32);

impl AllocationId {
    /// The `index`th that was made.
    ///
    /// # Panics
    /// Beyond 2^28 - 2, past which there are no windows.
    pub(super) fn of_index(index: usize) -> AllocationId {
        assert!(index < (1 << (u64::BITS - WINDOW_BITS)) - 1, "out of windows: {index} allocations were made");
        AllocationId(index as u32)
    }

    /// A dense index, from zero: what tables beside the memory are indexed by.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The address of the first byte.
    pub fn address(self) -> Address {
        Address((u64::from(self.0) + 1) << WINDOW_BITS | START)
    }
}

/// A byte of an allocation, known to exist when the place was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GlobalAddr {
    /// Which allocation.
    pub allocation: AllocationId,
    /// Distance from its start in bytes.
    pub offset: u64,
}
