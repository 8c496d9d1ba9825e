use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use proptest::prelude::*;
use rstest::rstest;
use rustix::time::{ClockId, clock_gettime};

use super::*;

/// All PTX files of the repository but those that only GPUs run.
fn files() -> Vec<(PathBuf, String)> {
    let mut folders: Vec<PathBuf> =
        ["kernels/ptx", "fixtures/mutants/ptx"].map(|folder| Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(folder)).into();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for found in fs::read_dir(folder).unwrap() {
            let path = found.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "ptx") {
                let text = fs::read_to_string(&path).unwrap();
                // Products of matrices, which the front end refuses.
                if !["wgmma.", "cp.async.bulk"].iter().any(|unknown| text.contains(unknown)) {
                    files.push((path, text));
                }
            }
        }
    }
    files
}

/// A kernel around a body, with registers of every class and variables of every space.
fn around(body: &str) -> String {
    format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.global .align 4 .u32 word = -1;\n.extern .shared .align 16 .b8 dynamic[];\n\
         .func (.param .b32 out) twice(.param .b32 in) {{ .reg .b32 %a; ld.param.b32 %a, [in]; st.param.b32 [out], %a; ret; }}\n\
         .visible .entry k(.param .u64 p0, .param .align 8 .b8 p1[24])\n{{\n.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; \
         .reg .f32 %f<8>; .reg .b64 %d<8>; .reg .f64 %g<4>; .reg .b128 %q<2>; .shared .align 4 .b8 block[64];\n{body}\n}}\n"
    )
}

