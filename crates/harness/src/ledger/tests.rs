//! The forms on the emulator, and what the comparison sees.

use std::time::Duration;

use super::*;
use crate::{
    REGISTRY,
    conformance::Status,
    emulator::{Emulator, EmulatorOptions},
};
use passmuster_ptx as ptx;

const DEADLINE: Duration = Duration::from_secs(60);

fn emulator(forms: &[Form]) -> Emulator {
    Emulator::new(EmulatorOptions { library: generate::library(forms), ..EmulatorOptions::default() })
}

fn form(name: &str) -> Form {
    forms::all().into_iter().find(|form| form.name == name).unwrap_or_else(|| panic!("no form `{name}`"))
}

fn run(form: &Form, inputs: &Inputs) -> Vec<u64> {
    let mut machine = emulator(std::slice::from_ref(form));
    Session::open(&mut machine, DEADLINE).unwrap().results(form, 0, inputs).unwrap()
}

#[test]
fn every_form_of_the_checked_in_ptx_is_in_the_list() {
    let known: std::collections::BTreeSet<String> = forms::all().into_iter().map(|form| forms::opcode(&form.name).to_owned()).collect();
    let mut texts: Vec<String> = REGISTRY.modules().iter().map(|module| module.ptx.to_owned()).collect();
    texts.extend(REGISTRY.mutants().iter().filter(|mutant| mutant.half().is_none()).map(|mutant| mutant.ptx.to_owned()));
    assert!(texts.len() > 20, "{} modules", texts.len());
    for text in texts {
        for form in forms_of(&ptx::parse(&text).unwrap()) {
            assert!(known.contains(&form), "`{form}` has no row: it is never compared with hardware");
        }
    }
}

/// Results computed by hand from the ISA's words, so that a table of the emulator against itself is not all there is.
#[test]
fn kernels_hand_operands_over_as_the_instruction_names_them() {
    let cases: [(&str, &[u64], &[u64]); 14] = [
        ("sub.s32", &[5, 7], &[0xffff_fffe]),
        ("div.rn.f32", &[0x3f80_0000, 0x4040_0000], &[0x3eaa_aaab]),
        ("fma.rn.f64", &[0x4000_0000_0000_0000, 0x4008_0000_0000_0000, 0x3ff0_0000_0000_0000], &[0x401c_0000_0000_0000]),
        ("mad.wide.u16", &[3, 5, 0x10000], &[0x1000f]),
        ("bfi.b32", &[0b11, 0, 4, 2], &[0x30]),
        ("shf.l.wrap.b32", &[0x8000_0000, 1, 1], &[3]),
        ("cvt.rn.bf16x2.f32", &[0x3f80_0000, 0x4000_0000], &[0x3f80_4000]),
        ("cvt.s32.s8", &[0xabcd_ef80], &[0xffff_ff80]),
        ("setp.lt.s32", &[0xffff_ffff, 0, 0], &[1, 0, 1, 1]),
        ("selp.b64", &[7, 9, 1], &[7]),
        ("testp.normal.f32", &[0x8000_0000], &[1]),
        ("set.eq.u32.f16x2", &[0x3c00_3c00, 0x3c00_4000, 0], &[0xffff_0000, 0, 0xffff_0000, 0xffff_0000]),
        ("atom.shared.add.u32", &[40, 2], &[42, 40]),
        ("red.global.max.s32", &[0xffff_ffff, 3], &[3]),
    ];
    for (name, operands, expected) in cases {
        let form = form(name);
        let planes = operands.iter().map(|&operand| vec![operand; 256]).collect();
        let results = run(&form, &Inputs { planes });
        assert_eq!(results.chunks(256).map(|results| results[77]).collect::<Vec<_>>(), expected, "{name}");
    }
}

#[test]
fn a_wrong_bit_is_a_mismatch_with_its_operands() {
    let form = form("mul.rn.f32");
    let inputs = Inputs::of(&form);
    let expected = run(&form, &inputs);
    let mut got = expected.clone();
    assert_eq!(Row::compare(&form, &inputs, &expected, &got, 1).status, Status::Pass);
    let planted = expected.iter().position(|&bits| bits == 0x4000_0000).expect("2 is a product of edges");
    got[planted] += 1;
    let row = Row::compare(&form, &inputs, &expected, &got, 1);
    assert_eq!((row.status, row.mismatches, row.nan_mismatches), (Status::Fail, 1, 0));
    let first = row.first.unwrap();
    let operands: Vec<String> = inputs.tuple(planted).iter().map(|bits| format!("{bits:#010x}")).collect();
    assert_eq!((first.operands, &*first.expected, &*first.got), (operands.join(" "), "0x40000000", "0x40000001"));
}

#[test]
fn examples_are_spread_over_all_differences() {
    let form = form("add.u32");
    let inputs = Inputs { planes: vec![(0..100).collect(), vec![0; 100]] };
    let row = |examples| Row::compare(&form, &inputs, &[0; 100], &[1; 100], examples);
    assert!(row(1).examples.is_empty(), "the first is enough");
    let operands: Vec<String> = row(4).examples.into_iter().map(|example| example.operands).collect();
    assert_eq!(operands, [0, 25, 50, 75].map(|first| format!("{first:#010x} 0x00000000")));
    assert_eq!(row(1000).examples.len(), 100);
}

