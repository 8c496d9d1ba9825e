//! All-to-all: every rank gets its slot of all inputs, one after the other.

mod ll;
mod push;

pub use ll::Ll;
pub use push::Push;
