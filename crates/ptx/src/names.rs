//! What a function's names mean: scopes, registers, labels, variables and how their spaces are laid out.

use std::collections::HashMap;

use super::{
    error::{Position, PtxError},
    instruction::{Base, Class, Register},
    registers::RegisterCounts,
    syntax::{Statement, Storage, Variable},
    types::{Space, Type},
};

/// The most bytes of one space that a function may have.
const MAX_SPACE: u64 = 1 << 24;

/// The most bytes of parameters of a function, its calls' included: a warp keeps them for each of its lanes. The ISA allows a kernel 32764.
const MAX_PARAMETERS: u64 = 1 << 18;

/// The most labels of all branch tables that a function's instructions use.
const MAX_TABLES: usize = 1 << 20;

/// What a name of memory means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub(super) space: Space,
    pub(super) base: Base,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A space that is being laid out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layout {
    pub(super) bytes: u64,
}

impl Layout {
    /// Places a variable after those before it, aligned as C does. Returns its offset and size.
    pub(super) fn place(&mut self, variable: &Variable<'_>) -> Result<(u64, u64), PtxError> {
        let (bytes, align) = extent(variable)?;
        let offset = self.bytes.next_multiple_of(align);
        let most = if variable.storage == Storage::Memory(Space::Param) { MAX_PARAMETERS } else { MAX_SPACE };
        if bytes > most || offset + bytes > most {
            return Err(PtxError::limit(variable.at, format!("{} bytes of one space", offset.saturating_add(bytes)), most));
        }
        self.bytes = offset + bytes;
        Ok((offset, bytes))
    }
}

/// Size and alignment of a variable in bytes.
pub(super) fn extent(variable: &Variable<'_>) -> Result<(u64, u64), PtxError> {
    let element = u64::from(variable.ty.bytes()) * u64::from(variable.vector);
    let count = match variable.elements {
        None => 1,
        Some(Some(count)) => count,
        Some(None) if !variable.initial.is_empty() => variable.initial.len() as u64,
        Some(None) => 0,
    };
    let bytes = element.checked_mul(count).filter(|&bytes| bytes < 1 << 47);
    let bytes = bytes.ok_or_else(|| PtxError::limit(variable.at, format!("{count} elements of {element} bytes"), 1 << 47))?;
    if variable.ty == Type::Pred {
        return Err(PtxError::syntax(variable.at, "a predicate in memory", "a type of at least 8 bits"));
    }
    Ok((bytes, variable.align.unwrap_or(element)))
}

/// A declared register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declared {
    pub(super) register: Register,
    pub(super) ty: Type,
}

/// The class of registers of a type.
pub(super) fn class(ty: Type) -> Class {
    match ty.bits() {
        1 => Class::Predicate,
        128 => Class::Quad,
        64 => Class::Long,
        _ => Class::Word,
    }
}

/// What one scope declares.
#[derive(Default)]
struct Scope<'t> {
    parent: Option<usize>,
    registers: HashMap<&'t str, Type>,
    /// `%r<12>`: type and number by the name before the number.
    ranges: HashMap<&'t str, (Type, u64)>,
    /// Slots of the registers of this scope that were met.
    slots: HashMap<&'t str, Register>,
    symbols: HashMap<&'t str, Symbol>,
    labels: HashMap<&'t str, usize>,
    tables: HashMap<&'t str, &'t [(&'t str, Position)]>,
}

/// The names that are visible at one place of a function.
pub(super) struct Names<'t> {
    scopes: Vec<Scope<'t>>,
    current: usize,
    /// How many scopes were entered so far; they are numbered in the order of the text.
    entered: usize,
    /// Labels of the branch tables that were used so far.
    table_labels: usize,
    pub(super) counts: RegisterCounts,
}

