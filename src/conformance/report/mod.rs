//! What is said when all cases are judged: records for machines and the archive, JUnit for CI, one table for people.

mod junit;
pub mod provenance;
mod record;
pub mod table;

pub use junit::junit;
pub use record::{Record, Source, Summary, today};
