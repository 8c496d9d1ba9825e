//! Products of matrices and their fragments: against products by the definition, of integers that every type has exactly.

use std::fmt::Write;

use rstest::rstest;

use super::*;

/// What a test multiplies: small integers that differ from place to place.
fn a_at(row: u32, k: u32) -> i32 {
    ((row * 7 + k * 3) % 5) as i32 - 2
}

fn b_at(k: u32, column: u32) -> i32 {
    ((k * 5 + column * 11) % 7) as i32 - 3
}

fn c_at(row: u32, column: u32) -> i32 {
    ((row * 3 + column) % 9) as i32 - 4
}

fn d_at(row: u32, column: u32, depth: u32) -> i32 {
    (0..depth).map(|k| a_at(row, k) * b_at(k, column)).sum::<i32>() + c_at(row, column)
}

/// An integer as an element of a type.
fn element(ty: &str, value: i32) -> u64 {
    let magnitude = value.unsigned_abs();
    // A format with `exponent` bits of exponent and `fraction` bits of fraction.
    let float = |exponent: u32, fraction: u32| {
        if magnitude == 0 {
            return 0;
        }
        let leading = magnitude.ilog2();
        let biased = u64::from(leading + (1 << (exponent - 1)) - 1);
        let rest = u64::from(magnitude - (1 << leading)) << fraction >> leading;
        u64::from(value < 0) << (exponent + fraction) | biased << fraction | rest
    };
    match ty {
        "f16" => float(5, 10),
        "bf16" => float(8, 7),
        "f32" => float(8, 23),
        // What is below its fraction counts for nothing.
        "tf32" => float(8, 10) << 13 | u64::from(magnitude * 1234 % 8192),
        "f64" => float(11, 52),
        "e4m3" => float(4, 3),
        "e5m2" => float(5, 2),
        "s8" | "u8" => u64::from(value as u8),
        _ => u64::from(value as u32),
    }
}

fn bits(ty: &str) -> u32 {
    match ty {
        "f64" => 64,
        "f32" | "tf32" | "s32" => 32,
        "f16" | "bf16" => 16,
        _ => 8,
    }
}

/// A kernel of a warpgroup: what `in` holds goes to shared memory, `body` runs, and each thread's registers `%r0` on to `out`.
fn of_warpgroup(shared: u32, registers: u32, body: &str) -> String {
    let mut text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u64 in)\n{{\n\
         .reg .pred %p<4>; .reg .b32 %r<160>; .reg .b32 %a<8>; .reg .b32 %t, %i, %s; .reg .b64 %d<8>;\n\
         .shared .align 1024 .b8 smem[{shared}];\n\
         ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %t, %tid.x; mov.u32 %s, smem; shl.b32 %i, %t, 2;\n\
         FILL: setp.ge.u32 %p0, %i, {shared}; @%p0 bra FILLED;\n\
         cvt.u64.u32 %d2, %i; add.u64 %d2, %d2, %d1; ld.global.u32 %a0, [%d2]; add.u32 %a1, %i, %s; st.shared.u32 [%a1], %a0;\n\
         add.u32 %i, %i, 512; bra FILL;\nFILLED: fence.proxy.async; bar.sync 0;\n{body}\n"
    );
    let _ = writeln!(text, "mul.wide.u32 %d2, %t, {}; add.u64 %d2, %d2, %d0;", 4 * registers);
    for number in 0..registers {
        let _ = writeln!(text, "st.global.u32 [%d2+{}], %r{number};", 4 * number);
    }
    text + "ret;\n}\n"
}

/// Runs a kernel of `threads` threads that leaves `each` words a thread.
fn words_of(text: &str, threads: u32, each: u32, input: &[u8]) -> Result<Vec<u32>, Fault> {
    let mut memory = Memory::new();
    let program = program(text, 0, &mut memory);
    let out = memory.allocate(Owner::new(0, 0, "out"), u64::from(threads * each) * 4, Init::Canary);
    let source = memory.allocate(Owner::new(0, 0, "in"), input.len().max(4) as u64, Init::Zero);
    memory.write(source, 0, input).unwrap();
    let parameters = [out.0.to_le_bytes(), source.0.to_le_bytes()].concat();
    let grid = Grid::new(program, "k", shape(1, threads), &parameters, &mut memory)?;
    assert!(finish(grid, &mut memory)?.is_some(), "it hangs");
    Ok(words(&memory, out, threads * each))
}

