//! Conformance of tasks that authors declare ([`Task`](passmuster_plan::task::Task)): cases, what they do, and how it is judged by the author's own reference.

mod case;
mod compare;
mod diagnosis;
mod program;
pub mod references;
mod scenario;

use passmuster_plan::{
    algorithms::{Registry, TaskAlgorithm},
    collective::{DType, Element},
    machine::{Machine, MachineError},
    plan::{BufferSpec, Region, Script},
    task::{Array, Computed, Contents, ReferenceCall, TaskCall, Tensor},
    with_element,
};

pub use case::{Drawn, Sizes, TaskCase, UnknownTask};
pub(super) use case::{KEYS, is_of_task};
pub use program::{Program, ProgramError};

use self::scenario::{DRAWS, Made, Scenario, drawn};
use super::{
    faults,
    inputs::mix,
    runner::{self, Checks, Settings},
    verdict::{Status, Verdict},
};

/// Judges one case on a machine. After a verdict of hang or crash the machine must not be used again.
pub(super) fn judge(case: &TaskCase, machine: &mut dyn Machine, settings: &Settings<'_>) -> Verdict {
    let verdict = runner::timed(case, || try_judge(case, machine, settings));
    match case.fault {
        Some(_) => faults::named(settings.registry, &case.clone().into(), verdict),
        None => verdict,
    }
}

fn try_judge(case: &TaskCase, machine: &mut dyn Machine, settings: &Settings<'_>) -> Result<Verdict, MachineError> {
    machine.close_groups();
    let world = case.world as usize;
    let algorithm = case.algorithm(settings.registry).map_err(|error| MachineError::Invalid { reason: error.into() })?;
    let scenario = scenario::build(settings.registry, case, machine.waiting_blocks(world, 1))
        .map_err(|reason| MachineError::NotSupported { reason })?;
    machine.check_budget(elements(&scenario.calls))?;
    let inputs = Inputs::draw(case, &scenario.calls);
    (settings.progress)("asking the reference");
    let references = References::ask(&**algorithm, &scenario.calls, &inputs).map_err(|reason| MachineError::Invalid { reason })?;
    (settings.progress)("opening groups");
    let group = machine.open_group(world, &scenario.buffers)?;
    for (call, draws) in inputs.all.iter().enumerate() {
        for (draw, of_draw) in draws.iter().enumerate() {
            for Input { tensor, bytes, .. } in of_draw {
                let region = drawn(&scenario.calls, *tensor, call, draw);
                for (rank, bytes) in bytes.iter().enumerate() {
                    machine.write(group, rank, &Region { bytes: bytes.len() as u64, ..region.clone() }, bytes)?;
                }
            }
        }
    }
    (settings.progress)("running");
    let ran = runner::run(machine, &scenario.script, settings.deadline)?;
    (settings.progress)("checking");
    let mut checks = Checks::default();
    checks.canaries(machine, group)?;
    let judged = Judged { case, algorithm: &**algorithm, scenario: &scenario, inputs: &inputs, references: &references };
    let vacuous = judged.check(machine, group, &mut checks)?;
    let mut verdict = ran.on(checks.verdict(case));
    if let (Status::Pass, Some(why)) = (verdict.status, vacuous) {
        (verdict.status, verdict.reason) = (Status::Inconclusive, why);
    }
    Ok(verdict)
}

/// Elements of all tensors of all ranks in the largest call, if they can be counted.
fn elements(calls: &[TaskCall]) -> u64 {
    let of_call = |call: &TaskCall| {
        let of_rank = |rank| (0..call.task.tensors().len()).map(move |tensor| call.elements(tensor, rank));
        (0..call.world()).flat_map(of_rank).fold(0_u64, u64::saturating_add)
    };
    calls.iter().map(of_call).max().unwrap_or(0)
}

/// What a case would do: its buffers, and the script.
///
/// # Errors
/// Why the case is not supported.
pub(super) fn prepared(registry: &Registry, case: &TaskCase, waiting_blocks: u32) -> Result<(Vec<Vec<BufferSpec>>, Script), String> {
    let scenario = scenario::build(registry, case, waiting_blocks)?;
    Ok((vec![scenario.buffers], scenario.script))
}