fn decoded(body: &str) -> Vec<Operation> {
    match parse(&around(body)) {
        Ok(module) => module.entry("k").unwrap().code.clone(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_ptx_file_of_the_repository_decodes_wholly() {
    let files = files();
    assert!(files.len() >= 30, "only {} PTX files found", files.len());
    for (path, text) in files {
        let module = parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let names: Vec<&str> = module.entries().map(|entry| entry.name.as_str()).collect();
        let declared = text.lines().filter_map(|line| line.split_once(".entry ")?.1.split(['(', ' ']).next());
        assert_eq!(names, declared.collect::<Vec<_>>(), "{}", path.display());
        // An instruction ends with a semicolon on its own line and is no declaration: each of them is an operation.
        let written = text.lines().map(str::trim).filter(|line| line.ends_with(';') && !line.starts_with(['.', '/'])).count();
        let operations: usize = module.functions.iter().map(|function| function.code.len() - 1).sum();
        assert_eq!(operations, written, "{}", path.display());
    }
}

/// Products of matrices have more that is not known, but nothing of matrices.
#[test]
fn the_matrices_of_our_products_decode() {
    for text in [
        include_str!("../../../kernels/ptx/matmul/matmul.ptx"),
        include_str!("../../../kernels/ptx/all_gather_matmul/fused.ptx"),
        include_str!("../../../kernels/ptx/matmul_reduce_scatter/fused.ptx"),
    ] {
        let module = parse_tolerant(text).unwrap();
        let code = || module.functions.iter().flat_map(|function| &function.code);
        assert!(code().filter(|operation| matches!(operation.instruction, Instruction::WarpgroupMultiply { .. })).count() >= 20);
        for unknown in module.unknown() {
            let error = unknown.error.to_string();
            assert!(!["wgmma", "matrix"].iter().any(|word| error.contains(word)), "{error}");
        }
    }
}

#[test]
fn branches_stay_in_their_function_and_registers_in_their_frame() {
    for (path, text) in files() {
        for function in parse(&text).unwrap().functions {
            let counts = function.registers;
            for mut operation in function.code.clone() {
                if let Instruction::Branch { target, .. } = operation.instruction {
                    assert!(target < function.code.len(), "{}:{}", path.display(), operation.at);
                }
                operation.instruction.for_each_register(&mut |register, _| assert!(register.index < counts.of(register.class)));
            }
        }
    }
}

#[test]
fn registers_that_are_never_live_together_share_a_slot() {
    let module = parse(include_str!("../../../kernels/ptx/all_reduce/two_shot.ptx")).unwrap();
    let entry = module.entry("all_reduce_two_shot_bf16_sum").unwrap();
    assert!(entry.registers.words < entry.declared_registers.words / 2, "{:?} of {:?}", entry.registers, entry.declared_registers);
}

#[test]
fn a_register_that_lives_around_a_loop_keeps_its_slot() {
    // %r1 is read in the next round only; %r2 must not take its slot in between. The guarded move keeps what was there before.
    let code = decoded(
        "mov.u32 %r1, 1;\nmov.u32 %r3, 7;\nL: add.u32 %r2, %r1, 1;\nst.global.u32 [%d1], %r2;\nsetp.lt.u32 %p1, %r2, 9;\n\
         @%p1 mov.u32 %r3, 5;\n@%p1 bra L;\nst.global.u32 [%d1], %r3;",
    );
    let written = |index: usize| match code[index].instruction {
        Instruction::Move { destination, .. } | Instruction::Integer { destination, .. } => destination,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(BTreeSet::from([written(0), written(1), written(2)]).len(), 3);
    assert_eq!(written(1), written(5));
}

#[test]
fn our_kernels_need_these_families() {
    let mut families = BTreeSet::new();
    for (_, text) in files() {
        for function in parse(&text).unwrap().functions {
            families.extend(function.code.iter().map(|operation| operation.instruction.family()));
        }
    }
    let families: Vec<&str> = families.into_iter().collect();
    insta::assert_snapshot!(families.join(" "), @"AddressOf Atomic BarrierReduce BarrierSync BitFieldInsert Bits Branch Convert ConvertAddress ConvertPair Fence Float GridDependency Integer IntegerMultiplyAdd IntegerUnary Load Logic Move MultimemLoadReduce MultimemStore Pack Permute Prefetch ReadSpecial Return Select SetPredicate Shift Store WarpSync");
}

#[rstest]
#[case("atom.global.release.sys.cas.b32 %r1, [%d1], %r2, %r3;", "atom.cas.b32.sys.release.global %r1, [%d1], %r2, %r3;")]
#[case("atom.add.relaxed.gpu.global.u32 %r1, [%d1], %r2;", "atom.global.add.u32 %r1, [%d1], %r2;")]
#[case("red.release.sys.global.add.u32 [%d1], 1;", "red.global.add.release.sys.u32 [%d1], 1U;")]
#[case("ld.relaxed.sys.global.u32 %r1, [%d1+4];", "ld.global.u32.sys.relaxed %r1, [ %d1 + 0x4 ];")]
#[case("ld.global.v4.u32 {%r1,%r2,%r3,_}, [%d1];", "ld.u32.v4.global {%r1, %r2, %r3, _}, [%d1+0];")]
#[case("cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;", "cvt.e4m3x2.satfinite.f32.rn %h1, %f1, %f2;")]
#[case("prmt.b32.f4e %r1, %r2, %r3, %r4;", "prmt.f4e.b32 %r1, %r2, %r3, %r4;")]
#[case("setp.lt.and.u32 %p1|%p2, %r1, -1, !%p3;", "setp.and.u32.lt %p1|%p2, %r1, 4294967295, !%p3;")]
#[case("min.NaN.f32 %f1, %f2, 0f00000000;", "min.f32.NaN %f1, %f2, 0.0;")]
#[case(
    "multimem.ld_reduce.acquire.sys.global.add.acc::f32.v4.bf16x2 {%r1,%r2,%r3,%r4}, [%d1];",
    "multimem.ld_reduce.v4.add.bf16x2.acc::f32.global.sys.acquire {%r1,%r2,%r3,%r4}, [%d1];"
)]
#[case("multimem.red.add.u32 [%d1], %r1;", "multimem.red.relaxed.sys.add.u32 [%d1], %r1;")]
#[case("shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;", "shfl.b32.bfly.sync %r1|%p1, %r2, 1, 0x1f, 0xffffffff;")]
#[case("fence.acq_rel.sys;", "fence.sys.acq_rel;")]
#[case("bar.sync 0;", "barrier.sync.aligned 0;")]
#[case("mad.rn.f32 %f1, %f2, %f3, %f1;", "fma.f32.rn %f1, %f2, %f3, %f1;")]
#[case("div.full.ftz.f32 %f1, %f2, %f3;", "div.ftz.f32.full %f1, %f2, %f3;")]
fn modifiers_may_stand_in_any_order(#[case] one: &str, #[case] other: &str) {
    assert_eq!(decoded(one)[0].instruction, decoded(other)[0].instruction);
}

/// One instruction a line of what our kernels do not have yet.
#[rstest]
#[case("mov.b64 %d1, {%r1, %r2}; mov.b32 {%h1, _}, %r1; mov.b128 %q1, {%d1, %d2}; mov.pred %p1, -1; mov.u64 %d1, word+4;")]
#[case("mov.u64 %d1, %clock64; mov.u32 %r1, %laneid; mov.u32 %r1, %cluster_ctarank; mov.u32 %r1, %tid.z; mov.u32 %r1, WARP_SZ;")]
#[case("mov.u64 %d1, dynamic; mov.u32 %r1, block; cvta.shared.u64 %d1, %d1; cvta.to.global.u64 %d1, %d1; mov.b64 %d1, p1;")]
#[case("ld.global.nc.L1::no_allocate.L2::128B.v2.b64 {%d1,%d2}, [%d3]; st.shared.f32 [block+4], %f1; ld.b128 %q1, [%d1];")]
#[case("ld.global.L2::cache_hint.u32 %r1, [%d1], %d2; ld.mmio.relaxed.sys.global.u32 %r1, [%d1]; ld.global.s8 %d1, [%d1];")]
#[case("fma.rn.ftz.sat.f32 %f1,%f1,%f1,%f1; fma.rn.bf16x2 %r1,%r1,%r1,%r1; fma.rn.relu.f16 %h1,%h1,%h1,%h1; mad.wide.u32 %d1,%r1,%r2,%d1;")]
#[case("rcp.approx.ftz.f32 %f1,%f2; rsqrt.approx.f32 %f1,%f2; sqrt.rn.f64 %g1,%g2; ex2.approx.ftz.bf16x2 %r1,%r2; lg2.approx.f32 %f1,%f2;")]
#[case(
    "lop3.b32 %r1,%r2,%r3,%r4,0xE8; shf.l.wrap.b32 %r1,%r2,%r3,7; bfe.u32 %r1,%r2,8,8; popc.b64 %r1,%d1; clz.b32 %r1,%r2; brev.b64 %d1,%d2;"
)]
#[case("set.eq.f32.u32 %f1,%r1,%r2; slct.f32.s32 %f1,%f2,%f3,%r1; setp.gtu.f16x2 %p1|%p2,%r1,%r2; testp.finite.f32 %p1,%f1;")]
#[case(
    "cvt.rzi.s32.f32 %r1,%f1; cvt.sat.u8.s32 %r1,%r2; cvt.rn.bf16x2.f32 %r1,%f1,%f2; cvt.rn.f16x2.e4m3x2 %r1,%h1; cvt.f64.f32 %g1,%f1; cvt.rmi.f32.f32 %f1,%f2; cvt.f32.bf16 %f1,%h1;"
)]
#[case("{ .reg .pred P1; L1: shfl.sync.idx.b32 %r1|P1,%r2,0,31,-1; @P1 bra L1; } { L1: bra L1; }")]
#[case("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait; bar.red.popc.u32 %r1, 0, %p1; bar.arrive 1, 64; bar.warp.sync -1;")]
#[case("fence.proxy.alias; fence.proxy.async.shared::cta; fence.mbarrier_init.release.cluster; membar.sys; fence.sc.gpu; membar.gl;")]
#[case(
    "atom.global.add.noftz.bf16x2 %r1,[%d1],%r2; atom.global.v4.add.f32 {%f1,%f2,%f3,%f4},[%d1],{%f1,%f2,%f3,%f4}; atom.exch.b64 %d1,[%d2],%d3; atom.shared.inc.u32 %r1,[block],%r2;"
)]
#[case(
    "multimem.st.release.sys.global.u32 [%d1],%r1; multimem.st.global.v4.f32 [%d1],{%f1,%f2,%f3,%f4}; multimem.ld_reduce.min.u64 %d1,[%d2];"
)]
#[case(
    "vote.sync.ballot.b32 %r1,%p1,-1; match.all.sync.b32 %r1|%p1,%r2,-1; activemask.b32 %r1; elect.sync _|%p1,-1; redux.sync.add.s32 %r1,%r2,-1;"
)]
#[case(
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [block], [%d1], 64, [block+64]; cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%d1], %r2, [%r3], %d2;"
)]
#[case(
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [block], [%d1], 64, [block+64], %h1, %d2; cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r1], [block], 64, [%r2];"
)]
#[case(
    "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%d1], [block], 64, %d2; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 3; cp.async.bulk.wait_group 0; cp.async.bulk.prefetch.L2.global [%d1], 64;"
)]
#[case(
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%d1], [block], 64; cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.inc.u32 [%r1], [block], 64, [%r2];"
)]
#[case(
    "cp.async.ca.shared.global.L2::128B [block], [%d1], 4; cp.async.cg.shared::cta.global.L2::cache_hint [%r1], [%d1], 16, %r2, %d2; cp.async.ca.shared.global [%r1], [%d1], 8, !%p1; cp.async.commit_group; cp.async.wait_group 2; cp.async.wait_all; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [block];"
)]
#[case(
    "mbarrier.init.shared::cta.b64 [block], 3; mbarrier.inval.b64 [%d1]; mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r1], 64; mbarrier.complete_tx.shared.b64 [block], %r1; mbarrier.pending_count.b64 %r1, %d1;"
)]
#[case(
    "mbarrier.arrive.shared.b64 %d1, [block]; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1], 2; mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 %d1, [block], 64; mbarrier.arrive.noComplete.b64 %d1, [%d2], 1; mbarrier.arrive_drop.expect_tx.shared::cta.b64 _, [block], %r1;"
)]
#[case(
    "mbarrier.test_wait.shared.b64 %p1, [block], %d1; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [block], %r1, 1000; mbarrier.try_wait.relaxed.cta.b64 %p1, [%d1], %d2;"
)]
#[case(
    "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r1], {%r1, %r2, %r3, %r4}, [%r5]; red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.s32 [%r1], %r2, [%r3]; st.async.mbarrier::complete_tx::bytes.u64 [%d1], %d2, [%d3];"
)]
#[case(
    "setmaxnreg.dec.sync.aligned.u32 24; createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %d1, 0f3F000000; createpolicy.range.global.L2::evict_first.b64 %d1, [%d2], 64, 128; createpolicy.cvt.L2.b64 %d1, %d2; fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster; fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;"
)]
#[case(
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [block], [%d1, {%r1, %r2}], [block+64], %h1, %d2; cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%d1, {-4}], [%r2];"
)]
#[case(
    "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%d1, {%r1, %r2, 0, 1, %r3}], [block]; cp.reduce.async.bulk.tensor.3d.global.shared::cta.min.tile.bulk_group.L2::cache_hint [%d1, {%r1, %r2, %r3}], [%r4], %d2; cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%d1, {%r1, %r2, %r3, 7}]; prefetch.tensormap [%d1];"
)]
#[case(
    "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [block], %d1; tensormap.replace.tile.rank.global.b1024.b32 [%d1], 2; tensormap.replace.tile.box_dim.b1024.b32 [%d1], 4, %r1; tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r1], 3, %d1; tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [block], 0xa;"
)]
#[case(
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d1], [block], 128; fence.proxy.tensormap::generic.acquire.gpu [%d1], 128; fence.proxy.tensormap::generic.release.cta;"
)]
#[case(
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, %d1, %p1, -1, 1, 1; wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r1,%r2}, %d1, %d2, 0, 1, -1, 0, 1; wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 3;"
)]
#[case(
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1,%f2,%f3,%f4}, %d1, %d2, %p1, 1, 1; wgmma.mma_async.sync.aligned.m64n16k32.f16.e5m2.e4m3 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, %d2, %p1, 1, 1; wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.u8.s8 {%r1,%r2,%r3,%r4}, %d1, %d2, %p1;"
)]
#[case(
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {0f00000000,%f2,%f3,%f4}; mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r1,%r2}, {%r3,%r4}, %r5, {%r6,%r7}; mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r5}, {%f1,%f2,%f3,%f4};"
)]
#[case(
    "mma.sync.aligned.m8n8k4.row.col.rz.f64.f64.f64.f64 {%g1,%g2}, {%g1}, {%g2}, {%g1,%g2}; mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r1,%r2,%r3,0}; mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};"
)]
#[case(
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1,%r2,%r3,%r4}, [%r5]; ldmatrix.sync.aligned.m8n8.x1.trans.b16 %r1, [%d1]; stmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 [block], {%r1,%r2}; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;"
)]
#[case("nanosleep.u32 20; griddepcontrol.wait; prefetch.global.L2 [%d1]; discard.global.L2 [%d1],128; trap; exit;")]
#[case("{ .param .b32 a; .param .b32 b; st.param.b32 [a+0],%r1; call.uni (b), twice, (a); ld.param.b32 %r1,[b+0]; }")]
#[case("ts: .branchtargets A, B;\nbrx.idx %r1, ts;\nA: ret;\nB: ret.uni;")]
#[case("mov.u32 %r1, %envreg1; mov.b32 %r1, %envreg31; mov.u32 %r1, %pm7; mov.u64 %d1, %pm0_64; mov.u64 %d1, %current_graph_exec;")]
#[case(
    "{ .param .b32 a; .param .b32 b; pr: .callprototype (.param .b32 _) _ (.param .b32 _); mov.u64 %d1, twice; call (b), %d1, (a), pr; } \
     { .param .b32 a; .param .b32 b; fs: .calltargets twice; call.uni (b), %d1, (a), fs; }"
)]
#[case("no: .callprototype _ () .noreturn; call %d1, no;")]
fn what_our_kernels_lack_decodes_too(#[case] body: &str) {
    decoded(body);
}

