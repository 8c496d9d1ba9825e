//! `cargo xtask test`: what CI runs.

use std::{
    env, fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    thread,
    time::Instant,
};

use xshell::{Cmd, Shell, cmd};

/// What `cargo xtask test --help` says.
pub const HELP: &str = "\
Everything that needs no GPU: formatting, lints, tests (of ranks that MPI starts where there is one), documentation examples, PTX drift, generated documents, tidiness, archives.

Runs the steps in this order and stops at the first that fails, with exit status 1. Tests run under cargo-nextest where it is
installed. CI runs this command and nothing else (.ci/run).

Some things take so long that a part of them has to do before a push. Of the PTX, an eighth is compiled anew, another eighth for each
commit; of the rest the sources' hashes are compared. Of some tests a fourth to a sixteenth of the cases runs under nextest, another part
for each commit, and those that .config/nextest.toml calls long do not run.

Usage: cargo xtask test [--all]

Options:
  --all  the long tests, too, and all PTX is compiled: before a release

Examples:
  cargo xtask test                 before every push
  CI=true cargo xtask test         as CI does: NVRTC must be there";

/// Bytes that one tracked file may have: the record of the merge list has some 150 for each of its 19,000 cases.
const MAX_FILE: u64 = 3 << 20;
/// Bytes that kernels/ptx/ may have.
const MAX_PTX: u64 = 26 << 20;

/// Bytes that the archive of a crate may have: what crates.io takes.
const MAX_ARCHIVE: u64 = 10 << 20;

/// Exit status where a step fails.
const FINDING: u8 = 1;

/// One of how many parts of the PTX is compiled for each commit.
const PTX_PARTS: u32 = 8;

/// Tests of which some cases are each commit's turn, as last digits of their numbers: of many algorithms, worlds or kernels, each for some seconds.
const TURNS: [&str; 4] = ["159", "260", "37", "48"];

/// Under one of these names crates/bench/tests/browser.rs looks for a browser.
const BROWSERS: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];

/// How much is tested.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// What a push wants.
    Usual,
    /// The long tests and all PTX as well.
    All,
}

/// Runs every step until one fails, and says how each ended.
///
/// # Errors
/// Where this program cannot tell where it lies.
pub fn run(sh: &Shell, extent: Extent) -> anyhow::Result<ExitCode> {
    // Built with the tests, for the steps that follow them; cargo puts it beside this binary.
    let passmuster = env::current_exe()?.with_file_name("passmuster");
    let nextest = cmd!(sh, "cargo nextest --version").quiet().ignore_stdout().ignore_stderr().run().is_ok();
    // Ranks that MPI starts are tested where there is one to compile with. The doc tests have the same features, so that the library is not built again for them.
    let has_mpi = cmd!(sh, "mpicc --version").quiet().ignore_stdout().ignore_stderr().run().is_ok();
    let features: &[&str] = if has_mpi { &["--features", "passmuster-cli/mpi"] } else { &[] };
    let has_browser = BROWSERS.iter().any(|name| cmd!(sh, "{name} --version").quiet().ignore_stdout().ignore_stderr().run().is_ok());
    let number = number_of_commit(sh);
    let (tests_of_it, part) = match (extent, number) {
        (Extent::Usual, Some(number)) => {
            (tests_of_turn(number), vec!["--part".to_owned(), format!("{}/{PTX_PARTS}", number % PTX_PARTS + 1)])
        }
        (Extent::Usual, None) | (Extent::All, _) => (vec!["--ignore-default-filter".into()], vec![]),
    };
    // Two for each core and one more: .config/nextest.toml has how many each test takes.
    let threads = (2 * thread::available_parallelism().map_or(1, usize::from) + 1).to_string();
    let tests = match nextest {
        true => cmd!(
            sh,
            "cargo nextest run --workspace {features...} --no-fail-fast --profile commit --test-threads {threads} {tests_of_it...}"
        ),
        false => cmd!(sh, "cargo test --workspace {features...} --all-targets"),
    };
    let tests = match number.filter(|_| extent == Extent::Usual) {
        Some(number) => tests.env("PASSMUSTER_TURN", number.to_string()),
        None => tests.env_remove("PASSMUSTER_TURN"),
    };
    let target = env::current_exe()?.with_file_name("..");
    let passed = step("formatting", || succeeds(cmd!(sh, "cargo fmt --all --check")))
        && step("lints", || succeeds(cmd!(sh, "cargo clippy --workspace --all-targets -- -D warnings")))
        && step("tests", || succeeds(tests))
        && step("documentation examples", || succeeds(cmd!(sh, "cargo test --workspace {features...} --doc")))
        && step("PTX drift", || succeeds(cmd!(sh, "{passmuster} kernels --check {part...}")))
        && step("PTX drift of the own kernel", || succeeds(cmd!(sh, "{passmuster} compile --check examples/own_kernel/kernels/mine.cu")))
        && step("generated parts of documents", || succeeds(cmd!(sh, "{passmuster} docs --check")))
        && step("figures of stale records are marked", || succeeds(cmd!(sh, "{passmuster} records --check")))
        && step("tidiness", || tidy(sh))
        && step("archives", || packs(sh, &target));
    if !has_mpi {
        say("\nnot tested: ranks that mpirun starts, for there is no mpicc");
    }
    if !has_browser {
        say("\nnot tested: the report's page on a screen, for there is no headless browser");
    }
    if nextest && extent == Extent::Usual {
        say(
            "\nnot run: long tests, cases that are another commit's turn, and compiling most of the PTX: `cargo xtask test --all` does all",
        );
    }
    say(if passed { "\nall steps passed; nothing here ran on a GPU: that is `cargo xtask test-gpu`" } else { "\nFAILED" });
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(FINDING) })
}

