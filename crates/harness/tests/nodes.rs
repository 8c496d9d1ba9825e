//! Ranks on several nodes, on the emulator: what they can reach, and what becomes of a call of the library between nodes.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

use passmuster_harness::{
    conformance::{
        CollectiveCase, List, Status, Verdict,
        runner::{self, Settings},
    },
    emulator::{Emulator, EmulatorOptions, Interleaving},
};
use passmuster_plan::{
    algorithms::{Registry, Target},
    collective::{Collective, DType, ReduceOp, Shape},
    machine::{Machine, MachineError, MachineInfo, Run},
    plan::{BufferSpec, Call, NcclCall, Op, Plan, RankCall, Region, Role, Script, Step},
};

const DEADLINE: Duration = Duration::from_secs(60);

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

/// A machine whose scripts are as a change leaves them.
struct Changed(Emulator, fn(&mut Plan));

impl Machine for Changed {
    fn info(&self) -> MachineInfo {
        self.0.info()
    }

    fn max_world(&self) -> usize {
        self.0.max_world()
    }

    fn waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.0.waiting_blocks(world, groups)
    }

    fn rendezvous(&self) -> u64 {
        self.0.rendezvous()
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.0.open_group(world, buffers)
    }

    fn open_nodes(&mut self, world: usize, nodes: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.0.open_nodes(world, nodes, buffers)
    }

    fn close_groups(&mut self) {
        self.0.close_groups();
    }

    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        self.0.read(group, rank, region)
    }

    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        self.0.write(group, rank, region, bytes)
    }

    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        self.0.broken_canary(group)
    }

    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError> {
        let mut script = script.clone();
        for step in &mut script.steps {
            match step {
                Step::Enqueue { plan, .. } => self.1(Arc::make_mut(plan)),
                Step::Capture { plans, .. } => plans.iter_mut().for_each(|plan| self.1(Arc::make_mut(plan))),
                _ => {}
            }
        }
        self.0.run(&script, deadline)
    }
}

fn emulator() -> Emulator {
    Emulator::new(EmulatorOptions::of(&REGISTRY))
}

fn judge(case: &CollectiveCase, machine: &mut dyn Machine) -> Verdict {
    runner::judge(case, machine, &Settings { registry: &REGISTRY, deadline: DEADLINE, shared_pads: false, progress: &|_| {} })
}

/// Two nodes of two ranks, of each collective that spans nodes.
fn cases() -> Vec<CollectiveCase> {
    let mut cases = List::Smoke.cases(&REGISTRY, 0);
    cases.retain(|case| case.nodes == 2);
    assert_eq!(cases.len(), 4, "{cases:?}");
    cases
}

fn region(name: &str, bytes: u64) -> Region {
    Region::new(name, 0, bytes)
}

fn plan(nodes: u32, world: u32, ops: impl Fn(u32) -> Vec<Op>) -> Arc<Plan> {
    Arc::new(Plan { nodes, ..Plan::per_rank("p", world, ops) })
}

fn run(machine: &mut Emulator, group: usize, plan: Arc<Plan>) -> Result<Run, MachineError> {
    machine.run(&Script { steps: vec![Step::Enqueue { group, stream: 0, plan }] }, DEADLINE)
}

#[test]
fn collectives_of_two_levels_pass() {
    for case in cases() {
        let verdict = judge(&case, &mut emulator());
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        assert!(verdict.held.contains(&"reference".into()), "{verdict:#?}");
    }
}

/// If this fails, a node that never hears of the others passes.
#[test]
fn what_does_not_leave_its_node_is_found() {
    let without_calls = |plan: &mut Plan| plan.ranks.iter_mut().for_each(|ops| ops.retain(|op| !matches!(op, Op::Nccl(_))));
    for case in cases() {
        let case = CollectiveCase { peer: None, ..case };
        let verdict = judge(&case, &mut Changed(emulator(), without_calls));
        assert_eq!(verdict.status, Status::Fail, "{case}: {verdict:#?}");
    }
}

/// If this fails, a sum across nodes that takes the ranks of another index passes.
#[test]
fn what_goes_to_another_index_is_found() {
    let turned = |plan: &mut Plan| {
        if plan.nodes == 2 {
            // The second node's ranks have each other's parts.
            plan.ranks.swap(2, 3);
        }
    };
    let case: CollectiveCase = "reduce_scatter/hierarchical:f32,sum:w=4:n=64:nodes=2".parse().unwrap();
    let verdict = judge(&case, &mut Changed(emulator(), turned));
    assert!(verdict.status.is_finding(), "{verdict:#?}");
}

