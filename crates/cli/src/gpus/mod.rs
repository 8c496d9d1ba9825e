//! This host's GPUs, where the command was built for them.

#[cfg(not(feature = "gpu"))]
mod absent;
#[cfg(feature = "gpu")]
mod built;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::bail;
use passmuster_harness::emulator::EmulatorOptions;
use passmuster_plan::library::Library;

use crate::{memory, units};

#[cfg(not(feature = "gpu"))]
pub(crate) use absent::{open, open_for_cases, open_rank, prepare_process};
#[cfg(feature = "gpu")]
pub(crate) use built::{open, open_for_cases, open_rank, prepare_process};

/// Called with whether devices are at work.
pub(crate) type Watch = Arc<dyn Fn(bool) + Send + Sync>;

/// Which GPUs and which libraries, and how long kernels wait.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Machine")]
pub(crate) struct Gpus {
    /// GPUs to use, as in 0,1,2. More ranks than GPUs share them.
    #[arg(long = "gpus", value_delimiter = ',', value_name = "LIST")]
    pub(crate) numbers: Option<Vec<usize>>,
    /// NCCL library to load. The default is the first that is found.
    #[arg(long, value_name = "FILE")]
    pub(crate) nccl_lib: Option<PathBuf>,
    /// cuBLASLt library to load. The default is the first that is found.
    #[arg(long, value_name = "FILE")]
    pub(crate) cublas_lt_lib: Option<PathBuf>,
    /// Enqueue independent copies as one batch, outside graphs.
    #[arg(long)]
    pub(crate) batch_copies: bool,
    /// Time after which a wait inside a kernel gives up, as in 500ms. On the emulator it is emulated time.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::duration_with_unit)]
    pub(crate) wait_limit: Duration,
}

impl Gpus {
    /// The same as arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![format!("--wait-limit={}ms", self.wait_limit.as_secs_f64() * 1e3)];
        if let Some(numbers) = &self.numbers {
            let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
            arguments.push(format!("--gpus={}", numbers.join(",")));
        }
        if let Some(lib) = &self.nccl_lib {
            arguments.push(format!("--nccl-lib={}", lib.display()));
        }
        if let Some(lib) = &self.cublas_lt_lib {
            arguments.push(format!("--cublas-lt-lib={}", lib.display()));
        }
        arguments.extend(self.batch_copies.then(|| "--batch-copies".to_owned()));
        arguments
    }

    /// The emulator in their place.
    ///
    /// # Errors
    /// Where GPUs, libraries or the way of copies are named, which the emulator does not use.
    pub(crate) fn emulator(&self, library: Library) -> anyhow::Result<EmulatorOptions> {
        if self.numbers.is_some() || self.nccl_lib.is_some() || self.cublas_lt_lib.is_some() || self.batch_copies {
            bail!("--gpus, --nccl-lib, --cublas-lt-lib and --batch-copies are for --machine cuda");
        }
        // Memory comes and goes with every case, most of it never touched: to clear two megabytes for each of its pages took a tenth of the time.
        let _ = rustix::thread::disable_transparent_huge_pages(true);
        let usual = EmulatorOptions::default();
        let memory_budget = memory::lowered().unwrap_or(usual.memory_budget);
        Ok(EmulatorOptions { library, wait_limit: self.wait_limit, memory_budget, ..usual })
    }
}
