//! Conformance: cases, the inputs they run on, what must hold of the results, and what is said when it does not.
//!
//! This layer sees machines through [`crate::machine::Machine`] only.

mod compare;
mod diagnosis;
mod inputs;
mod oracle;
mod verdict;

pub use compare::{Difference, Mismatch, Place, Relation, Sample, Shown, compare, ranks_disagree, relation_broken};
pub use diagnosis::Diagnosis;
pub use inputs::{InputClass, Payload, Transform};
pub use oracle::{Expected, Oracle, Rule, oracle};
pub use verdict::{Finding, Status, Verdict};
