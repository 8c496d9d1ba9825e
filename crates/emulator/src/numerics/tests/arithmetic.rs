use proptest::prelude::*;
use rustc_apfloat::{FloatConvert, ieee};

use super::{
    super::float::{apfloat_round, fma_to_odd},
    *,
};

/// Every operation of one pair against the oracle, in every rounding.
fn agree<F: Float, A: Oracle>(a: u64, b: u64) {
    let (x, y) = (exact::<A>(a), exact::<A>(b));
    for rounding in Rounding::ALL {
        let (mode, round) = (Mode::rounded(rounding), apfloat_round(rounding));
        let check = |what: &str, got: F::Bits, want: A| {
            let (got, want) = (without_payload::<F>(got), canonical::<F, A>(want));
            assert_eq!(got, want, "{what} {rounding:?} of {a:#x} and {b:#x}: {got:#x} for {want:#x}");
        };
        let (left, right) = (F::lower(a), F::lower(b));
        check("add", F::add(left, right, mode), x.add_r(y, round).value);
        // An exact sum of zero is +0.
        let sum = x.add_r(y, round).value;
        check("exact sum", exact_sum::<F>([left, right], rounding), if sum.is_zero() { A::ZERO } else { sum });
        check("sub", F::sub(left, right, mode), x.sub_r(y, round).value);
        check("mul", F::mul(left, right, mode), x.mul_r(y, round).value);
    }
    let order = |a: A, b: A| a.partial_cmp(&b);
    for comparison in Comparison::ALL {
        let got = compare::<F>(comparison, F::lower(a), F::lower(b), Mode::NEAREST);
        assert_eq!(got, comparison.holds(order(x, y)), "{comparison:?} of {a:#x} and {b:#x}");
    }
    for nan in [false, true] {
        let of_numbers = |both: A| match (x.is_nan(), y.is_nan()) {
            (true, false) if !nan => b,
            (false, true) if !nan => a,
            _ => canonical::<F, A>(both),
        };
        let min = without_payload::<F>(F::min(F::lower(a), F::lower(b), nan, Mode::NEAREST));
        assert_eq!(min, of_numbers(x.minimum(y)), "min of {a:#x} and {b:#x}");
        let max = without_payload::<F>(F::max(F::lower(a), F::lower(b), nan, Mode::NEAREST));
        assert_eq!(max, of_numbers(x.maximum(y)), "max of {a:#x} and {b:#x}");
    }
}

fn agree_fma<F: Float, A: Oracle>(a: u64, b: u64, c: u64) {
    for rounding in Rounding::ALL {
        let got = without_payload::<F>(F::fma(F::lower(a), F::lower(b), F::lower(c), Mode::rounded(rounding)));
        let want = canonical::<F, A>(exact::<A>(a).mul_add_r(exact(b), exact(c), apfloat_round(rounding)).value);
        assert_eq!(got, want, "fma {rounding:?} of {a:#x}, {b:#x}, {c:#x}: {got:#x} for {want:#x}");
    }
}

/// Quotients against the oracle, roots by their squares in 113 bits, which hold them exactly.
fn agree_divide<F: Divide, A: Oracle + FloatConvert<ieee::Quad>>(a: u64, b: u64) {
    for rounding in Rounding::ALL {
        let mode = Mode::rounded(rounding);
        let got = without_payload::<F>(F::div(F::lower(a), F::lower(b), mode));
        let want = canonical::<F, A>(exact::<A>(a).div_r(exact(b), apfloat_round(rounding)).value);
        assert_eq!(got, want, "div {rounding:?} of {a:#x} and {b:#x}: {got:#x} for {want:#x}");

        let x = exact::<A>(a);
        let root = without_payload::<F>(F::sqrt(F::lower(a), mode));
        if x.is_nan() || (x.is_negative() && !x.is_zero()) {
            assert_eq!(root, F::raise(F::NAN), "sqrt of {a:#x}");
        } else if x.is_zero() || x.is_infinite() {
            assert_eq!(root, a, "sqrt of {a:#x}");
        } else {
            let wide = |value: A| value.convert(&mut false).value;
            let square = |bits: u64| (wide(exact(bits)) * wide(exact(bits))).value;
            let x = wide(x);
            let (below, above) = (square(root - 1), square(root + 1));
            let kept = match rounding {
                Rounding::Nearest => below < x && x < above,
                Rounding::Zero | Rounding::Down => square(root) <= x && x < above,
                Rounding::Up => below < x && x <= square(root),
            };
            assert!(kept, "sqrt {rounding:?} of {a:#x} is not {root:#x}");
        }
    }
}

