//! The kernels with planted bugs. People describe them in fixtures/mutants/; `cargo xtask kernels` compiles them and writes the index.

use passmuster_plan::{
    algorithms::{Edit, Mutant, MutantKind},
    collective::{DType, ReduceOp},
};

/// Every mutant, by name. A static, as is a module: constants of this size are copied to wherever they are named.
pub(crate) static MUTANTS: &[Mutant] = include!("../fixtures/mutants/index.rs");
