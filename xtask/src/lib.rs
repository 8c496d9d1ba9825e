//! What `cargo xtask test`, `cargo xtask judge-mutants` and `cargo xtask dist` do.
//!
//! It is a library so that cargo, which takes libraries alone for the examples in documentation, chooses the same features of what crates depend on as for the
//! tests: else it would build all of them again.

#![forbid(unsafe_code)]

pub mod dist;
pub mod judge_mutants;
pub mod test;
