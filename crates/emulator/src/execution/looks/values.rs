//! Values and predicates on a walk: what they are now, and what they owe to the word.

use passmuster_ptx::BooleanOp;

use super::wanted::{Step, Wanted};

/// What a value owes to the word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owes {
    Nothing,
    /// It is an element of it after some steps.
    Word(usize, Vec<Step>),
    /// It is the first number if this holds, and else the second.
    Choice(Wanted, [u64; 2]),
    /// Something that has no name here.
    Something,
}

#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) now: Option<u64>,
    pub(super) owes: Owes,
}

/// What a predicate owes to the word.
#[derive(Clone, Debug)]
pub(super) enum Decides {
    Nothing,
    /// It holds if this does.
    If(Wanted),
    Something,
}

#[derive(Clone, Debug)]
pub(super) struct Truth {
    pub(super) now: Option<bool>,
    pub(super) decides: Decides,
}

impl Value {
    pub(super) fn plain(now: Option<u64>) -> Value {
        Value { now, owes: Owes::Nothing }
    }

    pub(super) fn is_free(&self) -> bool {
        self.owes == Owes::Nothing
    }

    /// The number, where it is known and owes the word nothing.
    pub(super) fn constant(&self) -> Option<u64> {
        self.now.filter(|_| self.is_free())
    }

    /// The same after something that is known for each number, and may have a name as a step.
    pub(super) fn after(&self, step: Option<Step>, all: u64, of: impl Fn(u64) -> u64) -> Value {
        let of = |bits: u64| of(bits) & all;
        let owes = match (&self.owes, step) {
            (Owes::Nothing, _) => Owes::Nothing,
            (Owes::Word(part, steps), Some(step)) => Owes::Word(*part, with_step(steps.clone(), step, all)),
            (Owes::Choice(wanted, numbers), _) => Owes::Choice(wanted.clone(), numbers.map(of)),
            (Owes::Word(..) | Owes::Something, _) => Owes::Something,
        };
        Value { now: self.now.map(of), owes }
    }
}

/// The steps and one more, with those of bits made one, and without one that changes nothing.
fn with_step(mut steps: Vec<Step>, step: Step, all: u64) -> Vec<Step> {
    match (steps.last_mut(), step) {
        (_, Step::Add(0) | Step::ShiftRight(0)) => {}
        (_, Step::Bits { and, xor }) if and & all == all && xor & all == 0 => {}
        (Some(Step::Bits { and, xor }), Step::Bits { and: more, xor: other }) => (*and, *xor) = (*and & more, *xor & more ^ other),
        (Some(Step::Add(sum)), Step::Add(more)) => *sum = sum.wrapping_add(more) & all,
        _ => steps.push(step),
    }
    steps
}

impl Truth {
    pub(super) fn plain(now: Option<bool>) -> Truth {
        Truth { now, decides: Decides::Nothing }
    }

    pub(super) fn negated(self) -> Truth {
        let decides = match self.decides {
            Decides::If(wanted) => Decides::If(wanted.negated()),
            other => other,
        };
        Truth { now: self.now.map(|now| !now), decides }
    }

    pub(super) fn combine(self, op: BooleanOp, other: Truth) -> Truth {
        let now = match (op, self.now, other.now) {
            (BooleanOp::And, Some(false), _) | (BooleanOp::And, _, Some(false)) => Some(false),
            (BooleanOp::Or, Some(true), _) | (BooleanOp::Or, _, Some(true)) => Some(true),
            (BooleanOp::And, Some(a), Some(b)) => Some(a & b),
            (BooleanOp::Or, Some(a), Some(b)) => Some(a | b),
            (BooleanOp::Xor, Some(a), Some(b)) => Some(a ^ b),
            _ => None,
        };
        let decides = match (op, self.decides, other.decides) {
            (_, Decides::Nothing, Decides::Nothing) => Decides::Nothing,
            (BooleanOp::And, Decides::If(a), Decides::If(b)) => Decides::If(a.and(b)),
            (BooleanOp::Or, Decides::If(a), Decides::If(b)) => Decides::If(a.or(b)),
            (BooleanOp::Xor, ..) => Decides::Something,
            // What owes the word nothing and holds already, or does not, settles it or leaves it to the other.
            (op, Decides::If(wanted), Decides::Nothing) => of_one(op, wanted, other.now),
            (op, Decides::Nothing, Decides::If(wanted)) => of_one(op, wanted, self.now),
            _ => Decides::Something,
        };
        Truth { now, decides }
    }
}

/// What is decided by a test and a predicate that owes the word nothing.
fn of_one(op: BooleanOp, wanted: Wanted, other: Option<bool>) -> Decides {
    match (op, other) {
        (BooleanOp::And, Some(false)) | (BooleanOp::Or, Some(true)) => Decides::Nothing,
        // A test of something else besides may turn out either way: the word is what is looked at.
        _ => Decides::If(wanted),
    }
}
