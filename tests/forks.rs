//! Side streams of plans and products of matrices, on the emulator: what forks and joins order, what they leave unordered, and what is refused.

use std::{sync::Arc, time::Duration};

use half::bf16;
use passmuster::{
    algorithms::all_gather_matmul::{self, AllGatherMatmul},
    collective::{Collective, DType, Layout, Product, ReduceOp},
    emulator::{Emulator, EmulatorOptions, Interleaving, Profile},
    machine::{Machine, MachineError, Run},
    plan::{BufferSpec, MatmulCall, NcclCall, Op, Operands, Plan, RankCall, Region, Role, Script, Step},
};
use rstest::rstest;

const DEADLINE: Duration = Duration::from_secs(60);

fn data(at: u64) -> Region {
    Region::new("data", at, 16)
}

fn copy(from: u64, to: u64) -> Op {
    Op::Copy { from: data(from), to: data(to), to_rank: None }
}

fn fill(at: u64, byte: u8) -> Op {
    Op::Fill { region: data(at), byte }
}

fn fork(stream: usize, ops: impl Into<Vec<Op>>) -> Op {
    Op::Fork { stream, ops: ops.into() }
}

fn join(stream: usize) -> Op {
    Op::Join { stream }
}

/// Runs operations on every rank of a group of two, in the how manieth schedule; the first 64 bytes of rank 0's data.
fn run(schedule: usize, ops: &[Op]) -> Result<(Run, Vec<u8>), MachineError> {
    let mut machine = Emulator::new(EmulatorOptions { profile: Profile::Ptx, ..EmulatorOptions::default() });
    machine.set_interleaving(Interleaving::nth(1, schedule));
    let group = machine.open_group(2, &[BufferSpec::new("data", 64, Role::State)])?;
    let plan = Arc::new(Plan::per_rank("forks", 2, |_| ops.to_vec()));
    let capture = Step::Capture { graph: 0, group, plans: vec![plan.clone()] };
    let has_marks = plan.operations(0).any(|op| *op == Op::Mark);
    let enqueue = Step::Enqueue { group, stream: 1, plan };
    let steps = if has_marks { vec![enqueue] } else { vec![enqueue, capture, Step::Replay { graph: 0, stream: 1 }] };
    let run = machine.run(&Script { steps }, DEADLINE)?;
    Ok((run, machine.read(group, 0, &Region::new("data", 0, 64))?))
}

#[test]
fn a_fork_comes_after_what_was_before_and_a_join_after_what_was_forked() {
    for schedule in 0..9 {
        let ops = [fill(0, 1), fork(1, [copy(0, 16)]), fork(2, [copy(0, 32)]), join(1), copy(16, 48), join(2), fill(0, 9)];
        let (_, data) = run(schedule, &ops).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!([data[0], data[16], data[32], data[48]], [9, 1, 1, 1]);
    }
}

/// What one side stream was handed before comes first.
#[test]
fn a_side_stream_keeps_its_order() {
    for schedule in 0..9 {
        let ops = [fork(1, [fill(0, 1), copy(0, 16)]), fork(1, [fill(0, 2)]), fork(1, [copy(0, 32)]), join(1)];
        let (_, data) = run(schedule, &ops).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!([data[16], data[32]], [1, 2]);
    }
}

/// If this fails, a race between the streams of a plan goes unseen.
#[rstest]
#[case::beside(&[fill(0, 1), fork(1, [copy(0, 16)]), fill(0, 2), join(1)])]
#[case::between_sides(&[fork(1, [fill(0, 1)]), fork(2, [copy(0, 16)]), join(1), join(2)])]
#[case::other_side_joined(&[fork(1, [fill(0, 1)]), fork(2, [fill(16, 1)]), join(2), copy(0, 32), join(1)])]
// The fill comes after the first fork, and only the second one knows of it.
#[case::first_of_two_forks(&[fork(1, [copy(0, 16)]), fill(0, 2), fork(1, [copy(0, 32)]), join(1)])]
fn what_is_not_joined_races(#[case] ops: &[Op]) {
    for schedule in 0..9 {
        let error = run(schedule, ops).unwrap_err();
        let MachineError::Races { findings, ended: None, .. } = &error else { panic!("{error}") };
        assert!(findings[0].contains("synchronisation between streams"), "{error}");
    }
}

