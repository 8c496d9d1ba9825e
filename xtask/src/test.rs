//! `cargo xtask test`: what CI runs, and what a change can affect.

pub mod affected;
pub mod changes;
mod components;
mod python;
mod tree;

use std::{
    env, fs,
    io::{self, Write},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    thread,
    time::Instant,
};

use anyhow::bail;
use xshell::{Cmd, Shell, cmd};

use self::{
    affected::{Selection, Step, select},
    changes::Change,
    components::{BROWSER, Components},
};

/// What `cargo xtask test --help` says.
pub const HELP: &str = "\
Run what a change can affect: formatting, lints, tests, documentation examples, the Python package, PTX drift, generated documents, records, tidiness, archives,
licences. No GPU is needed.

The change is what differs from the merge base with origin/main, or with main if there is no such branch: commits, edits and new files. A map from paths to
tests and steps (xtask/src/test/affected.rs) says what that can affect. Everything runs if the base is unknown, if nothing differs from it, or if the map does
not know a file. Nothing else decides: not the commit, the date or chance. The command ends with what it left out.

It stops at the first step that fails, with exit status 1. Tests run under cargo-nextest if it is installed; without it every test runs. A component that this
machine lacks (MPI, a browser, cargo-deny, ...) is named at the end.

Usage: cargo xtask test [--all | --base REV | --machine] [--list]

Options:
  --all          every test and every step, whatever has changed: what CI runs (.ci/run)
  --base REV     the change is what differs from the merge base with REV
  --list         print what would run, and run nothing (or --dry-run)
  --machine      only what depends on programs that are installed, the network and HOME: what .ci/environments runs

Examples:
  cargo xtask test                     before every push
  cargo xtask test --base HEAD~1       what the last commit can affect
  cargo xtask test --all               before a release
  CI=true cargo xtask test --all       as CI does: NVRTC, rustfmt and clippy must be there";

/// Exit status if a step fails.
const FINDING: u8 = 1;

/// Tests whose course depends on what is installed, on sockets, or on HOME.
const OF_MACHINE: &str = "package(=passmuster-bootstrap) | package(=xtask) | package(=passmuster-bench) & binary(=browser) \
                          | package(=passmuster) & (binary(=launch) - test(/^faults_of_ranks/) | binary(=elsewhere) | binary(=peers))";

/// The test targets that those are in.
const TARGETS_OF_MACHINE: [&str; 10] =
    ["browser", "documents", "elsewhere", "frames", "launch", "layers", "mpi", "peers", "processes", "selection"];

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Everything, whatever has changed.
    pub all: bool,
    /// What the change is compared with.
    pub base: Option<String>,
    /// Print what would run.
    pub list: bool,
    /// Only what depends on the machine.
    pub machine: bool,
}

impl Options {
    /// Reads the arguments after `cargo xtask test`. None if they ask for help.
    ///
    /// # Errors
    /// On an argument that is unknown, lacks its value or contradicts another.
    pub fn of(arguments: &[&str]) -> anyhow::Result<Option<Options>> {
        let mut options = Options::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                "--help" | "-h" => return Ok(None),
                "--all" => options.all = true,
                "--list" | "--dry-run" => options.list = true,
                "--machine" => options.machine = true,
                "--base" => match arguments.next() {
                    Some(base) => options.base = Some((*base).to_owned()),
                    None => bail!("--base needs a revision: `cargo xtask test --base origin/main`"),
                },
                unknown => bail!("`cargo xtask test` takes no `{unknown}`: see `cargo xtask test --help`"),
            }
        }
        if options.all && (options.base.is_some() || options.machine) || options.machine && options.base.is_some() {
            bail!("--all, --base and --machine exclude each other");
        }
        Ok(Some(options))
    }
}

/// Runs the steps until one fails, and says how each ended and what was left out.
///
/// # Errors
/// If git does not know the base, or this program cannot tell where it lies.
pub fn run(sh: &Shell, options: &Options) -> anyhow::Result<ExitCode> {
    let (selection, changed) = selected(sh, options)?;
    describe(&selection, changed.as_ref());
    if options.list {
        list(&selection);
        return Ok(ExitCode::SUCCESS);
    }
    // Once: after that no step needs the network.
    if !step_passes("dependencies", &mut || succeeds(cmd!(sh, "cargo fetch --locked --quiet"))) {
        say("\nFAILED");
        return Ok(ExitCode::from(FINDING));
    }
    sh.set_var("CARGO_NET_OFFLINE", "true");
    // A narrow choice of tests needs neither, unless it says so.
    let needs = |targets: &[&str]| {
        let wants = |target: &&str| selection.targets.contains(&format!("--test={target}"));
        selection.steps.contains(&Step::Tests) && (selection.targets.is_empty() || targets.iter().any(wants))
    };
    let components = Components::of_this_machine(sh, &target()?, needs(&["launch", "mpi"]), needs(&["browser"]));
    let browser = components.browser.clone().unwrap_or_default();
    sh.set_var(BROWSER, browser);
    let mut gate = Gate { sh, selection: &selection, components: &components, missing: components.missing.clone() };
    let passed = selection.steps.iter().all(|&step| step_passes(&step.to_string(), &mut || gate.runs(step)));
    let missing = gate.missing;
    for missing in &missing {
        say(&format!("\nmissing here: {missing}"));
    }
    left_out(&selection);
    say(if passed { "\nall steps passed; nothing here ran on a GPU: that is `cargo xtask test-gpu`" } else { "\nFAILED" });
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(FINDING) })
}