/// A matrix in shared memory, swizzled in patterns of `pattern` chunks of 16 bytes, or not if that is 1. `along_k`: k is contiguous, else rows are.
#[derive(Clone, Copy)]
struct Place {
    start: u32,
    pattern: u32,
    along_k: bool,
    leading: u32,
    stride: u32,
}

impl Place {
    fn descriptor(self) -> u64 {
        let mode = [(1, 0), (8, 1), (4, 2), (2, 3)].into_iter().find(|(pattern, _)| *pattern == self.pattern).unwrap().1;
        let field = |value: u32| u64::from(value >> 4);
        field(self.start) | field(self.leading) << 16 | field(self.stride) << 32 | mode << 62
    }

    /// Where an element is, in bytes: by the canonical layouts of PTX ISA 9.7.15.5.1.2.1.3 and the swizzles of 9.7.15.5.1.1.
    fn byte(self, row: u32, k: u32, width: u32) -> u32 {
        let each = 16 / width;
        let offset = match (self.along_k, self.pattern) {
            (true, 1) => row % 8 * 16 + row / 8 * self.stride + k / each * self.leading + k % each * width,
            (true, pattern) => row % 8 * 16 * pattern + row / 8 * self.stride + k * width,
            (false, 1) => row % 8 * 2 + row / 8 * self.stride + k % 8 * 16 + k / 8 * self.leading,
            (false, pattern) => {
                let (within, beside) = (row % (8 * pattern), row / (8 * pattern));
                within * 2 + beside * self.leading + k % 8 * 16 * pattern + k / 8 * self.stride
            }
        };
        let address = self.start + offset;
        let (chunk, line) = (address / 16 % self.pattern, address / 128 % self.pattern);
        address - chunk * 16 + (chunk ^ line) * 16
    }
}

/// A shared memory of both matrices.
fn image(bytes: u32, a: Option<Place>, b: Place, [a_type, b_type]: [&str; 2], (n, k): (u32, u32)) -> Vec<u8> {
    let mut image = vec![0; bytes as usize];
    let mut put = |at: u32, ty: &str, value: i32| {
        let width = bits(ty) as usize / 8;
        image[at as usize..][..width].copy_from_slice(&element(ty, value).to_le_bytes()[..width]);
    };
    for depth in 0..k {
        if let Some(a) = a {
            (0..64).for_each(|row| put(a.byte(row, depth, bits(a_type) / 8), a_type, a_at(row, depth)));
        }
        (0..n).for_each(|column| put(b.byte(column, depth, bits(b_type) / 8), b_type, b_at(depth, column)));
    }
    image
}

/// Instructions that set the sums to `c`, or to what is no number where `keeps` is not set.
fn begin_sums(sum: &str, n: u32) -> String {
    let registers = n * bits(sum) / 64;
    let mut text = String::new();
    // Thread t's number e is in row 16w + l/4 + 8 (e/2 % 2), column 8 (e/4) + 2 (l%4) + e%2: c is (3 row + column) % 9 - 4.
    let _ = writeln!(text, "and.b32 %a2, %t, 31; shr.u32 %a3, %t, 5; shl.b32 %a3, %a3, 4; shr.u32 %a4, %a2, 2; add.u32 %a3, %a3, %a4;");
    let _ = writeln!(text, "and.b32 %a4, %a2, 3; shl.b32 %a4, %a4, 1; mad.lo.u32 %a3, %a3, 3, %a4;");
    let value = |number: u32, to: &str| {
        let more = number / 2 % 2 * 24 + number / 4 * 8 + number % 2;
        let as_sum = match sum {
            "s32" => String::new(),
            "f32" => format!("cvt.rn.f32.s32 {to}, {to};"),
            _ => format!("{{ .reg .b16 %h; cvt.rn.f16.s32 %h, {to}; mov.b32 {to}, {{%h, 0}}; }}"),
        };
        format!("add.u32 {to}, %a3, {more}; rem.u32 {to}, {to}, 9; sub.s32 {to}, {to}, 4; {as_sum}\n")
    };
    for number in 0..registers {
        if sum == "f16" {
            text += &value(2 * number, "%a5");
            text += &value(2 * number + 1, "%a6");
            let _ = writeln!(text, "prmt.b32 %r{number}, %a5, %a6, 0x5410;");
        } else {
            text += &value(number, &format!("%r{number}"));
        }
    }
    text
}

