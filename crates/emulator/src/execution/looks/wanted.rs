//! What the word that lanes look at must be for them to go on, as far as their code tells.

use std::fmt;

use passmuster_ptx::{Comparison, Type};

/// What is done to a word before it is compared. Numbers have the width of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `value & and ^ xor`: every function of its single bits is one such.
    Bits {
        /// Bits that are kept.
        and: u64,
        /// Bits that are turned over after that.
        xor: u64,
    },
    /// A sum, which wraps around.
    Add(u64),
    /// Shifted right by a number of bits, with zeros from above.
    ShiftRight(u32),
}

/// What lets lanes go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// A word compares so with a number.
    Is {
        /// Which element of a vector.
        part: usize,
        /// What is done to it first.
        steps: Vec<Step>,
        /// How it compares.
        comparison: Comparison,
        /// With what.
        with: u64,
        /// As which type: an integer of 32 or 64 bits, or of fewer.
        ty: Type,
    },
    /// All of these.
    All(Vec<Wanted>),
    /// One of these.
    Any(Vec<Wanted>),
}

/// Whether it is a comparison of integers that this module has words for.
pub(super) fn is_told(comparison: Comparison) -> bool {
    negation(comparison).is_some()
}

/// The comparison that holds where this one does not.
fn negation(comparison: Comparison) -> Option<Comparison> {
    use Comparison as C;
    Some(match comparison {
        C::Equal => C::NotEqual,
        C::NotEqual => C::Equal,
        C::Less => C::GreaterEqual,
        C::LessEqual => C::Greater,
        C::Greater => C::LessEqual,
        C::GreaterEqual => C::Less,
        C::Lower => C::HigherSame,
        C::LowerSame => C::Higher,
        C::Higher => C::LowerSame,
        C::HigherSame => C::Lower,
        _ => return None,
    })
}

/// The comparison of the same two numbers in the other order.
pub(super) fn swapped(comparison: Comparison) -> Comparison {
    use Comparison as C;
    match comparison {
        C::Less => C::Greater,
        C::LessEqual => C::GreaterEqual,
        C::Greater => C::Less,
        C::GreaterEqual => C::LessEqual,
        C::Lower => C::Higher,
        C::LowerSame => C::HigherSame,
        C::Higher => C::Lower,
        C::HigherSame => C::LowerSame,
        other => other,
    }
}

/// The ones of a type's width.
pub(super) fn ones(ty: Type) -> u64 {
    u64::MAX >> (64 - ty.bits().clamp(1, 64))
}

/// The number that the low bits are in a signed type.
fn signed(bits: u64, ty: Type) -> i64 {
    let above = 64 - ty.bits().clamp(1, 64);
    ((bits << above) as i64) >> above
}

/// Whether a comparison of two numbers of a type holds.
pub(super) fn holds(comparison: Comparison, ty: Type, a: u64, b: u64) -> Option<bool> {
    use Comparison as C;
    let (a, b) = (a & ones(ty), b & ones(ty));
    let order = if ty.is_signed() { signed(a, ty).cmp(&signed(b, ty)) } else { a.cmp(&b) };
    let unsigned = a.cmp(&b);
    Some(match comparison {
        C::Equal => a == b,
        C::NotEqual => a != b,
        C::Less => order.is_lt(),
        C::LessEqual => order.is_le(),
        C::Greater => order.is_gt(),
        C::GreaterEqual => order.is_ge(),
        C::Lower => unsigned.is_lt(),
        C::LowerSame => unsigned.is_le(),
        C::Higher => unsigned.is_gt(),
        C::HigherSame => unsigned.is_ge(),
        _ => return None,
    })
}

impl Wanted {
    /// What holds where this does not.
    pub(super) fn negated(&self) -> Wanted {
        let all = |of: &[Wanted]| of.iter().map(Wanted::negated).collect();
        match self {
            Wanted::Is { part, steps, comparison, with, ty } => Wanted::Is {
                part: *part,
                steps: steps.clone(),
                comparison: negation(*comparison).unwrap_or(*comparison),
                with: *with,
                ty: *ty,
            },
            Wanted::All(of) => Wanted::Any(all(of)),
            Wanted::Any(of) => Wanted::All(all(of)),
        }
    }

    /// Both of these, each of them once.
    pub(super) fn and(self, other: Wanted) -> Wanted {
        let mut all = if let Wanted::All(all) = self { all } else { vec![self] };
        let more = if let Wanted::All(more) = other { more } else { vec![other] };
        more.into_iter().for_each(|one| {
            if !all.contains(&one) {
                all.push(one)
            }
        });
        if all.len() == 1 { all.remove(0) } else { Wanted::All(all) }
    }

    /// Either of these, each of them once.
    pub(super) fn or(self, other: Wanted) -> Wanted {
        self.negated().and(other.negated()).negated()
    }

    /// The type of the first comparison.
    pub(super) fn ty(&self) -> Option<Type> {
        match self {
            Wanted::Is { ty, .. } => Some(*ty),
            Wanted::All(of) | Wanted::Any(of) => of.first().and_then(Wanted::ty),
        }
    }

