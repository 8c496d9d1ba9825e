//! The upkeep of this repository, behind the feature `upkeep`: what `cargo xtask COMMAND` has beside the user's commands.

mod bundle;
mod docs;
mod kernels;
mod ledger;
mod litmus;
mod orders;
mod records;
mod tune;

use std::process::ExitCode;

use clap::Subcommand;
use passmuster_plan::algorithms::Registry;
use xshell::Shell;

// Its commands, which help lists after the user's. A docstring here would take the place of the one that help begins with.
#[derive(Subcommand)]
pub(crate) enum Upkeep {
    Kernels(kernels::Kernels),
    Docs(docs::Docs),
    Records(records::Records),
    Ledger(ledger::Ledger),
    Tune(tune::Tune),
    Bundle(bundle::Bundle),
}

/// What help says of them.
pub(crate) const EXAMPLES: &str = "\
Upkeep of this repository:
  cargo xtask kernels              compile kernels/**/*.cu after an edit
  cargo xtask docs                 write the generated parts of documents
  cargo xtask records              list stale records
  cargo xtask ledger               compare the emulator's arithmetic with a GPU
  cargo xtask tune --out FILE      measure what `auto` chooses by
  cargo xtask bundle               make a folder for a GPU machine without Rust
  cargo xtask test                 what a change can affect (--all: everything)
  cargo xtask judge-mutants        plant bugs in the judge
  cargo xtask dist                 archives of a release";

impl Upkeep {
    /// Whether it may use GPUs in this process.
    pub(crate) fn opens_gpus(&self) -> bool {
        matches!(self, Upkeep::Ledger(_))
    }

    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        match self {
            Upkeep::Kernels(command) => command.run(sh),
            Upkeep::Docs(command) => command.run(sh),
            Upkeep::Records(command) => command.run(registry, sh),
            Upkeep::Ledger(command) => command.run(registry, sh),
            Upkeep::Tune(command) => command.run(registry),
            Upkeep::Bundle(command) => command.run(sh),
        }
    }
}
