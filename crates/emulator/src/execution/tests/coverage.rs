//! What of a kernel has run, and who came last where blocks wait.

use rstest::rstest;

use super::*;

/// Runs a body in blocks of one thread, whose turns come as `pick` says, over words of zeros.
fn covered(body: &str, blocks: u32, pick: &mut dyn FnMut(usize) -> usize) -> Arc<Coverage> {
    let coverage = Arc::new(Coverage::default());
    let mut memory = Memory::new();
    let module = ptx::parse(&around(body)).unwrap_or_else(|error| panic!("{error}"));
    let program = Program::load(Arc::new(module), 0, DeviceLimits::of_tests(), &mut memory).unwrap();
    let program = Arc::new(Recorder::new(coverage.clone()).record(program, "m"));
    let [out, input] = ["out", "in"].map(|name| memory.allocate(Owner::new(0, 0, name), 4096, Init::Zero));
    let parameters = [out.0.to_le_bytes(), input.0.to_le_bytes()].concat();
    let mut grid = Grid::new(program, "k", shape(blocks, 1), &parameters, &mut memory).unwrap();
    while !grid.is_done() {
        grid.turn(&mut memory, 0, 16, pick).unwrap();
    }
    grid.finish(&mut memory);
    coverage
}

/// The function of a module of this name, and its operations whose mnemonics start like this.
fn operations(marks: &Marks, name: &str, is: impl Fn(&ptx::Instruction) -> bool) -> (usize, Vec<usize>) {
    let function = marks.module().functions.iter().position(|function| function.name == name).unwrap();
    let code = marks.module().functions[function].code.iter().enumerate();
    (function, code.filter(|(_, operation)| is(&operation.instruction)).map(|(index, _)| index).collect())
}

#[test]
fn operations_and_both_ways_of_branches_are_noted() {
    let body = "setp.eq.u32 %p0, %t, 0; setp.eq.u32 %p1, %t, 7;\n@%p0 bra A; mov.u32 %r1, 1;\nA: @%p1 bra B; mov.u32 %r2, 2;\nB: @%p1 mov.u32 %r3, 3;";
    let coverage = covered(body, 1, &mut |_| 0);
    let [marks] = &coverage.modules()[..] else { panic!("one module is loaded") };
    let (kernel, branches) = operations(marks, "k", |of| matches!(of, ptx::Instruction::Branch { .. }));
    let ways = |&at: &usize| (marks.was_executed(kernel, at), marks.was_passed(kernel, at));
    assert_eq!(branches.iter().map(ways).collect::<Vec<_>>(), [(true, false), (false, true)]);
    let moved = [branches[0] + 1, branches[1] + 1, branches[1] + 2];
    assert_eq!(moved.map(|at| marks.was_executed(kernel, at)), [false, true, false], "past a branch, behind one, guarded");
    let (never, _) = operations(marks, "triple", |_| true);
    assert!(!marks.was_executed(never, 0) && marks.name() == "m");
}

const LOOP: &str = "L: ld.acquire.gpu.u32 %r2, [%d0]; setp.eq.u32 %p1, %r2, 0; @%p1 bra L; ";

#[rstest]
#[case::loop_of_looks(LOOP, true)]
#[case::once("ld.acquire.gpu.u32 %r2, [%d0];", false)]
#[case::sleeps("L: ld.acquire.gpu.u32 %r2, [%d0]; setp.eq.u32 %p1, %r2, 0; nanosleep.u32 20; @%p1 bra L;", true)]
#[case::two_words(
    "L: ld.relaxed.gpu.u32 %r2, [%d0]; ld.relaxed.gpu.u32 %r3, [%d1]; add.u32 %r2, %r2, %r3; setp.eq.u32 %p1, %r2, 0; @%p1 bra L;",
    true
)]
#[case::swaps("L: atom.cas.acquire.gpu.b32 %r2, [%d0], 1, 0; setp.ne.u32 %p1, %r2, 1; @%p1 bra L;", true)]
#[case::tiles("L: atom.add.relaxed.gpu.u32 %r2, [%d0], 1; st.global.u32 [%d1], %r2; setp.lt.u32 %p1, %r2, 9; @%p1 bra L;", false)]
#[case::word_after_word(
    "mov.u32 %r4, 0; L: mul.wide.u32 %d3, %r4, 4; add.s64 %d3, %d3, %d0; ld.volatile.global.u32 %r2, [%d3]; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 9; @%p1 bra L;",
    false
)]
#[case::address_made_again(
    "L: mul.wide.u32 %d3, %t, 4; add.s64 %d3, %d3, %d0; ld.volatile.global.u32 %r2, [%d3]; setp.eq.u32 %p1, %r2, 0; @%p1 bra L;",
    true
)]
#[case::peer_after_peer(
    "mov.u32 %r4, 0; mov.u64 %d3, %d0; L: ld.volatile.global.u32 %r2, [%d3]; setp.eq.u32 %p1, %r2, 0; @%p1 bra L; add.s64 %d3, %d3, 4; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 9; @%p1 bra L;",
    true
)]
#[case::weak("L: ld.global.u32 %r2, [%d0]; setp.eq.u32 %p1, %r2, 0; @%p1 bra L;", false)]
fn waits_are_loops_of_looks(#[case] body: &str, #[case] expected: bool) {
    let module = Arc::new(ptx::parse(&around(body)).unwrap_or_else(|error| panic!("{error}")));
    let program = Program::load(module, 0, DeviceLimits::of_tests(), &mut Memory::new()).unwrap();
    let coverage = Arc::new(Coverage::default());
    Recorder::new(coverage.clone()).record(program, "m");
    let marks = coverage.modules().remove(0);
    let (kernel, looks) = operations(&marks, "k", |of| {
        matches!(of, ptx::Instruction::Load { access, .. } if access.space != ptx::Space::Param)
            || matches!(of, ptx::Instruction::Atomic { .. })
    });
    assert!(!looks.is_empty());
    assert!(looks.iter().all(|&at| marks.is_wait(kernel, at) == expected));
}

