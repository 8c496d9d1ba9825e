//! Sums that are exact until they are rounded once.

use super::{
    float::Float,
    format::{Format, Parts, Rounding},
};

/// The place of the last bit: the smallest subnormal of f64, and a bit of every other format.
const LAST_PLACE: i32 = 1074;

/// Bits from the last place to the largest f64's first, a sign, and room for 2^64 terms, in 64-bit limbs.
const LIMBS: usize = (LAST_PLACE as usize + 1024 + 64 + 1).div_ceil(64);

/// A fixed-point number in two's complement, the lowest limb first: wide enough for sums of finite numbers of any format.
struct Fixed([u64; LIMBS]);

impl Fixed {
    fn add(&mut self, negative: bool, significand: u64, exponent: i32) {
        let place = (exponent + LAST_PLACE) as usize;
        let shifted = u128::from(significand) << (place % 64);
        let parts = [shifted as u64, (shifted >> 64) as u64];
        let mut carry = false;
        for (index, limb) in self.0.iter_mut().enumerate().skip(place / 64) {
            let part = parts.get(index - place / 64).copied().unwrap_or(0);
            if index >= place / 64 + 2 && !carry {
                break;
            }
            let (sum, first) = if negative { limb.overflowing_sub(part) } else { limb.overflowing_add(part) };
            let (sum, second) = if negative { sum.overflowing_sub(carry.into()) } else { sum.overflowing_add(carry.into()) };
            *limb = sum;
            carry = first || second;
        }
    }

    /// Rounds it; zero is positive.
    fn round(mut self, format: Format, rounding: Rounding) -> u64 {
        let negative = self.0[LIMBS - 1] >> 63 == 1;
        if negative {
            let mut carry = true;
            for limb in &mut self.0 {
                (*limb, carry) = (!*limb).overflowing_add(carry.into());
            }
        }
        let Some(top) = self.0.iter().rposition(|&limb| limb != 0) else { return 0 };
        // The first bit is in the upper limb of two: more than 64 bits stay, and of the rest only whether there is one.
        let low = top.max(1) - 1;
        let significand = u128::from(self.0[low + 1]) << 64 | u128::from(self.0[low]);
        let sticky = self.0[..low].iter().any(|&limb| limb != 0);
        format.round(negative, significand, 64 * low as i32 - LAST_PLACE, sticky, rounding)
    }
}

/// The sum of `terms`, exact and then rounded once. A sum of zero is +0 whatever its terms; infinities of both signs make NaN, which is
/// canonical.
pub fn exact_sum<F: Float>(terms: impl IntoIterator<Item = F::Bits>, rounding: Rounding) -> F::Bits {
    let mut sum = Fixed([0; LIMBS]);
    let mut infinite = None;
    for term in terms {
        match F::FORMAT.parts(F::raise(term)) {
            Parts::Nan => return F::NAN,
            Parts::Infinite { negative } if infinite.is_some_and(|other| other != negative) => return F::NAN,
            Parts::Infinite { negative } => infinite = Some(negative),
            Parts::Zero { .. } => {}
            Parts::Finite { negative, significand, exponent } => sum.add(negative, significand, exponent),
        }
    }
    F::lower(match infinite {
        Some(true) => F::FORMAT.sign() | F::FORMAT.above_largest(),
        Some(false) => F::FORMAT.above_largest(),
        None => sum.round(F::FORMAT, rounding),
    })
}
