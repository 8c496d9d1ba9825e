//! Bad input: no text makes the front end panic or run for long, and whatever it takes runs without a panic.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use passmuster_emulator::{
    execution::{Grid, Program, Shape},
    memory::{Init, Memory, Owner},
};
use passmuster_harness::emulator::limits;
use passmuster_plan::device::DeviceModel;
use passmuster_ptx as ptx;
use proptest::{prelude::*, sample::Index};
use rstest::rstest;

/// What one text may take. Far more than any needs, and far less than a quadratic one takes.
const LIMIT: Duration = Duration::from_secs(5);

/// Parses a text; its error must be at a place within it.
fn parse(text: &str) -> Option<ptx::Module> {
    let start = Instant::now();
    let parsed = ptx::parse(text);
    assert!(start.elapsed() < LIMIT, "{:?} for {} bytes", start.elapsed(), text.len());
    match parsed {
        Ok(module) => Some(module),
        Err(error) => {
            let position = error.place().position;
            let line = text.split('\n').nth((position.line as usize).wrapping_sub(1));
            let columns = line.unwrap_or_else(|| panic!("no such line: {error}")).chars().count();
            assert!((1..=columns + 1).contains(&(position.column as usize)), "no such column: {error}");
            assert!(error.to_string().len() < 2000, "{error}");
            None
        }
    }
}

/// The corpus of `cargo fuzz`: real modules, oddities, and what was once wrong.
fn corpus() -> Vec<String> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("fuzz/corpus/ptx");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|found| found.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()).collect()
}

#[test]
fn the_corpus_is_read_or_refused() {
    let texts = corpus();
    assert!(texts.iter().filter(|text| parse(text).is_some()).count() >= 4, "real modules are read");
}

/// A change of a text, by tokens.
#[derive(Clone, Debug)]
enum Edit {
    Byte(Index, u8),
    Delete(Index),
    Double(Index),
    Swap(Index, Index),
    Replace(Index, &'static str),
    Truncate(Index),
    OneLine,
}

const ODD: &[&str] = &[
    "0",
    "-1",
    "4294967295",
    "18446744073709551615",
    "18446744073709551616",
    "0xffffffffffffffff",
    "9223372036854775808",
    "1e999",
    "0f7FC00000",
    "0dFFF8000000000000",
    "{",
    "}",
    "{{{{{{{{",
    "}}}}",
    "[",
    "]",
    "(",
    ")",
    ";",
    ",",
    "@",
    "!",
    "|",
    "%r1",
    "%p1",
    "_",
    "WARP_SZ",
    ".u32",
    ".v4",
    ".b128",
    ".pred",
    ".reg",
    ".param",
    ".local",
    ".align 65536",
    ".entry",
    ".func",
    "\"",
    "/*",
    "//",
    "é",
    "\u{0}",
    "%r<99999999999>",
    ".branchtargets",
    "call",
    "bra",
    ".loc 1 2 3\n",
    ".file 1 \"x\"\n",
];

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        at().prop_map(Edit::Delete),
        at().prop_map(Edit::Double),
        (at(), at()).prop_map(|(one, other)| Edit::Swap(one, other)),
        (at(), prop::sample::select(ODD)).prop_map(|(at, text)| Edit::Replace(at, text)),
        at().prop_map(Edit::Truncate),
        Just(Edit::OneLine),
    ]
}

/// The pieces of a text: words, single marks, and the blanks between them.
fn pieces(text: &str) -> Vec<String> {
    let kind = |c: char| if c.is_alphanumeric() || matches!(c, '%' | '_' | '$' | '.') { 0 } else { 1 + u32::from(c) };
    let mut pieces: Vec<String> = Vec::new();
    for c in text.chars() {
        match pieces.last_mut().filter(|last| last.chars().next_back().map(kind) == Some(kind(c)) && kind(c) == 0) {
            Some(last) => last.push(c),
            None => pieces.push(c.into()),
        }
    }
    pieces
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut pieces = pieces(text);
    for edit in edits {
        if pieces.is_empty() {
            break;
        }
        let length = pieces.len();
        match edit {
            Edit::Byte(at, byte) => {
                let mut bytes = pieces.concat().into_bytes();
                let place = at.index(bytes.len());
                bytes[place] = *byte;
                pieces = self::pieces(&String::from_utf8_lossy(&bytes));
            }
            Edit::Delete(at) => drop(pieces.remove(at.index(length))),
            Edit::Double(at) => pieces.insert(at.index(length), pieces[at.index(length)].clone()),
            Edit::Swap(one, other) => pieces.swap(one.index(length), other.index(length)),
            Edit::Replace(at, odd) => pieces[at.index(length)] = format!(" {odd} "),
            Edit::Truncate(at) => pieces.truncate(at.index(length)),
            Edit::OneLine => pieces.iter_mut().filter(|piece| *piece == "\n").for_each(|piece| *piece = " ".into()),
        }
    }
    pieces.concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(300), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_modules_are_read_or_refused(which in any::<Index>(), edits in prop::collection::vec(edit(), 1..8)) {
        let texts = corpus();
        let text: &String = which.get(&texts);
        parse(&edited(text, &edits));
    }

    #[test]
    fn what_is_read_runs_without_a_panic(body in prop::collection::vec(statement(), 1..40), threads in prop::sample::select(vec![1u32, 31, 32, 64, 96, 128])) {
        run(&body, threads);
    }
}

