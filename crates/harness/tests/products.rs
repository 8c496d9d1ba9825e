//! Cases of products on the emulator: those that it can run pass, bugs are findings, and the rest is refused with the reason.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use passmuster_harness::{
    conformance::{Case, List, Status, Verdict, runner::Settings},
    emulator::{Arithmetic, Emulator, EmulatorOptions, TensorCores},
};
use passmuster_plan::{
    algorithms::Registry,
    machine::{Deferred, Machine, MachineError, MachineInfo, Run},
    plan::{BufferSpec, Op, Plan, Region, Script, Step},
};
use rstest::rstest;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

fn judge(case: &Case, machine: &mut dyn Machine) -> Verdict {
    case.judge(machine, &Settings { registry: &REGISTRY, deadline: Duration::from_secs(60), shared_pads: false, progress: &|_| {} })
}

fn judged(id: &str) -> Verdict {
    judge(&id.parse().unwrap(), &mut Emulator::new(EmulatorOptions::of(&REGISTRY)))
}

#[test]
fn the_smoke_list_passes() {
    let mut machine = Emulator::new(EmulatorOptions::of(&REGISTRY));
    let (mut passed, mut too_large) = (0, Vec::new());
    for case in List::Smoke.products(&REGISTRY, 0) {
        let case = Case::from(case);
        let verdict = judge(&case, &mut machine);
        if verdict.status == Status::NotSupported {
            assert!(verdict.reason.contains("too large for the emulator: "), "{verdict:#?}");
            too_large.push(case.to_string());
            continue;
        }
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        let names = verdict.held.iter().chain(verdict.not_applicable.iter().map(|(name, _)| name)).collect::<Vec<_>>();
        for property in ["reference", "repeat", "graph", "equals_plain", "input_unchanged", "canaries"] {
            assert!(names.iter().any(|name| *name == property), "{property}: {verdict:#?}");
        }
        passed += 1;
    }
    assert!(too_large.iter().all(|case| case.contains("w=4") || case.contains("rows=200")), "{too_large:?}");
    assert_eq!((passed, too_large.len()), (30, 6));
}

#[rstest]
#[case("all_gather_matmul/chunked:f16,kn:w=3:rows=5:columns=16:depth=24:inputs=fractions:groups=2:skew=r1+50us:seed=7")]
#[case("all_gather_matmul/push+matmul:bf16,kn:w=5:rows=3:columns=8:depth=40:inputs=fractions")]
#[case("matmul_reduce_scatter/chunked:bf16,nk:w=4:rows=3:columns=24:depth=16:inputs=fractions:groups=3")]
#[case("matmul_reduce_scatter/matmul+pull:f16,nk:w=1:rows=7:columns=8:depth=8")]
// Pulled in two slices, the last of which has less; and in two groups of rows of tiles.
#[case("all_gather_matmul/pull:f16,nk:w=2:rows=4:columns=8:depth=1032:inputs=fractions:skew=r1+2000us")]
#[case("all_gather_matmul/pull:bf16,kn:w=2:rows=2100:columns=8:depth=8:inputs=fractions:skew=r0+2000us")]
fn what_is_right_passes(#[case] id: &str) {
    let verdict = judged(id);
    assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
}

/// If this fails, a kernel or the reference relies on the order in which Hopper's tensor cores add.
#[rstest]
#[case("all_gather_matmul/fused:bf16,nk:w=2:rows=8:columns=64:depth=72:inputs=fractions")]
#[case("all_gather_matmul/pull:f16,kn:w=2:rows=8:columns=64:depth=72:inputs=fractions")]
#[case("matmul_reduce_scatter/fused:f16,nk:w=2:rows=8:columns=64:depth=72:inputs=fractions")]
fn what_relies_on_no_order_of_terms_passes_on_other_tensor_cores(#[case] id: &str) {
    let case: Case = id.parse().unwrap();
    for seed in 1..4 {
        let arithmetic = Arithmetic { tensor_cores: TensorCores::Bound, ..Arithmetic::default() };
        let verdict = judge(&case, &mut Emulator::new(EmulatorOptions { arithmetic, seed, ..EmulatorOptions::of(&REGISTRY) }));
        assert_eq!(verdict.status, Status::Pass, "{seed}: {verdict:#?}");
        assert!(verdict.held.contains(&"equals_plain".into()), "{verdict:#?}");
    }
}

#[rstest]
#[case("all_gather_matmul/chunked:bf16,nk:w=2:rows=8:columns=12:depth=8", "columns = 12: rows of 24 bytes, TMA needs a multiple of 16")]
#[case("matmul_reduce_scatter/chunked:f32,nk:w=2:rows=8:columns=8:depth=8", "dtype f32: products have bf16 and f16")]
#[case("all_gather_matmul/chunked:bf16,nk:w=2:rows=8:columns=8:depth=0", "depth = 0: 1 to 16777216")]
#[case(
    "all_gather_matmul/chunked:bf16,nk:w=8:rows=65536:columns=65536:depth=65536",
    "the reference would take more than 68719476736 multiplications on the host: fewer rows, columns, depth or groups"
)]
fn what_cannot_be_done_is_not_supported_with_the_reason(#[case] id: &str, #[case] reason: &str) {
    let verdict = judged(id);
    assert_eq!((verdict.status, verdict.reason), (Status::NotSupported, format!("not supported: {reason}")));
}

/// The emulator with something wrong about it.
struct Wrong {
    emulator: Emulator,
    /// Changes every plan before it runs.
    plan: fn(&mut Plan),
    /// Says what else it is than the emulator.
    gpus: usize,
}

