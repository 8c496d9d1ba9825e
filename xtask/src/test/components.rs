//! What a machine has of what some tests need. Each is tried whole before tests rely on it, and what is missing is named once.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use xshell::{Shell, cmd};

/// The variable by which `crates/bench/tests/browser.rs` learns which browser to use; empty if there is none.
pub(super) const BROWSER: &str = "PASSMUSTER_BROWSER";

/// Names under which a headless Chromium is installed.
const BROWSERS: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// The features that tests are built with where there is an MPI.
const WITH_MPI: [&str; 2] = ["--features", "passmuster/upkeep,passmuster/mpi"];

/// What a machine has.
#[derive(Debug, Default)]
pub(super) struct Components {
    /// cargo-nextest, which filters tests and runs more of them at once.
    pub(super) nextest: bool,
    pub(super) rustfmt: bool,
    pub(super) clippy: bool,
    /// An MPI that compiles, by bindings that libclang makes, and starts ranks.
    pub(super) mpi: bool,
    /// A browser that shows a page.
    pub(super) browser: Option<PathBuf>,
    /// What is missing, and what is not tested for it.
    pub(super) missing: Vec<String>,
}

impl Components {
    /// Tries each of them. `with_mpi` and `with_browser` say which of the costly ones are wanted.
    pub(super) fn of_this_machine(sh: &Shell, target: &Path, with_mpi: bool, with_browser: bool) -> Components {
        let has = |command: &str| {
            let words = command.split(' ');
            let (program, arguments) = (words.clone().next().unwrap_or_default(), words.skip(1));
            cmd!(sh, "{program} {arguments...}").quiet().ignore_stdout().ignore_stderr().run().is_ok()
        };
        let mut found = Components {
            nextest: has("cargo nextest --version"),
            rustfmt: has("cargo fmt --version"),
            clippy: has("cargo clippy --version"),
            ..Components::default()
        };
        if !found.nextest {
            found.missing.push("cargo-nextest is not installed: `cargo test` ran every test in its place, in more time".into());
        }
        if !found.rustfmt {
            found.missing.push("formatting was not checked: rustup component add rustfmt".into());
        }
        if !found.clippy {
            found.missing.push("lints were not checked: rustup component add clippy".into());
        }
        if with_mpi {
            match mpi(sh, target, has("mpicc -show"), has("mpirun --version")) {
                Ok(()) => found.mpi = true,
                Err(why) => found.missing.push(format!("ranks that mpirun starts were not tested: {why}")),
            }
        }
        if with_browser {
            match browser(sh) {
                Ok(path) => found.browser = Some(path),
                Err(why) => found.missing.push(format!("the report's page was not tested in a browser: {why}")),
            }
        }
        found
    }

    /// cargo's arguments for the features that tests are built with, of those that this machine can build.
    pub(super) fn features(&self) -> &'static [&'static str] {
        if self.mpi { &WITH_MPI } else { &["--features", "passmuster/upkeep"] }
    }

    /// The same for the command that users install, which has no upkeep.
    pub(super) fn features_of_users(&self) -> &'static [&'static str] {
        if self.mpi { &["--features", "passmuster/mpi"] } else { &[] }
    }
}

/// Whether the bindings to MPI build here, which takes a compiler wrapper, libclang and headers that it understands. The tests use what is built for this.
fn mpi(sh: &Shell, target: &Path, has_mpicc: bool, has_mpirun: bool) -> Result<(), String> {
    if !has_mpicc {
        return Err("there is no mpicc".into());
    }
    if !has_mpirun {
        return Err("there is an mpicc and no mpirun".into());
    }
    forget_other(sh, target)?;
    // All packages, so that cargo chooses the same features of what they depend on as for the tests.
    let build = cmd!(sh, "cargo test --workspace {WITH_MPI...} --test mpi --no-run");
    let output = outcome(&mut Command::from(build.quiet()))?;
    if output.status.success() { Ok(()) } else { why_not(&String::from_utf8_lossy(&output.stderr)).map_or(Ok(()), Err) }
}

