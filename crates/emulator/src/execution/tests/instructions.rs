//! Single instructions against values worked out by hand.

use rstest::rstest;

use super::*;

#[rstest]
#[case("add.u32 %r0, 4294967295, 2;", 1)]
#[case("add.sat.s32 %r0, 2147483647, 2;", 0x7fff_ffff)]
#[case("sub.sat.s32 %r0, -2147483648, 2;", 0x8000_0000)]
#[case("mul.hi.u32 %r0, 4294967295, 4294967295;", 0xffff_fffe)]
#[case("mul.hi.s32 %r0, -2, 3;", 0xffff_ffff)]
#[case("mad.lo.s32 %r0, -2, 3, 10;", 4)]
#[case("mul.wide.s32 %d4, -2, 3; cvt.u32.u64 %r0, %d4;", 0xffff_fffa)]
#[case("mul.wide.s32 %d4, -2, 3; shr.u64 %d4, %d4, 32; cvt.u32.u64 %r0, %d4;", 0xffff_ffff)]
#[case("mov.u16 %h0, 65535; mov.u16 %h1, 2; mul.wide.s16 %r0, %h0, %h1;", 0xffff_fffe)]
#[case("div.s32 %r0, -7, 2;", 0xffff_fffd)]
#[case("rem.s32 %r0, -7, 2;", 0xffff_ffff)]
#[case("rem.u32 %r0, 7, 0;", 0xffff_ffff)]
#[case("div.s32 %r0, -2147483648, -1;", 0x8000_0000)]
#[case("min.s32 %r0, -1, 1;", 0xffff_ffff)]
#[case("max.u32 %r0, -1, 1;", 0xffff_ffff)]
#[case("abs.s32 %r0, -5;", 5)]
#[case("shl.b32 %r0, 1, 32;", 0)]
#[case("shr.s32 %r0, -8, 40;", 0xffff_ffff)]
#[case("shr.u32 %r0, -8, 28;", 15)]
#[case("shf.l.wrap.b32 %r0, 2147483648, 1, 33;", 3)]
#[case("shf.r.clamp.b32 %r0, 1, 7, 40;", 7)]
#[case("bfi.b32 %r0, 5, 4294967295, 4, 3;", 0xffff_ffdf)]
#[case("bfe.u32 %r0, 240, 4, 8;", 15)]
#[case("bfe.s32 %r0, 240, 4, 4;", 0xffff_ffff)]
#[case("bfe.s32 %r0, -2147483648, 28, 16;", 0xffff_fff8)]
#[case("bfe.u32 %r0, 240, 4, 0;", 0)]
#[case("prmt.b32 %r0, 0x33221100, 0x77665544, 0x7531;", 0x7755_3311)]
#[case("prmt.b32 %r0, 0x80, 0, 0x9998;", 0xff)]
#[case("prmt.b32.b4e %r0, 0x33221100, 0x77665544, 0;", 0x5566_7700)]
#[case("prmt.b32.rc16 %r0, 0x33221100, 0, 1;", 0x3322_3322)]
#[case("lop3.b32 %r0, 12, 10, 6, 0x96;", 0)]
#[case("lop3.b32 %r0, 12, 10, 6, 0xe8;", 14)]
#[case("not.b32 %r0, 1;", 0xffff_fffe)]
#[case("cnot.b32 %r0, 0;", 1)]
#[case("brev.b32 %r0, 1;", 0x8000_0000)]
#[case("popc.b32 %r0, 255;", 8)]
#[case("clz.b32 %r0, 1;", 31)]
#[case("bfind.u32 %r0, 0;", 0xffff_ffff)]
#[case("bfind.s32 %r0, -2;", 0)]
#[case("bfind.shiftamt.u32 %r0, 1;", 31)]
#[case("cvt.s32.s8 %r0, 255;", 0xffff_ffff)]
#[case("mov.u32 %r1, 300; cvt.sat.u8.u32 %r0, %r1;", 255)]
#[case("mov.f32 %f0, 0f40200000; cvt.rni.s32.f32 %r0, %f0;", 2)]
#[case("mov.f32 %f0, 0fBF800000; cvt.rzi.u32.f32 %r0, %f0;", 0)]
#[case("mov.u32 %r1, 16777217; cvt.rp.f32.u32 %f0, %r1; mov.b32 %r0, %f0;", 0x4b80_0001)]
#[case("mov.f32 %f0, 0f3F808000; cvt.rn.bf16.f32 %h0, %f0; cvt.u32.u16 %r0, %h0;", 0x3f80)]
#[case("mov.f32 %f0, 0f3F800000; mov.f32 %f1, 0f40000000; cvt.rn.f16x2.f32 %r0, %f1, %f0;", 0x4000_3c00)]
#[case("mov.f64 %g0, 0d3FF8000000000000; cvt.rn.f32.f64 %f0, %g0; mov.b32 %r0, %f0;", 0x3fc0_0000)]
#[case("mov.f32 %f0, 0f3F800000; add.rp.f32 %f0, %f0, 0f00000001; mov.b32 %r0, %f0;", 0x3f80_0001)]
#[case("mov.f32 %f0, 0f00000001; add.ftz.f32 %f0, %f0, %f0; mov.b32 %r0, %f0;", 0)]
#[case("mov.f32 %f0, 0f40400000; div.rn.f32 %f0, 0f3F800000, %f0; mov.b32 %r0, %f0;", 0x3eaa_aaab)]
#[case("mov.f32 %f0, 0f40800000; sqrt.rn.f32 %f0, %f0; mov.b32 %r0, %f0;", 0x4000_0000)]
#[case("mov.f32 %f0, 0f7FC00001; min.f32 %f0, %f0, 0f3F800000; mov.b32 %r0, %f0;", 0x3f80_0000)]
#[case("mov.f32 %f0, 0f7FC00001; min.NaN.f32 %f0, %f0, 0f3F800000; mov.b32 %r0, %f0;", 0x7fff_ffff)]
#[case("mov.f32 %f0, 0fBF800000; copysign.f32 %f0, %f0, 0f40000000; mov.b32 %r0, %f0;", 0xc000_0000)]
#[case("mov.f32 %f0, 0f3F800000; fma.rn.f32 %f0, %f0, %f0, %f0; mov.b32 %r0, %f0;", 0x4000_0000)]
#[case("mov.b32 %r1, 0x40003c00; fma.rn.f16x2 %r0, %r1, %r1, %r1;", 0x4600_4000)]
#[case("setp.lt.s32 %p0, -1, 1; selp.u32 %r0, 7, 8, %p0;", 7)]
#[case("setp.lt.u32 %p0, -1, 1; selp.u32 %r0, 7, 8, %p0;", 8)]
#[case("mov.f32 %f0, 0f7FC00000; setp.ltu.f32 %p0, %f0, 0f00000000; selp.u32 %r0, 7, 8, %p0;", 7)]
#[case("setp.eq.u32 %p1, 1, 1; setp.eq.and.u32 %p0|%p2, 1, 2, %p1; selp.u32 %r0, 7, 8, %p2;", 7)]
#[case("set.lt.u32.s32 %r0, -1, 1;", 0xffff_ffff)]
#[case("slct.u32.s32 %r0, 7, 8, -1;", 8)]
#[case("mov.f32 %f0, 0f00000001; testp.subnormal.f32 %p0, %f0; selp.u32 %r0, 7, 8, %p0;", 7)]
#[case("mov.b64 %d4, {1, 2}; mov.b64 {%r1, %r2}, %d4; sub.u32 %r0, %r2, %r1;", 1)]
#[case(".reg .v4 .b32 %v; mov.v4.b32 %v, {1, 2, 3, 4}; mov.v4.b32 %v, {%v.w, %v.z, %v.y, %v.x}; mad.lo.u32 %r0, %v.x, 16, %v.b;", 66)]
#[case(".reg .v4 .b32 %v; mov.v4.b32 %v, {1, 2, 3, 4}; st.shared.v4.b32 [block], %v; ld.shared.u32 %r0, [block+8];", 3)]
#[case("mov.u32 %r0, %ntid.x;", 1)]
#[case("mov.u32 %r0, %lanemask_lt;", 0)]
#[case("mov.u32 %r0, 3; { .param .b32 x; .param .b32 r; st.param.b32 [x], %r0; call (r), triple, (x); ld.param.b32 %r0, [r]; }", 9)]
#[case("call (%r0), deep, (10);", 55)]
#[case("mov.u32 %r0, 9; mov.v4.b32 {%r0, %r1, %r2, %r3}, 0;", 0)]
#[case(
    "mov.u32 %r0, %envreg2; mov.u32 %r1, %pm3; mov.u64 %d4, %current_graph_exec; cvt.u32.u64 %r2, %d4; or.b32 %r0, %r0, %r1; or.b32 %r0, %r0, %r2;",
    0
)]
#[case(
    "mov.u32 %r0, 3; mov.u64 %d4, triple; { .param .b32 x; .param .b32 r; pr: .callprototype (.param .b32 _) _ (.param .b32 _); \
     st.param.b32 [x], %r0; call (r), %d4, (x), pr; ld.param.b32 %r0, [r]; }",
    9
)]
#[case(".reg .b8 %b<4>; cvt.rn.satfinite.e2m1x2.f32 %b0, 0f3FC00000, 0fC0A00000; cvt.u32.u8 %r0, %b0;", 0x3e)]
#[case(".reg .b8 %b<4>; cvt.rn.satfinite.e2m1x2.f32 %b0, 0f42C80000, 0f7FC00000; cvt.u32.u8 %r0, %b0;", 0x77)]
#[case(".reg .b8 %b<4>; cvt.rn.satfinite.relu.e2m1x2.f32 %b0, 0fBF800000, 0f3E800000; cvt.u32.u8 %r0, %b0;", 0)]
#[case(".reg .b8 %b<4>; cvt.rn.satfinite.e2m1x2.f32 %b0, 0f3F400000, 0f3FA00000; cvt.rn.f16x2.e2m1x2 %r0, %b0;", 0x3c00_3c00)]
fn an_instruction_gives_its_result(#[case] body: &str, #[case] expected: u32) {
    assert_eq!(results(body, 1), [expected], "{body}");
}

