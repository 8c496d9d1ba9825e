//! Rounds of a sharded training step on memory of one pool: gathers of layers in flight on two streams, one of a smaller group beside them, a
//! reduce-scatter behind one of them, and all memory given back and used again.

use std::{sync::Arc, time::Duration};

use passmuster_kernels::{all_gather, reduce_scatter};
use passmuster_plan::{
    algorithms::{Algorithm, Target},
    collective::{Collective, DType, ReduceOp},
    machine::Machine,
    plan::{Op, Plan, RankCall, Region, Script, Step},
    pool::{Channels, InFlight, PoolError, SymmetricPool},
};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Ranks, and bytes of a shard at most.
const WORLD: u32 = 4;
const SHARD: u64 = 1024;

/// A pool with room for one round and no more, and as many channels as it has calls in flight.
pub(crate) fn open(machine: &mut impl Machine) -> SymmetricPool {
    let bytes = SHARD * u64::from(WORLD);
    let of = |algorithm: Arc<dyn Algorithm>, world, bytes, count| Channels { algorithm, world, dtype: DType::I32, bytes, count };
    let push = Arc::new(all_gather::Push);
    let channels = [of(push.clone(), WORLD, SHARD, 2), of(push, 2, SHARD, 1), of(Arc::new(reduce_scatter::PULL), WORLD, bytes, 1)];
    SymmetricPool::open(machine, WORLD, 3 * bytes + 7 * SHARD, &channels).unwrap()
}

/// A call of 32-bit integers on two regions.
pub(crate) fn start(
    pool: &mut SymmetricPool,
    algorithm: impl Algorithm + 'static,
    (input, output): (&Region, &Region),
    (world, waiting_blocks): (u32, u32),
) -> Result<InFlight, PoolError> {
    let algorithm: Arc<dyn Algorithm> = Arc::new(algorithm);
    let collective = algorithm.collective();
    let op = if collective == Collective::ReduceScatter { ReduceOp::Sum } else { ReduceOp::Copy };
    let (count, input, output) = (input.bytes.min(output.bytes) / 4, input.clone(), output.clone());
    let call = RankCall { collective, dtype: DType::I32, op, count, root: 0, factor: None, parts: None, input, output };
    pool.start(&algorithm, &call, world, &Target { waiting_blocks, ..Target::default() })
}

/// What a rank's shard of a layer holds, in every byte: all ranks' together are no more than a byte holds.
fn byte(round: u64, layer: u64, rank: u32) -> u8 {
    (16 * u64::from(rank) + 4 * (round % 4) + layer) as u8
}

/// One round, with shards of other sizes than the last one's.
pub(crate) fn round(machine: &mut impl Machine, pool: &mut SymmetricPool, number: u64) {
    let (group, blocks) = (pool.group(), machine.waiting_blocks(WORLD as usize, 4));
    let shard = [SHARD, 700, 1020, 300][number as usize % 4];
    let whole = shard * u64::from(WORLD);
    let mut steps = Vec::new();
    let mut enqueue = |stream, plan: &Arc<Plan>| steps.push(Step::Enqueue { group, stream, plan: plan.clone() });

    let shards: Vec<Region> = (0..4).map(|_| pool.allocate(shard).unwrap()).collect();
    for (layer, stream) in [(0, 0), (1, 1), (2, 0), (3, 2)] {
        let fill = |rank| vec![Op::Fill { region: shards[layer].clone(), byte: byte(number, layer as u64, rank) }];
        enqueue(stream, &Arc::new(Plan::per_rank("fill", WORLD, fill)));
    }
    let [first, second, of_two] = [whole, whole, 2 * shard].map(|bytes| pool.allocate(bytes).unwrap());
    let gather = |pool: &mut SymmetricPool, layer: usize, to, world| start(pool, all_gather::Push, (&shards[layer], to), (world, blocks));
    let of_first = gather(pool, 0, &first, WORLD).unwrap();
    let of_second = gather(pool, 1, &second, WORLD).unwrap();
    let among_two = gather(pool, 3, &of_two, 2).unwrap();
    for (stream, call) in [&of_first, &of_second, &among_two].into_iter().enumerate() {
        enqueue(stream, call.plan());
    }

    // Behind the first gather on its stream: its memory is kept elsewhere, and used again, as its channel is.
    let kept = pool.allocate(whole).unwrap();
    let keep = Op::Copy { from: first.clone(), to: kept.clone(), to_rank: None };
    enqueue(0, &Arc::new(Plan::per_rank("keep", WORLD, |_| vec![keep.clone()])));
    drop(of_first);
    pool.free(&first).unwrap();
    let third = pool.allocate(whole).unwrap();
    assert_eq!(third, first);
    let of_third = gather(pool, 2, &third, WORLD).unwrap();
    enqueue(0, of_third.plan());

    // Behind the second on its own: what it brought is reduced.
    drop(of_second);
    let sum = pool.allocate(shard).unwrap();
    let scatter = start(pool, reduce_scatter::PULL, (&second, &sum), (WORLD, blocks)).unwrap();
    enqueue(1, scatter.plan());

    machine.run(&Script { steps }, DEADLINE).unwrap_or_else(|error| panic!("round {number}: {error}"));
    drop((of_third, among_two, scatter));
    let gathered = |layer, ranks| (0..ranks).flat_map(|rank| vec![byte(number, layer, rank); shard as usize]).collect::<Vec<u8>>();
    for rank in 0..WORLD {
        let mut check = |region, expected: Vec<u8>| {
            assert!(machine.read(group, rank as usize, region).unwrap() == expected, "round {number}: rank {rank} {region}");
        };
        check(&kept, gathered(0, WORLD));
        check(&second, gathered(1, WORLD));
        check(&third, gathered(2, WORLD));
        check(&sum, vec![WORLD as u8 * byte(number, 1, rank); shard as usize]);
        if rank < 2 {
            check(&of_two, gathered(3, 2));
        }
    }
    let mut regions = [shards, vec![third, second, of_two, kept, sum]].concat();
    regions.rotate_left(2 * number as usize % 5);
    regions.iter().for_each(|region| pool.free(region).unwrap());
}
