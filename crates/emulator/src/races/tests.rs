//! Litmus tests: one for each rule of the check, on kernels of a few instructions that run one after the other.

use std::sync::Arc;

use rstest::rstest;

use super::*;
use crate::{
    execution::{DeviceLimits, Grid, Program, Shape},
    memory::{Address, Init, Memory, Owner},
};
use passmuster_ptx as ptx;
use passmuster_ptx::{Access, Fence, ProxyKind, Semantics, Space};

/// A launch: rank, stream, blocks, threads, body.
type Launch<'a> = (usize, usize, u32, u32, &'a str);

/// What a body starts with whose kernel has clusters of two blocks.
const IN_PAIRS: &str = " .reqnctapercluster 2, 1, 1\n";

/// A kernel with `data` in `%d`, `flag` in `%f`, both on rank 0, the thread in `%t` and `data + 4 * thread` in `%dt`.
fn module(body: &str) -> Arc<ptx::Module> {
    let (bounds, body) = body.strip_prefix(IN_PAIRS).map_or(("", body), |body| (IN_PAIRS, body));
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 data, .param .u64 flag){bounds}\n{{\n\
         .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b32 %t; .reg .b64 %d; .reg .b64 %f; .reg .b64 %dt; .reg .b64 %l<4>;\n\
         .shared .align 16 .b8 block[512];\n\
         ld.param.u64 %d, [data]; ld.param.u64 %f, [flag]; mov.u32 %t, %tid.x; mad.wide.u32 %dt, %t, 4, %d;\n{body}\nret;\n}}\n"
    );
    Arc::new(ptx::parse(&text).unwrap_or_else(|error| panic!("{error}\n{body}")))
}

fn buffer(memory: &mut Memory, name: &str, bytes: u64, ranks: usize) -> Address {
    let address = memory.allocate(Owner::new(0, 0, name), bytes, Init::Zero);
    (0..ranks).for_each(|rank| memory.map(address, rank, true).unwrap());
    address
}

