//! A script on GPUs: `program` resolves all addresses, kernels and communicators for each rank, `execution` has one thread a rank enqueue its program and wait
//! for it. `hosts`, `reports` and `stream_memops` say where ranks stand that do not come to their end. It imports `ranks` and what comes before it.

pub(crate) mod communicators;
pub(crate) mod execution;
pub(crate) mod group;
pub(crate) mod hosts;
pub(crate) mod products;
pub(crate) mod program;
pub(crate) mod reports;
pub(crate) mod stream_memops;
