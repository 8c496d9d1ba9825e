//! Clusters: where blocks of one are, each other's shared memory, and their barrier.

use rstest::rstest;

use super::*;
use crate::{
    memory::AccessError,
    races::{Profile, Races},
};

/// As [`around`], of a kernel that requires clusters.
fn clustered(bounds: &str, body: &str) -> String {
    around(body).replacen(".param .u64 in)\n{", &format!(".param .u64 in) {bounds}\n{{"), 1)
}

/// `%r1` is the rank in the cluster, `%d2` the place of the thread's result among those of all blocks.
const PLACE: &str = "mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r2, %r2, %r3, %t; mad.wide.u32 %d2, %r2, 4, %d0;";

const MEET: &str = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;";

fn of_pairs(body: &str, blocks: u32, threads: u32) -> Result<Vec<u32>, Fault> {
    let text = clustered(".reqnctapercluster 2, 1, 1", &format!("{PLACE}\n{body}\nst.global.u32 [%d2], %r0;"));
    run(&text, shape(blocks, threads), &[])
}

#[test]
fn blocks_know_where_in_which_cluster_they_are() {
    // Blocks of 4 x 4 x 2 in clusters of 2 x 2 x 1: each leaves what it knows where its index says.
    let read = |special: &str, scale: u32| format!("mov.u32 %r5, %{special}; mad.lo.u32 %r0, %r5, {scale}, %r0;\n");
    let specials = ["cluster_ctaid.x", "cluster_ctaid.y", "clusterid.x", "clusterid.y", "clusterid.z", "cluster_ctarank"];
    let parts: String = specials.iter().zip([1, 10, 100, 1000, 10_000, 100_000]).map(|(special, scale)| read(special, scale)).collect();
    let sizes = "mov.u32 %r5, %cluster_nctaid.x; mov.u32 %r6, %nclusterid.x; mov.u32 %r7, %nclusterid.z; mov.u32 %r8, %cluster_nctarank;\n\
                 mov.pred %p0, %is_explicit_cluster; @!%p0 trap;\n\
                 add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r7; add.u32 %r5, %r5, %r8; mad.lo.u32 %r0, %r5, 1000000, %r0;";
    let place = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z; mad.lo.u32 %r2, %r3, 4, %r2; mad.lo.u32 %r1, %r2, 4, %r1;\n\
                 mad.wide.u32 %d2, %r1, 4, %d0; mov.u32 %r0, 0;\n";
    let text = clustered(".explicitcluster .reqnctapercluster 2, 2, 1", &format!("{place}{parts}{sizes}\nst.global.u32 [%d2], %r0;"));
    let shape = Shape { grid: [4, 4, 2], block: [1, 1, 1], cluster: None, dynamic_shared: 0, registers: None };
    let expected: Vec<u32> = (0..32)
        .map(|index| {
            let [x, y, z] = [index % 4, index / 4 % 4, index / 16];
            x % 2 + y % 2 * 10 + x / 2 * 100 + y / 2 * 1000 + z * 10_000 + (x % 2 + y % 2 * 2) * 100_000 + (2 + 2 + 2 + 4) * 1_000_000
        })
        .collect();
    assert_eq!(run(&text, shape, &[]).unwrap(), expected);
}

#[test]
fn a_block_that_requires_no_clusters_is_one_by_itself() {
    let body = "mov.u32 %r0, %cluster_nctarank; mov.u32 %r1, %cluster_ctarank; mad.lo.u32 %r0, %r1, 10, %r0;\n\
                mov.pred %p0, %is_explicit_cluster; @%p0 trap;";
    assert_eq!(results(body, 1), [1]);
}