/// What is found where launches run one after the other, each to its end, its warps in order: assumption, class, direction, what is missing.
fn found(profile: Profile, launches: &[Launch<'_>]) -> Vec<String> {
    lines(reports(profile, launches))
}

fn reports(profile: Profile, launches: &[Launch<'_>]) -> Vec<Report> {
    let (races, memory, _) = run(profile, launches);
    races.reports(&memory)
}

/// The check after these launches, the memory, and where the flag is.
fn run(profile: Profile, launches: &[Launch<'_>]) -> (Races, Memory, Address) {
    let ranks = launches.iter().map(|launch| launch.0 + 1).max().unwrap();
    let mut memory = Memory::new();
    let (data, flag) = (buffer(&mut memory, "data", 1024, ranks), buffer(&mut memory, "flag", 64, ranks));
    let mut races = Races::new(profile, ranks, 2, Vec::new()).unwrap();
    let mut modules: Vec<(&str, Arc<ptx::Module>)> = Vec::new();
    for &(rank, stream, blocks, threads, body) in launches {
        let known = modules.iter().find(|(of, _)| *of == body).map(|(_, module)| module.clone());
        let module = known.unwrap_or_else(|| module(body));
        modules.push((body, module.clone()));
        let program = Arc::new(Program::load(module, rank, DeviceLimits::of_tests(), &mut memory).unwrap());
        let shape = Shape { grid: [blocks, 1, 1], block: [threads, 1, 1], cluster: None, dynamic_shared: 0, registers: None };
        let parameters = [data.0.to_le_bytes(), flag.0.to_le_bytes()].concat();
        let launch = races.begin_launch(rank, stream, program.shared_module(), "m", "k");
        let mut grid = Grid::new(program, "k", shape, &parameters, &mut memory).unwrap();
        grid.watch_as(launch);
        // A warp that polls in vain lets the others go on.
        let mut polled = false;
        while !grid.is_done() {
            let mut pick = |n: usize| if polled { n - 1 } else { 0 };
            let turn = grid.watched_turn(&mut memory, Some(&mut races), 0, 1000, &mut pick).unwrap_or_else(|fault| panic!("{fault}"));
            polled = turn.polled;
        }
        races.end_launch(launch);
        grid.finish(&mut memory);
    }
    (races, memory, flag)
}

/// What is found where a launch of one thread runs until it polls in vain, then others of one thread to their ends, then the first to its end.
fn found_beside(profile: Profile, polls: (usize, &str), others: &[(usize, &str)]) -> Vec<String> {
    let all: Vec<(usize, &str)> = [polls].into_iter().chain(others.iter().copied()).collect();
    let ranks = all.iter().map(|(rank, _)| rank + 1).max().unwrap();
    let mut memory = Memory::new();
    let (data, flag) = (buffer(&mut memory, "data", 1024, ranks), buffer(&mut memory, "flag", 64, ranks));
    let mut races = Races::new(profile, ranks, 1, Vec::new()).unwrap();
    let parameters = [data.0.to_le_bytes(), flag.0.to_le_bytes()].concat();
    let shape = Shape { grid: [1; 3], block: [1; 3], cluster: None, dynamic_shared: 0, registers: None };
    let turn = |grid: &mut Grid, memory: &mut Memory, races: &mut Races| {
        grid.watched_turn(memory, Some(races), 0, 1000, &mut |_| 0).unwrap_or_else(|fault| panic!("{fault}"))
    };
    let mut first = None;
    for (rank, body) in all {
        let program = Arc::new(Program::load(module(body), rank, DeviceLimits::of_tests(), &mut memory).unwrap());
        let launch = races.begin_launch(rank, 0, program.shared_module(), "m", "k");
        let mut grid = Grid::new(program, "k", shape, &parameters, &mut memory).unwrap();
        grid.watch_as(launch);
        let waits = first.is_none();
        while !(grid.is_done() || turn(&mut grid, &mut memory, &mut races).polled && waits) {}
        if waits {
            first = Some((grid, launch));
        } else {
            races.end_launch(launch);
        }
    }
    let (mut grid, _) = first.unwrap();
    while !grid.is_done() {
        turn(&mut grid, &mut memory, &mut races);
    }
    told(&races, &memory)
}

fn told(races: &Races, memory: &Memory) -> Vec<String> {
    lines(races.reports(memory))
}

fn lines(reports: Vec<Report>) -> Vec<String> {
    let line = |report: Report| {
        let (kind, rest) = report.what.split_once(": ").unwrap();
        let (_, missing) = rest.split_once("; ").unwrap();
        format!("{}{kind}: {missing}", report.assumption.map(|name| format!("({name}) ")).unwrap_or_default())
    };
    let mut lines: Vec<String> = reports.into_iter().map(line).collect();
    lines.dedup();
    lines
}

/// What is found where four blocks in two clusters, each of one thread, run one after the other: `first` in block 0, `second` in block `in_block`.
fn found_between(in_block: u32, first: &str, second: &str) -> Vec<String> {
    let body = format!(
        "{IN_PAIRS}mov.u32 %r15, %ctaid.x; setp.eq.u32 %p7, %r15, 0; @!%p7 bra OTHER;\n{first}\nret;\n\
         OTHER: setp.ne.u32 %p7, %r15, {in_block}; @%p7 ret;\n{second}"
    );
    found(Profile::Ptx, &[(0, 0, 4, 1, &body)])
}

/// What orders the blocks of a cluster, and whether the same orders those of another one.
#[rstest]
#[case::scope_cluster("st.release.cluster.global.u32 [%f], 1;", "ld.acquire.cluster.global.u32 %r0, [%f];", true, false)]
#[case::scope_cta("st.release.cta.global.u32 [%f], 1;", "ld.acquire.cta.global.u32 %r0, [%f];", false, false)]
#[case::one_scope_cta("st.release.cluster.global.u32 [%f], 1;", "ld.acquire.cta.global.u32 %r0, [%f];", false, false)]
#[case::scope_gpu("st.release.gpu.global.u32 [%f], 1;", "ld.acquire.gpu.global.u32 %r0, [%f];", true, true)]
#[case::fences(
    "fence.acq_rel.cluster; st.relaxed.gpu.global.u32 [%f], 1;",
    "ld.relaxed.gpu.global.u32 %r0, [%f]; fence.acq_rel.cluster;",
    true,
    false
)]
#[case::sequential_fences("fence.sc.cluster;", "fence.sc.cluster;", true, false)]
#[case::nothing("", "", false, false)]
fn scopes_and_clusters(#[case] publish: &str, #[case] take: &str, #[case] within: bool, #[case] across: bool) {
    for (in_block, ordered) in [(1, within), (2, across)] {
        let found = found_between(in_block, &format!("{WRITE} {publish}"), &format!("{take} {READ}"));
        assert_eq!(found.is_empty(), ordered, "block {in_block}: {found:?}");
    }
}

/// A block's shared memory, which its neighbour reads by its own address for it.
#[rstest]
#[case("barrier.cluster.arrive; barrier.cluster.wait;", &[])]
#[case("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;", &[])]
#[case("barrier.cluster.arrive.relaxed; barrier.cluster.wait;", &["race, read after write: synchronisation between blocks is missing between"])]
#[case("fence.acq_rel.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait; fence.acq_rel.cluster;", &["race, read after write: synchronisation between blocks is missing between"])]
fn the_barrier_of_a_cluster_orders_shared_memory(#[case] meet: &str, #[case] expected: &[&str]) {
    let end = "barrier.cluster.arrive; barrier.cluster.wait;";
    let read = format!("{meet} mapa.shared::cluster.u32 %r1, block, 0; ld.shared::cluster.u32 %r0, [%r1]; {end}");
    assert_eq!(found_between(1, &format!("st.shared.u32 [block], 1; {meet} {end}"), &read), expected);
}

/// One launch of one thread for each rank.
fn of_ranks(profile: Profile, bodies: &[&str]) -> Vec<String> {
    let launches: Vec<Launch<'_>> = bodies.iter().enumerate().map(|(rank, body)| (rank, 0, 1, 1, *body)).collect();
    found(profile, &launches)
}

const WRITE: &str = "st.global.u32 [%d], 1;";
const READ: &str = "ld.global.u32 %r1, [%d];";
const READS_AGAIN: &str = "ld.global.u32 %r1, [%d+4]; ld.relaxed.sys.global.u32 %r0, [%f]; ld.global.u32 %r1, [%d];";
const PUBLISH: &str = "st.global.u32 [%d], 1; st.release.sys.global.u32 [%f], 1;";

/// A message of data and flag from rank 0 to rank 1: what rank 0 does to publish, what rank 1 does to take, what is found.
#[rstest]
#[case::release_acquire("st.release.sys.global.u32 [%f], 1;", "ld.acquire.sys.global.u32 %r0, [%f];", &[])]
#[case::relaxed("st.relaxed.sys.global.u32 [%f], 1;", "ld.relaxed.sys.global.u32 %r0, [%f];", &["a release and an acquire is missing between"])]
#[case::no_acquire("st.release.sys.global.u32 [%f], 1;", "ld.volatile.global.u32 %r0, [%f];", &["an acquire is missing between"])]
#[case::no_release("st.volatile.global.u32 [%f], 1;", "ld.acquire.sys.global.u32 %r0, [%f];", &["a release is missing between"])]
#[case::scope("st.release.gpu.global.u32 [%f], 1;", "ld.acquire.sys.global.u32 %r0, [%f];", &["a scope that includes both is missing between"])]
#[case::fences("fence.acq_rel.sys; st.relaxed.sys.global.u32 [%f], 1;", "ld.relaxed.sys.global.u32 %r0, [%f]; fence.acq_rel.sys;", &[])]
#[case::membars("membar.sys; st.volatile.global.u32 [%f], 1;", "ld.volatile.global.u32 %r0, [%f]; membar.sys;", &[])]
#[case::one_way_fences("fence.release.sys; st.relaxed.sys.global.u32 [%f], 1;", "ld.relaxed.sys.global.u32 %r0, [%f]; fence.acquire.sys;", &[])]
#[case::release_fence_acquires_nothing("st.release.sys.global.u32 [%f], 1;", "ld.relaxed.sys.global.u32 %r0, [%f]; fence.release.sys;", &["an acquire is missing between"])]
#[case::acquire_fence_releases_nothing("fence.acquire.sys; st.relaxed.sys.global.u32 [%f], 1;", "ld.acquire.sys.global.u32 %r0, [%f];", &["a release is missing between"])]
#[case::narrow_fence("fence.acq_rel.gpu; st.relaxed.sys.global.u32 [%f], 1;", "ld.relaxed.sys.global.u32 %r0, [%f]; fence.acq_rel.sys;", &["a scope that includes both is missing between"])]
#[case::narrow_second_fence("fence.acq_rel.sys; st.relaxed.sys.global.u32 [%f], 1;", "ld.relaxed.sys.global.u32 %r0, [%f]; fence.acq_rel.gpu;", &["a scope that includes both is missing between"])]
#[case::release_then_relaxed("st.release.sys.global.u32 [%f], 1; st.relaxed.sys.global.u32 [%f], 2;", "ld.acquire.sys.global.u32 %r0, [%f];", &[])]
#[case::atomics("red.release.sys.global.add.u32 [%f], 1;", "atom.acquire.sys.global.add.u32 %r0, [%f], 0;", &[])]
#[case::relaxed_then_acquire("st.release.sys.global.u32 [%f], 1;", "ld.relaxed.sys.global.u32 %r0, [%f]; ld.acquire.sys.global.u32 %r0, [%f];", &[])]
#[case::red_never_acquires("st.release.sys.global.u32 [%f], 1;", "red.relaxed.sys.global.add.u32 [%f], 1; fence.acq_rel.sys;", &["synchronisation between ranks is missing between"])]
#[case::atom_and_fence("st.release.sys.global.u32 [%f], 1;", "atom.relaxed.sys.global.add.u32 %r0, [%f], 1; fence.acq_rel.sys;", &[])]
#[case::failed_cas_writes_nothing("atom.release.sys.global.cas.b32 %r0, [%f], 7, 8;", "ld.acquire.sys.global.u32 %r0, [%f];", &["synchronisation between ranks is missing between"])]
#[case::sequential_fences("fence.sc.sys;", "fence.sc.sys;", &[])]
#[case::fences_alone("fence.acq_rel.sys;", "fence.acq_rel.sys;", &["synchronisation between ranks is missing between"])]
#[case::nothing("", "", &["synchronisation between ranks is missing between"])]
#[case::other_flag("st.release.sys.global.u32 [%f+8], 1;", "ld.acquire.sys.global.u32 %r0, [%f];", &["synchronisation between ranks is missing between"])]
fn messages_between_ranks(#[case] publish: &str, #[case] take: &str, #[case] missing: &[&str]) {
    let expected: Vec<String> = missing.iter().map(|missing| format!("race, read after write: {missing}")).collect();
    let got = of_ranks(Profile::Ptx, &[&format!("{WRITE} {publish}"), &format!("{take} {READ}")]);
    // Flags whose scopes do not include both race themselves.
    let of_data: Vec<String> = got.into_iter().rev().take(expected.len().max(1)).collect();
    assert_eq!(of_data, expected);
}

/// Rank 0 writes data and relaxed flags, rank 1 polls them, more than it may put off, and tells rank 2, which reads the data. What was seen
/// goes on with a barrier, or where there is too much to put off; what one thread's relaxed flags might have carried on is not followed.
#[rstest]
#[case::one("ld.relaxed.sys.global.u32 %r0, [%f];", "synchronisation between ranks is missing between")]
#[case::none("ld.relaxed.sys.global.u32 %r0, [%f+8];", "synchronisation between ranks is missing between")]
#[case::after_many(&format!("ld.relaxed.sys.global.u32 %r0, [%f]; {}", "atom.relaxed.sys.global.add.u32 %r0, [%f+8], 1;".repeat(100)), "a release and an acquire is missing between")]
#[case::at_a_barrier("ld.relaxed.sys.global.u32 %r0, [%f]; bar.sync 0;", "a release and an acquire is missing between")]
fn what_was_polled_is_handed_on(#[case] poll: &str, #[case] missing: &str) {
    let bodies = [
        "st.global.u32 [%d], 1; st.relaxed.sys.global.u32 [%f], 1;",
        &format!("{poll} st.relaxed.sys.global.u32 [%f+4], 1;"),
        "ld.relaxed.sys.global.u32 %r0, [%f+4]; ld.global.u32 %r1, [%d];",
    ];
    assert_eq!(of_ranks(Profile::Ptx, &bodies), [format!("race, read after write: {missing}")]);
}

/// Each element of a vector is a location. A read of one element alone acquires what the vector's flag releases, unless another thread
/// has written that element again.
#[rstest]
#[case::read_apart("", "ld.acquire.sys.global.u32 %r0, [%f+4];", true)]
#[case::another_element_written("st.relaxed.sys.global.u32 [%f], 2;", "ld.acquire.sys.global.u32 %r0, [%f+4];", true)]
#[case::the_element_written("st.relaxed.sys.global.u32 [%f+4], 2;", "ld.acquire.sys.global.u32 %r0, [%f+4];", false)]
#[case::another_size("", "ld.acquire.sys.global.u64 %l0, [%f];", false)]
#[case::added_to("red.relaxed.sys.global.add.u32 [%f+4], 2;", "ld.acquire.sys.global.v2.u32 {%r0, %r1}, [%f];", true)]
fn elements_of_vectors_release(#[case] between: &str, #[case] take: &str, #[case] ordered: bool) {
    let bodies =
        ["st.global.u32 [%d], 1; st.release.sys.global.v2.u32 [%f], {1, 1};", between, &format!("{take} ld.global.u32 %r1, [%d];")];
    let of_data = of_ranks(Profile::Ptx, &bodies).iter().any(|line| line.starts_with("race, read after write"));
    assert_eq!(of_data, !ordered);
}

/// Rank 0 releases, rank 1 does something to the flag, rank 2 acquires and reads.
#[rstest]
#[case::atom("atom.relaxed.sys.global.add.u32 %r0, [%f], 1;", true)]
#[case::red("red.relaxed.sys.global.add.u32 [%f], 1;", true)]
#[case::failed_cas("atom.relaxed.sys.global.cas.b32 %r0, [%f], 7, 8;", true)]
#[case::read("ld.relaxed.sys.global.u32 %r0, [%f];", true)]
#[case::write("st.relaxed.sys.global.u32 [%f], 2;", false)]
#[case::narrow_atom("atom.relaxed.gpu.global.add.u32 %r0, [%f], 1;", false)]
#[case::acquires_and_writes_again("atom.acq_rel.sys.global.exch.b32 %r0, [%f], 5;", true)]
fn releases_go_on_through_atomics(#[case] between: &str, #[case] ordered: bool) {
    let bodies = [
        "st.global.u32 [%d], 1; st.release.sys.global.u32 [%f], 1;",
        between,
        "ld.acquire.sys.global.u32 %r0, [%f]; ld.global.u32 %r1, [%d];",
    ];
    let of_data = of_ranks(Profile::Ptx, &bodies).iter().any(|line| line.starts_with("race, read after write"));
    assert_eq!(of_data, !ordered);
}

#[rstest]
#[case::weak_flag("st.release.sys.global.u32 [%f], 1;", "ld.global.u32 %r0, [%f];", &["race, read after write: synchronisation between ranks is missing between"])]
#[case::narrow_flag("atom.global.add.u32 %r0, [%f], 1;", "atom.global.add.u32 %r0, [%f], 1;", &["race, write after write: a scope that includes both is missing between"])]
#[case::wide_flag("atom.sys.global.add.u32 %r0, [%f], 1;", "atom.sys.global.add.u32 %r0, [%f], 1;", &[])]
#[case::sizes("st.relaxed.sys.global.u64 [%f], 1;", "ld.relaxed.sys.global.u32 %r0, [%f];", &["race of different sizes, read after write: synchronisation between ranks is missing between"])]
#[case::neighbours("st.global.u8 [%d], 1; ld.global.u8 %r0, [%d+2];", "st.global.u8 [%d+1], 1; st.global.u8 [%d+3], 1;", &[])]
#[case::the_same_byte("st.global.u32 [%d], 1;", "st.global.u8 [%d+3], 1;", &["race, write after write: synchronisation between ranks is missing between"])]
#[case::non_coherent("st.global.u32 [%d], 1; st.release.sys.global.u32 [%f], 1;", "ld.acquire.sys.global.u32 %r0, [%f]; ld.global.nc.u32 %r1, [%d];", &["non-coherent read, read after write: a kernel boundary is missing between"])]
#[case::reads("ld.global.u32 %r0, [%d];", "ld.global.u32 %r0, [%d];", &[])]
fn accesses_that_race_or_do_not(#[case] first: &str, #[case] second: &str, #[case] expected: &[&str]) {
    assert_eq!(of_ranks(Profile::Ptx, &[first, second]), expected);
    assert_eq!(of_ranks(Profile::Hopper, &[first, second]), expected);
}

#[test]
fn a_weak_write_over_a_release_ends_it() {
    let bodies = [
        "st.global.u32 [%d], 1; st.release.sys.global.u32 [%f], 1; st.global.u32 [%f], 2;",
        "ld.acquire.sys.global.u32 %r0, [%f]; ld.global.u32 %r1, [%d];",
    ];
    assert!(of_ranks(Profile::Ptx, &bodies).iter().any(|line| line.ends_with("synchronisation between ranks is missing between")));
}

/// Of a race whose earlier access was strong, weak and strong again, each pair counts.
#[test]
fn a_strong_write_does_not_hide_a_weak_one() {
    let found =
        of_ranks(Profile::Ptx, &["st.global.u32 [%f], 1; st.relaxed.sys.global.u32 [%f], 2;", "ld.relaxed.sys.global.u32 %r0, [%f];"]);
    assert_eq!(found.len(), 1, "{found:?}");
}

/// Threads of one block of 64, on global memory that holds zeros.
#[rstest]
#[case::barrier("st.global.u32 [%dt], %t; bar.sync 0; sub.u32 %r0, 63, %t; mad.wide.u32 %l0, %r0, 4, %d; ld.global.u32 %r1, [%l0];", false)]
#[case::no_barrier("st.global.u32 [%dt], %t; sub.u32 %r0, 63, %t; mad.wide.u32 %l0, %r0, 4, %d; ld.global.u32 %r1, [%l0];", true)]
#[case::own("st.global.u32 [%dt], %t; ld.global.u32 %r1, [%dt]; st.global.u32 [%dt], %r1; ld.global.u16 %r2, [%dt+2];", false)]
#[case::shared(
    "mov.u32 %r2, block; mad.lo.u32 %r2, %t, 4, %r2; st.shared.u32 [%r2], %t; xor.b32 %r3, %r2, 4; ld.shared.u32 %r1, [%r3];",
    true
)]
#[case::warp(
    "st.global.u32 [%dt], %t; bar.warp.sync -1; xor.b32 %r0, %t, 1; mad.wide.u32 %l0, %r0, 4, %d; ld.global.u32 %r1, [%l0];",
    false
)]
#[case::half_a_warp(
    "st.global.u32 [%dt], %t; and.b32 %r3, %t, 16; shl.b32 %r3, 65535, %r3; bar.warp.sync %r3; xor.b32 %r0, %t, 16; mad.wide.u32 %l0, %r0, 4, %d; ld.global.u32 %r1, [%l0];",
    true
)]
#[case::other_warp(
    "st.global.u32 [%dt], %t; bar.warp.sync -1; xor.b32 %r0, %t, 32; mad.wide.u32 %l0, %r0, 4, %d; ld.global.u32 %r1, [%l0];",
    true
)]
#[case::shuffle(
    "st.global.u32 [%dt], %t; shfl.sync.bfly.b32 %r3, %t, 1, 31, -1; xor.b32 %r0, %t, 1; mad.wide.u32 %l0, %r0, 4, %d; ld.global.u32 %r1, [%l0];",
    true
)]
#[case::minimum(
    "st.global.u32 [%dt], %t; redux.sync.min.u32 %r3, %t, -1; xor.b32 %r0, %t, 1; mad.wide.u32 %l0, %r0, 4, %d; ld.global.u32 %r1, [%l0];",
    true
)]
#[case::arrival(
    "setp.lt.u32 %p0, %t, 32; @!%p0 bra W; st.global.u32 [%dt], %t; bar.arrive 1, 64; bra D;\nW: bar.sync 1, 64; ld.global.u32 %r1, [%dt+-128];\nD:",
    false
)]
#[case::after_arrival(
    "setp.lt.u32 %p0, %t, 32; @!%p0 bra W; bar.arrive 1, 64; st.global.u32 [%dt], %t; bra D;\nW: bar.sync 1, 64; ld.global.u32 %r1, [%dt+-128];\nD:",
    true
)]
#[case::arrivals_learn_nothing(
    "setp.lt.u32 %p0, %t, 32; @%p0 bra W; st.global.u32 [%dt], %t; bar.sync 1, 64; bra D;\nW: bar.arrive 1, 64; ld.global.u32 %r1, [%dt+128];\nD:",
    true
)]
#[case::cluster(
    "st.global.u32 [%dt], %t; barrier.cluster.arrive; barrier.cluster.wait; xor.b32 %r0, %t, 32; mad.wide.u32 %l0, %r0, 4, %d; ld.global.u32 %r1, [%l0];",
    false
)]
#[case::relaxed_cluster(
    "st.global.u32 [%dt], %t; barrier.cluster.arrive.relaxed; barrier.cluster.wait; xor.b32 %r0, %t, 32; mad.wide.u32 %l0, %r0, 4, %d; ld.global.u32 %r1, [%l0];",
    true
)]
#[case::one_writes_what_all_read("ld.global.u32 %r1, [%d]; setp.ne.u32 %p0, %t, 0; @%p0 bra D; st.global.u32 [%d], 1;\nD:", true)]
#[case::one_writes_after_a_barrier(
    "ld.global.u32 %r1, [%d]; bar.sync 0; setp.ne.u32 %p0, %t, 0; @%p0 bra D; st.global.u32 [%d], 1;\nD:",
    false
)]
#[case::lanes_write_one_place("st.global.u32 [%d], %t;", true)]
#[case::ended_threads_take_no_part(
    "setp.lt.u32 %p0, %t, 32; @!%p0 bra W; st.global.u32 [%dt], %t; exit;\nW: bar.sync 0; ld.global.u32 %r1, [%dt+-128];",
    true
)]
#[case::flag_in_a_block(
    "setp.lt.u32 %p0, %t, 32; @!%p0 bra W; st.global.u32 [%dt], %t; bar.warp.sync -1; st.release.cta.global.u32 [%f], 1; bra D;\nW: ld.acquire.cta.global.u32 %r0, [%f]; ld.global.u32 %r1, [%dt+-128];\nD:",
    false
)]
#[case::neighbour_s_release(
    "setp.lt.u32 %p0, %t, 32; @!%p0 bra W; st.global.u32 [%dt], %t; setp.ne.u32 %p1, %t, 0; @%p1 bra D; st.release.cta.global.u32 [%f], 1; bra D;\nW: ld.acquire.cta.global.u32 %r0, [%f]; ld.global.u32 %r1, [%dt+-128];\nD:",
    true
)]
#[case::first_phase_of_an_mbarrier(
    "setp.eq.u32 %p1, %t, 0; setp.ge.u32 %p0, %t, 32; @%p1 mbarrier.init.shared.b64 [block], 1; bar.sync 0;\n\
     @%p0 mbarrier.test_wait.parity.shared.b64 %p2, [block], 1; bar.sync 0; @%p0 bra W;\n\
     @%p1 st.global.u32 [%d], 1; @%p1 mbarrier.arrive.shared.b64 %l0, [block]; bra D;\n\
     W: mbarrier.test_wait.parity.shared.b64 %p2, [block], 0; @!%p2 bra W; ld.global.u32 %r1, [%d];\nD:",
    false
)]
#[case::own_release_below_another(
    "setp.eq.u32 %p0, %t, 0; setp.eq.u32 %p1, %t, 32;\n\
     @%p0 st.global.u32 [%d], 1; @%p0 atom.release.cta.global.add.u32 %r0, [%f+4], 1; barrier.cluster.arrive.relaxed; barrier.cluster.wait;\n\
     @%p1 atom.release.gpu.global.add.u32 %r0, [%f+4], 1; barrier.cluster.arrive.relaxed; barrier.cluster.wait;\n\
     @%p0 st.relaxed.cta.global.v2.u32 [%f], {5, 5}; barrier.cluster.arrive.relaxed; barrier.cluster.wait;\n\
     @%p1 ld.acquire.cta.global.u32 %r0, [%f+4]; @%p1 ld.global.u32 %r1, [%d];",
    false
)]
fn threads_of_a_block(#[case] body: &str, #[case] race: bool) {
    let found = found(Profile::Ptx, &[(0, 0, 1, 64, body)]);
    assert_eq!(!found.is_empty(), race, "{found:?}");
    assert!(found.iter().all(|line| line.ends_with("a barrier is missing between")), "{found:?}");
}

