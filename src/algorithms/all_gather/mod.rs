//! All-gather: every rank gets all inputs, one after the other.

mod ll;
mod push;

pub use ll::Ll;
pub use push::Push;
