//! Products of matrices, and loads and stores of their fragments (PTX ISA 9.7.14, 9.7.15).
//!
//! A tuple of a product is one of its sums: a row, a column, and what they are added to. Each thread has one. The threads of a warp or warpgroup make matrices of theirs, whose
//! products have what is asked for on a diagonal, and nobody looks at the rest.

use std::fmt::Write;

use super::{BOTH, Form, Operand, Role, flag, value};
use passmuster_ptx::Type::{self, *};

/// All of them.
pub(super) fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for (sum, a, b, shapes) in of_warps() {
        for &(m, k) in shapes {
            let saturations: &[bool] = if sum == S32 { &BOTH } else { &[false] };
            let roundings: &[&str] = if sum == F64 { &[".rn", ".rz", ".rm", ".rp"] } else { &[""] };
            for (&saturate, rounding) in saturations.iter().flat_map(|saturate| roundings.iter().map(move |rounding| (saturate, rounding)))
            {
                forms.push(of_warp([sum, a, b], (m, k), &format!("{}{rounding}", flag(saturate, "satfinite"))));
            }
        }
    }
    for (sum, a, b) in of_warpgroups() {
        forms.push(of_warpgroup([sum, a, b], false));
        if sum == S32 {
            forms.push(of_warpgroup([sum, a, b], true));
        }
    }
    for (transposed, count) in BOTH.into_iter().flat_map(|transposed| [1, 2, 4].map(|count| (transposed, count))) {
        forms.extend([loaded(count, transposed), stored(count, transposed)]);
    }
    let moved = "movmatrix.sync.aligned.m8n8.trans.b16 %x, %a;".to_owned();
    forms.push(Form::new("movmatrix.m8n8.trans.b16", &[value(B32)], B32).with_code(vec![moved]));
    forms
}

const FP8: [Type; 2] = [E4m3, E5m2];
const BYTES: [Type; 2] = [S8, U8];