/// Lanes of one atomic: the second does not learn what the first releases with it.
#[test]
fn lanes_of_one_instruction_do_not_acquire_from_each_other() {
    let body = "st.global.u32 [%dt], %t; atom.acq_rel.gpu.global.add.u32 %r0, [%f], 1; xor.b32 %r0, %t, 1; mad.wide.u32 %l0, %r0, 4, %d; ld.global.u32 %r1, [%l0];";
    assert_eq!(found(Profile::Ptx, &[(0, 0, 1, 2, body)]).len(), 1);
    let one_by_one = "st.global.u32 [%dt], %t; setp.eq.u32 %p0, %t, 0; @%p0 atom.acq_rel.gpu.global.add.u32 %r0, [%f], 1; @!%p0 atom.acq_rel.gpu.global.add.u32 %r0, [%f], 1; @%p0 bra D; ld.global.u32 %r1, [%dt+-4];\nD:";
    assert!(found(Profile::Ptx, &[(0, 0, 1, 2, one_by_one)]).is_empty());
}

#[rstest]
#[case::gpu("gpu", &[])]
#[case::cta("cta", &["race, read after write: a scope that includes both is missing between"])]
fn blocks_of_a_rank(#[case] scope: &str, #[case] expected: &[&str]) {
    let body = format!(
        "mov.u32 %r0, %ctaid.x; setp.ne.u32 %p0, %r0, 0; @%p0 bra W; {WRITE} st.release.{scope}.global.u32 [%f], 1; bra D;\n\
         W: ld.acquire.{scope}.global.u32 %r0, [%f]; {READ}\nD:"
    );
    let mut lines = found(Profile::Ptx, &[(0, 0, 2, 1, &body)]);
    lines.dedup();
    assert_eq!(lines, expected);
}

