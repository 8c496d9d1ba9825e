//! What tracked files and archives may be.

use std::{fs, path::Path};

use xshell::{Shell, cmd};

use super::{say, succeeds};

/// Bytes that one tracked file may have: the record of the merge list has some 150 for each of its 19,000 cases.
const MAX_FILE: u64 = 3 << 20;
/// Bytes that kernels/ptx/ may have.
const MAX_PTX: u64 = 12 << 20;
/// Bytes that the archive of a crate may have: what crates.io takes.
const MAX_ARCHIVE: u64 = 10 << 20;

/// Sizes of tracked files, and no path of somebody's machine in them.
pub(super) fn tidy(sh: &Shell) -> anyhow::Result<bool> {
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
pub(super) fn packs(sh: &Shell, target: &Path) -> anyhow::Result<bool> {
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

    #[test]
    fn home_paths_are_seen() {
        let home = concat!("/ho", "me/");
        assert_eq!(home_path(&format!("a\nread {home}someone/passmuster/x.cu")), Some(2));
        assert_eq!(home_path(&format!("include_str!(\"{home}someone\")")), Some(1));
        assert_eq!(home_path(&format!("https://example.org{home}page and {home}$USER")), None);
    }
}
