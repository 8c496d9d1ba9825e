//! Plans as data: what a few calls are turned into, to be read in the diff, and what holds of every plan of every algorithm.
//!
//! If one of these failed, a machine would be handed an address outside a buffer, a kernel that does not exist, or blocks that wait for
//! blocks that are never resident; or a plan would depend on something besides its arguments, and a replayed graph would not be the call.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use passmuster_kernels::auto;
use passmuster_plan::{
    algorithms::{Algorithm, Protocol, Registry, Target},
    collective::{self, Collective, Counts, DType, ReduceOp},
    modules::{name_without_stalls, with_stalls},
    plan::{BufferSpec, Call, Launch, MAX_RANKS, Op, Plan, RankCall, Region, Role},
};
use proptest::prelude::*;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

/// What varies from call to call.
#[derive(Clone, Copy, Debug)]
struct Shape {
    collective: Collective,
    dtype: DType,
    op: ReduceOp,
    world: u32,
    /// Elements of a slot.
    count: u64,
    root: u32,
    /// Elements before the region in its buffer.
    offset: u64,
    in_place: bool,
}

impl Shape {
    const fn new(dtype: DType, op: ReduceOp, world: u32, count: u64) -> Shape {
        Shape { collective: Collective::AllReduce, dtype, op, world, count, root: 0, offset: 0, in_place: false }
    }

    /// The same of another collective, with an operator that it has, a root if it has one, and in place if it is ever done so.
    fn of(self, collective: Collective) -> Shape {
        let operators = collective.operators();
        let op = if operators.contains(&self.op) { self.op } else { operators[0] };
        let root = if collective.has_root() { self.root % self.world } else { 0 };
        Shape { collective, op, root, in_place: self.in_place && collective.has_in_place(), ..self }
    }

    const fn in_place(self) -> Shape {
        Shape { in_place: true, ..self }
    }

    const fn from(self, root: u32) -> Shape {
        Shape { root, ..self }
    }

    const fn at(self, offset: u64) -> Shape {
        Shape { offset, ..self }
    }

    /// The algorithm of this name that does it.
    fn algorithm(&self, name: &str) -> Arc<dyn Algorithm> {
        REGISTRY.find_for(self.collective, name, self.op).expect("a known algorithm")
    }

    /// The caller's buffers and the call that all ranks agree on.
    fn call(&self) -> (Vec<BufferSpec>, Call) {
        let Shape { collective, dtype, op, world, count, root, offset, in_place } = *self;
        let size = dtype.size();
        let elements = collective::Shape::new(collective, world, count);
        let buffer = |name: &str, elements: u64| BufferSpec::new(name, (offset + elements) * size, Role::Data);
        let region = |name: &str, elements: u64| Region::new(name, offset * size, elements * size);
        let larger = if elements.output() > elements.input() { "output" } else { "input" };
        let (input, output) = if in_place { (larger, larger) } else { ("input", "output") };
        let buffers = vec![buffer("input", elements.input()), buffer("output", elements.output())];
        let (input, output) = (region(input, elements.input()), region(output, elements.output()));
        let call = RankCall { collective, dtype, op, count, root, factor: None, parts: None, input, output };
        // Of every type, the bits of a number or two.
        let factors: Vec<u64> = (0..u64::from(world)).map(|rank| 0x30 + rank).collect();
        let call = match op {
            ReduceOp::PremulSum if collective.operators().contains(&op) => Call::with_factors(&call, &factors, &buffers),
            _ => Call::uniform(&call, world, &buffers),
        };
        (buffers, call.expect("a call that fits its buffers"))
    }
}