#[test]
fn kernels_of_a_stream_are_in_order_and_those_of_two_are_not() {
    let run = |stream| found(Profile::Ptx, &[(0, 0, 2, 64, "bar.sync 0; ld.global.u32 %r0, [%d];"), (0, stream, 1, 1, WRITE)]);
    assert!(run(0).is_empty());
    assert_eq!(run(1), ["race, write after read: synchronisation between streams is missing between"]);
}

/// A thread that ended before the others met took something, and what follows its kernel has it.
#[test]
fn what_ended_threads_acquired_is_known_to_the_next_kernel() {
    let publishes = format!("{WRITE} st.release.sys.global.u32 [%f], 1;");
    let takes = "setp.lt.u32 %p0, %t, 32; @!%p0 bra W; ld.acquire.sys.global.u32 %r0, [%f]; exit;\nW: bar.sync 0;";
    assert!(found(Profile::Ptx, &[(0, 0, 1, 1, &publishes), (1, 0, 1, 64, takes), (1, 0, 1, 1, READ)]).is_empty());
    let waits = "setp.lt.u32 %p0, %t, 32; @!%p0 bra W; exit;\nW: bar.sync 0;";
    assert_eq!(found(Profile::Ptx, &[(0, 0, 1, 1, &publishes), (1, 0, 1, 64, waits), (1, 0, 1, 1, READ)]).len(), 1);
}

/// If this fails, each call makes the next one slower: a word that atomics alone write goes on releasing what every call has released there.
#[test]
fn a_word_of_atomics_carries_what_is_new_of_each_rank() {
    let puts = "atom.release.sys.global.exch.b32 %r0, [%f], 1;";
    let takes = "atom.acquire.sys.global.exch.b32 %r0, [%f], 0;";
    let call: [Launch<'_>; 2] = [(0, 0, 2, 64, puts), (1, 0, 1, 1, takes)];
    let components = |calls: usize| {
        let (mut races, memory, flag) = run(Profile::Ptx, &call.repeat(calls));
        let place = memory.resolve(flag, 4, 0).unwrap();
        let page = races.shadow.page(place.allocation.index(), place.offset);
        page.location(0, 4).unwrap().components.len()
    };
    assert_eq!(components(12), components(3));
}

/// Of two lanes that write one vector, either's elements may be seen, whatever else the lanes know.
#[test]
fn lanes_may_tear_a_vector_that_they_write_to_one_place() {
    let torn = ["torn vector, write after write: not one access, and a barrier is missing between"];
    assert_eq!(found(Profile::Ptx, &[(0, 0, 1, 2, "st.relaxed.gpu.global.v2.u32 [%f], {%t, %t};")]), torn);
    assert!(found(Profile::Ptx, &[(0, 0, 1, 2, "st.relaxed.gpu.global.u32 [%f], %t;")]).is_empty());
}

/// What one_shot and two_shot rely on: each assumption has a finding in `ptx` that it waives in `hopper`.
#[rstest]
#[case::boundary(&[(0, 0, 1, 1, WRITE), (0, 0, 1, 1, "st.relaxed.sys.global.u32 [%f], 1;"), (1, 0, 1, 64, "ld.relaxed.sys.global.u32 %r0, [%f]; bar.sync 0; ld.global.u32 %r1, [%d];")],
    "race, read after write: a release and an acquire is missing between", Some("(boundary) "))]
#[case::no_boundary_between(&[(0, 0, 1, 1, "st.global.u32 [%d], 1; st.relaxed.sys.global.u32 [%f], 1;"), (1, 0, 1, 64, "ld.relaxed.sys.global.u32 %r0, [%f]; bar.sync 0; ld.global.u32 %r1, [%d];")],
    "race, read after write: a release and an acquire is missing between", None)]
#[case::boundary_and_narrow_flag(&[(0, 0, 1, 1, WRITE), (0, 0, 1, 1, "st.relaxed.sys.global.u32 [%f], 1;"), (1, 0, 1, 1, "ld.acquire.gpu.global.u32 %r0, [%f+4]; ld.global.u32 %r1, [%d];")],
    "race, read after write: synchronisation between ranks is missing between", None)]
#[case::end_acquires(&[(0, 0, 1, 1, PUBLISH), (1, 0, 1, 1, "ld.relaxed.sys.global.u32 %r0, [%f];"), (1, 0, 1, 1, READ)],
    "race, read after write: an acquire is missing between", Some("(boundary) "))]
