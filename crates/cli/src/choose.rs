//! `choose`: what the table says that `auto` goes by.

use std::process::ExitCode;

use anyhow::{Context, ensure};
use passmuster_harness::conformance::report::table;
use passmuster_kernels::{Auto, auto::sample_call};
use passmuster_plan::{algorithms::Registry, collective::Collective};

use crate::units;

/// Print which algorithm `auto` picks, and the measurement behind it.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask choose all_gather
  cargo xtask choose all_reduce --worlds 8 --bytes 64K")]
pub(crate) struct Choose {
    /// The collective.
    collective: Collective,
    /// World sizes. The default is all that were measured.
    #[arg(long, alias = "world", value_delimiter = ',')]
    worlds: Vec<u32>,
    /// Sizes in bytes of the larger of a rank's input and output. The default is every size at which the choice changes.
    #[arg(long, value_parser = units::size)]
    bytes: Option<u64>,
}

impl Choose {
    pub(crate) fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        let measured = Auto::table().rows.iter().filter(|row| row.collective == self.collective);
        let worlds: Vec<u32> = if self.worlds.is_empty() { measured.map(|row| row.world).collect() } else { self.worlds };
        ensure!(!worlds.is_empty(), "{} is in no tuning table", self.collective);
        let auto = Auto::new(self.collective, registry.algorithms().to_vec());
        let mut rows = Vec::new();
        for world in worlds {
            let row = Auto::table().row(self.collective, world).context("no row for this collective")?;
            let of_steps = || row.steps.iter().map(|step| step.up_to.unwrap_or(1 << 30)).collect();
            for bytes in self.bytes.map_or_else(of_steps, |bytes| vec![bytes]) {
                let call = sample_call(self.collective, world, bytes).map_err(anyhow::Error::msg)?;
                let choice = auto.choose(&call).map_err(anyhow::Error::msg)?;
                rows.push(vec![world.to_string(), choice.algorithm.name().to_owned(), choice.reason]);
            }
        }
        println!("{}", table::aligned(&["w", "algorithm", "reason"], 3, &rows));
        Ok(ExitCode::SUCCESS)
    }
}
