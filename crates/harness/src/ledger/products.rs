//! Tuples of products: a row, a column and a sum, of kinds that show in which order and how wide hardware adds.

use super::forms::{Operand, Role};
use passmuster_emulator::{choice::Choice, numerics::Format};
use passmuster_ptx::Type;

/// The format of an element; none of integers.
fn format_of(ty: Type) -> Option<Format> {
    Some(match ty {
        Type::F16 => Format::F16,
        Type::Bf16 => Format::BF16,
        // Its low bits count for nothing, and must.
        Type::F32 | Type::Tf32 => Format::F32,
        Type::F64 => Format::F64,
        Type::E4m3 => Format::E4M3,
        Type::E5m2 => Format::E5M2,
        _ => return None,
    })
}

fn type_of(operand: &Operand) -> Type {
    if let Role::Elements(ty) = operand.role { ty } else { operand.ty }
}

/// Tuple number `index` of a form of products: words of the row, as many of the column, and the sum.
pub(super) fn tuple(operands: &[Operand], index: usize, choice: &mut Choice) -> Vec<u64> {
    let words = operands.len() / 2;
    let types = [type_of(&operands[0]), type_of(&operands[words]), type_of(&operands[2 * words])];
    let depth = (0..words).map(|word| operands[word].ty.bits()).sum::<u32>() / types[0].bits();
    let [mut a, mut b] = [vec![0; depth as usize], vec![0; depth as usize]];
    let c = match (format_of(types[0]), format_of(types[1]), format_of(types[2])) {
        (Some(of_a), Some(of_b), Some(of_c)) => floats([of_a, of_b, of_c], index, &mut a, &mut b, choice),
        _ => integers(index, &mut a, &mut b, choice),
    };
    let packed = |values: &[u64], ty: Type, word: usize| {
        let each = (operands[word % words].ty.bits() / ty.bits()) as usize;
        let parts = values[word % words * each..][..each].iter().enumerate();
        parts.fold(0, |bits, (part, value)| bits | value << (part as u32 * ty.bits()))
    };
    let factors = (0..2 * words).map(|word| if word < words { packed(&a, types[0], word) } else { packed(&b, types[1], word) });
    factors.chain([c]).collect()
}

/// Bytes, extreme ones among them, and a sum that may be near an end of its range.
fn integers(index: usize, a: &mut [u64], b: &mut [u64], choice: &mut Choice) -> u64 {
    for value in a.iter_mut().chain(b) {
        *value = match index % 4 {
            0 => choice.of(&[0, 1, 0x7f, 0x80, 0xff]),
            1 => choice.of(&[0x80, 0xff]),
            _ => choice.draw() & 0xff,
        };
    }
    match index % 3 {
        0 => u64::from((i32::MAX as u32).wrapping_sub(choice.draw() as u32 % 0x10_0000)),
        1 => u64::from((i32::MIN as u32).wrapping_add(choice.draw() as u32 % 0x10_0000)),
        _ => choice.draw() & 0xffff_ffff,
    }
}

fn bias(format: Format) -> i64 {
    (1 << (format.exponent - 1)) - 1
}

/// A number with about this exponent, as near as the format has it.
fn number(format: Format, exponent: i64, choice: &mut Choice) -> u64 {
    let ones = (1 << format.fraction) - 1;
    let fraction = match choice.draw() % 6 {
        0 => 0,
        1 => ones,
        2 => choice.draw() & ones & (ones << (choice.draw() % u64::from(format.fraction + 1))),
        _ => choice.draw() & ones,
    };
    let field = (exponent + bias(format)).max(0) as u64;
    let magnitude = (field << format.fraction | fraction).min(format.largest());
    choice.draw() & format.sign() | magnitude
}

/// A power of two with this exponent, as near as the format has it.
fn power(format: Format, exponent: i64) -> u64 {
    let field = exponent + bias(format);
    if field > 0 {
        return ((field as u64) << format.fraction).min(format.largest());
    }
    // Below the normal numbers.
    let shift = i64::from(format.fraction) - 1 + field;
    if shift >= 0 { 1 << shift } else { 0 }
}

/// What differs from tuple to tuple.
const KINDS: usize = 14;

