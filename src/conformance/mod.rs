//! Conformance: cases, the inputs they run on, what must hold of the results, and what is said when it does not.
//!
//! This layer sees machines through [`crate::machine::Machine`] only.

mod compare;
mod diagnosis;
mod inputs;
mod mutants;
mod oracle;
pub mod report;
pub mod supervisor;
mod verdict;
pub mod worker;

pub use compare::{Difference, Mismatch, Place, Relation, Sample, Shown, compare, ranks_disagree, relation_broken};
pub use diagnosis::Diagnosis;
pub use inputs::{InputClass, Payload, Transform};
pub use mutants::{Edit, MUTANTS, Mutant, MutantKind};
pub use oracle::{Expected, Oracle, Rule, oracle};
pub use verdict::{Finding, Status, Verdict};