/// Sums, factors, and shapes (m, k) of products of a warp; n is 8.
type OfWarp = (Type, Type, Type, &'static [(u32, u32)]);

fn of_warps() -> Vec<OfWarp> {
    let mut all: Vec<OfWarp> = vec![
        (F32, F16, F16, &[(16, 8), (16, 16)]),
        (F16, F16, F16, &[(16, 8), (16, 16)]),
        (F32, Bf16, Bf16, &[(16, 8), (16, 16)]),
        (F32, Tf32, Tf32, &[(16, 4), (16, 8)]),
        (F64, F64, F64, &[(8, 4), (16, 4), (16, 8), (16, 16)]),
    ];
    for (a, b) in FP8.into_iter().flat_map(|a| FP8.map(|b| (a, b))) {
        all.extend([F32, F16].map(|sum| (sum, a, b, &[(16, 16), (16, 32)][..])));
    }
    all.extend(BYTES.into_iter().flat_map(|a| BYTES.map(|b| (S32, a, b, &[(8, 16), (16, 16), (16, 32)][..]))));
    all
}

/// Sums and factors of products of a warpgroup.
fn of_warpgroups() -> Vec<(Type, Type, Type)> {
    let mut all = vec![(F32, F16, F16), (F16, F16, F16), (F32, Bf16, Bf16), (F32, Tf32, Tf32)];
    for (a, b) in FP8.into_iter().flat_map(|a| FP8.map(|b| (a, b))) {
        all.extend([F32, F16].map(|sum| (sum, a, b)));
    }
    all.extend(BYTES.into_iter().flat_map(|a| BYTES.map(|b| (S32, a, b))));
    all
}

/// A row and a column of `bytes` bytes, and a sum.
fn elements([sum, a, b]: [Type; 3], bytes: u32) -> Vec<Operand> {
    let words = |ty: Type| (0..bytes / 8).map(move |_| Operand { ty: B64, role: Role::Elements(ty) });
    words(a).chain(words(b)).chain([Operand { ty: if sum == S32 { B32 } else { sum }, role: Role::Elements(sum) }]).collect()
}

/// Registers as a vector operand.
fn vector(prefix: &str, count: u32) -> String {
    format!("{{{}}}", (0..count).map(|number| format!("%{prefix}{number}")).collect::<Vec<_>>().join(", "))
}

/// Sums as a register has them: those of f16 twice.
fn spread(sum: Type, to: &str, operand: &str) -> String {
    match sum {
        F16 => format!("cvt.u32.u16 {to}, {operand};\nprmt.b32 {to}, {to}, {to}, 0x1010;\n"),
        _ => format!("mov.b{} {to}, {operand};\n", sum.bits()),
    }
}

/// A product of a warp: four times eight of its tuples, in the upper or the lower eight rows, and in the eight columns.
fn of_warp([sum, a, b]: [Type; 3], (m, k): (u32, u32), modifiers: &str) -> Form {
    let bytes = k * a.bits() / 8;
    let (unit, wide) = if sum == F64 { (8, "b64") } else { (4, "b32") };
    let (of_a, of_b, of_sums) = (m * bytes / 32 / unit, 8 * bytes / 32 / unit, m * 8 * sum.bits() / 256 / unit);
    let words = bytes / 8;
    let name = format!("mma.sync.m{m}n8k{k}{modifiers}.{sum}.{a}.{b}.{sum}");
    let instruction = format!("mma.sync.aligned.m{m}n8k{k}.row.col{modifiers}.{sum}.{a}.{b}.{sum}");
    let mut code = format!(
        "{{\n.reg .pred %mine, %odd;\n.reg .b32 %lane, %own, %first, %from, %source, %part, %low, %high;\n\
         .reg .{wide} %ra<{of_a}>, %rb<{of_b}>, %rc<{of_sums}>, %rd<{of_sums}>, %sum;\n\
         and.b32 %lane, %thread, 31;\nmad.lo.u32 %own, %thread, {}, %tiles;\n",
        2 * bytes
    );
    (0..2 * words).for_each(|word| code += &format!("st.shared.b64 [%own+{}], %v{word};\n", 8 * word));
    // The sum of tuple r is in row and column r: with lane 4r + r/2, the first or the second of its two.
    code += "bar.warp.sync -1;\nand.b32 %first, %thread, 0xffffffe0;\nshr.u32 %part, %lane, 2;\nadd.u32 %first, %first, %part;\n\
             and.b32 %part, %part, 1;\nsetp.ne.u32 %odd, %part, 0;\nand.b32 %part, %lane, 3;\n";
    let _ = writeln!(code, "mad.lo.u32 %first, %first, {}, %tiles;\nmad.lo.u32 %first, %part, {unit}, %first;", 2 * bytes);
    for group in 0..4 {
        let _ = writeln!(code, "add.u32 %from, %first, {};", 8 * group * 2 * bytes);
        for number in 0..of_a {
            let right = if m == 16 { number / 2 } else { number };
            let _ = writeln!(code, "ld.shared.{wide} %ra{number}, [%from+{}];", 4 * unit * right);
        }
        for number in 0..of_b {
            let _ = writeln!(code, "ld.shared.{wide} %rb{number}, [%from+{}];", bytes + 4 * unit * number);
        }
        let _ = writeln!(code, "shr.u32 %source, %lane, 2;\nadd.u32 %source, %source, {};", 8 * group);
        if sum == F64 {
            let _ = writeln!(
                code,
                "mov.b64 {{%low, %high}}, %v{};\nshfl.sync.idx.b32 %low, %low, %source, 31, -1;\nshfl.sync.idx.b32 %high, %high, %source, 31, -1;\n\
                 mov.b64 %rc0, {{%low, %high}};",
                2 * words
            );
        } else {
            code += &spread(sum, "%low", &format!("%v{}", 2 * words));
            code += "shfl.sync.idx.b32 %rc0, %low, %source, 31, -1;\n";
        }
        (1..of_sums).for_each(|number| code += &format!("mov.{wide} %rc{number}, %rc0;\n"));
        let _ = writeln!(
            code,
            "{instruction} {}, {}, {}, {};",
            vector("rd", of_sums),
            vector("ra", of_a),
            vector("rb", of_b),
            vector("rc", of_sums)
        );
        // Every other time it is the lower rows.
        let below = if m == 16 { group % 2 * of_sums / 2 } else { 0 };
        code += &match sum {
            F16 => format!("shr.u32 %part, %rd{below}, 16;\nselp.b32 %low, %part, %rd{below}, %odd;\n"),
            F64 => format!("selp.b64 %sum, %rd{}, %rd{below}, %odd;\nmov.b64 {{%low, %high}}, %sum;\n", below + 1),
            _ => format!("selp.b32 %low, %rd{}, %rd{below}, %odd;\n", below + 1),
        };
        let _ = writeln!(code, "and.b32 %part, %lane, 7;\nshr.u32 %source, %part, 1;\nmad.lo.u32 %source, %part, 4, %source;");
        code += "shfl.sync.idx.b32 %low, %low, %source, 31, -1;\n";
        let _ = writeln!(code, "shr.u32 %part, %lane, 3;\nsetp.eq.u32 %mine, %part, {group};");
        code += &match sum {
            F16 => "@%mine cvt.u16.u32 %x, %low;\n".to_owned(),
            F64 => "shfl.sync.idx.b32 %high, %high, %source, 31, -1;\n@%mine mov.b64 %x, {%low, %high};\n".to_owned(),
            _ => "@%mine mov.b32 %x, %low;\n".to_owned(),
        };
    }
    code += "bar.warp.sync -1;\n}";
    Form::new(name, &elements([sum, a, b], bytes), sum).with_code(vec![code])
}

/// A matrix in shared memory. It is swizzled in patterns of `pattern` chunks of 16 bytes, or not at all if that is 1. Either k is contiguous or rows
/// are. `shift` says how far the address in its descriptor is from where its pattern begins.
#[derive(Clone, Copy)]
struct Place {
    pattern: u32,
    along_k: bool,
    leading: u32,
    stride: u32,
    shift: u32,
    base: u32,
}

impl Place {
    /// As close together as it goes.
    fn new(pattern: u32, along_k: bool) -> Place {
        let group = 128 * pattern;
        let (leading, stride) = match (along_k, pattern) {
            (true, 1) => (128, 256),
            (true, _) => (16, group),
            // Of k there are two groups, then come other rows.
            (false, 1) => (128, 256),
            (false, _) => (2 * group, group),
        };
        Place { pattern, along_k, leading, stride, shift: 0, base: 0 }
    }

    /// What a descriptor says, but for the address.
    fn descriptor(self) -> u64 {
        let mode = match self.pattern {
            1 => 0,
            8 => 1,
            4 => 2,
            _ => 3,
        };
        u64::from(self.leading >> 4) << 16 | u64::from(self.stride >> 4) << 32 | u64::from(self.base) << 49 | mode << 62
    }

    /// Code that stores a thread's 32 bytes as row `%row` of a matrix at `%at`.
    fn filled(self, first: u32) -> String {
        let mut code = String::new();
        let swizzled = |code: &mut String, offset: &str| {
            let _ =
                writeln!(code, "add.u32 %place, %at, {offset};\nshr.u32 %part, %place, 7;\nand.b32 %part, %part, {};", self.pattern - 1);
            *code += "shl.b32 %part, %part, 4;\nxor.b32 %place, %place, %part;\n";
        };
        let pitch = 16 * self.pattern;
        code += "and.b32 %near, %row, 7;\nshr.u32 %far, %row, 3;\n";
        if self.along_k {
            let _ = writeln!(code, "mul.lo.u32 %offset, %near, {pitch};\nmad.lo.u32 %offset, %far, {}, %offset;", self.stride);
            for half in 0..2 {
                let right = half * if self.pattern == 1 { self.leading } else { 16 };
                let _ = writeln!(code, "add.u32 %part, %offset, {};", right + self.shift);
                swizzled(&mut code, "%part");
                let _ = writeln!(code, "st.shared.v2.b64 [%place], {{%v{}, %v{}}};", first + 2 * half, first + 2 * half + 1);
            }
            return code;
        }
        let (of_eight, of_k) = if self.pattern == 1 { (self.stride, self.leading) } else { (self.leading, self.stride) };
        let _ = writeln!(code, "rem.u32 %part, %far, {0};\nmul.lo.u32 %offset, %part, 16;\ndiv.u32 %part, %far, {0};", self.pattern);
        let _ =
            writeln!(code, "mad.lo.u32 %offset, %part, {of_eight}, %offset;\nshl.b32 %near, %near, 1;\nadd.u32 %offset, %offset, %near;");
        for k in 0..16 {
            if k % 4 == 0 {
                let _ = writeln!(code, "mov.b64 {{%h0, %h1, %h2, %h3}}, %v{};", first + k / 4);
            }
            let _ = writeln!(code, "add.u32 %part, %offset, {};", k % 8 * pitch + k / 8 * of_k + self.shift);
            swizzled(&mut code, "%part");
            let _ = writeln!(code, "st.shared.b16 [%place], %h{};", k % 4);
        }
        code
    }
}

/// How a product of a warpgroup is tried: how wide, where the factors are (A in registers if it has no place), which have their sign turned, and whether
/// the sum is kept.
struct Trial {
    n: u32,
    a: Option<Place>,
    b: Place,
    negated: [bool; 2],
    keeps: bool,
}

/// Where A, B and what is on the diagonal begin.
const A: u32 = 0;
const B: u32 = 9 << 10;
const DIAGONAL: u32 = 41 << 10;

fn trials(a: Type, sum: Type) -> Vec<Trial> {
    let halves = matches!(a, F16 | Bf16);
    let place = |pattern| Place::new(pattern, true);
    let trial = |n, a, b| Trial { n, a, b, negated: [false; 2], keeps: true };
    let mut trials = vec![
        trial(64, Some(place(8)), place(8)),
        trial(8, None, place(1)),
        trial(16, Some(place(4)), place(2)),
        trial(256, Some(place(2)), place(4)),
        trial(128, Some(place(1)), place(8)),
    ];
    // k further along the pattern; eight rows further apart than they are wide.
    trials.push(trial(96, Some(Place { shift: 32, ..place(8) }), Place { shift: 32, ..place(4) }));
    trials.push(trial(32, Some(Place { stride: 512, ..place(1) }), Place { leading: 1024, stride: 128, ..place(1) }));
    // The pattern begins where its rows are not swizzled as those of a pattern that begins at a multiple of 1024 bytes.
    trials.push(trial(64, Some(Place { shift: 256, ..place(8) }), place(8)));
    trials.push(trial(64, Some(Place { shift: 256, base: 2, ..place(8) }), place(8)));
    if sum != S32 {
        trials.push(Trial { negated: [true, false], ..trial(64, Some(place(8)), place(8)) });
        trials.push(Trial { negated: [true, true], ..trial(24, None, place(8)) });
    }
    trials.push(Trial { keeps: false, ..trial(64, Some(place(8)), place(8)) });
    if halves {
        for pattern in [1, 2, 4, 8] {
            let across = Place::new(pattern, false);
            trials.extend([trial(64, Some(across), place(8)), trial(128, Some(place(8)), across)]);
        }
        trials.push(trial(200, None, Place::new(8, false)));
        trials.push(trial(48, Some(Place::new(8, false)), Place::new(1, false)));
    }
    trials
}

fn of_warpgroup([sum, a, b]: [Type; 3], saturate: bool) -> Form {
    let name = format!("wgmma.mma_async{}.{sum}.{a}.{b}", flag(saturate, "satfinite"));
    let code = trials(a, sum).iter().map(|trial| tried([sum, a, b], saturate, trial)).collect();
    Form::new(name, &elements([sum, a, b], 32), sum).with_code(code)
}

/// Products of the 64 tuples of each half of a warpgroup, in as many rounds as there are columns for.
fn tried([sum, a, b]: [Type; 3], saturate: bool, trial: &Trial) -> String {
    let &Trial { n, a: place, b: second, negated, keeps } = trial;
    let registers = n * sum.bits() / 64;
    let k = 256 / a.bits();
    let mut flags = String::new();
    if sum != S32 {
        negated.iter().for_each(|&negated| flags += if negated { ", -1" } else { ", 1" });
    }
    if matches!(a, F16 | Bf16) {
        place.iter().chain([&second]).for_each(|place| flags += if place.along_k { ", 0" } else { ", 1" });
    }
    let mut code = format!(
        "{{\n.reg .pred %keeps, %here, %there;\n.reg .b16 %h<4>;\n\
         .reg .b32 %row, %lane, %upper, %lower, %at, %place, %part, %near, %far, %offset, %column, %above, %below, %kept, %other;\n\
         .reg .b32 %r<{registers}>, %f<4>;\n.reg .b64 %da, %db;\n\
         and.b32 %row, %thread, 63;\nand.b32 %lane, %thread, 31;\nshr.u32 %upper, %thread, 5;\nshl.b32 %upper, %upper, 4;\nshr.u32 %part, %lane, 2;\n\
         add.u32 %upper, %upper, %part;\nadd.u32 %lower, %upper, 8;\nmov.b{0} %x, 0;\n",
        sum.bits()
    );
    for half in 0..2 {
        let _ = writeln!(
            code,
            "shr.u32 %part, %thread, 6;\nsetp.eq.u32 %here, %part, {half};\n@!%here bra FILLED{half};\nadd.u32 %at, %tiles, {A};"
        );
        match place {
            Some(place) => code += &place.filled(0),
            None => code += "mad.lo.u32 %at, %row, 32, %at;\nst.shared.v2.b64 [%at], {%v0, %v1};\nst.shared.v2.b64 [%at+16], {%v2, %v3};\n",
        }
        code += &spread(sum, "%part", "%v8");
        let _ = writeln!(code, "mad.lo.u32 %at, %row, 4, %tiles;\nst.shared.b32 [%at+{DIAGONAL}], %part;\nFILLED{half}:\nbar.sync 0;");
        let _ = writeln!(
            code,
            "mad.lo.u32 %at, %upper, 4, %tiles;\nld.shared.b32 %kept, [%at+{DIAGONAL}];\nld.shared.b32 %other, [%at+{}];",
            DIAGONAL + 32
        );
        if place.is_none() {
            let _ = writeln!(code, "and.b32 %part, %lane, 3;\nmad.lo.u32 %at, %upper, 32, %tiles;\nmad.lo.u32 %at, %part, 4, %at;");
            let word = |number: u32| A + number % 2 * 256 + number / 2 * 16;
            (0..4).for_each(|number| code += &format!("ld.shared.b32 %f{number}, [%at+{}];\n", word(number)));
        }
        code += "bar.sync 0;\n";
        for round in 0..64_u32.div_ceil(n) {
            code += &in_round([sum, a, b], trial, (half, round));
            (0..registers).for_each(|number| {
                let kept = if sum == F16 { number % 2 == 0 } else { number / 2 % 2 == 0 };
                code += &format!("mov.b32 %r{number}, {};\n", if kept { "%kept" } else { "%other" });
            });
            let first = if place.is_some() { "%da".to_owned() } else { vector("f", 4) };
            let _ = writeln!(
                code,
                "setp.{}.u32 %keeps, %thread, %thread;\nfence.proxy.async;\nbar.sync 0;\nwgmma.fence.sync.aligned;\n\
                 wgmma.mma_async.sync.aligned.m64n{n}k{k}{}.{sum}.{a}.{b} {}, {first}, %db, %keeps{flags};\n\
                 wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;",
                if keeps { "eq" } else { "ne" },
                flag(saturate, "satfinite"),
                vector("r", registers)
            );
            code += &on_diagonal(sum, n);
            code += "bar.sync 0;\n";
        }
        let _ = writeln!(code, "shr.u32 %part, %thread, 6;\nsetp.eq.u32 %here, %part, {half};\nmad.lo.u32 %at, %row, 4, %tiles;");
        let _ = writeln!(code, "@%here ld.shared.b{} %x, [%at+{DIAGONAL}];\nbar.sync 0;", sum.bits());
    }
    code + "}"
}

/// Descriptors, the columns of a round, and in `%above` and `%below` the columns that are asked for of a thread's two rows.
fn in_round([sum, ..]: [Type; 3], trial: &Trial, (half, round): (u32, u32)) -> String {
    let &Trial { n, a, b, .. } = trial;
    debug_assert!(sum.bits() <= 32);
    let mut code = String::new();
    let descriptor = |to: &str, place: Place, at: u32| {
        format!(
            "add.u32 %at, %tiles, {};\nand.b32 %at, %at, 0x3ffff;\nshr.u32 %at, %at, 4;\ncvt.u64.u32 {to}, %at;\nor.b64 {to}, {to}, {:#x};\n",
            at + place.shift,
            place.descriptor()
        )
    };
    if let Some(a) = a {
        code += &descriptor("%da", a, A);
    }
    code += &descriptor("%db", b, B);
    // Of 64 columns and more each tuple has one, and others after those; of fewer, as many as there are.
    let fits = |row: &str| format!("sub.u32 %part, {row}, {};\nsetp.lt.u32 %there, %part, {};\n", round * n, n.min(64));
    let _ = writeln!(code, "shr.u32 %part, %thread, 6;\nsetp.eq.u32 %here, %part, {half};\nadd.u32 %at, %tiles, {B};\n{}", fits("%row"));
    let _ = writeln!(code, "and.pred %here, %here, %there;\nmov.b32 %column, %row;\n@!%here bra PUT{half}_{round};\nmov.b32 %row, %part;");
    for more in 0..n.div_ceil(64) {
        let _ = writeln!(code, "setp.lt.u32 %there, %row, {n};\n@!%there bra PUT{half}_{round};");
        code += &b.filled(4);
        if more + 1 < n.div_ceil(64) {
            code += "add.u32 %row, %row, 64;\n";
        }
    }
    let _ = writeln!(code, "PUT{half}_{round}:\nmov.b32 %row, %column;");
    let last = (n.max(64) - 64) / 64 * 64;
    for (row, column) in [("%upper", "%above"), ("%lower", "%below")] {
        code += &fits(row);
        let _ = writeln!(code, "add.u32 %part, %part, {last};\nselp.b32 {column}, %part, 0xffffffff, %there;");
    }
    code
}

/// Stores those of a thread's sums that are asked for.
fn on_diagonal(sum: Type, n: u32) -> String {
    let mut code = "and.b32 %column, %lane, 3;\nshl.b32 %column, %column, 1;\n".to_owned();
    for number in 0..n / 2 {
        let below = number / 2 % 2 == 1;
        let (wanted, row) = if below { ("%below", "%lower") } else { ("%above", "%upper") };
        let (register, shift) = if sum == F16 { (number / 2, number % 2 * 16) } else { (number, 0) };
        let _ = writeln!(
            code,
            "add.u32 %part, %column, {};\nsetp.eq.u32 %here, %part, {wanted};\nmad.lo.u32 %at, {row}, 4, %tiles;\nshr.u32 %part, %r{register}, {shift};\n\
             @%here st.shared.b32 [%at+{DIAGONAL}], %part;",
            number / 4 * 8 + number % 2
        );
    }
    code
}

/// `ldmatrix` of rows that the lanes have: what each register has then.
fn loaded(count: u32, transposed: bool) -> Form {
    let name = format!("ldmatrix.m8n8.x{count}{}.b16", flag(transposed, "trans"));
    let instruction = format!("ldmatrix.sync.aligned.m8n8.x{count}{}.shared.b16", flag(transposed, "trans"));
    let code = |number: u32| {
        format!(
            "{{\n.reg .b32 %r<{count}>;\nst.shared.v2.b64 [%room], {{%a, %b}};\nbar.warp.sync -1;\n{instruction} {}, [%room];\nmov.b32 %x, %r{number};\n\
             bar.warp.sync -1;\n}}",
            vector("r", count)
        )
    };
    Form::new(name, &[value(B64), value(B64)], B32).with_code((0..count).map(code).collect())
}

/// `stmatrix`: what the rows are then, word by word, with zeros where there are none.
fn stored(count: u32, transposed: bool) -> Form {
    let name = format!("stmatrix.m8n8.x{count}{}.b16", flag(transposed, "trans"));
    let instruction = format!("stmatrix.sync.aligned.m8n8.x{count}{}.shared.b16", flag(transposed, "trans"));
    let operands = ["%a", "%b", "%c", "%d"];
    let given = operands[..count as usize].join(", ");
    let code = |word: u32| {
        format!(
            "{{\n.reg .b64 %zero;\nmov.b64 %zero, 0;\nst.shared.v2.b64 [%room], {{%zero, %zero}};\nbar.warp.sync -1;\n{instruction} [%room], {{{given}}};\n\
             bar.warp.sync -1;\nld.shared.b32 %x, [%room+{}];\n}}",
            4 * word
        )
    };
    Form::new(name, &vec![value(B32); count as usize], B32).with_code((0..4).map(code).collect())
}
