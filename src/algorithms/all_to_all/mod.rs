//! All-to-all: every rank gets its slot of all inputs, one after the other.

mod push;

pub use push::Push;
