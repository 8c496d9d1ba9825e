//! Real GPUs: one process, a thread a rank, symmetric memory through the VMM API, CUDA graphs, NCCL and cuBLASLt.
//!
//! Every library is opened at run time; one that is missing, too old or no library at all is an error that names what was searched.
//! Nothing here panics for want of a GPU, and nothing here creates multicast objects.
//!
//! A script takes this way: `machine::validation` refuses what contradicts itself, `program` resolves all addresses, kernels and communicators for
//! each rank, `execution` has one thread a rank enqueue its program and wait for it. Threads that a library does not let go of are left
//! behind, so that a run ends soon after its deadline whatever the devices do.

mod board;
mod communicators;
mod copies;
mod cublas_lt;
mod device;
mod driver;
mod environment;
mod execution;
mod facts;
mod fault;
mod graphs;
mod group;
mod hosts;
mod kernel;
mod loader;
mod machine;
mod memory;
mod nccl;
mod nccl_log;
mod nvml;
mod peers;
mod products;
mod program;
mod rank;
mod ranks;
mod reports;
mod scratch;
mod stream;
mod stream_memops;
mod tensor_map;

pub use driver::CudaError;
pub use environment::prepare_process;
pub use facts::{Facts, Rehearsal};
pub use loader::LoadError;
pub use machine::{CudaMachine, CudaOptions, OpenError, Watch};
#[doc(hidden)]
pub use tensor_map::is_made as makes_tensor_map;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
