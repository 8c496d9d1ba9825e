//! Archives that are the same for the same binary, and their checksums.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use xshell::{Shell, cmd};

/// What goes into an archive beside the binary.
const BESIDE: [&str; 4] = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The file of checksums.
const SUMS: &str = "SHA256SUMS";

/// An archive to write.
#[derive(Clone, Copy, Debug)]
pub struct Archive<'a> {
    /// The folder with licences, README.md and CHANGELOG.md.
    pub root: &'a Path,
    /// The program.
    pub binary: &'a Path,
    /// Its version.
    pub version: &'a str,
    /// What it runs on.
    pub target: &'a str,
    /// When every file in the archive was changed, in seconds since 1970.
    pub time: u64,
    /// Where the archive goes.
    pub out: &'a Path,
}

/// Writes `passmuster-VERSION-TARGET.tar.gz` and returns its name.
///
/// # Errors
/// If a file cannot be read or written, or if GNU tar is missing.
pub fn pack(sh: &Shell, archive: &Archive) -> anyhow::Result<String> {
    let folder = format!("passmuster-{}-{}", archive.version, archive.target);
    let staged = archive.out.join(&folder);
    stage(archive, &staged)?;
    let (out, time) = (archive.out, format!("@{}", archive.time));
    // No name is longer than ustar allows, and ustar has no field that depends on who packs.
    let tar = cmd!(
        sh,
        "tar --create --file - --format ustar --sort name --mtime {time} --owner 0 --group 0 --numeric-owner --directory {out} {folder}"
    );
    let tar = tar.quiet().output().context("cannot pack: it takes GNU tar")?.stdout;
    fs::remove_dir_all(&staged).with_context(|| format!("cannot remove {}", staged.display()))?;
    // By a compressor that Cargo.lock pins; its header has neither a time nor a name.
    let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
    gzip.write_all(&tar)?;
    let name = format!("{folder}.tar.gz");
    write(&archive.out.join(&name), &gzip.finish()?)?;
    Ok(name)
}

/// Makes the folder that is packed, with the same modes under every umask.
fn stage(archive: &Archive, staged: &Path) -> anyhow::Result<()> {
    if staged.exists() {
        fs::remove_dir_all(staged).with_context(|| format!("cannot remove {}", staged.display()))?;
    }
    fs::create_dir_all(staged).with_context(|| format!("cannot make {}", staged.display()))?;
    let beside = BESIDE.iter().map(|name| (archive.root.join(name), *name, 0o644));
    for (from, name, mode) in beside.chain([(archive.binary.to_owned(), "passmuster", 0o755)]) {
        let to = staged.join(name);
        fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
    }
    Ok(fs::set_permissions(staged, fs::Permissions::from_mode(0o755))?)
}

/// Writes `SHA256SUMS`, of the files with these names, and returns its name. Lines are sorted by name.
///
/// # Errors
/// If a file cannot be read, or the checksums cannot be written.
pub fn checksums(out: &Path, names: &[String]) -> anyhow::Result<String> {
    let mut names: Vec<&String> = names.iter().collect();
    names.sort();
    let mut lines = String::new();
    for name in names {
        let bytes = fs::read(out.join(name)).with_context(|| format!("cannot read {name}"))?;
        let sum: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        lines += &format!("{sum}  {name}\n");
    }
    write(&out.join(SUMS), lines.as_bytes())?;
    Ok(SUMS.to_owned())
}

/// Writes a file whole or not at all.
///
/// # Errors
/// If it or its folder cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let partial: PathBuf = path.with_extension("partial");
    let written = fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).and_then(|()| fs::write(&partial, bytes));
    written.and_then(|()| fs::rename(&partial, path)).with_context(|| format!("cannot write {}", path.display()))
}

/// The time of every file, by the value of SOURCE_DATE_EPOCH: seconds since 1970, or 0 if it is not set.
///
/// # Errors
/// If it is no such number.
pub fn time(epoch: Option<&str>) -> anyhow::Result<u64> {
    let number = |epoch: &str| epoch.parse().with_context(|| format!("SOURCE_DATE_EPOCH is `{epoch}`: it takes seconds since 1970"));
    epoch.map_or(Ok(0), number)
}
