//! Timing: how long calls take on a machine, what that says, and how it is shown.
//!
//! `method` times, `statistics` says how sure that is, `timing` is what records keep. The rest renders records, old ones too, and needs no
//! GPU: `tables`, `export` (CSV, nccl-tests' JSON), `baseline`, `plots`, `page` (HTML), `trace`.

pub mod baseline;
mod export;
mod method;
mod page;
mod plots;
mod statistics;
mod tables;
mod timing;
mod trace;

pub use export::{csv, nccl_tests};
pub use method::{Late, Method, Round, Span, Timer};
pub use page::page;
pub use plots::{Plot, PlotError, plots};
pub use statistics::{Estimate, Summary, median, median_interval};
pub use tables::{Launching, LinkLimit, Section, Table, link_limit, sections, size, tables};
pub use timing::{Check, Conditions, Timing, Wire, Workload, bandwidths};
pub use trace::trace;
