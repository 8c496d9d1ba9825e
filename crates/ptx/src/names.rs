//! What a function's names mean: scopes, registers, labels, variables and how their spaces are laid out.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    rc::Rc,
};

use super::{
    error::{Position, PtxError, shortened},
    instruction::{Base, Class, Register, Signature},
    module::Parameter,
    registers::RegisterCounts,
    syntax::{Statement, Storage, Variable},
    types::{Space, Type},
};

/// The most bytes of one space that a function may have.
const MAX_SPACE: u64 = 1 << 24;

/// The most bytes of parameters of a function, its calls' included: a warp keeps them for each of its lanes. The ISA allows a kernel 32764.
const MAX_PARAMETERS: u64 = 1 << 18;

/// The most labels of all branch tables that a module's instructions use.
pub(super) const MAX_TABLES: usize = 1 << 20;

/// The names of a vector's elements.
const ELEMENTS: [[&str; 2]; 4] = [["x", "r"], ["y", "g"], ["z", "b"], ["w", "a"]];

/// The names of the first elements of a vector.
pub(super) fn elements(count: usize) -> impl Iterator<Item = &'static str> {
    ELEMENTS[..count].iter().map(|[name, _]| *name)
}

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

/// What a name of registers was declared as.
#[derive(Clone, Copy)]
struct Registers {
    scope: u32,
    ty: Type,
    /// Elements of `.v2` and `.v4`; 1 otherwise.
    vector: u32,
    /// `%r<12>`: how many there are.
    count: Option<u64>,
    /// The same name with a range in a scope around this one: what is past the range may be one of those.
    outer: Option<u32>,
}

/// What names mean in the scopes that are open. Whatever the depth, a name is looked up once.
struct Meanings<'t, T> {
    /// With the scope that declares it.
    now: HashMap<&'t str, (u32, T)>,
    /// What was declared in open scopes, in that order, with what the name had meant before.
    declared: Vec<(&'t str, Option<(u32, T)>)>,
}

impl<T> Default for Meanings<'_, T> {
    fn default() -> Self {
        Meanings { now: HashMap::new(), declared: Vec::new() }
    }
}

impl<'t, T: Copy> Meanings<'t, T> {
    /// Declares a name, unless the same scope has done so.
    fn declare(&mut self, scope: u32, name: &'t str, meaning: T) -> bool {
        let before = self.now.get(name).copied();
        let fresh = before.is_none_or(|(declared_in, _)| declared_in != scope);
        if fresh {
            self.now.insert(name, (scope, meaning));
            self.declared.push((name, before));
        }
        fresh
    }

    fn get(&self, name: &str) -> Option<T> {
        self.now.get(name).map(|&(_, meaning)| meaning)
    }

    /// Forgets all that was declared after the first `kept`.
    fn forget(&mut self, kept: usize) {
        for (name, before) in self.declared.drain(kept..).rev() {
            match before {
                Some(before) => self.now.insert(name, before),
                None => self.now.remove(name),
            };
        }
    }
}

/// A scope that is open, and how much was declared before it.
#[derive(Clone, Copy, Default)]
struct Open {
    scope: u32,
    registers: usize,
    ranges: usize,
    symbols: usize,
    labels: usize,
    tables: usize,
    prototypes: usize,
}

/// What an indirect call passes and takes back.
#[derive(Debug)]
pub(super) struct Prototype {
    pub(super) returns: Vec<Parameter>,
    pub(super) inputs: Vec<Parameter>,
    pub(super) signature: Signature,
}

/// A name that may be used before it is declared: its scope, numbered in the order of the text, and what it means.
type Forward<'t, T> = (u32, &'t str, T);

