//! The front end: PTX text to a form that runs without looking at a string again.
//!
//! [`parse_tolerant`] does it in two steps. The parser reads a module as written, names unresolved. The decoder then lays out memory, gives
//! registers their slots, resolves labels to indices of operations, and turns every instruction into an [`Instruction`]. An
//! instruction's modifiers are a bag: compilers and people order them differently, and ptxas takes any order. Each must be taken by
//! the instruction's family; what is left, and what is unknown, is an error with its line and column. Nothing is skipped but
//! `.pragma` and debug sections, and cache hints are kept where they stand.
//!
//! An error that is about one instruction is kept in its place, as [`Instruction::Unknown`]: it matters to kernels that can come to it,
//! which [`Module::launchable`] tells. [`parse`] refuses modules that have any.
//!
//! Not here, and refused: tcgen05, products of sparse matrices and of elements of less than 8 bits, boxes of tensors other than tiles, textures,
//! 32-bit addresses, carry flags, special registers that say where the driver keeps its own shared memory.

#![forbid(unsafe_code)]

mod bounded;
mod decode;
mod error;
mod form;
mod instruction;
mod lexer;
mod module;
mod names;
mod operations;
mod parser;
mod reach;
mod registers;
mod special;
mod syntax;
#[cfg(test)]
mod tests;
mod types;
mod value_form;

pub use bounded::bound_waits;
pub use error::{Position, PtxError, SourcePos};
pub use instruction::*;
pub use module::{Function, LaunchBounds, LaunchError, Module, Parameter, ParameterPlace, Relocated, Relocation, Variable};
pub use operations::*;
pub use reach::{Reachable, UnknownInstruction};
pub use registers::{RegisterCounts, successors};
pub use types::{BooleanOp, CacheHint, Comparison, IntegerRounding, Rounding, Scope, Semantics, Space, Type};

/// Reads and decodes a module of which every instruction is known.
///
/// ```
/// let module = passmuster_ptx::parse(".version 9.0 .target sm_80 .address_size 64 .visible .entry nothing() { ret; }")?;
/// assert_eq!(module.entry("nothing").map(|entry| entry.code.len()), Some(2));
/// # Ok::<(), passmuster_ptx::PtxError>(())
/// ```
///
/// # Errors
/// Where the text is not PTX, or has something that the emulator does not know: as [`parse_tolerant`], or else the first unknown instruction.
pub fn parse(text: &str) -> Result<Module, PtxError> {
    let module = parse_tolerant(text)?;
    let unknown = module.unknown().next().map(|unknown| unknown.error.clone());
    unknown.map_or(Ok(module), Err)
}

/// Reads and decodes a module. Instructions that are not known are in it as [`Instruction::Unknown`], with the error that [`parse`] gives.
///
/// ```
/// let text = ".version 9.0 .target sm_80 .address_size 64 .entry new() { frobnicate.b32; ret; } .entry old() { ret; }";
/// let module = passmuster_ptx::parse_tolerant(text)?;
/// assert!(module.launchable("new").unwrap_err().to_string().starts_with("1:60: unknown instruction `frobnicate.b32`"));
/// assert_eq!(module.launchable("old"), Ok(()));
/// # Ok::<(), passmuster_ptx::PtxError>(())
/// ```
///
/// # Errors
/// Where the text is not PTX, a name is not declared or is so twice, or there is more of something than this front end takes.
pub fn parse_tolerant(text: &str) -> Result<Module, PtxError> {
    let text = without_marks(text);
    let decoded = parser::module(text).and_then(|written| decode::module(&written));
    let mut module = decoded.map_err(|error| error.with_excerpt(text))?;
    let operations = module.functions.iter_mut().flat_map(|function| &mut function.code);
    let unknown = operations.filter_map(|operation| match &mut operation.instruction {
        Instruction::Unknown { error } => Some(&mut **error),
        _ => None,
    });
    error::add_excerpts(unknown.collect(), text);
    Ok(module)
}

/// The text without what marks its start and its end: a byte order mark, and the NUL bytes that end a text in memory.
fn without_marks(text: &str) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let without = text.trim_end_matches(|c: char| c == '\0' || c.is_ascii_whitespace());
    if text[without.len()..].contains('\0') { without } else { text }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
