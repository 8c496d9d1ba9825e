//! Side streams of plans and products of matrices, on the emulator: what forks and joins order, what they leave unordered, and what is refused.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use half::bf16;
use passmuster_harness::emulator::{Emulator, EmulatorOptions, Interleaving, Profile};
use passmuster_plan::{
    algorithms::{Registry, TensorParallel, TensorParallelFusion},
    collective::{Collective, DType, Layout, Product, ReduceOp, Shape},
    machine::{Machine, MachineError, Run},
    plan::{Arg, BufferSpec, Launch, MatmulCall, NcclCall, Op, Operands, Plan, RankCall, Region, Role, Script, Step, TensorMap},
};
use rstest::rstest;

const DEADLINE: Duration = Duration::from_secs(60);

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

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

/// Runs operations on every rank of a group of two, in the n-th schedule; the first 64 bytes of rank 0's data.
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
        Op::Nccl(NcclCall::of_all(call, false))
    };
    for schedule in 0..9 {
        let ops = [fill(0, 1), fork(1, [call(0, 16)]), call(0, 32), join(1)];
        let (_, data) = run(schedule, &ops).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((data[16], data[32]), (2, 2));
    }
}

/// A product of each rank on a side stream, whose operand of this name is overwritten beside it; A after it, if none is.
fn product(schedule: usize, early: Option<&str>) -> Result<(), MachineError> {
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
    let multiply = Op::Matmul(MatmulCall { product, operands, workspace: space.clone(), sms: None });
    let refill = Op::Copy { from: next.clone(), to: a.clone(), to_rank: None };
    let ops = match early {
        None => vec![fork(1, [multiply]), join(1), refill],
        Some("a") => vec![fork(1, [multiply]), refill, join(1)],
        _ => vec![fork(1, [multiply]), Op::Fill { region: b.clone(), byte: 1 }, join(1)],
    };
    let plan = Arc::new(Plan::per_rank("product", 1, |_| ops.clone()));
    machine.run(&Script { steps: vec![Step::Enqueue { group, stream: 0, plan }] }, DEADLINE)?;
    assert_eq!(machine.read(group, 0, c)?, product.reference(&of_a, &of_b));
    Ok(())
}

#[test]
fn a_product_is_that_of_the_reference_and_its_operands_are_watched() {
    for schedule in 0..9 {
        product(schedule, None).unwrap_or_else(|error| panic!("{error}"));
        for (operand, bytes) in [("a", 96), ("b", 256)] {
            let error = product(schedule, Some(operand)).unwrap_err();
            let MachineError::Races { findings, ended: None, .. } = &error else { panic!("{error}") };
            assert!(findings[0].contains(&format!("rank 0 {operand}+0..{bytes}")), "{error}");
        }
    }
}

#[rstest]
#[case::a("a", 94, "a a[0..94] has 94 bytes, 3 x 16 elements of bf16 need 96")]
#[case::b("b", 0, "b b[0..0] has 0 bytes, 8 x 16 elements of bf16 need 256")]
fn a_product_with_an_operand_of_another_size_is_refused(#[case] name: &str, #[case] bytes: u64, #[case] why: &str) {
    let product = Product { dtype: DType::BF16, rows: 3, columns: 8, depth: 16, layout: Layout::Nk };
    let region = |of: &str, elements: u64| Region::new(of, 0, if of == name { bytes } else { 2 * elements });
    let operands = Operands { a: region("a", product.a()), b: region("b", product.b()), c: region("c", product.c(1)) };
    let call = MatmulCall { product, operands, workspace: Region::new("space", 0, 64), sms: None };
    assert_eq!(call.check().map_err(String::from), Err(why.to_owned()));
    let c = Region::new("c", 8, 2 * product.c(1));
    let misaligned = MatmulCall { operands: Operands { a: region("", product.a()), b: region("", product.b()), c }, ..call.clone() };
    assert_eq!(misaligned.check().map_err(String::from), Err("c c[8..56] starts at byte 8, products need a multiple of 16".to_owned()));
    let other = MatmulCall { product: Product { dtype: DType::F32, ..product }, ..call };
    assert_eq!(other.check().map_err(String::from), Err("dtype f32: products have bf16 and f16".to_owned()));
}

/// The ways whose ranks meet by their streams, with stand-ins for kernels: one that pulls meets its peers itself.
fn emulated(half: TensorParallelFusion) -> impl Iterator<Item = &'static dyn TensorParallel> {
    let pulls = match half {
        TensorParallelFusion::Gather => "pull",
        TensorParallelFusion::Scatter => "fused",
    };
    REGISTRY.products(half).map(|algorithm| &**algorithm).filter(move |algorithm| algorithm.name() != pulls)
}