/// What is to run, and the files that decide it, if files do.
fn selected(sh: &Shell, options: &Options) -> anyhow::Result<(Selection, Option<Change>)> {
    if options.all {
        return Ok((Selection::everything("--all"), None));
    }
    if options.machine {
        let steps = [Step::Tests, Step::Ptx, Step::Documents, Step::Archives].into();
        let filters = [OF_MACHINE.to_owned()].into();
        let targets = TARGETS_OF_MACHINE.map(|target| format!("--test={target}")).into();
        return Ok((
            Selection { everything: None, steps, filters, targets, compiled: ["kernels/conformance/".into()].into(), leaves: [].into() },
            None,
        ));
    }
    Ok(match changes::base(sh, options.base.as_deref())? {
        None => (Selection::everything("git knows no merge base with origin/main or main: --base REV names one"), None),
        Some(base) => {
            let changed = changes::changed(sh, &base)?;
            (select(&changed), Some(Change { base, files: changed }))
        }
    })
}

/// Says what was chosen, and by what.
fn describe(selection: &Selection, change: Option<&Change>) {
    if let Some(Change { base, files }) = change {
        say(&format!("{} files differ from {} ({:.12})", files.len(), base.name, base.commit));
    }
    match &selection.everything {
        Some(why) => say(&format!("everything runs: {why}")),
        None => say("what they can affect runs, by xtask/src/test/affected.rs"),
    }
}

/// Prints what would run.
fn list(selection: &Selection) {
    for step in &selection.steps {
        say(&format!("step   {step}"));
    }
    for filter in &selection.filters {
        say(&format!("tests  {filter}"));
    }
    for file in &selection.compiled {
        say(&format!("PTX    what is made from {file}"));
    }
    left_out(selection);
}

/// Says what does not run, and why.
fn left_out(selection: &Selection) {
    if selection.everything.is_some() {
        return;
    }
    let mut left: Vec<String> = selection.left_out().iter().map(Step::to_string).collect();
    if selection.steps.contains(&Step::Tests) {
        left.push(format!("tests other than `{}`", selection.filter()));
    }
    if !selection.compiled.is_empty() {
        left.push(format!(
            "compiling PTX other than what is made from {}",
            selection.compiled.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        ));
    }
    say(&format!("\nleft out, as nothing that changed can affect it: {}", left.join("; ")));
    for leaves in &selection.leaves {
        say(&format!("left out, though the change may affect it: {leaves}"));
    }
    say("`cargo xtask test --all` runs everything");
}

/// Runs steps.
struct Gate<'r> {
    sh: &'r Shell,
    selection: &'r Selection,
    components: &'r Components,
    /// What could not run for want of something.
    missing: Vec<String>,
}