#[rstest]
#[case("frobnicate.u32 %r1;", "10:1: unknown instruction `frobnicate.u32`")]
#[case("add.weird.u32 %r1, %r2, 1;", "10:4: modifier `.weird` is unknown, repeated or out of place in `add.weird.u32`")]
#[case("ld.global.global.u32 %r1, [%d1];", "10:10: modifier `.global` is unknown, repeated")]
#[case("add %r1, %r2, 1;", "10:1: `add` has no type, expected one of .u16")]
#[case("add.u32 %d1, %r2, 1;", "10:9: operand `%d1` of type .b64 of `add.u32`, expected a register of 32 bits")]
#[case("add.u32 %r1, %r16, 1;", "10:14: `%r16` is not declared")]
#[case("add.u32 %r1, %r2;", "10:1: `add.u32` has 2 operands, expected one more")]
#[case("add.u32 %r1, %r2, 1, 2;", "10:22: operand `2` of `add.u32`, expected no more than 3 operands")]
#[case("bra nowhere;", "10:5: `nowhere` is not declared, expected a label")]
#[case("add.rn.f16 %h1, %h1, 0f3F800000;", "10:22: operand a floating-point number")]
#[case("L: ret; L: ret;", "10:9: `L` is already declared")]
#[case("ld.relaxed.global.u32 %r1, [%d1];", "has .relaxed without scope, expected a scope")]
#[case("st.acquire.sys.global.u32 [%d1], %r1;", "has semantics .acquire")]
#[case("mov.u32 %r1, 0f12;", "10:14: found `0f12`, expected `0f` and 8 hexadecimal digits")]
#[case("mov.u32 %r1 1;", "10:13: found `1`, expected `,` or `;`")]
#[case("cvt.rn.s32.f32 %r1, %f1;", "expected a rounding that the ISA has")]
#[case(
    "cp.async.bulk.shared::cta.global.bulk_group [block], [%d1], 64;",
    "without .mbarrier::complete_tx::bytes, expected .mbarrier::complete_tx::bytes"
)]
#[case("cp.async.bulk.global.global.bulk_group [%d1], [%d2], 64;", "a copy to .global from .global, expected between .global and")]
#[case("cp.async.cg.shared.global [block], [%d1], 8;", "has 8 bytes, expected 16, or with .ca also 4 or 8")]
#[case(
    "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [block], [%d1, {%r1}], [block];",
    "10:82: operand a place in a tensor of `cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes`, expected one of 2 coordinates, not 1"
)]
#[case(
    "cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [block], [%d1], [block];",
    "expected a tensor map and coordinates"
)]
#[case("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%d1, {%d2}], [block];", "operand `%d2` of type .b64")]
#[case(
    "cp.async.bulk.tensor.1d.global.global.bulk_group [%d1, {%r1}], [%d2];",
    "has a copy of a box to .global from .global, expected between"
)]
#[case(
    "cp.async.bulk.tensor.3d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [block], [%d1, {%r1, %r2, %r3}], [block], {%h1};",
    "modifier `.im2col` is unknown"
)]
#[case("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%d1+128, {%r1}], [block];", "found `,`, expected `]`")]
#[case("tensormap.replace.tile.global_stride.b1024.b64 [%d1], 5, %d2;", "expected a constant below 5")]
#[case("tensormap.replace.tile.swizzle_mode.b1024.b32 [%d1], 4;", "expected a constant below 4")]
#[case("tensormap.replace.tile.rank.b1024.b64 [%d1], %d2;", "has type .b64, expected one of .b32")]
#[case("fence.proxy.tensormap::generic.acquire.gpu [%d1], 64;", "has 64 bytes of a tensor map, expected 128")]
#[case("ld.global.u32 %r1, [%d1, {%r1}];", "operand a place in a tensor of `ld.global.u32`, expected an address in brackets")]
#[case("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.bf16 [%d1], [block], 64;", "has no .noftz with .bf16")]
#[case("mbarrier.arrive.shared::cluster.b64 %d1, [%r1];", "has a state of another block's mbarrier, expected `_`")]
#[case("mbarrier.try_wait.parity.acquire.shared.b64 %p1, [block], 0;", "both or none")]
#[case("st.bulk.shared::cta [block], 64, 0;", "has st.bulk for target sm_90a, expected sm_100 or later")]
#[case("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d1], [block], 64, %h1;", "has .cp_mask for target sm_90a")]
#[case(
    "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 %r1, %d1, %d2, %p1, 1, 1, 0, 0;",
    "expected .m64nNk16 with N a multiple of 8, up to 256"
)]
#[case("wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 %r1, %d1, %d2, %p1;", "expected .m64nNk32 with N 24 or a multiple of 16, or 8")]
#[case(
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16 {%f1,%f2,%f3,%f4}, %d1, %d2, %p1, 1, 1, 0, 0;",
    "has type .bf16, expected one of .f16"
)]
#[case("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %d1, %d2, %p1, 2, 1, 0, 0;", "10:85: operand `2`")]
#[case("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,_,%f4}, %d1, %d2, %p1, 1, 1, 0, 0;", "`_` among registers of a matrix")]
#[case(
    "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1,%f2,%f3,%f4}, %d1, %d2, %r1, 0, %p1, 1, 1, 0, 0;",
    "10:1: `wgmma.mma_async.sp"
)]
#[case(
    "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%r1,%r2,%r3,%r4}, %d1, %d2, %p1;",
    "has no type, expected one of .s8, .u8"
)]
#[case(
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r1,%r2,%r3,%r4};",
    "10:1: `mma.sync"
)]
#[case(
    "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
    "expected one of .m16n8k8, .m16n8k16"
)]
#[case(
    "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 {%r1,%r2}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r1,%r2};",
    "types of which there is a product"
)]
#[case(
    "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4}, %r1, 0;",
    "10:1: `mma.sp"
)]
#[case("ldmatrix.sync.aligned.m8n8.x4.global.b16 {%r1,%r2,%r3,%r4}, [%d5];", "has space .global, expected one of .shared, .generic")]
#[case("setmaxnreg.inc.sync.aligned.u32 100;", "has 100 registers, expected a multiple of 8 from 24 to 256")]
#[case("tcgen05.fence::before_thread_sync;", "10:1: unknown instruction `tcgen05.fence::before_thread_sync`")]
#[case("mov.u32 %r1, 18446744073709551616;", "expected an integer of 64 bits")]
#[case("multimem.ld_reduce.add.v2.u32 {%r1,%r2}, [%d1];", "has 2 elements of .u32")]
#[case("ld.shared.u32 %r1, [word];", "operand `word` of space .global of `ld.shared.u32`, expected one of space .shared")]
fn an_error_says_where_and_what(#[case] body: &str, #[case] expected: &str) {
    let error = parse(&around(body)).unwrap_err();
    let shown = error.to_string();
    assert!(shown.contains(expected), "{shown}");
    assert!(shown.contains(&format!("    10 | {body}")), "{shown}");
}

