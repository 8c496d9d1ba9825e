//! All-gather: every rank gets all inputs, one after the other.

mod copy_engine;
mod ll;
mod multimem;
mod push;

pub use copy_engine::CopyEngine;
pub use ll::Ll;
pub use multimem::Multimem;
pub use push::Push;
