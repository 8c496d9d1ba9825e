//! Integers and bits (PTX ISA 9.7.1, 9.7.8), and the reductions of a warp.

use super::{AMOUNT, FIELD, Form, TRUTH, flag, value};
use passmuster_ptx::{
    BooleanOp, PermuteMode,
    Type::{self, *},
};

const INTEGERS: [Type; 6] = [U16, U32, U64, S16, S32, S64];
const NARROW: [(Type, Type); 4] = [(U16, U32), (S16, S32), (U32, U64), (S32, S64)];

/// All of them.
pub(super) fn forms() -> Vec<Form> {
    let mut forms = arithmetic();
    forms.extend(bits());
    forms.extend(shifts());
    forms.extend(selections());
    forms.extend(logic_tables());
    forms
}

fn of(op: &str, ty: Type, operands: usize) -> Form {
    Form::new(format!("{op}.{ty}"), &vec![value(ty); operands], ty)
}

fn arithmetic() -> Vec<Form> {
    let mut forms = Vec::new();
    for ty in INTEGERS {
        forms.extend(["add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"].map(|op| of(op, ty, 2)));
        forms.extend(["mad.lo", "mad.hi"].map(|op| of(op, ty, 3)));
    }
    for (ty, wide) in NARROW {
        forms.push(Form::new(format!("mul.wide.{ty}"), &[value(ty), value(ty)], wide));
        forms.push(Form::new(format!("mad.wide.{ty}"), &[value(ty), value(ty), value(wide)], wide));
    }
    forms.extend(["add.sat", "sub.sat", "min.relu", "max.relu"].map(|op| of(op, S32, 2)));
    forms.push(of("mad.hi.sat", S32, 3));
    for ty in [U16x2, S16x2] {
        forms.extend(["add", "min", "max"].map(|op| of(op, ty, 2)));
    }
    forms.extend(["min.relu", "max.relu"].map(|op| of(op, S16x2, 2)));
    for ty in [S16, S32, S64] {
        forms.extend(["neg", "abs"].map(|op| of(op, ty, 1)));
    }
    for ty in [U32, S32] {
        forms.extend(["add", "min", "max"].map(|op| reduction(op, ty)));
    }
    forms.extend(["and", "or", "xor"].map(|op| reduction(op, B32)));
    forms
}

/// Over all lanes of a warp: every launch has whole warps.
fn reduction(op: &str, ty: Type) -> Form {
    let form = of(&format!("redux.sync.{op}"), ty, 1);
    let code = format!("{} %x, %a, 0xffffffff;", form.name);
    form.with_code(vec![code])
}

fn bits() -> Vec<Form> {
    let mut forms = Vec::new();
    let truth = |op: &str, operands: usize| Form::new(format!("{op}.pred"), &vec![TRUTH; operands], Pred);
    for op in ["and", "or", "xor"] {
        forms.push(truth(op, 2));
        forms.extend([B16, B32, B64].map(|ty| of(op, ty, 2)));
    }
    forms.push(truth("not", 1));
    for ty in [B16, B32, B64] {
        forms.extend(["not", "cnot"].map(|op| of(op, ty, 1)));
    }
    for ty in [B32, B64] {
        forms.push(of("brev", ty, 1));
        forms.extend(["popc", "clz"].map(|op| Form::new(format!("{op}.{ty}"), &[value(ty)], U32)));
    }
    for ty in [U32, U64, S32, S64] {
        forms.extend(["bfind", "bfind.shiftamt"].map(|op| Form::new(format!("{op}.{ty}"), &[value(ty)], U32)));
        forms.push(Form::new(format!("bfe.{ty}"), &[value(ty), FIELD, FIELD], ty));
    }
    forms.extend([B32, B64].map(|ty| Form::new(format!("bfi.{ty}"), &[value(ty), value(ty), FIELD, FIELD], ty)));
    for (_, mode) in PermuteMode::ALL {
        let index = *mode == PermuteMode::Index;
        forms.push(Form::new(format!("prmt.b32{}", flag(!index, &mode.to_string())), &[value(B32); 3], B32));
    }
    forms
}

fn shifts() -> Vec<Form> {
    let shift = |op: &str, ty: Type| Form::new(format!("{op}.{ty}"), &[value(ty), AMOUNT], ty);
    let mut forms: Vec<Form> = [B16, B32, B64].map(|ty| shift("shl", ty)).into();
    forms.extend([B16, B32, B64].into_iter().chain(INTEGERS).map(|ty| shift("shr", ty)));
    for op in ["shf.l.clamp", "shf.l.wrap", "shf.r.clamp", "shf.r.wrap"] {
        forms.push(Form::new(format!("{op}.b32"), &[value(B32), value(B32), AMOUNT], B32));
    }
    forms
}

fn selections() -> Vec<Form> {
    let mut forms = Vec::new();
    for ty in [B16, B32, B64, U16, U32, U64, S16, S32, S64, F32, F64] {
        forms.push(Form::new(format!("selp.{ty}"), &[value(ty), value(ty), TRUTH], ty));
        for (by, ftz) in [(S32, false), (F32, false), (F32, true)] {
            forms.push(Form::new(format!("slct{}.{ty}.{by}", flag(ftz, "ftz")), &[value(ty), value(ty), value(by)], ty));
        }
    }
    forms
}

/// All tables of `lop3`; and a few with the predicate besides, of which every other instruction stores it.
fn logic_tables() -> Vec<Form> {
    let all = (0..256).map(|table| format!("lop3.b32 %x, %a, %b, %c, {table};")).collect();
    let mut forms = vec![Form::new("lop3.b32", &[value(B32); 3], B32).with_code(all)];
    for op in [BooleanOp::Or, BooleanOp::And] {
        let form = Form::new(format!("lop3.{op}.b32"), &[value(B32), value(B32), value(B32), TRUTH], B32);
        let instruction = |table: u32| format!("{} %x|%p, %a, %b, %c, {table}, %pd;", form.name);
        let code = [0x01, 0x80, 0x96, 0xe8]
            .into_iter()
            .flat_map(|table| [instruction(table), format!("{}\nselp.b32 %x, 1, 0, %p;", instruction(table))])
            .collect();
        forms.push(form.with_code(code));
    }
    forms
}
