//! Mbarriers, copies, bulk copies and asynchronous stores: what they count, what they move, what they refuse.

use rstest::rstest;

use super::*;

/// Thread 0 makes one mbarrier of `arrivals` arrivals, at `block`.
fn with_mbarrier(arrivals: u32, body: &str) -> String {
    format!(
        "setp.ne.u32 %p7, %t, 0; @%p7 bra MADE;\nmbarrier.init.shared::cta.b64 [block], {arrivals}; fence.mbarrier_init.release.cluster;\n\
         MADE: fence.proxy.async; bar.sync 0;\n{body}"
    )
}

/// Waits for the phase of a parity.
fn wait(parity: u32, label: &str) -> String {
    format!("{label}: mbarrier.try_wait.parity.shared::cta.b64 %p6, [block], {parity}; @!%p6 bra {label};\n")
}

#[test]
fn phases_are_counted() {
    // Two arrivals a phase; bits of %r0 say what was seen.
    let see = |bit: u32| format!("selp.u32 %r1, {}, 0, %p0; or.b32 %r0, %r0, %r1;\n", 1 << bit);
    let body = format!(
        "mov.u32 %r0, 0;\n\
         mbarrier.test_wait.parity.shared.b64 %p0, [block], 1; {}\
         mbarrier.test_wait.parity.shared.b64 %p0, [block], 0; {}\
         mbarrier.arrive.shared.b64 %d3, [block]; mbarrier.pending_count.b64 %r2, %d3; shl.b32 %r2, %r2, 8; or.b32 %r0, %r0, %r2;\n\
         mbarrier.test_wait.shared.b64 %p0, [block], %d3; {}\
         mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %d4, [block+8], 1;\n\
         mbarrier.arrive.release.cta.shared.b64 %d4, [block], 1; mbarrier.pending_count.b64 %r2, %d4; shl.b32 %r2, %r2, 12; or.b32 %r0, %r0, %r2;\n\
         mbarrier.test_wait.acquire.cta.shared.b64 %p0, [block], %d3; {}\
         mbarrier.test_wait.parity.shared.b64 %p0, [block], 0; {}\
         mbarrier.try_wait.parity.shared.b64 %p0, [block], 1, 100; {}\
         mbarrier.inval.shared.b64 [block]; mbarrier.inval.shared.b64 [block+8];",
        see(0),
        see(1),
        see(2),
        see(3),
        see(4),
        see(5)
    );
    let body = with_mbarrier(2, &format!("mbarrier.init.shared.b64 [block+8], 3;\n{body}"));
    // Pending before the first arrival is 2, before the second 1.
    assert_eq!(results(&body, 1), [0b01_1001 | 2 << 8 | 1 << 12]);
}

#[test]
fn dropped_arrivals_and_bytes_are_not_expected_any_more() {
    let body = with_mbarrier(
        3,
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [block], 96; mbarrier.arrive_drop.shared.b64 _, [block];\n\
         mbarrier.arrive.shared.b64 %d3, [block], 2; mbarrier.test_wait.shared.b64 %p0, [block], %d3; @%p0 trap;\n\
         mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [block], 100;\n\
         mbarrier.test_wait.shared.b64 %p0, [block], %d3; @%p0 trap;\n\
         mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [block], 4;\n\
         mbarrier.test_wait.shared.b64 %p0, [block], %d3; @!%p0 trap;\n\
         mbarrier.arrive.shared.b64 %d4, [block], 2; mbarrier.test_wait.shared.b64 %p0, [block], %d4; @!%p0 trap; mov.u32 %r0, 7;",
    );
    assert_eq!(results(&body, 1), [7]);
}

