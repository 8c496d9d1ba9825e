//! One lane's way around the loop in which it looks at a word, with the word as an unknown beside the value that it has now.
//!
//! All else has the value that it has now, as far as the walk can tell: it knows integers, bits, predicates, parameters, and what the lane stores on the way, so
//! that it follows a word through shared memory and a barrier. Where the word decides which way a branch goes, and the other way leads out of the
//! loop, that is what the lane waits for. What the walk does not know makes it say nothing.

use std::collections::HashMap;

use passmuster_ptx::{
    Address, BarrierReduction, Base, BitOp, BooleanOp, Class, Comparison, Condition, Instruction, IntegerOp, Operand, Operation, Register,
    Space, Type, VoteMode,
};

use super::{
    super::{coverage::ends_wait, registers::Registers},
    values::{Decides, Owes, Truth, Value},
    wanted::{Step, Wanted, holds, is_told, ones, swapped},
    way::Way,
};

/// The most operations of a walk.
const MOST_OPERATIONS: usize = 8192;

/// What reads memory as it is now: bytes at an address in a space.
pub(super) type Reads<'a> = &'a dyn Fn(Space, u64, u32) -> Option<u64>;

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It came to the look again, at the same word.
    Around,
    /// It left the loop.
    Out,
    /// It is not known.
    Lost,
}

/// A lane on its way.
#[derive(Clone)]
pub(super) struct Walk<'a> {
    code: &'a [Operation],
    registers: &'a Registers,
    lane: usize,
    reads: Reads<'a>,
    /// The operation that looks, and the address.
    look: usize,
    at: Option<u64>,
    way: &'a Way,
    /// Where dynamic shared memory starts, before it is aligned.
    dynamic: u64,
    values: HashMap<Register, Value>,
    truths: HashMap<Register, Truth>,
    stored: HashMap<(Space, u64), (u32, Value)>,
    pc: usize,
}

