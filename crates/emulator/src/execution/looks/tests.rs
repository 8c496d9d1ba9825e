use std::sync::Arc;

use super::*;
use crate::{
    execution::{DeviceLimits, Program, Shape},
    memory::{Init, Owner},
};
use passmuster_ptx::parse;

/// What the lanes of one block look at, where `words` are at the kernel's pointer `%d0`; its number is in `%t`.
fn looks(body: &str, threads: u32, words: &[u32]) -> Vec<Look> {
    let text = format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 at, .param .u32 want)\n{{\n\
         .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b32 %t; .reg .b64 %d<8>;\n.shared .align 4 .b32 seen;\n\
         ld.param.u64 %d0, [at];\nld.param.u32 %r15, [want];\nmov.u32 %t, %tid.x;\n{body}\nret;\n}}\n"
    );
    let mut memory = Memory::new();
    let module = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let program = Program::load(Arc::new(module), 0, DeviceLimits::of_tests(), &mut memory).unwrap();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = memory.allocate(Owner::new(0, 0, "flags"), bytes.len() as u64, Init::Zero);
    memory.write(at, 0, &bytes).unwrap();
    let parameters = [&at.0.to_le_bytes()[..], &7u32.to_le_bytes()].concat();
    let shape = Shape { grid: [1; 3], block: [threads, 1, 1], cluster: None, dynamic_shared: 0, registers: None };
    let mut grid = Grid::new(Arc::new(program), "k", shape, &parameters, &mut memory).unwrap();
    let mut next = 0;
    for _ in 0..200 {
        grid.turn(&mut memory, 0, 256, &mut |n| {
            next += 1;
            next % n
        })
        .unwrap();
    }
    assert!(!grid.is_done(), "it ends");
    grid.looks(&memory)
}

/// The same as text, of one thread: what was found and what is wanted.
fn told(body: &str, words: &[u32]) -> String {
    let looks = looks(body, 1, words);
    let [look] = &looks[..] else { panic!("{looks:#?}") };
    let found: Vec<String> = look.found.iter().map(|&found| number(found, look.ty)).collect();
    let wanted = look.wanted.as_ref().map_or_else(|| "?".into(), ToString::to_string);
    format!("{}: {wanted}", found.join(" "))
}

/// A loop that leaves it once the test in `tests` sets `%p1`.
fn until(look: &str, tests: &str) -> String {
    format!("again:\n{look}\n{tests}\n@!%p1 bra again;")
}

const LOAD: &str = "ld.acquire.sys.global.u32 %r1, [%d0];";

/// If this fails, a hang says that lanes wait for another value than their code does, or for none.
#[test]
fn compared_with_a_number() {
    let of = |test: &str, word: u32| told(&until(LOAD, test), &[word]);
    assert_eq!(of("setp.eq.u32 %p1, %r1, 3;", 1), "1: == 3");
    assert_eq!(of("setp.ne.u32 %p1, %r1, 0;", 0), "0: != 0");
    assert_eq!(of("setp.ge.u32 %p1, %r1, 4;", 3), "3: >= 4");
    assert_eq!(of("setp.gt.u32 %p1, %r1, 3;", 3), "3: >= 4");
    assert_eq!(of("setp.lt.u32 %p1, %r1, 4;", 9), "9: < 4");
    assert_eq!(of("setp.hs.u32 %p1, %r1, 0x80000000;", 9), "9: >= 0x80000000");
    assert_eq!(of("setp.lt.s32 %p1, %r1, -1;", 9), "9: < -1");
    assert_eq!(of("setp.le.u32 %p1, 5, %r1;", 2), "2: >= 5", "the word comes second");
    assert_eq!(of("setp.eq.u32 %p1, %r1, %r15;", 2), "2: == 7", "a parameter");
}

/// If this fails, a loop that goes on where a test holds is reported the wrong way round.
#[test]
fn leaves_where_the_branch_is_not_taken() {
    assert_eq!(told(&format!("again:\n{LOAD}\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra again;"), &[0]), "0: != 0");
    assert_eq!(told(&format!("again:\n{LOAD}\nsetp.ge.u32 %p1, %r1, 2;\n@%p1 bra done;\nbra again;\ndone:"), &[1]), "1: >= 2");
}

