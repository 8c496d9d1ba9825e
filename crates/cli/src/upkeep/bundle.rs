//! `cargo xtask bundle`: one folder for a GPU machine without Rust.

use std::{
    fs,
    path::PathBuf,
    process::{ExitCode, Stdio},
};

use anyhow::{Context, bail};
use xshell::{Shell, cmd};

use crate::{EXIT_STATUSES, project};

/// Make a folder to carry to a GPU machine that has no Rust.
///
/// Builds this binary in release, stripped, with all kernels and mutants inside, and puts it into the folder as `passmuster` with a short README. There,
/// `./passmuster COMMAND` is what `cargo xtask COMMAND` is here. Commands that need the source tree say so.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Bundle {
    /// Folder to write. The default is target/bundle.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask bundle                       target/bundle/passmuster
  cargo xtask bundle --out /media/usb/pm
  scp -r target/bundle gpu-machine: && ssh gpu-machine bundle/passmuster --help";

/// Bytes that a bundle may have: what is commonly let through where machines are handed files.
const MAX_BYTES: u64 = 64 << 20;

const README: &str = "\
# passmuster, carried

`./passmuster --help` lists the commands. It is the same program as `cargo xtask` in the source tree, with all kernels inside; it needs
Linux on x86-64 with glibc 2.34 or newer, and for GPUs NVIDIA's driver and NCCL. Libraries are looked for when they are first used,
in the Python environment too.

    ./passmuster test-gpu            conformance on this machine's GPUs, against NCCL
    ./passmuster bench               times beside NCCL
    ./passmuster report RECORD       what a command has recorded, as tables, plots or a page
    ./passmuster ledger              the emulator's arithmetic against the GPU's

";

impl Bundle {
    pub(crate) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        // A relative folder is meant from where the command was typed, which is not where it works.
        let typed_in = sh.current_dir();
        let root = project::enter(sh)?;
        let out = self.out.map_or_else(|| root.join("target/bundle"), |out| typed_in.join(out));
        let built = build(sh)?;

        fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
        let binary = out.join("passmuster");
        // Copied beside and renamed: a binary that is being run there cannot be written to.
        let beside = out.join("passmuster.new");
        fs::copy(&built, &beside).with_context(|| format!("cannot write {}", beside.display()))?;
        fs::rename(&beside, &binary).with_context(|| format!("cannot write {}", binary.display()))?;
        let readme = format!("{README}{EXIT_STATUSES}\n");
        fs::write(out.join("README.md"), &readme)?;

        let bytes = fs::metadata(&binary)?.len();
        println!("{}: {:.1} MiB", binary.display(), bytes as f64 / (1 << 20) as f64);
        if bytes + readme.len() as u64 > MAX_BYTES {
            bail!("the bundle has {bytes} bytes, it may have {MAX_BYTES}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Builds the binary that knows its commit, and returns its path.
fn build(sh: &Shell) -> anyhow::Result<PathBuf> {
    let (commit, dirty) = project::commit(sh).unwrap_or_else(|_| ("unknown".into(), true));
    let command = cmd!(
        sh,
        "cargo build --profile dist --package passmuster --bin passmuster --features upkeep --message-format json-render-diagnostics"
    )
    .env("PASSMUSTER_COMMIT", commit)
    .env("PASSMUSTER_DIRTY", dirty.to_string());
    println!("$ {command}");
    let output = std::process::Command::from(command.quiet()).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("cargo build failed");
    }
    let messages = String::from_utf8(output.stdout)?;
    let executable = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact" && message["target"]["name"] == "passmuster")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    executable.context("cargo does not say where it put the binary")
}