/// The inputs of all calls, draws and ranks.
struct Inputs {
    /// For each call, draw and input tensor: its number, the bytes of each rank, and what they are as numbers.
    all: Vec<Vec<Vec<Input>>>,
}

struct Input {
    tensor: usize,
    bytes: Vec<Vec<u8>>,
    arrays: Vec<Array>,
}

impl Inputs {
    fn draw(case: &TaskCase, calls: &[TaskCall]) -> Inputs {
        let of_draw = |number: usize, call: &TaskCall, draw: usize| {
            call.task.inputs().map(|of| Input::draw(case, call, (number, draw), of)).collect()
        };
        let of_call = |(number, call)| (0..DRAWS).map(|draw| of_draw(number, call, draw)).collect();
        Inputs { all: calls.iter().enumerate().map(of_call).collect() }
    }

    /// What a reference is given.
    fn arrays(&self, call: usize, draw: usize) -> Vec<Vec<Array>> {
        self.all[call][draw].iter().map(|input| input.arrays.clone()).collect()
    }
}

impl Input {
    fn draw(case: &TaskCase, call: &TaskCall, (number, draw): (usize, usize), (tensor, of): (usize, &Tensor)) -> Input {
        let dtype = call.dtype_of(of);
        let contents = if case.inputs == Drawn::Integers { Contents::Integers } else { of.contents };
        let (mut bytes, mut arrays) = (Vec::new(), Vec::new());
        for rank in 0..call.world() {
            let who = if of.same_on_all_ranks { 0 } else { u64::from(rank) + 1 };
            let key = [case.seed, number as u64, draw as u64, tensor as u64, who].into_iter().fold(0, |key, part| mix(key ^ part));
            let numbers = (0..call.elements(tensor, rank)).map(|index| contents.number(mix(key ^ mix(index))));
            let (own, values) = with_element!(dtype, T => rounded::<T>(numbers));
            bytes.push(own);
            arrays.push(Array { shape: call.shape(tensor, rank).to_vec(), values });
        }
        Input { tensor, bytes, arrays }
    }
}

/// Numbers in a type: as bytes, and what they are then.
fn rounded<T: Element>(numbers: impl Iterator<Item = f64>) -> (Vec<u8>, Vec<f64>) {
    let mut bytes = Vec::new();
    let values = numbers.map(|number| {
        let element = T::from_f64(number);
        bytes.extend_from_slice(&element.bits().to_le_bytes()[..size_of::<T>()]);
        element.to_f64()
    });
    let values = values.collect();
    (bytes, values)
}

/// What the outputs of all calls and draws are.
struct References {
    /// For each call, draw, output and rank.
    all: Vec<Vec<Vec<Vec<Computed>>>>,
}

impl References {
    /// Asks for all, and for the first a second time.
    ///
    /// # Errors
    /// No answer, one of another shape, one that is no number, or two answers to the same question.
    fn ask(algorithm: &dyn TaskAlgorithm, calls: &[TaskCall], inputs: &Inputs) -> Result<References, String> {
        let mut all = Vec::new();
        for (number, call) in calls.iter().enumerate() {
            let of_draw = |draw| asked(algorithm, call, &inputs.arrays(number, draw));
            let answers = (0..DRAWS).map(of_draw).collect::<Result<Vec<_>, _>>()?;
            if number == 0 && of_draw(0)? != answers[0] {
                return Err(format!("the reference ({}) gives two answers to the same call, {call}", algorithm.reference().describe()));
            }
            all.push(answers);
        }
        Ok(References { all })
    }
}

