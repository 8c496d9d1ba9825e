//! Whether this machine can build for a target, and the build.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::Deserialize;
use xshell::{Shell, cmd};

/// The target of programs that rustc makes when nobody names one.
pub(super) fn host(sh: &Shell) -> anyhow::Result<String> {
    let version = cmd!(sh, "rustc --version --verbose").quiet().read()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc --version --verbose` names no host")?.to_owned())
}

/// What this machine lacks to build for a target, with the way to get it.
pub(super) fn missing(sh: &Shell, host: &str, target: &str) -> anyhow::Result<Vec<String>> {
    let mut missing = Vec::new();
    let libraries = cmd!(sh, "rustc --print target-libdir --target {target}").quiet().read()?;
    if !Path::new(&libraries).is_dir() {
        missing.push(format!("its standard library is not installed (`rustup target add {target}`)"));
    }
    // Without one of its own for the target, cargo calls the host's, which cannot link for another processor.
    if target != host && env::var_os(linker_variable(target)).is_none() && !is_on_path(&cross_linker(target)) {
        let linker = cross_linker(target);
        missing.push(format!("its linker is not on PATH (`{linker}`; in Debian and Ubuntu the package is `{}`)", package(target)));
    }
    Ok(missing)
}

/// Builds the binary, stripped, and returns where it lies.
pub(super) fn build(sh: &Shell, target: &str) -> anyhow::Result<PathBuf> {
    let variable = linker_variable(target);
    let linker = env::var(&variable).ok().or_else(|| (target != host(sh).ok()?).then(|| cross_linker(target)));
    let _linker = linker.map(|linker| sh.push_env(&variable, linker));
    cmd!(sh, "cargo build --locked --profile dist --package passmuster --bin passmuster --target {target}").run()?;
    Ok(target_directory(sh)?.join(target).join("dist/passmuster"))
}

/// The variable by which cargo takes a linker for a target.
fn linker_variable(target: &str) -> String {
    format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"))
}

/// The compiler of C that Debian and others have for a target.
fn cross_linker(target: &str) -> String {
    format!("{}-gcc", target.replace("-unknown", ""))
}

/// Debian's package with [that compiler](cross_linker).
fn package(target: &str) -> String {
    format!("gcc-{}", target.replace("-unknown", "").replace('_', "-"))
}

fn is_on_path(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

fn target_directory(sh: &Shell) -> anyhow::Result<PathBuf> {
    #[derive(Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let metadata = cmd!(sh, "cargo metadata --format-version 1 --no-deps --locked").quiet().read()?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("cannot read what `cargo metadata` says")?;
    Ok(metadata.target_directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, cargo calls another linker than the one that was looked for.
    #[test]
    fn linkers_have_their_names() {
        let target = "aarch64-unknown-linux-gnu";
        assert_eq!(linker_variable(target), "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER");
        assert_eq!(cross_linker(target), "aarch64-linux-gnu-gcc");
        assert_eq!(package("x86_64-unknown-linux-gnu"), "gcc-x86-64-linux-gnu");
    }

    /// If this fails, a target that cannot be built for fails after minutes of building, or the host is left out.
    #[test]
    fn missing_library_is_named() {
        let sh = Shell::new().unwrap();
        let host = host(&sh).unwrap();
        assert_eq!(missing(&sh, &host, &host).unwrap(), [""; 0]);
        // A target of rustc's for which nobody ships a standard library.
        let bare = missing(&sh, &host, "aarch64_be-unknown-linux-gnu").unwrap();
        assert!(bare[0].contains("rustup target add"), "{bare:?}");
    }
}