impl Gate<'_> {
    fn runs(&mut self, step: Step) -> anyhow::Result<bool> {
        let (sh, features) = (self.sh, self.components.features());
        match step {
            Step::Formatting if self.components.rustfmt => succeeds(cmd!(sh, "cargo fmt --all --check")),
            Step::Lints if self.components.clippy => {
                let of_users = self.components.features_of_users();
                // The command that users install is built by nothing else here. With a test, so that cargo chooses the same features of what it depends on.
                Ok(succeeds(cmd!(sh, "cargo clippy --workspace --all-targets {features...} -- -D warnings"))?
                    && succeeds(cmd!(sh, "cargo clippy --workspace --bin passmuster --test require {of_users...} -- -D warnings"))?)
            }
            // Named as missing. CI must have them.
            Step::Formatting | Step::Lints => Ok(env::var_os("CI").is_none()),
            Step::Tests => self.tests(),
            Step::Examples => succeeds(cmd!(sh, "cargo test --workspace {features...} --doc")),
            Step::Ptx => {
                let passmuster = self.passmuster()?;
                let compiled = self.selection.compiled.iter().flat_map(|file| ["--made-from", file]);
                let (passed, lines) = observed(cmd!(sh, "{passmuster} kernels --check {compiled...}"))?;
                let not_run = lines.iter().filter_map(|line| line.strip_prefix("NotRun: "));
                self.missing.extend(not_run.map(|what| format!("not checked: {what}")));
                Ok(passed)
            }
            Step::OwnPtx => {
                let passmuster = self.passmuster()?;
                succeeds(cmd!(sh, "{passmuster} compile --check examples/own_kernel/kernels/mine.cu"))
            }
            Step::Documents => {
                let passmuster = self.passmuster()?;
                succeeds(cmd!(sh, "{passmuster} docs --check"))
            }
            Step::Records => {
                let passmuster = self.passmuster()?;
                succeeds(cmd!(sh, "{passmuster} records --check"))
            }
            Step::Python => self.python(),
            Step::Tidiness => tree::tidy(sh),
            Step::Archives => tree::packs(sh, &target()?),
            Step::Dependencies if cmd!(sh, "cargo deny --version").quiet().ignore_stdout().ignore_stderr().run().is_ok() => {
                // Advisories need the network: .github/workflows/test.yml checks them.
                succeeds(cmd!(sh, "cargo deny --offline check bans licenses sources"))
            }
            Step::Dependencies => {
                self.missing.push("licences and sources of dependencies were not checked: cargo install --locked cargo-deny".into());
                Ok(true)
            }
        }
    }

    fn tests(&self) -> anyhow::Result<bool> {
        let (sh, features) = (self.sh, self.components.features());
        if !self.components.nextest {
            return succeeds(cmd!(sh, "cargo test --workspace {features...} --all-targets"));
        }
        // Two for each core and one more: .config/nextest.toml has how many each test takes.
        let threads = (2 * thread::available_parallelism().map_or(1, usize::from) + 1).to_string();
        let filter = self.selection.filter();
        let filter: Vec<&str> = if filter.is_empty() { vec![] } else { vec!["-E", &filter] };
        // Without MPI there is no such target; that it was not tested is said at the end.
        let mut targets = self.selection.targets.clone();
        let was_narrow = !targets.is_empty();
        if !self.components.mpi {
            targets.remove("--test=mpi");
        }
        if was_narrow && targets.is_empty() {
            return Ok(true);
        }
        succeeds(cmd!(
            sh,
            "cargo nextest run --workspace {features...} {targets...} --no-fail-fast --no-tests fail --profile gate --test-threads {threads} {filter...}"
        ))
    }

    fn python(&mut self) -> anyhow::Result<bool> {
        match python::find(self.sh) {
            Ok(python) => python::passes(self.sh, python, &target()?),
            Err(why) => {
                self.missing.push(format!("the Python package was not tested: {why}"));
                // CI must have it.
                Ok(env::var_os("CI").is_none())
            }
        }
    }

    /// The command, built as for the tests.
    fn passmuster(&self) -> anyhow::Result<PathBuf> {
        let (sh, features) = (self.sh, self.components.features());
        // With a test and all packages, so that cargo chooses the same features of what they depend on as for the tests.
        cmd!(sh, "cargo build --quiet --workspace {features...} --bin passmuster --test require").quiet().run()?;
        Ok(target()?.join("debug/passmuster"))
    }
}

/// The folder of builds.
fn target() -> anyhow::Result<PathBuf> {
    // Cargo puts this binary into one of it.
    Ok(fs::canonicalize(env::current_exe()?.with_file_name(".."))?)
}

/// Prints a line. Whether anybody reads it changes nothing.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn step_passes(name: &str, run: &mut dyn FnMut() -> anyhow::Result<bool>) -> bool {
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
    let status = Command::from(command.quiet().ignore_status()).stdin(Stdio::null()).status()?;
    Ok(status.success())
}

/// Whether a command exits 0, and the lines that it printed, which go to the terminal once it has ended.
fn observed(command: Cmd<'_>) -> anyhow::Result<(bool, Vec<String>)> {
    say(&format!("$ {command}"));
    let output = Command::from(command.quiet().ignore_status()).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    lines.iter().for_each(|line| say(line));
    Ok((output.status.success(), lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let of = |line: &str| Options::of(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(of("").unwrap(), Some(Options::default()));
        assert_eq!(of("--base HEAD~1 --list").unwrap(), Some(Options { base: Some("HEAD~1".into()), list: true, ..Options::default() }));
        assert_eq!(of("--all --help").unwrap(), None);
        for wrong in ["--base", "--al", "--all --base main", "--machine --all"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    /// If this fails, `--all` leaves something out.
    #[test]
    fn all_is_everything() {
        let options = Options { all: true, ..Options::default() };
        let (selection, changed) = selected(&Shell::new().unwrap(), &options).unwrap();
        assert_eq!((selection.steps.len(), selection.filter(), changed), (Step::ALL.len(), String::new(), None));
        assert!(selection.targets.is_empty() && selection.compiled.is_empty() && selection.left_out().is_empty());
    }
}