#[test]
fn plans_of_a_few_calls() {
    const BF16: DType = DType::BF16;
    const SUM: ReduceOp = ReduceOp::Sum;
    const PREMUL_SUM: ReduceOp = ReduceOp::PremulSum;
    const GATHER: Collective = Collective::AllGather;
    const SCATTER: Collective = Collective::ReduceScatter;
    const ALL_TO_ALL: Collective = Collective::AllToAll;
    const BROADCAST: Collective = Collective::Broadcast;
    const REDUCE: Collective = Collective::Reduce;
    // The last size at which `auto` takes what it takes first, in elements of bf16.
    let last = auto::thresholds(Collective::AllReduce, 2)[0] / 2;
    let last_gathered = auto::thresholds(GATHER, 2)[0] / 4;
    let last_exchanged = auto::thresholds(ALL_TO_ALL, 2)[0] / 4;
    let last_sent = auto::thresholds(BROADCAST, 4)[0] / 2;
    let last_gotten = auto::thresholds(REDUCE, 4)[0] / 2;
    let table: &[(&str, Shape)] = &[
        ("one_shot", Shape::new(BF16, SUM, 2, 1040)),
        ("one_shot", Shape::new(BF16, SUM, 2, 1040).in_place()),
        ("one_shot", Shape::new(BF16, SUM, 3, 1037).at(3).in_place()),
        ("one_shot", Shape::new(BF16, SUM, 2, 0)),
        ("one_shot", Shape::new(DType::F32, ReduceOp::Avg, 2, 16384)),
        ("two_shot", Shape::new(BF16, SUM, 2, 1040)),
        ("two_shot", Shape::new(BF16, SUM, 3, 1037).at(3).in_place()),
        ("two_shot", Shape::new(BF16, SUM, 2, 0)),
        ("two_shot", Shape::new(DType::I32, ReduceOp::Avg, 3, 1 << 20)),
        ("one_shot_push", Shape::new(BF16, SUM, 2, 1040)),
        ("one_shot_push", Shape::new(BF16, SUM, 3, 1037).at(3).in_place()),
        ("one_shot_push", Shape::new(BF16, SUM, 2, 0)),
        ("one_shot_push", Shape::new(DType::F64, ReduceOp::Avg, 2, 1 << 16)),
        ("two_shot_push", Shape::new(BF16, SUM, 2, 1040)),
        ("two_shot_push", Shape::new(BF16, SUM, 3, 1037).at(3).in_place()),
        ("two_shot_push", Shape::new(BF16, SUM, 2, 0)),
        ("two_shot_push", Shape::new(DType::F64, ReduceOp::Avg, 2, 1 << 16)),
        ("push", Shape::new(BF16, SUM, 2, 1040)),
        ("push", Shape::new(BF16, SUM, 3, 1037).at(3).in_place()),
        ("push", Shape::new(DType::F64, ReduceOp::Avg, 2, 1 << 16)),
        ("copy_engine", Shape::new(BF16, SUM, 2, 1040)),
        ("copy_engine", Shape::new(BF16, SUM, 3, 1037).at(3).in_place()),
        ("copy_engine", Shape::new(DType::F64, ReduceOp::Avg, 2, 1 << 16)),
        ("multimem", Shape::new(BF16, SUM, 2, 1040)),
        ("multimem", Shape::new(DType::F16, ReduceOp::Max, 3, 1037).at(3).in_place()),
        ("multimem_one_shot", Shape::new(DType::F32, SUM, 2, 1040)),
        ("multimem_one_shot", Shape::new(BF16, SUM, 3, 1037).at(3).in_place()),
        ("auto", Shape::new(BF16, SUM, 2, last)),
        ("auto", Shape::new(BF16, SUM, 2, last + 1)),
        ("nccl_ring", Shape::new(BF16, SUM, 2, 1040)),
        ("nccl_ring", Shape::new(DType::F64, ReduceOp::Max, 2, 5).in_place()),
        ("nccl_symmetric_ld_st", Shape::new(BF16, SUM, 3, 1037)),
        ("push", Shape::new(BF16, SUM, 2, 1040).of(GATHER)),
        ("push", Shape::new(DType::F64, SUM, 3, 1037).at(3).in_place().of(GATHER)),
        ("push", Shape::new(BF16, SUM, 2, 0).of(GATHER)),
        ("ll", Shape::new(BF16, SUM, 2, 1040).of(GATHER)),
        ("ll", Shape::new(DType::F64, SUM, 3, 1037).at(3).in_place().of(GATHER)),
        ("ll", Shape::new(BF16, SUM, 2, 0).of(GATHER)),
        ("copy_engine", Shape::new(BF16, SUM, 3, 1040).of(GATHER)),
        ("copy_engine", Shape::new(DType::F64, SUM, 2, 1037).at(3).in_place().of(GATHER)),
        ("copy_engine", Shape::new(BF16, SUM, 1, 7).of(GATHER)),
        ("multimem", Shape::new(BF16, SUM, 2, 1040).of(GATHER)),
        ("multimem", Shape::new(DType::F64, SUM, 3, 1037).at(3).in_place().of(GATHER)),
        ("auto", Shape::new(BF16, SUM, 2, last_gathered).of(GATHER)),
        ("auto", Shape::new(BF16, SUM, 2, last_gathered + 1).of(GATHER)),
        ("nccl_ring", Shape::new(BF16, SUM, 2, 1040).in_place().of(GATHER)),
        ("pull", Shape::new(BF16, SUM, 2, 1040).of(SCATTER)),
        ("pull", Shape::new(DType::I32, ReduceOp::Avg, 3, 1037).at(3).in_place().of(SCATTER)),
        ("push", Shape::new(BF16, SUM, 3, 1040).of(SCATTER)),
        ("push", Shape::new(BF16, SUM, 2, 1040).in_place().of(SCATTER)),
        ("push", Shape::new(BF16, SUM, 2, 1037).of(SCATTER)),
        ("ll", Shape::new(BF16, SUM, 2, 1040).of(SCATTER)),
        ("ll", Shape::new(DType::I32, ReduceOp::Avg, 3, 1037).at(3).in_place().of(SCATTER)),
        ("multimem", Shape::new(BF16, SUM, 3, 1037).at(3).in_place().of(SCATTER)),
        ("nccl_ring", Shape::new(BF16, SUM, 2, 1040).in_place().of(SCATTER)),
        ("push", Shape::new(BF16, SUM, 2, 1040).of(ALL_TO_ALL)),
        ("push", Shape::new(DType::F64, SUM, 3, 1037).at(3).of(ALL_TO_ALL)),
        ("ll", Shape::new(BF16, SUM, 2, 1040).of(ALL_TO_ALL)),
        ("ll", Shape::new(DType::F64, SUM, 3, 1037).at(3).of(ALL_TO_ALL)),
        ("copy_engine", Shape::new(BF16, SUM, 3, 1040).of(ALL_TO_ALL)),
        ("auto", Shape::new(BF16, SUM, 2, last_exchanged).of(ALL_TO_ALL)),
        ("auto", Shape::new(BF16, SUM, 2, last_exchanged + 1).of(ALL_TO_ALL)),
        ("nccl_send_recv", Shape::new(BF16, SUM, 2, 1040).of(ALL_TO_ALL)),
        ("push", Shape::new(BF16, SUM, 2, 1040).of(BROADCAST)),
        ("push", Shape::new(DType::F64, SUM, 3, 1037).from(2).at(3).in_place().of(BROADCAST)),
        ("pull", Shape::new(BF16, SUM, 2, 1040).of(BROADCAST)),
        ("pull", Shape::new(DType::F64, SUM, 3, 1037).from(2).at(3).in_place().of(BROADCAST)),
        ("auto", Shape::new(BF16, SUM, 4, last_sent).of(BROADCAST)),
        ("auto", Shape::new(BF16, SUM, 4, last_sent + 1).of(BROADCAST)),
        ("nccl_ring", Shape::new(BF16, SUM, 2, 1040).from(1).of(BROADCAST)),
        ("pull", Shape::new(BF16, SUM, 2, 1040).of(REDUCE)),
        ("pull", Shape::new(DType::I32, ReduceOp::Avg, 3, 1037).from(2).at(3).in_place().of(REDUCE)),
        ("push", Shape::new(BF16, SUM, 2, 1040).of(REDUCE)),
        ("push", Shape::new(DType::I32, ReduceOp::Avg, 3, 1037).from(2).at(3).in_place().of(REDUCE)),
        ("auto", Shape::new(BF16, SUM, 4, last_gotten).of(REDUCE)),
        ("auto", Shape::new(BF16, SUM, 4, last_gotten + 1).of(REDUCE)),
        ("nccl_ring", Shape::new(BF16, SUM, 2, 1040).from(1).of(REDUCE)),
        ("two_shot", Shape::new(DType::E4M3, SUM, 2, 1040)),
        ("one_shot_push", Shape::new(BF16, ReduceOp::Prod, 2, 1040)),
        ("pull", Shape::new(DType::I64, ReduceOp::Avg, 2, 1037).at(3).of(SCATTER)),
        ("push", Shape::new(DType::E5M2, SUM, 2, 1040).of(GATHER)),
        ("one_shot", Shape::new(BF16, PREMUL_SUM, 2, 1040)),
        ("auto", Shape::new(DType::F32, PREMUL_SUM, 2, 1037).at(3).in_place()),
        ("pull", Shape::new(DType::F64, PREMUL_SUM, 3, 1037).at(3).in_place().of(SCATTER)),
        ("pull", Shape::new(BF16, PREMUL_SUM, 2, 1040).from(1).in_place().of(REDUCE)),
        ("nccl_ring", Shape::new(BF16, PREMUL_SUM, 2, 1040)),
    ];
    let mut text = String::new();
    for (name, shape) in table {
        let algorithm = shape.algorithm(name);
        let (_, call) = shape.call();
        text += &format!("{}\n", algorithm.plan(&call, &Target::default()));
    }
    insta::assert_snapshot!(text);
}

