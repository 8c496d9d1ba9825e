//! The commands of passmuster: `main` of the binary of that name. `cargo xtask --help` teaches them; one file a command.
//!
//! In a checkout `cargo xtask` builds and starts the binary; `cargo xtask bundle` copies it to machines without Rust.

// What is for commands that a feature brings is used by them alone.
#![cfg_attr(not(feature = "upkeep"), allow(dead_code))]

#[macro_use]
mod print;

#[cfg(feature = "bench")]
mod bench;
mod by_ranks;
#[cfg(feature = "bench")]
mod choose;
mod compile;
mod compiler;
mod completions;
mod conform;
mod costs;
mod emulated;
mod exit;
mod foreign;
mod gpus;
mod input;
mod inspect;
mod journal;
mod judging;
mod launch;
mod memory;
mod modules;
mod museum;
mod mutants;
mod peers;
mod progress;
mod project;
mod require;
mod result_file;
mod resume;
mod reveal;
mod soak;
mod spread;
mod units;
#[cfg(feature = "upkeep")]
mod upkeep;
mod worker;

use std::{io::IsTerminal, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use passmuster_bootstrap::torchelastic;
use passmuster_plan::algorithms::{Registry, RegistryError};
use xshell::Shell;

/// Test multi-GPU kernels before you merge them.
///
/// `COMMAND --help` shows the options of a command, with examples.
#[derive(Parser)]
#[command(version, after_help = EXIT_STATUSES, after_long_help = format!("{EXAMPLES}\n\n{}{EXIT_STATUSES}", of_upkeep()))]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask validate             test the algorithms; no GPU is needed
  cargo xtask test-gpu merge       on GPUs and against NCCL, before a merge
  cargo xtask bench                time them beside NCCL
  cargo xtask report RECORD        show a record as tables or a page
  cargo xtask choose all_reduce    which algorithm is picked at which size?
  cargo xtask mutants              are planted bugs caught?
  cargo xtask soak --minutes 10    random scripts
  cargo xtask compile mine.cu      compile a kernel of your own crate

A kernel of your own needs no Rust (docs/tutorial-foreign-kernel.md):
  cargo xtask inspect mine.ptx     what is in it, and can it run?
  cargo xtask peers --source NAME=DIR    from a checkout of another project
  cargo xtask validate --ptx mine.ptx --spec mine.toml";

/// What help says of the upkeep of this repository, if it is there.
fn of_upkeep() -> String {
    #[cfg(feature = "upkeep")]
    return format!("{}\n\n", upkeep::EXAMPLES);
    #[cfg(not(feature = "upkeep"))]
    String::new()
}

/// The one table of them; docs/reference/exit-statuses.md has it too.
const EXIT_STATUSES: &str = "\
Exit status of every command:
  0    all passed
  1    a finding: something that was tested is wrong
  2    wrong usage, output that cannot be written, or the command itself failed
  3    this machine could not run it (no GPU, no NCCL); never a pass
  4    inconclusive: out of time or steps, and no finding; never a pass
  130  ended by SIGINT; what was judged is kept
  141  all passed, but the reader of its output had gone, as in `| head`
  143  ended by SIGTERM; what was judged is kept";

#[derive(Subcommand)]
enum Command {
    Validate(Box<conform::Validate>),
    TestGpu(conform::TestGpu),
    #[cfg(feature = "bench")]
    Bench(Box<bench::Bench>),
    #[cfg(feature = "bench")]
    Report(bench::Report),
    RevealOrder(reveal::Reveal),
    #[cfg(feature = "bench")]
    Choose(choose::Choose),
    Inspect(inspect::Inspect),
    Mutants(mutants::Mutants),
    Soak(Box<soak::Soak>),
    Museum(museum::Museum),
    Peers(peers::Peers),
    Compile(compile::Compile),
    Completions(completions::Completions),
    #[command(hide = true)]
    Check(Box<conform::Check>),
    #[command(hide = true)]
    Worker(worker::Worker),
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    BenchWorker(bench::BenchWorker),
    // The last, so that help lists them last.
    #[cfg(feature = "upkeep")]
    #[command(flatten)]
    Upkeep(upkeep::Upkeep),
}

/// Exit status of a command that has a finding.
const FINDING: u8 = 1;
/// Exit status of wrong usage, and of a command that failed by itself.
const USAGE: u8 = 2;
/// Exit status where this machine cannot run it.
const CANNOT_RUN: u8 = passmuster_harness::conformance::process::CANNOT_RUN as u8;
/// Exit status where nothing was found, but some cases ran out of time or steps.
const INCONCLUSIVE: u8 = 4;

/// Runs the command line of this process, with the algorithms of a registry, and returns its exit status (docs/reference/exit-statuses.md).
///
/// A crate with algorithms of its own has `passmuster_cli::main(registry())` for a `main`: its binary has every command, and its algorithms are among
/// those that are validated, tested on GPUs, timed and chosen from. For the commands to be worth their time it is built in release.
pub fn main(registry: Registry) -> ExitCode {
    let checked = registry.check();
    let usage = CommandLine::command().name("passmuster").bin_name(project::name());
    let line = usage.try_get_matches().and_then(|matches| CommandLine::from_arg_matches(&matches));
    if let Err(error) = allowed(checked, &line) {
        eprintln!("error: {error}");
        return ExitCode::from(USAGE);
    }
    let status = print::finish(match line {
        Ok(line) => {
            let opens_gpus = match &line.command {
                Command::Worker(_) => true,
                #[cfg(feature = "bench")]
                Command::BenchWorker(command) => command.opens_gpus(),
                #[cfg(feature = "upkeep")]
                Command::Upkeep(command) => command.opens_gpus(),
                Command::TestGpu(command) => command.opens_gpus(),
                Command::Validate(command) => command.opens_gpus(),
                _ => false,
            };
            if opens_gpus {
                // These may use GPUs in this process. The others start processes first, which are to find the environment as the user has set it.
                // SAFETY: this thread is the only one yet.
                unsafe { gpus::prepare_process() };
            }
            let ended = Shell::new().map_err(anyhow::Error::from).and_then(|sh| run(line.command, &registry, &sh));
            journal::yield_to_signal();
            ended.unwrap_or_else(|error| {
                eprintln!("error: {error:#}");
                torchelastic::report_failure(&format!("{error:#}"));
                ExitCode::from(USAGE)
            })
        }
        Err(error) => told(&error),
    });
    result_file::let_go();
    status
}

/// The registry that has passmuster's kernels, for what is of this repository whichever registry the command has.
#[cfg(any(feature = "upkeep", all(test, feature = "kernels")))]
fn built_in() -> Registry {
    passmuster_harness::registry(passmuster_kernels::catalogue())
}

/// What is wrong with the registry, but where nobody needs one: `compile` writes the PTX that a module may lack, and help explains that.
fn allowed(checked: Result<(), RegistryError>, line: &Result<CommandLine, clap::Error>) -> Result<(), RegistryError> {
    match line {
        Ok(CommandLine { command: Command::Compile(_) | Command::Completions(_) }) => Ok(()),
        Err(said) if !said.use_stderr() => Ok(()),
        _ => checked,
    }
}

/// Prints help, a version or what is wrong with the command line.
fn told(said: &clap::Error) -> ExitCode {
    if said.use_stderr() {
        // Quiet where nobody reads it.
        let _ = said.print();
        return ExitCode::from(USAGE);
    }
    let text = said.render();
    if std::io::stdout().is_terminal() {
        print::styled(text.ansi())
    } else {
        print!("{text}")
    }
    ExitCode::SUCCESS
}

fn run(command: Command, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
    match command {
        Command::Validate(command) => command.run(registry, sh),
        Command::TestGpu(command) => command.run(registry, sh),
        #[cfg(feature = "bench")]
        Command::Bench(command) => command.run(registry, sh),
        #[cfg(feature = "bench")]
        Command::Report(command) => command.run(),
        Command::RevealOrder(command) => command.run(registry),
        #[cfg(feature = "bench")]
        Command::Choose(command) => command.run(registry),
        Command::Inspect(command) => command.run(),
        Command::Mutants(command) => command.run(registry, sh),
        Command::Soak(command) => command.run(registry, sh),
        Command::Museum(command) => command.run(registry, sh),
        Command::Peers(command) => command.run(registry, sh),
        Command::Check(command) => command.run(registry, sh),
        Command::Worker(command) => command.run(registry),
        #[cfg(feature = "bench")]
        Command::BenchWorker(command) => command.run(registry),
        Command::Compile(command) => command.run(sh),
        Command::Completions(command) => command.run(CommandLine::command().name("passmuster")),
        #[cfg(feature = "upkeep")]
        Command::Upkeep(command) => command.run(registry, sh),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// If this fails, a command for the developers of passmuster is among those of its users, or the other way round.
    #[test]
    fn upkeep_is_a_feature() {
        let of_users = CommandLine::command();
        let names: Vec<&str> = of_users.get_subcommands().map(clap::Command::get_name).collect();
        for name in ["bundle", "docs", "kernels", "ledger", "records", "tune"] {
            assert_eq!(names.contains(&name), cfg!(feature = "upkeep"), "{name}: {names:?}");
        }
        for name in ["compile", "inspect", "museum", "mutants", "peers", "reveal-order", "soak", "test-gpu", "validate"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        for name in ["bench", "choose", "report"] {
            assert_eq!(names.contains(&name), cfg!(feature = "bench"), "{name}: {names:?}");
        }
    }

    /// If this fails, a new kernel cannot be compiled, since its crate embeds PTX that is still empty; or a command goes on without the algorithms.
    #[rstest]
    #[case("passmuster compile mine.cu", true)]
    #[case("passmuster --help", true)]
    #[case("passmuster validate --help", true)]
    #[case("passmuster validate smoke", false)]
    #[case("passmuster compile", false)]
    fn only_compile_and_help_need_no_registry(#[case] line: &str, #[case] goes_on: bool) {
        let refused = Err(RegistryError::NoEntry { module: "all_reduce/mine" });
        let line = CommandLine::try_parse_from(line.split(' '));
        assert_eq!(allowed(refused.clone(), &line), if goes_on { Ok(()) } else { refused });
    }
}
