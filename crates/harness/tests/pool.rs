//! Memory of a pool, on the emulator: collectives on what was given back and taken again, what a pool refuses, and that ranks meet once.

mod rounds;

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use passmuster_harness::emulator::{Emulator, EmulatorOptions, Interleaving};
use passmuster_kernels::{all_gather, all_reduce, reduce_scatter};
use passmuster_plan::{
    algorithms::{Algorithm, Registry, Target},
    collective::{Collective, Counts, DType, ReduceOp, Shape},
    machine::{Machine, MachineError},
    plan::{Op, Plan, RankCall, Region, Script, Step},
    pool::{Channels, InFlight, PoolError, SymmetricPool},
};
use rounds::{DEADLINE, round, start};
use rstest::rstest;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

fn emulator() -> Emulator {
    Emulator::new(EmulatorOptions::of(&REGISTRY))
}

/// If this fails, memory that is used again needs another rendezvous, or calls on it meet those that were there before.
#[test]
fn memory_is_used_again_without_another_rendezvous() {
    for n in 0..6 {
        let mut machine = emulator();
        machine.set_interleaving(Interleaving::nth(3, n));
        let mut pool = rounds::open(&mut machine);
        let all = pool.free_bytes();
        for number in 0..6 {
            round(&mut machine, &mut pool, number);
            assert_eq!((pool.free_bytes(), all.0), (all, all.1), "after round {number}");
        }
        assert_eq!(machine.rendezvous(), 1);
        assert_eq!(machine.broken_canary(pool.group()).unwrap(), None);
    }
}

fn buffers(call: &InFlight) -> BTreeSet<String> {
    let mut plan = Plan::clone(call.plan());
    plan.regions_mut().map(|region| region.buffer.clone()).filter(|buffer| buffer != "pool").collect()
}

/// If this fails, two groups count each other's epochs.
#[test]
fn calls_in_flight_share_no_signals() {
    let mut machine = emulator();
    let mut pool = rounds::open(&mut machine);
    let regions: Vec<Region> = [64, 256, 64, 256, 64, 128].map(|bytes| pool.allocate(bytes).unwrap()).into();
    let mut gather = |at: usize, world| start(&mut pool, all_gather::Push, (&regions[at], &regions[at + 1]), (world, 4));
    let calls = [gather(0, 4), gather(2, 4), gather(4, 2)].map(Result::unwrap);
    let of_each = calls.each_ref().map(buffers);
    assert!(of_each.iter().all(|of_one| of_one.len() == 4), "{of_each:?}");
    assert_eq!(of_each.iter().flatten().collect::<BTreeSet<_>>().len(), 12);
    drop(calls);
    let of_three = Region { bytes: 192, ..regions[1].clone() };
    let refused = start(&mut pool, all_gather::Push, (&regions[0], &of_three), (3, 4)).map(|_| ()).unwrap_err();
    assert!(matches!(refused, PoolError::NoChannel { world: 3, count: 0, .. }), "a group has channels of its own: {refused}");
    assert_eq!(buffers(&start(&mut pool, all_gather::Push, (&regions[0], &regions[1]), (4, 4)).unwrap()), of_each[0]);
}

/// If this fails, a pre-multiplied sum of a pool has nowhere to keep its products, or is none.
#[test]
fn pre_multiplied_sums_have_channels_of_their_own() {
    let (dtype, world, op) = (DType::F32, 2, ReduceOp::PremulSum);
    let one_shot: Arc<dyn Algorithm> = Arc::new(all_reduce::ONE_SHOT);
    let multiplying = REGISTRY.for_operator(&one_shot, op);
    for (algorithm, expected) in [(multiplying.clone(), Ok(())), (one_shot.clone(), Err("one_shot.products"))] {
        let mut machine = emulator();
        let channels = [Channels { algorithm, world, dtype, bytes: 16, count: 1 }];
        let mut pool = SymmetricPool::open(&mut machine, world, 4096, &channels).unwrap();
        let (input, output) = (pool.allocate(16).unwrap(), pool.allocate(16).unwrap());
        for rank in 0..2 {
            machine.write(pool.group(), rank, &input, &6f32.to_le_bytes().repeat(4)).unwrap();
        }
        let factor = Some(0.25f32.to_bits().into());
        let (collective, output_of) = (Collective::AllReduce, output.clone());
        let call = RankCall { collective, dtype, op, count: 4, root: 0, factor, parts: None, input, output: output_of };
        let started = pool.start(&multiplying, &call, world, &Target { waiting_blocks: 4, ..Target::default() });
        let ran = started.map(|call| {
            let step = Step::Enqueue { group: pool.group(), stream: 0, plan: call.plan().clone() };
            machine.run(&Script { steps: vec![step] }, DEADLINE).unwrap();
            assert_eq!(machine.read(pool.group(), 1, &output).unwrap(), 3f32.to_le_bytes().repeat(4));
        });
        let refused = ran.map_err(|error| match error {
            PoolError::TooLarge { buffer, opened: 0, .. } => buffer,
            other => panic!("{other}"),
        });
        assert_eq!(refused, expected.map_err(str::to_owned));
    }
}