/// Has cargo build the bindings again if this is another MPI than before: their build script does not ask which one it is.
fn forget_other(sh: &Shell, target: &Path) -> Result<(), String> {
    let text = |error: xshell::Error| error.to_string();
    let (stamp, shown) = (target.join("mpi-of-tests"), cmd!(sh, "mpicc -show").quiet().ignore_stderr().read().map_err(text)?);
    if sh.read_file(&stamp).is_ok_and(|before| before == shown) {
        return Ok(());
    }
    cmd!(sh, "cargo clean --quiet --package mpi --package mpi-sys").quiet().ignore_stderr().run().map_err(text)?;
    sh.write_file(&stamp, shown).map_err(text)
}

/// What the machine lacks of what cargo could not build the bindings without. None if something else failed: then the tests fail by it, too, and say so.
fn why_not(errors: &str) -> Option<String> {
    let of_bindings =
        ["failed to run custom build command for `mpi-sys", "could not compile `mpi", "failed to run custom build command for `clang-sys"];
    let is_of_linker = errors.contains("linking with `") && errors.contains("mpi");
    if !is_of_linker && !of_bindings.iter().any(|start| errors.contains(start)) {
        return None;
    }
    let reason = errors.lines().map(str::trim).find(|line| {
        line.starts_with("Unable to find libclang")
            || line.contains("fatal error:")
            || line.contains("undefined reference")
            || line.contains("cannot find -l")
    });
    Some(match reason {
        Some(line) if line.starts_with("Unable to find libclang") => {
            "there is an mpicc and no libclang, which makes the bindings to MPI".into()
        }
        Some(line) => format!("the bindings to the MPI of this mpicc do not build: {line}"),
        None => "the bindings to the MPI of this mpicc do not build: cargo test -p passmuster-bootstrap --features mpi --test mpi says why"
            .into(),
    })
}

/// The first browser that shows a page.
fn browser(sh: &Shell) -> Result<PathBuf, String> {
    let mut broken = None;
    for name in BROWSERS {
        let Some(path) = on_path(sh, name) else { continue };
        let home = std::env::temp_dir().join(format!("passmuster-probe-{}", std::process::id()));
        let mut command = Command::new(&path);
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--dump-dom", "data:text/html,<p>shown</p>"])
            .arg(format!("--user-data-dir={}", home.display()))
            .env("HOME", &home);
        let shown = outcome(&mut command).is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("<p>shown</p>"));
        let _ = std::fs::remove_dir_all(home);
        if shown {
            return Ok(path);
        }
        broken.get_or_insert(path);
    }
    Err(match broken {
        Some(path) => format!("{} shows no page", path.display()),
        None => format!("none of {} is on the path", BROWSERS.join(", ")),
    })
}

fn on_path(sh: &Shell, name: &str) -> Option<PathBuf> {
    let path = sh.var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn outcome(command: &mut Command) -> Result<Output, String> {
    command.stdin(Stdio::null()).output().map_err(|error| format!("{} does not start: {error}", command.get_program().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_libclang_is_named() {
        let errors = "error: failed to run custom build command for `mpi-sys v0.2.4`\n  --- stderr\n  thread 'main' panicked at lib.rs:616:27:\n  \
                      Unable to find libclang: \"couldn't find any valid shared libraries matching: ['libclang.so']\"";
        assert!(why_not(errors).unwrap().contains("no libclang"));
    }

    #[test]
    fn missing_headers_are_named() {
        let errors = "error: failed to run custom build command for `mpi-sys v0.2.4`\n  /usr/include/mpi.h:10:10: fatal error: 'stddef.h' file not found";
        assert!(why_not(errors).unwrap().contains("'stddef.h' file not found"));
    }

    /// If this fails, code of ours that does not compile with MPI is a machine that has none.
    #[test]
    fn errors_of_ours_are_no_lack() {
        assert_eq!(
            why_not("error[E0425]: cannot find value `x`\nerror: could not compile `passmuster-bootstrap` (lib) due to 1 previous error"),
            None
        );
    }
}