#[rstest]
#[case("atom.add.u32", "5", 7, 2)]
#[case("atom.min.s32", "-1", 0xffff_ffff, 2)]
#[case("atom.and.b32", "6", 2, 2)]
#[case("atom.inc.u32", "2", 0, 2)]
#[case("atom.dec.u32", "1", 1, 2)]
#[case("atom.exch.b32", "9", 9, 2)]
#[case("atom.cas.b32", "2, 8", 8, 2)]
#[case("atom.cas.b32", "3, 8", 2, 2)]
fn an_atomic_returns_the_old_value(#[case] opcode: &str, #[case] values: &str, #[case] new: u32, #[case] old: u32) {
    let opcode = opcode.replace("atom.", "atom.shared.");
    let body =
        format!("st.shared.u32 [block], 2; {opcode} %r1, [block], {values}; ld.shared.u32 %r2, [block]; mad.lo.u32 %r0, %r2, 16, %r1;");
    assert_eq!(results(&body, 1), [new.wrapping_mul(16).wrapping_add(old)]);
}

#[test]
fn atomics_of_all_lanes_add_up_in_every_type() {
    let body = "mov.b64 %d4, block; cvta.shared.u64 %d4, %d4; st.shared.u32 [block], 0; bar.sync 0;\n\
                cvt.rn.f32.u32 %f0, %t; red.shared.add.f32 [block], %f0; bar.sync 0;\n\
                ld.u32 %r0, [%d4]; mov.b32 %f1, %r0; cvt.rzi.u32.f32 %r0, %f1;";
    assert_eq!(results(body, 64), [2016; 64]);
}

