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
    let program = Arc::new(Program::load(Arc::new(module), 0, DeviceLimits::OF_TESTS, &mut memory).unwrap());
    let refused = Grid::new(program.clone(), "new", shape(1, 32), &[], &mut memory).unwrap_err();
    assert_eq!(refused.to_string(), ptx::parse(text).unwrap_err().to_string());
    assert!(refused.to_string().starts_with("3:1: unknown instruction `frobnicate.b32`"), "{refused}");
    let grid = Grid::new(program, "old", shape(1, 32), &[], &mut memory).unwrap();
    assert!(finish(grid, &mut memory).unwrap().is_some());
}
