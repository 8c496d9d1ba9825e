//! Ranks that work at the same time, as threads of this process or in processes of their own: how they meet, share memory and agree on how a run ended. It
//! imports `gpu` and what comes before it, and knows no script.

pub(crate) mod board;
pub(crate) mod fault;
pub(crate) mod outcome;
pub(crate) mod peers;
pub(crate) mod threads;