/// An error in one instruction is an error only of the kernels that reach it, and the same as in a strict reading.
#[rstest]
#[case("frobnicate.u32 %r1;")]
#[case("add.weird.u32 %r1, %r2, 1;")]
#[case("ld.relaxed.global.u32 %r1, [%d1];")]
#[case("add.u32 %d1, %r2, 1;")]
#[case("mov.u32 %r1, [%d1, 4];")]
#[case(
    "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [block], [%d1, {%r1, %r2, %r3, %r4, %r5}], [block];"
)]
#[case("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [word, {%f1, (%f2)}];")]
#[case("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %d1, %d2, %r1, 0, %p1, 1, 1, 0, 0;")]
#[case("{ .param .b32 a; pr: .callprototype _ (.param .b64 _); call %d1, (a), pr; }")]
#[case("{ .param .b32 a; call %d1, (a); }")]
#[case("addc.cc.u32 %r1, %r2, %r3;")]
#[case("mov.u32 %r1, %reserved_smem_offset_begin;")]
#[case("add.u32 %r1, %r1, %tid.x;")]
#[case("mov.v4.b32 {%r1, %r2, %r3, %r4}, 1;")]
fn an_unknown_instruction_is_the_error_of_kernels_that_reach_it(#[case] body: &str) {
    let text = format!("{}.visible .entry other() {{ ret; }}\n", around(body));
    let strict = parse(&text).unwrap_err();
    let module = parse_tolerant(&text).unwrap();
    assert_eq!(module.launchable("k"), Err(&strict));
    assert_eq!(module.launchable("other"), Ok(()));
    assert_eq!(module.unknown().map(|unknown| (unknown.function, unknown.error)).collect::<Vec<_>>(), [(1, &strict)]);
    assert!(strict.to_string().contains(&format!("    10 | {body}")), "{strict}");
}