#[rstest]
#[case::not_joined(&[fork(1, [fill(0, 1)])], "side stream 1 is forked to and not joined")]
#[case::nothing_to_join(&[join(2)], "join side stream 2: nothing was forked to it since it was joined")]
#[case::number(&[fork(4, [fill(0, 1)]), join(4)], "fork to side stream 4: side streams are 1 to 3")]
#[case::nested(&[fork(1, [fork(2, [fill(0, 1)])]), join(1)], "fork to side stream 1: fork to side stream 2: a side stream neither forks nor joins")]
#[case::empty(&[fork(1, []), join(1)], "fork to side stream 1: nothing is forked")]
fn a_plan_that_leaves_a_side_open_is_refused(#[case] ops: &[Op], #[case] why: &str) {
    let MachineError::Invalid { reason } = run(0, ops).unwrap_err() else { panic!("{why}") };
    assert_eq!(reason, format!("plan `forks` on group 0: rank 0: {why}"));
}

/// If this fails, times of side streams are lost, or taken for those of others.
#[test]
fn marks_are_in_the_order_of_the_plan() {
    let ops = [Op::Mark, fork(1, [fill(0, 1), Op::Mark]), fill(16, 1), Op::Mark, join(1), Op::Mark];
    let (run, _) = run(0, &ops).unwrap();
    assert_eq!((run.marks.len(), run.marks[0].len()), (3, 2));
    let mut machine = Emulator::new(EmulatorOptions::default());
    let group = machine.open_group(1, &[BufferSpec::new("data", 64, Role::State)]).unwrap();
    let plans = vec![Arc::new(Plan::per_rank("marked", 1, |_| vec![Op::Mark]))];
    let MachineError::Invalid { reason } =
        machine.run(&Script { steps: vec![Step::Capture { graph: 0, group, plans }] }, DEADLINE).unwrap_err()
    else {
        panic!("captured")
    };
    assert_eq!(reason, "plan `marked` on group 0: a mark is captured: times are noted in what is enqueued");
}

/// Ranks meet in library calls in the order in which they were enqueued, on whatever streams.
#[test]
fn library_calls_meet_on_side_streams() {
    let call = |input: u64, output: u64| {
        let (collective, dtype, op) = (Collective::AllReduce, DType::I32, ReduceOp::Sum);
        let call =
            RankCall { collective, dtype, op, count: 4, root: 0, factor: None, parts: None, input: data(input), output: data(output) };
        Op::Nccl(NcclCall { call, windows: false })
    };
    for schedule in 0..9 {
        let ops = [fill(0, 1), fork(1, [call(0, 16)]), call(0, 32), join(1)];
        let (_, data) = run(schedule, &ops).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((data[16], data[32]), (2, 2));
    }
}

/// A product of each rank on a side stream, beside a copy of the gathered A.
fn product(schedule: usize, early: bool) -> Result<(), MachineError> {
    let mut machine = Emulator::new(EmulatorOptions { profile: Profile::Ptx, ..EmulatorOptions::default() });
    machine.set_interleaving(Interleaving::nth(1, schedule));
    let product = Product { dtype: DType::BF16, rows: 3, columns: 8, depth: 16, layout: Layout::Kn };
    let of = |name: &str, elements| BufferSpec::new(name, 2 * elements, Role::Data);
    let specs = [
        of("a", product.a()),
        of("b", product.b()),
        of("c", product.c(1)),
        of("next", product.a()),
        BufferSpec::new("space", 64, Role::State),
    ];
    let group = machine.open_group(1, &specs)?;
    let [a, b, c, next, space] = &specs.each_ref().map(|spec| spec.whole());
    let integers = |count: u64, seed: u64| -> Vec<u8> {
        (0..count).flat_map(|i| bf16::from_f32(((i * 7 + seed) % 9) as f32 - 4.0).to_bits().to_le_bytes()).collect()
    };
    let (of_a, of_b) = (integers(product.a(), 1), integers(product.b(), 2));
    machine.write(group, 0, a, &of_a)?;
    machine.write(group, 0, b, &of_b)?;
    machine.write(group, 0, next, &of_b[..of_a.len()])?;
    let operands = Operands { a: a.clone(), b: b.clone(), c: c.clone() };
    let multiply = Op::Matmul(MatmulCall { product, operands, workspace: space.clone(), multiprocessors: None });
    let refill = Op::Copy { from: next.clone(), to: a.clone(), to_rank: None };
    let ops = if early { vec![fork(1, [multiply]), refill, join(1)] } else { vec![fork(1, [multiply]), join(1), refill] };
    let plan = Arc::new(Plan::per_rank("product", 1, |_| ops.clone()));
    machine.run(&Script { steps: vec![Step::Enqueue { group, stream: 0, plan }] }, DEADLINE)?;
    assert_eq!(machine.read(group, 0, c)?, product.reference(&of_a, &of_b));
    Ok(())
}

#[test]
fn a_product_is_that_of_the_reference_and_its_operands_are_watched() {
    for schedule in 0..9 {
        product(schedule, false).unwrap_or_else(|error| panic!("{error}"));
        let error = product(schedule, true).unwrap_err();
        let MachineError::Races { findings, ended: None, .. } = &error else { panic!("{error}") };
        assert!(findings[0].contains("rank 0 a+0..96"), "{error}");
    }
}