#[rstest]
#[case("mbarrier.arrive.shared.b64 %d3, [block+64];", "there is no mbarrier")]
#[case("mbarrier.init.shared.b64 [block], 1; mbarrier.init.shared.b64 [block], 1;", "mbarrier.inval must come before")]
#[case("mbarrier.init.shared.b64 [block], 0;", "0 arrivals: expected 1 to 1048575")]
#[case("mbarrier.init.shared.b64 [block], 2; mbarrier.arrive.shared.b64 %d3, [block], 3;", "3 arrivals: 2 of 2 are missing")]
#[case("mbarrier.init.shared.b64 [block], 1; mbarrier.arrive.noComplete.shared.b64 %d3, [block], 1;", "completes the phase")]
#[case(
    "mbarrier.init.shared.b64 [block], 1; st.shared.u32 [block], 9; mbarrier.test_wait.parity.shared.b64 %p0, [block], 0;",
    "something else than its operations wrote there"
)]
#[case(
    "mbarrier.init.shared.b64 [block], 1; mbarrier.inval.shared.b64 [block]; mbarrier.arrive.shared.b64 _, [block];",
    "mbarrier.inval since"
)]
#[case("mbarrier.init.shared.b64 [block+4], 1;", "are not aligned to 8")]
#[case("mbarrier.init.b64 [%d0], 1;", "is not in the shared memory of the block")]
#[case(
    "mbarrier.init.shared.b64 [block], 1; mbarrier.arrive.shared.b64 %d3, [block]; mbarrier.arrive.shared.b64 _, [block]; mbarrier.test_wait.shared.b64 %p0, [block], %d3;",
    "a state of 2 phases ago"
)]
#[case(
    "mbarrier.init.shared.b64 [block], 1; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [block], 1048575; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [block], 1;",
    "the limit is 1048575"
)]
#[case(
    "mbarrier.init.shared.b64 [block], 1; cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [block+16], [%d1], 24, [block];",
    "multiples of 16"
)]
#[case("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [block+16], [%d1], 32, [block];", "there is no mbarrier")]
#[case("cp.async.bulk.global.shared::cta.bulk_group [%d0], [block], 4096;", "out")]
#[case(
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [block+16], [block+32], 32, [block+64];",
    "asks for clusters"
)]
#[case("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [block], %t, [block+64];", "asks for clusters")]
#[case("st.bulk.shared::cta [block], 12, 0;", "multiples of 8")]
#[case("cp.async.bulk.global.shared::cta.bulk_group [%d0], [block], 16; exit;", "ended before it was done")]
fn misuse_is_told(#[case] body: &str, #[case] expected: &str) {
    let fault = run(&around(&format!("setp.ne.u32 %p7, %t, 0; @%p7 ret;\n{body}\nret;")), shape(1, 16), &[0; 64]).unwrap_err();
    let text = fault.to_string();
    assert!(text.contains(expected) && text.contains("lane 0"), "{text}");
}

#[test]
fn a_bulk_copy_comes_and_its_mbarrier_tells() {
    let body = with_mbarrier(
        1,
        &format!(
            "@%p7 bra WAIT;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [block], 256;\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [block+64], [%d1], 256, [block], %d1;\n\
             {} mul.lo.u32 %r1, %t, 4; mov.u32 %r2, block; add.u32 %r1, %r1, %r2; ld.shared.u32 %r0, [%r1+64];",
            wait(0, "WAIT")
        ),
    );
    let input: Vec<u32> = (0..64).map(|word| word * 3 + 1).collect();
    let text = around(&format!("{body}\nst.global.u32 [%d2], %r0;"));
    assert_eq!(run(&text, shape(1, 64), &input).unwrap(), input);
}

#[test]
fn a_bulk_copy_goes_and_its_group_tells() {
    let body = "mul.lo.u32 %r1, %t, 4; mov.u32 %r2, block; add.u32 %r1, %r1, %r2; add.u32 %r3, %t, 100; st.shared.u32 [%r1], %r3;\n\
                fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p0, %t, 0; @%p0 ret;\n\
                cp.async.bulk.global.shared::cta.bulk_group [%d0], [block], 128; cp.async.bulk.commit_group;\n\
                cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d0+128], [block], 128, 0x0f0f; cp.async.bulk.commit_group;\n\
                cp.async.bulk.wait_group.read 1; cp.async.bulk.wait_group 0;";
    let words = run(&around(&format!("{body}\nret;")), shape(1, 64), &[]).unwrap();
    let canary = u32::from_le_bytes([crate::memory::CANARY; 4]);
    let expected: Vec<u32> = (0..64)
        .map(|at| {
            if at < 32 {
                100 + at
            } else if at % 2 == 0 {
                68 + at
            } else {
                canary
            }
        })
        .collect();
    assert_eq!(words, expected);
}

#[test]
fn reductions_in_bulk_add_up() {
    let body = "mul.lo.u32 %r1, %t, 4; mov.u32 %r2, block; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %t; st.global.u32 [%d2], 1000;\n\
                fence.proxy.async; bar.sync 0; setp.ne.u32 %p0, %t, 0; @%p0 ret;\n\
                cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [block], 128;\n\
                cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%d0], [block], 128;\n\
                cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
    let words = run(&around(&format!("{body}\nret;")), shape(1, 32), &[]).unwrap();
    assert_eq!(words, (1000..1032).collect::<Vec<_>>());
}

#[test]
fn reductions_in_bulk_keep_subnormals() {
    let body = "mul.lo.u32 %r1, %t, 4; mov.u32 %r2, block; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %t; st.global.u32 [%d2], 3;\n\
                fence.proxy.async; bar.sync 0; setp.ne.u32 %p0, %t, 0; @%p0 ret;\n\
                cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d0], [block], 128;\n\
                cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
    let words = run(&around(&format!("{body}\nret;")), shape(1, 32), &[]).unwrap();
    assert_eq!(words, (3..35).collect::<Vec<_>>());
}

