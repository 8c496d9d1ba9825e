//! What the emulator says of ranks that do not go on: which word, what was found, what was wanted, who wrote it, and who waits for whom.

use std::{sync::Arc, time::Duration};

use passmuster_harness::emulator::{Emulator, EmulatorOptions, Interleaving, Profile};
use passmuster_plan::{
    library::Library,
    machine::{Elapsed, Machine, MachineError},
    plan::{Arg, BufferSpec, Launch, Op, Plan, Region, Role, Script, Step},
};
use rstest::rstest;

/// A kernel of one block of 64 threads. `%rd1` is the flag of this rank, `%rd2` that of the next, `%t` the thread, and `%r9` the rank; lines are of `signals.cu`.
fn library(body: &str) -> Library {
    let text = format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n.file 1 \"signals.cu\"\n\
         .visible .entry own(.param .u64 own_flag, .param .u64 next_flag, .param .u32 rank)\n{{\n\
         .reg .pred %p<8>;\n.reg .b32 %r<12>;\n.reg .b32 %t;\n.reg .b64 %rd<4>;\n.shared .align 4 .b32 seen;\n\
         ld.param.u64 %rd1, [own_flag];\nld.param.u64 %rd2, [next_flag];\nld.param.u32 %r9, [rank];\nmov.u32 %t, %tid.x;\n\
         setp.ne.u32 %p7, %t, 0;\n{body}\nret;\n}}\n"
    );
    let mut library = Library::default();
    library.replace("conformance/faults", text);
    library
}

/// Thread 0 signals a count to the next rank, or waits until the own flag has reached it.
fn signal(count: u32) -> String {
    format!(".loc 1 20 1\n@!%p7 st.release.sys.global.u32 [%rd2], {count};\n")
}

fn wait(count: u32) -> String {
    format!(
        "@%p7 bra behind{count};\nagain{count}:\n.loc 1 31 1\nld.acquire.sys.global.u32 %r1, [%rd1];\nsetp.lt.u32 %p1, %r1, {count};\n\
         @%p1 bra again{count};\nbehind{count}:\n.loc 1 40 1\nbar.sync 0;\n"
    )
}

/// Runs a kernel on the `first` ranks of `world` and says how it hangs; rank 1 sleeps for `sleeps` microseconds before it.
fn hang(body: &str, (world, first): (u32, u32), sleeps: u64, options: EmulatorOptions) -> (Elapsed, Vec<String>, String) {
    let mut machine = Emulator::new(EmulatorOptions { library: library(body), ..options });
    let flag = BufferSpec::new("signals", 8, Role::Signals);
    let group = machine.open_group(world as usize, std::slice::from_ref(&flag)).unwrap();
    let word = Region::new("signals", 4, 4);
    let of_rank = |rank: u32| {
        let next = Arg::AddressOf { region: word.clone(), rank: (rank + 1) % world };
        Op::Launch(Launch {
            waits_for_peers: true,
            ..Launch::new("conformance/faults", "own", (1, 64), vec![Arg::Address(word.clone()), next, Arg::U32(rank)])
        })
    };
    let plan = Plan::per_rank("own", world, |rank| if rank < first { vec![of_rank(rank)] } else { vec![] });
    let steps = vec![Step::Delay { rank: 1, microseconds: sleeps }, Step::Enqueue { group, stream: 0, plan: Arc::new(plan) }];
    let error = machine.run(&Script { steps }, Duration::from_secs(60)).unwrap_err();
    let MachineError::Hang { after, standing, .. } = &error else { panic!("{error}") };
    (*after, standing.clone(), error.to_string())
}

/// If this fails, a hang does not say that no signal ever came, or names a rank that it cannot know.
#[test]
fn peer_never_signals() {
    let (_, standing, text) = hang(&wait(1), (2, 1), 0, EmulatorOptions::default());
    let expected = "rank 0 stream 0 `own` block 0 warp 0 lanes 0x00000001 polls rank 0 signals+4 at PTX 20:1 (signals.cu:31): found 0 (u32), \
                    wants >= 1; nobody has written it; 63 threads of the block wait for it at barrier 0 (signals.cu:40)";
    assert!(standing[0].starts_with(expected), "{standing:#?}");
    assert!(text.contains(" of emulated time: deadlock: ") && text.contains("wants >= 1"), "{text}");
}

/// If this fails, a hang does not say which value came in place of the one that was waited for, from whom, or what that rank does now.
#[rstest]
fn wrong_value(#[values(0, 1, 2, 3)] schedule: usize) {
    let body = format!("setp.eq.u32 %p6, %r9, 0;\n@%p6 bra waits;\n{}bra done;\nwaits:\n{}done:", signal(1), wait(2));
    let Interleaving { strategy, seed } = Interleaving::nth(3, schedule);
    let (_, standing, _) = hang(&body, (2, 2), 0, EmulatorOptions { strategy, seed, ..EmulatorOptions::default() });
    let expected = "(signals.cu:31): found 1 (u32), wants >= 2; rank 1 (operation 0, signals.cu:20) wrote it last; rank 1 is done";
    assert!(standing[0].contains(expected), "{standing:#?}");
}

