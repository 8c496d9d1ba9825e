//! All-gather: every rank gets all inputs, one after the other.

mod copy_engine;
mod push;

pub use copy_engine::CopyEngine;
pub use push::Push;