/// A number by which commits take turns: that of its hash. None outside a repository, where all is tested.
fn number_of_commit(sh: &Shell) -> Option<u32> {
    let commit = cmd!(sh, "git rev-parse --short=8 HEAD").quiet().ignore_stderr().read().ok()?;
    u32::from_str_radix(commit.get(..8)?, 16).ok()
}

/// Options of nextest for the usual tests and the cases whose turn it is.
fn tests_of_turn(number: u32) -> Vec<String> {
    let last = TURNS[number as usize % TURNS.len()];
    let turn = format!(
        "default() | binary(emulator) & test(/^multimem_passes::.*::world_[{last}]_/) \
         | binary(foreign) & test(/^examples_of_other_collectives_pass.*::case_[0-9]?[{last}]_/) \
         | binary(foreign) & test(/^examples_pass_their_smoke_lists::name_[{last}]_/)"
    );
    ["--ignore-default-filter", "-E", &turn].map(str::to_owned).to_vec()
}

/// Prints a line. Whether anybody reads it changes nothing.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn step(name: &str, run: impl FnOnce() -> anyhow::Result<bool>) -> bool {
    say(&format!("\n==> {name}"));
    let start = Instant::now();
    // A step that cannot be done has not passed.
    let passed = run().unwrap_or_else(|error| {
        say(&format!("error: {error:#}"));
        false
    });
    say(&format!("==> {name}: {} ({:.1} s)", if passed { "ok" } else { "FAILED" }, start.elapsed().as_secs_f64()));
    passed
}

/// Whether a command exits 0. Its output goes to the terminal.
fn succeeds(command: Cmd<'_>) -> anyhow::Result<bool> {
    say(&format!("$ {command}"));
    let status = std::process::Command::from(command.quiet().ignore_status()).stdin(std::process::Stdio::null()).status()?;
    Ok(status.success())
}

/// Sizes of tracked files, and no path of somebody's machine in them.
fn tidy(sh: &Shell) -> anyhow::Result<bool> {
    let mut complaints = Vec::new();
    let mut ptx_bytes = 0;
    for path in cmd!(sh, "git ls-files -z").quiet().read()?.split('\0').filter(|path| !path.is_empty()) {
        // A tracked file that is deleted and not yet committed has nothing to complain about.
        let Ok(bytes) = fs::read(sh.current_dir().join(path)) else { continue };
        let size = bytes.len() as u64;
        if size > MAX_FILE {
            complaints.push(format!("{path} has {size} bytes, a file may have {MAX_FILE}"));
        }
        if path.starts_with("kernels/ptx/") {
            ptx_bytes += size;
        }
        if let Ok(text) = std::str::from_utf8(&bytes) {
            complaints.extend(home_path(text).map(|line| format!("{path}:{line} has an absolute path of somebody's machine")));
        }
    }
    if ptx_bytes > MAX_PTX {
        complaints.push(format!("kernels/ptx has {ptx_bytes} bytes, it may have {MAX_PTX}: fewer entries, or more of them generic"));
    }
    for complaint in &complaints {
        say(complaint);
    }
    say(&format!("kernels/ptx: {ptx_bytes} of {MAX_PTX} bytes"));
    Ok(complaints.is_empty())
}

/// Whether every crate that is for others packs, and its archive is small enough.
fn packs(sh: &Shell, target: &Path) -> anyhow::Result<bool> {
    let archives = target.join("package");
    // Those of another version would be looked at, too.
    sh.remove_path(&archives)?;
    if !succeeds(cmd!(
        sh,
        "cargo package --workspace --exclude xtask --exclude own_kernel --no-verify --allow-dirty --target-dir {target}"
    ))? {
        return Ok(false);
    }
    let mut small = true;
    for path in sh.read_dir(&archives)?.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "crate")) {
        let (name, size) = (path.file_name().unwrap_or_default().display(), fs::metadata(&path)?.len());
        say(&format!("{name}: {size} of {MAX_ARCHIVE} bytes"));
        small &= size <= MAX_ARCHIVE;
    }
    Ok(small)
}

/// The first line, counted from 1, with a path in a home directory.
fn home_path(text: &str) -> Option<usize> {
    // In two pieces, or this file would complain of itself.
    const HOMES: [&str; 3] = [concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/ro", "ot/")];
    let starts_a_path = |line: &str, home: &str| {
        line.match_indices(home).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + home.len()..].chars().next();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '.' || c == '_' || c == '}') && after.is_some_and(char::is_alphanumeric)
        })
    };
    text.lines().position(|line| HOMES.iter().any(|home| starts_a_path(line, home))).map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, cases whose numbers end with a digit are never any commit's turn, or are several's.
    #[test]
    fn every_case_has_one_turn() {
        let mut digits: Vec<char> = TURNS.concat().chars().collect();
        digits.sort_unstable();
        assert_eq!(digits, ('0'..='9').collect::<Vec<_>>());
    }

    #[test]
    fn home_paths_are_seen_and_addresses_are_not() {
        let home = concat!("/ho", "me/");
        assert_eq!(home_path(&format!("a\nread {home}someone/passmuster/x.cu")), Some(2));
        assert_eq!(home_path(&format!("include_str!(\"{home}someone\")")), Some(1));
        assert_eq!(home_path(&format!("https://example.org{home}page and {home}$USER")), None);
    }
}