#[rstest]
#[case::a("a", 94, "a a[0..94] has 94 bytes, 3 x 16 elements of bf16 need 96")]
#[case::b("b", 0, "b b[0..0] has 0 bytes, 8 x 16 elements of bf16 need 256")]
fn a_product_with_an_operand_of_another_size_is_refused(#[case] name: &str, #[case] bytes: u64, #[case] why: &str) {
    let product = Product { dtype: DType::BF16, rows: 3, columns: 8, depth: 16, layout: Layout::Nk };
    let region = |of: &str, elements: u64| Region::new(of, 0, if of == name { bytes } else { 2 * elements });
    let operands = Operands { a: region("a", product.a()), b: region("b", product.b()), c: region("c", product.c(1)) };
    let call = MatmulCall { product, operands, workspace: Region::new("space", 0, 64), multiprocessors: None };
    assert_eq!(call.check(), Err(why.to_owned()));
    let other = MatmulCall { product: Product { dtype: DType::F32, ..product }, ..call };
    assert_eq!(other.check(), Err("dtype f32: products have bf16 and f16".to_owned()));
}

/// The ways to gather A and multiply it that need no tensor maps, on the emulator.
fn by_the_library() -> impl Iterator<Item = &'static dyn AllGatherMatmul> {
    all_gather_matmul::all().iter().copied().filter(|algorithm| !["pull", "fused"].contains(&algorithm.name()))
}

/// Three calls back to back of every rank, A and B of small integers, in a schedule; A of each rank, B of each rank and C of each rank.
fn gather_and_multiply(
    algorithm: &dyn AllGatherMatmul,
    product: &Product,
    world: u32,
    schedule: usize,
) -> Result<Vec<Vec<Vec<u8>>>, MachineError> {
    let mut machine = Emulator::new(EmulatorOptions { profile: Profile::Hopper, ..EmulatorOptions::default() });
    machine.set_interleaving(Interleaving::nth(1, schedule));
    let of = |name: &str, elements: u64| BufferSpec::new(name, 2 * elements, Role::Data);
    let specs = [of("a", product.a()), of("b", product.b()), of("c", product.c(world))];
    algorithm.supports(product, world, 4).unwrap();
    let group = machine.open_group(world as usize, &[&specs[..], &algorithm.workspace(product, world, 4)].concat())?;
    let operands = Operands { a: specs[0].whole(), b: specs[1].whole(), c: specs[2].whole() };
    for rank in 0..world as usize {
        for (region, seed) in [(&operands.a, rank), (&operands.b, 31 + rank)] {
            let integers =
                (0..region.bytes / 2).flat_map(|i| bf16::from_f32(((i * 7 + seed as u64) % 9) as f32 - 4.0).to_bits().to_le_bytes());
            machine.write(group, rank, region, &integers.collect::<Vec<u8>>())?;
        }
    }
    let plan = Arc::new(algorithm.plan(product, &operands, world, 4));
    let calls = (0..3).map(|_| Step::Enqueue { group, stream: 0, plan: plan.clone() }).collect();
    machine.run(&Script { steps: calls }, DEADLINE)?;
    let mut read = |region: &Region| (0..world as usize).map(|rank| machine.read(group, rank, region)).collect();
    [&operands.a, &operands.b, &operands.c].into_iter().map(&mut read).collect()
}

/// If this fails, copies, words and products of a gather are not ordered as they must be, or parts lie where they do not belong.
#[test]
fn gathers_by_streams_and_libraries_are_exact_and_do_not_race() {
    let product = Product { dtype: DType::BF16, rows: 5, columns: 8, depth: 16, layout: Layout::Nk };
    for algorithm in by_the_library() {
        for world in 1..=4 {
            for schedule in 0..3 {
                let [a, b, c]: [Vec<Vec<u8>>; 3] = gather_and_multiply(algorithm, &product, world, schedule)
                    .unwrap_or_else(|error| panic!("{} w={world}: {error}", algorithm.name()))
                    .try_into()
                    .unwrap();
                for rank in 0..world as usize {
                    assert!(c[rank] == product.reference(&a.concat(), &b[rank]), "{} w={world} rank {rank}", algorithm.name());
                }
            }
        }
    }
}

#[test]
fn kernels_with_tensor_maps_are_refused_here() {
    let product = Product { dtype: DType::BF16, rows: 5, columns: 8, depth: 16, layout: Layout::Nk };
    for name in ["pull", "fused"] {
        let error = gather_and_multiply(all_gather_matmul::find(name).unwrap(), &product, 2, 0).unwrap_err();
        assert!(error.to_string().contains("neither TMA nor wgmma"), "{error}");
    }
}
