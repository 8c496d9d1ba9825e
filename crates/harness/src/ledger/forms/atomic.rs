//! Atomic operations (PTX ISA 9.7.13, atom and red): what memory holds afterwards, and what was there before.
//!
//! Every thread has a place of its own, so that no order decides a result. Vectors are not compared, and so no
//! minimum or maximum of halves, which have no other form.

use super::{Form, value};
use passmuster_ptx::Type::{self, *};

/// Spaces as a modifier, and the register of an address there.
const SPACES: [(&str, &str); 3] = [("", "%place"), (".global", "%place"), (".shared", "%shared")];

/// All of them.
pub(super) fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for (space, place) in SPACES {
        for (op, types) in operations() {
            for &ty in types {
                let halves = matches!(ty, F16 | F16x2 | Bf16 | Bf16x2);
                let rest = format!("{space}.{op}{}.{ty}", if halves { ".noftz" } else { "" });
                let swaps = op == "cas";
                forms.push(form("atom", &rest, (space, place), ty, swaps));
                if !swaps && op != "exch" {
                    forms.push(form("red", &rest, (space, place), ty, false));
                }
            }
        }
    }
    forms
}

fn operations() -> [(&'static str, &'static [Type]); 10] {
    const EXTREMA: &[Type] = &[U32, S32, U64, S64];
    [
        ("add", &[U32, S32, U64, F16, F16x2, Bf16, Bf16x2, F32, F64]),
        ("min", EXTREMA),
        ("max", EXTREMA),
        ("and", &[B32, B64]),
        ("or", &[B32, B64]),
        ("xor", &[B32, B64]),
        ("inc", &[U32]),
        ("dec", &[U32]),
        ("exch", &[B32, B64]),
        ("cas", &[B16, B32, B64]),
    ]
}

/// `atom` twice, for what it returns and for what it leaves; `red` once.
fn form(opcode: &str, rest: &str, (space, place): (&str, &str), ty: Type, swaps: bool) -> Form {
    let bits = ty.bits();
    let operands = if swaps { 3 } else { 2 };
    let sources = if swaps { "%b, %c" } else { "%b" };
    let returned = if opcode == "atom" { "%y, " } else { "" };
    let name = format!("{opcode}{rest}");
    let word = match bits {
        16 => "%yh",
        32 => "%y",
        _ => "%yd",
    };
    let returned = returned.replace("%y", word);
    let before = format!("st.volatile{space}.b{bits} [{place}], %a;\n{name} {returned}[{place}], {sources};");
    let left = format!("{before}\nld.volatile{space}.b{bits} %x, [{place}];");
    let mut code = vec![left];
    if opcode == "atom" {
        code.push(format!("{before}\nmov.b{bits} %x, {word};"));
    }
    Form::new(name, &vec![value(ty); operands], ty).with_code(code).with_open_nan(ty == F64)
}