#[test]
fn ranks_that_operations_name_are_those_of_the_node() {
    let mut machine = emulator();
    let buffers = ["a", "b"].map(|name| BufferSpec::new(name, 4, Role::Data));
    let group = machine.open_nodes(4, 2, &buffers).unwrap();
    for rank in 0..4 {
        machine.write(group, rank, &region("a", 4), &[rank as u8; 4]).unwrap();
    }
    let copy = |to| vec![Op::Copy { from: region("a", 4), to: region("b", 4), to_rank: Some(to) }];
    run(&mut machine, group, plan(2, 4, |rank| copy((rank + 1) % 2))).unwrap();
    let read: Vec<u8> = (0..4).map(|rank| machine.read(group, rank, &region("b", 4)).unwrap()[0]).collect();
    assert_eq!(read, [1, 0, 3, 2]);
    let refused = run(&mut machine, group, plan(2, 4, |_| copy(2))).unwrap_err().to_string();
    assert!(refused.contains("of rank 2: a node of the group has ranks 0 to 1"), "{refused}");
}

/// If this fails, a kernel of one node's ranks is given addresses of fewer than it takes for its peers.
#[test]
fn plans_of_one_node_are_not_for_two() {
    let mut machine = emulator();
    let shape = Shape::new(Collective::AllReduce, 4, 8);
    let (call, buffers) = Call::standalone(shape, DType::F32, ReduceOp::Sum).unwrap();
    let two_shot = REGISTRY.find(Collective::AllReduce, "two_shot").unwrap();
    let buffers = [&buffers[..], &two_shot.workspace(DType::F32, 4, call.bytes())].concat();
    let group = machine.open_nodes(4, 2, &buffers).unwrap();
    let refused = run(&mut machine, group, Arc::new(two_shot.plan(&call, &Target::default()))).unwrap_err().to_string();
    assert!(refused.contains("ranks of it reach each other's memory, as those of 1 nodes can: the group has 2"), "{refused}");
    let error = machine.open_nodes(4, 3, &buffers).unwrap_err().to_string();
    assert!(error.contains("world size 4 on 3 nodes: a group has as many ranks on each"), "{error}");
}

/// One element on each of four ranks, summed by the library across two nodes.
fn across() -> Op {
    let (collective, dtype, op) = (Collective::AllReduce, DType::I32, ReduceOp::Sum);
    let (input, output) = (region("a", 4), region("b", 4));
    let call = RankCall { collective, dtype, op, count: 1, root: 0, factor: None, parts: None, input, output };
    Op::Nccl(NcclCall { call, windows: false, across_nodes: true })
}

fn opened(machine: &mut Emulator) -> usize {
    let buffers = ["a", "b", "c"].map(|name| BufferSpec::new(name, 4, Role::Data));
    let group = machine.open_nodes(4, 2, &buffers).unwrap();
    for rank in 0..4 {
        machine.write(group, rank, &region("a", 4), &(1i32 << rank).to_le_bytes()).unwrap();
        machine.write(group, rank, &region("c", 4), &(100i32).to_le_bytes()).unwrap();
    }
    group
}

#[test]
fn ranks_of_one_index_call_the_library_together() {
    let mut machine = emulator();
    let group = opened(&mut machine);
    run(&mut machine, group, plan(2, 4, |_| vec![across()])).unwrap();
    let sums: Vec<i32> =
        (0..4).map(|rank| i32::from_le_bytes(machine.read(group, rank, &region("b", 4)).unwrap().try_into().unwrap())).collect();
    assert_eq!(sums, [1 + 4, 2 + 8, 1 + 4, 2 + 8]);
    let hang = run(&mut machine, group, plan(2, 4, |rank| if rank == 3 { Vec::new() } else { vec![across()] })).unwrap_err();
    let told = hang.to_string();
    assert!(told.contains("rank 1 stream 0 in library call 0 across nodes of group 0 waits for ranks [3]"), "{told}");
}

/// If this fails, all ranks have their results at once, and nobody sees who takes that for granted.
#[test]
fn a_rank_goes_on_before_others_have_their_results_and_after() {
    let mut ends = BTreeSet::new();
    for seed in 0..40 {
        let options = EmulatorOptions { profile: passmuster_harness::emulator::Profile::Off, ..EmulatorOptions::default() };
        let mut machine = Emulator::new(options);
        machine.set_interleaving(Interleaving::nth(seed, 0));
        let group = opened(&mut machine);
        // Rank 0 writes to its neighbour's result as soon as it has its own.
        let overwrite = Op::Copy { from: region("c", 4), to: region("b", 4), to_rank: Some(1) };
        run(&mut machine, group, plan(2, 4, |rank| vec![across()].into_iter().chain((rank == 0).then(|| overwrite.clone())).collect()))
            .unwrap();
        ends.insert(i32::from_le_bytes(machine.read(group, 1, &region("b", 4)).unwrap().try_into().unwrap()));
    }
    assert_eq!(ends, BTreeSet::from([2 + 8, 100]));
}
