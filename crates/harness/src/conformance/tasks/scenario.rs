//! What a case of a task does to the machine.
//!
//! Calls are back to back on ranks that run freely. Before each, copies in stream order put fresh inputs where the kernel reads them, and outputs are overwritten;
//! after it, copies take the outputs into a log. So an early read meets the inputs of the call before, or what was never a number, and a late one those of the next
//! call. Eager calls come twice with different draws and then once more with the first; a graph of all calls is launched twice.

use std::sync::Arc;

use super::TaskCase;
use crate::conformance::{
    Fault, Skew,
    scenario::{poison, start_at},
};
use passmuster_plan::{
    algorithms::{Registry, Target, TaskAlgorithm},
    plan::{BufferSpec, Departure, Op, Plan, Region, Role, Script, Step},
    task::TaskCall,
};

/// Draws of the inputs of each call.
pub(super) const DRAWS: usize = 3;

/// Calls of a graph whose case has one.
const CAPTURED: usize = 2;

/// Draws that the launches of a graph get, by turns.
const REPLAYED: [usize; 2] = [2, 1];

/// A case made ready to run.
pub(super) struct Scenario {
    /// Its buffers.
    pub buffers: Vec<BufferSpec>,
    /// What the ranks do.
    pub script: Script,
    /// The calls of different parameters.
    pub calls: Vec<TaskCall>,
    /// The calls that are made, in order.
    pub made: Vec<Made>,
    /// Which call, and which draw of its inputs, the inputs hold in the end.
    pub last: (usize, usize),
}

/// A call that was made, and where its outputs were kept.
pub(super) struct Made {
    /// Which of the calls.
    pub call: usize,
    /// Which draw of its inputs.
    pub draw: usize,
    /// What outputs held before it.
    pub poison: u8,
    /// Whether a graph made it.
    pub replayed: bool,
    /// For each output, by its tensor, where it was kept: as much as the largest call has.
    pub kept: Vec<(usize, Region)>,
}

/// Where a draw of a call's input is to lie before the run.
pub(super) fn drawn(calls: &[TaskCall], tensor: usize, call: usize, draw: usize) -> Region {
    let bytes = most_bytes(calls, tensor);
    Region::new(format!("draws.{}", calls[0].task.tensors()[tensor].name), ((call * DRAWS + draw) as u64) * bytes, bytes)
}

/// Bytes of a tensor in the largest call on any rank, in whole packs.
fn most_bytes(calls: &[TaskCall], tensor: usize) -> u64 {
    let of_call = |call: &TaskCall| (0..call.world()).map(|rank| call.region(tensor, rank).bytes).max().unwrap_or(0);
    calls.iter().map(of_call).max().unwrap_or(0).next_multiple_of(16)
}

/// Makes a case ready, of which a rank lets `waiting_blocks` blocks wait for peers.
///
/// # Errors
/// Why the case is not supported.
pub(super) fn build(registry: &Registry, case: &TaskCase, waiting_blocks: u32) -> Result<Scenario, String> {
    case.check_known(registry)?;
    let algorithm = case.algorithm(registry)?;
    let calls = case.calls(&**algorithm)?;
    let builder = Builder { case, algorithm: &**algorithm, waiting_blocks, calls: &calls };
    let (mut script, mut made) = (Script::default(), Vec::new());
    let last = builder.steps(&mut script, &mut made)?;
    let buffers = builder.buffers(made.len())?;
    Ok(Scenario { buffers, script, made, last, calls })
}

struct Builder<'a> {
    case: &'a TaskCase,
    algorithm: &'a dyn TaskAlgorithm,
    waiting_blocks: u32,
    calls: &'a [TaskCall],
}

fn copy(from: Region, to: Region) -> Option<Op> {
    (from.bytes > 0).then_some(Op::Copy { from, to, to_rank: None })
}

fn enqueue(plan: Plan) -> Step {
    Step::Enqueue { group: 0, stream: 0, plan: Arc::new(plan) }
}