/// Parts lie packed on both sides, those of no elements too.
#[test]
fn plans_of_parts() {
    let collective = Collective::AllToAll;
    let (buffers, whole) = Shape::new(DType::BF16, ReduceOp::Copy, 3, 9).at(3).of(collective).call();
    let counts = Counts::new(3, |sender, receiver| [[0, 1, 9], [0, 0, 0], [2, 9, 3]][sender as usize][receiver as usize]);
    let call = Call::with_counts(&whole.of_rank(0), 3, &counts, &buffers).expect("parts that fit");
    let plans = ["push", "copy_engine", "ll", "auto", "nccl_send_recv"].map(|name| {
        let algorithm = REGISTRY.find(collective, name).expect("a known algorithm");
        assert_eq!(algorithm.supports(&call), Ok(()), "{name}");
        algorithm.plan(&call, &Target::default()).to_string()
    });
    insta::assert_snapshot!(plans.join("\n"));
    // What counts is the longest part of any two ranks, not the size of slots of that many elements.
    let most = 128 << 10;
    let (buffers, whole) = Shape::new(DType::BF16, ReduceOp::Copy, 3, most + 9).of(collective).call();
    let ll = REGISTRY.find(collective, "ll").expect("a known algorithm");
    for (longest, expected) in [(most, Ok(())), (most + 1, Err("ll takes parts of up to 262144 bytes, not of 262146".into()))] {
        let counts = Counts::new(3, |sender, receiver| if (sender, receiver) == (2, 1) { longest } else { 1 });
        assert_eq!(ll.supports(&Call::with_counts(&whole.of_rank(0), 3, &counts, &buffers).expect("parts that fit")), expected);
    }
}

