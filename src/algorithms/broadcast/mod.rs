//! Broadcast: every rank gets the root's input.

mod push;

pub use push::Push;