/// The neighbour's value: by an address in the cluster's window, by a generic one, through registers and from a variable.
#[rstest]
#[case("mov.u32 %r5, block; mapa.shared::cluster.u32 %r6, %r5, %r4; ld.shared::cluster.u32 %r0, [%r6];")]
#[case("mapa.shared::cluster.u32 %r6, block+4, %r4; ld.shared::cluster.u32 %r0, [%r6+-4];")]
#[case("mapa.shared::cluster.u64 %d3, block, %r4; ld.relaxed.cluster.shared::cluster.u32 %r0, [%d3];")]
#[case("mov.u64 %d3, block; cvta.shared.u64 %d3, %d3; mapa.u64 %d4, %d3, %r4; ld.u32 %r0, [%d4];")]
#[case(
    "mov.u64 %d3, block; cvta.shared::cta.u64 %d3, %d3; mapa.u64 %d4, %d3, %r4; cvta.to.shared::cluster.u64 %d5, %d4; ld.shared::cluster.u32 %r0, [%d5];"
)]
#[case("mapa.shared::cluster.u64 %d3, block, %r4; cvta.shared::cluster.u64 %d4, %d3; ld.acquire.cluster.u32 %r0, [%d4];")]
#[case("mapa.shared::cluster.u32 %r6, block, %r4; atom.shared::cluster.add.u32 %r0, [%r6], 0;")]
fn a_block_reads_its_neighbours_shared_memory(#[case] read: &str) {
    let body =
        format!("add.u32 %r7, %r2, 100; mov.u32 %r4, 0; st.shared::cluster.u32 [block], %r7; xor.b32 %r4, %r1, 1;\n{MEET}\n{read}\n{MEET}");
    assert_eq!(of_pairs(&body, 4, 1).unwrap(), [101, 100, 103, 102]);
}

#[test]
fn stores_and_reductions_reach_a_neighbour() {
    let body = format!(
        "mov.u32 %r5, 0; st.shared.v2.u32 [block], {{%r5, %r5}}; {MEET}\n\
         mapa.shared::cluster.u32 %r6, block, 0; red.shared::cluster.cluster.add.u32 [%r6], 3;\n\
         xor.b32 %r4, %r1, 1; mapa.shared::cluster.u32 %r6, block, %r4; st.shared::cluster.u32 [%r6+4], %r2;\n{MEET}\n\
         ld.shared.v2.u32 {{%r0, %r5}}, [block]; mad.lo.u32 %r0, %r5, 100, %r0;"
    );
    assert_eq!(of_pairs(&body, 4, 1).unwrap(), [106, 0, 306, 200]);
}

#[test]
fn addresses_say_whose_they_are() {
    let body = "mov.u64 %d3, block; cvta.shared.u64 %d3, %d3; xor.b32 %r4, %r1, 1; mapa.u64 %d4, %d3, %r4;\n\
                getctarank.u64 %r0, %d4; getctarank.u64 %r5, %d3; mad.lo.u32 %r0, %r5, 10, %r0;\n\
                mapa.shared::cluster.u32 %r5, block, %r4; getctarank.shared::cluster.u32 %r6, %r5; mad.lo.u32 %r0, %r6, 100, %r0;\n\
                getctarank.shared::cluster.u32 %r6, block; mad.lo.u32 %r0, %r6, 1000, %r0;\n\
                isspacep.shared::cluster %p0, %d4; @%p0 add.u32 %r0, %r0, 10000; isspacep.shared %p0, %d4; @%p0 trap;\n\
                isspacep.shared::cta %p0, %d3; @!%p0 trap; isspacep.global %p0, %d4; @%p0 trap; isspacep.shared::cluster %p0, %d0; @%p0 trap;";
    assert_eq!(of_pairs(body, 2, 1).unwrap(), [10_101, 11_010]);
}

#[test]
fn more_clusters_than_are_resident_take_turns() {
    // 264 blocks of 1024 threads are resident.
    let body = format!(
        "mov.u32 %r4, %clusterid.x; st.shared.u32 [block], %r4; {MEET}\n\
                        xor.b32 %r4, %r1, 1; mapa.shared::cluster.u32 %r6, block, %r4; ld.shared::cluster.u32 %r0, [%r6]; {MEET}"
    );
    let words = of_pairs(&body, 536, 1024).unwrap();
    assert!(words.iter().enumerate().all(|(thread, word)| *word == thread as u32 / 2048));
}

/// Runs pairs of blocks until the warps that `pick` prefers, the last ones first, can do no more.
fn from_the_last(text: &str, blocks: u32) -> Result<bool, Fault> {
    let mut memory = Memory::new();
    let program = program(text, 0, &mut memory);
    let mut grid = Grid::new(program, "k", shape(blocks, 32), &[0; 16], &mut memory)?;
    for _ in 0..100 {
        grid.turn(&mut memory, 0, 256, &mut |n| n - 1)?;
    }
    Ok(grid.is_done())
}