/// How many cases a property is tried on: `PROPTEST_CASES`, or `default`.
fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

const HEAD: &str = ".version 9.0\n.target sm_90a\n.address_size 64\n";

/// Texts whose size, not their shape, is the trouble.
#[rstest]
#[case::scopes(|n| format!(".entry k() {{ .reg .b32 %r<9>; {} {} }}", "{".repeat(n), "mov.u32 %r1, 1;".repeat(n)))]
#[case::functions(|n| (0..n).map(|i| format!(".func f{i}();\n.func f{i}() {{ ret; }}\n")).collect())]
#[case::calls(|n| (0..n).map(|i| format!(".func g{i}() {{ ret; }}\n")).collect::<String>() + &format!(".entry k() {{ {} }}", format!("call g{};", n - 1).repeat(n)))]
#[case::branches_back(|n| format!(".entry k() {{ .reg .b32 %r<{n}>; L0: ret;\n{} bra L{}; }}", (1..n).map(|i| format!("L{i}: mov.u32 %r{0}, %r{0}; bra L{1};\n", i % 60000, i - 1)).collect::<String>(), n - 1))]
#[case::tables(|n| format!(".entry k() {{ .reg .b32 %r<9>; A: ts: .branchtargets {}; {} }}", vec!["A"; 4000].join(","), "brx.idx %r1, ts;".repeat(n)))]
#[case::one_line(|n| format!(".entry k() {{ {} }}", "bar.sync 0; ".repeat(n)))]
#[case::long_name(|n| format!(".entry {}() {{ frob; }}", "k".repeat(n * 10)))]
#[case::many_errors_apart(|n| format!("{}\n.entry k() {{ frob; }}", "\n".repeat(n * 10)))]
#[case::variables(|n| (0..n).map(|i| format!(".global .u32 v{i} = {i};\n")).collect())]
#[case::labels(|n| format!(".entry k() {{ {} }}", (0..n).map(|i| format!("L{i}: bra L{i};")).collect::<String>()))]
#[case::vector(|n| format!(".entry k() {{ mov.b64 %d1, {{{}}}; }}", vec!["%r1"; n].join(",")))]
fn time_is_bounded(#[case] text: fn(usize) -> String) {
    parse(&format!("{HEAD}{}", text(30_000)));
}

/// If this fails, a few bytes of text take all memory there is.
#[rstest]
#[case(".global .b8 huge[140737488355327]; .entry k() { ret; }")]
#[case(".global .b8 a[4000000000]; .global .b8 b[4000000000]; .entry k() { ret; }")]
#[case(".entry k() { .local .b8 deep[16777216]; .reg .b64 %d<2>; mov.u64 %d1, deep; st.local.u32 [%d1], 1; }")]
#[case(".func f(.param .b8 x[16777216]) { ret; } .entry k() { { .param .b8 a[16777216]; call f, (a); } }")]
#[case(
    ".func f() { .local .b8 deep[16777216]; .reg .b64 %d<2>; mov.u64 %d1, deep; st.local.u32 [%d1], 1; call f; } .entry k() { call f; }"
)]
#[case(".entry k(.param .b8 x[16777216]) { { .param .b8 a[16]; } ret; }")]
fn memory_is_bounded(#[case] text: &str) {
    let text = format!("{HEAD}{text}");
    let Some(module) = parse(&text) else { return };
    let parameters = vec![0; module.entry("k").unwrap().input_bytes as usize];
    let mut memory = Memory::new();
    let Ok(program) = Program::load(Arc::new(module), 0, limits(&DeviceModel::MEASURED), &mut memory) else { return };
    launch(program, 32, &parameters, &mut memory);
}