/// The outputs of a call by its reference, which must be of the right shapes.
fn asked(algorithm: &dyn TaskAlgorithm, call: &TaskCall, inputs: &[Vec<Array>]) -> Result<Vec<Vec<Computed>>, String> {
    let reference = algorithm.reference();
    let who = || format!("the reference ({})", reference.describe());
    let answer = reference.outputs(&ReferenceCall { call, inputs }).map_err(|why| format!("{} failed for {call}: {why}", who()))?;
    let outputs: Vec<(usize, &Tensor)> = call.task.outputs().collect();
    if answer.len() != outputs.len() {
        return Err(format!("{} gives {} outputs for {call}: the task has {}", who(), answer.len(), outputs.len()));
    }
    for ((at, tensor), of_ranks) in outputs.into_iter().zip(&answer) {
        if of_ranks.len() != call.world() as usize {
            return Err(format!("{} gives {} of {} ranks for {call}", who(), tensor.name, of_ranks.len()));
        }
        for (rank, computed) in (0..).zip(of_ranks) {
            let (has, needed) = (computed.values.len() as u64, call.elements(at, rank));
            let shape = call.shape(at, rank);
            if has != needed || computed.magnitudes.as_ref().is_some_and(|sizes| sizes.len() != computed.values.len()) {
                return Err(format!("{} gives {has} elements of {} for rank {rank} of {call}: its shape is {shape:?}", who(), tensor.name));
            }
            // Inputs are finite.
            let broken = computed.values.iter().chain(computed.magnitudes.iter().flatten()).position(|value| !value.is_finite());
            if let Some(at) = broken {
                return Err(format!(
                    "{} gives no finite number for element {at} of {} of rank {rank}, {call}, of finite inputs",
                    who(),
                    tensor.name
                ));
            }
        }
    }
    Ok(answer)
}

/// A case after its run.
struct Judged<'a> {
    case: &'a TaskCase,
    algorithm: &'a dyn TaskAlgorithm,
    scenario: &'a Scenario,
    inputs: &'a Inputs,
    references: &'a References,
}

/// What a call left: for each output, by its tensor, the bytes of each rank's buffer.
type Outputs = Vec<(usize, Vec<Vec<u8>>)>;

