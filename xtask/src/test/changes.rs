//! Which files differ from where a branch began.

use std::collections::BTreeSet;

use anyhow::Context;
use xshell::{Shell, cmd};

/// Branches that others are merged into, the first that is there.
const BASES: [&str; 2] = ["origin/main", "main"];

/// Where a change began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// What people call it: `origin/main`.
    pub name: String,
    /// The merge base's hash.
    pub commit: String,
}

/// What has changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where it began.
    pub base: Base,
    /// Paths under the root.
    pub files: Vec<String>,
}

/// The merge base with `wanted`, or else with `origin/main` or `main`. None if neither is there or has a commit in common with this one, or outside a repository.
///
/// # Errors
/// If `wanted` is no revision that this one has a merge base with.
pub fn base(sh: &Shell, wanted: Option<&str>) -> anyhow::Result<Option<Base>> {
    let merge_base = |name: &str| {
        let commit = cmd!(sh, "git merge-base HEAD {name}").quiet().ignore_stderr().read();
        commit.map(|commit| Base { name: name.to_owned(), commit: commit.trim().to_owned() })
    };
    match wanted {
        Some(name) => Ok(Some(merge_base(name).with_context(|| format!("--base {name}: git knows no merge base with it"))?)),
        None => Ok(BASES.into_iter().find_map(|name| merge_base(name).ok())),
    }
}

/// Paths under the root of all files that differ from the base: committed since, staged, changed, deleted, and new ones that git does not ignore.
/// A file that was moved is there under both of its names.
///
/// # Errors
/// If git fails.
pub fn changed(sh: &Shell, base: &Base) -> anyhow::Result<Vec<String>> {
    let commit = &base.commit;
    let tracked = cmd!(sh, "git diff --name-only --no-renames -z {commit} --").quiet().read()?;
    let new = cmd!(sh, "git ls-files --others --exclude-standard -z").quiet().read()?;
    let all: BTreeSet<&str> = tracked.split('\0').chain(new.split('\0')).filter(|path| !path.is_empty()).collect();
    Ok(all.into_iter().map(str::to_owned).collect())
}