/// Runs kernel `k` for a while, or until it stops by a fault.
fn launch(program: Program, threads: u32, parameters: &[u8], memory: &mut Memory) {
    let shape = Shape { grid: [2, 1, 1], block: [threads, 1, 1], cluster: None, dynamic_shared: 64, registers: None };
    let Ok(mut grid) = Grid::new(Arc::new(program), "k", shape, parameters, memory) else { return };
    let mut next = 0_usize;
    for now in 0..200 {
        let turn = grid.turn(memory, now, 64, &mut |n| {
            next = next.wrapping_add(7);
            next % n
        });
        if grid.is_done() || turn.is_err() {
            let _ = turn.map_err(|fault| fault.to_string());
            break;
        }
        assert!(grid.standing().iter().all(|standing| standing.lanes != 0));
    }
    grid.finish(memory);
}

/// One line of a body: a label, or an instruction with or without a guard.
#[derive(Clone, Debug)]
enum Statement {
    Label,
    Instruction(String),
}

/// Instructions by what their operands are: `r` is a register or constant of 32 bits, `R` a register of 32 bits, and so on for `h` (16), `d` (64),
/// `f` (f32), `g` (f64) and `p` (predicate); `A` is an address, `S` one of the block's shared memory, `L` a label, `n` a small constant.
fn templates() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for (ty, class) in [("u16", "h"), ("s16", "h"), ("u32", "r"), ("s32", "r"), ("u64", "d"), ("s64", "d")] {
        let upper = class.to_uppercase();
        for op in ["add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"] {
            all.push(format!("{op}.{ty} {upper},{class},{class}"));
        }
        all.extend([format!("mad.lo.{ty} {upper},{class},{class},{class}"), format!("mad.hi.{ty} {upper},{class},{class},{class}")]);
        all.extend([format!("shr.{ty} {upper},{class},r"), format!("setp.lt.and.{ty} P|P,{class},{class},p")]);
        all.extend([
            format!("abs.{ty} {upper},{class}"),
            format!("neg.{ty} {upper},{class}"),
            format!("set.gt.u32.{ty} R,{class},{class}"),
        ]);
        for other in ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"] {
            let to = if other.ends_with("64") {
                "D"
            } else if other.ends_with("32") {
                "R"
            } else {
                "H"
            };
            all.extend([format!("cvt.{other}.{ty} {to},{class}"), format!("cvt.sat.{other}.{ty} {to},{class}")]);
        }
        all.extend([format!("cvt.rn.f32.{ty} F,{class}"), format!("cvt.rzi.{ty}.f32 {upper},f"), format!("cvt.rmi.{ty}.f64 {upper},g")]);
        for op in ["add", "min", "max", "exch", "inc", "dec", "and", "or", "xor"] {
            all.extend([format!("atom.shared.{op}.{ty} {upper},S,{class}"), format!("red.{op}.{ty} A,{class}")]);
        }
        for (access, address) in [
            ("ld.shared", "S"),
            ("ld", "A"),
            ("ld.volatile", "A"),
            ("ld.acquire.sys", "A"),
            ("ld.local", "[depot+n]"),
            ("ld.param", "[arg+n]"),
        ] {
            all.extend([format!("{access}.{ty} {upper},{address}"), format!("{access}.v2.{ty} {{{upper},{upper}}},{address}")]);
        }
        for (access, address) in [("st.shared", "S"), ("st", "A"), ("st.release.gpu", "A"), ("st.local", "[depot+n]")] {
            all.extend([
                format!("{access}.{ty} {address},{class}"),
                format!("{access}.v4.{ty} {address},{{{class},{class},{class},{class}}}"),
            ]);
        }
    }
    for (ty, class) in [("f32", "f"), ("f64", "g"), ("f16", "h"), ("bf16", "h"), ("f16x2", "r"), ("bf16x2", "r")] {
        let upper = class.to_uppercase();
        for op in
            ["add.rn", "sub.rn", "mul.rn", "div.rn", "min", "max", "add.rz", "mul.rp", "min.NaN", "div.approx", "div.full", "copysign"]
        {
            all.push(format!("{op}.{ty} {upper},{class},{class}"));
        }
        for op in ["neg", "abs", "rcp.rn", "sqrt.rn", "rcp.approx", "rsqrt.approx", "ex2.approx", "lg2.approx", "sin.approx", "tanh.approx"]
        {
            all.push(format!("{op}.{ty} {upper},{class}"));
        }
        all.extend([format!("fma.rn.{ty} {upper},{class},{class},{class}"), format!("setp.ltu.{ty} P,{class},{class}")]);
        all.extend([format!("slct.{ty}.s32 {upper},{class},{class},r"), format!("testp.finite.{ty} P,{class}")]);
        all.extend([format!("atom.add.{ty} {upper},A,{class}"), format!("red.shared.add.noftz.{ty} S,{class}")]);
    }
    for (width, class) in [(16, "h"), (32, "r"), (64, "d")] {
        let upper = class.to_uppercase();
        for op in ["and", "or", "xor"] {
            all.push(format!("{op}.b{width} {upper},{class},{class}"));
        }
        for op in ["not", "cnot"] {
            all.push(format!("{op}.b{width} {upper},{class}"));
        }
        all.extend(["popc", "clz"].map(|op| format!("{op}.b{width} R,{class}")));
        all.extend(["u", "s"].iter().flat_map(|sign| {
            [
                format!("bfind.{sign}{width} R,{class}"),
                format!("bfind.shiftamt.{sign}{width} R,{class}"),
                format!("bfe.{sign}{width} {upper},{class},r,r"),
                format!("mul.wide.{sign}{width} {},{class},{class}", if width == 16 { "R" } else { "D" }),
            ]
        }));
        all.extend([
            format!("shl.b{width} {upper},{class},r"),
            format!("brev.b{width} {upper},{class}"),
            format!("bfi.b{width} {upper},{class},{class},r,r"),
        ]);
        all.extend([
            format!("selp.b{width} {upper},{class},{class},p"),
            format!("mov.b{width} {upper},{class}"),
            format!("atom.cas.b{width} {upper},A,{class},{class}"),
        ]);
    }
    let others = "shf.l.clamp.b32 R,r,r,r;shf.l.wrap.b32 R,r,r,r;shf.r.clamp.b32 R,r,r,r;shf.r.wrap.b32 R,r,r,r;lop3.b32 R,r,r,r,n;prmt.b32 R,r,r,r\
        ;prmt.b32.f4e R,r,r,r;prmt.b32.b4e R,r,r,r;prmt.b32.rc8 R,r,r,r;prmt.b32.ecl R,r,r,r;prmt.b32.ecr R,r,r,r;prmt.b32.rc16 R,r,r,r\
        ;add.sat.s32 R,r,r;sub.sat.s32 R,r,r;mad.hi.sat.s32 R,r,r,r;mad.wide.u32 D,r,r,d;mad.wide.s16 R,h,h,r;add.u16x2 R,r,r;min.s16x2 R,r,r\
        ;shfl.sync.idx.b32 R|P,r,r,r,r;shfl.sync.up.b32 R|P,r,r,r,r;shfl.sync.down.b32 R,r,r,r,-1;shfl.sync.bfly.b32 R|P,r,r,r,-1\
        ;vote.sync.ballot.b32 R,p,r;vote.sync.all.pred P,p,-1;vote.sync.any.pred P,p,r;vote.sync.uni.pred P,p,-1;match.any.sync.b32 R,r,r\
        ;match.all.sync.b64 R|P,d,-1;elect.sync R|P,r;redux.sync.add.s32 R,r,r;redux.sync.min.u32 R,r,-1;redux.sync.xor.b32 R,r,-1;activemask.b32 R\
        ;bar.sync n;bar.sync r;bar.sync n,r;bar.arrive n,r;bar.red.popc.u32 R,n,p;bar.red.and.pred P,r,p;bar.red.or.pred P,n,64,p;barrier.sync r,r;bar.warp.sync r\
        ;barrier.cluster.arrive;barrier.cluster.wait;nanosleep.u32 r;fence.sc.sys;membar.gl;griddepcontrol.wait;prefetch.global.L2 A;discard.global.L2 A,128\
        ;bra L;@p bra L;@!p bra L;@p ret;@p exit;brx.idx r,ts;call (R),deep,(r);call (R),param,(r);isspacep.shared P,d;isspacep.local P,d\
        ;cvta.shared.u64 D,d;cvta.to.shared.u64 D,d;cvta.local.u64 D,d;mov.u64 D,block;mov.u64 D,depot;mov.u64 D,dynamic;mov.u64 D,arg;mov.u64 D,word+4\
        ;mov.b64 D,{r,r};mov.b64 {R,R},d;mov.b32 {H,H},r;mov.b32 R,{h,h};mov.b64 {H,H,H,H},d;mov.u32 R,%tid.x;mov.u32 R,%laneid;mov.u64 D,%clock64\
        ;mov.u32 R,%smid;mov.u64 D,%globaltimer;mov.u32 R,%lanemask_gt;mov.u32 R,%nwarpid;cvt.rn.bf16x2.f32 R,f,f;cvt.rn.satfinite.e4m3x2.f32 H,f,f\
        ;cvt.rn.f16x2.e5m2x2 R,h;cvt.rni.f32.f32 F,f;cvt.rn.f16.f32 H,f;cvt.f32.bf16 F,h;cvt.rn.f32.f64 F,g;cvt.f64.f32 G,f;ld.b128 Q,A;st.b128 A,Q\
        ;mov.b128 Q,{d,d};mov.b128 {D,D},Q;multimem.ld_reduce.add.u32 R,A;multimem.red.add.u32 A,r;slct.u64.f32 D,d,d,f;ld.const.u32 R,[table+n]\
        ;ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {R,R,R,R},S;stmatrix.sync.aligned.m8n8.x2.shared.b16 S,{r,r};movmatrix.sync.aligned.m8n8.trans.b16 R,r\
        ;mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {F,F,F,F},{r,r,r,r},{r,r},{f,f,f,f};mma.sync.aligned.m8n8k4.row.col.rp.f64.f64.f64.f64 {G,G},{G},{G},{G,G}\
        ;mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.u8.s32 {R,R},{R},{R},{r,r};wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {F,F,F,F},d,d,p,1,-1,0,1\
        ;wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8 {R,R,R,R},{R,R,R,R},0,p;wgmma.fence.sync.aligned;wgmma.commit_group.sync.aligned\
        ;wgmma.wait_group.sync.aligned 1;wgmma.wait_group.sync.aligned 0";
    all.extend(others.split(';').map(str::to_owned));
    all
}

