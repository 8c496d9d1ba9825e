//! `cargo xtask dist`: the files of a release.
//!
//! `build` says which targets this machine can build for, and builds. [`pack`] makes an archive of a binary, whatever built it. [`sbom`] lists the packages
//! that the binary is built from.

mod build;
pub mod pack;
pub mod sbom;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use xshell::Shell;

use self::{
    pack::Archive,
    sbom::{Checksums, Part},
};

/// What `cargo xtask dist --help` says.
pub const HELP: &str = "\
Builds `passmuster` for a release: an archive for each target, their checksums, and an SBOM.

The binary has the features that `cargo install --path .` gives it, and is stripped. The files are:

  passmuster-VERSION-TARGET.tar.gz   the binary, both licences, README.md and CHANGELOG.md
  passmuster-VERSION.cdx.json        the packages it is built from, with licences and checksums (CycloneDX 1.5)
  SHA256SUMS                         for `sha256sum --check`

The same binary makes the same archive, byte for byte: names are sorted, owner and group are 0, and times are SOURCE_DATE_EPOCH, or 0 if that is not set.

A target whose standard library or linker is missing is named and left out. The binary for x86_64 needs AVX2 (x86-64-v3). Each needs the C library of the
machine that built it, or a newer one.

Usage: cargo xtask dist [OPTIONS]

Options:
  --target TARGET   build for this target alone; may be repeated [default: x86_64-unknown-linux-gnu and aarch64-unknown-linux-gnu]
  --out DIR         where the files go [default: target/dist]

Exit status: 0 if there is an archive, 3 if this machine can build for none of the targets, 2 for everything else.

Examples:
  cargo xtask dist
  cargo xtask dist --target x86_64-unknown-linux-gnu --out /tmp/release
  rustup target add aarch64-unknown-linux-gnu && cargo xtask dist";

/// What a release has archives for.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Exit status if this machine can build for none of the targets.
const CANNOT: u8 = 3;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Targets, each once.
    pub targets: Vec<String>,
    /// Where the files go.
    pub out: PathBuf,
}

impl Options {
    /// Reads the arguments after `cargo xtask dist`. None if they ask for help.
    ///
    /// # Errors
    /// On an argument that is unknown or lacks its value, and on a target that releases do not have.
    pub fn of(arguments: &[&str]) -> anyhow::Result<Option<Options>> {
        let mut options = Options { targets: Vec::new(), out: PathBuf::from("target/dist") };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value: see `cargo xtask dist --help`"));
            match *argument {
                "--help" | "-h" => return Ok(None),
                "--target" => {
                    let target = *value()?;
                    if !TARGETS.contains(&target) {
                        bail!("no release has a binary for `{target}`: --target takes {}", TARGETS.join(" or "));
                    }
                    if !options.targets.iter().any(|known| known == target) {
                        options.targets.push(target.to_owned());
                    }
                }
                "--out" => options.out = PathBuf::from(value()?),
                unknown => bail!("`cargo xtask dist` takes no `{unknown}`: see `cargo xtask dist --help`"),
            }
        }
        if options.targets.is_empty() {
            options.targets = TARGETS.map(str::to_owned).to_vec();
        }
        Ok(Some(options))
    }
}

/// Builds for each target that this machine can build for, and writes the files. `sh` is in the root of the repository.
///
/// # Errors
/// If cargo or tar fails, if a file cannot be written, or if SOURCE_DATE_EPOCH is no number.
pub fn run(sh: &Shell, options: &Options) -> anyhow::Result<ExitCode> {
    let root = sh.current_dir();
    let time = pack::time(env::var("SOURCE_DATE_EPOCH").ok().as_deref())?;
    let targets = buildable(sh, &options.targets)?;
    if targets.is_empty() {
        eprintln!("nothing was built");
        return Ok(ExitCode::from(CANNOT));
    }
    let out = root.join(&options.out);
    let mut names = Vec::new();
    for target in &targets {
        let binary = build::build(sh, target)?;
        names.push(pack::pack(sh, &Archive { root: &root, binary: &binary, version: VERSION, target, time, out: &out })?);
    }
    names.push(bill(sh, &root, &targets, &out)?);
    names.push(pack::checksums(&out, &names)?);
    for name in names {
        println!("{}", options.out.join(name).display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The targets that this machine can build for. Names the others, with what they lack.
fn buildable(sh: &Shell, targets: &[String]) -> anyhow::Result<Vec<String>> {
    let host = build::host(sh)?;
    let mut buildable = Vec::new();
    for target in targets {
        let missing = build::missing(sh, &host, target)?;
        if missing.is_empty() {
            buildable.push(target.clone());
        } else {
            eprintln!("{target} is left out: {}", missing.join("; "));
        }
    }
    Ok(buildable)
}

/// Writes the SBOM and returns its name.
fn bill(sh: &Shell, root: &Path, targets: &[String], out: &Path) -> anyhow::Result<String> {
    let parts: Vec<Part> = targets.iter().map(|target| Part::of(sh, target)).collect::<anyhow::Result<_>>()?;
    let lock = sh.read_file(root.join("Cargo.lock"))?;
    let document = sbom::document(&parts, &Checksums::of(&lock)?)?;
    let name = format!("passmuster-{VERSION}.cdx.json");
    pack::write(&out.join(&name), format!("{document:#}\n").as_bytes())?;
    Ok(name)
}
