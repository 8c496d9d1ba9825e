//! `bench all_gather_matmul`, `bench matmul_reduce_scatter` and `bench overlap`: products of matrices with collectives.

use std::process::ExitCode;

use anyhow::{anyhow, ensure};
use passmuster_bench::{Contender, MatmulWorkload, Method, Multiplier, OverlapContender, Scenario, Torch, Workload};
use passmuster_plan::{algorithms::Registry, collective::DType, machine::MachineInfo};
use xshell::Shell;

use super::session::{Session, Task, list};

/// N and K of Llama-3 8B, 70B and 105B among eight ranks, and rows of A: the table of symm-mem-recipes.
const WEIGHTS: [(u64, u64); 3] = [(1792, 4096), (3584, 8192), (6656, 16384)];
const ROWS: [u64; 3] = [4096, 8192, 16384];

/// Time products of a gathered matrix, beside cuBLASLt alone and cuBLASLt behind NCCL.
///
/// Ranks hold M/W rows of A (M x K) and each its own B (N x K, depth contiguous, as weights lie in torch); each computes gather(A) x B. By default the nine
/// shapes of symm-mem-recipes. Inputs are about N(0, 1). Before a contender is timed, its results on integers are looked at, at the same shape. How it
/// is timed: as collectives are.
#[derive(clap::Args)]
pub(super) struct AllGatherMatmul {
    #[command(flatten)]
    parallel: Parallel,
    /// Also time what lies between the plain product and the fused one: the fused kernel with all its flags set, the same beside copies into other
    /// memory, and those copies alone; and print what each step adds.
    #[arg(long)]
    controls: bool,
}

/// Time products whose sums over ranks are scattered, beside cuBLASLt alone and cuBLASLt before NCCL.
///
/// Each rank holds K columns of A (M x K, rows contiguous) and the B that belongs to them (N x K, depth contiguous); it gets its M/W rows of the sum over
/// ranks of A x B. By default the way back of the layers whose way there all_gather_matmul times: N and K of each rank are exchanged. Results are
/// looked at and timed as there.
#[derive(clap::Args)]
pub(super) struct MatmulReduceScatter {
    #[command(flatten)]
    parallel: Parallel,
}

/// What the two have in common.
#[derive(clap::Args)]
struct Parallel {
    /// Rows of A, those of all ranks together where it is gathered.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    m: Vec<u64>,
    /// Columns of B and C.
    #[arg(long, requires = "k", value_parser = clap::value_parser!(u64).range(1..))]
    n: Option<u64>,
    /// Columns of A, as many as each rank has.
    #[arg(long, requires = "n", value_parser = clap::value_parser!(u64).range(1..))]
    k: Option<u64>,
    /// Type of the elements: bf16 or f16.
    #[arg(long, default_value = "bf16", value_parser = float)]
    dtype: DType,
    /// World sizes; when left out, as many ranks as this machine has GPUs.
    #[arg(long, alias = "world", value_delimiter = ',')]
    worlds: Vec<u32>,
    /// Contenders, by name; when left out, all.
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    #[command(flatten)]
    session: Session,
}