/// If this fails, 256 bits are not the eight words that they are, or an address that only 128 bits may have is let through.
#[test]
fn accesses_of_256_bits_are_eight_words() {
    let words = "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}";
    let fill = (1..=8).map(|n| format!("mov.u32 %r{n}, {n};")).collect::<String>();
    let body = format!("{fill} st.global.v8.b32 [%d0], {words}; ld.global.v4.b64 {{%d4, %d5, %d6, %d7}}, [%d0]; ");
    assert_eq!(results(&format!("{body} shr.u64 %d7, %d7, 32; cvt.u32.u64 %r0, %d7;"), 8)[0], 8);
    assert_eq!(results(&format!("{body} cvt.u32.u64 %r0, %d5;"), 8)[7], 3);
    let fault = run(&around(&body.replace("[%d0], {", "[%d0+16], {")), shape(1, 16), &[]).unwrap_err().to_string();
    assert!(fault.contains("32") && fault.contains("aligned"), "{fault}");
}

/// If this fails, a kernel is run into what nobody knows, or one that cannot reach it is kept from running.
#[test]
fn only_who_reaches_an_unknown_instruction_is_refused() {
    let text = ".version 9.0 .target sm_90 .address_size 64\n.entry new() {\nfrobnicate.b32;\n}\n.entry old() { ret; frobnicate.b32; }\n";
    let mut memory = Memory::new();
    let module = ptx::parse_tolerant(text).unwrap();
    let program = Arc::new(Program::load(Arc::new(module), 0, DeviceLimits::of_tests(), &mut memory).unwrap());
    let refused = Grid::new(program.clone(), "new", shape(1, 32), &[], &mut memory).unwrap_err();
    assert_eq!(refused.to_string(), ptx::parse(text).unwrap_err().to_string());
    assert!(refused.to_string().starts_with("3:1: unknown instruction `frobnicate.b32`"), "{refused}");
    let grid = Grid::new(program, "old", shape(1, 32), &[], &mut memory).unwrap();
    assert!(finish(grid, &mut memory).unwrap().is_some());
}