/// If this fails, a rank that is late inside a kernel is tested on another plan than the one that ships, or is never late.
#[test]
fn stalls_change_the_text_of_kernels_only() {
    for algorithm in REGISTRY.algorithms() {
        let (_, call) = Shape::new(DType::BF16, ReduceOp::Sum, 4, 4099).of(algorithm.collective()).call();
        let mut stalled = algorithm.plan(&call, &Target { stalls: true, ..Target::default() });
        for op in stalled.ranks.iter_mut().flatten() {
            let Op::Launch(launch) = op else { continue };
            let name = name_without_stalls(&launch.module).to_owned();
            let module = REGISTRY.module(&name).expect("an embedded module");
            assert_eq!(launch.module, module.name_with_stalls(), "{}", algorithm.name());
            launch.module = name;
        }
        assert_eq!(stalled, algorithm.plan(&call, &Target::default()), "{}", algorithm.name());
    }
}

/// If this fails, a case in which a rank is late at a site has nobody late, or a site in the text was not found.
#[test]
fn texts_with_stalls_have_code_in_place_of_every_mark() {
    for module in REGISTRY.modules().iter().filter(|module| module.has_sites) {
        let marks = module.ptx.matches("// passmuster: stall").count();
        let stalled = with_stalls(module.ptx);
        assert!(marks > 0, "{} has no site", module.name);
        let clocks = |text: &str| text.matches("%globaltimer").count();
        assert_eq!((stalled.contains("// passmuster"), clocks(&stalled)), (false, clocks(module.ptx) + 2 * marks), "{}", module.name);
        assert_eq!(stalled.lines().count(), module.ptx.lines().count(), "{}", module.name);
    }
}