fn vector(prefix: &str, count: u32) -> String {
    format!("{{{}}}", (0..count).map(|number| format!("%{prefix}{number}")).collect::<Vec<_>>().join(", "))
}

/// What each thread's registers of a product of `n` columns should be.
fn check_sums(words: &[u32], sum: &str, (n, k): (u32, u32)) {
    let each = n * bits(sum) / 64;
    for thread in 0..128 {
        let lane = thread % 32;
        for element_number in 0..n / 2 {
            let row = thread / 32 * 16 + lane / 4 + element_number / 2 % 2 * 8;
            let column = element_number / 4 * 8 + lane % 4 * 2 + element_number % 2;
            let word = match sum {
                "f16" => words[(thread * each + element_number / 2) as usize] >> (element_number % 2 * 16) & 0xffff,
                _ => words[(thread * each + element_number) as usize],
            };
            assert_eq!(u64::from(word), element(sum, d_at(row, column, k)), "row {row}, column {column} of {n}");
        }
    }
}

const START: &str = "wgmma.fence.sync.aligned;\n";
const END: &str = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n";

/// A product of two matrices in shared memory.
fn product(types: [&str; 3], n: u32, a: Place, b: Place) -> Result<Vec<u32>, Fault> {
    let [sum, a_type, b_type] = types;
    let k = 256 / bits(a_type);
    let halves = matches!(a_type, "f16" | "bf16");
    let flags = match (sum, halves) {
        ("s32", _) => String::new(),
        (_, true) => format!(", 1, 1, {}, {}", i32::from(!a.along_k), i32::from(!b.along_k)),
        (_, false) => ", 1, 1".into(),
    };
    let registers = n * bits(sum) / 64;
    let body = format!(
        "{}setp.eq.u32 %p1, %t, %t; mov.u64 %d3, {:#x}; mov.u64 %d4, {:#x};\n{START}\
         wgmma.mma_async.sync.aligned.m64n{n}k{k}.{sum}.{a_type}.{b_type} {}, %d3, %d4, %p1{flags};\n{END}",
        begin_sums(sum, n),
        a.descriptor(),
        b.descriptor(),
        vector("r", registers)
    );
    let bytes = 48 << 10;
    words_of(&of_warpgroup(bytes, registers, &body), 128, registers, &image(bytes, Some(a), b, [a_type, b_type], (n, k)))
}

/// Every swizzle and both orders, A and B differently.
#[rstest]
fn products_of_matrices_in_shared_memory(
    #[values(1, 2, 4, 8)] pattern: u32,
    #[values(true, false)] along_k: bool,
    #[values(8, 24, 256)] n: u32,
) {
    let place = |start: u32, along_k: bool, rows: u32| {
        let group = 128 * pattern;
        match (along_k, pattern) {
            (true, 1) => Place { start, pattern, along_k, leading: 128, stride: 256 },
            // More of k lies beside it, so that rows are as long as the pattern.
            (true, _) => Place { start: start + if pattern > 2 { 32 } else { 0 }, pattern, along_k, leading: 16, stride: group },
            (false, 1) => Place { start, pattern, along_k, leading: 128, stride: 256 },
            (false, _) => Place { start, pattern, along_k, leading: 2 * group, stride: group },
        }
        .fitted(rows)
    };
    let words = product(["f32", "bf16", "bf16"], n, place(1024, along_k, 64), place(12 << 10, !along_k, n)).unwrap();
    check_sums(&words, "f32", (n, 16));
    let words = product(["f16", "f16", "f16"], n, place(1024, !along_k, 64), place(12 << 10, along_k, n)).unwrap();
    check_sums(&words, "f16", (n, 16));
}