#[case::end_acquires_for_all_threads(&[(0, 0, 1, 1, PUBLISH), (1, 0, 1, 1, "atom.relaxed.sys.global.add.u32 %r0, [%f], 1;"), (1, 0, 1, 64, "ld.global.u32 %r1, [%d];")],
    "race, read after write: an acquire is missing between", Some("(boundary) "))]
#[case::end_acquires_what_was_put_off(&[(0, 0, 1, 1, PUBLISH), (1, 0, 1, 32, "ld.relaxed.sys.global.u32 %r0, [%f]; bar.sync 0; st.release.sys.global.u32 [%f+8], 1;"), (1, 0, 1, 1, READ)],
    "race, read after write: an acquire is missing between", Some("(boundary) "))]
#[case::end_takes_no_narrow_flag(&[(0, 0, 1, 1, PUBLISH), (1, 0, 1, 1, "ld.relaxed.gpu.global.u32 %r0, [%f];"), (1, 0, 1, 1, READ)],
    "race, read after write: a release and an acquire is missing between", None)]
#[case::end_takes_nothing_unreleased(&[(0, 0, 1, 1, "st.global.u32 [%d], 1; st.relaxed.sys.global.u32 [%f], 1;"), (1, 0, 1, 1, "ld.relaxed.sys.global.u32 %r0, [%f];"), (1, 0, 1, 1, READ)],
    "race, read after write: a release and an acquire is missing between", None)]
#[case::no_end_between(&[(0, 0, 1, 1, PUBLISH), (1, 0, 1, 1, "ld.relaxed.sys.global.u32 %r0, [%f]; ld.global.u32 %r1, [%d];")],
    "race, read after write: an acquire is missing between", None)]
#[case::read_before(&[(0, 0, 1, 1, WRITE), (0, 0, 1, 1, "st.relaxed.sys.global.u32 [%f], 1;"), (1, 0, 1, 1, READS_AGAIN)],
    "race, read after write: a release and an acquire is missing between", Some("(boundary) "))]
#[case::retired(&[(0, 0, 1, 64, "ld.global.u32 %r0, [%d]; bar.sync 0; st.relaxed.sys.global.u32 [%f], 1;"), (1, 0, 1, 1, "ld.relaxed.sys.global.u32 %r0, [%f]; st.global.u32 [%d], 1;")],
    "race, write after read: a release and an acquire is missing between", Some("(retired) "))]
#[case::no_barrier_between(&[(0, 0, 1, 1, "ld.global.u32 %r0, [%d]; st.relaxed.sys.global.u32 [%f], 1;"), (1, 0, 1, 1, "ld.relaxed.sys.global.u32 %r0, [%f]; st.global.u32 [%d], 1;")],
    "race, write after read: a release and an acquire is missing between", None)]
#[case::retired_is_for_reads(&[(0, 0, 1, 1, "st.global.u32 [%d], 2; bar.sync 0; st.relaxed.sys.global.u32 [%f], 1;"), (1, 0, 1, 1, "ld.relaxed.sys.global.u32 %r0, [%f]; st.global.u32 [%d], 1;")],
    "race, write after write: a release and an acquire is missing between", None)]
#[case::lanes(&[(0, 0, 1, 32, "st.global.u32 [%d], 1;")], "race, write after write: a barrier is missing between", Some("(lanes) "))]
#[case::lanes_by_turns(&[(0, 0, 1, 32, "and.b32 %r0, %t, 1; mad.wide.u32 %l0, %r0, 8, %d; st.shared.u32 [block], 0; st.global.v2.u32 [%l0], {%r0, 7};")],
    "race, write after write: a barrier is missing between", Some("(lanes) "))]
#[case::lanes_and_one_apart(&[(0, 0, 1, 3, "shr.u32 %r0, %t, 1; mad.wide.u32 %l0, %r0, 4, %d; st.shared.u32 [block], 0; st.global.u32 [%l0], 7;")],
    "race, write after write: a barrier is missing between", Some("(lanes) "))]
#[case::lanes_of_several_values(&[(0, 0, 1, 32, "shr.u32 %r0, %t, 4; st.global.u32 [%d], %r0;")],
    "race, write after write: a barrier is missing between", None)]
#[case::lanes_of_two_warps(&[(0, 0, 1, 64, "st.global.u32 [%dt], 0; setp.ge.u32 %p0, %t, 33; @%p0 bra D; and.b32 %r0, %t, 32; setp.eq.u32 %p0, %r0, 32; @%p0 st.global.u32 [%d], 1;\nD:")],
    "race, write after write: a barrier is missing between", None)]
fn what_hopper_waives(#[case] launches: &[Launch<'_>], #[case] line: &str, #[case] waived: Option<&str>) {
    let of_kind = |profile| found(profile, launches).into_iter().filter(|found| found.ends_with(line)).collect::<Vec<_>>();
    assert_eq!(of_kind(Profile::Ptx), [line]);
    assert_eq!(of_kind(Profile::Hopper), [format!("{}{line}", waived.unwrap_or_default())]);
}

/// A block reads a word, another rank writes beside it, and a relaxed flag comes after a boundary: what the block's SM has kept is old, unless the block
/// has acquired since or reads past the cache.
#[rstest]
#[case::kept("", "ld.global.u32 %r1, [%d];", false)]
#[case::acquired("ld.acquire.gpu.global.u32 %r2, [%f+32];", "ld.global.u32 %r1, [%d];", true)]
#[case::acquired_in_the_block("ld.acquire.cta.global.u32 %r2, [%f+32];", "ld.global.u32 %r1, [%d];", false)]
#[case::fenced("fence.acq_rel.sys;", "ld.global.u32 %r1, [%d];", true)]
#[case::past_the_cache("", "ld.relaxed.sys.global.u32 %r1, [%d];", true)]
#[case::another_sector("", "ld.global.u32 %r1, [%d+32];", true)]
#[case::written("", "st.global.u32 [%d], 2;", true)]
fn what_a_cache_has_kept(#[case] between: &str, #[case] read: &str, #[case] waived: bool) {
    let polls = format!(
        "ld.global.u32 %r1, [%d+4];\nWAIT: ld.relaxed.sys.global.u32 %r0, [%f]; setp.eq.u32 %p0, %r0, 0; @%p0 bra WAIT;\n{between} {read}"
    );
    let others = [(0, "st.global.u32 [%d], 1; st.global.u32 [%d+32], 1;"), (0, "st.relaxed.sys.global.u32 [%f], 1;")];
    let found = found_beside(Profile::Hopper, (1, &polls), &others);
    let race = if waived { "(boundary) race, " } else { "race, read after write" };
    assert!(found.len() == 1 && found[0].starts_with(race), "{found:?}");
}

/// Of a vector that is granted to be one access nobody asks what else is missing.
#[test]
fn hopper_waives_torn_vectors() {
    let launches =
        [(0, 0, 1, 1, "st.relaxed.sys.global.v2.u32 [%f], {1, 1};"), (1, 0, 1, 1, "ld.relaxed.sys.global.v2.u32 {%r0, %r1}, [%f];")];
    let torn = |missing| format!("torn vector, read after write: not one access, and {missing} is missing between");
    assert_eq!(found(Profile::Ptx, &launches), [torn("synchronisation between ranks")]);
    assert_eq!(found(Profile::Hopper, &launches), [format!("(vector) {}", torn("order"))]);
}

/// One thread writes by a multicast address and reads by the place's own.
#[rstest]
#[case::no_fence(None, &["(alias) aliases without a fence, read after write: fence.proxy.alias is missing between"])]
#[case::fence(Some(Fence::Proxy(ProxyKind::Alias)), &[])]
#[case::another_fence(Some(Fence::Memory(Semantics::SequentiallyConsistent, ptx::Scope::Sys)), &["(alias) aliases without a fence, read after write: fence.proxy.alias is missing between"])]
fn aliases_need_a_fence(#[case] fence: Option<Fence>, #[case] expected: &[&str]) {
    let mut memory = Memory::new();
    let data = buffer(&mut memory, "data", 64, 1);
    let mut races = Races::new(Profile::Hopper, 1, 1, Vec::new()).unwrap();
    let launch = races.begin_launch(0, 0, &module(WRITE), "m", "k");
    let at = At { actor: races.begin_block(launch, 0, 0, 32), warp: 0, function: 0, pc: 0 };
    let weak = Access { space: Space::Global, semantics: Semantics::Weak, scope: None, hints: Box::default() };
    let access = |races: &mut Races, effect, multicast| {
        races.access(&memory, at, 1, &Touch { effect, access: &weak, element: 4, bytes: 4, multicast }, &[data.0; 32]);
    };
    access(&mut races, Effect::Store { agrees: false }, true);
    if let Some(fence) = fence {
        races.fence(at, 1, fence);
    }
    access(&mut races, Effect::Load, false);
    assert_eq!(told(&races, &memory), expected);
}

