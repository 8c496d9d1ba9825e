//! Workers: processes that answer requests, and the protocol that they speak with the process that starts them, whatever is asked.
//!
//! Requests are lines of JSON on standard input. Answers are lines on standard output that start with [`PREFIX`]; all other output is log, so that
//! libraries may print what they like. The end of standard input ends a worker.

mod child;
mod live;
mod requests;

use std::time::Duration;

pub use child::{End, Process};
pub use live::kill_all;
pub use requests::{requests, say};

/// What an answer's line starts with.
pub const PREFIX: &str = "@passmuster ";

/// Exit code of a worker that says: this machine cannot run it (no GPU, no NCCL).
pub const CANNOT_RUN: i32 = 3;

/// How long a worker may take to end by itself when it is no longer wanted.
pub const FAREWELL: Duration = Duration::from_secs(5);

/// How long a worker that was killed may take to be gone. One in an uninterruptible driver call may take for ever.
pub const REAP: Duration = Duration::from_secs(10);