impl Builder<'_> {
    fn inputs(&self) -> Vec<usize> {
        self.calls[0].task.inputs().map(|(at, _)| at).collect()
    }

    fn outputs(&self) -> Vec<usize> {
        self.calls[0].task.outputs().map(|(at, _)| at).collect()
    }

    fn name(&self, tensor: usize) -> &str {
        &self.calls[0].task.tensors()[tensor].name
    }

    /// How many calls a graph has.
    fn captured(&self) -> usize {
        self.calls.len().max(CAPTURED)
    }

    /// The `number`th slot of a buffer that has one for each of several calls.
    fn slot(&self, what: &str, tensor: usize, number: usize) -> Region {
        let bytes = most_bytes(self.calls, tensor);
        Region::new(format!("{what}.{}", self.name(tensor)), number as u64 * bytes, bytes)
    }

    fn buffers(&self, made: usize) -> Result<Vec<BufferSpec>, String> {
        let mut buffers = Vec::new();
        let slots = |what: &str, tensor: usize, number: usize| {
            let bytes = most_bytes(self.calls, tensor) * number as u64;
            BufferSpec { local: true, ..BufferSpec::new(format!("{what}.{}", self.name(tensor)), bytes, Role::Data) }
        };
        for (at, tensor) in self.calls[0].task.tensors().iter().enumerate() {
            buffers.push(BufferSpec::new(tensor.buffer(), most_bytes(self.calls, at), Role::Data));
            if tensor.role.is_input() {
                buffers.push(slots("draws", at, DRAWS * self.calls.len()));
                buffers.push(slots("next", at, self.captured()));
            }
            if tensor.role.is_output() {
                buffers.push(slots("log", at, made));
                buffers.push(slots("last", at, self.captured()));
            }
        }
        let mut workspace = self.algorithm.workspace(self.calls)?;
        start_at(self.case.start, &mut workspace);
        buffers.extend(workspace);
        Ok(buffers)
    }

    /// All of a tensor's buffer.
    fn whole(&self, tensor: usize) -> Region {
        Region::new(self.calls[0].task.tensors()[tensor].buffer(), 0, most_bytes(self.calls, tensor))
    }

    /// A call between the copies of its inputs and of its outputs.
    fn surrounded(
        &self,
        call: &TaskCall,
        number: u64,
        poison: u8,
        from: impl Fn(usize) -> Region,
        to: impl Fn(usize) -> Region,
    ) -> Result<Plan, String> {
        let target = Target { call: number, waiting_blocks: self.waiting_blocks, ..Target::default() };
        let mut plan = self.algorithm.plan(call, self.calls, &target)?;
        for (rank, ops) in (0..).zip(&mut plan.ranks) {
            // Behind what a rank has of an output, and behind an input that is replaced, nothing may be written.
            let outputs = self.outputs();
            let before = outputs.iter().map(|&at| Op::Fill { region: self.whole(at), byte: poison });
            let inputs = self.inputs();
            let brought = inputs.into_iter().filter_map(|at| {
                let region = call.region(at, rank);
                copy(Region { bytes: region.bytes, ..from(at) }, region)
            });
            let kept = outputs.iter().filter_map(|&at| copy(self.whole(at), to(at)));
            let own = std::mem::take(ops);
            *ops = before.chain(brought).chain(own).chain(kept).collect();
        }
        Ok(plan)
    }

    /// A plan of copies of whole slots on every rank.
    fn copies(&self, name: &str, copies: &[(Region, Region)]) -> Plan {
        let ops: Vec<Op> = copies.iter().filter_map(|(from, to)| copy(from.clone(), to.clone())).collect();
        Plan::per_rank(name, self.case.world, |_| ops.clone())
    }

    /// The steps. Says which draw of which call the inputs hold in the end.
    fn steps(&self, script: &mut Script, made: &mut Vec<Made>) -> Result<(usize, usize), String> {
        let late =
            || self.case.skew.map(|Skew { rank, microseconds, .. }| Step::Delay { rank: rank as usize, microseconds: microseconds.into() });
        let outputs = self.outputs();
        let note = |made: &mut Vec<Made>, call, draw, poison, replayed| {
            let kept = outputs.iter().map(|&at| (at, self.slot("log", at, made.len()))).collect();
            made.push(Made { call, draw, poison, replayed, kept });
        };
        let eager = (0..2).flat_map(|draw| (0..self.calls.len()).map(move |call| (call, draw))).chain([(0, 0)]);
        for (number, (call, draw)) in eager.enumerate() {
            let poison = poison(number);
            note(made, call, draw, poison, false);
            let at = made.len() - 1;
            let plan = self.surrounded(
                &self.calls[call],
                number as u64,
                poison,
                |tensor| drawn(self.calls, tensor, call, draw),
                |tensor| self.slot("log", tensor, at),
            )?;
            if number == 1 {
                script.steps.extend(late());
                if let Some(Fault::Absent(rank)) = self.case.fault {
                    script.steps.push(Step::Leave { rank: rank as usize, how: Departure::Idle });
                }
            }
            script.steps.push(enqueue(plan));
        }
        if self.algorithm.numbers_calls() {
            return Ok((0, 0));
        }
        let plans = (0..self.captured())
            .map(|slot| {
                let call = &self.calls[slot % self.calls.len()];
                let plan = self.surrounded(call, 0, poison(0), |at| self.slot("next", at, slot), |at| self.slot("last", at, slot))?;
                Ok(Arc::new(plan))
            })
            .collect::<Result<Vec<_>, String>>()?;
        script.steps.push(Step::Capture { graph: 0, group: 0, plans });
        let mut last = (0, 0);
        for draws in REPLAYED {
            let draw = |slot: usize| (draws + slot / self.calls.len()) % DRAWS;
            let inputs = self.inputs();
            let next: Vec<(Region, Region)> = (0..self.captured())
                .flat_map(|slot| inputs.iter().map(move |&at| (slot, at)))
                .map(|(slot, at)| (drawn(self.calls, at, slot % self.calls.len(), draw(slot)), self.slot("next", at, slot)))
                .collect();
            script.steps.push(enqueue(self.copies("next draws", &next)));
            script.steps.extend(late().filter(|_| draws == REPLAYED[1]));
            script.steps.push(Step::Replay { graph: 0, stream: 0 });
            let mut keep = Vec::new();
            for slot in 0..self.captured() {
                note(made, slot % self.calls.len(), draw(slot), poison(0), true);
                let at = made.len() - 1;
                keep.extend(outputs.iter().map(|&tensor| (self.slot("last", tensor, slot), self.slot("log", tensor, at))));
                last = (slot % self.calls.len(), draw(slot));
            }
            script.steps.push(enqueue(self.copies("keep", &keep)));
        }
        Ok(last)
    }
}
