//! `bench COLLECTIVE`: in the form of nccl-tests, or of vLLM's benchmark of device communicators (`--rows`).

use std::process::ExitCode;

use anyhow::{bail, ensure};
use passmuster_bench::{CollectiveWorkload, Contender, Method, Pipeline, PipelineWorkload, Torch, Workload};
use passmuster_plan::{
    algorithms::{Algorithm, Nccl, Registry},
    collective::{Collective, DType, ReduceOp},
};
use xshell::Shell;

use super::session::{Session, Task, list};
use crate::{
    foreign::{Known, RegisteredKernel},
    units,
};

/// Which calls of a collective are timed.
#[derive(clap::Args)]
pub(super) struct Collectives {
    /// The collective: all_reduce, all_gather, ...
    #[arg(default_value_t = Collective::AllReduce)]
    collective: Collective,
    /// World sizes. The default is 2, 4, 6 and 8, as far as this machine has GPUs.
    #[arg(long, alias = "world", value_delimiter = ',')]
    worlds: Vec<u32>,
    /// Sizes in bytes of each rank's input or output, whichever is larger: 8K, 1M, ...
    #[arg(long, value_delimiter = ',', value_parser = units::size, default_value = "8K,64K,256K,1M,4M,16M,64M,256M")]
    sizes: Vec<u64>,
    /// Sizes as rows of tokens, of --hidden elements each.
    #[arg(long, value_delimiter = ',', value_name = "TOKENS", conflicts_with = "sizes", value_parser = clap::value_parser!(u64).range(1..))]
    rows: Vec<u64>,
    /// Elements of a row of --rows.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..))]
    hidden: u64,
    /// Element types, with a table for each.
    #[arg(long = "dtype", value_delimiter = ',', value_name = "TYPES", default_value = "bf16")]
    dtypes: Vec<DType>,
    /// Operators, with a table for each. The default is sum. The factors of premul_sum are 1.
    #[arg(long = "op", value_delimiter = ',', value_name = "OPERATORS")]
    ops: Vec<ReduceOp>,
    /// Also time calls in place, in tables of their own. PyTorch's two_shot_all_reduce_ is in place in both.
    #[arg(long, conflicts_with = "asynchronous")]
    in_place: bool,
    /// Contenders, by name. The default is all that need no multicast addresses.
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    /// Also time each kernel with its ranks in processes of their own, as NAME@processes, and print the ratio to ranks in threads.
    #[arg(long, conflicts_with = "asynchronous")]
    processes: bool,
    /// Of all_to_all: several batches, each looked at on the device when it has come. Hosts fetch what was seen without waiting, and wait for it before they enqueue
    /// the next batch (blocking/NAME), or when all are enqueued (deferred/NAME): how long hosts were blocked stands beside the time of all batches, and how
    /// often something was not there yet when they looked.
    #[arg(long = "async", conflicts_with_all = ["rows", "dtypes", "ops"])]
    asynchronous: bool,
    /// With --async, also time what tells why hosts that do not wait gain what they do: apart/NAME, where no batch is looked at beside an exchange, and
    /// behind/NAME, where each look is and begins 20 us later, when the exchange has its SMs.
    #[arg(long, requires = "asynchronous")]
    controls: bool,
    /// Batches of --async, 1 to 256.
    #[arg(long, default_value_t = 16, requires = "asynchronous", value_parser = clap::value_parser!(u32).range(1..=256))]
    batches: u32,
    #[command(flatten)]
    session: Session,
}