    /// The elements of the vector that it speaks of, each once.
    pub fn parts(&self) -> Vec<usize> {
        let mut parts = match self {
            Wanted::Is { part, .. } => vec![*part],
            Wanted::All(of) | Wanted::Any(of) => of.iter().flat_map(Wanted::parts).collect(),
        };
        parts.sort_unstable();
        parts.dedup();
        parts
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, names_parts: bool) -> fmt::Result {
        let join = |f: &mut fmt::Formatter<'_>, of: &[Wanted], word: &str| {
            of.iter().enumerate().try_for_each(|(index, one)| {
                let nested = matches!(one, Wanted::All(_) | Wanted::Any(_));
                f.write_str(if index > 0 { word } else { "" })?;
                f.write_str(if nested { "(" } else { "" })?;
                one.write(f, names_parts)?;
                f.write_str(if nested { ")" } else { "" })
            })
        };
        match self {
            Wanted::All(of) => join(f, of, " and "),
            Wanted::Any(of) => join(f, of, " or "),
            Wanted::Is { part, steps, comparison, with, ty } => {
                if names_parts {
                    write!(f, "element {part} ")?;
                }
                write_test(f, steps.clone(), *comparison, *with, *ty)
            }
        }
    }
}

impl fmt::Display for Wanted {
    /// As in `>= 2`, `!= 0`, `bit 31 set`, `value & 0xff == 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts();
        self.write(f, parts != [0])
    }
}

/// A number of a type as people read it: large ones in hexadecimal digits.
pub fn number(bits: u64, ty: Type) -> String {
    let bits = bits & ones(ty);
    match signed(bits, ty) {
        negative @ -99_999..0 if ty.is_signed() => negative.to_string(),
        _ if bits < 100_000 => bits.to_string(),
        _ => format!("{bits:#x}"),
    }
}

/// Takes the steps that an equal number can take in their place to the other side.
fn move_across(steps: &mut Vec<Step>, with: &mut u64, all: u64) {
    while let Some(&last) = steps.last() {
        match last {
            Step::Add(more) => *with = with.wrapping_sub(more) & all,
            Step::Bits { and, xor } if and & all == all => *with ^= xor & all,
            Step::Bits { .. } | Step::ShiftRight(_) => return,
        }
        steps.pop();
    }
}

fn write_test(f: &mut fmt::Formatter<'_>, mut steps: Vec<Step>, comparison: Comparison, with: u64, ty: Type) -> fmt::Result {
    use Comparison as C;
    let all = ones(ty);
    let top = 1 << (ty.bits().clamp(1, 64) - 1);
    let (mut comparison, mut with) = (comparison, with & all);
    // The least number that holds is easier to read than the greatest that does not.
    match comparison {
        C::Greater if with != if ty.is_signed() { all >> 1 } else { all } => {
            (comparison, with) = (C::GreaterEqual, with.wrapping_add(1) & all);
        }
        C::Higher if with != all => (comparison, with) = (C::HigherSame, with + 1),
        _ => {}
    }
    let is_equality = matches!(comparison, C::Equal | C::NotEqual);
    let is_sign = ty.is_signed() && with == 0 && matches!(comparison, C::Less | C::GreaterEqual);
    if is_equality {
        move_across(&mut steps, &mut with, all);
    } else if let ([Step::Add(more)], true) = (&steps[..], ty.is_signed()) {
        // The sign of a difference: counters that wrap around.
        with = with.wrapping_sub(*more) & all;
        steps.clear();
    }
    match steps[..] {
        [.., Step::Bits { and, xor }] if is_sign && and & top != 0 => {
            let set = (comparison == C::Less) != (xor & top != 0);
            steps.pop();
            return write_bits(f, &steps, top, if set { top } else { 0 }, true);
        }
        [.., Step::Bits { and, xor }] if is_equality => {
            steps.pop();
            return write_bits(f, &steps, and & all, (with ^ xor) & all, comparison == C::Equal);
        }
        _ => {}
    }
    write_steps(f, &steps)?;
    let sign = match comparison {
        C::Equal => "==",
        C::NotEqual => "!=",
        C::Less | C::Lower => "<",
        C::LessEqual | C::LowerSame => "<=",
        C::Greater | C::Higher => ">",
        C::GreaterEqual | C::HigherSame => ">=",
        other => return write!(f, "{other} {}", number(with, ty)),
    };
    write!(f, "{sign} {}", number(with, ty))
}

/// That some bits are these, or are not.
fn write_bits(f: &mut fmt::Formatter<'_>, steps: &[Step], mut mask: u64, mut with: u64, equal: bool) -> fmt::Result {
    let mut steps = steps.to_vec();
    if let Some(&Step::ShiftRight(by)) = steps.last()
        && mask.leading_zeros() >= by
    {
        (mask, with) = (mask << by, with << by);
        steps.pop();
    }
    if steps.is_empty() && mask.is_power_of_two() && with & !mask == 0 {
        let set = (with != 0) == equal;
        return write!(f, "bit {} {}", mask.trailing_zeros(), if set { "set" } else { "clear" });
    }
    if steps.is_empty() {
        f.write_str("value ")?;
    } else {
        write_steps(f, &steps)?;
    }
    write!(f, "& {mask:#x} {} {with:#x}", if equal { "==" } else { "!=" })
}

fn write_steps(f: &mut fmt::Formatter<'_>, steps: &[Step]) -> fmt::Result {
    if !steps.is_empty() {
        f.write_str("value ")?;
    }
    steps.iter().try_for_each(|step| match step {
        Step::Bits { and, xor: 0 } => write!(f, "& {and:#x} "),
        Step::Bits { and, xor } => write!(f, "& {and:#x} ^ {xor:#x} "),
        Step::Add(more) => write!(f, "+ {more:#x} "),
        Step::ShiftRight(by) => write!(f, ">> {by} "),
    })
}