/// An entry that is missing from the embedded PTX would be found only on a GPU, by the first caller that asks for that combination.
#[test]
fn every_entry_is_in_the_embedded_kernels() {
    let library = REGISTRY.library();
    for algorithm in REGISTRY.algorithms() {
        let mut planned = 0;
        for dtype in DType::ALL {
            for &op in algorithm.collective().operators() {
                let algorithm = REGISTRY.for_operator(algorithm, op);
                for world in [4, MAX_RANKS as u32] {
                    let (_, call) = Shape::new(dtype, op, world, 100).of(algorithm.collective()).call();
                    if algorithm.supports(&call).is_ok() {
                        let plan = algorithm.plan(&call, &Target::default());
                        launches(&plan).for_each(|launch| assert_eq!(library.check(launch), Ok(()), "{dtype} {op}"));
                        planned += 1;
                    }
                }
            }
        }
        assert!(planned > 0, "{} supports nothing", algorithm.name());
    }
}

#[test]
fn names_are_unique_and_workspaces_carry_them() {
    let mut names = BTreeSet::new();
    for algorithm in REGISTRY.algorithms() {
        assert!(names.insert((algorithm.collective(), algorithm.name())), "two algorithms are called {}", algorithm.name());
        let mut buffers = BTreeSet::new();
        for buffer in REGISTRY.for_operator(algorithm, ReduceOp::PremulSum).workspace(DType::F32, 8, 4096) {
            assert!(buffer.name.starts_with(&format!("{}.", algorithm.name())), "{} of {}", buffer.name, algorithm.name());
            assert!(buffers.insert(buffer.name.clone()), "two buffers are called {}", buffer.name);
        }
    }
}