impl Collectives {
    pub(super) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        ensure!(!self.asynchronous || self.collective == Collective::AllToAll, "--async is of all_to_all, not of {}", self.collective);
        let of_collective = self.collective.operators();
        if let Some(op) = self.ops.iter().find(|op| !of_collective.contains(op)) {
            bail!("--op {op}: {} has {}", self.collective, list(of_collective));
        }
        let Known { registry, foreign: known, .. } = self.session.known(registry)?;
        ensure!(!self.in_place || self.collective.has_in_place(), "--in-place: {} is not done in place", self.collective);
        let foreign = known.iter().map(|known| known.of.collective("bench")).collect::<anyhow::Result<Vec<_>>>()?;
        if let Some(other) = foreign.iter().find(|known| known.collective() != self.collective) {
            bail!("the kernel {} is of {}, and what is timed is {}", other.name(), other.collective(), self.collective);
        }
        let contenders = self.contenders(&registry, &known)?;
        self.session.run(&registry, sh, |machine| {
            let worlds = self.session.fitting(&self.worlds, &[2, 4, 6, 8], machine)?;
            let names: Vec<String> = contenders.iter().map(Contender::name).collect();
            let sizes = match self.hidden() {
                Some(hidden) => format!("--rows {} --hidden {hidden}", list(&self.rows)),
                None => format!("--sizes {}", list(&self.sizes)),
            };
            Ok(Task {
                contenders,
                workloads: self.workloads(&worlds),
                line: format!(
                    "{}{} --worlds {} {sizes}{} --contenders {}",
                    self.collective,
                    self.batched(),
                    list(&worlds),
                    self.combined(),
                    names.join(",")
                ),
                hidden: self.hidden(),
                notes: known.into_iter().map(|known| known.note).collect(),
                tells: false,
            })
        })
    }

    fn contenders(&self, registry: &Registry, known: &[RegisteredKernel]) -> anyhow::Result<Vec<Contender>> {
        let any = self.workload(self.dtypes[0], self.ops()[0], 1, 0, false);
        let find = |name: &String| Contender::find(registry, &any, name).map_err(anyhow::Error::msg);
        let timed = |algorithm: &dyn Algorithm| algorithm.collective() == self.collective && !algorithm.uses_multicast();
        let mut contenders: Vec<Contender> = match &self.contenders {
            None if self.asynchronous => Pipeline::all(registry).into_iter().map(Contender::Pipeline).collect(),
            None => {
                let own = registry.algorithms().iter().cloned().chain(passmuster_kernels::bench_only()).chain(Nccl::bench_only());
                let own = own.filter(|algorithm| timed(&**algorithm)).map(Contender::from);
                // A rehearsal has no PyTorch.
                let torch = Torch::of(&any).iter().filter(|_| !self.session.rehearse).copied().map(Contender::Torch);
                let foreign = known.iter().filter_map(|known| Some(Contender::Algorithm(known.of.collective("bench").ok()?.clone())));
                own.chain(torch).chain(foreign).collect()
            }
            Some(names) => names.iter().map(find).collect::<anyhow::Result<_>>()?,
        };
        if self.controls {
            for contender in contenders.clone() {
                let Contender::Pipeline(pipeline) = contender else { continue };
                for control in pipeline.controls().map(Contender::Pipeline) {
                    if contenders.iter().all(|known| known.name() != control.name()) {
                        contenders.push(control);
                    }
                }
            }
        }
        if self.processes {
            for (at, contender) in contenders.clone().into_iter().enumerate().rev() {
                let beside = contender.in_processes().filter(|beside| contenders.iter().all(|known| known.name() != beside.name()));
                contenders.splice(at + 1..at + 1, beside);
            }
            let any = contenders.iter().any(|contender| matches!(contender, Contender::InProcesses(_)));
            ensure!(
                any,
                "--processes: none of the contenders is of ours, of NCCL or from elsewhere, whose ranks may be threads or processes"
            );
        }
        Ok(contenders)
    }

    /// For the command line.
    fn batched(&self) -> String {
        if self.asynchronous { format!(" --async --batches {}", self.batches) } else { String::new() }
    }

    /// For the command line: what of types, operators and places is not as usual.
    fn combined(&self) -> String {
        let dtypes = if self.dtypes == [DType::BF16] { String::new() } else { format!(" --dtype {}", list(&self.dtypes)) };
        let ops = if self.ops.is_empty() { String::new() } else { format!(" --op {}", list(&self.ops)) };
        dtypes + &ops + if self.in_place { " --in-place" } else { "" }
    }

    fn ops(&self) -> &[ReduceOp] {
        if self.ops.is_empty() { &self.collective.operators()[..1] } else { &self.ops }
    }

    fn workload(&self, dtype: DType, op: ReduceOp, world: u32, bytes: u64, in_place: bool) -> Workload {
        match self.asynchronous {
            true => PipelineWorkload { batches: self.batches, world, bytes }.into(),
            false => CollectiveWorkload { collective: self.collective, dtype, op, world, bytes, in_place }.into(),
        }
    }

    fn hidden(&self) -> Option<u64> {
        (!self.rows.is_empty()).then_some(self.hidden)
    }

    fn workloads(&self, worlds: &[u32]) -> Vec<(Workload, Method)> {
        let sizes = |dtype: DType| -> Vec<u64> {
            if self.rows.is_empty() { self.sizes.clone() } else { self.rows.iter().map(|rows| rows * self.hidden * dtype.size()).collect() }
        };
        // Batches are one call together, which goes round its own buffers.
        let of_batches = |method| if self.asynchronous { Method { calls: 1, copies: 1, ..method } } else { method };
        let mut workloads = Vec::new();
        let places: &[bool] = if self.in_place { &[false, true] } else { &[false] };
        for (&dtype, &op) in self.dtypes.iter().flat_map(|dtype| self.ops().iter().map(move |op| (dtype, op))) {
            for (&world, &in_place) in worlds.iter().flat_map(|world| places.iter().map(move |place| (world, place))) {
                for bytes in sizes(dtype) {
                    let method = self.session.method(of_batches(Method::for_bytes(bytes)));
                    workloads.push((self.workload(dtype, op, world, bytes, in_place), method));
                }
            }
        }
        workloads
    }
}