/// What makes the rest of a text mean something else is an error of all of it.
#[rstest]
#[case("bra nowhere;", "`nowhere` is not declared")]
#[case("add.u32 %r1, %r16, 1;", "`%r16` is not declared")]
#[case("call nobody;", "`nobody` is not declared, expected a function")]
#[case("call %d1, nobody;", "`nobody` is not declared, expected a prototype")]
#[case("pr: .callprototype _ (.reg .b32 _);", "found a parameter in a register, expected one of .param")]
#[case("L: ret; L: ret;", "`L` is already declared")]
#[case("mov.u32 %r1, 0f12;", "found `0f12`")]
#[case("frobnicate [%d1;", "found `;`, expected `]`")]
#[case("frobnicate {%r1;", "found `;`")]
#[case("frobnicate %r1 )(;", "found `)`")]
#[case("frobnicate %r1 L: ret;", "found `L`, expected `,` or `;`")]
#[case("frobnicate %r1 #;", "character '#'")]
#[case("mov.u32 %r1, 1 }", "found `}`, expected `,` or `;`")]
#[case("mov.u32 %r1 1;", "found `1`, expected `,` or `;`")]
#[case("bar.sync 0 ret;", "found `ret`, expected `,` or `;`")]
#[case("4;", "found `4`, expected an instruction")]
fn what_is_wrong_with_the_module_is_everybodys_error(#[case] body: &str, #[case] expected: &str) {
    let text = format!("{}.visible .entry other() {{ ret; }}\n", around(body));
    let error = parse_tolerant(&text).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(parse(&text), Err(error));
}

/// `new` is an unknown instruction; whether kernel `k` may come to it.
#[rstest]
#[case("new;", true)]
#[case("ret; new;", false)]
#[case("exit; new;", false)]
#[case("trap; new;", false)]
#[case("@%p1 ret; new;", true)]
#[case("@!%p1 trap; new;", true)]
#[case("bra L; new; L: ret;", false)]
#[case("@%p1 bra L; ret; L: new;", true)]
#[case("bra L; M: new; L: bra M;", true)]
#[case("L: bra L; new;", false)]
#[case("ts: .branchtargets A, B; brx.idx %r1, ts; ret; A: ret; B: new;", true)]
#[case("ts: .branchtargets A; brx.idx %r1, ts; new; A: ret;", false)]
#[case("call first; ret; new;", true)]
#[case("ret; call first;", false)]
#[case("call second; ret;", true)]
#[case("call endless; ret;", false)]
#[case("pr: .callprototype _ (); call %d1, pr; ret;", true)]
#[case("pr: .callprototype _ (.param .b32 _); { .param .b32 a; call %d1, (a), pr; } ret;", false)]
fn what_a_kernel_may_come_to(#[case] body: &str, #[case] reaches: bool) {
    let text = format!(
        ".version 9.0 .target sm_90 .address_size 64\n.func first() {{ call third; }}\n.func second() {{ call third; ret; }}\n.func third() {{ new; }}\n\
         .func endless() {{ L: bra L; }}\n.global .u64 table[1] = {{first}};\n.entry k() {{ .reg .pred %p1; .reg .b32 %r1; .reg .b64 %d1;\n{body}\n}}\n"
    );
    let module = parse_tolerant(&text).unwrap();
    assert_eq!(module.launchable("k").is_err(), reaches);
    assert_eq!(module.launchable("nobody"), Ok(()));
}

/// If this fails, a kernel that is PTX looks as if its author had made a mistake.
#[test]
fn special_register_not_modelled() {
    let error = parse(&around("mov.u32 %r1, %reserved_smem_offset_begin;")).unwrap_err();
    assert!(error.to_string().starts_with("10:1: the special register `%reserved_smem_offset_begin` is not modelled\n"), "{error}");
}

/// If this fails, a kernel in Triton's manner is refused, or a constant of which ptxas takes bytes is taken whole.
#[test]
fn zero_clears_a_vector() {
    let code = decoded(".reg .v4 .b32 %v; mov.v4.b32 %v, 0; mov.v4.b32 %v, {0, 0, 0, 0}; mov.v2.f32 {%f1, %f2}, 0f00000000;");
    assert_eq!(code[0].instruction, code[1].instruction);
    let error = parse(&around("mov.v4.b32 {%r1, %r2, %r3, %r4}, 1;")).unwrap_err().to_string();
    assert!(error.contains("operand `1` of `mov.v4.b32`, expected a vector of 4 elements"), "{error}");
}