proptest! {
    /// Every region lies in a buffer that the group has, every entry is in the kernels, and all ranks launch alike what waits for peers.
    #[test]
    fn plans_stay_within_what_they_are_given((collective, name) in algorithm(), shape in shape(), target in target()) {
        let shape = shape.of(collective);
        let algorithm = shape.algorithm(name);
        let (mut buffers, call) = shape.call();
        if algorithm.supports(&call).is_err() {
            return Ok(());
        }
        buffers.extend(algorithm.workspace(shape.dtype, shape.world, call.bytes()));
        let plan = algorithm.plan(&call, &target);
        prop_assert_eq!(plan.world(), shape.world as usize);
        for region in plan.clone().regions_mut() {
            let buffer = buffers.iter().find(|buffer| buffer.name == region.buffer);
            prop_assert!(buffer.is_some(), "{}: no buffer of {}", plan, region);
            let size = buffer.map_or(0, |buffer| buffer.bytes);
            prop_assert!(region.offset + region.bytes <= size, "{}: {} ends past {} bytes", plan, region, size);
        }
        for op in plan.ranks.iter().flatten() {
            match op {
                Op::Copy { from, to, .. } => prop_assert_eq!(from.bytes, to.bytes, "{}", op),
                Op::WriteValue { to: word, .. } | Op::WaitValue { at: word, .. } => prop_assert_eq!((word.bytes, word.offset % 4), (4, 0), "{}", op),
                Op::Launch(_) | Op::Fill { .. } | Op::Nccl(_) | Op::Matmul(_) => {}
                Op::Fork { .. } | Op::Join { .. } | Op::Fetch { .. } | Op::Mark => {}
            }
        }
        let library = REGISTRY.library();
        for launch in launches(&plan) {
            // In a barrier each rank has a thread.
            prop_assert!(!launch.waits_for_peers || launch.block.total() >= shape.world.into(), "{:?}", launch);
            prop_assert_eq!(library.check(launch), Ok(()));
            prop_assert!((1..=1024).contains(&launch.block.total()) && launch.grid.total() >= 1, "{:?}", launch);
            // A block that waits for one that is not resident waits for ever.
            prop_assert!(!launch.waits_for_peers || launch.grid.total() <= target.waiting_blocks.into(), "{:?}", launch);
        }
        // Barriers are between blocks of one index: a rank with fewer of them would be waited for in vain.
        let of_ranks: BTreeSet<Vec<(u64, u64)>> = plan.ranks.iter().map(|ops| grids(ops)).collect();
        prop_assert_eq!(of_ranks.len(), 1, "ranks launch differently: {}", plan);
        prop_assert_eq!(&plan, &algorithm.plan(&call, &target), "a plan is a pure function of its arguments");
    }

    /// A copy that moved the input to another distance from a 16-byte boundary would leave kernels no packs, only single elements.
    #[test]
    fn copies_keep_the_alignment_of_the_input((collective, name) in algorithm(), shape in shape()) {
        let shape = shape.in_place().of(collective);
        let algorithm = shape.algorithm(name);
        let (_, call) = shape.call();
        if algorithm.supports(&call).is_err() {
            return Ok(());
        }
        let plan = algorithm.plan(&call, &Target::default());
        let launches = plan.ranks.iter().flatten().any(|op| matches!(op, Op::Launch(_)));
        // Kernels that only meet read nothing.
        let reads_in_packs = launches && algorithm.protocol() != Protocol::CopyBarriers;
        for op in plan.ranks.iter().flatten().filter(|_| reads_in_packs) {
            if let Op::Copy { from, to, .. } = op {
                prop_assert_eq!(from.offset % 16, to.offset % 16, "{}", op);
            }
        }
    }
}

/// The name of an algorithm: the trait has no Debug form for proptest to show.
fn algorithm() -> impl Strategy<Value = (Collective, &'static str)> {
    proptest::sample::select(REGISTRY.algorithms().iter().map(|algorithm| (algorithm.collective(), algorithm.name())).collect::<Vec<_>>())
}

fn shape() -> impl Strategy<Value = Shape> {
    let count = prop_oneof![0..40u64, 0..200_000u64, proptest::sample::select(vec![1u64 << 24, (1 << 31) + 9, 1 << 40])];
    let kind = (proptest::sample::select(&DType::ALL[..]), proptest::sample::select(&ReduceOp::ALL[..]), 1..=MAX_RANKS as u32);
    (kind, count, 0..MAX_RANKS as u32, 0..20u64, any::<bool>()).prop_map(|((dtype, op, world), count, root, offset, in_place)| Shape {
        collective: Collective::AllReduce,
        dtype,
        op,
        world,
        count,
        root,
        offset,
        in_place,
    })
}

fn target() -> impl Strategy<Value = Target> {
    (any::<bool>(), 1..=300u32).prop_map(|(stalls, waiting_blocks)| Target { stalls, waiting_blocks, ..Target::default() })
}

fn launches(plan: &Plan) -> impl Iterator<Item = &Launch> {
    plan.ranks.iter().flatten().filter_map(|op| match op {
        Op::Launch(launch) => Some(launch),
        _ => None,
    })
}

/// Grid and block of each launch whose blocks wait for peers.
fn grids(ops: &[Op]) -> Vec<(u64, u64)> {
    ops.iter()
        .filter_map(|op| match op {
            Op::Launch(launch) if launch.waits_for_peers => Some((launch.grid.total(), launch.block.total())),
            _ => None,
        })
        .collect()
}