/// A body's statement: a template with its places filled.
fn statement() -> impl Strategy<Value = Statement> {
    let instruction =
        (prop::sample::select(templates()), prop::collection::vec(any::<u32>(), 16), prop::option::weighted(0.2, any::<bool>()));
    prop_oneof![
        1 => Just(Statement::Label),
        12 => instruction.prop_map(|(template, choices, guard)| {
            let guarded = guard.filter(|_| !template.starts_with('@'));
            let filled = fill(&template, &choices);
            Statement::Instruction(match guarded {
                None => filled,
                Some(negated) => format!("@{}%p{} {filled}", if negated { "!" } else { "" }, choices[15] % 4),
            })
        }),
    ]
}

/// Fills the places of a template. Its opcode stays.
fn fill(template: &str, choices: &[u32]) -> String {
    const INTEGERS: [&str; 12] = ["0", "1", "-1", "31", "32", "33", "63", "64", "65", "2147483648", "4294967295", "0x8000"];
    const OFFSETS: [&str; 8] = ["0", "4", "8", "-8", "60", "9223372036854775807", "-9223372036854775807", "3"];
    let start = template.find(' ').unwrap_or(template.len());
    let (opcode, operands) = match template.strip_prefix('@') {
        // The guard is a place, too.
        Some(_) => ("", template),
        None => template.split_at(start),
    };
    let mut next = choices.iter().cycle().copied();
    let mut choose = move || next.next().unwrap_or_default();
    let mut filled = opcode.to_owned();
    let mut word = String::new();
    let mut flush = |word: &mut String, filled: &mut String| {
        let choice = choose();
        let register = choice % 4;
        let constant = (choice >> 8) % 3 == 0;
        let integer = INTEGERS[(choice >> 16) as usize % INTEGERS.len()];
        let offset = OFFSETS[(choice >> 16) as usize % OFFSETS.len()];
        *filled += &match word.as_str() {
            "h" | "r" | "d" if constant => integer.to_owned(),
            "f" if constant => ["0f7FC00000", "0f00000001", "0fFF800000", "1.5"][register as usize].to_owned(),
            "g" if constant => ["0d7FF8000000000000", "0d0000000000000001", "-1.5", "1e300"][register as usize].to_owned(),
            "h" | "H" => format!("%h{register}"),
            "r" | "R" => format!("%r{register}"),
            "d" | "D" => format!("%d{register}"),
            "f" | "F" => format!("%f{register}"),
            "g" | "G" => format!("%g{register}"),
            "p" | "P" => format!("%p{register}"),
            "Q" => format!("%q{}", register % 2),
            "A" if constant => format!("[%out+{offset}]"),
            "A" => format!("[%d{register}+{offset}]"),
            "S" if constant => format!("[block+{offset}]"),
            "S" => format!("[%r{register}+{offset}]"),
            "L" => format!("L{}", choice % 3),
            "n" => integer.trim_start_matches('-').to_owned(),
            other => other.to_owned(),
        };
        word.clear();
    };
    for c in operands.chars() {
        if c.is_alphanumeric() || matches!(c, '.' | '_' | '%') {
            word.push(c);
        } else {
            flush(&mut word, &mut filled);
            filled.push(c);
        }
    }
    flush(&mut word, &mut filled);
    filled
}