#[test]
fn copies_of_threads_come_and_what_is_short_is_zero() {
    let body = "mul.lo.u32 %r1, %t, 16; mov.u32 %r2, block; add.u32 %r1, %r1, %r2; mad.wide.u32 %d3, %t, 16, %d1; and.b32 %r3, %t, 15;\n\
                setp.eq.u32 %p0, %t, 3;\n\
                @!%p0 cp.async.cg.shared.global.L2::128B [%r1], [%d3], 16, %r3;\n@%p0 cp.async.ca.shared.global [%r1], [%d3], 16, %p0;\n\
                cp.async.commit_group; cp.async.wait_group 0;\n\
                ld.shared.u8 %r0, [%r1+2]; ld.shared.u32 %r4, [%r1+12]; add.u32 %r0, %r0, %r4;";
    let input = [0x0101_0101; 32];
    let text = around(&format!("{body}\nst.global.u32 [%d2], %r0;"));
    // Of thread t the first t bytes come.
    assert_eq!(run(&text, shape(1, 8), &input).unwrap(), [0, 0, 0, 0, 1, 1, 1, 1]);
    let all = text.replace("wait_group 0", "wait_all");
    assert_eq!(run(&all, shape(1, 8), &input).unwrap(), [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[rstest]
#[case("cp.async.mbarrier.arrive.noinc.shared.b64 [block];", 32)]
#[case("cp.async.mbarrier.arrive.shared::cta.b64 [block]; mbarrier.arrive.shared.b64 _, [block];", 32)]
fn mbarriers_are_told_of_copies_of_threads(#[case] arrive: &str, #[case] arrivals: u32) {
    let body = with_mbarrier(
        arrivals,
        &format!(
            "mul.lo.u32 %r1, %t, 4; mov.u32 %r2, block; add.u32 %r1, %r1, %r2; mad.wide.u32 %d3, %t, 4, %d1;\n\
             cp.async.ca.shared.global [%r1+64], [%d3], 4;\n{arrive}\n{} xor.b32 %r1, %r1, 0; ld.shared.u32 %r0, [block+188];",
            wait(0, "WAIT")
        ),
    );
    let input: Vec<u32> = (0..32).collect();
    let text = around(&format!("{body}\nst.global.u32 [%d2], %r0;"));
    assert_eq!(run(&text, shape(1, 32), &input).unwrap(), [31; 32]);
}

fn of_pair(body: &str, input: &[u32]) -> Vec<u32> {
    let bounds = ".param .u64 in) .reqnctapercluster 2, 1, 1\n{";
    let place = "mov.u32 %r8, %cluster_ctarank; mov.u32 %r9, %ctaid.x; mov.u32 %r10, %ntid.x; mad.lo.u32 %r9, %r9, %r10, %t; mad.wide.u32 %d2, %r9, 4, %d0;\n";
    let text = around(&format!("{place}{body}\nst.global.u32 [%d2], %r0;")).replacen(".param .u64 in)\n{", bounds, 1);
    run(&text, shape(2, 32), input).unwrap_or_else(|fault| panic!("{fault}"))
}

const MEET: &str = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;";

#[test]
fn one_copy_comes_to_all_blocks_of_a_mask() {
    let body = with_mbarrier(
        1,
        &format!(
            "{MEET}\n@%p7 bra WAIT;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [block], 128; setp.ne.u32 %p0, %r8, 0; @%p0 bra WAIT;\n\
             mov.b16 %h0, 3;\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [block+64], [%d1], 128, [block], %h0;\n\
             {} mul.lo.u32 %r1, %t, 4; mov.u32 %r2, block; add.u32 %r1, %r1, %r2; ld.shared.u32 %r0, [%r1+64]; {MEET}",
            wait(0, "WAIT")
        ),
    );
    let input: Vec<u32> = (5..37).collect();
    assert_eq!(of_pair(&body, &input), [&input[..], &input].concat());
}

#[test]
fn stores_and_copies_reach_a_neighbour_and_its_mbarrier() {
    // Block 0 sends block 1 a store, a reduction and a bulk copy.
    let body = with_mbarrier(
        1,
        &format!(
            "mov.u32 %r0, 0; st.shared.u32 [block+64], 5; st.shared.u32 [block+80], 1; st.shared.u32 [block+84], 2; st.shared.u32 [block+88], 3; st.shared.u32 [block+92], 4;\n\
             fence.proxy.async; {MEET}\n\
             setp.eq.u32 %p5, %r8, 1; @%p5 bra TAKE;\n@%p7 bra OUT;\n\
             mapa.shared::cluster.u32 %r3, block, 1;\n\
             st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r3+32], {{7, 8}}, [%r3];\n\
             red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r3+64], 9, [%r3];\n\
             cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r3+16], [block+80], 16, [%r3]; bra OUT;\n\
             TAKE: @%p7 bra WAIT;\nmbarrier.arrive.expect_tx.release.cluster.shared::cta.b64 _, [block], 28;\n{}\
             ld.shared.u32 %r0, [block+32]; ld.shared.u32 %r1, [block+36]; mad.lo.u32 %r0, %r1, 10, %r0;\n\
             ld.shared.u32 %r1, [block+64]; mad.lo.u32 %r0, %r1, 100, %r0; ld.shared.u32 %r1, [block+28]; mad.lo.u32 %r0, %r1, 10000, %r0;\n\
             OUT: {MEET}",
            wait(0, "WAIT")
        ),
    );
    assert_eq!(of_pair(&body, &[]), [[0; 32], [41_487; 32]].concat());
}

#[test]
fn a_bulk_copy_must_not_overlap_itself() {
    let copy = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [block+16], [block+32], 32, [block+64]; ret;";
    let text = around(copy).replacen(".param .u64 in)\n{", ".param .u64 in) .reqnctapercluster 2, 1, 1\n{", 1);
    let fault = run(&text, shape(2, 1), &[]).unwrap_err().to_string();
    assert!(fault.contains("overlap"), "{fault}");
}

#[test]
fn a_wait_for_what_nobody_sends_hangs() {
    let text = around(&with_mbarrier(1, &format!("{}\nret;", wait(0, "WAIT"))));
    let mut memory = Memory::new();
    let program = program(&text, 0, &mut memory);
    let grid = Grid::new(program, "k", shape(1, 32), &[0; 16], &mut memory).unwrap();
    assert_eq!(finish(grid, &mut memory).unwrap(), None);
}

/// If this fails, the clock jumps by a millisecond for a thread that asks once which phases have ended, and goes on.
#[test]
fn asking_in_vain_again_is_waiting() {
    let polled = |body: &str| {
        let mut memory = Memory::new();
        let program = program(&around(&with_mbarrier(1, body)), 0, &mut memory);
        let mut grid = Grid::new(program, "k", shape(1, 32), &[0; 16], &mut memory).unwrap();
        while !grid.is_done() {
            if grid.turn(&mut memory, 0, 1000, &mut |_| 0).unwrap().polled {
                return true;
            }
        }
        false
    };
    let ask = |parity: u32| format!("mbarrier.test_wait.parity.shared.b64 %p0, [block], {parity};\n");
    assert!(!polled(&format!("{}{}ret;", ask(0), ask(0))));
    assert!(polled(&format!("{}ret;", wait(0, "WAIT"))));
}

#[test]
fn zeros_in_bulk() {
    let body = "st.shared.u32 [block+4], 9; st.bulk.weak.shared::cta [block], 64, 0; ld.shared.u32 %r0, [block+4]; ld.shared.u32 %r1, [block+60]; add.u32 %r0, %r0, %r1;";
    assert_eq!(results(body, 1), [0]);
}

/// If this fails, a kernel whose warps ask for more registers than their block has passes, and hangs on every GPU.
#[test]
fn registers_that_no_launch_gives_a_block_are_waited_for_for_ever() {
    let ask = |fewer: u32, more: u32| {
        let body = format!(
            "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 128; @%p1 bra FEWER;\nsetmaxnreg.inc.sync.aligned.u32 {more}; bra ASKED;\n\
             FEWER: setmaxnreg.dec.sync.aligned.u32 {fewer};\nASKED: mov.u32 %r0, 3; st.global.u32 [%d2], %r0;"
        );
        run(&around(&body), shape(1, 384), &[])
    };
    // 384 threads have at most 168 each.
    assert_eq!(ask(88, 208).unwrap(), [3; 384]);
    let why = "the block's warps have asked for 65536 registers, and no launch of 384 threads gives them more than 64512, 168 for each: one waits for ever";
    let fault = ask(96, 208).unwrap_err().to_string();
    assert!(fault.contains(why), "{fault}");
}

#[test]
fn hints_change_nothing() {
    let body = "setmaxnreg.dec.sync.aligned.u32 40; createpolicy.fractional.L2::evict_first.b64 %d3, 0f3F800000; mov.u32 %r0, 3;\n\
                cp.async.bulk.prefetch.L2.global.L2::cache_hint [%d1], 64, %d3; setmaxnreg.inc.sync.aligned.u32 232;";
    assert_eq!(results(body, 32), [3; 32]);
}