/// If this fails, counters that wrap around, phases and parts of words are reported as what they are not, or not at all.
#[test]
fn computed_from_the_word() {
    let of = |test: &str, word: u32| told(&until(LOAD, test), &[word]);
    assert_eq!(of("sub.s32 %r2, %r1, %r15;\nsetp.ge.s32 %p1, %r2, 0;", 6), "6: >= 7");
    assert_eq!(of("sub.s32 %r2, %r1, %r15;\nsetp.gt.s32 %p1, %r2, -1;", 6), "6: >= 7");
    assert_eq!(of("add.u32 %r2, %r1, 1;\nsetp.eq.u32 %p1, %r2, 9;", 6), "6: == 8");
    assert_eq!(of("and.b32 %r2, %r1, 255;\nsetp.eq.u32 %p1, %r2, 3;", 2), "2: value & 0xff == 0x3");
    assert_eq!(of("and.b32 %r2, %r1, 4;\nsetp.ne.u32 %p1, %r2, 0;", 2), "2: bit 2 set");
    assert_eq!(of("shr.u32 %r2, %r1, 4;\nand.b32 %r2, %r2, 15;\nsetp.eq.u32 %p1, %r2, 3;", 2), "2: value & 0xf0 == 0x30");
    let phase = "mov.u32 %r2, 0x80000001;\nxor.b32 %r3, %r1, %r2;\nsetp.lt.s32 %p1, %r3, 0;";
    assert_eq!(of(phase, 0x8000_0001), "0x80000001: bit 31 clear", "the grid barrier of cooperative groups");
    assert_eq!(of("lop3.b32 %r2, %r1, 8, 0, 0xc0;\nsetp.eq.u32 %p1, %r2, 8;", 7), "7: bit 3 set");
    assert_eq!(of("setp.eq.u32 %p2, %r1, 3;\nselp.u32 %r2, 1, 0, %p2;\nsetp.ne.u32 %p1, %r2, 0;", 7), "7: == 3");
    assert_eq!(of("setp.eq.u32 %p2, %r1, 3;\nmov.u32 %r2, 0;\n@%p2 mov.u32 %r2, 1;\nsetp.ne.u32 %p1, %r2, 0;", 7), "7: == 3");
    assert_eq!(of("cvt.u16.u32 %h1, %r1;\nsetp.eq.u16 %p1, %h1, 3;", 0x1_0002), "65538: == 3");
}

/// If this fails, a word that is waited for by an atomic or by a volatile read has no condition.
#[test]
fn looked_at_otherwise() {
    let of = |look: &str, test: &str, word: u32| told(&until(look, test), &[word]);
    assert_eq!(of("ld.volatile.global.u32 %r1, [%d0];", "setp.ge.u32 %p1, %r1, 2;", 1), "1: >= 2");
    assert_eq!(of("atom.global.acquire.sys.cas.b32 %r1, [%d0], 1, 0;", "setp.eq.u32 %p1, %r1, 1;", 0), "0: == 1");
    assert_eq!(of("atom.global.or.b32 %r1, [%d0], 0;", "setp.ne.u32 %p1, %r1, 5;", 5), "5: != 5");
    let pair = until("ld.acquire.sys.global.b64 %d1, [%d0];", "mov.b64 {%r1, %r2}, %d1;\nsetp.eq.u32 %p1, %r2, 9;");
    assert_eq!(told(&pair, &[4, 8]), "0x800000004: value >> 32 == 9");
    assert_eq!(of("ld.relaxed.sys.global.u32 %r1, [%d0];", "nanosleep.u32 20;\nsetp.eq.u32 %p1, %r1, 2;", 1), "1: == 2");
}

/// If this fails, a packet of data and flags is reported as a wait for one of its words.
#[test]
fn several_words_at_once() {
    let look = "ld.volatile.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0];";
    let tests = "setp.eq.u32 %p2, %r2, 5;\nsetp.eq.u32 %p3, %r4, 5;\nand.pred %p1, %p2, %p3;";
    assert_eq!(told(&until(look, tests), &[1, 5, 2, 4]), "1 5 2 4: element 1 == 5 and element 3 == 5");
    let branches = "setp.ne.u32 %p2, %r2, 5;\n@%p2 bra again;\nsetp.eq.u32 %p1, %r4, 5;";
    assert_eq!(told(&until(look, branches), &[1, 5, 2, 4]), "1 5 2 4: element 3 == 5");
    let combined = "setp.eq.u32 %p2, %r1, 5;\nsetp.eq.or.u32 %p1, %r1, 6, %p2;";
    assert_eq!(told(&until(LOAD, combined), &[1]), "1: == 6 or == 5");
}