impl<'t> Names<'t> {
    /// The scopes of a body with their labels, which may be used before they stand.
    pub(super) fn of_body(body: &'t [Statement<'t>]) -> Result<Names<'t>, PtxError> {
        let mut scopes = vec![Scope::default()];
        let (mut current, mut index) = (0, 0);
        for statement in body {
            match statement {
                Statement::Open => {
                    scopes.push(Scope { parent: Some(current), ..Scope::default() });
                    current = scopes.len() - 1;
                }
                Statement::Close => current = scopes[current].parent.unwrap_or(0),
                Statement::Label(name, at) => {
                    if scopes[current].labels.insert(name, index).is_some() {
                        return Err(PtxError::redeclared(*at, name));
                    }
                }
                Statement::BranchTargets(name, targets) => {
                    scopes[current].tables.insert(name, targets);
                }
                Statement::Instruction(_) => index += 1,
                Statement::Variable(_) | Statement::Loc(_) => {}
            }
        }
        Ok(Names { scopes, current: 0, entered: 0, table_labels: 0, counts: RegisterCounts::default() })
    }

    pub(super) fn open(&mut self) {
        self.entered += 1;
        self.current = self.entered;
    }

    pub(super) fn close(&mut self) {
        self.current = self.scopes[self.current].parent.unwrap_or(0);
    }

    fn visible(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(self.current), |&scope| self.scopes[scope].parent)
    }

    pub(super) fn declare_register(&mut self, variable: &Variable<'t>) -> Result<(), PtxError> {
        if variable.vector != 1 || variable.elements.is_some() {
            return Err(PtxError::syntax(variable.at, "registers that are vectors or arrays", "registers of one value"));
        }
        let scope = &mut self.scopes[self.current];
        let again = match variable.range {
            Some(count) => scope.ranges.insert(variable.name, (variable.ty, count)).is_some(),
            None => scope.registers.insert(variable.name, variable.ty).is_some(),
        };
        if again { Err(PtxError::redeclared(variable.at, variable.name)) } else { Ok(()) }
    }

    pub(super) fn declare_symbol(&mut self, name: &'t str, symbol: Symbol, at: Position) -> Result<(), PtxError> {
        match self.scopes[self.current].symbols.insert(name, symbol) {
            Some(_) => Err(PtxError::redeclared(at, name)),
            None => Ok(()),
        }
    }

    /// The register of a name, which gets a slot when it is first met.
    pub(super) fn register(&mut self, name: &'t str, at: Position) -> Result<Option<Declared>, PtxError> {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[stem.len()..];
        let number = digits.parse::<u64>().ok().filter(|_| digits == "0" || !digits.starts_with('0'));
        let found = self.visible().find_map(|scope| {
            let here = &self.scopes[scope];
            let in_range = || here.ranges.get(stem).filter(|(_, count)| number.is_some_and(|number| number < *count)).map(|&(ty, _)| ty);
            here.registers.get(name).copied().or_else(in_range).map(|ty| (scope, ty))
        });
        let Some((scope, ty)) = found else { return Ok(None) };
        if let Some(&register) = self.scopes[scope].slots.get(name) {
            return Ok(Some(Declared { register, ty }));
        }
        let fresh = self.counts.allocate(class(ty));
        let register = fresh.ok_or_else(|| PtxError::limit(at, "a register of a function too many", u64::from(u16::MAX)))?;
        self.scopes[scope].slots.insert(name, register);
        Ok(Some(Declared { register, ty }))
    }

    pub(super) fn symbol(&self, name: &str) -> Option<Symbol> {
        self.visible().find_map(|scope| self.scopes[scope].symbols.get(name)).copied()
    }

    pub(super) fn label(&self, name: &str, at: Position) -> Result<usize, PtxError> {
        let found = self.visible().find_map(|scope| self.scopes[scope].labels.get(name)).copied();
        found.ok_or_else(|| PtxError::undeclared(at, name, "label"))
    }

    pub(super) fn table(&mut self, name: &str, at: Position) -> Result<Box<[usize]>, PtxError> {
        let found = self.visible().find_map(|scope| self.scopes[scope].tables.get(name)).copied();
        let targets = found.ok_or_else(|| PtxError::undeclared(at, name, "list of branch targets"))?;
        self.table_labels += targets.len();
        if self.table_labels > MAX_TABLES {
            return Err(PtxError::limit(at, "a branch by a table too many: labels of all tables", MAX_TABLES as u64));
        }
        targets.iter().map(|(label, at)| self.label(label, *at)).collect()
    }
}
