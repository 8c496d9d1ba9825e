//! The method: how calls are timed. On every machine, through the trait only.
//!
//! A sample is several calls between two events of each rank's stream; its time is that of the slowest rank over the number of calls. In front
//! of a sample all ranks meet on their devices ([`gate`]), so that none starts early, and before that each rank overwrites more memory than
//! its L2 holds. The calls of one sample go round copies of the buffers, so that each finds its data cold.
//!
//! In graphs, the calls of a sample are one captured graph. Eagerly, the host enqueues them one by one into empty streams, from threads that
//! start together: there the launch counts, and a gate would hide it.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::Workload;
use crate::{
    algorithms::{Algorithm, Target, gate},
    machine::{Condition, Machine, MachineError},
    plan::{Arg, BufferSpec, Build, Call, Launch, Op, Plan, RankCall, Region, Role, Script, Step},
};

/// How calls are timed. Fields that older records lack say how those were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    /// Calls of one sample: in one graph, or enqueued one after the other.
    pub calls: u32,
    /// Samples of each round.
    pub replays: u32,
    /// Samples before the first that counts, in each round.
    pub warm_up: u32,
    /// Rounds: between two of a contender, all others have one.
    #[serde(default = "one")]
    pub rounds: u32,
    /// Copies of the buffers, which the calls of a sample go round.
    #[serde(default = "one")]
    pub copies: u32,
    /// Bytes that each rank overwrites before a sample; 0 where its L2 was left as it was.
    #[serde(default)]
    pub flush: u64,
    /// Whether ranks meet on their devices before a sample in a graph.
    #[serde(default)]
    pub gated: bool,
    /// One rank that comes late to every call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Late>,
}

fn one() -> u32 {
    1
}

/// One rank that comes late to every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// Which.
    pub rank: u32,
    /// By how much.
    pub microseconds: u64,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.rank, self.microseconds)
    }
}

impl FromStr for Late {
    type Err = String;

    /// `3+20`: rank 3 by 20 microseconds.
    fn from_str(text: &str) -> Result<Late, String> {
        let parts = text.split_once('+').and_then(|(rank, late)| Some((rank.parse().ok()?, late.parse().ok()?)));
        parts
            .map(|(rank, microseconds)| Late { rank, microseconds })
            .ok_or_else(|| format!("`{text}` is not RANK+MICROSECONDS, as in 3+20"))
    }
}

/// Byte of which inputs consist: small in every type, and no sum of it overflows.
const SOME_NUMBER: u8 = 0x3c;

/// More than any device's L2 holds, twice over.
const FLUSH: u64 = 256 << 20;

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Method { calls, replays, warm_up, rounds, copies, flush, gated, late } = *self;
        write!(
            f,
            "rounds: {rounds}, samples of each: {replays} after {warm_up}, calls of each: {calls}, copies of the buffers: {copies}; "
        )?;
        match flush {
            0 => f.write_str("L2 as it was")?,
            bytes => write!(f, "L2 cold ({} MiB overwritten before each sample)", bytes >> 20)?,
        }
        f.write_str(if gated { "; ranks meet on their devices before each sample in a graph" } else { "; ranks start freely" })?;
        late.map_or(Ok(()), |late| write!(f, "; rank {} comes {} us late to every call", late.rank, late.microseconds))
    }
}

impl Method {
    /// A method that keeps one round of `bytes` well under a second: cold, gated, nobody late.
    pub fn for_bytes(bytes: u64) -> Method {
        let calls = if bytes >= 16 << 20 { 4 } else { 20 };
        let copies = FLUSH.div_ceil(2 * bytes.max(1)).min(calls.into()) as u32;
        Method { calls, replays: 10, warm_up: 2, rounds: 6, copies, flush: FLUSH, gated: true, late: None }
    }

    /// The same on the same buffers each time, which small calls then find in L2.
    pub fn warm(self) -> Method {
        Method { copies: 1, flush: 0, ..self }
    }
}

/// What one round gave: microseconds a call of each sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// In a captured graph.
    pub graph: Vec<f64>,
    /// Enqueued by the host.
    pub eager: Vec<f64>,
    /// How the devices fared at its end.
    pub conditions: Vec<Condition>,
}

/// Times contenders by turns on one machine. What it opened for a workload stays open until it is asked for another.
pub struct Timer<'m> {
    machine: &'m mut dyn Machine,
    deadline: Duration,
    of: Option<(Workload, Method)>,
    prepared: BTreeMap<&'static str, Prepared>,
}