/// If this fails, lanes that call by a table go to one another's functions, or a call of no function runs into nothing.
#[test]
fn lanes_call_what_they_hold() {
    let functions =
        ".func (.param .b32 r) nine(.param .b32 x) { st.param.b32 [r], 9; ret; }\n.global .u64 table[2] = {triple, nine};\n.visible .entry";
    let call = "pr: .callprototype (.param .b32 _) _ (.param .b32 _);\n\
                { .param .b32 x; .param .b32 r; st.param.b32 [x], %t; call (r), %d4, (x), pr; ld.param.b32 %r0, [r]; }";
    let text = |address: &str, call: &str| {
        around(&format!("{address}\n{call}\nst.global.u32 [%d2], %r0;")).replacen(".visible .entry", functions, 1)
    };
    let by_lane = "and.b32 %r1, %t, 1; mul.wide.u32 %d4, %r1, 8; mov.u64 %d5, table; add.u64 %d5, %d5, %d4; ld.global.u64 %d4, [%d5];";
    let expected: Vec<u32> = (0..32).map(|lane| if lane % 2 == 0 { 3 * lane } else { 9 }).collect();
    assert_eq!(run(&text(by_lane, call), shape(1, 32), &[]).unwrap(), expected);
    let fault = |address: &str, call: &str| run(&text(address, call), shape(1, 1), &[]).unwrap_err().to_string();
    let nowhere = fault("mov.u64 %d4, 8;", call);
    assert!(nowhere.ends_with("a call of 0x8, which is the address of no function"), "{nowhere}");
    let other = fault("mov.u64 %d4, nine;", "pr: .callprototype _ (); call %d4, pr; mov.u32 %r0, 1;");
    assert!(other.ends_with("a call of `nine`, whose parameters are not those of the call's prototype"), "{other}");
    let read = fault("mov.u64 %d5, nine;", "ld.u32 %r0, [%d5];");
    assert!(read.contains("code of `nine`"), "{read}");
}

/// If this fails, a kernel that prints cannot be run, or what it prints is lost.
#[test]
fn printf_is_kept() {
    let declared = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);\n\
                    .global .b8 text[20] = {108, 97, 110, 101, 32, 37, 100, 58, 32, 37, 108, 108, 117, 37, 37, 10};\n.visible .entry";
    let body = ".local .align 8 .b8 values[16]; mov.u64 %d4, values; cvta.local.u64 %d4, %d4; st.u32 [%d4], %t; mov.u64 %d5, 10000000000; st.u64 [%d4+8], %d5;\n\
                mov.u64 %d6, text; cvta.global.u64 %d6, %d6; setp.ne.u32 %p0, %t, 3; mov.u32 %r0, 7; @%p0 bra D;\n\
                { .param .b64 f; .param .b64 v; .param .b32 r; st.param.b64 [f], %d6; st.param.b64 [v], %d4; call (r), vprintf, (f, v); ld.param.b32 %r0, [r]; }\n\
                D: st.global.u32 [%d2], %r0;";
    let mut memory = Memory::new();
    let program = program(&around(body).replacen(".visible .entry", declared, 1), 0, &mut memory);
    let out = memory.allocate(Owner::new(0, 0, "out"), 16, Init::Canary);
    let mut grid = Grid::new(program, "k", shape(1, 4), &[out.0.to_le_bytes(), [0; 8]].concat(), &mut memory).unwrap();
    while !grid.is_done() {
        grid.turn(&mut memory, 0, 1000, &mut |_| 0).unwrap();
    }
    assert_eq!(grid.printed(), ["lane 3: 10000000000%"]);
    assert_eq!(words(&memory, out, 4), [7, 7, 7, 2]);
}