/// If this fails, the parts of an all-to-all-v do not arrive on a channel, or only the first time, or something else of the output is written.
#[rstest]
fn parts_have_lengths_of_their_own(#[values("push", "copy_engine", "ll")] name: &str) {
    let (collective, dtype, op, world, count) = (Collective::AllToAll, DType::I32, ReduceOp::Copy, 3, 9);
    let algorithm = REGISTRY.find(collective, name).unwrap();
    let mut machine = emulator();
    let bytes = u64::from(world) * count * 4;
    let mut pool =
        SymmetricPool::open(&mut machine, world, 4096, &[Channels { algorithm: algorithm.clone(), world, dtype, bytes, count: 1 }])
            .unwrap();
    let (input, output) = (pool.allocate(bytes).unwrap(), pool.allocate(bytes).unwrap());
    let call = RankCall { collective, dtype, op, count, root: 0, factor: None, parts: None, input: input.clone(), output: output.clone() };
    for (number, sent) in [[[0, 1, 9], [0, 0, 0], [2, 9, 3]], [[4, 0, 1], [9, 9, 9], [0, 0, 5]]].into_iter().enumerate() {
        let inputs: Vec<Vec<u8>> =
            (0..world as u8).map(|rank| (0..bytes as u8).map(|i| i ^ (rank + 3 * number as u8) << 5).collect()).collect();
        for (rank, bytes) in inputs.iter().enumerate() {
            machine.write(pool.group(), rank, &input, bytes).unwrap();
            machine.write(pool.group(), rank, &output, &[0xee; 108]).unwrap();
        }
        let counts = Counts::new(world, |sender, receiver| sent[sender as usize][receiver as usize]);
        let started = pool.start_all_to_all_v(&algorithm, &call, &counts, world, &Target { waiting_blocks: 4, ..Target::default() });
        let step = Step::Enqueue { group: pool.group(), stream: 0, plan: started.unwrap().plan().clone() };
        machine.run(&Script { steps: vec![step] }, DEADLINE).unwrap();
        let results = Shape::new(collective, world, count).with_counts(Some(counts)).results(dtype, op, &inputs);
        for (rank, mut expected) in results.into_iter().enumerate() {
            expected.resize(bytes as usize, 0xee);
            assert_eq!(machine.read(pool.group(), rank, &output).unwrap(), expected, "rank {rank} in round {number}");
        }
    }
}

/// If this fails, the emulator does not see memory that is used again too early, and the rounds above show nothing.
#[test]
fn memory_that_is_used_again_on_another_stream_races() {
    let mut machine = emulator();
    let mut pool = rounds::open(&mut machine);
    let (input, output) = (pool.allocate(256).unwrap(), pool.allocate(1024).unwrap());
    (0..4).for_each(|rank| machine.write(pool.group(), rank, &input, &[7; 256]).unwrap());
    let gather = start(&mut pool, all_gather::Push, (&input, &output), (4, 4)).unwrap();
    let gathers = gather.plan().clone();
    drop(gather);
    pool.free(&output).unwrap();
    let again = pool.allocate(1024).unwrap();
    let fills = Arc::new(Plan::per_rank("fill", 4, |_| vec![Op::Fill { region: again.clone(), byte: 1 }]));
    let enqueue = |stream, plan: &Arc<Plan>| Step::Enqueue { group: pool.group(), stream, plan: plan.clone() };
    machine
        .run(&Script { steps: vec![enqueue(0, &gathers), enqueue(0, &fills)] }, DEADLINE)
        .expect("on one stream it comes after the gather");
    let error = machine.run(&Script { steps: vec![enqueue(0, &gathers), enqueue(1, &fills)] }, DEADLINE).unwrap_err();
    assert!(matches!(error, MachineError::Races { .. }), "{error}");
}