#[test]
fn nans_must_be_canonical_where_the_isa_says_so() {
    let compare = |name: &str, expected: u64, got: u64| {
        let form = form(name);
        let inputs = Inputs { planes: vec![vec![0]; form.operands.len()] };
        Row::compare(&form, &inputs, &[expected], &[got], 1)
    };
    let single = compare("add.rn.f32", 0x7fff_ffff, 0x7fc0_0000);
    assert_eq!((single.mismatches, single.nan_mismatches, single.open), (1, 1, 0));
    let double = compare("add.rn.f64", 0x7ff8_0000_0000_0000, 0xfff8_0000_0000_0000);
    assert_eq!((double.status, double.mismatches, double.open), (Status::Pass, 0, 1));
    let number = compare("add.rn.f64", 0x7ff8_0000_0000_0000, 0x7ff0_0000_0000_0000);
    assert_eq!((number.mismatches, number.nan_mismatches), (1, 0));
    let packed = compare("add.rn.f16x2", 0x7fff_3c00, 0x7e00_3c01);
    assert_eq!((packed.mismatches, packed.nan_mismatches), (1, 0), "the lower half differs in more than a NaN");
}

#[test]
fn an_approximate_form_is_held_to_its_bound() {
    let form = form("ex2.approx.ftz.f32");
    let inputs = Inputs { planes: vec![vec![0x3f00_0000]] };
    let row = |got| Row::compare(&form, &inputs, &[0x3fb5_04f3], &[got], 1);
    assert_eq!((row(0x3fb5_04f1).status, row(0x3fb5_04f1).max_ulps), (Status::Pass, Some(2)));
    assert_eq!(row(0x3fb5_04f0).status, Status::Fail);
    assert_eq!(row(0x7fff_ffff).status, Status::Fail);
}

#[test]
fn quotients_by_zero_are_open_and_others_are_not() {
    let form = form("div.u32");
    let row = |divisor| Row::compare(&form, &Inputs { planes: vec![vec![5], vec![divisor]] }, &[1], &[2], 1);
    assert_eq!((row(0).status, row(0).open), (Status::Pass, 1));
    assert_eq!((row(3).status, row(3).open), (Status::Fail, 0));
}

/// Before the ledger is first run on a GPU it has no rows, and nothing is claimed.
#[test]
fn the_committed_ledger_covers_what_ships() {
    for module in REGISTRY.modules() {
        let parsed = ptx::parse(module.ptx).unwrap();
        let missing = not_compared(&parsed);
        assert!(rows::is_empty() || missing.is_empty(), "{}: not compared with hardware: {}", module.name, missing.join(", "));
        assert!(!rows::is_empty() || missing.len() == forms_of(&parsed).len());
    }
}

#[test]
fn spellings_of_one_form_have_one_name() {
    let name = |instruction: &str| {
        let text = format!(
            ".version 9.0 .target sm_90 .address_size 64 .visible .entry e() {{ .reg .pred %p; .reg .b32 %r; .reg .b64 %d; {instruction} ret; }}"
        );
        ptx::parse(&text).unwrap_or_else(|error| panic!("{error}")).functions[0].code[0].instruction.value_form()
    };
    for (written, expected) in [
        ("add.f32 %r, %r, %r;", "add.rn.f32"),
        ("mad.rn.ftz.f32 %r, %r, %r, %r;", "fma.rn.ftz.f32"),
        ("setp.lt.and.u32 %p, %r, %r, %p;", "setp.lt.u32"),
        ("atom.add.acq_rel.sys.global.u32 %r, [%d], %r;", "atom.global.add.u32"),
        ("lop3.b32 %r, %r, %r, %r, 17;", "lop3.b32"),
        ("red.global.v2.f32.add [%d], {%r, %r};", "red.global.add.v2.f32"),
    ] {
        assert_eq!(name(written).as_deref(), Some(expected), "{written}");
    }
    assert_eq!(name("mov.b32 %r, %r;"), None);
}

#[test]
fn the_schema_names_every_field_of_a_row() {
    let schema = include_str!("../../docs/reference/record-schema-commands.md");
    let of = |name: &str, expected: u64, got: u64| {
        let form = form(name);
        Row::compare(&form, &Inputs { planes: vec![vec![0]; form.operands.len()] }, &[expected], &[got], 1)
    };
    let mut row = of("ex2.approx.f32", 0x3f80_0000, 0x7fff_ffff);
    row.first_open = of("add.rn.f64", 0x7ff8_0000_0000_0000, 0xfff8_0000_0000_0000).first_open;
    row.examples = row.first.iter().cloned().collect();
    row.open_examples = row.first_open.iter().cloned().collect();
    (row.open, row.nan_mismatches, row.reason) = (1, 1, "refused".into());
    let row = serde_json::to_value(row).unwrap();
    let fields: Vec<&String> = row.as_object().unwrap().keys().collect();
    assert_eq!(fields.len(), 13, "{fields:?}");
    for field in fields {
        assert!(
            schema.contains(&format!("| `cases[].{field}` |")),
            "docs/reference/record-schema-commands.md does not say what `cases[].{field}` is"
        );
    }
}
