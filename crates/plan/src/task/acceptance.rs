//! What an output may be, given what the reference computes.

use crate::{
    collective::{DType, smallest_subnormal, unit_roundoff},
    expression::{Expression, Problem},
};

use super::{TaskCall, TaskError};

/// What a kernel promises of an output, in relation to the reference's values.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Acceptance {
    /// The reference's value, rounded once to the type: these bits.
    Bits,
    /// No farther from the value than these operations in the accumulator's type on the magnitudes, and then these roundings to the type, can take it.
    Bound {
        /// Roundings to the output's type.
        roundings: u32,
        /// Operations in the accumulator's type, one after the other: an expression of the call.
        operations: Option<Operations>,
        /// The type that they are made in.
        accumulator: DType,
    },
    /// No farther than this, which nobody derived.
    Tolerance {
        /// Of the value's magnitude.
        relative: f64,
        /// Besides.
        absolute: f64,
        /// Why that much.
        reason: String,
    },
    /// Anything.
    Unspecified,
}

/// A number of operations.
#[derive(Clone, Debug)]
pub struct Operations(pub(crate) Expression);

/// What one element may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowed {
    /// This value, rounded to the type: these bits, any NaN for a NaN.
    Rounded(f64),
    /// As far from the value as this.
    Within(f64, f64),
    /// Anything.
    Anything,
}

impl Acceptance {
    /// What an element of a rank may be, of this value and magnitude.
    ///
    /// # Errors
    /// Where the number of operations has no value.
    pub fn of_rank(&self, call: &TaskCall, rank: u32, dtype: DType) -> Result<impl Fn(f64, f64) -> Allowed + use<>, TaskError> {
        let rule = match self {
            Acceptance::Bits => Rule::Rounded,
            Acceptance::Unspecified => Rule::Anything,
            Acceptance::Tolerance { relative, absolute, .. } => Rule::Off { relative: *relative, of_magnitude: 0.0, absolute: *absolute },
            Acceptance::Bound { roundings, operations, accumulator } => {
                let count = match operations {
                    None => 0,
                    Some(Operations(count)) => {
                        let why = |why: Problem| TaskError::Operations { operations: count.to_string(), why: why.what };
                        count.value(&call.values(rank)).map_err(why)?
                    }
                };
                let unit = unit_roundoff(*accumulator);
                let of_magnitude = compounded(unit, count as f64);
                let relative = compounded(unit_roundoff(dtype), f64::from(*roundings));
                Rule::Off { relative, of_magnitude, absolute: f64::from(*roundings) * smallest_subnormal(dtype) }
            }
        };
        Ok(move |value: f64, magnitude: f64| match rule {
            Rule::Rounded => Allowed::Rounded(value),
            Rule::Anything => Allowed::Anything,
            _ if !value.is_finite() => Allowed::Rounded(value),
            Rule::Off { relative, of_magnitude, absolute } => {
                let before = of_magnitude * magnitude.max(value.abs());
                Allowed::Within(value, before + relative * (value.abs() + before) + absolute)
            }
        })
    }
}

#[derive(Clone, Copy)]
enum Rule {
    Rounded,
    Off { relative: f64, of_magnitude: f64, absolute: f64 },
    Anything,
}

/// How far off `count` roundings can be, one on the other, each by `unit` of what is rounded: (1 + unit)^count - 1, rounded up.
fn compounded(unit: f64, count: f64) -> f64 {
    (count * unit.ln_1p()).exp_m1() * (1.0 + 4.0 * f64::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, correct kernels are refused, or wrong ones accepted by more than the contract says.
    #[test]
    fn bounds_are_those_of_their_roundings() {
        let unit = unit_roundoff(DType::BF16);
        assert!((compounded(unit, 1.0) - unit).abs() < 1e-15);
        assert!(compounded(unit, 2.0) > 2.0 * unit && compounded(unit, 2.0) < 2.01 * unit);
        assert_eq!(compounded(unit, 0.0), 0.0);
    }
}
