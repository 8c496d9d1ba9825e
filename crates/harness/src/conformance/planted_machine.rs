//! A machine for testing the judge: the emulator, where something goes wrong that no kernel did.

use std::{sync::Arc, time::Duration};

use super::{
    CollectiveCase,
    scenario::{self, Options, Recorded},
};
use crate::{
    REGISTRY,
    emulator::{Emulator, EmulatorOptions},
};
use passmuster_plan::{
    machine::{Machine, MachineError, MachineInfo, Run},
    plan::{BufferSpec, Plan, Region, Script, Step},
};

/// Changes what a call left in a rank's output, as bytes.
pub(super) type Bug = fn(Observed<'_>, &mut [u8]);

/// What a bug sees.
pub(super) struct Observed<'a> {
    /// Number of the call in the scenario.
    pub(super) call: usize,
    pub(super) rank: usize,
    /// What each rank had for the call.
    pub(super) inputs: &'a [Vec<u8>],
}

/// What goes wrong.
enum Wrong {
    Nothing,
    /// The results of the calls of a scenario, each right after the call.
    Results(Vec<Recorded>, Bug),
    /// Every plan.
    Plans(fn(&mut Plan)),
    /// The bytes around the buffers of a group.
    Canary(usize),
}

/// The emulator, and what goes wrong on it.
pub(super) struct PlantedMachine {
    machine: Emulator,
    wrong: Wrong,
}

impl PlantedMachine {
    /// A machine on which nothing goes wrong.
    pub(super) fn correct() -> PlantedMachine {
        PlantedMachine { machine: Emulator::new(EmulatorOptions::of(&REGISTRY)), wrong: Wrong::Nothing }
    }

    /// A machine for one case, whose results have a bug. A case that makes no scenario has none.
    pub(super) fn with_bug(case: &CollectiveCase, bug: Bug) -> PlantedMachine {
        let correct = PlantedMachine::correct();
        let waiting_blocks = correct.waiting_blocks(case.world as usize, case.groups() as usize);
        let calls = scenario::build(case, &Options { registry: &REGISTRY, waiting_blocks, shared_pads: false })
            .map_or(Vec::new(), |scenario| scenario.calls);
        PlantedMachine { wrong: Wrong::Results(calls, bug), ..correct }
    }

    /// A machine that carries out every plan as `change` leaves it.
    pub(super) fn with_plans(change: fn(&mut Plan)) -> PlantedMachine {
        PlantedMachine { wrong: Wrong::Plans(change), ..PlantedMachine::correct() }
    }

    /// From now on bytes around the buffers of `group` are not what they were.
    pub(super) fn break_canary(&mut self, group: usize) {
        self.wrong = Wrong::Canary(group);
    }
}

/// Runs a script step by step, and plants the bug in what each call gives before anything else sees it.
fn run_with_bug(machine: &mut Emulator, script: &Script, calls: &[Recorded], bug: Bug, deadline: Duration) -> Result<(), MachineError> {
    let mut calls = calls.iter().enumerate();
    for step in eager(script) {
        let script = |step| Script { steps: vec![step] };
        if !scenario::is_call(&step) {
            machine.run(&script(step), deadline)?;
            continue;
        }
        let (number, Recorded { group, call, .. }) = calls.next().expect("the scenario has every call of its script");
        let ranks = 0..call.world();
        let inputs: Vec<Vec<u8>> =
            ranks.clone().map(|rank| machine.read(*group, rank as usize, &call.input_of(rank))).collect::<Result<_, _>>()?;
        machine.run(&script(step), deadline)?;
        for rank in ranks {
            let (output, rank) = (call.output_of(rank), rank as usize);
            let mut result = machine.read(*group, rank, &output)?;
            bug(Observed { call: number, rank, inputs: &inputs }, &mut result);
            machine.write(*group, rank, &output, &result)?;
        }
    }
    Ok(())
}

/// The steps of a script. Each replay of a graph becomes the plans of that graph, enqueued again.
fn eager(script: &Script) -> Vec<Step> {
    let mut graphs: Vec<(usize, &[Arc<Plan>])> = Vec::new();
    let mut steps = Vec::new();
    for step in &script.steps {
        match step {
            Step::Capture { group, plans, .. } => graphs.push((*group, plans)),
            Step::Replay { graph, stream } => {
                let (group, plans) = graphs[*graph];
                steps.extend(plans.iter().map(|plan| Step::Enqueue { group, stream: *stream, plan: plan.clone() }));
            }
            step => steps.push(step.clone()),
        }
    }
    steps
}

/// A script whose plans are as `change` leaves them.
fn with_plans(script: &Script, change: fn(&mut Plan)) -> Script {
    let mut script = script.clone();
    for step in &mut script.steps {
        match step {
            Step::Enqueue { plan, .. } => change(Arc::make_mut(plan)),
            Step::Capture { plans, .. } => plans.iter_mut().for_each(|plan| change(Arc::make_mut(plan))),
            _ => {}
        }
    }
    script
}

impl Machine for PlantedMachine {
    fn info(&self) -> MachineInfo {
        self.machine.info()
    }

    fn max_world(&self) -> usize {
        self.machine.max_world()
    }

    fn waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.machine.waiting_blocks(world, groups)
    }

    fn rendezvous(&self) -> u64 {
        self.machine.rendezvous()
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.machine.open_group(world, buffers)
    }

    fn open_nodes(&mut self, world: usize, nodes: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.machine.open_nodes(world, nodes, buffers)
    }

    fn close_groups(&mut self) {
        self.machine.close_groups();
    }

    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        self.machine.read(group, rank, region)
    }

    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        self.machine.write(group, rank, region, bytes)
    }

    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        match self.wrong {
            Wrong::Canary(broken) if broken == group => Ok(Some((0, "input.0".into(), -1))),
            _ => self.machine.broken_canary(group),
        }
    }

    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError> {
        match &self.wrong {
            Wrong::Results(calls, bug) => run_with_bug(&mut self.machine, script, calls, *bug, deadline).map(|()| Run::default()),
            Wrong::Plans(change) => self.machine.run(&with_plans(script, *change), deadline),
            Wrong::Nothing | Wrong::Canary(_) => self.machine.run(script, deadline),
        }
    }
}
