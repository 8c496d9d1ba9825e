//! One call of an algorithm on the emulator: inputs of all ranks in, outputs of all ranks out.

use std::{ops::RangeInclusive, sync::Arc, sync::LazyLock, time::Duration};

use passmuster::{
    algorithms::{Registry, Target},
    collective::{Collective, DType, ReduceOp, Shape},
    emulator::{Emulator, EmulatorOptions},
    machine::Machine,
    plan::{Call, Script, Step},
};
use proptest::{collection::vec, prelude::*};

pub(crate) static REGISTRY: LazyLock<Registry> = LazyLock::new(passmuster::registry);

/// The names of passmuster's own algorithms of a collective.
pub(crate) fn algorithms(collective: Collective) -> Vec<String> {
    REGISTRY.of(collective).filter(|algorithm| !algorithm.is_peer()).map(|algorithm| algorithm.name().to_owned()).collect()
}

/// Runs a call of f32 with `count` elements a slot among as many ranks as there are inputs, with root 0.
pub(crate) fn run(collective: Collective, algorithm: &str, op: ReduceOp, count: usize, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let world = inputs.len();
    let shape = Shape::new(collective, world as u32, count as u64);
    let (call, buffers) = Call::standalone(shape, DType::F32, op).unwrap();
    let algorithm = REGISTRY.find(collective, algorithm).unwrap();
    let mut buffers = buffers.to_vec();
    buffers.extend(algorithm.workspace(DType::F32, world as u32, call.bytes()));

    let mut machine = Emulator::new(EmulatorOptions::of(&REGISTRY));
    let group = machine.open_group(world, &buffers).unwrap();
    for (rank, input) in inputs.iter().enumerate() {
        let bytes: Vec<u8> = input.iter().flat_map(|element| element.to_le_bytes()).collect();
        machine.write(group, rank, &call.input_of(rank as u32), &bytes).unwrap();
    }
    let target = Target { waiting_blocks: machine.waiting_blocks(world, 1), ..Target::default() };
    let plan = Arc::new(algorithm.plan(&call, &target));
    // A race, a hang or a bad access is an error.
    machine.run(&Script { steps: vec![Step::Enqueue { group, stream: 0, plan }] }, Duration::from_secs(120)).unwrap();

    let floats = |bytes: &[u8]| bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect();
    (0..world).map(|rank| floats(&machine.read(group, rank, &call.output_of(rank as u32)).unwrap())).collect()
}

/// The inputs of a group. Each rank has one slot, or one for each rank.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    /// Elements of a slot.
    pub(crate) count: usize,
    /// Of each rank.
    pub(crate) of: Vec<Vec<f32>>,
}

/// Inputs of 1 to 8 ranks, with one slot or with one for each rank.
pub(crate) fn inputs(slots: fn(usize) -> usize) -> impl Strategy<Value = Inputs> {
    const WORLDS: RangeInclusive<usize> = 1..=8;
    (WORLDS, 0..100_usize)
        .prop_flat_map(move |(world, count)| vec(vec(-100f32..100.0, slots(world) * count), world).prop_map(move |of| Inputs { count, of }))
}

/// What one element of a sum must be close to, and how close: each of the additions rounds once, to f32.
// Not all collectives add.
#[allow(dead_code)]
pub(crate) fn sum(terms: impl Iterator<Item = f32>) -> (f64, f64) {
    let terms: Vec<f64> = terms.map(f64::from).collect();
    let sizes: f64 = terms.iter().map(|term| term.abs()).sum();
    (terms.iter().sum(), terms.len() as f64 * f64::from(f32::EPSILON) * sizes)
}