fn lattice_agrees<F: Float, A: Oracle>() {
    let lattice = lattice(F::FORMAT);
    for &a in &lattice {
        for &b in &lattice {
            agree::<F, A>(a, b);
        }
    }
    let thinned: Vec<u64> = lattice.iter().copied().step_by(3).chain([F::FORMAT.one(), F::FORMAT.above_largest()]).collect();
    for &a in &thinned {
        for &b in &thinned {
            thinned.iter().for_each(|&c| agree_fma::<F, A>(a, b, c));
        }
    }
}

#[test]
fn f32_agrees_with_apfloat_on_the_lattice() {
    lattice_agrees::<F32, ieee::Single>();
}

#[test]
fn f64_agrees_with_apfloat_on_the_lattice() {
    lattice_agrees::<F64, ieee::Double>();
}

#[test]
fn f16_agrees_with_apfloat_on_the_lattice() {
    lattice_agrees::<F16, ieee::Half>();
}

#[test]
fn bf16_agrees_with_apfloat_on_the_lattice() {
    lattice_agrees::<Bf16, ieee::BFloat>();
}

#[test]
fn quotients_and_roots_are_right_on_the_lattice() {
    for &a in &lattice(Format::F32) {
        lattice(Format::F32).iter().for_each(|&b| agree_divide::<F32, ieee::Single>(a, b));
    }
    for &a in &lattice(Format::F64) {
        lattice(Format::F64).iter().for_each(|&b| agree_divide::<F64, ieee::Double>(a, b));
    }
}

/// Bits near each other as often as far apart, so that sums cancel and align.
fn near(bits: u32) -> impl Strategy<Value = (u64, u64, u64)> {
    (any::<u64>(), any::<u64>(), any::<u64>(), 0..bits, 0..bits).prop_map(move |(a, b, c, i, j)| {
        let mask = u64::MAX >> (64 - bits);
        (a & mask, (a ^ b >> (64 - bits) >> i) & mask, (a ^ c >> (64 - bits) >> j) & mask)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_f32((a, b, c) in near(32)) {
        agree::<F32, ieee::Single>(a, b);
        agree_fma::<F32, ieee::Single>(a, b, c);
        agree_divide::<F32, ieee::Single>(a, b);
    }

    #[test]
    fn random_f64((a, b, c) in near(64)) {
        agree::<F64, ieee::Double>(a, b);
        agree_fma::<F64, ieee::Double>(a, b, c);
        agree_divide::<F64, ieee::Double>(a, b);
    }

    #[test]
    fn random_f16((a, b, c) in near(16)) {
        agree::<F16, ieee::Half>(a, b);
        agree_fma::<F16, ieee::Half>(a, b, c);
    }

    #[test]
    fn random_bf16((a, b, c) in near(16)) {
        agree::<Bf16, ieee::BFloat>(a, b);
        agree_fma::<Bf16, ieee::BFloat>(a, b, c);
    }

    /// The directed roundings of f32 without apfloat: a sum rounded to odd in 53 bits says on which side of every f32 it lies.
    #[test]
    fn directed_f32_by_another_way((a, b, c) in near(32)) {
        let [x, y, z] = [a, b, c].map(|bits| f32::from_bits(bits as u32));
        let odd = fma_to_odd(x, y, z);
        prop_assume!(odd.is_finite() && odd != 0.0);
        for rounding in Rounding::ALL {
            let want = float_to_float::<F64, F32>(odd.to_bits(), Mode::rounded(rounding));
            prop_assert_eq!(F32::fma(a as u32, b as u32, c as u32, Mode::rounded(rounding)), want);
        }
    }
}

/// Terms that swallow one another in every order of additions.
#[test]
fn exact_sums_lose_nothing() {
    let sum = |terms: &[f64]| f64::from_bits(exact_sum::<F64>(terms.iter().map(|term| term.to_bits()), Rounding::Nearest));
    let (most, least) = (f64::MAX, f64::from_bits(1));
    assert_eq!(sum(&[most, least, most, 3.0, -most, -3.0, -most, least]), f64::from_bits(2));
    assert_eq!(sum(&[1.0, most, 1e-30, -most, -1.0]), 1e-30);
    assert_eq!(sum(&[most, most, -most]), most);
    assert_eq!(sum(&[most; 64]), f64::INFINITY);
    assert_eq!(sum(&[1.0, 2f64.powi(-53), least]), 1.0 + f64::EPSILON, "just above the tie");
    assert_eq!(sum(&[-1.0, -(2f64.powi(-53))]), -1.0, "a tie, to even");
    assert!(sum(&[f64::INFINITY, 1.0, -f64::INFINITY]).is_nan());
    assert_eq!(sum(&[f64::NEG_INFINITY, most]), f64::NEG_INFINITY);
    assert_eq!(sum(&[-0.0, -0.0]).to_bits(), 0);
}