impl Place {
    /// The same, which must end in the 48 KiB that there are.
    fn fitted(self, rows: u32) -> Place {
        assert!((0..rows).all(|row| self.byte(row, 15, 2) < 48 << 10));
        self
    }
}

#[rstest]
#[case(["f32", "tf32", "tf32"])]
#[case(["f32", "e4m3", "e4m3"])]
#[case(["f32", "e5m2", "e4m3"])]
#[case(["f16", "e4m3", "e5m2"])]
#[case(["f16", "e5m2", "e5m2"])]
#[case(["s32", "s8", "s8"])]
fn products_of_other_types(#[case] types: [&str; 3]) {
    let place = |start| Place { start, pattern: 8, along_k: true, leading: 16, stride: 1024 };
    let words = product(types, 48, place(0), place(16 << 10)).unwrap();
    check_sums(&words, types[0], (48, 256 / bits(types[1])));
}

/// A in registers: each thread has of rows l/4 and 8 below, columns 2 (l%4) and following, and the same eight columns to the right.
#[test]
fn a_product_of_registers() {
    let n = 16;
    let b = Place { start: 0, pattern: 8, along_k: true, leading: 16, stride: 1024 };
    let mut body = begin_sums("f32", n);
    // The input goes on with the words of A, four for each thread.
    let _ = writeln!(body, "mul.wide.u32 %d2, %t, 16; add.u64 %d2, %d2, %d1; ld.global.v4.u32 {{%a0, %a1, %a2, %a3}}, [%d2+4096];");
    let _ = writeln!(
        body,
        "mov.u64 %d4, {:#x};\n{START}wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 {}, {{%a0, %a1, %a2, %a3}}, %d4, 1, 1, 1, 0;\n{END}",
        b.descriptor(),
        vector("r", n / 2)
    );
    let mut input = image(4096, None, b, ["f16", "f16"], (n, 16));
    for thread in 0..128 {
        for register in 0..4 {
            let (row, k) = (thread / 32 * 16 + thread % 32 / 4 + register % 2 * 8, thread % 4 * 2 + register / 2 * 8);
            (0..2).for_each(|part| input.extend((element("f16", a_at(row, k + part)) as u16).to_le_bytes()));
        }
    }
    let words = words_of(&of_warpgroup(4096, n / 2, &body), 128, n / 2, &input).unwrap();
    check_sums(&words, "f32", (n, 16));
}

/// Both factors have their sign turned, or one; sums that are not kept do not count.
#[rstest]
#[case("-1, -1", "%p1", 1, 1)]
#[case("1, -1", "%p1", -1, 1)]
#[case("-1, 1", "%p1", -1, 1)]
#[case("1, 1", "0", 1, 0)]
fn signs_and_sums(#[case] flags: &str, #[case] keeps: &str, #[case] sign: i32, #[case] kept: i32) {
    let place = |start| Place { start, pattern: 4, along_k: true, leading: 16, stride: 512 };
    let (a, b) = (place(0), place(4096));
    let body = format!(
        "{}setp.eq.u32 %p1, %t, %t; mov.u64 %d3, {:#x}; mov.u64 %d4, {:#x};\n{START}\
         wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {}, %d3, %d4, {keeps}, {flags}, 0, 0;\n{END}",
        begin_sums("f32", 8),
        a.descriptor(),
        b.descriptor(),
        vector("r", 4)
    );
    let words = words_of(&of_warpgroup(8192, 4, &body), 128, 4, &image(8192, Some(a), b, ["bf16"; 2], (8, 16))).unwrap();
    for thread in 0..128 {
        for number in 0..4 {
            let (row, column) = (thread / 32 * 16 + thread % 32 / 4 + number / 2 * 8, thread % 4 * 2 + number % 2);
            let product = d_at(row, column, 16) - c_at(row, column);
            let expected = sign * product + kept * c_at(row, column);
            assert_eq!(u64::from(words[(thread * 4 + number) as usize]), element("f32", expected), "row {row}, column {column}");
        }
    }
}

