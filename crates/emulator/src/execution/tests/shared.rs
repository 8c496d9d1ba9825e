//! Kernels on memory that other processes write: atomics, words and lines of two launches that run at once, each in a memory of its own.

use std::{sync::Barrier, thread};

use super::*;
use crate::memory::Segment;

const BYTES: u64 = 4096;

/// Runs a kernel twice at once: as rank 0 and as rank 1, on the bytes of one segment. `body` has the address of these in `%d1`, and the rank in `%d0`.
fn two_at_once(body: &str) -> Vec<u8> {
    let span = Segment::span(BYTES);
    let (segment, file) = Segment::create(span).unwrap();
    let text = around(body);
    let gate = Barrier::new(2);
    let run = |rank: usize, segment: Segment| {
        let mut memory = Memory::new();
        let segment = memory.take_in(segment);
        let at = memory.import(Owner::new(0, 0, "words"), BYTES, Init::Zero, (segment, 0));
        memory.map(at, 1, true).unwrap();
        let program = program(&text, rank, &mut memory);
        let parameters = [(rank as u64).to_le_bytes(), at.0.to_le_bytes()].concat();
        let mut grid = Grid::new(program, "k", shape(2, 64), &parameters, &mut memory).unwrap();
        let mut pick = around_picker();
        gate.wait();
        while !grid.is_done() {
            if grid.turn(&mut memory, 0, 64, &mut pick).unwrap().polled {
                thread::yield_now();
            }
        }
    };
    thread::scope(|scope| {
        let other = Segment::map(&file, span).unwrap();
        scope.spawn(|| run(1, other));
        run(0, segment);
    });
    let mut bytes = vec![0; BYTES as usize];
    Segment::map(&file, span).unwrap().read(0, &mut bytes);
    bytes
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// If this fails, kernels in processes of their own lose each other's atomics.
#[test]
fn atomics_of_two_launches_count_what_both_do() {
    let bytes = two_at_once(
        "mov.u32 %r1, 0; mov.b16 %h0, 0x3c00; mov.f32 %f0, 0f3F800000;\n\
         L: atom.relaxed.sys.global.add.u32 %r2, [%d1], 1;\n\
         red.relaxed.sys.global.add.u64 [%d1+8], 3;\n\
         setp.lt.u32 %p2, %r1, 8; @%p2 red.relaxed.sys.global.add.noftz.f16 [%d1+16], %h0;\n\
         red.relaxed.sys.global.add.f32 [%d1+20], %f0;\n\
         red.relaxed.sys.global.add.v4.f32 [%d1+32], {%f0, %f0, %f0, %f0};\n\
         atom.acq_rel.sys.global.max.u32 %r3, [%d1+48], %r2;\n\
         ld.relaxed.sys.global.u32 %r4, [%d1+52];\n\
         CAS: mov.u32 %r5, %r4; add.u32 %r6, %r5, 2; atom.sys.global.cas.b32 %r4, [%d1+52], %r5, %r6;\n\
         setp.ne.u32 %p1, %r4, %r5; @%p1 bra CAS;\n\
         add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, 300; @%p0 bra L;\nret;",
    );
    // Two launches of two blocks of 64 threads, 300 times; of f16 as often as it can count.
    let threads = 2 * 2 * 64;
    let times = threads * 300;
    assert_eq!(word(&bytes, 0), times);
    assert_eq!(word(&bytes, 8), 3 * times);
    assert_eq!(bytes[16..18], half::f16::from_f32((threads * 8) as f32).to_le_bytes());
    assert_eq!([20, 32, 36, 40, 44].map(|at| f32::from_bits(word(&bytes, at))), [times as f32; 5]);
    assert_eq!(word(&bytes, 48), times - 1, "the last that was added to");
    assert_eq!(word(&bytes, 52), 2 * times);
}

/// If this fails, a line's flag says nothing of the data beside it: every LL kernel computes wrong numbers now and then.
#[test]
fn lines_that_carry_their_flags_are_not_torn() {
    // Thread t of block b of rank r has the line 128 r + 64 b + t. It answers the line of the same thread of the other rank, 40 times.
    let bytes = two_at_once(
        "mov.u32 %r1, %ctaid.x; shl.b32 %r1, %r1, 6; add.u32 %r1, %r1, %t; cvt.u32.u64 %r2, %d0;\n\
         shl.b32 %r3, %r2, 7; add.u32 %r3, %r3, %r1; mad.wide.u32 %d3, %r3, 16, %d1;\n\
         xor.b32 %r2, %r2, 1; shl.b32 %r3, %r2, 7; add.u32 %r3, %r3, %r1; mad.wide.u32 %d4, %r3, 16, %d1;\n\
         mov.u32 %r4, 0;\n\
         AGAIN: add.u32 %r4, %r4, 1; mul.lo.u32 %r5, %r4, 0x10001; mul.lo.u32 %r6, %r4, 0x9e3779b9;\n\
         st.relaxed.sys.global.v4.u32 [%d3], {%r5, %r4, %r6, %r4};\n\
         POLL: ld.relaxed.sys.global.v4.u32 {%r7, %r8, %r9, %r10}, [%d4];\n\
         // The other may be one further by now, which it says beside the data.\n\
         sub.u32 %r11, %r8, %r4; setp.gt.u32 %p0, %r11, 1; @%p0 bra POLL;\n\
         mul.lo.u32 %r12, %r8, 0x10001; setp.ne.u32 %p1, %r12, %r7; @%p1 trap;\n\
         mul.lo.u32 %r12, %r10, 0x9e3779b9; setp.ne.u32 %p1, %r12, %r9; @%p1 trap;\n\
         setp.lt.u32 %p2, %r4, 40; @%p2 bra AGAIN;\nret;",
    );
    let lines = bytes.chunks_exact(16).map(|line| (word(line, 4), word(line, 12)));
    assert!(lines.clone().count() == 256 && lines.into_iter().all(|flags| flags == (40, 40)));
}