impl Machine for Wrong {
    fn info(&self) -> MachineInfo {
        MachineInfo { gpus: self.gpus, ..self.emulator.info() }
    }

    fn max_world(&self) -> usize {
        self.emulator.max_world()
    }

    fn waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.emulator.waiting_blocks(world, groups)
    }

    fn rendezvous(&self) -> u64 {
        self.emulator.rendezvous()
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.emulator.open_group(world, buffers)
    }

    fn close_groups(&mut self) {
        self.emulator.close_groups();
    }

    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        self.emulator.read(group, rank, region)
    }

    fn fetch(&mut self, group: usize, rank: usize, region: &Region) -> Result<Deferred<Vec<u8>>, MachineError> {
        self.emulator.fetch(group, rank, region)
    }

    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        self.emulator.write(group, rank, region, bytes)
    }

    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        self.emulator.broken_canary(group)
    }

    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError> {
        let changed = |plan: &Arc<Plan>| {
            let mut plan = Plan::clone(plan);
            (self.plan)(&mut plan);
            Arc::new(plan)
        };
        let steps = script.steps.iter().map(|step| match step {
            Step::Enqueue { group, stream, plan } => Step::Enqueue { group: *group, stream: *stream, plan: changed(plan) },
            Step::Capture { graph, group, plans } => {
                Step::Capture { graph: *graph, group: *group, plans: plans.iter().map(changed).collect() }
            }
            other => other.clone(),
        });
        self.emulator.run(&Script { steps: steps.collect() }, deadline)
    }
}

/// Every operation of a plan, on side streams too.
fn each(ops: &mut Vec<Op>, change: &mut impl FnMut(&mut Vec<Op>)) {
    change(ops);
    for op in ops {
        if let Op::Fork { ops, .. } = op {
            each(ops, change);
        }
    }
}

/// A product of the first rank takes the rows of another part.
fn wrong_part(plan: &mut Plan) {
    each(&mut plan.ranks[0], &mut |ops| {
        for op in ops {
            if let Op::Matmul(call) = op
                && call.operands.a.offset > 0
            {
                call.operands.a.offset = 0;
            }
        }
    });
}

/// Nothing is multiplied on the second rank: C keeps the NaN.
fn no_product(plan: &mut Plan) {
    each(&mut plan.ranks[1], &mut |ops| ops.retain(|op| !matches!(op, Op::Matmul(_))));
}

/// The second rank stores its A over with NaN behind the call.
fn spoiled_input(plan: &mut Plan) {
    let a = plan.ranks[1].iter().find_map(|op| match op {
        Op::Copy { to, .. } if to.buffer == "a" => Some(to.clone()),
        _ => None,
    });
    plan.ranks[1].extend(a.map(|region| Op::Fill { region, byte: 0xff }));
}

/// If this fails, the harness would pass a wrong algorithm.
#[rstest]
#[case::part("all_gather_matmul/chunked", wrong_part, "reference")]
#[case::part_of_sum("matmul_reduce_scatter/chunked", wrong_part, "reference")]
#[case::missing("all_gather_matmul/push+matmul", no_product, "reference")]
#[case::missing_from_sum("matmul_reduce_scatter/matmul+pull", no_product, "reference")]
#[case::input("all_gather_matmul/copy_engine+matmul", spoiled_input, "input_unchanged")]
fn bugs_are_findings(#[case] path: &str, #[case] plan: fn(&mut Plan), #[case] property: &str) {
    for inputs in ["integers", "fractions"] {
        let case = format!("{path}:bf16,nk:w=3:rows=5:columns=16:depth=24:inputs={inputs}").parse().unwrap();
        let mut machine = Wrong { emulator: Emulator::new(EmulatorOptions::of(&REGISTRY)), plan, gpus: 0 };
        let verdict = judge(&case, &mut machine);
        assert_eq!(verdict.status, Status::Fail, "{verdict:#?}");
        assert!(verdict.findings.iter().any(|finding| finding.property == property), "{verdict:#?}");
    }
}

#[test]
fn a_wrong_element_is_named() {
    let mut machine = Wrong { emulator: Emulator::new(EmulatorOptions::of(&REGISTRY)), plan: no_product, gpus: 0 };
    let case = "all_gather_matmul/push+matmul:bf16,nk:w=2:rows=5:columns=16:depth=24".parse().unwrap();
    let reason = judge(&case, &mut machine).reason;
    let start = "group 0 rank 1: 160 of 160 elements of C are wrong, first row 0 column 0: NaN, expected ";
    assert!(reason.starts_with(start), "{reason}");
}

/// Ranks of side streams that share a GPU may wait for each other for ever.
#[test]
fn side_streams_want_a_gpu_for_each_rank() {
    let mut machine = Wrong { emulator: Emulator::new(EmulatorOptions::of(&REGISTRY)), plan: |_| {}, gpus: 2 };
    let verdict = judge(&"all_gather_matmul/chunked:bf16,nk:w=3:rows=5:columns=16:depth=24".parse().unwrap(), &mut machine);
    let reason = "plans with side streams need a GPU for each of 3 ranks, there are 2";
    assert_eq!((verdict.status, verdict.reason), (Status::NotSupported, format!("not supported: {reason}")));
    let verdict = judge(&"all_gather_matmul/push+matmul:bf16,nk:w=3:rows=5:columns=16:depth=24".parse().unwrap(), &mut machine);
    assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
}