/// Time a product and an all-gather that have nothing to do with each other, one after the other and at once.
///
/// As PyTorch's bench_overlapped_matmul_allgather: A (M x K) times B (K x N) by cuBLASLt on every rank, and --ag-mb MiB of each rank gathered by NCCL's
/// kernels, its copy engines, and ours. The gather is in place: what a rank sends lies in its slot of the output, as FSDP2's parameters do. With
/// --out-of-place it is in a buffer of its own, as in PyTorch's benchmark, and every rank copies it into its slot as well. Besides each alone: ideal is the longer of the two, and how far from it the
/// two at once end is what there is to see. The product inside the overlap is timed, too, and overlapped with the product planned for fewer
/// SMs (--matmul-sms).
#[derive(clap::Args)]
pub(super) struct Overlap {
    /// Rows of A, on every rank.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..))]
    m: u64,
    /// Columns of B.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..))]
    n: u64,
    /// Columns of A, rows of B.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..))]
    k: u64,
    /// MiB that each rank gives to the gather.
    #[arg(long, value_delimiter = ',', default_value = "64", value_parser = mebibytes)]
    ag_mb: Vec<u64>,
    /// Type of the elements: fp16 or bf16.
    #[arg(long, default_value = "fp16", value_parser = float)]
    dtype: DType,
    /// Samples of each arm, in all rounds together.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
    /// Samples before the first that counts, in all rounds together.
    #[arg(long, default_value_t = 50)]
    warmup: u32,
    /// Of NCCL's ways, only that by copy engines (NCCL_CTA_POLICY_ZERO).
    #[arg(long)]
    cta_policy_zero: bool,
    /// Gather from a buffer of its own, as PyTorch's benchmark does, and not from the rank's slot of the output.
    #[arg(long)]
    out_of_place: bool,
    /// Multiprocessors that the product is planned for in arms of their own.
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "116")]
    matmul_sms: Vec<u32>,
    /// World sizes; when left out, as many ranks as this machine has GPUs.
    #[arg(long, alias = "world", value_delimiter = ',')]
    worlds: Vec<u32>,
    /// Arms, by name, as `overlap/copy_engine`; when left out, all.
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    #[command(flatten)]
    session: Session,
}

const MIB: f64 = (1 << 20) as f64;

/// Bytes of `text` MiB, which may be a fraction.
fn mebibytes(text: &str) -> Result<u64, String> {
    let bytes = text.parse::<f64>().map(|mib| mib * MIB).ok();
    let whole = bytes.filter(|bytes| (16.0..=4096.0 * MIB).contains(bytes) && bytes % 16.0 == 0.0);
    whole.map(|bytes| bytes as u64).ok_or_else(|| format!("`{text}` MiB: a multiple of 16 bytes, 4096 at most"))
}

/// bf16 or f16, also as torch calls it.
pub(super) fn float(text: &str) -> Result<DType, String> {
    match text {
        "fp16" | "f16" => Ok(DType::F16),
        "bf16" => Ok(DType::BF16),
        other => Err(format!("`{other}`: products have fp16 and bf16")),
    }
}

/// The worlds that were asked for, or all GPUs.
pub(super) fn worlds(session: &Session, asked: &[u32], machine: &MachineInfo) -> anyhow::Result<Vec<u32>> {
    let usual: Vec<u32> = (2..=16).rev().collect();
    let mut fitting = session.fitting(asked, &usual, machine)?;
    fitting.truncate(asked.len().max(1));
    Ok(fitting)
}

/// The contenders of these names.
pub(super) fn found(registry: &Registry, names: &[String], workload: &Workload) -> anyhow::Result<Vec<Contender>> {
    names.iter().map(|name| Contender::find(registry, workload, name).map_err(|error| anyhow!(error))).collect()
}

impl AllGatherMatmul {
    pub(super) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let controls = if self.controls { Multiplier::controls() } else { Vec::new() };
        self.parallel.run(registry, sh, Scenario::AllGatherMatmul, &WEIGHTS, controls)
    }
}

impl MatmulReduceScatter {
    pub(super) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        self.parallel.run(registry, sh, Scenario::MatmulReduceScatter, &WEIGHTS.map(|(n, k)| (k, n)), Vec::new())
    }
}

