//! What a machine is opened with, and why it could not be opened.

use std::{path::PathBuf, sync::Arc, time::Duration};

use crate::vendor::{driver::CudaError, loader::LoadError};
use passmuster_plan::library::Library;

/// What a [`CudaMachine`](crate::CudaMachine) is opened with.
#[derive(Clone)]
pub struct CudaOptions {
    /// The GPUs to use, by CUDA's numbers; all of them by default. Rank `r` runs on `gpus[r % gpus.len()]`.
    pub gpus: Option<Vec<usize>>,
    /// The NCCL to load. By default `PASSMUSTER_NCCL_LIB`, else the one on the library path, else one in a Python environment.
    pub nccl_lib: Option<PathBuf>,
    /// The cuBLASLt to load. By default `PASSMUSTER_CUBLASLT_LIB`, else the one on the library path, else one in a Python environment.
    pub cublas_lt_lib: Option<PathBuf>,
    /// The kernels that launches refer to.
    pub library: Library,
    /// After which time a wait in a kernel gives up.
    pub wait_limit: Duration,
    /// Whether copies that follow each other, and may be done in any order, are enqueued as one batch: outside graphs, and where the driver has batches,
    /// which it has since CUDA 13.0. Not by default: where ranks share a GPU, three exchanges of four ranks back to back hung once of once tried (with a GPU
    /// each they do not), and what they gain has not been timed.
    pub batch_copies: bool,
    /// Is called when ranks have started on their devices (true), and when the run has ended (false). Use it to watch a process from which no more
    /// comes. For short runs it is called at the end only.
    pub watch: Option<Watch>,
}

/// See [`CudaOptions::watch`].
pub type Watch = Arc<dyn Fn(bool) + Send + Sync>;

impl Default for CudaOptions {
    fn default() -> CudaOptions {
        CudaOptions {
            gpus: None,
            nccl_lib: None,
            cublas_lt_lib: None,
            library: Library::default(),
            wait_limit: Duration::from_secs(2),
            batch_copies: false,
            watch: None,
        }
    }
}

/// Why there is no [`CudaMachine`](crate::CudaMachine).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is no CUDA driver.
    #[error("no CUDA driver: {0}")]
    NoDriver(LoadError),
    /// There is a driver, but no GPU that it can use.
    #[error("no GPU: {reason}")]
    NoGpu {
        /// What the driver said.
        reason: String,
    },
    /// A GPU was asked for that there is not.
    #[error("GPU {asked} was asked for, there are {count}, numbered from 0")]
    UnknownGpu {
        /// The number that was asked for.
        asked: usize,
        /// How many GPUs there are.
        count: usize,
    },
    /// A list of GPUs with none in it.
    #[error("the list of GPUs is empty")]
    NoneAsked,
    /// A GPU lacks what symmetric memory needs.
    #[error("GPU {gpu} ({name}) has no virtual memory management with file descriptors, which symmetric memory needs")]
    NoSymmetricMemory {
        /// Its number.
        gpu: usize,
        /// Its name.
        name: String,
    },
    /// The driver failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl OpenError {
    /// Whether this host lacks what it takes, as opposed to having been asked for something wrong.
    pub fn is_absence(&self) -> bool {
        !matches!(self, OpenError::UnknownGpu { .. } | OpenError::NoneAsked)
    }
}