/// If this fails, an assertion that does not hold is passed by.
#[test]
fn failed_assertion_is_a_fault() {
    let declared = ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n\
                    .global .b8 x[2] = {110};\n.global .b8 file[5] = {97, 46, 99, 117};\n.visible .entry";
    let body = "mov.u64 %d4, x; cvta.global.u64 %d4, %d4; mov.u64 %d5, file; cvta.global.u64 %d5, %d5;\n\
                { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; st.param.b64 [a], %d4; st.param.b64 [b], %d5; st.param.b32 [c], 12; \
                st.param.b64 [d], %d4; st.param.b64 [e], 1; call __assertfail, (a, b, c, d, e); }";
    let fault = run(&around(body).replacen(".visible .entry", declared, 1), shape(1, 1), &[]).unwrap_err().to_string();
    assert!(fault.ends_with("assertion `n` failed in `n` (a.cu:12)"), "{fault}");
}

/// If this fails, a wrong result is blamed on an element where the shuffle is what is wrong.
#[test]
fn shuffles_from_missing_lanes() {
    let undefined = |body: &str, threads: u32| {
        let mut memory = Memory::new();
        let program = program(&around(body), 0, &mut memory);
        let mut grid = Grid::new(program, "k", shape(1, threads), &[0; 16], &mut memory).unwrap();
        while !grid.is_done() {
            grid.turn(&mut memory, 0, 1000, &mut |_| 0).unwrap();
        }
        grid.undefined().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    insta::assert_snapshot!(undefined("shfl.sync.bfly.b32 %r0, %t, 16, 31, -1;", 8).join("\n"), @"rank 0 k, block 0 warp 0 lane 0, Shuffle at PTX 15:1: takes a value from lane 16, which a block of 8 threads does not have: it is undefined");
    insta::assert_snapshot!(undefined("setp.lt.u32 %p0, %t, 8; @!%p0 bra D; shfl.sync.down.b32 %r0, %t, 4, 31, 255; D:", 32).join("\n"), @"rank 0 k, block 0 warp 0 lane 4, Shuffle at PTX 15:38: takes a value from lane 8, which does not take part: it is undefined");
    assert!(undefined("shfl.sync.bfly.b32 %r0, %t, 16, 31, -1;", 32).is_empty());
}

/// If this fails, a launch without the shared memory that its kernel uses, or a variable that the host should have set, looks like the kernel's mistake.
#[test]
fn faults_name_what_is_missing() {
    let dynamic = |body: &str| around(body).replacen(".func", ".extern .shared .align 16 .b8 room[];\n.func", 1);
    let fault = |text: &str| run(text, shape(1, 1), &[1]).unwrap_err().to_string();
    let beyond = fault(&dynamic("st.shared.u32 [room], 1;"));
    assert!(beyond.contains("shared memory (k, block 0)+4096 are out of bounds"), "{beyond}");
    assert!(beyond.ends_with("; extern shared memory: the launch gives 0 bytes, see `dynamic_shared`"), "{beyond}");
    let nothing = fault(&dynamic("st.shared.u32 [room], 1;").replace(".shared .align 16 .b8 block[4096];", ""));
    assert!(nothing.ends_with("the launch gives 0 bytes of extern shared memory, see `dynamic_shared`"), "{nothing}");
    let unset = around("ld.const.u64 %d4, [table+8]; ld.u32 %r0, [%d4+4];").replacen(".func", ".const .align 8 .u64 table[4];\n.func", 1);
    let unset = fault(&unset);
    assert!(
        unset.ends_with("0x4 is no address of any buffer; the kernel reads `table` (.const), which nobody has set: it is zero"),
        "{unset}"
    );
    let plain = fault(&around("ld.u32 %r0, [4];"));
    assert!(plain.ends_with("0x4 is no address of any buffer"), "{plain}");
}