#[test]
fn copies_and_writes_of_words_are_ordered_by_their_stream_and_what_they_release() {
    let mut memory = Memory::new();
    let data = buffer(&mut memory, "data", 4096, 2);
    let mut races = Races::new(Profile::Ptx, 2, 2, Vec::new()).unwrap();
    let place = |offset| memory.resolve(data.plus(offset), 4, 0).unwrap();
    races.copy(0, 0, place(0), place(2048), 1000);
    races.fill(0, 0, place(2000), 600);
    races.write_value(0, 0, place(64));
    assert!(told(&races, &memory).is_empty());
    races.copy(0, 1, place(2048), place(3072), 8);
    assert_eq!(told(&races, &memory), ["race, read after write: synchronisation between streams is missing between"]);
    let calls = [(place(0), 8), (place(128), 8)];
    races.library_call(&[(0, 0), (1, 0)], &calls, &calls);
    races.fill(1, 0, place(2000), 600);
    assert_eq!(told(&races, &memory).len(), 2, "the call orders both streams, but not what stream 1 reads");
}

#[test]
fn copies_to_the_host_and_waits_read() {
    let mut memory = Memory::new();
    let data = buffer(&mut memory, "data", 64, 1);
    let mut races = Races::new(Profile::Ptx, 1, 3, Vec::new()).unwrap();
    let place = |offset| memory.resolve(data.plus(offset), 4, 0).unwrap();
    races.wait_value(0, 0, place(0));
    races.fetch(0, 1, place(0), 4);
    races.fetch(0, 1, place(32), 4);
    assert_eq!(told(&races, &memory), [""; 0], "both read");
    races.fill(0, 2, place(32), 4);
    assert_eq!(told(&races, &memory), ["race, write after read: synchronisation between streams is missing between"]);
}

/// A launch that starts before what is before it has ended: but never before a wait of its stream, whose word tells it of what was written.
#[test]
fn nothing_starts_before_a_wait_has_ended() {
    let mut memory = Memory::new();
    let (data, flag) = (buffer(&mut memory, "data", 64, 2), buffer(&mut memory, "flag", 64, 2));
    let mut races = Races::new(Profile::Ptx, 2, 1, Vec::new()).unwrap();
    let place = |address| memory.resolve(address, 4, 0).unwrap();
    races.fill(0, 0, place(data), 4);
    races.write_value(0, 0, place(flag));
    races.wait_value(1, 0, place(flag));
    let launch = races.begin_dependent_launch((1, 0), 0, &module(READ), "m", "k");
    let at = At { actor: races.begin_block(launch, 0, 0, 1), warp: 0, function: 0, pc: 0 };
    let weak = Access { space: Space::Global, semantics: Semantics::Weak, scope: None, hints: Box::default() };
    let touch = Touch { effect: Effect::Load, access: &weak, element: 4, bytes: 4, multicast: false };
    races.access(&memory, at, 1, &touch, &[data.0; 32]);
    assert_eq!(told(&races, &memory), [""; 0]);
}

/// A block that may start something beside itself.
fn starter(races: &mut Races) -> At {
    let launch = races.begin_launch(0, 0, &module(WRITE), "m", "k");
    At { actor: races.begin_block(launch, 0, 0, 32), warp: 0, function: 0, pc: 0 }
}

/// If this fails, each copy that a thread has waited for makes its next ones slower.
#[test]
fn copies_that_were_waited_for_are_one_actor() {
    let mut races = Races::new(Profile::Ptx, 1, 1, Vec::new()).unwrap();
    let at = starter(&mut races);
    let first = races.begin_flight(at, 0, Proxy::Generic).unwrap();
    races.land(first);
    races.learn_flights(at, 0, &[first], false);
    let second = races.begin_flight(at, 0, Proxy::Generic).unwrap();
    assert_eq!(second.actor(), first.actor());
    races.land(second);
    let third = races.begin_flight(at, 0, Proxy::Generic).unwrap();
    assert_ne!(third.actor(), first.actor(), "nobody has waited for the second");
}

/// If this fails, waits that give up are checked for races, or nothing is checked any more though none gave up.
#[rstest]
#[case::write(4, true, true)]
#[case::read(4, false, false)]
#[case::read_of_nothing(0, false, false)]
fn what_is_written_to_give_up_ends_the_check(#[case] bytes: u64, #[case] writes: bool, #[case] ends: bool) {
    let mut memory = Memory::new();
    let blame = buffer(&mut memory, "blame", 64, 1);
    let place = memory.resolve(blame, 4, 0).unwrap();
    let mut races = Races::new(Profile::Ptx, 1, 1, vec![place.allocation]).unwrap();
    let at = starter(&mut races);
    let flight = races.begin_flight(at, 0, Proxy::Generic).unwrap();
    races.fly(flight, place, bytes, writes, false, None);
    assert_eq!(races.ended, ends);
}

/// If this fails, kernels need fences for what kernels before them wrote.
#[test]
fn a_kernel_s_boundary_is_a_fence_of_all_proxies() {
    let copies = "mbarrier.init.shared.b64 [block+64], 1; fence.mbarrier_init.release.cluster;\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [block+64], 16;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [block], [%d], 16, [block+64];\n\
         W: mbarrier.try_wait.parity.shared::cta.b64 %p0, [block+64], 0; @!%p0 bra W;";
    assert_eq!(found(Profile::Ptx, &[(0, 0, 1, 1, WRITE), (0, 0, 1, 1, copies)]), [""; 0]);
}

/// A map that a thread of one block writes and releases, and that a thread of another, which hears of it, acquires and loads by.
#[rstest]
#[case::both(ptx::Scope::Gpu, ptx::Scope::Gpu, true)]
#[case::release_within_the_block(ptx::Scope::Cta, ptx::Scope::Gpu, false)]
#[case::acquire_within_the_block(ptx::Scope::Gpu, ptx::Scope::Cta, false)]
fn fences_of_maps_reach_as_far_as_they_say(#[case] release: ptx::Scope, #[case] acquire: ptx::Scope, #[case] ordered: bool) {
    let mut memory = Memory::new();
    let (map, flag) = (buffer(&mut memory, "map", 128, 1), buffer(&mut memory, "flag", 64, 1));
    let mut races = Races::new(Profile::Ptx, 1, 1, Vec::new()).unwrap();
    let launch = races.begin_launch(0, 0, &module(WRITE), "m", "k");
    let [writer, loader] = [0, 1].map(|block| At { actor: races.begin_block(launch, block, block, 64), warp: 1, function: 0, pc: 0 });
    let access = |races: &mut Races, at, effect, semantics, place: Address| {
        let scope = (semantics != Semantics::Weak).then_some(ptx::Scope::Gpu);
        let access = Access { space: Space::Global, semantics, scope, hints: Box::default() };
        races.access(&memory, at, 0b1000, &Touch { effect, access: &access, element: 4, bytes: 4, multicast: false }, &[place.0; 32]);
    };
    let store = Effect::Store { agrees: false };
    access(&mut races, writer, store, Semantics::Weak, map);
    races.fence(writer, 0b1000, Fence::TensormapRelease(release));
    access(&mut races, writer, store, Semantics::Release, flag);
    access(&mut races, loader, Effect::Load, Semantics::Acquire, flag);
    races.acquire_map(loader, 3, acquire, map.0);
    let flight = races.begin_flight(loader, 3, Proxy::Async).unwrap();
    races.look_at_map(flight, memory.resolve(map, 128, 0).unwrap(), map.0, 128);
    let told = told(&races, &memory);
    assert_eq!(told.is_empty(), ordered, "{told:?}");
    assert!(told.iter().all(|line| line.starts_with("tensor map without fences, read after write")), "{told:?}");
}

/// An mbarrier that the asynchronous proxy may not know, handed to one copy.
#[test]
fn an_mbarrier_without_a_fence_is_found_once() {
    let body = "mbarrier.init.shared.b64 [block+64], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [block+64], 16;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [block], [%d], 16, [block+64];\n\
         W: mbarrier.try_wait.parity.shared::cta.b64 %p0, [block+64], 0; @!%p0 bra W;";
    let found = reports(Profile::Ptx, &[(0, 0, 1, 1, body)]);
    assert_eq!(found.iter().map(|report| report.times).collect::<Vec<_>>(), [1], "{found:?}");
    assert!(found[0].text.ends_with("fence.mbarrier_init or fence.proxy.async is missing between; seen 1 times"), "{found:?}");
}

