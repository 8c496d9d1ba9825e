//! All-to-all: every rank gets its slot of all inputs, one after the other.

mod copy_engine;
mod ll;
mod push;

pub use copy_engine::CopyEngine;
pub use ll::Ll;
pub use push::Push;
