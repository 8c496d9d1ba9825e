//! A PTX module as written: names unresolved, instructions undecoded. It borrows the text.

use super::{
    error::{Position, PtxError},
    types::{Space, Type},
};

/// A module.
#[derive(Debug, Default)]
pub(super) struct Module<'t> {
    pub(super) version: (u32, u32),
    pub(super) targets: Vec<&'t str>,
    pub(super) address_size: u32,
    pub(super) files: Vec<(u32, &'t str)>,
    pub(super) variables: Vec<Variable<'t>>,
    pub(super) functions: Vec<Function<'t>>,
}

/// Where a variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    Register,
    Memory(Space),
}

/// A declaration of a variable, a parameter or registers.
#[derive(Clone, Debug)]
pub(super) struct Variable<'t> {
    pub(super) at: Position,
    pub(super) external: bool,
    pub(super) storage: Storage,
    pub(super) ty: Type,
    /// Elements of `.v2` and `.v4`; 1 otherwise.
    pub(super) vector: u32,
    pub(super) align: Option<u64>,
    /// `.ptr`: the space and the alignment in bytes of what a parameter points to.
    pub(super) pointer: Option<(Space, u64)>,
    pub(super) name: &'t str,
    /// `%r<12>`: how many there are, named `%r0` to `%r11`.
    pub(super) range: Option<u64>,
    /// Elements of an array; `Some(None)` where the brackets are empty.
    pub(super) elements: Option<Option<u64>>,
    pub(super) initial: Vec<(Initial<'t>, Position)>,
}

/// One element of an initialiser.
#[derive(Clone, Copy, Debug)]
pub(super) enum Initial<'t> {
    Number(Number<'t>),
    /// The address of a variable or a function, generic where `generic(...)` says so, and an offset in bytes.
    Address {
        name: &'t str,
        generic: bool,
        offset: i64,
    },
}

/// A number as written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number<'t> {
    Integer { value: u64, negative: bool },
    Single(u32),
    Double(u64),
    Decimal { digits: &'t str, negative: bool },
}

/// A function or a kernel.
#[derive(Debug)]
pub(super) struct Function<'t> {
    pub(super) at: Position,
    pub(super) entry: bool,
    pub(super) name: &'t str,
    pub(super) returns: Vec<Variable<'t>>,
    pub(super) inputs: Vec<Variable<'t>>,
    /// `.maxntid 512, 1, 1` and the like.
    pub(super) bounds: Vec<(&'t str, Vec<u64>, Position)>,
    pub(super) body: Option<Vec<Statement<'t>>>,
    /// Where the body ends.
    pub(super) end: Position,
}

/// One statement of a body. Scopes are brackets in one flat list, so that no depth of nesting is a depth of recursion.
#[derive(Debug)]
pub(super) enum Statement<'t> {
    Open,
    Close,
    Variable(Variable<'t>),
    Label(&'t str, Position),
    /// `name: .branchtargets a, b;`
    BranchTargets(&'t str, Vec<(&'t str, Position)>),
    /// `name: .callprototype (returns) _ (inputs);`
    Prototype(&'t str, Position, Box<Prototype<'t>>),
    /// `name: .calltargets f, g;`: functions of one signature.
    CallTargets(&'t str, Position, Vec<(&'t str, Position)>),
    Loc([u32; 3]),
    Instruction(Instruction<'t>),
}

/// What an indirect call passes and takes back.
#[derive(Debug)]
pub(super) struct Prototype<'t> {
    pub(super) returns: Vec<Variable<'t>>,
    pub(super) inputs: Vec<Variable<'t>>,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(super) struct Instruction<'t> {
    pub(super) at: Position,
    /// Predicate, and whether it is negated.
    pub(super) guard: Option<(&'t str, bool, Position)>,
    pub(super) opcode: &'t str,
    pub(super) modifiers: Vec<(&'t str, Position)>,
    pub(super) operands: Vec<Operand<'t>>,
    /// What is wrong with operands of no known shape, which are then not kept.
    pub(super) unreadable: Option<Box<PtxError>>,
}

/// An operand and where it is.
#[derive(Clone, Debug)]
pub(super) struct Operand<'t> {
    pub(super) at: Position,
    pub(super) kind: OperandKind<'t>,
}

/// What an operand is.
#[derive(Clone, Debug)]
pub(super) enum OperandKind<'t> {
    /// A name, with the element after a dot (`%tid.x`).
    Name(&'t str, Option<&'t str>),
    /// `name + offset`, outside brackets.
    NamePlus(&'t str, i64),
    /// `!p`
    Not(&'t str),
    Number(Number<'t>),
    /// `[name + offset]`, the name with its element; without a name, the offset is the address.
    Address(Option<(&'t str, Option<&'t str>)>, i64),
    /// `[name, {x, y}]`: a tensor map, and a place in its tensor.
    InTensor((&'t str, Option<&'t str>), Vec<Operand<'t>>),
    /// `{a, b}`
    Vector(Vec<Operand<'t>>),
    /// `(a, b)` of a call.
    List(Vec<Operand<'t>>),
    /// `a | p`
    Pair(&'t str, &'t str),
}