/// If this fails, a finding about one lane names what another lane of its warp lacks.
#[test]
fn lanes_miss_what_they_have_not_seen() {
    let publish = "st.global.u32 [%dt], 1; bar.sync 0; st.release.sys.global.u32 [%f], 1;";
    let take = "setp.eq.u32 %p0, %t, 0; @%p0 ld.relaxed.sys.global.u32 %r0, [%f]; ld.global.u32 %r1, [%dt];";
    let race = |missing| format!("race, read after write: {missing} is missing between");
    let expected = [race("an acquire"), race("synchronisation between ranks")];
    assert_eq!(found(Profile::Ptx, &[(0, 0, 1, 32, publish), (1, 0, 1, 32, take)]), expected);
}

/// If this fails, a word that many read has a record of each of them, though all but the last are known to be over.
#[test]
fn reads_that_are_known_are_forgotten() {
    let reads = "ld.global.u32 %r1, [%f+32];";
    let bodies = [
        &format!("{reads} bar.sync 0; st.release.sys.global.u32 [%f], 1;"),
        &format!("ld.acquire.sys.global.u32 %r0, [%f]; {reads}"),
        reads,
    ];
    let launches: Vec<Launch<'_>> = bodies.iter().enumerate().map(|(rank, body)| (rank, 0, 1, 1, *body)).collect();
    let readers = |launches: &[Launch<'_>]| {
        let (mut races, memory, flag) = run(Profile::Ptx, launches);
        let place = memory.resolve(flag, 4, 0).unwrap();
        races.shadow.page(place.allocation.index(), 0).reads.iter().filter(|read| read.from == 32).count()
    };
    assert_eq!(readers(&launches[..2]), 1);
    assert_eq!(readers(&launches), 2, "rank 2 knows nothing of rank 1");
}

/// If this fails, what a kernel released to all ranks is lost where the next one releases to its own rank.
#[test]
fn a_narrow_release_takes_the_place_of_no_wide_one() {
    let launches = [
        (0, 0, 1, 1, "st.global.u32 [%d], 1; fence.acq_rel.sys; atom.relaxed.gpu.global.add.u32 %r0, [%f], 1;"),
        (0, 0, 1, 1, "fence.acq_rel.gpu; atom.relaxed.sys.global.add.u32 %r0, [%f], 1;"),
        (1, 0, 1, 1, "ld.acquire.sys.global.u32 %r0, [%f]; ld.global.u32 %r1, [%d];"),
    ];
    let found = reports(Profile::Ptx, &launches);
    assert!(!found.iter().any(|report| report.text.contains(" data+")), "{found:?}");
}

/// The two lanes of a write to one place, and the kernel's very first instruction.
#[test]
fn findings_name_lanes_and_instructions() {
    let body = "and.b32 %r0, %t, 1; mad.wide.u32 %l0, %r0, 8, %d; st.shared.u32 [block], 0; st.global.u32 [%l0], 7;";
    let found = reports(Profile::Hopper, &[(0, 0, 1, 32, body)]);
    let of_global = found.iter().find(|report| report.text.contains(" data+")).unwrap();
    assert!(of_global.text.contains("warp 0 lane 0, ") && of_global.text.contains("warp 0 lane 2, "), "{found:?}");
    let first = "st.shared.u32 [block], 0;";
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{{\n.shared .align 16 .b8 block[512];\n{first}\nret;\n}}\n"
    );
    let module = Arc::new(ptx::parse(&text).unwrap());
    let mut memory = Memory::new();
    let data = buffer(&mut memory, "data", 64, 1);
    let mut races = Races::new(Profile::Ptx, 1, 1, Vec::new()).unwrap();
    let launch = races.begin_launch(0, 0, &module, "m", "k");
    let at = At { actor: races.begin_block(launch, 0, 0, 32), warp: 0, function: 0, pc: 0 };
    let weak = Access { space: Space::Global, semantics: Semantics::Weak, scope: None, hints: Box::default() };
    let touch = Touch { effect: Effect::Store { agrees: false }, access: &weak, element: 4, bytes: 4, multicast: false };
    races.access(&memory, at, 0b11, &touch, &[data.0; 32]);
    let found = races.reports(&memory);
    assert!(found[0].text.contains("lane 0, Store (weak) at PTX 7:1"), "{found:?}");
}

#[test]
fn a_finding_names_both_accesses_and_counts_its_like() {
    let writes = "st.global.u32 [%dt], 1; bar.sync 0; st.relaxed.sys.global.u32 [%f], 1;";
    let reads = "ld.acquire.sys.global.u32 %r0, [%f]; ld.global.u32 %r1, [%d+136]; ld.global.u32 %r1, [%d+4];";
    let found = reports(Profile::Hopper, &[(0, 0, 1, 64, writes), (1, 1, 1, 1, reads), (1, 1, 1, 1, reads)]);
    assert_eq!(found.len(), 2, "one for each instruction: {found:?}");
    for (report, (bytes, lane)) in found.iter().zip([("136..140", "block 0 warp 1 lane 2"), ("4..8", "block 0 warp 0 lane 1")]) {
        let expected = [
            format!("race, read after write: rank 0 data+{bytes}, by rank 0 stream 0 operation 0 k, {lane}, Store (weak) at PTX 9:1"),
            "and then by rank 1 stream 1 operation 0 k, block 0 warp 0 lane 0, Load (weak) at PTX 9:".into(),
            "a release is missing between; seen 2 times".into(),
        ];
        for part in expected {
            assert!(report.text.contains(&part), "{}\nhas no {part}", report.text);
        }
        assert_eq!((report.times, report.assumption), (2, None));
    }
}

/// The slot of a Lamport protocol: rank 1's store, what rank 0 does, what rank 1 does then. A write that was seen precedes what follows the read; of
/// what is not seen, and of what comes after the reset, nothing is said.
#[rstest]
#[case::seen("st.relaxed.sys.global.u32 [%d], 1;", "ld.relaxed.sys.global.u32 %r0, [%d]; st.global.u32 [%d], 0;", "", &[])]
#[case::seen_volatile("st.volatile.global.u32 [%d], 1;", "ld.volatile.global.u32 %r0, [%d]; st.global.u32 [%d], 0;", "", &[])]
#[case::read_again("st.relaxed.sys.global.u32 [%d], 1;", "ld.relaxed.sys.global.u32 %r0, [%d]; ld.global.u32 %r0, [%d]; st.global.u32 [%d], 0;", "", &[])]
#[case::element_by_element("st.relaxed.sys.global.u32 [%d], 1; st.relaxed.sys.global.u32 [%d+4], 1;", "ld.relaxed.sys.global.u32 %r0, [%d]; ld.relaxed.sys.global.u32 %r0, [%d+4]; st.global.v2.u32 [%d], {0, 0};", "", &[])]
#[case::not_seen("st.relaxed.sys.global.u32 [%d], 1;", "st.global.u32 [%d], 0;", "", &["race, write after write: synchronisation between ranks is missing between"])]
#[case::seen_by_a_weak_load("st.relaxed.sys.global.u32 [%d], 1;", "ld.global.u32 %r0, [%d]; st.global.u32 [%d], 0;", "", &["race, read after write: synchronisation between ranks is missing between", "race, write after write: synchronisation between ranks is missing between"])]
#[case::half_seen("st.relaxed.sys.global.u32 [%d], 1; st.relaxed.sys.global.u32 [%d+4], 1;", "ld.relaxed.sys.global.u32 %r0, [%d]; st.global.v2.u32 [%d], {0, 0};", "", &["race, write after write: synchronisation between ranks is missing between"])]
#[case::only_a_flag_seen("st.relaxed.sys.global.u32 [%d], 1; st.relaxed.sys.global.u32 [%f], 1;", "ld.relaxed.sys.global.u32 %r0, [%f]; st.global.u32 [%d], 0;", "", &["race, write after write: a release and an acquire is missing between"])]
#[case::what_came_before("st.global.u32 [%d+4], 1; st.relaxed.sys.global.u32 [%d], 1;", "ld.relaxed.sys.global.u32 %r0, [%d]; st.global.u32 [%d+4], 0;", "", &["race, write after write: a release and an acquire is missing between"])]
#[case::narrow("st.relaxed.gpu.global.u32 [%d], 1;", "ld.relaxed.sys.global.u32 %r0, [%d]; st.global.u32 [%d], 0;", "", &["race, read after write: a scope that includes both is missing between", "race, write after write: a release and an acquire is missing between"])]
#[case::next_store("st.relaxed.sys.global.u32 [%d], 1;", "ld.relaxed.sys.global.u32 %r0, [%d]; st.global.u32 [%d], 0; st.relaxed.sys.global.u32 [%f], 1;", "ld.relaxed.sys.global.u32 %r0, [%f]; st.relaxed.sys.global.u32 [%d], 2;", &["race, write after write: a release and an acquire is missing between"])]
#[case::next_store_released("st.relaxed.sys.global.u32 [%d], 1;", "ld.relaxed.sys.global.u32 %r0, [%d]; st.global.u32 [%d], 0; st.release.sys.global.u32 [%f], 1;", "ld.acquire.sys.global.u32 %r0, [%f]; st.relaxed.sys.global.u32 [%d], 2;", &[])]
#[case::counted("red.relaxed.sys.global.add.u32 [%d], 1;", "red.relaxed.sys.global.add.u32 [%d], 1; ld.relaxed.sys.global.u32 %r0, [%d]; st.global.u32 [%d], 0;", "", &[])]
#[case::counted_too_near("red.relaxed.gpu.global.add.u32 [%d], 1;", "red.relaxed.sys.global.add.u32 [%d], 1; ld.relaxed.sys.global.u32 %r0, [%d]; st.global.u32 [%d], 0;", "", &["race, write after write: a scope that includes both is missing between", "race, read after write: a scope that includes both is missing between", "race, write after write: a release and an acquire is missing between"])]
#[case::stored_over("st.relaxed.sys.global.u32 [%d], 1;", "st.relaxed.sys.global.u32 [%d], 1; ld.relaxed.sys.global.u32 %r0, [%d]; st.global.u32 [%d], 0;", "", &["race, write after write: synchronisation between ranks is missing between"])]
fn what_a_strong_read_saw_is_ordered(#[case] store: &str, #[case] reset: &str, #[case] next: &str, #[case] expected: &[&str]) {
    let launches = [(1, 0, 1, 1, store), (0, 0, 1, 1, reset), (1, 0, 1, 1, next)];
    assert_eq!(found(Profile::Ptx, &launches), expected);
}