fn buffers(half: TensorParallelFusion, product: &Product, world: u32) -> [BufferSpec; 3] {
    let [a, b, c] = half.elements(product, world).map(|elements| 2 * elements);
    [("a", a), ("b", b), ("c", c)].map(|(name, bytes)| BufferSpec::new(name, bytes, Role::Data))
}

fn plan(half: TensorParallelFusion, algorithm: &dyn TensorParallel, product: &Product, world: u32) -> Plan {
    algorithm.supports(product, world, 4).unwrap();
    let [a, b, c] = buffers(half, product, world).map(|buffer| buffer.whole());
    algorithm.plan(product, &Operands { a, b, c }, world, 4)
}

/// The same with what is like them to the streams in place of kernels that take tensor maps, which the emulator does not know.
fn plan_with_stand_ins(half: TensorParallelFusion, algorithm: &dyn TensorParallel, product: &Product, world: u32) -> Plan {
    let mut plan = plan(half, algorithm, product, world);
    plan.ranks.iter_mut().for_each(|ops| *ops = with_stand_ins(product, ops));
    plan
}

/// C of each rank, of A and B of each.
fn expected(half: TensorParallelFusion, product: &Product, world: u32, a: &[Vec<u8>], b: &[Vec<u8>]) -> Vec<Vec<u8>> {
    match half {
        TensorParallelFusion::Gather => b.iter().map(|b| product.reference(&a.concat(), b)).collect(),
        TensorParallelFusion::Scatter => {
            let products: Vec<Vec<u8>> = a.iter().zip(b).map(|(a, b)| product.reference(a, b)).collect();
            Shape::new(Collective::ReduceScatter, world, product.c(1)).results(product.dtype, ReduceOp::Sum, &products)
        }
    }
}

/// Whether three calls back to back of every rank, one eager and two in a graph, on small integers, go well in a schedule; what is wrong.
fn run_product(
    half: TensorParallelFusion,
    algorithm: &dyn TensorParallel,
    product: &Product,
    plan: Plan,
    schedule: usize,
) -> Result<(), String> {
    let (world, said) = (plan.world(), |error: MachineError| error.to_string());
    let mut machine = Emulator::new(EmulatorOptions { profile: Profile::Hopper, ..EmulatorOptions::of(&REGISTRY) });
    machine.set_interleaving(Interleaving::nth(1, schedule));
    let specs = buffers(half, product, world as u32);
    let workspace = algorithm.workspace(product, world as u32, 4);
    let group = machine.open_group(world, &[&specs[..], &workspace, &[stand_in_memory()]].concat()).map_err(said)?;
    let mut drawn = |region: Region, seed: usize| -> Result<Vec<Vec<u8>>, String> {
        let of = |rank: usize| {
            let integer = |i: u64| bf16::from_f32(((i * 7 + (seed + rank) as u64) % 9) as f32 - 4.0).to_bits().to_le_bytes();
            let bytes: Vec<u8> = (0..region.bytes / 2).flat_map(integer).collect();
            machine.write(group, rank, &region, &bytes).map_err(said).map(|()| bytes)
        };
        (0..world).map(of).collect()
    };
    let (a, b) = (drawn(specs[0].whole(), 0)?, drawn(specs[1].whole(), 31)?);
    let plan = Arc::new(plan);
    let capture = Step::Capture { graph: 0, group, plans: vec![plan.clone()] };
    let replay = Step::Replay { graph: 0, stream: 0 };
    let steps = vec![capture, Step::Enqueue { group, stream: 0, plan }, replay.clone(), replay];
    machine.run(&Script { steps }, DEADLINE).map_err(said)?;
    for (rank, expected) in expected(half, product, world as u32, &a, &b).into_iter().enumerate() {
        if machine.read(group, rank, &specs[2].whole()).map_err(said)? != expected {
            return Err(format!("rank {rank}'s C is wrong"));
        }
    }
    Ok(())
}

/// Memory that the library is given, of products of [`with_stand_ins`].
fn stand_in_memory() -> BufferSpec {
    BufferSpec::new("library", 64, Role::State)
}

