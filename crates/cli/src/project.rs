//! Where this binary stands: called by cargo in a checkout, or carried to a machine that has neither.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::Context;
use passmuster_harness::conformance::report::Source;
use passmuster_plan::library::Library;
use xshell::{Shell, cmd};
use xxhash_rust::xxh3::Xxh3;

/// What people type before a command's name: `cargo xtask` here, `cargo run` in a crate of one's own, or the program as it was called, by its path or by a name
/// on `PATH`. A line that begins with it works where it was printed.
pub(crate) fn invocation() -> String {
    by_cargo().map_or_else(|| called(env::args_os().next()), str::to_owned)
}

/// The same for help and for records, which name no path of this machine.
pub(crate) fn name() -> &'static str {
    by_cargo().unwrap_or("passmuster")
}

fn by_cargo() -> Option<&'static str> {
    run_by_cargo().then(|| if source_tree().is_some() { "cargo xtask" } else { "cargo run --release --" })
}

/// A program as a shell takes it.
fn called(program: Option<OsString>) -> String {
    program.map_or_else(|| "passmuster".into(), |program| quoted(&program.to_string_lossy()))
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Goes to the root of the source tree and returns it.
///
/// # Errors
/// Outside a checkout, where a command that needs the sources cannot work.
pub(crate) fn enter(sh: &Shell) -> anyhow::Result<PathBuf> {
    let root = source_tree().context("this command needs passmuster's source tree: run it in a checkout, as `cargo xtask ...`")?;
    sh.change_dir(&root);
    Ok(root)
}

/// The commit this binary is built from and the PTX it carries, for records, which say themselves which kernels they rest on. A bundle knows its commit from the time it was built.
pub(crate) fn source(sh: &Shell, library: &Library) -> Source {
    let baked = option_env!("PASSMUSTER_COMMIT").map(|commit| (commit.to_owned(), option_env!("PASSMUSTER_DIRTY") == Some("true")));
    let (commit, dirty) = baked.or_else(|| commit(sh).ok()).unwrap_or_else(|| ("unknown".into(), true));
    let binary = (dirty || commit == "unknown").then(binary).flatten();
    Source { commit, dirty, binary, ptx_hash: library.ptx_hash(), modules: BTreeMap::new() }
}

/// A hash of this binary.
fn binary() -> Option<String> {
    let mut file = File::open(env::current_exe().ok()?).ok()?;
    let (mut hash, mut piece) = (Xxh3::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut piece).ok()? {
            0 => return Some(format!("xxh3:{:016x}", hash.digest())),
            bytes => hash.update(&piece[..bytes]),
        }
    }
}

/// What the GPUs are set to, for records: power limit, clocks and reasons for throttling, where nvidia-smi tells.
pub(crate) fn gpu_settings(sh: &Shell) -> Option<(String, String)> {
    let query = "power.limit,clocks.sm,clocks.max.sm,clocks.mem,clocks_event_reasons.active";
    let answer = cmd!(sh, "nvidia-smi --query-gpu={query} --format=csv,noheader").quiet().ignore_stderr().read().ok()?;
    Some((query.into(), answer.lines().collect::<Vec<_>>().join("; ")))
}

/// The checkout's commit, and whether tracked files differ from it.
pub(crate) fn commit(sh: &Shell) -> anyhow::Result<(String, bool)> {
    let _in_root = sh.push_dir(source_tree().context("not in a checkout")?);
    let commit = cmd!(sh, "git rev-parse HEAD").quiet().ignore_stderr().read()?;
    let changes = cmd!(sh, "git status --porcelain --untracked-files=no").quiet().ignore_stderr().read()?;
    Ok((commit, !changes.is_empty()))
}

fn run_by_cargo() -> bool {
    env::var_os("CARGO_MANIFEST_DIR").is_some() && env::var_os("CARGO").is_some()
}

/// The checkout that cargo runs us in, or the one around the current folder. Never the folder of the build: a bundle is carried away.
pub(crate) fn source_tree() -> Option<PathBuf> {
    let start = match env::var_os("CARGO_MANIFEST_DIR") {
        Some(manifest) => PathBuf::from(manifest),
        None => env::current_dir().ok()?,
    };
    let is_root = |dir: &&Path| dir.join("crates/cli/cuda-requirements.txt").is_file() && dir.join("kernels").is_dir();
    start.ancestors().find(is_root).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a line that reports print to reproduce a finding does not work in the shell that it was printed in.
    #[test]
    fn lines_begin_with_the_program_as_it_was_called() {
        let called = |program: &str| called(Some(program.into()));
        assert_eq!((&*called("passmuster"), &*called("./passmuster")), ("passmuster", "./passmuster"));
        assert_eq!((&*called("../bin/pm"), &*called("/opt/a b/passmuster")), ("../bin/pm", "'/opt/a b/passmuster'"));
        assert_eq!(super::called(None), "passmuster");
    }
}
