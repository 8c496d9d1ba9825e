//! The commands of passmuster. `cargo xtask --help` teaches them; one file a command.
//!
//! `cargo xtask bundle` copies this same binary to machines without Rust, where it is called `passmuster`.

mod bench;
mod bundle;
mod conform;
mod docs;
mod emulated;
mod foreign;
mod journal;
mod kernels;
mod ledger;
mod mutants;
mod project;
mod records;
mod require;
mod result_file;
mod reveal;
mod test;
mod tune;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use mimalloc::MiMalloc;
use xshell::Shell;

/// The emulator's race check makes and drops small clocks all the time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Write a kernel, say what it promises, and hold it to that.
///
/// Exit status of every command: 0 all passed, 1 a finding, 2 wrong usage or an error of the command itself, 3 this machine
/// could not run it (no GPU, no NCCL), 4 inconclusive (out of time or steps, and no finding), 130 and 143 ended by SIGINT and
/// SIGTERM. 3 and 4 are never a pass.
#[derive(Parser)]
#[command(version, after_long_help = EXAMPLES)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask validate             the main job: hold the algorithms against their contracts, without a GPU
  cargo xtask test-gpu merge       the same on this machine's GPUs, against NCCL: what must pass before a merge
  cargo xtask bench                times beside NCCL
  cargo xtask report RECORD        what a command has recorded, as tables, plots or a page; without a GPU
  cargo xtask choose all_reduce    which algorithm `auto` takes at which size, and why
  cargo xtask mutants              kernels with planted bugs: is each of them caught?
  cargo xtask reveal-order all_reduce/two_shot   in which order are the ranks' elements added?
  cargo xtask ledger               the emulator's arithmetic against the GPU's, instruction by instruction
  cargo xtask records              which records rest on kernels that have changed since
  cargo xtask test                 everything that needs no GPU: what CI runs
  cargo xtask kernels              compile kernels/**/*.cu after an edit
  cargo xtask kernels --check      is the checked-in PTX what the sources compile to?
  cargo xtask docs                 write the parts of documents that repeat the code; --check fails where they differ
  cargo xtask bundle               one folder to carry to a GPU machine that has no Rust";

#[derive(Subcommand)]
enum Command {
    Validate(conform::Validate),
    Test(test::Test),
    TestGpu(conform::TestGpu),
    Bench(Box<bench::Bench>),
    Report(bench::Report),
    Records(records::Records),
    RevealOrder(reveal::Reveal),
    Tune(tune::Tune),
    Choose(tune::Choose),
    Mutants(mutants::Mutants),
    Ledger(ledger::Ledger),
    Kernels(kernels::Kernels),
    Docs(docs::Docs),
    Bundle(bundle::Bundle),
    #[command(hide = true)]
    Worker(worker::Worker),
    #[command(hide = true)]
    BenchWorker(bench::BenchWorker),
}

/// Exit status of a command that has a finding.
const FINDING: u8 = 1;
/// Exit status of wrong usage, and of a command that failed by itself.
const USAGE: u8 = 2;
/// Exit status where this machine cannot run it.
const CANNOT_RUN: u8 = passmuster::conformance::worker::CANNOT_RUN as u8;
/// Exit status where nothing was found, but some cases ran out of time or steps.
const INCONCLUSIVE: u8 = 4;

fn main() -> ExitCode {
    let usage = CommandLine::command().name("passmuster").bin_name(project::invocation());
    let line = CommandLine::from_arg_matches(&usage.get_matches()).unwrap_or_else(|error| error.exit());
    if matches!(line.command, Command::Worker(_) | Command::BenchWorker(_) | Command::Ledger(_)) {
        // These may use GPUs in this process. The others start processes first, which are to find the environment as the user has set it.
        // SAFETY: this thread is the only one yet.
        unsafe { passmuster_cuda::prepare_process() };
    }
    let status = match Shell::new().map_err(anyhow::Error::from).and_then(|sh| run(line.command, &sh)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(USAGE)
        }
    };
    result_file::let_go();
    status
}

fn run(command: Command, sh: &Shell) -> anyhow::Result<ExitCode> {
    match command {
        Command::Validate(command) => command.run(sh),
        Command::Test(command) => command.run(sh),
        Command::TestGpu(command) => command.run(sh),
        Command::Bench(command) => command.run(sh),
        Command::Report(command) => command.run(),
        Command::Records(command) => command.run(sh),
        Command::RevealOrder(command) => command.run(),
        Command::Tune(command) => command.run(),
        Command::Choose(command) => command.run(),
        Command::Mutants(command) => command.run(sh),
        Command::Ledger(command) => command.run(sh),
        Command::Worker(command) => command.run(),
        Command::BenchWorker(command) => command.run(),
        Command::Kernels(command) => command.run(sh),
        Command::Docs(command) => command.run(sh),
        Command::Bundle(command) => command.run(sh),
    }
}
