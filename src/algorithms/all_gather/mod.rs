//! All-gather: every rank gets all inputs, one after the other.

mod push;

pub use push::Push;