impl<'a> Walk<'a> {
    /// A lane that has just looked. `registers` are at its frame.
    pub(super) fn new(
        code: &'a [Operation],
        (look, way): (usize, &'a Way),
        (registers, lane): (&'a Registers, usize),
        (reads, dynamic): (Reads<'a>, u64),
    ) -> Walk<'a> {
        let (values, truths, stored) = Default::default();
        let mut walk = Walk { code, registers, lane, reads, look, at: None, way, dynamic, values, truths, stored, pc: look };
        walk.at = walk.looks_at();
        walk.see();
        walk.pc += 1;
        walk
    }

    /// What lets the lane leave its loop; `None` if its code does not tell.
    pub(super) fn wanted(mut self) -> Option<Wanted> {
        let mut wanted: Option<Wanted> = None;
        for _ in 0..MOST_OPERATIONS {
            if let Some(end) = self.ended(false) {
                return wanted.filter(|_| end == End::Around);
            }
            if let Some((truth, target)) = self.branch() {
                let goes = self.goes(&truth, target);
                let other = if goes { self.pc + 1 } else { target };
                let decides = if goes { truth.negated().decides } else { truth.decides };
                if !matches!(decides, Decides::Nothing) && self.leaves(other) {
                    let Decides::If(test) = decides else { return None };
                    wanted = Some(match wanted {
                        Some(known) => known.or(test),
                        None => test,
                    });
                }
                self.pc = if goes { target } else { self.pc + 1 };
            } else {
                self.step();
            }
        }
        None
    }

    /// Whether a lane that goes on at an operation has left the loop.
    fn leaves(&self, from: usize) -> bool {
        if self.distance(from).is_none() {
            return true;
        }
        let mut other = Walk { pc: from, ..self.clone() };
        for _ in 0..MOST_OPERATIONS {
            if let Some(end) = other.ended(true) {
                return end == End::Out;
            }
            match other.branch() {
                Some((truth, target)) => other.pc = if other.goes(&truth, target) { target } else { other.pc + 1 },
                None => other.step(),
            }
            if other.distance(other.pc).is_none() {
                return true;
            }
        }
        false
    }

    /// Whether the walk is over. On the way `out`, what no wait does is the end of one.
    fn ended(&self, out: bool) -> Option<End> {
        let Some(operation) = self.code.get(self.pc) else { return Some(End::Out) };
        if self.pc == self.look {
            let (there, here) = (self.looks_at(), self.at);
            match (there, here) {
                (Some(there), Some(here)) if there != here && out => return Some(End::Out),
                (Some(there), Some(here)) if there != here => return None,
                _ => return Some(End::Around),
            }
        }
        match &operation.instruction {
            Instruction::Return {} | Instruction::Exit {} | Instruction::Trap {} if operation.guard.is_none() => Some(End::Out),
            Instruction::Call { .. } | Instruction::CallIndirect { .. } => Some(if out { End::Out } else { End::Lost }),
            Instruction::BranchIndexed { .. } => Some(End::Lost),
            Instruction::BarrierSync { .. } | Instruction::BarrierReduce { .. } | Instruction::BarrierArrive { .. } => None,
            _ if out && ends_wait(operation) && operation.guard.is_none() => Some(End::Out),
            _ => None,
        }
    }

    /// The branch that the lane is at: when it is taken, and where it leads.
    fn branch(&self) -> Option<(Truth, usize)> {
        let operation = &self.code[self.pc];
        let Instruction::Branch { target, .. } = operation.instruction else { return None };
        Some((operation.guard.map_or(Truth::plain(Some(true)), |guard| self.condition(guard)), target))
    }

    /// Whether a branch is taken: as it is now or, where that is not known, the shorter way around.
    fn goes(&self, truth: &Truth, target: usize) -> bool {
        truth.now.unwrap_or_else(|| match (self.distance(target), self.distance(self.pc + 1)) {
            (Some(there), Some(next)) => there < next,
            (there, _) => there.is_some(),
        })
    }

    /// The fewest operations from one to the look; `None` if no way leads there.
    fn distance(&self, from: usize) -> Option<u32> {
        self.way.distance(from)
    }

    fn looks_at(&self) -> Option<u64> {
        match &self.code[self.look].instruction {
            Instruction::Load { address, .. } | Instruction::Atomic { address, .. } => self.address(address),
            _ => None,
        }
    }

    /// The word comes to the registers that it is for.
    fn see(&mut self) {
        let (ty, space, destinations) = match &self.code[self.look].instruction {
            Instruction::Load { ty, access, destinations, .. } => (*ty, access.space, destinations.clone()),
            Instruction::Atomic { ty, access, destinations: Some(destinations), .. } => (*ty, access.space, destinations.clone()),
            _ => return,
        };
        for (part, destination) in destinations.iter().enumerate() {
            let Some(destination) = *destination else { continue };
            let at = self.at.map(|at| at.wrapping_add(part as u64 * u64::from(ty.bytes())));
            let now = at.and_then(|at| (self.reads)(space, at, ty.bytes()));
            let owes = if ty.bits() <= 64 { Owes::Word(part, Vec::new()) } else { Owes::Something };
            self.values.insert(destination, Value { now, owes });
        }
    }

    fn address(&self, address: &Address) -> Option<u64> {
        let base = match address.base {
            Base::Register(register) => self.value(Operand::Register(register)).constant()?,
            Base::Zero => 0,
            Base::DynamicShared { align } => self.dynamic.next_multiple_of(u64::from(align.max(1))),
            Base::Variable(_) | Base::Function(_) => return None,
        };
        Some(base.wrapping_add_signed(address.offset))
    }

    fn value(&self, operand: Operand) -> Value {
        match operand {
            Operand::Immediate(bits) => Value::plain(Some(bits)),
            Operand::Register(register) if register.class == Class::Predicate => {
                let truth = self.truth(register);
                let owes = match truth.decides {
                    Decides::Nothing => Owes::Nothing,
                    Decides::If(wanted) => Owes::Choice(wanted, [1, 0]),
                    Decides::Something => Owes::Something,
                };
                Value { now: truth.now.map(u64::from), owes }
            }
            Operand::Register(register) => match self.values.get(&register) {
                Some(value) => value.clone(),
                None if register.class == Class::Quad => Value::plain(None),
                None => Value::plain(Some(self.registers.bits(operand)[self.lane])),
            },
        }
    }

    fn truth(&self, register: Register) -> Truth {
        let held = || Truth::plain(Some(self.registers.predicate(register) >> self.lane & 1 == 1));
        self.truths.get(&register).cloned().unwrap_or_else(held)
    }

    fn condition(&self, condition: Condition) -> Truth {
        let truth = self.truth(condition.register);
        if condition.negated { truth.negated() } else { truth }
    }

    /// Executes what is no branch.
    fn step(&mut self) {
        let code = self.code;
        let operation = &code[self.pc];
        self.pc += 1;
        let guard = operation.guard.map_or(Truth::plain(Some(true)), |guard| self.condition(guard));
        if let Truth { now: Some(false), decides: Decides::Nothing } = guard {
            return;
        }
        if let Truth { now: Some(true), decides: Decides::Nothing } = guard {
            if !self.execute(&operation.instruction) {
                self.forget(&operation.instruction, false);
            }
            return;
        }
        // It is not known whether it is executed, or the word decides that.
        let before = self.values.clone();
        let truths = self.truths.clone();
        if !self.execute(&operation.instruction) {
            return self.forget(&operation.instruction, !matches!(guard.decides, Decides::Nothing));
        }
        for register in written(&operation.instruction) {
            let was = Walk { values: before.clone(), truths: truths.clone(), ..self.clone() };
            if register.class == Class::Predicate {
                let decides = if matches!(guard.decides, Decides::Nothing) { Decides::Nothing } else { Decides::Something };
                let now = guard.now.and_then(|goes| if goes { self.truth(register).now } else { was.truth(register).now });
                self.truths.insert(register, Truth { now, decides });
                continue;
            }
            let (new, old) = (self.value(Operand::Register(register)), was.value(Operand::Register(register)));
            let now = guard.now.and_then(|goes| if goes { new.now } else { old.now });
            let owes = match (&guard.decides, new.constant(), old.constant()) {
                (Decides::Nothing, ..) if new.is_free() && old.is_free() => Owes::Nothing,
                (Decides::If(wanted), Some(new), Some(old)) => Owes::Choice(wanted.clone(), [new, old]),
                _ => Owes::Something,
            };
            self.values.insert(register, Value { now, owes });
        }
    }

    /// What an instruction writes that is not executed here is not known.
    fn forget(&mut self, instruction: &Instruction, owes: bool) {
        let mut owes = owes;
        let mut reads = Vec::new();
        instruction.clone().for_each_register(&mut |register, is_written| {
            if !is_written {
                reads.push(*register);
            }
        });
        for register in reads {
            owes |= match register.class {
                Class::Predicate => !matches!(self.truth(register).decides, Decides::Nothing),
                _ => !self.value(Operand::Register(register)).is_free(),
            };
        }
        for register in written(instruction) {
            if register.class == Class::Predicate {
                let decides = if owes { Decides::Something } else { Decides::Nothing };
                self.truths.insert(register, Truth { now: None, decides });
            } else {
                self.values.insert(register, Value { now: None, owes: if owes { Owes::Something } else { Owes::Nothing } });
            }
        }
    }

    /// Executes what the walk knows; whether it does.
    fn execute(&mut self, instruction: &Instruction) -> bool {
        use Instruction as I;
        match *instruction {
            I::Move { ty: Type::Pred, destination, source: Operand::Register(source) } => {
                let truth = self.truth(source);
                self.truths.insert(destination, truth);
            }
            I::Move { ty, destination, source } if ty.bits() <= 64 => {
                let value = self.value(source);
                self.values.insert(destination, value);
            }
            I::Convert { to, from, destination, source, saturate: false, .. }
                if !to.is_float() && !from.is_float() && from.bits() <= 64 && to.bits() <= 64 =>
            {
                let value = self.value(source);
                let result = if from.is_signed() && to.bits() > from.bits() {
                    value.after(None, ones(to), |bits| extended(bits, from))
                } else {
                    let and = ones(from) & ones(to);
                    value.after(Some(Step::Bits { and, xor: 0 }), ones(to), |bits| bits & and)
                };
                self.values.insert(destination, result);
            }
            I::Unpack { ty, part, ref destinations, source } if ty.bits() <= 64 => {
                let value = self.value(source);
                for (index, destination) in destinations.iter().enumerate() {
                    let Some(destination) = *destination else { continue };
                    let by = index as u32 * part.bits();
                    let shifted = value.after(Some(Step::ShiftRight(by)), ones(ty), |bits| bits >> by);
                    let and = ones(part);
                    let kept = if by + part.bits() >= ty.bits() { None } else { Some(Step::Bits { and, xor: 0 }) };
                    let result = match kept {
                        Some(step) => shifted.after(Some(step), ones(ty), |bits| bits & and),
                        None => shifted,
                    };
                    self.values.insert(destination, result);
                }
            }
            I::Integer { op, ty, saturate: false, relu: false, destination, a, b } => {
                let (a, b) = (self.value(a), self.value(b));
                let Some(result) = sum(op, ty, &a, &b) else { return false };
                self.values.insert(destination, result);
            }
            I::IntegerMultiplyAdd { op, ty, saturate: false, destination, a, b, c } => {
                let [Some(a), Some(b), Some(c)] = [a, b, c].map(|operand| self.value(operand).constant()) else { return false };
                let Some(product) = product(op, ty, a, b) else { return false };
                let all = if op == IntegerOp::MultiplyWide { u64::MAX >> (64 - (2 * ty.bits()).min(64)) } else { ones(ty) };
                self.values.insert(destination, Value::plain(Some(product.wrapping_add(c) & all)));
            }
            I::Logic { op, ty: Type::Pred, destination, a: Operand::Register(a), b: Operand::Register(b) } => {
                let truth = self.truth(a).combine(op, self.truth(b));
                self.truths.insert(destination, truth);
            }
            I::Logic { op, ty, destination, a, b } if ty != Type::Pred => {
                let table = match op {
                    BooleanOp::And => 0b1100_0000,
                    BooleanOp::Or => 0b1111_1100,
                    BooleanOp::Xor => 0b0011_1100,
                };
                return self.logic(table, ones(ty), destination, [a, b, Operand::Immediate(0)]);
            }
            I::LogicTable { table, destination: Some(destination), predicate: None, a, b, c } => {
                return self.logic(table, ones(Type::B32), destination, [a, b, c]);
            }
            I::Bits { op: BitOp::Not, ty: Type::Pred, destination, a: Operand::Register(a) } => {
                let truth = self.truth(a).negated();
                self.truths.insert(destination, truth);
            }
            I::Bits { op: BitOp::Not, ty, destination, a } => {
                let all = ones(ty);
                let value = self.value(a).after(Some(Step::Bits { and: all, xor: all }), all, |bits| !bits);
                self.values.insert(destination, value);
            }
            I::Shift { left, ty, destination, a, amount } => {
                let (value, Some(by)) = (self.value(a), self.value(amount).constant()) else { return false };
                if by >= u64::from(ty.bits()) || ty.is_signed() && !left {
                    return false;
                }
                let step = (!left).then_some(Step::ShiftRight(by as u32));
                let result = value.after(step, ones(ty), |bits| if left { bits << by } else { (bits & ones(ty)) >> by });
                self.values.insert(destination, result);
            }
            I::SetPredicate { comparison, ty, destination, second, a, b, op, combined, .. } if !ty.is_float() && is_told(comparison) => {
                let holds = self.test(comparison, ty, a, b);
                let of = |walk: &Walk<'_>, truth: Truth| match (op, combined) {
                    (Some(op), Some(other)) => truth.combine(op, walk.condition(other)),
                    _ => truth,
                };
                let (first, other) = (of(self, holds.clone()), of(self, holds.negated()));
                destination.into_iter().for_each(|destination| _ = self.truths.insert(destination, first.clone()));
                second.into_iter().for_each(|second| _ = self.truths.insert(second, other.clone()));
            }
            I::Select { ty, destination, a, b, condition } if ty.bits() <= 64 => {
                let (a, b, truth) = (self.value(a), self.value(b), self.condition(condition));
                let now = truth.now.and_then(|holds| if holds { a.now } else { b.now });
                let owes = match (&truth.decides, a.constant(), b.constant()) {
                    (Decides::Nothing, ..) if a.is_free() && b.is_free() => Owes::Nothing,
                    (Decides::If(wanted), Some(a), Some(b)) => Owes::Choice(wanted.clone(), [a, b]),
                    (Decides::Nothing, ..) if truth.now.is_some() => {
                        if truth.now == Some(true) {
                            a.owes
                        } else {
                            b.owes
                        }
                    }
                    _ => Owes::Something,
                };
                self.values.insert(destination, Value { now, owes });
            }
            I::Load { ty, ref access, ref destinations, ref address } if ty.bits() <= 64 => {
                let start = self.address(address);
                for (part, destination) in destinations.iter().enumerate() {
                    let Some(destination) = *destination else { continue };
                    let at = start.map(|start| start.wrapping_add(part as u64 * u64::from(ty.bytes())));
                    let known = at.and_then(|at| self.stored.get(&(access.space, at)).filter(|(bytes, _)| *bytes == ty.bytes()));
                    let read = || Value::plain(at.and_then(|at| (self.reads)(access.space, at, ty.bytes())));
                    let value = known.map_or_else(read, |(_, value)| value.clone());
                    self.values.insert(destination, value);
                }
            }
            I::Store { ty, ref access, ref address, ref values } if ty.bits() <= 64 => {
                let Some(start) = self.address(address) else { return true };
                for (part, value) in values.iter().enumerate() {
                    let at = start.wrapping_add(part as u64 * u64::from(ty.bytes()));
                    let value = self.value(*value);
                    self.stored.insert((access.space, at), (ty.bytes(), value));
                }
            }
            // What holds of this lane is needed of all, or is enough.
            I::BarrierReduce { op: BarrierReduction::And | BarrierReduction::Or, destination, condition, .. } => {
                let truth = self.condition(condition);
                self.truths.insert(destination, truth);
            }
            I::Vote { mode: VoteMode::All | VoteMode::Any, destination, condition, .. } => {
                let truth = self.condition(condition);
                self.truths.insert(destination, truth);
            }
            _ => return false,
        }
        true
    }

    /// A function of single bits, of which two operands are known at most.
    fn logic(&mut self, table: u8, all: u64, destination: Register, operands: [Operand; 3]) -> bool {
        let values = operands.map(|operand| self.value(operand));
        let bits = |of: [u64; 3]| {
            let term = |index: u8| {
                let pick = |at: usize| if index >> (2 - at) & 1 == 1 { of[at] } else { !of[at] };
                if table >> index & 1 == 1 { pick(0) & pick(1) & pick(2) } else { 0 }
            };
            (0..8).fold(0, |bits, index| bits | term(index)) & all
        };
        let owing: Vec<usize> = (0..3).filter(|&at| !values[at].is_free()).collect();
        let now = values.iter().map(|value| value.now).collect::<Option<Vec<u64>>>().map(|now| bits([now[0], now[1], now[2]]));
        let value = match owing[..] {
            [] => Value::plain(now),
            [at] => {
                let with = |value: u64| {
                    let mut of = [0; 3];
                    for other in 0..3 {
                        of[other] = if other == at { value } else { values[other].constant()? };
                    }
                    Some(bits(of))
                };
                let (Some(zeros), Some(full)) = (with(0), with(u64::MAX)) else { return false };
                let step = Step::Bits { and: zeros ^ full, xor: zeros };
                values[at].after(Some(step), all, |value| value & (zeros ^ full) ^ zeros)
            }
            _ => return false,
        };
        self.values.insert(destination, value);
        true
    }

    fn test(&self, comparison: Comparison, ty: Type, a: Operand, b: Operand) -> Truth {
        let (a, b) = (self.value(a), self.value(b));
        let now = a.now.zip(b.now).and_then(|(a, b)| holds(comparison, ty, a, b));
        let (owing, other, comparison) = match (a.is_free(), b.is_free()) {
            (true, true) => return Truth::plain(now),
            (false, true) => (a, b, comparison),
            (true, false) => (b, a, swapped(comparison)),
            (false, false) => return Truth { now, decides: Decides::Something },
        };
        let decides = match (owing.owes, other.constant()) {
            (Owes::Word(part, steps), Some(with)) => Decides::If(Wanted::Is { part, steps, comparison, with: with & ones(ty), ty }),
            (Owes::Choice(wanted, numbers), Some(with)) => match numbers.map(|number| holds(comparison, ty, number, with)) {
                [Some(true), Some(false)] => Decides::If(wanted),
                [Some(false), Some(true)] => Decides::If(wanted.negated()),
                [Some(_), Some(_)] => Decides::Nothing,
                _ => Decides::Something,
            },
            _ => Decides::Something,
        };
        Truth { now, decides }
    }
}

/// The registers that an instruction writes.
fn written(instruction: &Instruction) -> Vec<Register> {
    let mut written = Vec::new();
    instruction.clone().for_each_register(&mut |register, is_written| {
        if is_written {
            written.push(*register);
        }
    });
    written
}

/// The low bits with the sign of a type.
fn extended(bits: u64, ty: Type) -> u64 {
    let above = 64 - ty.bits();
    (((bits << above) as i64) >> above) as u64
}

/// Products that 64 bits hold.
fn product(op: IntegerOp, ty: Type, a: u64, b: u64) -> Option<u64> {
    match op {
        IntegerOp::MultiplyLow => Some(a.wrapping_mul(b) & ones(ty)),
        IntegerOp::MultiplyWide if ty.bits() <= 32 && ty.is_signed() => Some(extended(a, ty).wrapping_mul(extended(b, ty))),
        IntegerOp::MultiplyWide if ty.bits() <= 32 => Some((a & ones(ty)).wrapping_mul(b & ones(ty))),
        _ => None,
    }
}

/// Sums, differences and the like, of which one operand may owe the word something.
fn sum(op: IntegerOp, ty: Type, a: &Value, b: &Value) -> Option<Value> {
    let all = ones(ty);
    if let (Some(a), Some(b), IntegerOp::MultiplyWide) = (a.constant(), b.constant(), op) {
        return product(op, ty, a, b).map(|product| Value::plain(Some(product)));
    }
    let of = |a: u64, b: u64| {
        let less = holds(Comparison::Less, ty, a, b).unwrap_or(false);
        Some(
            match op {
                IntegerOp::Add => a.wrapping_add(b),
                IntegerOp::Subtract => a.wrapping_sub(b),
                IntegerOp::MultiplyLow => a.wrapping_mul(b),
                IntegerOp::Minimum => {
                    if less {
                        a
                    } else {
                        b
                    }
                }
                IntegerOp::Maximum => {
                    if less {
                        b
                    } else {
                        a
                    }
                }
                _ => return None,
            } & all,
        )
    };
    of(0, 0)?;
    let apply = |a: u64, b: u64| of(a, b).unwrap_or(0);
    match (a.constant(), b.constant()) {
        _ if a.is_free() && b.is_free() => Some(Value::plain(a.now.zip(b.now).map(|(a, b)| apply(a, b)))),
        (_, Some(b)) => {
            let step = match op {
                IntegerOp::Add => Some(Step::Add(b & all)),
                IntegerOp::Subtract => Some(Step::Add(b.wrapping_neg() & all)),
                _ => None,
            };
            Some(a.after(step, all, |a| apply(a, b)))
        }
        (Some(a), _) => {
            let step = (op == IntegerOp::Add).then_some(Step::Add(a & all));
            Some(b.after(step, all, |b| apply(a, b)))
        }
        _ => None,
    }
}