/// If this fails, a test that has seen a wait end in one way only is taken for one that has seen both.
#[rstest]
#[case::writer_first(false, Arrivals { reader_last: 1, writer_last: 0 })]
#[case::reader_first(true, Arrivals { reader_last: 0, writer_last: 1 })]
fn who_comes_last_is_noted(#[case] reader_first: bool, #[case] expected: Arrivals) {
    // Block 0 writes a word that block 1 waits for. Before, each writes and reads a word of its own.
    let body = format!(
        "mov.u32 %r1, %ctaid.x; mad.wide.u32 %d3, %r1, 4, %d1; st.relaxed.gpu.u32 [%d3], 1; ld.relaxed.gpu.u32 %r2, [%d3];\n\
         setp.eq.u32 %p0, %r1, 0; @%p0 bra W;\n{LOOP} bra E;\nW: st.release.gpu.u32 [%d0], 1;\nE:"
    );
    let mut turns = 0;
    let coverage = covered(&body, 2, &mut |n| {
        turns += 1;
        // What can run: both blocks, then the one that is left.
        if (turns < 9) == reader_first { n - 1 } else { 0 }
    });
    let marks = coverage.modules().remove(0);
    let (kernel, stores) = operations(&marks, "k", |of| matches!(of, ptx::Instruction::Store { .. }));
    let (_, loads) = operations(&marks, "k", |of| matches!(of, ptx::Instruction::Load { access, .. } if access.space != ptx::Space::Param));
    let edge = [stores[1], loads[1]].map(|operation| Site { module: 0, function: kernel, operation });
    assert_eq!(coverage.edges().into_iter().collect::<Vec<_>>(), [(edge, expected)]);
}

/// If this fails, a wait whose first look a compiler took out of the loop is two, each of which has only ever seen one side come last.
#[test]
fn first_looks_before_loop_belong_to_wait() {
    let body = format!(
        "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p0, %r1, 0; @%p0 bra W;\nld.acquire.gpu.u32 %r2, [%d0]; setp.ne.u32 %p1, %r2, 0; @%p1 bra E;\n\
         {LOOP} bra E;\nW: st.release.gpu.u32 [%d0], 1;\nE:"
    );
    for (reader_first, sides) in [(false, (1, 0)), (true, (0, 1))] {
        let mut turns = 0;
        let coverage = covered(&body, 2, &mut |n| {
            turns += 1;
            if (turns < 9) == reader_first { n - 1 } else { 0 }
        });
        let marks = coverage.modules().remove(0);
        let (kernel, loads) =
            operations(&marks, "k", |of| matches!(of, ptx::Instruction::Load { access, .. } if access.space != ptx::Space::Param));
        let [first, again] = [0, 1].map(|at| Site { module: 0, function: kernel, operation: loads[at] });
        let edges: Vec<_> = coverage.edges().into_iter().map(|([_, read], of)| (read, (of.reader_last, of.writer_last))).collect();
        assert_eq!(edges, [(first, sides)]);
        let later: Vec<_> = coverage.looks_again().into_iter().collect();
        assert_eq!(later, if reader_first { vec![(first, [again].into())] } else { vec![] });
    }
}

/// If this fails, a run is taken to have waited for what another one before it wrote.
#[test]
fn runs_begin_without_writes() {
    let coverage = Arc::new(Coverage::default());
    let mut memory = Memory::new();
    let recorder = Recorder::new(coverage.clone());
    let text = around("mov.u32 %r1, %ctaid.x; ld.volatile.global.u32 %r2, [%d0]; st.volatile.global.u32 [%d0], 1;");
    let program = Program::load(Arc::new(ptx::parse(&text).unwrap()), 0, DeviceLimits::of_tests(), &mut memory).unwrap();
    let program = Arc::new(recorder.record(program, "m"));
    let out = memory.allocate(Owner::new(0, 0, "out"), 4096, Init::Zero);
    let mut launch = || {
        let parameters = [out.0.to_le_bytes(); 2].concat();
        let mut grid = Grid::new(program.clone(), "k", shape(1, 1), &parameters, &mut memory).unwrap();
        while !grid.is_done() {
            grid.turn(&mut memory, 0, 256, &mut |_| 0).unwrap();
        }
        grid.finish(&mut memory);
    };
    launch();
    recorder.begin_run();
    launch();
    assert!(coverage.edges().is_empty());
    launch();
    assert_eq!(coverage.edges().len(), 1);
}
