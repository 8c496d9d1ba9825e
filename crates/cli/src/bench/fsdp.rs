//! `bench fsdp`: training steps of sharded layers.

use std::process::ExitCode;

use anyhow::ensure;
use passmuster_bench::{Contender, Fsdp, FsdpWorkload, Method, Workload};
use passmuster_plan::{algorithms::Registry, collective::DType};
use xshell::Shell;

use super::{
    products::{float, found, worlds},
    session::{Session, Task, list},
};

/// Time a training step of layers whose weights are sharded over the ranks, with communication between the products and beside them.
///
/// As PyTorch's FSDP does it. Every rank has N/W rows of the weight (N x K) of each layer, and M rows of activations. Forward, a layer's weight is
/// gathered under the product of the layer before. Backward, from the last layer to the first, weights are gathered again under the two products of the layer
/// before, and the gradient of each is reduced and scattered under those of the next. Two whole weights and two whole gradients take turns in the memory of
/// one pool, for which ranks meet once: how often they met stands beside the number of steps.
///
/// `matmul` is the products alone, `sequential/NAME` the same on one stream with the communication between them, `overlap/NAME` with gathers on one side stream
/// and reduce-scatters on another. NAME: nccl_ring; nccl_symmetric, on registered windows by whichever of its symmetric kernels NCCL takes; nccl_copy_engine
/// (NCCL_CTA_POLICY_ZERO), whose reduce-scatter is the ring's, and which is timed only where its gather is done while blocks hold all SMs;
/// copy_engine and push, with the reduce-scatter by pull.
///
/// Simpler than training: all layers take the same activations and gradients of outputs, the transposed gradient lies in memory, and there are no
/// activation functions and no optimizer. The three products of a layer have 2 M N K operations each. Before a contender is timed, its
/// results on integers are looked at, those of all layers, at the same shape.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask bench fsdp --worlds 8
  cargo xtask bench fsdp --layers 16 --n 28672 --m 2048,8192 --html fsdp.html
  cargo xtask bench fsdp --contenders matmul,overlap/push --trace fsdp.json")]
pub(super) struct FsdpSteps {
    /// Layers, 1 to 128.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=128))]
    layers: u32,
    /// Rows of each rank's activations: tokens.
    #[arg(long, value_delimiter = ',', default_values_t = [2048, 8192], value_parser = clap::value_parser!(u64).range(1..))]
    m: Vec<u64>,
    /// Rows of a weight: what a layer puts out for a token. A multiple of the number of ranks.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..))]
    n: u64,
    /// Columns of a weight: what a layer takes for a token.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..))]
    k: u64,
    /// Type of the elements: bf16 or fp16.
    #[arg(long, default_value = "bf16", value_parser = float)]
    dtype: DType,
    /// World sizes; when left out, as many ranks as this machine has GPUs.
    #[arg(long, alias = "world", value_delimiter = ',')]
    worlds: Vec<u32>,
    /// Contenders, by name, as `overlap/copy_engine`; when left out, all.
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    #[command(flatten)]
    session: Session,
}

impl FsdpSteps {
    pub(super) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let FsdpSteps { layers, n, k, dtype, .. } = self;
        let shape = |world, m| Workload::from(FsdpWorkload { layers, dtype, world, m, n, k });
        let contenders = match &self.contenders {
            None => Fsdp::all().into_iter().map(Contender::Fsdp).collect(),
            Some(names) => found(registry, names, &shape(1, 1))?,
        };
        self.session.run(registry, sh, |machine| {
            let worlds = worlds(&self.session, &self.worlds, machine)?;
            for &world in &worlds {
                ensure!(n.is_multiple_of(world.into()), "--n {n} does not divide by {world} ranks");
            }
            // A step goes over far more than an L2 holds.
            let method = |workload: Workload| Method { calls: 1, copies: 1, ..Method::for_bytes(workload.bytes()) };
            let of = |(world, m)| (shape(world, m), self.session.method(method(shape(world, m))));
            let names: Vec<String> = contenders.iter().map(Contender::name).collect();
            Ok(Task {
                workloads: worlds.iter().flat_map(|&world| self.m.iter().map(move |&m| (world, m))).map(of).collect(),
                line: format!(
                    "fsdp --worlds {} --layers {layers} --m {} --n {n} --k {k} --dtype {dtype} --contenders {}",
                    list(&worlds),
                    list(&self.m),
                    list(&names)
                ),
                contenders: contenders.clone(),
                hidden: None,
                notes: Vec::new(),
                tells: true,
            })
        })
    }
}
