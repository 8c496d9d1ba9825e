//! A collective while blocks keep every SM: whether it gets done says whether it needs one.

use std::{sync::Arc, time::Duration};

use passmuster_kernels::Holders;
use passmuster_plan::{
    algorithms::{Algorithm, Target},
    collective::{DType, ReduceOp, Shape},
    machine::Machine,
    plan::{BufferSpec, Call, RankCall, Region, Role, Script},
};

/// Has ranks do a collective, `count` 64-bit integers a slot and in place where it can be, on stream 1 while blocks hold what they run on,
/// enqueued on stream 0. Stream 1 starts when all of a rank's blocks hold, and `tells` them to go when the collective is done.
///
/// Returns for each rank how its blocks came to go, when the results are those of the reference.
pub(crate) fn outcomes(
    holders: &Holders,
    machine: &mut impl Machine,
    algorithm: &dyn Algorithm,
    (world, count): (u32, u64),
    tells: bool,
) -> Vec<Vec<u32>> {
    let shape = Shape::new(algorithm.collective(), world, count);
    let [sent, gets] = [shape.input(), shape.output()].map(|elements| elements * 8);
    let output = Region::new("output", 0, gets);
    let input = if shape.collective.has_in_place() { Region { bytes: sent, ..output.clone() } } else { Region::new("input", 0, sent) };
    let mut buffers = vec![BufferSpec::new("input", sent, Role::Data), BufferSpec::new("output", gets, Role::Data)];
    buffers.extend(algorithm.workspace(DType::I64, world, sent));
    let first = RankCall {
        collective: shape.collective,
        dtype: DType::I64,
        op: ReduceOp::Copy,
        count,
        root: 0,
        factor: None,
        parts: None,
        input,
        output,
    };
    let call = Call::uniform(&first, world, &buffers).unwrap();
    let target = Target { waiting_blocks: machine.waiting_blocks(world as usize, 1), ..Target::default() };

    let collective = machine.open_group(world as usize, &buffers).unwrap();
    let held = machine.open_group(world as usize, &holders.buffers()).unwrap();
    let inputs: Vec<Vec<u8>> =
        (0..u64::from(world)).map(|rank| (0..shape.input()).flat_map(|i| (i * 31 + rank).to_le_bytes()).collect()).collect();
    for (rank, bytes) in inputs.iter().enumerate() {
        machine.write(collective, rank, &call.input_of(rank as u32), bytes).unwrap();
    }
    let plan = Arc::new(algorithm.plan(&call, &target));
    let steps = holders.around(held, world, (collective, plan), tells);
    machine.run(&Script { steps }, holders.limit + Duration::from_secs(60)).unwrap_or_else(|error| panic!("{shape}: {error}"));

    for (rank, expected) in shape.results(DType::I64, ReduceOp::Copy, &inputs).into_iter().enumerate() {
        assert!(machine.read(collective, rank, &call.output).unwrap() == expected, "{shape}: rank {rank}");
    }
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    (0..world as usize).map(|rank| machine.read(held, rank, &holders.outcomes()).unwrap().chunks(4).map(word).collect()).collect()
}