#[test]
fn shared_memory_of_a_block_that_has_ended_is_gone() {
    let text = |meet: &str| {
        let body = format!(
            "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p0, %r1, 1; @!%p0 bra READ;\nst.shared.u32 [block], 5; {meet} exit;\n\
                            READ: {meet} nanosleep.u32 9; mapa.shared::cluster.u32 %r6, block, 1; ld.shared::cluster.u32 %r0, [%r6]; "
        );
        clustered(".reqnctapercluster 2, 1, 1", &body)
    };
    for text in [text(""), text(MEET)] {
        let fault = from_the_last(&text, 2).unwrap_err();
        let Fault::Memory { error: AccessError::UseAfterFree { buffer, .. }, .. } = &fault else { panic!("{fault}") };
        assert_eq!(&**buffer, "shared memory (k, block 1)");
    }
}

#[rstest]
#[case::nobody_arrives("barrier.cluster.wait;", false)]
#[case::one_never_comes("@!%p0 bra LOOP; barrier.cluster.arrive; barrier.cluster.wait; exit; LOOP: bar.sync 1, 64;", false)]
#[case::one_waits_and_has_not_arrived("@!%p0 barrier.cluster.arrive; barrier.cluster.wait;", false)]
#[case::who_ended_does_not_count("@%p0 exit; barrier.cluster.arrive; barrier.cluster.wait;", true)]
#[case::half_a_warp_ended("setp.lt.u32 %p1, %t, 16; @%p1 exit; barrier.cluster.arrive; barrier.cluster.wait;", true)]
#[case::again_and_again(
    "barrier.cluster.arrive; barrier.cluster.wait; barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;",
    true
)]
fn the_barrier_of_a_cluster_is_for_all_that_have_not_ended(#[case] body: &str, #[case] ends: bool) {
    let body = format!("mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p0, %r1, 0; {body}");
    let text = clustered(".reqnctapercluster 2, 1, 1", &body);
    assert_eq!(from_the_last(&text, 4).unwrap(), ends);
}

#[rstest]
#[case("barrier.cluster.arrive; barrier.cluster.arrive;", "a thread arrives at the cluster's barrier again and has not waited there")]
#[case("mapa.shared::cluster.u32 %r6, block, 2;", "block 2 of the cluster: it has 2")]
#[case("mapa.u64 %d3, %d0, 1;", "is in no shared memory of the cluster")]
#[case("getctarank.shared::cluster.u32 %r6, %r15;", "is in no shared memory of the cluster")]
#[case("mapa.shared::cluster.u32 %r6, block, 1; ld.shared::cluster.u32 %r0, [%r6+4096];", "block 1)+4096")]
#[case("mov.u32 %r6, 0x7000000; ld.shared::cluster.u32 %r0, [%r6];", "out of bounds")]
#[case("mapa.shared::cluster.u32 %r6, block, 1; ld.shared::cluster.u32 %r0, [%r6];", "never written")]
fn what_clusters_must_not_do_stops_the_launch(#[case] body: &str, #[case] why: &str) {
    let body = format!("mov.u32 %r15, 0x3000000; mov.u32 %r0, block; {body}");
    let fault = from_the_last(&clustered(".reqnctapercluster 2, 1, 1", &body), 2).unwrap_err().to_string();
    assert!(fault.contains(why), "{fault}");
}

#[rstest]
#[case(".reqnctapercluster 2, 1, 1", [3, 1, 1], "a grid of [3, 1, 1] blocks is no multiple of clusters of [2, 1, 1]")]
#[case(".reqnctapercluster 3, 3, 1", [9, 9, 1], "clusters of [3, 3, 1] blocks: expected 1 to 8 together")]
#[case(".reqnctapercluster 4, 1, 1 .maxclusterrank 2", [4, 1, 1], "clusters of 4 blocks: the kernel allows 2 (.maxclusterrank)")]
#[case(".explicitcluster", [4, 1, 1], "the kernel requires a launch that says what a cluster is (.explicitcluster)")]
#[case(".reqntid 32, 1, 1 .reqnctapercluster 2, 1, 1 .blocksareclusters", [4, 1, 1], "a grid that counts clusters (.blocksareclusters) is not emulated")]
fn launches_keep_to_the_clusters_of_a_kernel(#[case] bounds: &str, #[case] grid: [u32; 3], #[case] why: &str) {
    let shape = Shape { grid, block: [32, 1, 1], cluster: None, dynamic_shared: 0, registers: None };
    let fault = run(&clustered(bounds, "ret;"), shape, &[]).unwrap_err().to_string();
    assert!(fault.contains(why), "{fault}");
}