/// The slots of a call are reset by the kernel of the next one, and written again after another boundary: nothing but that waives it.
#[test]
fn a_boundary_waives_the_next_store_into_a_slot() {
    let reset = "ld.relaxed.sys.global.u32 %r0, [%d]; st.global.u32 [%d], 0;";
    let launches = [
        (1, 0, 1, 1, "st.relaxed.sys.global.u32 [%d], 1;"),
        (0, 0, 1, 1, reset),
        (0, 0, 1, 1, "st.relaxed.sys.global.u32 [%f], 1;"),
        (1, 0, 1, 1, "ld.relaxed.sys.global.u32 %r0, [%f]; st.relaxed.sys.global.u32 [%d], 2;"),
    ];
    assert_eq!(found(Profile::Hopper, &launches), ["(boundary) race, write after write: a release and an acquire is missing between"]);
}

/// A look before the store, another writer's store, and a barrier between who looks and who resets.
#[test]
fn what_was_seen_is_what_was_there_last() {
    let (look, reset) = ("ld.relaxed.sys.global.u32 %r0, [%d];", "st.global.u32 [%d], 0;");
    let store = "st.relaxed.sys.global.u32 [%d], 1;";
    let race = "race, write after write: synchronisation between ranks is missing between";
    assert_eq!(found(Profile::Ptx, &[(0, 0, 1, 1, look), (1, 0, 1, 1, store), (0, 0, 1, 1, reset)]), [race]);
    let all = format!("{look} {reset}");
    let unseen = found(Profile::Ptx, &[(1, 0, 1, 1, store), (2, 0, 1, 1, store), (0, 0, 1, 1, &all)]);
    assert_eq!(unseen, [race], "of rank 1: rank 2's was seen");
    let by_thread = |between: &str| {
        let body = format!("setp.eq.u32 %p0, %t, 0; @%p0 {look} {between} setp.eq.u32 %p0, %t, 40; @%p0 {reset}");
        found(Profile::Ptx, &[(1, 0, 1, 1, store), (0, 0, 1, 64, &body)])
    };
    assert_eq!(by_thread("bar.sync 0;"), [""; 0]);
    assert_eq!(by_thread("").len(), 2, "of the peer's store and of the look");
}

/// If this fails, a run with many findings does not say that there were more, or loses those that are waived: loops that compilers unroll have hundreds.
#[test]
fn no_finding_is_lost() {
    let each = |body: fn(u32) -> String| (0..100).map(body).collect::<String>();
    let launches = |store: &str, load: &str| {
        let writes = each(|i| format!("STORE [%d+{}], {{1, 1}};\n", 8 * i)).replace("STORE", store);
        let reads = each(|i| format!("LOAD {{%r0, %r1}}, [%d+{}];\n", 8 * i)).replace("LOAD", load);
        reports(Profile::Hopper, &[(0, 0, 1, 1, &writes), (1, 0, 1, 1, &reads)])
    };
    let waived = launches("st.relaxed.sys.global.v2.u32", "ld.relaxed.sys.global.v2.u32");
    assert_eq!(waived.iter().filter(|report| report.assumption == Some("vector")).count(), 100);
    assert_eq!(waived.len(), 100);
    let races = launches("st.global.v2.u32", "ld.global.v2.u32");
    let last = races.last().unwrap();
    assert_eq!(races.len(), 17);
    assert_eq!((last.assumption, last.times), (None, 84));
    assert_eq!(last.text, "84 more pairs of instructions and operations race, which are not told one by one; seen 84 times");
}

/// What a bulk copy reads through the async proxy: the fence must be of the memory that was written.
#[rstest]
#[case::of_all("fence.proxy.async;", true, true)]
#[case::of_shared("fence.proxy.async.shared::cta;", true, false)]
#[case::of_global("fence.proxy.async.global;", false, true)]
#[case::none("", false, false)]
fn proxy_fences_know_their_space(#[case] fence: &str, #[case] of_shared: bool, #[case] of_global: bool) {
    let from_shared = format!(
        "st.shared.v4.u32 [block], {{1, 1, 1, 1}}; {fence}\n\
         cp.async.bulk.global.shared::cta.bulk_group [%d], [block], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    );
    let from_global = format!(
        "mbarrier.init.shared.b64 [block+64], 1; fence.mbarrier_init.release.cluster; st.global.v4.u32 [%d], {{1, 1, 1, 1}}; {fence}\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [block+64], 16;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [block], [%d], 16, [block+64];\n\
         W: mbarrier.try_wait.parity.shared::cta.b64 %p0, [block+64], 0; @!%p0 bra W;"
    );
    for (body, is_ordered) in [(from_shared, of_shared), (from_global, of_global)] {
        let found = found(Profile::Ptx, &[(0, 0, 1, 1, &body)]);
        assert_eq!(found.is_empty(), is_ordered, "{body}\n{found:?}");
        assert!(found.iter().all(|line| line.ends_with("fence.proxy.async is missing between")), "{found:?}");
    }
}

/// Who wrote bytes of a buffer last, by rank and operation.
fn wrote(races: &Races, memory: &Memory, at: Address, bytes: u64) -> Vec<(usize, u32)> {
    let writers = races.writers(memory.resolve(at, bytes, 0).unwrap(), bytes).unwrap();
    writers.into_iter().map(|writer| (writer.rank, writer.operation.1)).collect()
}

/// If this fails, a hang says of a word that somebody else wrote it last, or leaves out one of those who counted it up.
#[test]
fn last_writers_of_a_word() {
    let store = |rank, value: &'static str| -> Launch<'static> { (rank, 0, 1, 1, value) };
    let (one, two) = ("st.release.sys.global.u32 [%f], 1;", "st.release.sys.global.u32 [%f], 2;");
    let (races, memory, flag) = run(Profile::Hopper, &[store(1, one), store(0, two), store(1, "ld.acquire.sys.global.u32 %r1, [%f];")]);
    assert_eq!(wrote(&races, &memory, flag, 4), [(0, 0)], "who read it after that is no writer");
    assert_eq!(wrote(&races, &memory, flag.plus(4), 4), []);
    assert_eq!(wrote(&races, &memory, flag.plus(2), 4), [(0, 0)], "a part of it");
    let writers = races.writers(memory.resolve(flag, 4, 0).unwrap(), 4).unwrap();
    assert_eq!((writers[0].operation, &*writers[0].at), ((0, 0), "k, PTX 9:1"));

    let (races, memory, flag) = run(Profile::Hopper, &[store(1, one), store(1, two)]);
    assert_eq!(wrote(&races, &memory, flag, 4), [(1, 1)]);

    let count = "red.relaxed.sys.global.add.u32 [%f], 1;";
    let (races, memory, flag) = run(Profile::Hopper, &[store(0, count), store(2, count)]);
    assert_eq!(wrote(&races, &memory, flag, 4), [(0, 0), (2, 0)]);

    let (first, second) = ("st.global.u32 [%d+508], 1;", "st.global.u32 [%d+512], 1;");
    let (mut races, memory, flag) = run(Profile::Hopper, &[store(1, first), store(0, second)]);
    // The buffer before it, a window further down.
    let data = Address(flag.0 - (1 << 36));
    assert_eq!(wrote(&races, &memory, data.plus(508), 8), [(0, 0), (1, 0)], "of two pages");
    assert_eq!(wrote(&races, &memory, data.plus(504), 4), []);
    races.ended = true;
    assert_eq!(races.writers(memory.resolve(data, 4, 0).unwrap(), 4), None, "nobody has watched since");
}