impl Parallel {
    /// With these contenders besides those that were asked for.
    fn run(
        self,
        registry: &Registry,
        sh: &Shell,
        scenario: Scenario,
        weights: &[(u64, u64)],
        besides: Vec<Multiplier>,
    ) -> anyhow::Result<ExitCode> {
        let rows = if self.m.is_empty() { ROWS.to_vec() } else { self.m.clone() };
        let weights = self.n.zip(self.k).map_or_else(|| weights.to_vec(), |weights| vec![weights]);
        let shape = |world, (n, k), m| MatmulWorkload { scenario, dtype: self.dtype, world, n, k, m, gathered: 0, out_of_place: false };
        let any = Workload::from(shape(1, weights[0], rows[0]));
        let mut contenders: Vec<Contender> = match &self.contenders {
            None => {
                let torch = Torch::of(&any).iter().filter(|_| !self.session.rehearse).copied().map(Contender::Torch);
                Multiplier::all(registry, scenario).into_iter().map(Contender::Multiplier).chain(torch).collect()
            }
            Some(names) => found(registry, names, &any)?,
        };
        for besides in besides {
            if contenders.iter().all(|contender| contender.name() != besides.name()) {
                contenders.push(Contender::Multiplier(besides));
            }
        }
        self.session.run(registry, sh, |machine| {
            let worlds = worlds(&self.session, &self.worlds, machine)?;
            for &world in &worlds {
                if let Some(m) = rows.iter().find(|m| !m.is_multiple_of(world.into())) {
                    ensure!(!self.m.is_empty(), "--worlds {world}: M = {m} does not divide by it; --m chooses others");
                    anyhow::bail!("--m {m} does not divide by {world} ranks");
                }
            }
            let of = |world, weights, m| {
                let workload = Workload::from(shape(world, weights, m));
                (workload, self.session.method(Method::for_bytes(workload.bytes())))
            };
            let chosen = match (self.n, self.k) {
                (Some(n), Some(k)) => format!(" --n {n} --k {k}"),
                _ => String::new(),
            };
            let shapes = worlds.iter().flat_map(|&world| weights.iter().map(move |&weights| (world, weights)));
            let shapes = shapes.flat_map(|(world, weights)| rows.iter().map(move |&m| (world, weights, m)));
            let names: Vec<String> = contenders.iter().map(Contender::name).collect();
            Ok(Task {
                workloads: shapes.map(|(world, weights, m)| of(world, weights, m)).collect(),
                line: format!(
                    "{} --worlds {} --m {}{chosen} --dtype {} --contenders {}",
                    scenario.name(),
                    list(&worlds),
                    list(&rows),
                    self.dtype,
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

impl Overlap {
    pub(super) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let Overlap { m, n, k, dtype, out_of_place, .. } = self;
        let shape = |world, gathered| MatmulWorkload { scenario: Scenario::Overlap, dtype, world, n, k, m, gathered, out_of_place };
        let contenders = match &self.contenders {
            None => self.arms(),
            Some(names) => found(registry, names, &shape(1, 1).into())?,
        };
        let each = |all: u32| all.div_ceil(self.session.rounds);
        // A call a sample, as PyTorch's benchmark has it.
        let usual = Method::for_bytes(Workload::from(shape(1, self.ag_mb[0])).bytes());
        let method = Method { calls: 1, copies: 1, replays: each(self.iters), warm_up: each(self.warmup), ..usual };
        self.session.run(registry, sh, |machine| {
            let worlds = worlds(&self.session, &self.worlds, machine)?;
            let shapes = worlds.iter().flat_map(|&world| self.ag_mb.iter().map(move |&bytes| shape(world, bytes)));
            let names: Vec<String> = contenders.iter().map(Contender::name).collect();
            Ok(Task {
                workloads: shapes.map(|shape| (shape.into(), self.session.method(method))).collect(),
                line: format!(
                    "overlap --worlds {} --m {m} --n {n} --k {k} --ag-mb {}{} --dtype {dtype} --iters {} --warmup {} --contenders {}",
                    list(&worlds),
                    list(&self.ag_mb.iter().map(|&bytes| bytes as f64 / MIB).collect::<Vec<_>>()),
                    if out_of_place { " --out-of-place" } else { "" },
                    self.iters,
                    self.warmup,
                    list(&names)
                ),
                contenders: contenders.clone(),
                hidden: None,
                notes: Vec::new(),
                tells: true,
            })
        })
    }

    fn arms(&self) -> Vec<Contender> {
        let kept = |arm: &OverlapContender| {
            let nccl = arm.gather.as_ref().is_some_and(|gather| gather.is_peer());
            !(self.cta_policy_zero && nccl && arm.gather.as_ref().is_some_and(|gather| gather.name() != "nccl_copy_engine"))
        };
        OverlapContender::all(&self.matmul_sms).into_iter().filter(kept).map(Contender::OverlapContender).collect()
    }
}
