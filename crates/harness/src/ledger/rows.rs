//! Rows of the ledger: how a form's results on two machines compare, and what the committed ledger says of a module.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde::{Deserialize, Serialize};

use super::{
    forms::{Form, opcode},
    inputs::{Inputs, elements},
};
use crate::conformance::{Status, report::RecordCase};
use passmuster_ptx as ptx;

impl RecordCase for Row {}

/// What came of one form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub form: String,
    /// `pass` without a mismatch, `fail` with one, `not_supported` where the machine refused the kernel, `crash` where the kernel took the device with it.
    pub status: Status,
    /// Operand tuples that were tried.
    pub tuples: usize,
    /// Results that differ where they must not, over all of the form's instructions.
    pub mismatches: usize,
    /// How many of these differ in the payload or the sign of a NaN only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nan_mismatches: usize,
    /// Results that differ where the ISA leaves them open: NaNs that it does not call canonical, quotients by zero.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub open: usize,
    /// The bound of an approximate form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// How far the machine is from the correctly rounded result at most, in units of the last place; approximate forms only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ulps: Option<u32>,
    /// The first mismatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Difference>,
    /// The first difference that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_open: Option<Difference>,
    /// Mismatches, evenly from all of them; where examples were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Difference>,
    /// The same of open differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_examples: Vec<Difference>,
    /// Why the machine did not run it, or how it ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// One result that is another on the machine, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The operands, separated by blanks.
    pub operands: String,
    /// The emulator's result.
    pub expected: String,
    /// The machine's.
    pub got: String,
    /// The instruction, where the form is several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instruction: String,
}

impl Row {
    /// The row of a form that the machine refused.
    pub fn refused(form: &Form, reason: impl Into<String>) -> Row {
        Row { status: Status::NotSupported, reason: reason.into(), ..Row::of(form, 0) }
    }

    /// The row of a form that took the device with it.
    pub fn crashed(form: &Form, reason: impl Into<String>) -> Row {
        Row { status: Status::Crash, reason: reason.into(), ..Row::of(form, 0) }
    }

    fn of(form: &Form, tuples: usize) -> Row {
        Row {
            form: form.name.clone(),
            status: Status::Pass,
            tuples,
            mismatches: 0,
            nan_mismatches: 0,
            open: 0,
            bound: form.bound.map(|bound| bound.to_string()),
            max_ulps: form.bound.map(|_| 0),
            first: None,
            first_open: None,
            examples: Vec::new(),
            open_examples: Vec::new(),
            reason: String::new(),
        }
    }

    /// Compares what a machine gave with what the emulator expects, both for each instruction of the form in turn over all tuples. If `examples`
    /// is more than 1, the row has up to `examples` mismatches and up to `examples` open differences.
    pub fn compare(form: &Form, inputs: &Inputs, expected: &[u64], got: &[u64], examples: usize) -> Row {
        let count = inputs.count();
        let mut row = Row::of(form, count);
        let (mut mismatches, mut open) = (Vec::new(), Vec::new());
        for (index, (&expected, &got)) in expected.iter().zip(got).enumerate().filter(|(_, (expected, got))| expected != got) {
            match judge(form, &inputs.tuple(index % count), expected, got) {
                Judgement::Within(ulps) => row.max_ulps = row.max_ulps.max(Some(ulps)),
                Judgement::Open => open.push(index),
                Judgement::Mismatch { nan } => {
                    row.nan_mismatches += usize::from(nan);
                    mismatches.push(index);
                }
            }
        }
        (row.mismatches, row.open) = (mismatches.len(), open.len());
        let difference = |index: usize| difference(form, inputs, index, expected[index], got[index]);
        row.first = mismatches.first().copied().map(difference);
        row.first_open = open.first().copied().map(difference);
        if examples > 1 {
            row.examples = spread(&mismatches, examples).map(difference).collect();
            row.open_examples = spread(&open, examples).map(difference).collect();
        }
        if row.mismatches > 0 || expected.len() != got.len() {
            row.status = Status::Fail;
        }
        row
    }
}

