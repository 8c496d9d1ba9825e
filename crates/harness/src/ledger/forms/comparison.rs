//! Comparisons (PTX ISA 9.7.6, 9.7.7): `setp` and `set`, alone and with each Boolean operation.

use super::{BOTH, Form, TRUTH, flag, value};
use passmuster_ptx::{
    BooleanOp, Comparison,
    Type::{self, *},
};

const COMPARED: [Type; 15] = [B16, B32, B64, U16, U32, U64, S16, S32, S64, F16, F16x2, Bf16, Bf16x2, F32, F64];

/// All of them.
pub(super) fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for ty in COMPARED {
        let flushes = matches!(ty, F16 | F16x2 | F32);
        for (_, comparison) in Comparison::ALL.iter().filter(|(_, comparison)| has(ty, *comparison)) {
            for ftz in BOTH.into_iter().filter(|ftz| flushes || !ftz) {
                forms.push(predicates(*comparison, ty, ftz));
                let destinations = destinations(ty).iter().filter(|to| !ftz || **to != Bf16);
                forms.extend(destinations.map(|&to| values(*comparison, to, ty, ftz)));
            }
        }
    }
    forms
}

/// Whether a type has a comparison.
fn has(ty: Type, comparison: Comparison) -> bool {
    use Comparison::*;
    match comparison {
        Equal | NotEqual => true,
        Less | LessEqual | Greater | GreaterEqual => !ty.is_untyped(),
        Lower | LowerSame | Higher | HigherSame => ty.is_integer() && !ty.is_signed(),
        _ => ty.is_float(),
    }
}

/// The types that `set` may give for a comparison of a type.
fn destinations(ty: Type) -> &'static [Type] {
    match ty {
        F16 => &[U16, S16, U32, S32, F16],
        Bf16 => &[U16, S16, U32, S32, Bf16],
        F16x2 => &[U32, S32, F16x2],
        Bf16x2 => &[U32, S32, Bf16x2],
        _ => &[U32, S32, F32, F16, Bf16],
    }
}

/// The operations that a comparison may be combined with, as a modifier and an operand; nothing is one of them.
fn combinations() -> impl Iterator<Item = (String, &'static str)> {
    std::iter::once((String::new(), "")).chain(BooleanOp::ALL.iter().map(|(op, _)| (format!(".{op}"), ", %pc")))
}

fn predicates(comparison: Comparison, ty: Type, ftz: bool) -> Form {
    let rest = format!("{}.{ty}", flag(ftz, "ftz"));
    // A comparison of one half has one predicate (PTX ISA 9.7.7, setp).
    let one = |(op, operand)| match ty {
        F16 | Bf16 => format!("setp.{comparison}{op}{rest} %p, %a, %b{operand};\nselp.b32 %x, 1, 0, %p;"),
        _ => format!(
            "setp.{comparison}{op}{rest} %p|%q, %a, %b{operand};\n\
             selp.b32 %x, 1, 0, %p;\nselp.b32 %y, 2, 0, %q;\nor.b32 %x, %x, %y;"
        ),
    };
    Form::new(format!("setp.{comparison}{rest}"), &[value(ty), value(ty), TRUTH], U32).with_code(combinations().map(one).collect())
}

fn values(comparison: Comparison, to: Type, ty: Type, ftz: bool) -> Form {
    let rest = format!("{}.{to}.{ty}", flag(ftz, "ftz"));
    let one = |(op, operand)| format!("set.{comparison}{op}{rest} %x, %a, %b{operand};");
    Form::new(format!("set.{comparison}{rest}"), &[value(ty), value(ty), TRUTH], to).with_code(combinations().map(one).collect())
}