/// A module around a body that has three labels.
fn module(body: &str) -> String {
    format!(
        "{HEAD}.global .align 4 .u32 word[4] = {{1, -1}};\n.const .align 4 .u32 table[4] = {{7, 8, 9}};\n.extern .shared .align 16 .b8 dynamic[];\n\
         .func (.reg .b32 %o) deep(.reg .b32 %n) {{ .reg .b32 %m; add.u32 %m, %n, 1; call (%o), deep, (%m); ret; }}\n\
         .func (.param .b32 o) stray(.param .b32 n) {{ .reg .b32 %a; ld.param.b32 %a, [n+-4]; st.param.b32 [o], %a; ret; }}\n\
         .func (.reg .b32 %o) param(.reg .b32 %n) {{ .local .align 8 .b8 own[24]; .reg .b64 %w; mov.u64 %w, own; st.local.u32 [own+20], %n;\n\
         ld.local.u32 %o, [%w+20]; {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %n; call (b), stray, (a); ld.param.b32 %o, [b]; }} ret; }}\n\
         .visible .entry k(.param .u64 out, .param .align 8 .b8 arg[24])\n{{\n.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .f32 %f<4>;\n\
         .reg .b64 %d<4>; .reg .f64 %g<4>; .reg .b128 %q<2>; .reg .b64 %out; .shared .align 16 .b8 block[64]; .local .align 16 .b8 depot[64];\n\
         ld.param.u64 %out, [out]; mov.u64 %d0, %out; mov.u64 %d1, -1; mov.u64 %d2, block; cvta.shared.u64 %d2, %d2; mov.u64 %d3, 9223372036854775808;\n\
         mov.u32 %r0, %tid.x; mov.u32 %r1, -1; mov.u32 %r2, 2147483648; mov.u32 %r3, 32; mov.b16 %h1, -1; mov.f32 %f1, 0f7F800000;\n\
         setp.gt.u32 %p1, %r0, 3; mov.f64 %g1, 0d7FF0000000000000;\nts: .branchtargets L0, L1, L2;\n{body}\n}}\n"
    )
}