/// If this fails, a launch with clusters runs as one without, or against what the kernel says.
#[rstest]
#[case::of_the_launch_alone("", Some([2, 1, 1]), Ok(12))]
#[case::as_the_kernel_says(".reqnctapercluster 2, 1, 1", Some([2, 1, 1]), Ok(12))]
#[case::that_the_kernel_wants(".explicitcluster", Some([4, 1, 1]), Ok(14))]
#[case::against_the_kernel(
    ".reqnctapercluster 2, 1, 1",
    Some([4, 1, 1]),
    Err("clusters of [4, 1, 1] blocks: the kernel requires [2, 1, 1] (.reqnctapercluster)")
)]
#[case::that_do_not_divide_the_grid("", Some([3, 1, 1]), Err("a grid of [4, 1, 1] blocks is no multiple of clusters of [3, 1, 1]"))]
fn launches_may_say_what_a_cluster_is(#[case] bounds: &str, #[case] cluster: Option<[u32; 3]>, #[case] expected: Result<u32, &str>) {
    let body =
        "mov.u32 %r0, %cluster_nctarank; mov.pred %p0, %is_explicit_cluster; @!%p0 trap; add.u32 %r0, %r0, 10; st.global.u32 [%d0], %r0;";
    let shape = Shape { grid: [4, 1, 1], block: [1, 1, 1], cluster, dynamic_shared: 0, registers: None };
    match (run(&clustered(bounds, body), shape, &[]), expected) {
        (Ok(words), Ok(word)) => assert_eq!(words[0], word),
        (Err(fault), Err(why)) => assert!(fault.to_string().contains(why), "{fault}"),
        (got, _) => panic!("{got:?}"),
    }
}

/// A kernel in CUDA C++ whose blocks pass on each other's shared memory; what it finds, by the race check as well.
fn compiled(text: &str) -> Result<(Vec<u32>, usize), Fault> {
    let mut memory = Memory::new();
    let program = program(text, 0, &mut memory);
    let out = memory.allocate(Owner::new(0, 0, "out"), 512, Init::Canary);
    let source = memory.allocate(Owner::new(0, 0, "in"), 512, Init::Uninitialised);
    let bytes: Vec<u8> = (0..128_u32).flat_map(|word| (word * 3).to_le_bytes()).collect();
    memory.write(source, 0, &bytes).unwrap();
    let parameters = [out.0.to_le_bytes(), source.0.to_le_bytes()].concat();
    let mut races = Races::new(Profile::Ptx, 1, 1, Vec::new()).unwrap();
    let launch = races.begin_launch(0, 0, program.shared_module(), "cluster", "k");
    let mut grid = Grid::new(program, "k", shape(4, 32), &parameters, &mut memory).unwrap();
    grid.watch_as(launch);
    let mut pick = around_picker();
    while !grid.is_done() {
        grid.watched_turn(&mut memory, Some(&mut races), 0, 1000, &mut pick)?;
    }
    races.end_launch(launch);
    grid.finish(&mut memory);
    Ok((words(&memory, out, 128), races.reports(&memory).len()))
}

#[test]
fn a_compiled_kernel_passes_on_its_neighbours_memory() {
    let text = include_str!("cluster.ptx");
    let expected: Vec<u32> = (0..128_u32)
        .map(|at| {
            let (block, thread) = (at / 32, at % 32);
            let total = if block % 2 == 0 { 64 << 16 } else { 0 };
            ((block ^ 1) * 32 + 31 - thread) * 3 + total + (1 << 24) + (((block % 2) ^ 1) << 28)
        })
        .collect();
    assert_eq!(compiled(text).unwrap(), (expected, 0));
    let meeting = "\tbarrier.cluster.arrive;\n\tbarrier.cluster.wait;\n";
    let (_, last) = text.rsplit_once(meeting).unwrap();
    let without_the_last = format!("{}{last}", text.rsplit_once(meeting).unwrap().0);
    let fault = compiled(&without_the_last).unwrap_err().to_string();
    assert!(fault.contains("shared memory (k, block 3)+124 was freed"), "{fault}");
    let without_the_first = text.replacen(meeting, "", 1);
    assert!(compiled(&without_the_first).is_err(), "what the neighbour has not written yet is read");
    let relaxed = text.replace("barrier.cluster.arrive;", "barrier.cluster.arrive.relaxed;");
    assert!(compiled(&relaxed).unwrap().1 > 0, "a relaxed arrival publishes nothing");
}
