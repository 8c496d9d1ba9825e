//! Names of kernels and of the modules that hold them, which may differ by type, operator, world size and rank.

use std::collections::{BTreeMap, BTreeSet};

use crate::collective::{DType, ReduceOp};

/// What is replaced in names.
pub(super) const PLACEHOLDERS: [&str; 4] = ["{dtype}", "{op}", "{world}", "{rank}"];

/// A name in which what is in braces is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(String);

impl Pattern {
    /// # Errors
    /// When something else is in braces.
    pub(super) fn read(text: &str, what: &str) -> Result<Pattern, String> {
        let plain = PLACEHOLDERS.iter().fold(text.to_owned(), |text, placeholder| text.replace(placeholder, ""));
        match text.is_empty() || plain.contains(['{', '}']) {
            true => Err(format!("{what} `{text}`: only {} are replaced", PLACEHOLDERS.join(", "))),
            false => Ok(Pattern(text.to_owned())),
        }
    }

    pub(super) fn has(&self, placeholder: &str) -> bool {
        self.0.contains(placeholder)
    }

    fn of(&self, dtype: DType, op: ReduceOp, world: u32, rank: u32) -> String {
        let values = [dtype.name(), op.name(), &world.to_string(), &rank.to_string()];
        PLACEHOLDERS.iter().zip(values).fold(self.0.clone(), |name, (placeholder, value)| name.replace(placeholder, value))
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names of one launch's kernels.
#[derive(Clone)]
pub(super) struct Names {
    /// What every module's name begins with: `foreign/mine`.
    pub(super) prefix: String,
    /// The file, where the specification names it.
    pub(super) module: Option<Pattern>,
    pub(super) entries: Entries,
}

/// The kernel of each combination that there is one for.
#[derive(Clone)]
pub(super) enum Entries {
    Pattern(Pattern),
    Listed(BTreeMap<(DType, ReduceOp), Pattern>),
}

impl Names {
    /// Whether there is a kernel.
    pub(super) fn has(&self, dtype: DType, op: ReduceOp) -> bool {
        match &self.entries {
            Entries::Pattern(_) => true,
            Entries::Listed(entries) => entries.contains_key(&(dtype, op)),
        }
    }

    /// Module and entry of a rank's launch.
    ///
    /// # Errors
    /// When there is none for the type and the operator.
    pub(super) fn of(&self, dtype: DType, op: ReduceOp, world: u32, rank: u32) -> Result<(String, String), String> {
        let entry = match &self.entries {
            Entries::Pattern(pattern) => pattern.of(dtype, op, world, rank),
            Entries::Listed(entries) => {
                let entry = entries.get(&(dtype, op));
                entry.ok_or_else(|| format!("the specification names no kernel for {op} of {dtype}"))?.of(dtype, op, world, rank)
            }
        };
        Ok((self.module_of(dtype, op, world, rank).0, entry))
    }

    /// The name of a module and its file, if the specification names it.
    fn module_of(&self, dtype: DType, op: ReduceOp, world: u32, rank: u32) -> (String, Option<String>) {
        match &self.module {
            None => (self.prefix.clone(), None),
            Some(pattern) => {
                let file = pattern.of(dtype, op, world, rank);
                (format!("{}/{file}", self.prefix), Some(file))
            }
        }
    }

    /// All modules that there are launches from.
    pub(super) fn modules(&self, dtypes: &[DType], ops: &[ReduceOp], worlds: &[u32]) -> BTreeSet<(String, Option<String>)> {
        let kinds = dtypes.iter().flat_map(|&dtype| ops.iter().map(move |&op| (dtype, op)));
        let of_world = |&world: &u32| (0..world).map(move |rank| (world, rank));
        let kinds = kinds.filter(|&(dtype, op)| self.has(dtype, op));
        kinds
            .flat_map(|kind| worlds.iter().flat_map(of_world).map(move |at| (kind, at)))
            .map(|((dtype, op), (world, rank))| self.module_of(dtype, op, world, rank))
            .collect()
    }
}