/// A rank's operations with waits, products of the library and copies in place of kernels with tensor maps.
fn with_stand_ins(product: &Product, ops: &[Op]) -> Vec<Op> {
    let library = |product, operands| Op::Matmul(MatmulCall { product, operands, workspace: Region::new("library", 0, 64), sms: None });
    let multiply = |a: &Region, b: &TensorMap, c: &Region| library(*product, Operands { a: a.clone(), b: b.region.clone(), c: c.clone() });
    let part = |of: &Region, number: u32, bytes: u64| Region::new(of.buffer.clone(), of.offset + u64::from(number) * bytes, bytes);
    let stand_in = |op: &Op| match op {
        Op::Launch(Launch { args, .. }) => match &args[..] {
            // Waits for a word of each peer before it reads its part of the gathered A.
            [
                Arg::TensorMap(own),
                Arg::TensorMap(all),
                Arg::TensorMap(b),
                Arg::TensorMap(c),
                Arg::Struct(raster),
                ..,
                Arg::Address(words),
                _,
                _,
                _,
            ] => {
                let [Arg::U32(world), Arg::U32(rank), ..] = raster[..] else { panic!("{raster:?}") };
                let c_part = |of| part(&c.region, of, c.region.bytes / u64::from(world));
                let mut ops = vec![multiply(&own.region, b, &c_part(rank))];
                for peer in (0..world).filter(|&peer| peer != rank) {
                    ops.push(Op::WaitValue { at: part(words, peer, 4), value: 1 });
                    ops.push(multiply(&part(&all.region, peer, own.region.bytes), b, &c_part(peer)));
                }
                ops
            }
            _ => vec![op.clone()],
        },
        Op::Fork { stream, ops } => vec![fork(*stream, with_stand_ins(product, ops))],
        _ => vec![op.clone()],
    };
    ops.iter().flat_map(stand_in).collect()
}

const SMALL: Product = Product { dtype: DType::BF16, rows: 5, columns: 8, depth: 16, layout: Layout::Nk };

/// If this fails, copies, words and products of a gather or a scatter are not ordered as they must be, or parts lie where they do not belong.
#[rstest]
#[case::gather(TensorParallelFusion::Gather)]
#[case::scatter(TensorParallelFusion::Scatter)]
fn streams_and_libraries_are_exact_and_do_not_race(#[case] half: TensorParallelFusion) {
    for algorithm in emulated(half) {
        for world in 1..=4 {
            for schedule in 0..3 {
                let plan = plan_with_stand_ins(half, algorithm, &SMALL, world);
                let what = plan.name.clone();
                run_product(half, algorithm, &SMALL, plan, schedule).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
        }
    }
}

/// A rank's operations with one part of their synchronisation removed, and what: a word that is not written or not waited for, a word written before
/// the copy that it tells of, a side stream that is joined too late or not at all.
fn with_less_synchronisation(ops: &[Op]) -> Vec<(String, Vec<Op>)> {
    let mut mutants = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        let mut without = ops.to_vec();
        without.remove(at);
        match op {
            Op::WaitValue { .. } | Op::WriteValue { .. } | Op::Join { .. } => mutants.push((format!("no {op}"), without.clone())),
            Op::Copy { .. } if matches!(ops.get(at + 1), Some(Op::WriteValue { .. })) => {
                let mut early = ops.to_vec();
                early.swap(at, at + 1);
                mutants.push((format!("{op} after its word"), early));
            }
            Op::Fork { stream, ops: forked } => mutants.extend(with_less_synchronisation(forked).into_iter().map(|(what, forked)| {
                let mut mutant = ops.to_vec();
                mutant[at] = Op::Fork { stream: *stream, ops: forked };
                (what, mutant)
            })),
            _ => {}
        }
        if matches!(op, Op::Join { .. }) && ops[at..].iter().any(|op| !matches!(op, Op::Join { .. })) {
            without.push(op.clone());
            mutants.push((format!("{op} at the end"), without));
        }
    }
    mutants
}

/// Every wait, word and join of one rank is there for something. If this fails, either it is not, or the emulator does not see its want.
#[rstest]
#[case::chunked_gather(TensorParallelFusion::Gather, "chunked", 16)]
#[case::fused_gather(TensorParallelFusion::Gather, "fused", 15)]
#[case::chunked_scatter(TensorParallelFusion::Scatter, "chunked", 16)]
fn less_synchronisation_is_caught(#[case] half: TensorParallelFusion, #[case] name: &str, #[case] count: usize) {
    let algorithm = &**REGISTRY.product(half, name).unwrap();
    let plan = plan_with_stand_ins(half, algorithm, &SMALL, 3);
    let mutants = with_less_synchronisation(&plan.ranks[1]);
    assert_eq!(mutants.len(), count);
    for (what, ops) in mutants {
        let mut mutant = plan.clone();
        mutant.ranks[1] = ops;
        assert!((0..9).any(|schedule| run_product(half, algorithm, &SMALL, mutant.clone(), schedule).is_err()), "{}: {what}", plan.name);
    }
}

#[test]
fn kernels_of_products_run_here_as_they_ship() {
    for (half, name) in
        [(TensorParallelFusion::Gather, "pull"), (TensorParallelFusion::Gather, "fused"), (TensorParallelFusion::Scatter, "fused")]
    {
        let algorithm = &**REGISTRY.product(half, name).unwrap();
        let ran = run_product(half, algorithm, &SMALL, plan(half, algorithm, &SMALL, 2), 0);
        assert!(ran.is_ok(), "{half}/{name}: {ran:?}");
    }
}
