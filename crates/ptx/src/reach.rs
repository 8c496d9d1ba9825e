//! What a launch of a kernel may come to: the operations that branches and calls lead to, whatever the values are.

use std::collections::HashSet;

use super::{
    error::PtxError,
    instruction::{Instruction, Operation},
    module::Module,
    registers::successors,
};

/// The operations that a kernel may execute.
#[derive(Clone, Debug)]
pub struct Reachable {
    /// By function, and by operation of it; empty where the function is not called.
    operations: Vec<Vec<bool>>,
}

impl Reachable {
    /// Whether an operation of a function, both by index, may be executed.
    pub fn contains(&self, function: usize, operation: usize) -> bool {
        self.operations.get(function).and_then(|operations| operations.get(operation)).copied().unwrap_or(false)
    }
}

/// An instruction that the front end does not know.
#[derive(Clone, Copy, Debug)]
pub struct UnknownInstruction<'m> {
    /// Index of its function in [`Module::functions`].
    pub function: usize,
    /// Index of it in [`Function::code`].
    pub operation: usize,
    /// What is not known of it, and where it stands.
    pub error: &'m PtxError,
}

impl Module {
    /// All instructions that are not known, in the order of the text. Modules of [`parse`](super::parse) have none.
    pub fn unknown(&self) -> impl Iterator<Item = UnknownInstruction<'_>> {
        self.functions.iter().enumerate().flat_map(|(function, of)| {
            let operations = of.code.iter().enumerate();
            operations.filter_map(move |(operation, of)| Some(UnknownInstruction { function, operation, error: unknown(of)? }))
        })
    }

    /// What a launch of a function, by index, may execute: past a guard both ways, and all targets of a branch table.
    pub fn reachable(&self, function: usize) -> Reachable {
        let mut operations = vec![Vec::new(); self.functions.len()];
        let mut called = HashSet::new();
        let mut next = vec![(function, 0)];
        while let Some((function, at)) = next.pop() {
            let Some(code) = self.functions.get(function).map(|function| &function.code) else { continue };
            let seen = &mut operations[function];
            if seen.is_empty() {
                seen.resize(code.len(), false);
            }
            let Some(operation) = code.get(at) else { continue };
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            match &operation.instruction {
                Instruction::Call { function, .. } => next.push((*function as usize, 0)),
                // What calls of one signature reach is looked for once.
                Instruction::CallIndirect { signature, .. } if called.insert(signature) => {
                    next.extend(self.callable(signature).map(|function| (function as usize, 0)));
                }
                _ => {}
            }
            if !matches!(operation, Operation { guard: None, instruction: Instruction::Trap {}, .. }) {
                successors(operation, at, &mut |after| next.push((function, after)));
            }
        }
        Reachable { operations }
    }

    /// Checks that a launch of the kernel of this name comes to nothing that is unknown. Where there is no such kernel there is nothing to come to.
    ///
    /// # Errors
    /// The first instruction, in the order of the text, that is unknown and may be reached.
    pub fn launchable(&self, entry: &str) -> Result<(), &PtxError> {
        if self.unknown == 0 {
            return Ok(());
        }
        let Some(entry) = self.functions.iter().position(|function| function.entry && function.name == entry) else { return Ok(()) };
        let reachable = self.reachable(entry);
        match self.unknown().find(|unknown| reachable.contains(unknown.function, unknown.operation)) {
            Some(found) => Err(found.error),
            None => Ok(()),
        }
    }
}

fn unknown(operation: &Operation) -> Option<&PtxError> {
    match &operation.instruction {
        Instruction::Unknown { error } => Some(error),
        _ => None,
    }
}