/// A contender made ready.
struct Prepared {
    group: usize,
    /// One for each call of a sample.
    plans: Vec<Arc<Plan>>,
    gate: Arc<Plan>,
    flush: Option<Arc<Plan>>,
}

impl<'m> Timer<'m> {
    /// On a machine whose runs get `deadline` each.
    pub fn new(machine: &'m mut dyn Machine, deadline: Duration) -> Timer<'m> {
        Timer { machine, deadline, of: None, prepared: BTreeMap::new() }
    }

    /// The machine, for something else. What was open is closed.
    pub fn machine(&mut self) -> &mut dyn Machine {
        self.close();
        self.machine
    }

    fn close(&mut self) {
        self.machine.close_groups();
        self.prepared.clear();
        self.of = None;
    }

    /// Times one round. All elements of all inputs are the same small number; conformance is judged elsewhere.
    ///
    /// # Errors
    /// `NotSupported` where the algorithm cannot do the call, otherwise as [`Machine::run`].
    pub fn round(&mut self, algorithm: &'static dyn Algorithm, workload: &Workload, method: &Method) -> Result<Round, MachineError> {
        self.prepare(algorithm, workload, method)?;
        let prepared = &self.prepared[algorithm.name()];
        let marks = self.machine.run(&prepared.in_graph(method), self.deadline)?.marks;
        // Every other interval lies between two samples.
        let graph = marks.iter().step_by(2).map(|ranks| a_call(ranks, method)).collect();
        let conditions = self.machine.conditions();
        let mut eager = Vec::new();
        for sample in 0..method.warm_up + method.replays {
            if let Some(flush) = &prepared.flush {
                let flush = Step::Enqueue { group: prepared.group, stream: 0, plan: flush.clone() };
                self.machine.run(&Script { steps: vec![flush] }, self.deadline)?;
            }
            let marks = self.machine.run(&prepared.eagerly(), self.deadline)?.marks;
            if sample >= method.warm_up {
                eager.extend(marks.iter().map(|ranks| a_call(ranks, method)));
            }
        }
        Ok(Round { graph, eager, conditions })
    }

    /// What each operation of one call took on each rank, one after the other as the host enqueues them: for a trace. `spans[rank]` are names
    /// and times in microseconds from the moment at which all ranks have met.
    ///
    /// # Errors
    /// As [`Timer::round`].
    pub fn spans(
        &mut self,
        algorithm: &'static dyn Algorithm,
        workload: &Workload,
        method: &Method,
    ) -> Result<Vec<Vec<Span>>, MachineError> {
        self.prepare(algorithm, workload, method)?;
        let prepared = &self.prepared[algorithm.name()];
        let plan = &prepared.plans[0];
        let enqueue = |plan: &Arc<Plan>| Step::Enqueue { group: prepared.group, stream: 0, plan: plan.clone() };
        let single = |at: usize| Plan {
            name: plan.name.clone(),
            ranks: plan.ranks.iter().map(|ops| ops.get(at).cloned().into_iter().collect()).collect(),
        };
        let longest = plan.ranks.iter().map(Vec::len).max().unwrap_or(0);
        // Once before: what is loaded at first use is not what is looked at.
        let mut steps = vec![enqueue(plan), enqueue(&prepared.gate), Step::Mark];
        for at in 0..longest {
            steps.extend([enqueue(&Arc::new(single(at))), Step::Mark]);
        }
        let marks = self.machine.run(&Script { steps }, self.deadline)?.marks;
        let of_rank = |(rank, ops): (usize, &Vec<Op>)| {
            let mut now = 0.0;
            let mut spans = Vec::with_capacity(ops.len());
            for (op, ranks) in ops.iter().zip(&marks) {
                let took = ranks.get(rank).copied().unwrap_or_default();
                spans.push(Span { name: op.to_string(), begin: now, end: now + took });
                now += took;
            }
            spans
        };
        Ok(plan.ranks.iter().enumerate().map(of_rank).collect())
    }

    fn prepare(&mut self, algorithm: &'static dyn Algorithm, workload: &Workload, method: &Method) -> Result<(), MachineError> {
        if self.of != Some((*workload, *method)) {
            self.close();
            self.of = Some((*workload, *method));
        }
        if self.prepared.contains_key(algorithm.name()) {
            return Ok(());
        }
        let invalid = |reason: String| MachineError::Invalid { reason };
        if let Some(late) = method.late.filter(|late| late.rank >= workload.world) {
            return Err(invalid(format!("rank {} cannot be late: there are ranks 0 to {}", late.rank, workload.world - 1)));
        }
        let copies = method.copies.clamp(1, method.calls);
        let (calls, mut buffers) = calls(workload, copies).map_err(invalid)?;
        algorithm.supports(&calls[0]).map_err(|reason| MachineError::NotSupported { reason })?;
        buffers.extend(algorithm.workspace(workload.dtype, workload.world, calls[0].bytes()));
        let (words, gate) = gate(workload.world);
        buffers.push(words);
        let flush = (method.flush > 0).then(|| {
            let spec = BufferSpec { local: true, ..BufferSpec::new("flush", method.flush, Role::Data) };
            let plan = Plan::per_rank("flush", workload.world, |_| vec![Op::Fill { region: spec.whole(), byte: 0 }]);
            buffers.push(spec);
            Arc::new(plan)
        });
        let target = Target { build: Build::Release, waiting_blocks: self.machine.waiting_blocks(workload.world as usize, 1) };
        let plan = |call| {
            let mut plan = algorithm.plan(call, &target);
            if let Some(late) = method.late {
                plan.ranks[late.rank as usize].insert(0, delay(late));
            }
            Arc::new(plan)
        };
        let of_copies: Vec<Arc<Plan>> = calls.iter().map(plan).collect();
        let plans = of_copies.iter().cycle().take(method.calls as usize).cloned().collect();
        let group = self.machine.open_group(workload.world as usize, &buffers)?;
        let numbers = Plan::per_rank("numbers", workload.world, |_| vec![Op::Fill { region: buffers[0].whole(), byte: SOME_NUMBER }]);
        let numbers = Step::Enqueue { group, stream: 0, plan: Arc::new(numbers) };
        self.machine.run(&Script { steps: vec![numbers] }, self.deadline)?;
        self.prepared.insert(algorithm.name(), Prepared { group, plans, gate: Arc::new(gate), flush });
        Ok(())
    }
}

/// One operation of a rank, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// What it is.
    pub name: String,
    /// When it began.
    pub begin: f64,
    /// When it was done.
    pub end: f64,
}