/// If this fails, what is computed before the loop or beside the word hides what is waited for.
#[test]
fn bounded_by_a_clock_or_a_count() {
    let clock = format!(
        "mov.u64 %d2, %globaltimer;\nagain:\n{LOAD}\nsetp.ge.u32 %p1, %r1, 2;\n@%p1 bra done;\nmov.u64 %d3, %globaltimer;\n\
         sub.u64 %d3, %d3, %d2;\nsetp.lt.u64 %p2, %d3, 1000000;\n@%p2 bra again;\ntrap;\ndone:"
    );
    assert_eq!(told(&clock, &[1]), "1: >= 2");
    let predicated = format!("mov.pred %p3, -1;\nagain:\n@%p3 {LOAD}\n@%p3 setp.lt.u32 %p3, %r1, 3;\n@%p3 bra again;");
    assert_eq!(told(&predicated, &[1]), "1: >= 3");
    // Two words by one instruction: either ends it.
    let two = "again:\nmov.u64 %d2, %d0;\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\nnext:\nld.acquire.sys.global.u32 %r1, [%d2];\n\
               or.b32 %r2, %r2, %r1;\nadd.u64 %d2, %d2, 4;\nadd.u32 %r3, %r3, 1;\nsetp.lt.u32 %p1, %r3, 2;\n@%p1 bra next;\n\
               setp.eq.u32 %p2, %r2, 0;\n@%p2 bra again;";
    assert_eq!(told(two, &[0, 0]), "0: != 0");
    // One word after the other, each until it is there.
    let peers = "mov.u32 %r3, 0;\nnext:\nmad.wide.u32 %d2, %r3, 4, %d0;\nagain:\nld.acquire.sys.global.u32 %r1, [%d2];\n\
                 setp.ne.u32 %p1, %r1, 1;\n@%p1 bra again;\nadd.u32 %r3, %r3, 1;\nsetp.lt.u32 %p2, %r3, 4;\n@%p2 bra next;";
    assert_eq!(told(peers, &[1, 1, 6, 1]), "6: == 1");
}

/// If this fails, a hang names one word where each thread waits for its own, or threads that have what they wait for.
#[test]
fn each_lane_has_its_word() {
    let body = "mad.wide.u32 %d2, %t, 4, %d0;\nagain:\nld.acquire.sys.global.u32 %r1, [%d2];\nadd.u32 %r2, %t, 1;\n\
                setp.ge.u32 %p1, %r1, %r2;\n@!%p1 bra again;\nbar.sync 0;";
    let looks = looks(body, 4, &[1, 1, 3, 1]);
    let told = looks.iter().map(|look| (look.lanes, look.found[0], look.wanted.as_ref().unwrap().to_string()));
    assert_eq!(told.collect::<Vec<_>>(), [(0b10, 1, ">= 2".into()), (0b1000, 1, ">= 4".into())]);
}

/// If this fails, a thread that looks for its whole block is not found where it meets the block between two looks.
#[test]
fn through_a_barrier() {
    let body = "setp.eq.u32 %p1, %t, 0;\nagain:\n@%p1 ld.acquire.sys.global.u32 %r1, [%d0];\n@%p1 st.shared.u32 [seen], %r1;\n\
                bar.sync 0;\nld.shared.u32 %r2, [seen];\nbar.sync 0;\nsetp.ne.u32 %p2, %r2, 3;\n@%p2 bra again;";
    let all = "again:\nld.acquire.sys.global.u32 %r1, [%d0];\nsetp.ne.u32 %p1, %r1, 3;\nbar.red.or.pred %p2, 0, %p1;\n@%p2 bra again;";
    for (body, lanes) in [(body, 1), (all, u32::MAX)] {
        let looks = looks(body, 64, &[2]);
        let first = &looks[0];
        assert_eq!((first.warp, first.lanes, &first.found[..]), (0, lanes, &[2][..]), "{looks:#?}");
        assert_eq!(first.wanted.as_ref().map(ToString::to_string).as_deref(), Some("== 3"), "{looks:#?}");
    }
}

/// If this fails, a hang makes up a condition that the code does not show.
#[test]
fn says_nothing_it_does_not_know() {
    assert_eq!(told(&until(LOAD, "mul.hi.u32 %r2, %r1, 77777;\nsetp.ne.u32 %p1, %r2, 0;"), &[1]), "1: ?");
    let counts = format!("again:\n{LOAD}\nadd.u32 %r4, %r1, %r4;\nsetp.eq.u32 %p1, %r4, 1;\n@!%p1 bra again;");
    assert_eq!(told(&format!("mov.u32 %r4, 1;\n{counts}"), &[2]).split(':').next(), Some("2"));
}
