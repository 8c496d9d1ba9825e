//! `bench COLLECTIVE`: in the form of nccl-tests, or of vLLM's benchmark of device communicators (`--rows`).

use std::process::ExitCode;

use passmuster::{
    algorithms::{self, Algorithm},
    bench::{Contender, Method, Torch, Workload},
    collective::Collective,
};
use xshell::Shell;

use super::{
    session::{Session, Task, list},
    size,
    turns::workload,
};

/// Which calls of a collective are timed.
#[derive(clap::Args)]
pub(super) struct Collectives {
    /// The collective: all_reduce, all_gather, ...
    #[arg(default_value_t = Collective::AllReduce)]
    collective: Collective,
    /// World sizes; when left out, those of 2, 4, 6 and 8 that this machine has GPUs for.
    #[arg(long, value_delimiter = ',')]
    worlds: Vec<u32>,
    /// Sizes in bytes of each rank's input or output, whichever is larger: 8K, 1M, ...
    #[arg(long, value_delimiter = ',', value_parser = size, default_value = "8K,64K,256K,1M,4M,16M,64M,256M")]
    sizes: Vec<u64>,
    /// Sizes as rows of tokens instead: so many times --hidden elements.
    #[arg(long, value_delimiter = ',', value_name = "TOKENS", conflicts_with = "sizes", value_parser = clap::value_parser!(u64).range(1..))]
    rows: Vec<u64>,
    /// Elements of a row of --rows.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..))]
    hidden: u64,
    /// Algorithms, by name; when left out, all but those that need multicast addresses.
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    #[command(flatten)]
    session: Session,
}

impl Collectives {
    pub(super) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        let contenders = self.contenders()?;
        self.session.run(sh, |machine| {
            let worlds = self.session.fitting(&self.worlds, &[2, 4, 6, 8], machine)?;
            let names: Vec<String> = contenders.iter().map(Contender::name).collect();
            let sizes = match self.hidden() {
                Some(hidden) => format!("--rows {} --hidden {hidden}", list(&self.rows)),
                None => format!("--sizes {}", list(&self.sizes)),
            };
            Ok(Task {
                contenders,
                workloads: self.workloads(&worlds),
                line: format!("{} --worlds {} {sizes} --contenders {}", self.collective, list(&worlds), names.join(",")),
                hidden: self.hidden(),
                tells: false,
            })
        })
    }

    fn contenders(&self) -> anyhow::Result<Vec<Contender>> {
        let any = Workload::from(workload(self.collective, 1, 0));
        let find = |name: &String| Contender::find(&any, name).map_err(anyhow::Error::msg);
        let timed = |algorithm: &dyn Algorithm| algorithm.collective() == self.collective && !algorithm.uses_multicast();
        match &self.contenders {
            None => {
                let own = algorithms::all().iter().copied().filter(|&algorithm| timed(algorithm)).map(Contender::from);
                // A rehearsal has no PyTorch.
                let torch = Torch::of(&any).iter().filter(|_| !self.session.rehearse).copied().map(Contender::Torch);
                Ok(own.chain(torch).collect())
            }
            Some(names) => names.iter().map(find).collect(),
        }
    }

    fn hidden(&self) -> Option<u64> {
        (!self.rows.is_empty()).then_some(self.hidden)
    }

    fn workloads(&self, worlds: &[u32]) -> Vec<(Workload, Method)> {
        let dtype = workload(self.collective, 1, 0).dtype;
        let sizes = if self.rows.is_empty() {
            self.sizes.clone()
        } else {
            self.rows.iter().map(|rows| rows * self.hidden * dtype.size()).collect()
        };
        let of = |world, bytes| (workload(self.collective, world, bytes).into(), self.session.method(Method::for_bytes(bytes)));
        worlds.iter().flat_map(|&world| sizes.iter().map(move |&bytes| of(world, bytes))).collect()
    }
}