/// If this fails, calls through a table cannot be followed to the functions in it.
#[test]
fn tables_hold_functions() {
    let text = ".version 9.0 .target sm_90 .address_size 64\n.func one(.param .b32 x) { ret; }\n.func two(.param .b32 x) { ret; }\n\
                .func three() { ret; }\n.global .u64 table[2] = {two, one};\n.entry k() { .reg .b64 %d; mov.u64 %d, three; ret; }\n";
    let module = parse(text).unwrap();
    let held: Vec<Relocated> = module.variables[0].relocations.iter().map(|relocation| relocation.of).collect();
    assert_eq!(held, [Relocated::Function(1), Relocated::Function(0)]);
    assert_eq!(module.addressed(), [0, 1, 2]);
    let signature = module.functions[0].signature().unwrap();
    assert_eq!(module.callable(&signature).collect::<Vec<_>>(), [0, 1]);
    let wrong = text.replace("{two, one}", "{two+8, one}");
    assert!(parse(&wrong).unwrap_err().to_string().contains("`two` is not declared"));
}

/// If this fails, texts that editors saved with a mark, or that a program took from memory, are refused.
#[rstest]
#[case("\u{feff}", "")]
#[case("", "\0")]
#[case("\u{feff}", "\n\0\0\n")]
fn marks_around_a_text(#[case] before: &str, #[case] after: &str) {
    let text = around("ret;");
    assert_eq!(parse(&format!("{before}{text}{after}")), parse(&text));
}

#[test]
fn nul_within_a_text() {
    let error = parse(&around("ret;\0")).unwrap_err().to_string();
    assert!(error.contains("character '\\0'"), "{error}");
}

#[rstest]
#[case("sm_999999999999", false)]
#[case("sm_9", false)]
#[case("sm_90b", false)]
#[case("sm_", false)]
#[case("sm_90", true)]
#[case("sm_103a", true)]
#[case("sm_100f, debug", true)]
fn targets_are_architectures(#[case] target: &str, #[case] is_one: bool) {
    let parsed = parse(&around("ret;").replace("sm_90a", target));
    assert_eq!(parsed.is_ok(), is_one, "{parsed:?}");
}

/// FP4, and stores and reductions that go on beside their thread, are of sm_100 and later.
#[rstest]
#[case(".reg .b8 %b<4>; cvt.rn.satfinite.e2m1x2.f32 %b1, %f1, %f2; mov.b32 %r1, {%b1, %b1, %b1, %b1};")]
#[case(".reg .b8 %b<4>; cvt.rn.satfinite.relu.e2m1x2.f32 %b1, %f1, %f2; cvt.rn.f16x2.e2m1x2 %r1, %b1;")]
#[case("red.async.release.global.gpu.add.u32 [%d1], %r1; red.async.mmio.release.sys.global.add.u64 [%d1], %d2;")]
#[case("st.async.release.global.gpu.b32 [%d1], %r1;")]
fn what_blackwell_adds(#[case] body: &str) {
    parse(&around(body).replace("sm_90a", "sm_100a")).unwrap();
    assert!(parse(&around(body)).unwrap_err().to_string().contains("expected sm_100 or later"));
}

#[test]
fn released_reduction_is_a_reduction() {
    let code = |body: &str| parse(&around(body).replace("sm_90a", "sm_100a")).unwrap().entry("k").unwrap().code[0].instruction.clone();
    let beside = code("red.async.release.global.gpu.add.u32 [%d1], %r1;");
    assert_eq!(beside, code("red.release.gpu.global.add.u32 [%d1], %r1;"));
}

#[rstest]
#[case("mov.b32 %v.x, %r1; mov.b32 %r2, %v.r;", "mov.b32 %a, %r1; mov.b32 %r2, %a;")]
#[case("ld.global.v4.b32 %v, [%d1];", "ld.global.v4.b32 {%a, %b, %c, %d}, [%d1];")]
#[case("st.global.v4.b32 [%d1], %v;", "st.global.v4.b32 [%d1], {%a, %b, %c, %d};")]
#[case("ld.global.v2.b64 %w1, [%w1.x+8];", "ld.global.v2.b64 {%e, %f}, [%e+8];")]
#[case("mov.b64 %d1, %n;", "mov.b64 %d1, {%g, %h};")]
#[case("mov.b64 %n, %d1;", "mov.b64 {%g, %h}, %d1;")]
#[case("mov.v4.b32 %v, {%r1, %v.w, %v.g, 7};", "mov.v4.b32 {%a, %b, %c, %d}, {%r1, %d, %b, 7};")]
#[case("add.u32 %v.z, %v.b, %n.y;", "add.u32 %c, %c, %h;")]
#[case("atom.global.v4.add.f32 %s, [%d1], %s;", "atom.global.v4.add.f32 {%i, %j, %k, %l}, [%d1], {%i, %j, %k, %l};")]
fn a_vector_register_is_its_elements(#[case] vector: &str, #[case] elements: &str) {
    let vectors = ".reg .v4 .b32 %v; .reg .v2 .b64 %w<2>; .reg .v2 .b32 %n; .reg .v4 .f32 %s;";
    let scalars = ".reg .b32 %a, %b, %c, %d; .reg .b64 %e, %f; .reg .b32 %g, %h; .reg .f32 %i, %j, %k, %l;";
    let [vector, elements] = [(vectors, vector), (scalars, elements)].map(|(registers, body)| decoded(&format!("{registers}\n{body}")));
    let instructions = |code: Vec<Operation>| code.into_iter().map(|operation| operation.instruction).collect::<Vec<_>>();
    assert_eq!(instructions(vector), instructions(elements));
}