/// What a pool refuses, it names, beside what there is.
#[test]
fn refusals_name_what_was_asked_and_what_there_is() {
    let mut machine = emulator();
    let of = |algorithm: Arc<dyn Algorithm>, world, bytes, count| Channels { algorithm, world, dtype: DType::I32, bytes, count };
    let open = |machine: &mut Emulator, channels: &[Channels]| SymmetricPool::open(machine, 4, 8000, channels);
    for (algorithm, world, reason) in [
        (Arc::new(all_gather::LL) as Arc<dyn Algorithm>, 5, "channels of all_gather/ll for 5 ranks: the pool is of 4"),
        (Arc::new(all_reduce::MULTIMEM), 2, "channels of all_reduce/multimem for 2 ranks: it reaches all of a group, in a pool of 4"),
    ] {
        let error = open(&mut machine, &[of(algorithm, world, 64, 1)]).map(|_| ()).unwrap_err();
        assert_eq!(error, MachineError::Invalid { reason: reason.into() });
    }
    let mut pool = open(&mut machine, &[of(Arc::new(all_gather::LL), 4, 64, 2), of(Arc::new(reduce_scatter::PULL), 4, 1024, 1)]).unwrap();
    assert_eq!(pool.free_bytes(), (8192, 8192));
    let [input, output, other, more] = [64, 1024, 1024, 2048].map(|bytes| pool.allocate(bytes).unwrap());
    assert_eq!([&input, &output, &other, &more].map(|region| region.offset), [0, 512, 1536, 2560]);
    let says = |refusal: Result<(), PoolError>, message: &str| assert_eq!(refusal.unwrap_err().to_string(), message);

    pool.free(&other).unwrap();
    says(pool.allocate(3600).map(|_| ()), "no room for 3600 bytes: 4608 bytes are free, 3584 of them in one piece");
    let live = "3 allocations are live, pool[0..512], pool[512..1536], pool[2560..4608]";
    says(pool.free(&other), &format!("allocation pool[1536..2560] is not live: {live}"));
    let part = Region::new("pool", 768, 16);
    says(pool.free(&part), &format!("allocation pool[768..784] is only a part of one: {live}"));
    says(pool.free(&Region::new("ll.signals", 0, 4)), &format!("allocation ll.signals[0..4] is not live: {live}"));

    let gather = |pool: &mut SymmetricPool, bytes, input: &Region, output: &Region| {
        let [input, output] = [(input, bytes), (output, 4 * bytes)].map(|(region, bytes)| Region { bytes, ..region.clone() });
        start(pool, all_gather::LL, (&input, &output), (4, 4))
    };
    says(gather(&mut pool, 64, &input, &other).map(|_| ()), &format!("output pool[1536..1792] lies in no allocation: {live}"));
    says(
        gather(&mut pool, 264, &output, &more).map(|_| ()),
        "all_gather/ll needs 8192 bytes of ll.signals, its channels were opened with 4096",
    );
    let first = gather(&mut pool, 64, &input, &output).unwrap();
    says(pool.free(&output), "allocation pool[512..1536] is in use: all_gather/ll in flight writes pool[512..768]");
    says(
        gather(&mut pool, 32, &output, &more).map(|_| ()),
        "input pool[512..544] is in use: all_gather/ll in flight writes pool[512..768]",
    );
    says(gather(&mut pool, 16, &more, &input).map(|_| ()), "output pool[0..64] is in use: all_gather/ll in flight reads pool[0..64]");
    let behind = Region { offset: output.offset + 256, ..output.clone() };
    let second = gather(&mut pool, 64, &input, &behind).unwrap();
    let third = || Region { offset: output.offset + 512, ..output.clone() };
    says(
        gather(&mut pool, 64, &input, &third()).map(|_| ()),
        "all_gather/ll has no free channel for 4 ranks: 2 were opened and 2 calls are in flight",
    );
    drop((first, second));
    gather(&mut pool, 64, &input, &third()).unwrap();
    says(
        start(&mut pool, all_gather::Push, (&Region { bytes: 16, ..input.clone() }, &Region { bytes: 64, ..output.clone() }), (4, 4))
            .map(|_| ()),
        "all_gather/push has no free channel for 4 ranks: 0 were opened and 0 calls are in flight",
    );
    pool.free(&output).unwrap();
}