/// Fragments as the tables of PTX ISA 9.7.14.5 have them, one by one: row and k of a lane's element of A, k of one of B, row and column of a sum.
#[rstest]
#[case("m16n8k8", ["f32", "f16", "f16"])]
#[case("m16n8k16", ["f32", "f16", "f16"])]
#[case("m16n8k16", ["f16", "f16", "f16"])]
#[case("m16n8k8", ["f32", "bf16", "bf16"])]
#[case("m16n8k16", ["f32", "bf16", "bf16"])]
#[case("m16n8k4", ["f32", "tf32", "tf32"])]
#[case("m16n8k8", ["f32", "tf32", "tf32"])]
#[case("m16n8k16", ["f32", "e4m3", "e5m2"])]
#[case("m16n8k32", ["f32", "e5m2", "e4m3"])]
#[case("m16n8k32", ["f16", "e4m3", "e4m3"])]
#[case("m8n8k16", ["s32", "s8", "s8"])]
#[case("m16n8k16", ["s32", "s8", "s8"])]
#[case("m16n8k32", ["s32", "s8", "s8"])]
#[case("m8n8k4", ["f64", "f64", "f64"])]
#[case("m16n8k4", ["f64", "f64", "f64"])]
#[case("m16n8k8", ["f64", "f64", "f64"])]
#[case("m16n8k16", ["f64", "f64", "f64"])]
fn products_of_warps(#[case] shape: &str, #[case] types: [&str; 3]) {
    let [sum, a, b] = types;
    let number = |text: &str| text.parse::<u32>().unwrap();
    let (m, k) = (number(&shape[1..shape.find('n').unwrap()]), number(shape.split_once('k').unwrap().1));
    let (group, within) = (|lane: u32| lane / 4, |lane: u32| lane % 4);
    // Row and k of element i of A.
    let of_a = |lane: u32, i: u32| match (shape, a) {
        ("m16n8k8", "f16" | "bf16") => (group(lane) + if i < 2 { 0 } else { 8 }, within(lane) * 2 + (i & 1)),
        ("m16n8k16", "f16" | "bf16") => {
            (group(lane) + if i < 2 || (4..6).contains(&i) { 0 } else { 8 }, within(lane) * 2 + (i & 1) + if i >= 4 { 8 } else { 0 })
        }
        ("m16n8k4", _) => (group(lane) + 8 * i, within(lane)),
        ("m16n8k8", "tf32" | "f64") => (group(lane) + i % 2 * 8, within(lane) + if i < 2 { 0 } else { 4 }),
        ("m16n8k16", "f64") => (group(lane) + i % 2 * 8, (i * 2) - (i % 2) * 2 + within(lane)),
        ("m8n8k4", _) => (lane >> 2, lane % 4),
        ("m8n8k16", _) => (group(lane), within(lane) * 4 + i),
        ("m16n8k16", _) => (group(lane) + if i < 4 { 0 } else { 8 }, within(lane) * 4 + (i & 3)),
        _ => (group(lane) + if i < 4 || (8..12).contains(&i) { 0 } else { 8 }, within(lane) * 4 + (i & 3) + if i < 8 { 0 } else { 16 }),
    };
    // k of element i of B, whose column is the group.
    let of_b = |lane: u32, i: u32| match (shape, a) {
        ("m16n8k8", "f16" | "bf16") => within(lane) * 2 + i,
        ("m16n8k16", "f16" | "bf16") => within(lane) * 2 + (i & 1) + if i < 2 { 0 } else { 8 },
        (_, "tf32" | "f64") => within(lane) + i * 4,
        ("m16n8k32", _) => within(lane) * 4 + (i & 3) + if i < 4 { 0 } else { 16 },
        _ => within(lane) * 4 + i,
    };
    let of_sum = |lane: u32, i: u32| (group(lane) + if i < 2 { 0 } else { 8 }, within(lane) * 2 + (i & 1));
    // Words of each lane: A, B, C.
    let mut input = Vec::new();
    let counts = [m * k / 32, 8 * k / 32, m * 8 / 32];
    for lane in 0..32 {
        let mut put = |ty: &str, value: i32| input.extend(&element(ty, value).to_le_bytes()[..bits(ty) as usize / 8]);
        (0..counts[0]).for_each(|i| put(a, a_at(of_a(lane, i).0, of_a(lane, i).1)));
        (0..counts[1]).for_each(|i| put(b, b_at(of_b(lane, i), group(lane))));
        (0..counts[2]).for_each(|i| put(sum, c_at(of_sum(lane, i).0, of_sum(lane, i).1)));
    }
    let words = |count: u32, ty: &str| count * bits(ty) / 32;
    let [in_a, in_b, in_c] = [words(counts[0], a), words(counts[1], b), words(counts[2], sum)];
    let each = in_a + in_b + in_c;
    let mut body = format!("mul.wide.u32 %d2, %t, {}; add.u64 %d2, %d2, %d1;\n", 4 * each);
    let (prefix, wide) = if sum == "f64" { ("g", 2) } else { ("r", 1) };
    let registers = |from: u32, count: u32| {
        let names: Vec<String> = (from / wide..(from + count) / wide).map(|number| format!("%{prefix}{number}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    for number in 0..each / wide {
        let _ = writeln!(body, "ld.global.b{} %{prefix}{number}, [%d2+{}];", 32 * wide, 4 * wide * number);
    }
    let d = if sum == "f64" { "{%h0, %h1, %h2, %h3}" } else { "{%s0, %s1, %s2, %s3}" };
    let d = &d[..1 + 5 * (in_c / wide) as usize - 2];
    let _ = writeln!(
        body,
        "mma.sync.aligned.{shape}.row.col.{sum}.{a}.{b}.{sum} {d}}}, {}, {}, {};\nmul.wide.u32 %d2, %t, {}; add.u64 %d2, %d2, %d0;",
        registers(0, in_a),
        registers(in_a, in_b),
        registers(in_a + in_b, in_c),
        4 * in_c
    );
    for number in 0..in_c / wide {
        let _ = writeln!(body, "st.global.b{} [%d2+{}], %{}{number};", 32 * wide, 4 * wide * number, if sum == "f64" { "h" } else { "s" });
    }
    let text = format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u64 in)\n{{\n\
         .reg .b32 %r<32>; .reg .b32 %s<4>; .reg .b64 %g<32>; .reg .b64 %h<4>; .reg .b32 %t; .reg .b64 %d<4>;\n\
         ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %t, %tid.x;\n{body}ret;\n}}\n"
    );
    let found = words_of(&text, 32, in_c, &input).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    let bytes: Vec<u8> = found.iter().flat_map(|word| word.to_le_bytes()).collect();
    let width = bits(sum) as usize / 8;
    for (place, value) in bytes.chunks_exact(width).enumerate() {
        let (lane, i) = (place as u32 / counts[2], place as u32 % counts[2]);
        let (row, column) = of_sum(lane, i);
        assert_eq!(value, &element(sum, d_at(row, column, k)).to_le_bytes()[..width], "row {row}, column {column}");
    }
}