#[rstest]
#[case(".reg .v4 .b32 %v; mov.b32 %v.q, 1;", "found `%v.q`, expected one of its elements .x, .y, .z, .w")]
#[case(".reg .v2 .b32 %v; mov.b32 %v.z, 1;", "found `%v.z`, expected one of its elements .x, .y")]
#[case(".reg .v2 .b32 %v; add.u32 %r1, %v, 1;", "operand a vector of `add.u32`, expected a register or a constant")]
#[case(".reg .v2 .b32 %v; ld.global.v4.b32 %v, [%d1];", "expected one of 4 elements, not 2")]
#[case(".reg .v2 .pred %v;", "found a vector of predicates")]
#[case("mov.b32 %r1.x, 1;", "found `%r1.x`, expected a register of one value")]
#[case("ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%d1];", "has 8 elements of .b32, expected at most 128 bits")]
fn what_vectors_have_not(#[case] body: &str, #[case] expected: &str) {
    let error = parse(&around(body)).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[rstest]
#[case("ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%d1];", true)]
#[case("st.global.v8.f32 [%d1], {%f1,%f2,%f3,%f4,%f1,%f2,%f3,%f4};", true)]
#[case("ld.global.nc.v4.b64 {%d1,%d2,%d3,%d4}, [%d5];", true)]
#[case("ld.global.L1::no_allocate.v4.s64 {%d1,%d2,%d3,%d4}, [%d5];", true)]
#[case("ld.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%d1];", false)]
#[case("ld.shared.v4.b64 {%d1,%d2,%d3,%d4}, [block];", false)]
#[case("ld.global.v8.b64 {%d1,%d2,%d3,%d4,%d1,%d2,%d3,%d4}, [%d1];", false)]
fn accesses_of_256_bits_are_of_new_targets(#[case] body: &str, #[case] known: bool) {
    let text = |version, target| around(body).replace("9.0", version).replace("sm_90a", target);
    assert_eq!(parse(&text("8.8", "sm_100a")).is_ok(), known);
    assert_eq!(parse(&text("9.0", "sm_120")).is_ok(), known);
    assert!(parse(&text("8.7", "sm_100a")).is_err());
    assert!(parse(&text("9.0", "sm_90a")).is_err());
}

/// What a name means where scopes nest: the innermost declaration, of a range only where it has that number.
#[test]
fn the_innermost_declaration_counts() {
    let classes = |body: &str| {
        let of = |operation: &Operation| match operation.instruction {
            Instruction::Move { destination, .. } => Some(destination.class),
            _ => None,
        };
        decoded(body).iter().filter_map(of).collect::<Vec<_>>()
    };
    use Class::{Long, Word};
    let body = "mov.u32 %r7, 1; { .reg .b64 %r<4>; mov.u64 %r3, 1; mov.u32 %r7, 1; { .reg .b32 %r3; mov.u32 %r3, 1; mov.u64 %r2, 1; } mov.u64 %r3, 1; }\n\
        mov.u32 %r3, 1; { .reg .b64 %r3; mov.u64 %r3, 1; { .reg .b32 %r<9>; mov.u32 %r3, 1; } }";
    assert_eq!(classes(body), [Word, Long, Word, Word, Long, Long, Word, Long, Word]);
}

#[test]
fn memory_is_laid_out_as_c_does() {
    let text = "// .loc in a comment\n.version 9.0\n.target sm_90\n.address_size 64\n.file 1 \"a//b.cu\"\n\
        .const .align 8 .u64 table[2] = {generic(word)+4, 7};\n.global .u32 word;\n";
    assert!(parse(text).unwrap_err().to_string().contains("`word` is not declared"));
    let text = ".version 9.0\n.target sm_90\n.address_size 64\n.file 1 \"a//b.cu\"\n.global .s16 word[3] = {-1, 2};\n\
        .const .align 8 .u64 table[2] = {generic(word)+4, 0x7};\n.shared .b8 common[6];\n\
        .entry k(.param .u8 a, .param .align 8 .b8 b[12], .param .u64 .ptr .global .align 16 c)\n.maxntid 512, 1, 1\n{\n\
        .local .align 16 .b8 depot[24];\n.shared .f64 own;\n.reg .b64 %d<3>; .reg .f64 %g<1>;\n.loc 1 7 3\n\
        ld.shared.f64 %g0, [own+8];\nmov.u64 %d0, depot;\nld.param.u64 %d1, [c];\n}\n";
    let module = parse(text).unwrap();
    assert_eq!(module.files, [(1, "a//b.cu".to_owned())]);
    assert_eq!(module.variables[0].initial, [0xff, 0xff, 2, 0]);
    assert_eq!(module.variables[1].relocations, [Relocation { at: 0, of: Relocated::Variable(0), generic: true, offset: 4 }]);
    let entry = module.entry("k").unwrap();
    assert_eq!((entry.input_bytes, entry.local_bytes, entry.shared_bytes), (32, 24, 16));
    assert_eq!(entry.bounds.max_threads, Some([512, 1, 1]));
    assert_eq!(entry.code[0].source, Some(SourceLine { file: 1, line: 7, column: 3 }));
    let Instruction::Load { address, .. } = &entry.code[0].instruction else { panic!("{:?}", entry.code[0]) };
    assert_eq!(*address, Address { base: Base::Zero, offset: 16 });
    let Instruction::Load { address, .. } = &entry.code[2].instruction else { panic!("{:?}", entry.code[2]) };
    assert_eq!(*address, Address { base: Base::Zero, offset: 24 });
}

#[test]
fn deep_nesting_is_no_depth_of_recursion() {
    let deep = |depth: usize| format!("{}{}", "{".repeat(depth), "}".repeat(depth));
    decoded(&deep(64));
    let error = parse(&around(&deep(100_000))).unwrap_err().to_string();
    assert!(error.contains("a scope too deep, more than the 64 that are allowed"), "{error}");
    assert!(parse(&around(&format!("mov.b64 %d1, {};", "{".repeat(100_000)))).is_err());
}

/// Texts that are large in one way each, by size in bytes: nesting, labels, names, lists, tables, unknown instructions.
fn large(bytes: usize) -> Vec<(&'static str, String)> {
    let fill = |one: &str| one.repeat(bytes / one.len());
    let numbered = |one: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        (0..)
            .map(one)
            .take_while(|next| {
                text.push_str(next);
                text.len() < bytes
            })
            .for_each(drop);
        text
    };
    let deep = format!("{}{}", "{ .reg .b32 own; ".repeat(63), fill("add.u32 %r1, %r2, %r3; bra L;"));
    let table = (0..1000).map(|_| "L").collect::<Vec<_>>().join(",");
    let functions = ".version 9.0 .target sm_90 .address_size 64\n".to_owned();
    vec![
        ("marks", fill(";")),
        ("nested", around(&fill("{"))),
        ("scopes", around(&fill("{}"))),
        ("labels", around(&numbered(&|n| format!("L{n}:")))),
        ("branches", around(&numbered(&|n| format!("L{n}:bra L{};", n / 2)))),
        ("backwards", around(&numbered(&|n| format!("L{n}:@%p1 bra L{};add.u32 %r{},%r1,1;", n.saturating_sub(1), n % 16)))),
        ("returns", around(&fill("ret;"))),
        ("unknown", around(&fill("x;"))),
        ("unreadable", around(&fill("x[a,b];"))),
        ("operands", around(&format!("x {};", fill("a,")))),
        ("brackets", around(&format!("x {};", fill("[")))),
        ("modifiers", around(&format!("x{};", fill(".a")))),
        ("arithmetic", around(&fill("add.u32 %r1,%r2,%r3;"))),
        ("deep", around(&format!("{deep}{}\nL:", "}".repeat(63)))),
        ("registers", around(&numbered(&|n| format!(".reg .b32 a{n};")))),
        ("variables", around(&numbered(&|n| format!(".global .b8 a{n};")))),
        ("initial", format!(".version 9.0 .global .b8 a[] = {{{}1}};", fill("1,"))),
        ("functions", numbered(&|n| if n == 0 { functions.clone() } else { format!(".func f{n}(){{call f1;ret;}}") })),
        (
            "loops",
            numbered(&|n| match n {
                0 => functions.clone(),
                n => format!(
                    ".func f{n}(){{.reg .pred %p;.reg .b32 %r<900>;{}}}",
                    (0..900).map(|n| format!("L{n}:add.u32 %r{n},%r{},1;@%p bra L{};", 899 - n, n / 2)).collect::<String>()
                ),
            }),
        ),
        (
            "tables",
            numbered(&|n| match n {
                0 => functions.clone(),
                n => format!(".func f{n}(){{.reg .b32 %r;L:t:.branchtargets {table};{}}}", "brx.idx %r,t;".repeat(900)),
            }),
        ),
        ("comment", format!("/*{}", fill("*"))),
        ("string", format!(".version 9.0 .pragma \"{}", fill("a"))),
        ("word", fill("a")),
        ("lines", fill("\n")),
        ("locations", around(&fill(".loc 1 1 1\n"))),
        ("files", format!(".version 9.0\n{}", fill(".file 1 \"\"\n"))),
    ]
}