fn floats([of_a, of_b, of_c]: [Format; 3], index: usize, a: &mut [u64], b: &mut [u64], choice: &mut Choice) -> u64 {
    let depth = a.len();
    let between = |low: i64, high: i64, choice: &mut Choice| low + (choice.draw() % (high - low + 1) as u64) as i64;
    // Exponents of the factors from these on, and of the sum.
    let fill = |a: &mut [u64], b: &mut [u64], low: i64, high: i64, choice: &mut Choice| {
        for k in 0..depth {
            a[k] = number(of_a, between(low, high, choice), choice);
            b[k] = number(of_b, between(low, high, choice), choice);
        }
    };
    let range = bias(of_a).min(bias(of_b)).min(bias(of_c)).min(40);
    match index % KINDS {
        // Alike, a little apart, far apart.
        0 => {
            fill(a, b, 0, 0, choice);
            number(of_c, between(-2, 4, choice), choice)
        }
        1 => {
            fill(a, b, -4, 3, choice);
            number(of_c, between(-8, 10, choice), choice)
        }
        2 => {
            fill(a, b, -range, range / 2, choice);
            number(of_c, between(-range, range, choice), choice)
        }
        // Neighbours cancel but for a little, and the sum is small.
        3 | 4 => {
            fill(a, b, -5, range / 2 - 1, choice);
            for k in (1..depth).step_by(2) {
                (a[k], b[k]) = (a[k - 1] ^ of_a.sign(), b[k - 1] ^ u64::from(choice.one_in(4)));
            }
            number(of_c, between(-20, 6, choice), choice)
        }
        // The sum cancels one product, which is a power of two; others are far below.
        5 => {
            fill(a, b, -range, -2, choice);
            let (first, second) = (between(0, range / 2, choice), between(0, range / 2 - 1, choice));
            let at = choice.draw() as usize % depth;
            (a[at], b[at]) = (power(of_a, first), power(of_b, second));
            power(of_c, first + second) | of_c.sign()
        }
        // One large term, and others so far below it that they are cut or rounded.
        6 | 7 => {
            let (high, below) = (between(0, range / 2, choice), between(8, 30, choice));
            for k in 0..depth {
                (a[k], b[k]) = (power(of_a, high - below / 2), power(of_b, high - below + below / 2 - between(0, 3, choice)));
                a[k] |= choice.draw() & of_a.sign();
                b[k] |= choice.draw() & ((1 << of_b.fraction) - 1);
            }
            if index % KINDS == 6 {
                let at = choice.draw() as usize % depth;
                (a[at], b[at]) = (power(of_a, high), number(of_b, high, choice));
                let small = number(of_c, 2 * high - between(0, 30, choice), choice);
                return choice.of(&[0, of_c.sign(), small]);
            }
            number(of_c, 2 * high, choice)
        }
        // One product and the sum.
        8 | 9 => {
            let at = choice.draw() as usize % depth;
            let (first, second) = (between(-range, range / 2, choice), between(-range, range / 2, choice));
            (a[at], b[at]) = (number(of_a, first, choice), number(of_b, second, choice));
            number(of_c, first + second + between(-28, 28, choice), choice)
        }
        // Subnormals.
        10 => {
            fill(a, b, -2000, -2000, choice);
            for value in b {
                if choice.one_in(2) {
                    *value = number(of_b, between(0, range, choice), choice);
                }
            }
            number(of_c, -2000, choice)
        }
        // Zeros of both signs, and ones of both that cancel.
        11 => {
            for k in 0..depth {
                a[k] = choice.draw() & of_a.sign() | if choice.one_in(8) { power(of_a, 0) } else { 0 };
                b[k] = choice.draw() & of_b.sign() | if choice.one_in(2) { power(of_b, 0) } else { 0 };
            }
            choice.of(&[0, of_c.sign(), power(of_c, 0), power(of_c, 0) | of_c.sign(), 1, of_c.sign() | 1])
        }
        // What is no number.
        12 => {
            fill(a, b, -3, 3, choice);
            let special = |format: Format, choice: &mut Choice| {
                let above = format.largest() + 1;
                choice.draw() & format.sign() | choice.of(&[0, above, above, format.sign() - 1, format.largest()])
            };
            for _ in 0..1 + choice.draw() % 2 {
                let at = choice.draw() as usize % depth;
                match choice.draw() % 3 {
                    0 => a[at] = special(of_a, choice),
                    1 => b[at] = special(of_b, choice),
                    _ => return special(of_c, choice),
                }
            }
            number(of_c, 0, choice)
        }
        // Overflow, or nearly.
        _ => {
            let top = [of_a, of_b].map(bias);
            for k in 0..depth {
                (a[k], b[k]) = (number(of_a, top[0] - between(0, 2, choice), choice), number(of_b, top[1] - between(0, 2, choice), choice));
            }
            if choice.one_in(2) {
                for value in b {
                    *value = number(of_b, bias(of_c) - top[0] - between(0, 6, choice), choice);
                }
            }
            number(of_c, bias(of_c) - between(0, 3, choice), choice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::forms;

    /// If this fails, a kind of tuples is not what it says, or nothing is known of some elements.
    #[test]
    fn tuples_have_numbers_of_all_kinds() {
        let form = forms::all().into_iter().find(|form| form.name == "wgmma.mma_async.f32.f16.f16").unwrap();
        let mut choice = Choice::of_seed(1);
        let tuples: Vec<Vec<u64>> = (0..50 * KINDS).map(|index| tuple(&form.operands, index, &mut choice)).collect();
        let halves = |tuple: &[u64]| (0..4 * 8).map(|at| (tuple[at / 4] >> (at % 4 * 16)) as u16).collect::<Vec<u16>>();
        let any = |kind: usize, test: &dyn Fn(u16) -> bool| {
            tuples.iter().skip(kind).step_by(KINDS).any(|tuple| halves(tuple).into_iter().any(test))
        };
        assert!(any(12, &|half| half & 0x7fff > 0x7c00) && any(12, &|half| half & 0x7fff == 0x7c00) && any(11, &|half| half == 0x8000));
        assert!(any(10, &|half| half & 0x7c00 == 0 && half & 0x3ff != 0) && any(13, &|half| half & 0x7c00 == 0x7800));
        assert!(!(0..10).any(|kind| any(kind, &|half| half & 0x7c00 == 0x7c00)), "a number is none");
        let one_product =
            tuples.iter().skip(8).step_by(KINDS).all(|tuple| halves(tuple).into_iter().filter(|half| half & 0x7fff != 0).count() <= 2);
        assert!(one_product);
    }
}
