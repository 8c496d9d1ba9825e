//! Conformance: cases, the inputs they run on, what must hold of the results, and what is said when it does not.
//!
//! This layer sees machines through [`crate::machine::Machine`] only.

mod mutants;
pub mod report;
pub mod supervisor;
mod verdict;
pub mod worker;

pub use mutants::{Edit, MUTANTS, Mutant, MutantKind};
pub use verdict::{Finding, Status, Verdict};
