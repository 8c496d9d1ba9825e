//! Conformance: cases, the inputs they run on, what must hold of the results, and what is said when it does not.
//!
//! This layer sees machines through [`passmuster_collectives::machine::Machine`] only.

mod any_case;
mod case;
pub mod children;
mod compare;
mod diagnosis;
#[cfg(test)]
mod documented;
pub mod generate;
mod inputs;
pub(crate) mod lists;
pub mod manifest;
pub mod mutants;
mod oracle;
pub mod order;
mod products;
mod query;
pub mod report;
pub mod runner;
pub mod scenario;
#[cfg(test)]
mod simulated;
pub mod supervisor;
mod verdict;
pub mod waivers;
pub mod worker;

pub use any_case::AnyCase;
pub use case::{Case, CaseError, Fault, Graph, Item, Named, Shot, Skew};
pub use compare::{Difference, Mismatch, Place, Relation, Sample, Shown, compare, ranks_disagree, relation_broken};
pub use diagnosis::Diagnosis;
pub use inputs::{InputClass, Payload, Transform};
pub use lists::List;
pub use mutants::{MUTANTS, Mutant, MutantKind};
pub use oracle::{Expected, Oracle, Rule, oracle};
pub use products::{Numbers, ProductCase};
pub use query::Query;
pub use verdict::{Finding, Status, Verdict};
