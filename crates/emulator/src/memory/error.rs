//! What an access can do wrong.

use std::sync::Arc;

use super::Address;

/// Why an access was refused. `rank` is the rank whose memory it is, not the one that accessed it; names are those of buffers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// Outside the buffer, in part or altogether.
    #[error("{bytes} bytes at rank {rank} {buffer}{offset:+} are out of bounds: the buffer has {size} bytes")]
    OutOfBounds {
        /// The buffer.
        buffer: Arc<str>,
        /// Its rank.
        rank: usize,
        /// First byte of the access from the buffer's start; negative before it.
        offset: i64,
        /// Length of the access in bytes.
        bytes: u64,
        /// Length of the buffer in bytes.
        size: u64,
    },
    /// No buffer ever had this address.
    #[error("{address} is no address of any buffer{}", .nearest.as_ref().map(|n| format!("; the nearest is {n}")).unwrap_or_default())]
    Unmapped {
        /// The address; below 64 GiB it is null plus something.
        address: Address,
        /// The buffer whose window is nearest, where there is one and the address is not near null.
        nearest: Option<Arc<str>>,
    },
    /// The rank that accessed it has not mapped this memory of a peer.
    #[error("rank {accessing} has not mapped rank {rank} {buffer}{offset:+}")]
    NotMappedOnRank {
        /// The buffer.
        buffer: Arc<str>,
        /// Its rank.
        rank: usize,
        /// The rank that accessed it.
        accessing: usize,
        /// First byte of the access from the buffer's start.
        offset: i64,
    },
    /// The buffer was freed.
    #[error("rank {rank} {buffer}{offset:+} was freed")]
    UseAfterFree {
        /// The buffer.
        buffer: Arc<str>,
        /// Its rank.
        rank: usize,
        /// First byte of the access from the buffer's start.
        offset: i64,
    },
    /// Not at a multiple of the access's length (PTX ISA 6.4.1).
    #[error("{bytes} bytes at rank {rank} {buffer}{offset:+} are not aligned to {bytes}")]
    Misaligned {
        /// The buffer.
        buffer: Arc<str>,
        /// Its rank.
        rank: usize,
        /// First byte of the access from the buffer's start.
        offset: i64,
        /// Length of the access in bytes.
        bytes: u64,
    },
    /// A byte that nobody wrote was read.
    #[error("{bytes} bytes at rank {rank} {buffer}{offset:+} were read, of which the one at {first} was never written")]
    Uninitialised {
        /// The buffer.
        buffer: Arc<str>,
        /// Its rank.
        rank: usize,
        /// First byte of the access from the buffer's start.
        offset: i64,
        /// Length of the access in bytes.
        bytes: u64,
        /// The first byte that was never written, from the buffer's start.
        first: u64,
    },
    /// Only `multimem` instructions may use a multicast address (PTX ISA 8.2.3).
    #[error("{window}{offset:+} is a multicast address, used by an instruction that is not multimem")]
    MulticastUsedAsUnicast {
        /// The multicast window.
        window: Arc<str>,
        /// First byte of the access from the window's start.
        offset: i64,
    },
    /// `multimem` instructions may use multicast addresses only (PTX ISA 8.2.3).
    #[error("rank {rank} {buffer}{offset:+} is no multicast address, used by a multimem instruction")]
    UnicastUsedAsMulticast {
        /// The buffer.
        buffer: Arc<str>,
        /// Its rank.
        rank: usize,
        /// First byte of the access from the buffer's start.
        offset: i64,
    },
    /// Freeing, sharing or switching something by an address that is not its first.
    #[error("rank {rank} {buffer}{offset:+} is not where the buffer starts")]
    NotAStart {
        /// The buffer.
        buffer: Arc<str>,
        /// Its rank.
        rank: usize,
        /// The address, from the buffer's start.
        offset: i64,
    },
}

/// An access of a warp that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lane {lane}: {error}")]
#[non_exhaustive]
pub struct LaneError {
    /// The lowest lane whose access was refused.
    pub lane: usize,
    /// Why.
    pub error: AccessError,
}
