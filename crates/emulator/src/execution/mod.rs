//! One kernel launch on one rank, executed warp by warp.
//!
//! A [`Program`] is a module in a rank's memory, a [`Grid`] a launch of one of its kernels. The caller gives it turns: in each, one
//! warp executes up to a given number of instructions. What they start and is done later has turns of its own, so that any interleaving of
//! warps, launches and ranks is a sequence of turns. Memory is sequentially consistent at the granularity of one instruction of one warp; what orders and
//! what races is for the race check to judge. If there is one, it sees each access.
//!
//! # Spaces
//! A generic address is one of [`Memory`](crate::memory::Memory), and so is one in global or constant memory. Addresses in shared,
//! local and parameter memory are offsets: of the block's allocation, of the thread's, of the launch's parameters; `cvta` adds or
//! subtracts where that allocation starts. So a stray generic address to shared memory is recognised, also one into the next
//! variable's block. Within one thread's local memory, frames of calls are not told apart. Constant memory may be written through generic
//! addresses, and one block's shared memory may be reached by another's of another cluster: that is not recognised.
//!
//! # Clusters
//! A launch has clusters where the kernel requires them (`.reqnctapercluster`), of up to eight blocks, which start together. An address of
//! `.shared::cluster` is a block's own offset or what `mapa` gives, which says the block: the two differ also where they are of the same place.
//! Shared memory ends with its block. An access to it after that is an error that says so.
//!
//! # Lanes
//! Lanes have program counters of their own ([`warp`]), and may wait for one another. Instructions of a member mask wait until all its
//! lanes that have not ended are at the same instruction of the PTX.
//!
//! # Barriers
//! See [`block`]: threads are counted one by one, and those that have ended do not count toward a barrier of all. The ISA leaves that
//! to the implementation, and hardware does it.
//!
//! # Polling
//! Where a lane group reads the same values from the same addresses twice in a row at one instruction, with a strong or volatile load or an
//! atomic that changes nothing, or asks in vain for the end of one phase of an mbarrier, its turn ends. It is a hint for scheduling, not proof that the group
//! would do so forever: it may be counting.
//!
//! # multimem
//! What the ISA leaves open of it, and how that was read, is at the head of [`multimem`].
//!
//! # What goes on beside threads
//! Copies, bulk copies and asynchronous stores are flights of their own ([`flight`]), which have turns as warps have. Waits for them and for mbarriers poll: a
//! thread that waits looks again and again, and a schedule lets flights go in between as it likes. Boxes of tensors ([`tensor`]) are flights, too; what a map is
//! and which bytes a box are is [`tensor_map`](crate::tensor_map)'s.
//!
//! # Products of matrices
//! Those of a warp are done at once ([`matrix`]). Those of a warpgroup are a queue of each warp ([`wgmma`]), which has turns too.
//!
//! # Not here
//! Clusters of more than eight blocks, approximations that have no reference (sin, cos, tanh, those in f64 and in
//! halves). They are [`Fault::UnsupportedInstruction`] when executed, or [`Fault::BadLaunch`].

mod access;
mod arithmetic;
mod asynchronous;
mod block;
mod compare;
mod coverage;
mod executor;
mod fault;
mod flight;
mod float;
mod grid;
mod integer;
mod lanes;
mod looks;
mod matrix;
mod mbarrier;
mod multimem;
mod program;
mod registers;
mod system_calls;
mod tensor;
#[cfg(test)]
mod tests;
mod warp;
mod wgmma;

pub use arithmetic::{Arithmetic, TensorCores};
pub use coverage::{Arrivals, Coverage, Marks, Recorder, Site};
pub use fault::{Fault, FaultSite, UndefinedValue};
pub use grid::{Grid, Shape, Turn, WarpPosition, WarpState};
pub use looks::{Look, Step, Wanted, number};
pub use multimem::MultimemReduction;
pub use program::{DeviceLimits, Footprint, Program, Residency, takes_dynamic_shared};

/// Frames of calls that a thread may have.
const MOST_FRAMES: usize = 64;