/// Two rows of a matrix for each lane that has an address: what the lanes have, and back.
#[rstest]
fn fragments_of_memory(#[values(1, 2, 4)] count: u32, #[values(false, true)] transposed: bool) {
    let trans = if transposed { ".trans" } else { "" };
    let names = vector("r", count);
    // Lane 8m + r has the address of row r of matrix m, which is 48 bytes from the next.
    let body = format!(
        "mad.lo.u32 %i, %t, 48, %s; ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {names}, [%i];\n\
         add.u32 %i, %i, 16; mov.u64 %d2, smem; cvta.shared.u64 %d2, %d2; mad.wide.u32 %d2, %t, 48, %d2; add.u64 %d2, %d2, 16;\n\
         stmatrix.sync.aligned.m8n8.x{count}{trans}.b16 [%d2], {names};\nbar.sync 0;\n\
         ld.shared.v4.b32 {{%r8, %r9, %r10, %r11}}, [%i];\n{}",
        (4..8).map(|number| format!("mov.b32 %r{number}, %r{};\n", number + 4)).collect::<String>()
    );
    let part = |matrix: u32, row: u32, column: u32| (matrix << 8 | row << 4 | column) as u16;
    let mut input = vec![0; 48 * 128 + 64];
    for lane in 0..32_u32 {
        for column in 0..8 {
            let at = (lane * 48 + column * 2) as usize;
            input[at..at + 2].copy_from_slice(&part(lane / 8, lane % 8, column).to_le_bytes());
        }
    }
    let text = of_warpgroup(48 * 128 + 64, 8, &body).replace("512; bra FILL", "128; bra FILL").replace("%r<160>", "%r<16>");
    let words = words_of(&text, 32, 8, &input).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    for lane in 0..32 {
        for matrix in 0..count {
            let halves = [0, 1].map(|half| {
                let (far, near) = (lane / 4, lane % 4 * 2 + half);
                u32::from(if transposed { part(matrix, near, far) } else { part(matrix, far, near) })
            });
            assert_eq!(words[(lane * 8 + matrix) as usize], halves[0] | halves[1] << 16, "lane {lane}, matrix {matrix}");
        }
        for pair in 0..4 {
            let [low, high] = [0, 1].map(|half| u32::from(part(lane / 8, lane % 8, pair * 2 + half)));
            let expected = if lane < 8 * count { low | high << 16 } else { 0 };
            assert_eq!(words[(lane * 8 + 4 + pair) as usize], expected, "row {lane}, what was stored");
        }
    }
}

