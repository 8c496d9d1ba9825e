//! Mutants: kernels with planted bugs, each of which the checks must catch. What is described in fixtures/mutants/ is compiled by
//! `cargo xtask kernels` and embedded here, so that a binary without the source tree carries them.

use serde::{Deserialize, Serialize};

use crate::{
    collective::{DType, ReduceOp},
    kernels::Library,
    plan::Build,
};

/// Every mutant, by name.
pub const MUTANTS: &[Mutant] = include!("../../fixtures/mutants/index.rs");

/// A kernel with a planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mutant {
    /// Its name, and that of fixtures/mutants/NAME.toml.
    pub name: &'static str,
    /// What goes wrong.
    pub kind: MutantKind,
    /// The bug, in one line.
    pub description: &'static str,
    /// The kernel module that it takes the place of: `all_reduce/two_shot`.
    pub module: &'static str,
    /// The build that it takes the place of.
    pub build: Build,
    /// The element type that it is built for; it has no other entry.
    pub dtype: DType,
    /// The operator that it is built for.
    pub op: ReduceOp,
    /// What was edited.
    pub edits: &'static [Edit],
    /// What it compiles to.
    #[serde(skip)]
    pub ptx: &'static str,
}

/// What goes wrong in a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MutantKind {
    /// Numbers: any run of a case that reaches the bug shows it.
    Value,
    /// Synchronisation: numbers are wrong under some schedules only, or ranks wait for ever.
    Sync,
}

/// One change of a mutant's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Edit {
    /// Path under the project's root.
    pub file: &'static str,
    /// Text that was there exactly once.
    pub find: &'static str,
    /// What took its place.
    pub replace: &'static str,
}

impl Mutant {
    /// The kernels with this mutant in its module's place.
    pub fn library(&self) -> Library {
        let mut library = Library::default();
        library.replace(self.module, self.build, self.ptx);
        library
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::entries;

    #[test]
    fn every_mutant_has_its_one_entry_and_differs_from_its_module() {
        assert!(!MUTANTS.is_empty());
        for mutant in MUTANTS {
            let expected = format!("{}_{}_{}", mutant.module.replace('/', "_"), mutant.dtype, mutant.op);
            assert_eq!(entries(mutant.ptx).collect::<Vec<_>>(), [expected.as_str()], "{}", mutant.name);
            let library = mutant.library();
            let original = Library::default();
            assert_eq!(library.ptx(mutant.module, mutant.build), Ok(mutant.ptx));
            let body = |ptx: &str| {
                let (_, after) = ptx.split_once(&format!(".entry {expected}(")).expect("the entry is there");
                after.split_once("\n}\n").expect("an entry ends").0.to_owned()
            };
            let unchanged = original.ptx(mutant.module, mutant.build).expect("the module is there");
            assert_ne!(body(mutant.ptx), body(unchanged), "the planted bug of {} was compiled away", mutant.name);
        }
    }
}
