//! Real GPUs: one process, a thread a rank, symmetric memory through the VMM API, CUDA graphs, NCCL and cuBLASLt.
//!
//! Every library is opened at run time; one that is missing, too old or no library at all is an error that names what was searched.
//! Nothing here panics for want of a GPU, and nothing here creates multicast objects.
//!
//! A script takes this way: `machine::validation` refuses what contradicts itself, `run::program` resolves all addresses, kernels and communicators for
//! each rank, `run::execution` has one thread a rank enqueue its program and wait for it. Threads that a library does not let go of are left
//! behind, so that a run ends soon after its deadline whatever the devices do.
//!
//! A folder imports only those before it: `vendor`, `gpu`, `ranks`, `run`, `machine`.

mod gpu;
mod machine;
mod ranks;
mod run;
mod vendor;

#[doc(hidden)]
pub use gpu::tensor_map::is_made as makes_tensor_map;
pub use machine::{
    CudaMachine, CudaOptions, OpenError, Watch,
    facts::{Facts, Rehearsal},
};
pub use vendor::{driver::CudaError, environment::prepare_process, loader::LoadError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