/// Runs a body, without what the front end does not take of it.
fn run(body: &[Statement], threads: u32) {
    let mut lines = Vec::new();
    let mut labels = 0;
    for statement in body {
        match statement {
            Statement::Label if labels < 3 => {
                lines.push(format!("L{labels}:"));
                labels += 1;
            }
            Statement::Label => {}
            Statement::Instruction(text) => {
                if parse(&module(&format!("L0: L1: L2: {text};"))).is_some() {
                    lines.push(format!("{text};"));
                }
            }
        }
    }
    lines.extend((labels..3).map(|label| format!("L{label}:")));
    let text = module(&lines.join("\n"));
    let parsed = parse(&text).unwrap_or_else(|| panic!("its lines are read one by one:\n{text}"));
    let mut memory = Memory::new();
    let out = memory.allocate(Owner::new(0, 0, "out"), 64, Init::Zero);
    let program = Program::load(Arc::new(parsed), 0, limits(&DeviceModel::MEASURED), &mut memory).unwrap();
    let parameters = [&out.0.to_le_bytes()[..], &[0xff; 24]].concat();
    launch(program, threads, &parameters, &mut memory);
}

/// If this fails, the property above runs next to nothing.
#[test]
fn most_templates_are_instructions() {
    let all = templates();
    let known = |template: &&String| {
        (0..40).any(|seed: u32| {
            let choices: Vec<u32> = (0..16).map(|i| (seed * 16 + i).wrapping_mul(0x9e37_79b9).rotate_left(seed)).collect();
            parse(&module(&format!("L0: L1: L2: {};", fill(template, &choices)))).is_some()
        })
    };
    let unknown: Vec<&String> = all.iter().filter(|template| !known(template)).collect();
    assert!(unknown.len() * 3 < all.len(), "{} of {} unknown: {unknown:?}", unknown.len(), all.len());
}
