//! The front end: PTX text to a form that runs without looking at a string again.
//!
//! [`parse`] does it in two steps. The parser reads a module as written, names unresolved. The decoder then lays out memory, gives
//! registers their slots, resolves labels to indices of operations, and turns every instruction into an [`Instruction`]. An
//! instruction's modifiers are a bag: compilers and people order them differently, and ptxas takes any order. Each must be taken by
//! the instruction's family; what is left, and what is unknown, is an error with its line and column. Nothing is skipped but
//! `.pragma` and debug sections, and cache hints are kept where they stand.
//!
//! Not here, and refused: wgmma, TMA and bulk copies, mbarriers, textures, 32-bit addresses, indirect calls, carry flags.

mod decode;
mod error;
mod form;
mod instruction;
mod lexer;
mod module;
mod names;
mod operations;
mod parser;
mod registers;
mod syntax;
#[cfg(test)]
mod tests;
mod types;
mod value_form;

pub use error::{Position, PtxError, SourcePos};
pub use instruction::*;
pub use module::{Function, LaunchBounds, Module, Parameter, ParameterPlace, Relocation, Variable};
pub use operations::*;
pub use registers::RegisterCounts;
pub use types::{BooleanOp, CacheHint, Comparison, IntegerRounding, Rounding, Scope, Semantics, Space, Type};

/// Reads and decodes a module.
///
/// ```
/// let module = passmuster_ptx::parse(".version 9.0 .target sm_80 .address_size 64 .visible .entry nothing() { ret; }")?;
/// assert_eq!(module.entry("nothing").map(|entry| entry.code.len()), Some(2));
/// # Ok::<(), passmuster_ptx::PtxError>(())
/// ```
///
/// # Errors
/// Where the text is not PTX, or has something that the emulator does not know.
pub fn parse(text: &str) -> Result<Module, PtxError> {
    let decoded = parser::module(text).and_then(|written| decode::module(&written));
    decoded.map_err(|error| error.with_excerpt(text))
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
