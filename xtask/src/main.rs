//! `cargo xtask`: tests the workspace, packs releases, and builds and starts `passmuster` for everything else.
//!
//! It takes next to nothing to build, so that `cargo xtask test` starts at once; passmuster is built in release, where emulation is fast.

#![forbid(unsafe_code)]

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

use xshell::Shell;
use xtask::{dist, judge_mutants, test};

/// Exit status of wrong usage, and of a command that failed by itself.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let done = match arguments.first().and_then(|command| command.to_str()) {
        Some("test") => tested(&arguments[1..]),
        Some("judge-mutants") => judge_mutants(&arguments[1..]),
        Some("dist") => dist(&arguments[1..]),
        _ => passmuster(&arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(USAGE)
    })
}

fn tested(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let arguments = texts(arguments);
    let Some(options) = test::Options::of(&arguments.iter().map(String::as_str).collect::<Vec<_>>())? else {
        println!("{}", test::HELP);
        return Ok(ExitCode::SUCCESS);
    };
    test::run(&shell()?, &options)
}

fn dist(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let arguments = texts(arguments);
    let Some(options) = dist::Options::of(&arguments.iter().map(String::as_str).collect::<Vec<_>>())? else {
        println!("{}", dist::HELP);
        return Ok(ExitCode::SUCCESS);
    };
    dist::run(&shell()?, &options)
}

fn judge_mutants(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{}", judge_mutants::HELP);
        return Ok(ExitCode::SUCCESS);
    }
    judge_mutants::run(&shell()?, arguments)
}

fn texts(arguments: &[OsString]) -> Vec<String> {
    arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// In the root of the repository.
fn shell() -> anyhow::Result<Shell> {
    let sh = Shell::new()?;
    sh.change_dir(root());
    Ok(sh)
}

/// Becomes cargo, which becomes passmuster: signals and the exit status need nobody in between.
fn passmuster(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let target = env::current_exe()?.with_file_name("..");
    let is_built = |profile: &str| target.join(profile).join("passmuster").is_file();
    let quick = is_first_look(arguments) && !is_built("release");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--package", "passmuster", "--bin", "passmuster", "--manifest-path"]).arg(root().join("Cargo.toml"));
    let (profile, features) = if quick { ("quick", &QUICK[..]) } else { ("release", &UPKEEP[..]) };
    cargo.args(["--profile", profile]).args(features);
    if is_built(profile) {
        // The first build takes minutes and shows what it does.
        cargo.arg("--quiet");
    }
    Err(cargo.arg("--").args(arguments).exec().into())
}

/// What passmuster has for `cargo xtask` beside the commands of its users.
const UPKEEP: [&str; 2] = ["--features", "upkeep"];

/// What of passmuster is built for a first look: neither plots nor what opens GPUs.
const QUICK: [&str; 3] = ["--no-default-features", "--features", "cli,kernels"];

/// Whether it is `validate` on the emulator, of less than a whole merge list: what people run first, before anything is built. This build is there in half the
/// time, and runs cases a third slower.
fn is_first_look(arguments: &[OsString]) -> bool {
    let is_validate = arguments.first().is_some_and(|command| command == "validate");
    let takes_more = |argument: &OsString| argument == "merge" || argument.to_string_lossy().contains("cuda");
    is_validate && !arguments.iter().any(takes_more)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_look_is_validate_on_the_emulator() {
        let is = |line: &str| is_first_look(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(is("validate") && is("validate smoke") && is("validate --help") && is("validate --spec mine.toml"));
        assert!(!is("validate merge") && !is("validate --machine cuda") && !is("validate --machine=cuda") && !is("bench"));
    }
}
