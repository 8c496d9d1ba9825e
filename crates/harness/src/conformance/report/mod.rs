//! What is said when all cases are judged: records for machines and the archive, JUnit for CI, one table for people.

mod junit;
mod merge;
pub mod packed;
pub mod provenance;
mod record;
mod selection;
mod stored;
pub mod table;
mod waived;

pub use junit::junit;
pub use merge::{first_note, is_not_compared, merge, not_compared, same_question, same_run};
pub use record::{Partial, Record, Source, Summary, today};
pub use selection::{Part, Selection};
pub use stored::RecordCase;
pub use waived::{Assumed, WaivedRace};
