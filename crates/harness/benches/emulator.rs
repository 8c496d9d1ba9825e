//! How fast the emulator runs an all-reduce of 64 KiB on 8 ranks: `cargo bench --bench emulator`. One core, with the race check
//! and without.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use passmuster::{
    conformance::{InputClass, Payload, Transform},
    emulator::{Emulator, EmulatorOptions, Profile},
};
use passmuster_collectives::{
    algorithms::{self, Target},
    collective::{Collective, DType, ReduceOp},
    machine::Machine,
    plan::{BufferSpec, Build, Call, RankCall, Region, Role, Script, Step},
};

const WORLD: u32 = 8;
const BYTES: u64 = 64 << 10;

/// A machine with inputs written, and a script of one call.
fn set_up(name: &str, profile: Profile) -> (Emulator, Script) {
    let algorithm = algorithms::find(Collective::AllReduce, name).expect("an algorithm");
    let mut buffers = vec![BufferSpec::new("input", BYTES, Role::Data), BufferSpec::new("output", BYTES, Role::Data)];
    buffers.extend(algorithm.workspace(DType::BF16, WORLD, BYTES));
    let region = |name: &str| Region::new(name, 0, BYTES);
    let (dtype, count) = (DType::BF16, BYTES / DType::BF16.size());
    let call = RankCall {
        collective: Collective::AllReduce,
        dtype,
        op: ReduceOp::Sum,
        root: 0,
        factor: None,
        parts: None,
        count,
        input: region("input"),
        output: region("output"),
    };
    let call = Call::agree(&vec![call; WORLD as usize], &buffers).expect("the call fits its buffers");

    let mut machine = Emulator::new(EmulatorOptions { profile, ..EmulatorOptions::default() });
    let group = machine.open_group(WORLD as usize, &buffers).expect("the group fits");
    let payload = Payload { class: InputClass::Natural, dtype, world: WORLD, seed: 1, call: 0, transform: Transform::None };
    for rank in 0..WORLD {
        machine.write(group, rank as usize, &call.input, &payload.bytes(rank, 0..count)).expect("the input is there");
    }
    let target = Target { build: Build::Release, waiting_blocks: machine.waiting_blocks(WORLD as usize, 1) };
    let plan = Arc::new(algorithm.plan(&call, &target));
    (machine, Script { steps: vec![Step::Enqueue { group, stream: 0, plan }] })
}

fn all_reduce(criterion: &mut Criterion) {
    for name in ["one_shot", "two_shot"] {
        for profile in [Profile::Off, Profile::Hopper] {
            let (mut machine, script) = set_up(name, profile);
            criterion.bench_function(&format!("all_reduce/{name} bf16 64 KiB x 8 ranks, races {profile}"), |bencher| {
                bencher.iter(|| black_box(machine.run(&script, Duration::from_secs(60)).expect("a correct kernel")));
            });
        }
    }
}

criterion_group!(benches, all_reduce);
criterion_main!(benches);