/// If this fails, a hang does not show that ranks wait in a circle, or where the rank stands that should have signalled.
#[rstest]
#[case::two(2, "rank 0 -> rank 1 -> rank 0: each waits for the next")]
#[case::three(3, "rank 0 -> rank 2 -> rank 1 -> rank 0: each waits for the next")]
fn ranks_in_a_circle(#[case] world: u32, #[case] cycle: &str) {
    let body = [signal(1), wait(1), wait(2), signal(2)].concat();
    let (_, standing, text) = hang(&body, (world, world), 0, EmulatorOptions::default());
    assert_eq!(standing[0], cycle, "{standing:#?}");
    let last = world - 1;
    let wrote =
        format!("found 1 (u32), wants >= 2; rank {last} (operation 0, signals.cu:20) wrote it last; rank {last} waits at signals.cu:31");
    assert!(standing[1].starts_with("rank 0 stream 0") && standing[1].contains(&wrote), "{standing:#?}");
    assert!(text.contains(cycle), "{text}");
}

/// If this fails, a rank that came late is taken for one that did not come, or a hang hides how long the run went on.
#[test]
fn late_rank() {
    let body = format!("setp.eq.u32 %p6, %r9, 0;\n@%p6 bra waits;\n{}bra done;\nwaits:\n{}done:", signal(1), wait(2));
    let (after, standing, text) = hang(&body, (2, 2), 3000, EmulatorOptions::default());
    let Elapsed::EmulatedNs(ns) = after else { panic!("{after:?}") };
    assert!((3_000_000..3_100_000).contains(&ns) && text.starts_with("hang after 3"), "{text}");
    assert!(text.contains(" ms of emulated time: "), "{text}");
    assert!(standing[0].contains("found 1 (u32), wants >= 2; rank 1 (operation 0, signals.cu:20) wrote it last"), "{standing:#?}");
}

/// If this fails, a counter that lacks an arrival does not show who has arrived.
#[test]
fn counter_lacks_an_arrival() {
    let body = "@%p7 bra done;\nsetp.eq.u32 %p6, %r9, 0;\n.loc 1 12 1\n@!%p6 red.relaxed.sys.global.add.u32 [%rd2], 1;\n@!%p6 bra done;\nagain:\n\
                .loc 1 15 1\nld.relaxed.sys.global.u32 %r1, [%rd1];\nsetp.ne.u32 %p1, %r1, 2;\n@%p1 bra again;\ndone:";
    let (_, standing, _) = hang(body, (2, 2), 0, EmulatorOptions::default());
    let expected = "(signals.cu:15): found 1 (u32), wants == 2; rank 1 (operation 0, signals.cu:12) wrote it last; rank 1 is done";
    assert!(standing[0].contains(expected), "{standing:#?}");
}

/// If this fails, a hang names a writer that nobody watched for.
#[test]
fn writer_is_unknown_without_the_race_check() {
    let body = [signal(1), wait(2)].concat();
    let (_, standing, _) = hang(&body, (2, 2), 0, EmulatorOptions { profile: Profile::Off, ..EmulatorOptions::default() });
    assert!(standing[0].contains("found 1 (u32), wants >= 2; 63 threads of the block wait"), "{standing:#?}");
    assert!(standing.iter().all(|line| !line.contains("wrote") && !line.contains("written")), "{standing:#?}");
}

/// If this fails, a block whose thread looks for all of it is reported as warps that wait at a barrier, under some schedule.
#[rstest]
fn polls_through_a_barrier(#[values(0, 1, 2, 3, 4, 5)] schedule: usize) {
    let body = "again:\n.loc 1 50 1\n@!%p7 ld.acquire.sys.global.u32 %r1, [%rd1];\n@!%p7 st.shared.u32 [seen], %r1;\n.loc 1 51 1\nbar.sync 0;\n\
                ld.shared.u32 %r2, [seen];\nbar.sync 0;\nsetp.ne.u32 %p2, %r2, 3;\n@%p2 bra again;";
    let Interleaving { strategy, seed } = Interleaving::nth(3, schedule);
    let (_, standing, _) = hang(body, (2, 1), 0, EmulatorOptions { strategy, seed, ..EmulatorOptions::default() });
    let expected = "lanes 0x00000001 polls rank 0 signals+4 at PTX 19:7 (signals.cu:50): found 0 (u32), wants == 3; nobody has written it";
    assert!(standing[0].contains(expected), "{standing:#?}");
}

/// If this fails, docs/emulator/hangs.md explains something else than what is printed.
#[test]
fn page_quotes_a_hang() {
    let body = [signal(1), wait(1), wait(2), signal(2)].concat();
    let (.., text) = hang(&body, (2, 2), 0, EmulatorOptions::default());
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = include_str!("../../../docs/emulator/hangs.md");
    assert!(words(page).contains(&words(&text)), "the page has no:\n{}", text.replace("; ", ";\n"));
}
