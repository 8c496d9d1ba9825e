//! Floating-point arithmetic (PTX ISA 9.7.3, 9.7.4).

use super::{BOTH, Form, ROUNDINGS, flag, value};
use passmuster_emulator::numerics::{Approximation, Bound};
use passmuster_ptx::Type::{self, *};

/// All of them. The ISA calls NaN results canonical in f32 and in the 16-bit formats; of f64 it says nothing, and of neg and abs that the
/// NaN is unspecified.
pub(super) fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    single_and_double(&mut forms);
    halves(&mut forms);
    extrema(&mut forms);
    signs(&mut forms);
    functions(&mut forms);
    forms
}

fn of(op: &str, ty: Type, operands: usize) -> Form {
    Form::new(format!("{op}.{ty}"), &vec![value(ty); operands], ty).with_open_nan(ty == F64)
}

fn single_and_double(forms: &mut Vec<Form>) {
    for rounding in ROUNDINGS {
        for (op, operands) in [("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)] {
            forms.push(of(&format!("{op}.{rounding}"), F64, operands));
            for (ftz, sat) in BOTH.into_iter().flat_map(|ftz| BOTH.map(|sat| (ftz, sat))) {
                forms.push(of(&format!("{op}.{rounding}{}{}", flag(ftz, "ftz"), flag(sat, "sat")), F32, operands));
            }
        }
        for (op, operands) in [("div", 2), ("rcp", 1), ("sqrt", 1)] {
            forms.push(of(&format!("{op}.{rounding}"), F64, operands));
            forms.extend(BOTH.map(|ftz| of(&format!("{op}.{rounding}{}", flag(ftz, "ftz")), F32, operands)));
        }
    }
    for ftz in BOTH {
        let ftz = flag(ftz, "ftz");
        forms.push(of(&format!("div.approx{ftz}"), F32, 2).with_bound(Some(Bound::DIVIDE_APPROXIMATELY)));
        forms.push(of(&format!("div.full{ftz}"), F32, 2).with_bound(Some(Bound::DIVIDE_FULL_RANGE)));
    }
}

fn halves(forms: &mut Vec<Form>) {
    for ty in [F16, F16x2] {
        for (op, operands) in [("add.rn", 2), ("sub.rn", 2), ("mul.rn", 2), ("fma.rn", 3)] {
            for ftz in BOTH {
                let ftz = flag(ftz, "ftz");
                forms.extend(BOTH.map(|sat| of(&format!("{op}{ftz}{}", flag(sat, "sat")), ty, operands)));
                if operands == 3 {
                    forms.push(of(&format!("{op}{ftz}.relu"), ty, operands));
                }
            }
        }
    }
    for ty in [Bf16, Bf16x2] {
        forms.extend([("add.rn", 2), ("sub.rn", 2), ("mul.rn", 2), ("fma.rn", 3), ("fma.rn.relu", 3)].map(|(op, n)| of(op, ty, n)));
    }
}

fn extrema(forms: &mut Vec<Form>) {
    for op in ["min", "max"] {
        forms.push(of(op, F64, 2));
        for ty in [F16, F16x2, Bf16, Bf16x2, F32] {
            let flushes = !matches!(ty, Bf16 | Bf16x2);
            for ftz in BOTH.into_iter().filter(|ftz| flushes || !ftz) {
                for (nan, xorsign) in BOTH.into_iter().flat_map(|nan| BOTH.map(|xorsign| (nan, xorsign))) {
                    let modifiers = format!("{}{}{}", flag(ftz, "ftz"), flag(nan, "NaN"), flag(xorsign, "xorsign.abs"));
                    forms.push(of(&format!("{op}{modifiers}"), ty, 2));
                }
            }
        }
    }
}

fn signs(forms: &mut Vec<Form>) {
    for op in ["neg", "abs"] {
        for ty in [F16, F16x2, Bf16, Bf16x2, F32, F64] {
            let flushes = matches!(ty, F16 | F16x2 | F32);
            let forms_of = BOTH.into_iter().filter(|ftz| flushes || !ftz);
            forms.extend(forms_of.map(|ftz| of(&format!("{op}{}", flag(ftz, "ftz")), ty, 1).with_open_nan(true)));
        }
    }
    forms.extend([F32, F64].map(|ty| of("copysign", ty, 2)));
    for test in ["finite", "infinite", "number", "notanumber", "normal", "subnormal"] {
        forms.extend([F32, F64].map(|ty| Form::new(format!("testp.{test}.{ty}"), &[value(ty)], Pred)));
    }
}

/// The approximations in f32; the emulator has no others.
fn functions(forms: &mut Vec<Form>) {
    let functions = [
        ("rcp", Approximation::Rcp),
        ("sqrt", Approximation::Sqrt),
        ("rsqrt", Approximation::Rsqrt),
        ("ex2", Approximation::Ex2),
        ("lg2", Approximation::Lg2),
    ];
    for (op, function) in functions {
        for ftz in BOTH {
            forms.push(of(&format!("{op}.approx{}", flag(ftz, "ftz")), F32, 1).with_bound(Some(function.bound())));
        }
    }
}
