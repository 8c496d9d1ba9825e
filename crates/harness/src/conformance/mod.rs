//! Conformance: cases, the inputs they run on, what must hold of the results, and what is said when it does not.
//!
//! This layer sees machines through [`passmuster_plan::machine::Machine`] only.

mod case;
mod causes;
#[cfg(test)]
mod census;
mod collective_case;
mod compare;
pub mod coverage;
mod diagnosis;
#[cfg(test)]
mod documented;
mod elements;
pub mod faults;
pub(crate) mod inputs;
pub(crate) mod lists;
pub mod manifest;
pub mod mutants;
mod oracle;
pub mod order;
mod pattern;
#[cfg(test)]
mod planted_machine;
pub mod process;
mod products;
mod query;
pub mod ranks;
pub mod report;
pub mod resources;
pub mod runner;
pub mod scenario;
pub mod shrink;
pub mod soak;
pub mod supervisor;
pub mod tasks;
#[doc(hidden)]
mod verdict;
pub mod waivers;
pub mod worker;

pub use case::{Case, Known};
pub use causes::{Cause, causes};
pub use collective_case::{CallSpec, CaseError, CaseId, CollectiveCase, Fault, Field, Graph, Item, Moment, Skew};
pub use compare::{Difference, ElementPos, Mismatch, Relation, Sample, Shown, compare, ranks_disagree, relation_broken};
pub use diagnosis::Diagnosis;
pub use inputs::{InputClass, Payload, Transform};
pub use lists::List;
pub use oracle::{Expected, Oracle, Rule, oracle};
pub use passmuster_plan::words::counted;
pub use products::{Numbers, ProductCase, UnknownProduct};
pub use query::Query;
pub use tasks::TaskCase;
pub use verdict::{Finding, Place, Status, Verdict};
