//! The forms that are compared with hardware: every arithmetic, logic, comparison, conversion, atomic, asynchronous and matrix instruction that
//! the emulator executes, from tables of operations, types and modifiers.
//!
//! A form's name is [`Instruction::value_form`](passmuster_ptx::Instruction::value_form). Some forms are several instructions, which
//! the name does not tell apart: the Boolean operations of a comparison, the tables of `lop3`.

mod asynchronous;
mod atomic;
mod comparison;
mod conversion;
mod float;
mod integer;
mod matrix;
mod tensor;

use passmuster_emulator::numerics::Bound;
use passmuster_plan::plan::{Region, TensorMap};
use passmuster_ptx::Type;

/// What an operand is, which decides the values that are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A number or bits of the operand's type.
    Value,
    /// A shift amount: values around the width, and far past it.
    Amount,
    /// The position or the length of a bit field: 0 to 255, beyond which the ISA does not define `bfe` and `bfi` (9.7.1).
    Field,
    /// A predicate: the lowest bit.
    Truth,
    /// Elements of this type: of a row of the first factor of a product, then of a column of the second, then the sum that it is added to.
    Elements(Type),
}

/// An operand of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Its type.
    pub ty: Type,
    /// What it is.
    pub role: Role,
}

/// A tensor map over one plane of operands.
#[derive(Clone, Debug)]
pub struct OverOperands {
    /// The map, but for its region.
    map: TensorMap,
    /// Whose plane: 0, which all blocks read, or 1, of which the last dimension is the blocks, who write.
    plane: usize,
}

impl OverOperands {
    /// The map for `count` operands.
    pub(super) fn of(&self, count: usize) -> TensorMap {
        let mut map = self.map.clone();
        if let (1, Some(last)) = (self.plane, map.extents.last_mut()) {
            *last = if map.strides.is_empty() { 8 * count as u64 / map.dtype.size() } else { (count / BLOCK) as u64 };
        }
        map.region = Region::new("operands", (8 * count * self.plane) as u64, map.bytes().unwrap_or_default());
        map
    }
}

/// Tuples are a multiple of this.
pub(super) const BLOCK: usize = 256;

/// One row of the ledger before it is run.
#[derive(Clone, Debug)]
pub struct Form {
    /// Its name: the opcode with the modifiers that decide its value; after a blank, what else does.
    pub name: String,
    /// One to four; in `code` they are `%a` to `%d`, and `%pa` to `%pd` where they are predicates. More where they are elements: `%v0` and so on.
    pub operands: Vec<Operand>,
    /// The type of the result, which `code` leaves in `%x`.
    pub result: Type,
    /// PTX of each instruction that the form is, with what makes its result one value.
    pub code: Vec<String>,
    /// How far hardware may be from the emulator; `None` where every bit must be the same.
    pub bound: Option<Bound>,
    /// Whether the payload and the sign of a NaN result are left open: the ISA defines them where it says "canonical" only.
    pub open_nan: bool,
    /// The tensor map that its kernel takes, whose address is in `%map`.
    pub tensor: Option<OverOperands>,
}

/// The opcode of a form, by its name.
pub(super) fn opcode(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

impl Form {
    /// One instruction of these operands, all of them in its order.
    fn new(name: impl Into<String>, operands: &[Operand], result: Type) -> Form {
        let name = name.into();
        let sources: Vec<String> = operands.iter().enumerate().map(|(index, operand)| operand.register(index)).collect();
        let code = if result == Type::Pred {
            format!("{name} %p, {};\nselp.b32 %x, 1, 0, %p;", sources.join(", "))
        } else {
            format!("{name} %x, {};", sources.join(", "))
        };
        Form { name, operands: operands.to_vec(), result: stored(result), code: vec![code], bound: None, open_nan: false, tensor: None }
    }

    fn with_code(self, code: Vec<String>) -> Form {
        Form { code, ..self }
    }

    fn with_bound(self, bound: Option<Bound>) -> Form {
        Form { bound, ..self }
    }

    fn with_open_nan(self, open_nan: bool) -> Form {
        Form { open_nan, ..self }
    }

    /// Whether its code has a register.
    pub(super) fn uses(&self, register: &str) -> bool {
        self.code.iter().any(|code| code.contains(register))
    }

    /// Whether the ISA leaves the result of these operands open: a quotient or remainder by zero (9.7.1, div and rem).
    pub(super) fn is_open(&self, operands: &[u64]) -> bool {
        let integer = self.operands.iter().all(|operand| operand.ty.is_integer());
        integer && (self.name.starts_with("div.") || self.name.starts_with("rem.")) && operands.last() == Some(&0)
    }
}

impl Operand {
    /// What the code calls it, as operand number `index`.
    fn register(self, index: usize) -> String {
        if self.role == Role::Truth { format!("%p{}", self.name(index)) } else { format!("%{}", self.name(index)) }
    }

    /// The register that it is loaded into, as operand number `index`.
    pub(super) fn name(self, index: usize) -> String {
        if matches!(self.role, Role::Elements(_)) { format!("v{index}") } else { char::from(b'a' + index as u8).to_string() }
    }
}

fn value(ty: Type) -> Operand {
    Operand { ty, role: Role::Value }
}

const AMOUNT: Operand = Operand { ty: Type::U32, role: Role::Amount };
const FIELD: Operand = Operand { ty: Type::U32, role: Role::Field };
const TRUTH: Operand = Operand { ty: Type::Pred, role: Role::Truth };

/// Predicates are stored as words.
fn stored(ty: Type) -> Type {
    if ty == Type::Pred { Type::U32 } else { ty }
}

/// A modifier with its dot, or nothing.
fn flag(set: bool, modifier: &str) -> String {
    if set { format!(".{modifier}") } else { String::new() }
}

const BOTH: [bool; 2] = [false, true];
const ROUNDINGS: [&str; 4] = ["rn", "rz", "rm", "rp"];

/// All forms, in the order of the ledger.
pub fn all() -> Vec<Form> {
    let mut forms = integer::forms();
    forms.extend(float::forms());
    forms.extend(comparison::forms());
    forms.extend(conversion::forms());
    forms.extend(atomic::forms());
    forms.extend(asynchronous::forms());
    forms.extend(matrix::forms());
    forms.extend(tensor::forms());
    forms
}