/// At most `most` of the values, the first among them: neighbours are much alike.
fn spread(values: &[usize], most: usize) -> impl Iterator<Item = usize> {
    let most = most.min(values.len());
    (0..most).map(move |number| values[number * values.len() / most])
}

/// Result number `index`, as people read it.
fn difference(form: &Form, inputs: &Inputs, index: usize, expected: u64, got: u64) -> Difference {
    let count = inputs.count();
    let operands = inputs.tuple(index % count);
    Difference {
        operands: operands.iter().zip(&form.operands).map(|(bits, operand)| hexadecimal(*bits, operand.ty)).collect::<Vec<_>>().join(" "),
        expected: hexadecimal(expected, form.result),
        got: hexadecimal(got, form.result),
        instruction: if form.code.len() > 1 { form.code[index / count].replace('\n', " ") } else { String::new() },
    }
}

/// What to think of a difference.
enum Judgement {
    /// Within the bound, this many units in the last place away.
    Within(u32),
    /// The ISA allows it.
    Open,
    /// A mismatch, and whether only NaNs differ.
    Mismatch { nan: bool },
}

fn judge(form: &Form, operands: &[u64], expected: u64, got: u64) -> Judgement {
    let last = operands.last().copied().unwrap_or(0) as u32;
    if form.is_open(operands) || form.bound.is_some_and(|bound| bound.says_nothing(last)) {
        return Judgement::Open;
    }
    let nan = only_nans_differ(form, expected, got);
    match form.bound {
        _ if nan && form.open_nan => Judgement::Open,
        Some(bound) if bound.holds(last, expected as u32, got as u32) => Judgement::Within((expected as u32).abs_diff(got as u32)),
        _ => Judgement::Mismatch { nan },
    }
}

/// Whether every element that differs is a NaN in both.
fn only_nans_differ(form: &Form, expected: u64, got: u64) -> bool {
    let Some((format, count)) = elements(form.result) else { return false };
    let mask = u64::MAX >> (64 - format.bits());
    let nan = |bits: u64| bits & (mask >> 1) > format.largest() + u64::from(format.infinity);
    (0..count).map(|element| element * format.bits()).all(|shift| {
        let (expected, got) = (expected >> shift & mask, got >> shift & mask);
        expected == got || (nan(expected) && nan(got))
    })
}

fn hexadecimal(bits: u64, ty: ptx::Type) -> String {
    let digits = (super::generate::register_bits(ty) / 4) as usize;
    format!("{bits:#0width$x}", width = digits + 2)
}

/// The committed ledger: fixtures/records/ledger.json, written by `cargo xtask ledger` on a GPU.
#[derive(Deserialize)]
struct Committed {
    cases: Vec<Row>,
}

static COMMITTED: LazyLock<BTreeMap<String, Row>> = LazyLock::new(|| {
    let text = include_str!("../../fixtures/records/ledger.json");
    let committed: Committed = serde_json::from_str(text).expect("a committed record can be read: a test reads it");
    committed.cases.into_iter().map(|row| (row.form.clone(), row)).collect()
});

/// The committed ledger's row of a form, if it has one.
pub fn committed(form: &str) -> Option<&'static Row> {
    COMMITTED.get(form)
}

/// Whether the committed ledger has any row: it has none before it is first run on a GPU.
pub fn is_empty() -> bool {
    COMMITTED.is_empty()
}

/// The forms of a module, in alphabetical order.
pub fn forms_of(module: &ptx::Module) -> BTreeSet<String> {
    let operations = module.functions.iter().flat_map(|function| &function.code);
    operations.filter_map(|operation| operation.instruction.value_form()).collect()
}

/// The forms of a module that were not compared with hardware, or that differ there: those without a row that passed in the committed
/// ledger, in alphabetical order.
pub fn not_compared(module: &ptx::Module) -> Vec<String> {
    let passed = |form: &String| {
        let mut rows = COMMITTED.values().filter(|row| opcode(&row.form) == form).peekable();
        rows.peek().is_some() && rows.all(|row| row.status == Status::Pass)
    };
    forms_of(module).into_iter().filter(|form| !passed(form)).collect()
}
