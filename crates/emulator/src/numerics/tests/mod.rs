//! Agreement with `rustc_apfloat`, `half` and `float8`, and the special cases of the ISA.

mod arithmetic;
mod conversions;
mod special;
mod tensor_core;

use rustc_apfloat::Float as Oracle;

use super::*;

/// Bits of a format around everything that is special about it, of both signs.
fn lattice(format: Format) -> Vec<u64> {
    let normal = 1u64 << format.fraction;
    let (one, infinity) = (format.one(), format.above_largest());
    let integers = (1..=format.exponent as u64).map(|n| one + n * normal + normal / 2);
    let magnitudes = [0, 1, 2, 3, normal - 1, normal, normal + 1, 2 * normal - 1]
        .into_iter()
        .chain([one - normal, one - 1, one, one + 1, one + normal / 2, one + normal / 2 + 1, one + normal - 1, one + normal])
        .chain([one.saturating_sub(format.fraction as u64 * normal).max(1), one + format.fraction as u64 * normal])
        .chain(integers)
        .chain([infinity - normal, infinity - 2, infinity - 1, infinity, infinity + 1, infinity | (normal / 2), infinity | (normal - 1)]);
    let mut lattice: Vec<u64> = magnitudes.flat_map(|bits| [bits, bits | format.sign()]).collect();
    lattice.sort_unstable();
    lattice.dedup();
    lattice
}

/// A result in which every NaN of f64 is the one that no operand gave: which operand's payload is kept is tested apart.
fn without_payload<F: Float>(bits: F::Bits) -> u64 {
    F::raise(if F::PAYLOADS && F::is_nan(bits) { F::NAN } else { bits })
}

/// An oracle's result with our NaN.
fn canonical<F: Float, A: Oracle>(value: A) -> u64 {
    if value.is_nan() { F::raise(F::NAN) } else { value.to_bits() as u64 }
}

fn exact<A: Oracle>(bits: u64) -> A {
    A::from_bits(bits.into())
}