/// The time of a processor that this thread spends on something, which does not depend on what else a machine does.
fn time_of(work: impl FnOnce()) -> Duration {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let start = now();
    work();
    now() - start
}

#[test]
fn large_texts_take_linear_time() {
    for (name, text) in large(1 << 20) {
        let spent = time_of(|| drop(parse_tolerant(&text)));
        assert!(spent < Duration::from_secs(5), "{name}: {spent:?} for {} bytes", text.len());
    }
}

#[test]
fn texts_of_the_largest_size_take_seconds() {
    for (name, text) in large((64 << 20) - (64 << 10)) {
        let spent = time_of(|| drop(parse_tolerant(&text)));
        assert!(spent < Duration::from_secs(10), "{name}: {spent:?} for {} bytes", text.len());
    }
}

/// Parses and checks that it did not take long; what comes out does not matter.
fn survives(text: &str) {
    let spent = time_of(|| drop(parse(text)));
    assert!(spent < Duration::from_secs(5), "{spent:?} for {} bytes", text.len());
}

/// Real modules that are small enough to be read hundreds of times.
const SMALL: &[&str] = &[
    include_str!("../../../kernels/ptx/conformance/faults.ptx"),
    include_str!("../../../fixtures/mutants/ptx/sync_relaxed_end.ptx"),
    include_str!("../../../fixtures/mutants/ptx/value_17_negative_zero_as_sentinel.ptx"),
    include_str!("../../../fuzz/corpus/ptx/matrices.ptx"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        survives(&text);
        survives(&around(&text));
    }

    #[test]
    fn no_tokens_make_it_panic(
        words in prop::collection::vec(prop::sample::select(vec![
            "add", ".u32", "%r1", ",", ";", "{", "}", "[", "]", "(", ")", "@", "!", ".reg", ".pred", "<", ">", "4", "-", "+", ".local",
            ".loc 1 2 3\n", ".param", "call", "|", "mov", ".b64", "x", ":", "=", ".align", "0x", "1e", ".v4", "ld", "%tid", ".x", "L", "bra",
            ".shared", "cp", ".async.bulk.tensor.1d.global.shared::cta.bulk_group", "tensormap", ".replace.tile.rank.b1024.b32", "99999999999", ".b8", "word", ".func", ".entry", "_", ".branchtargets", "0f3F800000", "\"", "/*", "*/", ".extern",
            "wgmma", ".mma_async", ".sync", ".aligned", ".m64n8k16", ".m16n99999999999k8", ".f32", ".f16", "mma", ".row", ".col", "ldmatrix", ".m8n8", ".x4", "%f1", "%d1", "%p1",
        ]), 0..60)
    ) {
        survives(&around(&words.join(" ")));
        survives(&format!(".version 9.0 {}", words.join(" ")));
    }

    #[test]
    fn no_change_of_a_kernel_makes_it_panic(
        mutant in 0..SMALL.len(), cut in any::<prop::sample::Index>(), edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)
    ) {
        let mut bytes = SMALL[mutant].as_bytes().to_vec();
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        survives(&String::from_utf8_lossy(&bytes));
        bytes.truncate(cut.index(bytes.len()));
        survives(&String::from_utf8_lossy(&bytes));
    }
}

/// If this fails, the README denies what the crate reads, or promises what it refuses.
#[test]
fn documents_refuse_the_same() {
    let refused = |text: &str| {
        let rest = text.split_once("Not here, and refused:").unwrap().1;
        let words = rest.split_once("own shared memory.").unwrap().0.split_whitespace().filter(|word| *word != "//!");
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(refused(include_str!("../README.md")), refused(include_str!("lib.rs")));
}
