//! `bench`: times of algorithms beside their peers. `collectives`, `products` and `fsdp` are the scenarios, `session` what they have in common; `turns` says
//! who is asked when, `workers` holds the processes, `worker` is what runs in them; `output` is what becomes of the timings, also of recorded
//! ones (`report`).

mod collectives;
mod fsdp;
pub(crate) mod output;
mod products;
mod report;
mod session;
pub(crate) mod timed;
mod turns;
mod worker;
mod workers;

use std::process::ExitCode;

use passmuster_plan::algorithms::Registry;
use xshell::Shell;

use self::{
    collectives::Collectives,
    fsdp::FsdpSteps,
    products::{AllGatherMatmul, MatmulReduceScatter, Overlap},
};
pub(crate) use self::{report::Report, worker::BenchWorker};
#[cfg(feature = "upkeep")]
pub(crate) use self::{turns::take, workers::Workers};

/// Time kernels beside NCCL and PyTorch.
///
/// Prints microseconds a call, of the slowest rank, in a CUDA graph and launched by the host: the median of the rounds' medians, with its 95 % confidence interval.
/// Contenders take turns (A B A B). The default is bf16, sums, registered buffers, out of place. Before each sample in a graph, ranks meet on their devices. L2 is
/// cold: each sample overwrites more memory than it holds, and calls rotate through copies of the buffers. A contender is timed only if it passes a case of the same
/// call. The speed-up over the best peer is printed only if both pass. PyTorch runs in ranks of python3, if it is installed.
///
/// The emulator cannot be timed.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = "\
Examples:
  cargo xtask bench --worlds 2,4,8 --save before.json
  cargo xtask bench --worlds 2,4,8 --baseline before.json
  cargo xtask bench all_gather --sizes 8K,1M --contenders push,nccl_ring
  cargo xtask bench reduce_scatter --dtype f32,e4m3 --op sum,max
  cargo xtask bench --spec mine.toml --spec theirs.toml --sizes 8K,1M
  cargo xtask bench --rows 1,32,512,2048 --html report.html --plot plots
  cargo xtask bench all_gather_matmul --worlds 8 --controls
  cargo xtask bench matmul_reduce_scatter --m 8192 --n 4096 --k 1792
  cargo xtask bench overlap --ag-mb 16,64 --trace overlap.json
  cargo xtask bench fsdp --layers 8 --m 2048,8192")]
pub(crate) struct Bench {
    #[command(subcommand)]
    scenario: Option<Scenario>,
    #[command(flatten)]
    collectives: Collectives,
}

#[derive(clap::Subcommand)]
#[command(rename_all = "snake_case")]
enum Scenario {
    AllGatherMatmul(AllGatherMatmul),
    MatmulReduceScatter(MatmulReduceScatter),
    Overlap(Overlap),
    Fsdp(FsdpSteps),
}

impl Bench {
    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        match self.scenario {
            None => self.collectives.run(registry, sh),
            Some(Scenario::AllGatherMatmul(scenario)) => scenario.run(registry, sh),
            Some(Scenario::MatmulReduceScatter(scenario)) => scenario.run(registry, sh),
            Some(Scenario::Overlap(scenario)) => scenario.run(registry, sh),
            Some(Scenario::Fsdp(scenario)) => scenario.run(registry, sh),
        }
    }
}
