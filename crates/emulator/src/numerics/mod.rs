//! Scalar arithmetic as PTX defines it, on bit patterns, with no behaviour of the host's in it.
//!
//! The formats are types ([`F32`], [`F64`], [`F16`], [`Bf16`]) with one trait, [`Float`]; registers hold their bits. What an instruction's
//! modifiers say is a [`Mode`]. Everything is inlined, so that a constant mode leaves no branch on it: match on the instruction once,
//! outside the loop over lanes. Nearest-even results come from the host's IEEE arithmetic, the directed ones from `rustc_apfloat`.
//! `.approx` instructions are in [`approximate`], and only there.
//!
//! # Readings of the PTX ISA
//! Where the ISA is silent or leaves a choice, this is what was chosen. Only a GPU can say whether hardware agrees: see docs/emulator/ledger.md.
//! "H200" is what its runs showed.
//!
//! | matter | reading | source |
//! |---|---|---|
//! | NaN results | f32, f16, bf16: one canonical NaN a format ([`Float::NAN`]); payloads are lost | CUDA guide, "Floating-Point Standard"; ISA, "canonical NaN" |
//! | NaN results in f64 | an operand that is NaN, made quiet: the last of add, sub, mul, min and max, the first of b, c, a of fma, the first of div; without one 0xfff8000000000000 | H200 |
//! | neg, abs of NaN | f64: made quiet, sign unchanged; others: canonical ("unspecified NaN" in the ISA) | H200 |
//! | cvt of NaN from or to f64 | sign and top payload bits kept, quiet; cvt.ftz.f64.f32 makes it canonical first | H200 |
//! | cvt of NaN, no rounding and no .ftz | f32 and f64 to themselves: unchanged; f32 from bf16: a shift by 16 | H200 |
//! | cvt of NaN otherwise | canonical NaN of the destination | H200 |
//! | atomic add of NaN in f64 | global memory: the last NaN, not made quiet; shared memory: its own NaN before the operand's | H200 |
//! | .ftz | subnormal inputs, and results that are tiny after rounding, become zeros of their sign | ISA 9.7.3 |
//! | tiny | below the smallest normal number when rounded to full precision with an exponent that has no lower end (IEEE 754, "after rounding") | H200 |
//! | .ftz in cvt | applies to operands and results in f32 only; not to the operand of cvt.f16.f32 | ISA cvt; the latter H200 |
//! | .sat of floats | NaN and everything up to -0 give +0, above 1 gives 1 | ISA add, cvt; -0 H200 |
//! | min, max | -0 below +0; NaN only if both are, or if either is with .NaN; always canonical | ISA min, max |
//! | float to integer | rounds, then clamps to the destination's range, with or without .sat | ISA cvt; CUDA guide |
//! | NaN to integer | 0 from f16, bf16, f32 to at most 32 bits; else the destination's top bit alone | ISA 9.0 cvt (before: always 0) |
//! | integer to integer | without .sat the low bits, extended by the source's sign | ISA cvt |
//! | overflow of cvt in float formats | IEEE: infinity or the largest finite number, by the rounding | ISA cvt |
//! | .satfinite | magnitudes above the largest, infinities too, become the largest of their sign; NaN stays NaN | ISA cvt |
//! | e4m3, e5m2 NaN | 0x7f in both | ISA cvt, "canonical NaN" |
//! | NaN to e2m1 | 6, the largest number: the format has no NaN | ISA cvt, .satfinite |
//! | .relu | negative results, -0 too, become +0; NaN canonical | ISA cvt, fma; -0 H200 |
//! | .rni and its like between floats | zeros keep the operand's sign | IEEE 754 |
//! | .approx | the correctly rounded result, which every documented bound allows | ISA 9.7.3 |

mod approximate;
mod compare;
mod convert;
mod exact;
mod float;
mod format;
mod narrow;
pub mod tensor_core;
#[cfg(test)]
mod tests;

pub use approximate::{Approximation, Bound, approximate};
pub use compare::{Comparison, compare};
pub use convert::{Integer, float_to_float, float_to_integer, integer_to_float, integer_to_integer, round_to_integral};
pub use exact::exact_sum;
pub use float::{Bf16, Divide, F16, F32, F64, Float, Mode, lanes, lanes_of_one, lanes_of_three};
pub use format::{Format, Rounding};
pub use narrow::{
    Fp8, bf16_to_f32, f16_to_f32, f16x2_to_fp8x2, f32_to_bf16, f32_to_f16, f32_to_tf32, f32x2_to_bf16x2, f32x2_to_f16x2, f32x2_to_fp4x2,
    f32x2_to_fp8x2, fp4x2_to_f16x2, fp8x2_to_f16x2,
};
