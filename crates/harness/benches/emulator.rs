//! How fast the emulator runs all-reduces, with the race check and without: `cargo bench --bench emulator`. One core. An element of criterion's
//! throughput is a thread instruction: one lane's part of a warp's instruction.
//!
//! How many products of numbers a second it does for tensor cores, too.
//!
//! Our own kernels at 64 KiB on 8 ranks; kernels from elsewhere (`docs/tutorial-foreign-kernel.md`), among them two whose threads acquire, at 64 KiB on 4
//! ranks, several calls in a row as conformance makes them.

use std::{fs, hint::black_box, sync::Arc, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use passmuster_emulator::numerics::tensor_core::{Element, Elements, Rule, Sum, Unit, multiply};
use passmuster_harness::{
    conformance::{InputClass, Payload, Transform},
    emulator::{Emulator, EmulatorOptions, Profile},
};
use passmuster_plan::{
    algorithms::{Algorithm, Foreign, Target},
    collective::{Collective, DType, ReduceOp},
    library::Library,
    machine::Machine,
    plan::{BufferSpec, Call, RankCall, Region, Role, Script, Step},
};

const BYTES: u64 = 64 << 10;

/// A machine with inputs written, and a script of `calls` calls.
fn set_up(algorithm: &dyn Algorithm, library: Library, world: u32, calls: usize, profile: Profile) -> (Emulator, Script) {
    let mut buffers = vec![BufferSpec::new("input", BYTES, Role::Data), BufferSpec::new("output", BYTES, Role::Data)];
    buffers.extend(algorithm.workspace(DType::BF16, world, BYTES));
    let (dtype, count) = (DType::BF16, BYTES / DType::BF16.size());
    let call = |output: &str| RankCall {
        collective: Collective::AllReduce,
        dtype,
        op: ReduceOp::Sum,
        root: 0,
        factor: None,
        parts: None,
        count,
        input: Region::new("input", 0, BYTES),
        output: Region::new(output, 0, BYTES),
    };
    let all_ranks = |output| Call::validate(&vec![call(output); world as usize], &buffers).expect("the call fits its buffers");
    let out_of_place = all_ranks("output");
    let call = if algorithm.supports(&out_of_place).is_ok() { out_of_place } else { all_ranks("input") };

    let mut machine = Emulator::new(EmulatorOptions { library, profile, ..EmulatorOptions::default() });
    let group = machine.open_group(world as usize, &buffers).expect("the group fits");
    let payload = Payload { class: InputClass::Natural, dtype, world, seed: 1, call: 0, transform: Transform::None };
    for rank in 0..world {
        machine.write(group, rank as usize, &call.input, &payload.bytes(rank, 0..count)).expect("the input is there");
    }
    let target = Target { waiting_blocks: machine.waiting_blocks(world as usize, 1), ..Target::default() };
    let plan = Arc::new(algorithm.plan(&call, &target));
    let step = || Step::Enqueue { group, stream: 0, plan: plan.clone() };
    (machine, Script { steps: (0..calls).map(|_| step()).collect() })
}

fn bench(criterion: &mut Criterion, title: &str, algorithm: &dyn Algorithm, library: &Library, world: u32, calls: usize) {
    let mut group = criterion.benchmark_group(title);
    for profile in [Profile::Off, Profile::Hopper] {
        let (mut machine, script) = set_up(algorithm, library.clone(), world, calls, profile);
        machine.run(&script, Duration::from_secs(600)).expect("a correct kernel");
        group.throughput(Throughput::Elements(machine.instructions()));
        group.bench_function(format!("races {profile}"), |bencher| {
            bencher.iter(|| black_box(machine.run(&script, Duration::from_secs(600)).expect("a correct kernel")));
        });
    }
    group.finish();
}

fn own(criterion: &mut Criterion) {
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
    for name in ["one_shot", "two_shot"] {
        let algorithm = registry.find(Collective::AllReduce, name).expect("an algorithm");
        bench(criterion, &format!("{name} bf16 64 KiB x 8 ranks"), &*algorithm, &registry.library(), 8, 1);
    }
}

/// Specification and PTX of each, and the kernel where the specification names none.
fn from_elsewhere(criterion: &mut Criterion) {
    for (folder, stem, entry) in [
        ("../../examples/foreign/one_shot_by_value", ["spec", "kernel"], None),
        ("../../examples/foreign/two_shot_by_table", ["spec", "kernel"], None),
        ("../../examples/foreign/one_shot_triton", ["spec", "kernel"], Some("one_shot_all_reduce")),
        ("benches/kernels", ["acquires", "acquires"], None),
    ] {
        let read = |file: String| {
            let path = format!("{}/{folder}/{file}", env!("CARGO_MANIFEST_DIR"));
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let foreign = Foreign::read(&read(format!("{}.toml", stem[0])), entry).unwrap_or_else(|error| panic!("{error}"));
        let mut library = Library::default();
        for module in foreign.kernels().modules() {
            library.replace(&module.name, read(format!("{}.ptx", stem[1])));
        }
        bench(criterion, &format!("{} bf16 64 KiB x 4 ranks, 8 calls", foreign.name()), &foreign, &library, 4, 8);
    }
}

/// What a warp does of `wgmma.mma_async` with 256 columns, without the instruction: an element is a product of two numbers.
fn products(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("products");
    for (name, element, depth) in [("bf16", Element::Bf16, 16), ("e4m3", Element::E4m3, 32), ("s8", Element::S8, 32)] {
        let kind = if element == Element::S8 { Sum::S32 { saturate: false } } else { Sum::F32 };
        let rule = Rule::of(Unit::Warpgroup, element, element, kind);
        // Numbers with exponents near one.
        let rows = |count: u32| -> Vec<Elements> {
            let one = if element == Element::Bf16 { 0x3f00 } else { 0x30 };
            (0..count).map(|row| std::array::from_fn(|k| one + (row * 37 + k as u32 * 11) % (one >> 2))).collect()
        };
        let (a, b) = (rows(16), rows(256));
        let mut sums = vec![0; 16 * 256];
        group.throughput(Throughput::Elements(16 * 256 * depth as u64));
        group.bench_function(name, |bencher| bencher.iter(|| multiply(&rule, depth, [&a, &b], [false; 2], black_box(&mut sums))));
    }
    group.finish();
}

criterion_group!(benches, own, from_elsewhere, products);
criterion_main!(benches);