impl Judged<'_> {
    /// Checks everything that must hold after the run. Says why nothing much was judged, where bounds are as large as what they bound.
    fn check(&self, machine: &mut dyn Machine, group: usize, checks: &mut Checks) -> Result<Option<String>, MachineError> {
        let Judged { case, scenario, .. } = self;
        let mut read = |region: &Region| -> Result<Vec<Vec<u8>>, MachineError> {
            (0..case.world as usize).map(|rank| machine.read(group, rank, region)).collect()
        };
        let outputs: Vec<Outputs> = scenario
            .made
            .iter()
            .map(|made| made.kept.iter().map(|(tensor, region)| Ok((*tensor, read(region)?))).collect())
            .collect::<Result<_, MachineError>>()?;
        let mut vacuous = compare::Vacuous::default();
        let mut explained = false;
        for (index, (made, outputs)) in scenario.made.iter().zip(&outputs).enumerate() {
            let found = self.call(made, outputs, &mut vacuous, !explained).map_err(|reason| MachineError::Invalid { reason })?;
            explained |= found.is_some();
            checks.note("reference", Some(index), found);
            checks.note("untouched", Some(index), self.behind(made, outputs));
            checks.note("ranks_agree", Some(index), self.ranks_differ(made, outputs));
        }
        self.repeats(&outputs, checks);
        if self.algorithm.numbers_calls() {
            checks.not_applicable.push(("graph".into(), "hosts pass the number of the call, which a graph would repeat".into()));
        }
        let (call, draw) = scenario.last;
        let of_call = &scenario.calls[call];
        let last = scenario.made.iter().rposition(|made| (made.call, made.draw) == (call, draw));
        for Input { tensor: at, bytes: sent, .. } in &self.inputs.all[call][draw] {
            let tensor = &of_call.task.tensors()[*at];
            if tensor.role.is_output() {
                continue;
            }
            let mut changed = None;
            for (rank, sent) in (0..).zip(sent) {
                let now = machine.read(group, rank as usize, &of_call.region(*at, rank))?;
                let place = now.iter().zip(sent).position(|(now, sent)| now != sent);
                changed = changed.or(place.map(|at| format!("rank {rank}: byte {at} of the input {} was overwritten", tensor.name)));
            }
            checks.note("input_unchanged", last, changed.map(|summary| (summary, String::new())));
        }
        Ok(vacuous.reason())
    }

    /// The first output of a call that is not what it may be.
    fn call(
        &self,
        made: &Made,
        outputs: &Outputs,
        vacuous: &mut compare::Vacuous,
        explain: bool,
    ) -> Result<Option<(String, String)>, String> {
        let call = &self.scenario.calls[made.call];
        let references = &self.references.all[made.call][made.draw];
        for ((tensor, of_ranks), expected) in outputs.iter().zip(references) {
            for rank in 0..call.world() {
                let bytes = &of_ranks[rank as usize][..call.region(*tensor, rank).bytes as usize];
                let wrong = compare::wrong(call, *tensor, rank, &expected[rank as usize], bytes, vacuous)?;
                if let Some(wrong) = wrong {
                    let details = explain.then(|| diagnosis::explained(self, made, *tensor, rank, bytes)).flatten().unwrap_or_default();
                    return Ok(Some((wrong, details)));
                }
            }
        }
        Ok(None)
    }

    /// What was written behind what a rank has of an output in a call that is not the largest.
    fn behind(&self, made: &Made, outputs: &Outputs) -> Option<(String, String)> {
        let call = &self.scenario.calls[made.call];
        for (tensor, of_ranks) in outputs {
            for (rank, bytes) in (0..).zip(of_ranks) {
                let own = call.region(*tensor, rank).bytes as usize;
                if let Some(at) = bytes[own..].iter().position(|&byte| byte != made.poison) {
                    let name = &call.task.tensors()[*tensor].name;
                    return Some((
                        format!("rank {rank}: {name} has {own} bytes in this call, and byte {} was written", own + at),
                        String::new(),
                    ));
                }
            }
        }
        None
    }

    /// The first output that should be the same on all ranks and is not.
    fn ranks_differ(&self, made: &Made, outputs: &Outputs) -> Option<(String, String)> {
        let call = &self.scenario.calls[made.call];
        for (tensor, of_ranks) in outputs.iter().filter(|(tensor, _)| call.task.tensors()[*tensor].same_on_all_ranks) {
            let own = |rank: u32| &of_ranks[rank as usize][..call.region(*tensor, rank).bytes as usize];
            if let Some(rank) = (1..call.world()).find(|&rank| own(rank) != own(0)) {
                let name = &call.task.tensors()[*tensor].name;
                return Some((format!("{name} of rank {rank} differs from that of rank 0"), String::new()));
            }
        }
        None
    }

    /// Calls of the same inputs, which must come to the same bits where that is promised.
    fn repeats(&self, outputs: &[Outputs], checks: &mut Checks) {
        let contract = self.algorithm.contract();
        let made = &self.scenario.made;
        for (other, call) in made.iter().enumerate() {
            let Some(base) = made[..other].iter().position(|earlier| (earlier.call, earlier.draw) == (call.call, call.draw)) else {
                continue;
            };
            let (property, promised) =
                if call.replayed { ("graph", contract.graph_equals_eager) } else { ("repeat", contract.equal_run_to_run) };
            if promised {
                let of_call = &self.scenario.calls[call.call];
                let differs = |tensor: usize, rank: u32| {
                    let bytes = of_call.region(tensor, rank).bytes as usize;
                    let of = |outputs: &Outputs| {
                        outputs.iter().find(|(at, _)| *at == tensor).map(|(_, all)| all[rank as usize][..bytes].to_vec())
                    };
                    of(&outputs[base]) != of(&outputs[other])
                };
                let found = outputs[other].iter().find_map(|(tensor, _)| {
                    let rank = (0..of_call.world()).find(|&rank| differs(*tensor, rank))?;
                    let name = &of_call.task.tensors()[*tensor].name;
                    Some((format!("rank {rank}: {name} is not that of call {base}, which has the same inputs"), String::new()))
                });
                checks.note(property, Some(other), found);
            } else if !checks.not_applicable.iter().any(|(name, _)| name == property) {
                checks.not_applicable.push((property.into(), "the contract does not promise it".into()));
            }
        }
    }
}

/// The type of an output's elements.
fn dtype_of(call: &TaskCall, tensor: usize) -> DType {
    call.dtype_of(&call.task.tensors()[tensor])
}
