//! Conversions (PTX ISA 9.7.9, cvt).

use super::{BOTH, Form, ROUNDINGS, flag, value};
use passmuster_ptx::Type::{self, *};

const INTEGERS: [Type; 8] = [U8, U16, U32, U64, S8, S16, S32, S64];
const FLOATS: [Type; 4] = [F16, Bf16, F32, F64];
const TO_INTEGRAL: [&str; 4] = ["rni", "rzi", "rmi", "rpi"];

/// All of them.
pub(super) fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for from in INTEGERS {
        for to in INTEGERS {
            // ptxas takes .sat only where a value may be out of range.
            forms.extend(BOTH.into_iter().filter(|sat| !sat || !fits(from, to)).map(|sat| one(&flag(sat, "sat"), to, from)));
        }
    }
    let pairs = INTEGERS.into_iter().flat_map(|integer| FLOATS.map(|float| (integer, float)));
    for (integer, float) in pairs.filter(|(integer, float)| *float != Bf16 || integer.bits() > 8) {
        for rounding in TO_INTEGRAL {
            for (ftz, sat) in flushes_and_saturates(float == F32, float != Bf16) {
                forms.push(one(&format!(".{rounding}{ftz}{sat}"), integer, float));
            }
        }
        for rounding in ROUNDINGS {
            for (_, sat) in flushes_and_saturates(false, float != Bf16) {
                forms.push(one(&format!(".{rounding}{sat}"), float, integer));
            }
        }
    }
    for (from, to) in FLOATS.into_iter().flat_map(|from| FLOATS.map(|to| (from, to))) {
        between_floats(&mut forms, from, to);
    }
    packed(&mut forms);
    forms
}

/// Whether one integer type has all values of another.
fn fits(from: Type, to: Type) -> bool {
    match (from.is_signed(), to.is_signed()) {
        (true, false) => false,
        (false, true) => to.bits() > from.bits(),
        _ => to.bits() >= from.bits(),
    }
}

fn one(modifiers: &str, to: Type, from: Type) -> Form {
    // Of NaN results between floating-point formats the ISA says canonical for the 16-bit and 8-bit ones.
    let open = matches!(to, F32 | F64) && from.is_float();
    Form::new(format!("cvt{modifiers}.{to}.{from}"), &[value(from)], to).with_open_nan(open)
}

/// The combinations of `.ftz` and `.sat`, where there are any.
fn flushes_and_saturates(flushes: bool, saturates: bool) -> impl Iterator<Item = (String, String)> {
    let all = BOTH.into_iter().flat_map(|ftz| BOTH.map(|sat| (ftz, sat)));
    let possible = all.filter(move |&(ftz, sat)| (flushes || !ftz) && (saturates || !sat));
    possible.map(|(ftz, sat)| (flag(ftz, "ftz"), flag(sat, "sat")))
}

fn between_floats(forms: &mut Vec<Form>, from: Type, to: Type) {
    let single = from == F32 || to == F32;
    let saturates = from != Bf16 && to != Bf16;
    for (ftz, sat) in flushes_and_saturates(single, saturates) {
        if from == to {
            forms.extend(TO_INTEGRAL.map(|rounding| one(&format!(".{rounding}{ftz}{sat}"), to, from)));
        }
        let narrows = to.bits() < from.bits() || (to.bits() == from.bits() && to != from);
        if narrows {
            forms.extend(ROUNDINGS.map(|rounding| one(&format!(".{rounding}{ftz}{sat}"), to, from)));
        } else {
            forms.push(one(&format!("{ftz}{sat}"), to, from));
        }
    }
    if from == F32 && matches!(to, F16 | Bf16) {
        forms.extend(narrowings().into_iter().map(|modifiers| one(&modifiers, to, from)));
    }
}

/// `.satfinite` and `.relu`, of which at least one is there, to f16 and bf16.
fn narrowings() -> Vec<String> {
    let modifiers = |rounding: &str| [".satfinite", ".relu", ".satfinite.relu"].map(|rest| format!(".{rounding}{rest}"));
    ["rn", "rz"].into_iter().flat_map(modifiers).collect()
}

fn packed(forms: &mut Vec<Form>) {
    let pair = |modifiers: &str, to: Type| Form::new(format!("cvt{modifiers}.{to}.f32"), &[value(F32), value(F32)], to);
    for to in [F16x2, Bf16x2] {
        forms.extend(["rn", "rz"].map(|rounding| pair(&format!(".{rounding}"), to)));
        forms.extend(narrowings().iter().map(|modifiers| pair(modifiers, to)));
    }
    for narrow in [E4m3x2, E5m2x2] {
        for relu in BOTH {
            let relu = flag(relu, "relu");
            forms.push(pair(&format!(".rn.satfinite{relu}"), narrow));
            forms.push(one(&format!(".rn.satfinite{relu}"), narrow, F16x2));
            forms.push(one(&format!(".rn{relu}"), F16x2, narrow));
        }
    }
}