impl Prepared {
    fn in_graph(&self, method: &Method) -> Script {
        let enqueue = |plan: &Arc<Plan>| Step::Enqueue { group: self.group, stream: 0, plan: plan.clone() };
        let mut steps = vec![Step::Capture { graph: 0, group: self.group, plans: self.plans.clone() }];
        for sample in 0..method.warm_up + method.replays {
            steps.extend(self.flush.iter().map(enqueue));
            steps.extend(method.gated.then(|| enqueue(&self.gate)));
            let replay = Step::Replay { graph: 0, stream: 0 };
            steps.extend(if sample < method.warm_up { vec![replay] } else { vec![Step::Mark, replay, Step::Mark] });
        }
        Script { steps }
    }

    fn eagerly(&self) -> Script {
        let mut steps = vec![Step::Mark];
        steps.extend(self.plans.iter().map(|plan| Step::Enqueue { group: self.group, stream: 0, plan: plan.clone() }));
        steps.push(Step::Mark);
        Script { steps }
    }
}

/// Time of one call, of the slowest rank.
fn a_call(ranks: &[f64], method: &Method) -> f64 {
    ranks.iter().copied().fold(0.0, f64::max) / f64::from(method.calls)
}

/// Calls out of place on each of so many copies of their buffers, and these.
fn calls(workload: &Workload, copies: u32) -> Result<(Vec<Call>, Vec<BufferSpec>), String> {
    let Workload { collective, dtype, op, world, .. } = *workload;
    let shape = workload.shape();
    let sizes = [("input", shape.input()), ("output", shape.output())].map(|(name, elements)| (name, elements * dtype.size()));
    // Every copy starts where an allocation could.
    let stride = |bytes: u64| bytes.next_multiple_of(512);
    let buffers = sizes.map(|(name, bytes)| BufferSpec::new(name, u64::from(copies) * stride(bytes), Role::Data));
    let call = |copy: u64| {
        let [input, output] = sizes.map(|(name, bytes)| Region::new(name, copy * stride(bytes), bytes));
        let first = RankCall { collective, dtype, op, count: shape.count, root: 0, input, output };
        Call::of_all_ranks(&first, world, &buffers).map_err(|error| error.to_string())
    };
    Ok(((0..copies.into()).map(call).collect::<Result<_, _>>()?, buffers.to_vec()))
}

/// What makes a rank late.
fn delay(late: Late) -> Op {
    Op::Launch(Launch {
        module: "bench/late".into(),
        entry: "late".into(),
        build: Build::Release,
        grid: 1,
        block: 1,
        dynamic_shared: 0,
        waits_for_peers: false,
        args: vec![Arg::U64(late.microseconds.saturating_mul(1000))],
    })
}