#[test]
fn a_matrix_is_turned() {
    let body = "shl.b32 %r1, %t, 1; add.u32 %r2, %r1, 1; shl.b32 %r2, %r2, 16; or.b32 %r1, %r1, %r2;\nmovmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;";
    // Row l/4 has elements 8 (l/4) to 8 (l/4) + 7.
    let expected = |lane: u32| {
        let [low, high] = [0, 1].map(|half| (lane % 4 * 2 + half) * 8 + lane / 4);
        low | high << 16
    };
    assert_eq!(results(body, 32), (0..32).map(expected).collect::<Vec<_>>());
}

#[rstest]
#[case("ldmatrix.sync.aligned.m8n8.x1.b16 %r0, [%d0];", 32, "is not in shared memory")]
#[case("ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r0, [block+8];", 32, "are not aligned to 16")]
#[case("movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;", 24, "all 32 threads of a warp, of which there are 24")]
fn what_matrices_must_not(#[case] body: &str, #[case] threads: u32, #[case] why: &str) {
    let stopped = run(&around(&format!("st.shared.u32 [block], 0;\n{body}")), shape(1, threads), &[]).unwrap_err().to_string();
    assert!(stopped.contains(why), "{stopped}");
}

/// If this fails, every tensor core adds as Hopper's does, or one of them in two ways.
#[test]
fn other_tensor_cores_add_in_an_order_of_their_own() {
    let body = "mul.lo.u32 %r4, %t, 0x04230519; and.b32 %r4, %r4, 0x3fff3fff; xor.b32 %r5, %r4, 0x09110213; xor.b32 %r6, %r4, 0x14550123; xor.b32 %r7, %r5, 0x31023477;\n\
                mov.f32 %f0, 0f3F9D70A4;\n\
                mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r4,%r5,%r6,%r7}, {%r6,%r5}, {%f0,%f0,%f0,%f0};\n\
                mov.b32 %r0, %f1; mov.b32 %r1, %f2; xor.b32 %r0, %r0, %r1; st.global.u32 [%d2], %r0;";
    let sums = |tensor_cores, seeds| {
        let mut memory = Memory::new();
        let program = program(&around(body), 0, &mut memory);
        let out = memory.allocate(Owner::new(0, 0, "out"), 128, Init::Canary);
        let parameters = [out.0.to_le_bytes(), [0; 8]].concat();
        let grid = Grid::new(program, "k", shape(1, 32), &parameters, &mut memory).unwrap();
        finish(grid.varied(Arithmetic { tensor_cores, ..Arithmetic::default() }, seeds), &mut memory).unwrap().expect("it ends");
        words(&memory, out, 32)
    };
    let (hopper, bound) = (sums(TensorCores::Hopper, [1, 2]), sums(TensorCores::Bound, [1, 2]));
    assert_eq!(hopper, sums(TensorCores::Hopper, [3, 4]));
    assert_eq!(bound, sums(TensorCores::Bound, [1, 3]), "the same chip");
    assert!(hopper != bound && bound != sums(TensorCores::Bound, [2, 2]));
}