/// The names that are visible at one place of a function.
#[derive(Default)]
pub(super) struct Names<'t> {
    /// All declarations of registers; the names that have them hold indices.
    declarations: Vec<Registers>,
    registers: Meanings<'t, u32>,
    ranges: Meanings<'t, u32>,
    symbols: Meanings<'t, Symbol>,
    /// To the index of an operation.
    labels: Meanings<'t, usize>,
    tables: Meanings<'t, &'t [(&'t str, Position)]>,
    /// Indices of `declared_prototypes`.
    prototypes: Meanings<'t, usize>,
    declared_prototypes: Vec<Rc<Prototype>>,
    /// Labels and tables of scopes that were not opened yet, from the last one to the next.
    labels_ahead: Vec<Forward<'t, usize>>,
    tables_ahead: Vec<Forward<'t, &'t [(&'t str, Position)]>>,
    /// The scopes around this one.
    around: Vec<Open>,
    current: Open,
    /// How many scopes were entered so far.
    entered: u32,
    vectors: bool,
    /// Slots of the registers that were met: by declaration, number and element.
    slots: HashMap<(u32, u64, u8), Register>,
    pub(super) counts: RegisterCounts,
}

impl<'t> Names<'t> {
    /// Goes into a body, whose labels and branch tables may be used before they stand.
    pub(super) fn enter(&mut self, body: &'t [Statement<'t>]) -> Result<(), PtxError> {
        let (mut around, mut current, mut scopes, mut index) = (Vec::new(), 0, 0, 0);
        let mut places = HashSet::new();
        for statement in body {
            match statement {
                Statement::Open => {
                    around.push(current);
                    scopes += 1;
                    current = scopes;
                }
                Statement::Close => current = around.pop().unwrap_or(0),
                Statement::Label(name, at) => {
                    if !places.insert((current, *name)) {
                        return Err(PtxError::redeclared(*at, name));
                    }
                    self.labels_ahead.push((current, name, index));
                }
                Statement::BranchTargets(name, targets) => self.tables_ahead.push((current, name, targets)),
                Statement::Instruction(_) => index += 1,
                Statement::Variable(_) | Statement::Loc(_) | Statement::Prototype(..) | Statement::CallTargets(..) => {}
            }
        }
        self.labels_ahead.sort_by_key(|&(scope, ..)| Reverse(scope));
        self.tables_ahead.sort_by_key(|&(scope, ..)| Reverse(scope));
        self.declare_ahead();
        Ok(())
    }

    /// Declares the labels and tables of the scope that was just entered.
    fn declare_ahead(&mut self) {
        let scope = self.current.scope;
        while let Some((_, name, index)) = self.labels_ahead.pop_if(|&mut (of, ..)| of == scope) {
            self.labels.declare(scope, name, index);
        }
        while let Some((_, name, targets)) = self.tables_ahead.pop_if(|&mut (of, ..)| of == scope) {
            self.tables.declare(scope, name, targets);
        }
    }

    pub(super) fn open(&mut self) {
        self.entered += 1;
        self.around.push(self.current);
        self.current = Open {
            scope: self.entered,
            registers: self.registers.declared.len(),
            ranges: self.ranges.declared.len(),
            symbols: self.symbols.declared.len(),
            labels: self.labels.declared.len(),
            tables: self.tables.declared.len(),
            prototypes: self.prototypes.declared.len(),
        };
        self.declare_ahead();
    }

    pub(super) fn close(&mut self) {
        let Open { registers, ranges, symbols, labels, tables, prototypes, .. } = self.current;
        self.registers.forget(registers);
        self.ranges.forget(ranges);
        self.symbols.forget(symbols);
        self.labels.forget(labels);
        self.tables.forget(tables);
        self.prototypes.forget(prototypes);
        self.current = self.around.pop().unwrap_or_default();
    }

    pub(super) fn declare_register(&mut self, variable: &Variable<'t>) -> Result<(), PtxError> {
        if variable.elements.is_some() {
            return Err(PtxError::syntax(variable.at, "registers that are an array", "registers of one value or of a vector"));
        }
        if variable.vector != 1 && variable.ty == Type::Pred {
            return Err(PtxError::syntax(variable.at, "a vector of predicates", "a type of at least 8 bits"));
        }
        let Variable { ty, vector, range: count, name, .. } = *variable;
        let declaration = self.declarations.len() as u32;
        let names = if count.is_some() { &mut self.ranges } else { &mut self.registers };
        let outer = names.get(name);
        if !names.declare(self.current.scope, name, declaration) {
            return Err(PtxError::redeclared(variable.at, name));
        }
        self.declarations.push(Registers { scope: self.current.scope, ty, vector, count, outer });
        self.vectors |= vector > 1;
        Ok(())
    }

    pub(super) fn declare_symbol(&mut self, name: &'t str, symbol: Symbol, at: Position) -> Result<(), PtxError> {
        if self.symbols.declare(self.current.scope, name, symbol) { Ok(()) } else { Err(PtxError::redeclared(at, name)) }
    }

    /// The declaration of a register, by the innermost scope that has one, and its number in the range.
    fn declaration(&self, name: &str) -> Option<(u32, u64)> {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[stem.len()..];
        let number = digits.parse::<u64>().ok().filter(|_| digits == "0" || !digits.starts_with('0'));
        let ranged = number.and_then(|number| {
            let innermost = self.ranges.get(stem);
            let mut around = std::iter::successors(innermost, |&index| self.declarations[index as usize].outer);
            around.find(|&index| self.declarations[index as usize].count.is_some_and(|count| number < count)).map(|index| (index, number))
        });
        let own = self.registers.get(name);
        let scope = |index: u32| self.declarations[index as usize].scope;
        // Scopes are numbered in the order of the text, so that of two that are open the inner one has the larger number.
        match (own, ranged) {
            (Some(own), Some((range, _))) if scope(own) < scope(range) => ranged,
            (Some(own), _) => Some((own, 0)),
            (None, _) => ranged,
        }
    }

    /// The register of a name, or an element of it (`.x`) where it is a vector. It gets a slot when it is first met.
    pub(super) fn register(&mut self, (name, element): (&str, Option<&str>), at: Position) -> Result<Option<Declared>, PtxError> {
        let Some((declaration, number)) = self.declaration(name) else { return Ok(None) };
        let Registers { ty, vector, .. } = self.declarations[declaration as usize];
        let elements = &ELEMENTS[..vector as usize];
        let index = match element {
            None if vector == 1 => Some(0),
            Some(element) if vector > 1 => elements.iter().position(|names| names.contains(&element)),
            _ => None,
        };
        let Some(index) = index else {
            let found = format!("`{}{}`", shortened(name), element.map_or(String::new(), |element| format!(".{}", shortened(element))));
            let of = elements.iter().map(|[first, _]| format!(".{first}")).collect::<Vec<_>>().join(", ");
            let expected =
                if vector == 1 { "a register of one value, without element".to_owned() } else { format!("one of its elements {of}") };
            return Err(PtxError::syntax(at, found, expected));
        };
        let key = (declaration, number, index as u8);
        if let Some(&register) = self.slots.get(&key) {
            return Ok(Some(Declared { register, ty }));
        }
        let fresh = self.counts.allocate(class(ty));
        let register = fresh.ok_or_else(|| PtxError::limit(at, "a register of a function too many", u64::from(u16::MAX)))?;
        self.slots.insert(key, register);
        Ok(Some(Declared { register, ty }))
    }

    /// How many elements the registers of a name have that is a vector; `None` of others.
    pub(super) fn vector(&self, name: &str) -> Option<usize> {
        let (declaration, _) = self.declaration(name)?;
        Some(self.declarations[declaration as usize].vector as usize).filter(|&vector| vector > 1)
    }

    /// Whether any register so far is a vector.
    pub(super) fn has_vectors(&self) -> bool {
        self.vectors
    }

    pub(super) fn symbol(&self, name: &str) -> Option<Symbol> {
        self.symbols.get(name)
    }

    pub(super) fn declare_prototype(&mut self, name: &'t str, prototype: Prototype, at: Position) -> Result<(), PtxError> {
        self.declared_prototypes.push(Rc::new(prototype));
        let index = self.declared_prototypes.len() - 1;
        if self.prototypes.declare(self.current.scope, name, index) { Ok(()) } else { Err(PtxError::redeclared(at, name)) }
    }

    /// The prototype of a name, which stands before the calls that use it.
    pub(super) fn prototype(&self, name: &str, at: Position) -> Result<Rc<Prototype>, PtxError> {
        let index = self.prototypes.get(name).ok_or_else(|| PtxError::undeclared(at, name, "prototype or list of functions"))?;
        Ok(self.declared_prototypes[index].clone())
    }

    pub(super) fn label(&self, name: &str, at: Position) -> Result<usize, PtxError> {
        self.labels.get(name).ok_or_else(|| PtxError::undeclared(at, name, "label"))
    }

    /// The operations of a branch table; `left` is how many labels of tables the module may still use.
    pub(super) fn table(&self, name: &str, at: Position, left: &mut usize) -> Result<Box<[usize]>, PtxError> {
        let targets = self.tables.get(name).ok_or_else(|| PtxError::undeclared(at, name, "list of branch targets"))?;
        *left = left
            .checked_sub(targets.len())
            .ok_or_else(|| PtxError::limit(at, "a branch by a table too many: labels of all tables", MAX_TABLES as u64))?;
        targets.iter().map(|(label, at)| self.label(label, *at)).collect()
    }
}
