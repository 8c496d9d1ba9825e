//! The opcode ledger: every arithmetic, logic, comparison, conversion and atomic form that the emulator executes, compared with a GPU.
//!
//! [`forms`] lists the forms, [`inputs`] has what each is tried on, [`generate`] makes a kernel of each, [`session`] runs it on a machine,
//! and [`rows`] compares two machines' results and knows what the committed ledger says. Of the emulator this layer uses the front end
//! and the number formats. The caller brings the machines. [`litmus`] does the same for tests of the memory model, and [`orders`] for what kernels
//! order towards other ranks.

pub mod forms;
pub mod generate;
pub mod inputs;
pub mod litmus;
pub mod orders;
mod products;
pub mod rows;
pub mod session;
#[cfg(test)]
mod tests;

pub use forms::Form;
pub use inputs::Inputs;
pub use rows::{Difference, Row, forms_of, not_compared};
pub use session::Session;
