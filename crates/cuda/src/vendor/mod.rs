//! NVIDIA's libraries, opened at run time: their functions, checked calls and errors with names. Beside them stands what they read from the environment, and
//! what NCCL writes to its log.

pub(crate) mod cublas_lt;
pub(crate) mod driver;
pub(crate) mod environment;
pub(crate) mod loader;
pub(crate) mod nccl;
pub(crate) mod nccl_log;
pub(crate) mod nvml;
