//! Timing: how long calls take on a machine, what that says, and how it is shown.
//!
//! `method` times, `statistics` says how sure that is, `timing` is what records keep. The rest renders records, old ones too, and needs no
//! GPU: `tables`, `export` (CSV, nccl-tests' JSON), `baseline`, `plots`, `page` (HTML), `trace`.

#![forbid(unsafe_code)]

pub mod baseline;
mod check;
mod contender;
mod devices;
mod export;
mod held;
mod job;
mod judged;
mod method;
mod notes;
mod page;
mod plots;
mod scenarios;
mod standing;
mod statistics;
mod tables;
mod timing;
mod torch;
mod trace;
mod verdicts;
mod workload;

pub use contender::{Contender, IN_PROCESSES, ProcessKind};
pub use devices::Environment;
pub use export::{csv, nccl_tests};
pub use held::SmFreeCheck;
pub use judged::{Found, Judged, UnreadableRecord, kind_of};
pub use method::{Late, Method, Round, Timer};
pub use notes::Span;
pub use page::{Contents, page};
pub use plots::{DARK, INKS, Ink, Inks, Plot, PlotError, ahead, plots};
pub use scenarios::{Fsdp, How, Multiplier, Order, OverlapContender, Pipeline};
pub use standing::{Contest, Score, Standing, Winner, contests};
pub use statistics::{Estimate, Summary, geometric_mean, median, median_interval};
pub use tables::{Launching, LinkLimit, Section, Table, link_limit, sections, size, tables};
pub use timing::{Check, Conditions, Rendezvous, Side, Timing, Waits, Wire, side};
pub use torch::{Torch, WITHOUT_MULTICAST};
pub use trace::trace;
pub use verdicts::Hosts;
pub use workload::{CollectiveWorkload, FsdpWorkload, MatmulWorkload, PipelineWorkload, Scenario, Workload};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
