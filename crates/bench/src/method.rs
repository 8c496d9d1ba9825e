//! The method: how calls are timed. On every machine, through the trait only.
//!
//! A sample is several calls between two events of each rank's stream; its time is that of the slowest rank over the number of calls. In front
//! of a sample all ranks meet on their devices ([`gate`]), so that none starts early, and before that each rank overwrites more memory than
//! its L2 holds. The calls of one sample go round copies of the buffers, so that each finds its data cold.
//!
//! In graphs, the calls of a sample are one captured graph: each round's script captures the same plans, which the machine does once. Eagerly, the host enqueues them one by one into empty streams, from threads that
//! start together: there the launch counts, and a gate would hide it.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Contender, SmFreeCheck, Workload,
    check::look,
    devices::Devices,
    held,
    job::{Job, Numbers},
    notes::{Noted, Span},
    verdicts::{HostChecks, Hosts},
};
use passmuster_kernels::{Holders, gate};
use passmuster_plan::{
    machine::{Condition, Machine, MachineError, Run},
    plan::{Arg, BufferSpec, Launch, Op, Plan, Role, Script, Step},
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
    /// How often the processes that time were started, with as many of the rounds each: buffers lie elsewhere in each.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub starts: u32,
    /// Whether another process ran a kernel on each GPU before each round. Without, most kernels take 0.3 to 0.4 us more than they do where several processes share
    /// the GPUs, from when their process has mapped memory until another one has run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
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
    /// Whether copies that may be done in any order were enqueued as batches, outside graphs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub batched: bool,
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
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

/// More than any device's L2 holds, twice over.
const FLUSH: u64 = 256 << 20;

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Method { calls, replays, warm_up, rounds, starts, beside, copies, flush, gated, late, batched } = *self;
        write!(
            f,
            "rounds: {rounds}, samples of each: {replays} after {warm_up}, calls of each: {calls}, copies of the buffers: {copies}; "
        )?;
        match flush {
            0 => f.write_str("L2 as it was")?,
            bytes => write!(f, "L2 cold ({} MiB overwritten before each sample)", bytes >> 20)?,
        }
        f.write_str(if gated { "; ranks meet on their devices before each sample in a graph" } else { "; ranks start freely" })?;
        f.write_str(if batched { "; copies enqueued in batches" } else { "" })?;
        f.write_str(if beside { "; another process runs a kernel before each round" } else { "" })?;
        if starts > 1 {
            write!(f, "; processes started {starts} times")?;
        }
        late.map_or(Ok(()), |late| write!(f, "; rank {} comes {} us late to every call", late.rank, late.microseconds))
    }
}

impl Method {
    /// A method that keeps one round of `bytes` well under a second: cold, gated, nobody late.
    pub fn for_bytes(bytes: u64) -> Method {
        let calls = if bytes >= 16 << 20 { 4 } else { 20 };
        let copies = FLUSH.div_ceil(2 * bytes.max(1)).min(calls.into()) as u32;
        let (rounds, starts, replays, warm_up) = (6, 1, 10, 2);
        Method { calls, replays, warm_up, rounds, starts, beside: true, copies, flush: FLUSH, gated: true, late: None, batched: false }
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
    /// The products within calls that the host enqueued, where these are of interest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub products: Vec<f64>,
    /// How the devices fared at its end.
    pub conditions: Vec<Condition>,
    /// How often the hosts of all ranks met for the contender since its buffers were opened for the workload, that included.
    #[serde(default)]
    pub rendezvous: u64,
    /// How hosts came to what they waited for, where they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Hosts>,
}

/// Times contenders by turns on one machine. What it opened for a workload stays open until it is asked for another.
pub struct Timer<'m> {
    machine: &'m mut dyn Machine,
    deadline: Duration,
    of: Option<(Workload, Method)>,
    prepared: BTreeMap<String, Prepared>,
    /// What is run beside others.
    short: Option<Script>,
    /// Bytes in front of all buffers.
    displacement: u64,
}

/// By how much further in memory buffers lie in each start than in the one before. Processes that are started alike have their memory at the same places,
/// and where buffers lie is worth 5 % of a small call.
const DISPLACEMENT: u64 = 77 * 512;

/// A contender made ready.
struct Prepared {
    group: usize,
    /// One for each call of a sample.
    plans: Vec<Arc<Plan>>,
    /// The same with notes of the times of products, where these are of interest.
    noted: Vec<Arc<Noted>>,
    gate: Arc<Plan>,
    flush: Option<Arc<Plan>>,
    /// How often ranks have met for it.
    rendezvous: u64,
    verdicts: Option<HostChecks>,
}

impl<'m> Timer<'m> {
    /// On a machine whose runs get `deadline` each.
    pub fn new(machine: &'m mut dyn Machine, deadline: Duration) -> Timer<'m> {
        Timer { machine, deadline, of: None, prepared: BTreeMap::new(), short: None, displacement: 0 }
    }

    /// The same in the process of a later start, the first being 0.
    #[must_use]
    pub fn of_start(self, start: u32) -> Timer<'m> {
        Timer { displacement: u64::from(start) * DISPLACEMENT, ..self }
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
        self.short = None;
    }

    /// Opens and fills what the rounds of a contender need, so that none of them maps memory.
    ///
    /// # Errors
    /// As [`Timer::round`].
    pub fn get_ready(&mut self, contender: &Contender, workload: &Workload, method: &Method) -> Result<(), MachineError> {
        self.prepare(contender, workload, method).map(|_| ())
    }

    /// Runs a kernel that does nothing on each GPU, so that the next to run comes after another process.
    ///
    /// # Errors
    /// As [`Machine::run`].
    pub fn run_beside(&mut self) -> Result<(), MachineError> {
        if self.short.is_none() {
            self.close();
            let gpus = self.machine.info().gpus.max(1);
            let group = self.machine.open_group(gpus, &[])?;
            let plan = Plan::per_rank("beside", gpus as u32, |rank| vec![delay(Late { rank, microseconds: 0 })]);
            self.short = Some(Script { steps: vec![Step::Enqueue { group, stream: 0, plan: Arc::new(plan) }] });
        }
        self.machine.run(self.short.as_ref().expect("made above"), self.deadline).map(|_| ())
    }

    /// Times one round. Whether results are right is asked of [`Timer::check`], or of conformance.
    ///
    /// # Errors
    /// `NotSupported` where the contender cannot do the workload, otherwise as [`Machine::run`].
    pub fn round(&mut self, contender: &Contender, workload: &Workload, method: &Method) -> Result<Round, MachineError> {
        let name = self.prepare(contender, workload, method)?;
        let prepared = self.prepared.get_mut(&name).expect("prepared above");
        let met = self.machine.rendezvous();
        // Calls whose hosts wait for verdicts are in no graph.
        let marks = match prepared.verdicts {
            Some(_) => Vec::new(),
            None => self.machine.run(&prepared.in_graph(method), self.deadline)?.marks,
        };
        // Every other interval lies between two samples.
        let graph = marks.iter().step_by(2).map(|ranks| a_call(ranks, method)).collect();
        let conditions = self.machine.conditions();
        let (mut eager, mut products) = (Vec::new(), Vec::new());
        let mut hosts = prepared.verdicts.map(|_| Hosts::default());
        for sample in 0..method.warm_up + method.replays {
            if let Some(flush) = &prepared.flush {
                let flush = Step::Enqueue { group: prepared.group, stream: 0, plan: flush.clone() };
                self.machine.run(&Script { steps: vec![flush] }, self.deadline)?;
            }
            let Run { marks, fetched, .. } = self.machine.run(&prepared.eagerly(), self.deadline)?;
            if let Some(wrong) = prepared.verdicts.and_then(|verdicts| verdicts.wrong(&fetched)) {
                // It was right when it was looked at, before anything was timed.
                return Err(MachineError::Finding { findings: vec![wrong] });
            }
            if sample >= method.warm_up {
                hosts.iter_mut().for_each(|hosts| hosts.add(&fetched));
                let (calls, within) = prepared.eager_times(&marks, workload.world() as usize);
                eager.push(a_call(&calls, method));
                products.extend(within.map(|within| a_call(&within, method)));
            }
        }
        prepared.rendezvous += self.machine.rendezvous() - met;
        Ok(Round { graph, eager, products, conditions, rendezvous: prepared.rendezvous, hosts })
    }

    /// Whether a contender's results are right, on integers, called eagerly and from a graph: what was looked at, and what is wrong.
    ///
    /// # Errors
    /// As [`Timer::round`].
    pub fn check(&mut self, contender: &Contender, workload: &Workload) -> Result<(String, Option<String>), MachineError> {
        self.close();
        let devices = Devices::of(self.machine, workload.world());
        let job = contender.job(workload, 1, &devices)?;
        let contents = Arc::new(job.fill(Numbers::Integers));
        let Job { world, buffers, plans, promises, verdicts, .. } = &job;
        let group = self.machine.open_group(*world as usize, buffers)?;
        let plans: Vec<Arc<Plan>> = plans.iter().cloned().map(Arc::new).collect();
        let enqueue = |plan: &Arc<Plan>| Step::Enqueue { group, stream: 0, plan: plan.clone() };
        let eager: Vec<Step> = plans.iter().map(enqueue).collect();
        let graph = vec![Step::Capture { graph: 0, group, plans: plans.clone() }, Step::Replay { graph: 0, stream: 0 }];
        if let Some(verdicts) = verdicts {
            self.machine.run(&Script { steps: vec![enqueue(&contents)] }, self.deadline)?;
            let fetched = self.machine.run(&Script { steps: verdicts.steps(group, &plans) }, self.deadline)?.fetched;
            let looked = format!("integers, by the device, {} batches", plans.len());
            return Ok((looked, verdicts.wrong(&fetched)));
        }
        let mut elements = 0;
        for (launching, steps) in [("eager", eager), ("in a graph", graph)] {
            self.machine.run(&Script { steps: vec![enqueue(&contents)] }, self.deadline)?;
            self.machine.run(&Script { steps }, self.deadline)?;
            let looked = look(self.machine, group, *world, promises)?;
            elements += looked.elements;
            if let Some(wrong) = looked.wrong {
                return Ok((format!("integers, {launching}"), Some(wrong)));
            }
        }
        Ok((format!("integers, {elements} elements of results, eager and in a graph"), None))
    }

    /// Whether a collective, or what a contender gathers, gets done while blocks hold every SM; `None` where there is nothing to hold, or nobody
    /// gathers alone.
    ///
    /// # Errors
    /// As [`Timer::round`].
    pub fn held(&mut self, contender: &Contender, workload: &Workload) -> Result<Option<SmFreeCheck>, MachineError> {
        // The emulator has as many SMs as it takes.
        if self.machine.info().kind != "cuda" {
            return Ok(None);
        }
        let devices = Devices::of(self.machine, workload.world());
        let mut see = |job: Job| {
            self.close();
            held::gets_done(self.machine, &job, &Holders::of_all(devices.sms, held::LIMIT), self.deadline)
        };
        if let Workload::Collective(_) = workload {
            return Ok(Some(SmFreeCheck { in_place: None, out_of_place: see(contender.job(workload, 1, &devices)?)? }));
        }
        let Some((arm, of)) = contender.gather(workload) else { return Ok(None) };
        let mut gathered = |in_place| see(arm.gather(&of, in_place, &devices).map_err(|reason| MachineError::NotSupported { reason })?);
        Ok(Some(SmFreeCheck { in_place: Some(gathered(true)?), out_of_place: gathered(false)? }))
    }

    /// What each operation of one call took on each rank, enqueued by the host at once: for a trace. `spans[rank]` are names and times in
    /// microseconds from the moment at which all ranks have met.
    ///
    /// # Errors
    /// As [`Timer::round`].
    pub fn spans(&mut self, contender: &Contender, workload: &Workload, method: &Method) -> Result<Vec<Vec<Span>>, MachineError> {
        let name = self.prepare(contender, workload, method)?;
        let prepared = &self.prepared[&name];
        let plan = &prepared.plans[0];
        let noted = Noted::new(plan, |op| !matches!(op, Op::Join { .. }));
        let enqueue = |plan: &Arc<Plan>| Step::Enqueue { group: prepared.group, stream: 0, plan: plan.clone() };
        // Once before: what is loaded at first use is not what is looked at.
        let steps = vec![enqueue(plan), enqueue(&prepared.gate), Step::Mark, enqueue(&noted.plan)];
        let marks = self.machine.run(&Script { steps }, self.deadline)?.marks;
        Ok((0..plan.world()).map(|rank| noted.spans(rank, &of_rank(&marks, rank))).collect())
    }

    fn prepare(&mut self, contender: &Contender, workload: &Workload, method: &Method) -> Result<String, MachineError> {
        if self.of != Some((*workload, *method)) {
            self.close();
            self.of = Some((*workload, *method));
        }
        let name = contender.name();
        if self.prepared.contains_key(&name) {
            return Ok(name);
        }
        let world = workload.world();
        if let Some(late) = method.late.filter(|late| late.rank >= world) {
            let reason = format!("rank {} cannot be late: there are ranks 0 to {}", late.rank, world - 1);
            return Err(MachineError::Invalid { reason });
        }
        let mut job = contender.job(workload, method.copies.clamp(1, method.calls), &Devices::of(self.machine, world))?;
        let contents = job.fill(if job.verdicts.is_some() { Numbers::Integers } else { Numbers::Normal });
        let verdicts = job.verdicts;
        if self.displacement > 0 {
            job.buffers.insert(0, BufferSpec::new("displacement", self.displacement, Role::Data));
        }
        let (words, gate) = gate(world);
        job.buffers.push(words);
        let flush = (method.flush > 0).then(|| {
            let spec = BufferSpec { local: true, ..BufferSpec::new("flush", method.flush, Role::Data) };
            let plan = Plan::per_rank("flush", world, |_| vec![Op::Fill { region: spec.whole(), byte: 0 }]);
            job.buffers.push(spec);
            Arc::new(plan)
        });
        if let Some(late) = method.late {
            job.plans.iter_mut().for_each(|plan| plan.ranks[late.rank as usize].insert(0, delay(late)));
        }
        let met = self.machine.rendezvous();
        let group = self.machine.open_group(world as usize, &job.buffers)?;
        let contents = Step::Enqueue { group, stream: 0, plan: Arc::new(contents) };
        self.machine.run(&Script { steps: vec![contents] }, self.deadline)?;
        let product = |op: &Op| job.notes_products && matches!(op, Op::Matmul(_));
        let noted: Vec<Arc<Noted>> = job.plans.iter().map(|plan| Arc::new(Noted::new(plan, product))).collect();
        let plans: Vec<Arc<Plan>> = job.plans.into_iter().map(Arc::new).collect();
        // Plans with verdicts are one call together.
        let calls = if verdicts.is_some() { plans.len() } else { method.calls as usize };
        let prepared = Prepared {
            group,
            plans: plans.iter().cycle().take(calls).cloned().collect(),
            noted: noted.iter().cycle().take(calls).cloned().collect(),
            gate: Arc::new(gate),
            flush,
            rendezvous: self.machine.rendezvous() - met,
            verdicts,
        };
        self.prepared.insert(name.clone(), prepared);
        Ok(name)
    }
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
        if let Some(verdicts) = self.verdicts {
            steps.extend(verdicts.steps(self.group, &self.plans));
            steps.push(Step::Mark);
            return Script { steps };
        }
        steps.extend(self.noted.iter().map(|noted| Step::Enqueue { group: self.group, stream: 0, plan: noted.plan.clone() }));
        steps.push(Step::Mark);
        Script { steps }
    }

    /// What all calls of an eager sample took on each rank, and the products within them, where they are noted.
    fn eager_times(&self, marks: &[Vec<f64>], world: usize) -> (Vec<f64>, Option<Vec<f64>>) {
        let mut calls = Vec::with_capacity(world);
        let mut products = None;
        for rank in 0..world {
            let intervals = of_rank(marks, rank);
            calls.push(intervals.iter().sum());
            let mut before = 0;
            for noted in &self.noted {
                let spans = noted.spans(rank, &intervals[before.min(intervals.len())..]);
                if !spans.is_empty() {
                    let of_ranks: &mut Vec<f64> = products.get_or_insert_with(|| vec![0.0; world]);
                    of_ranks[rank] += spans.iter().map(|span| span.end - span.begin).sum::<f64>();
                }
                before += noted.marks(rank);
            }
        }
        (calls, products)
    }
}

/// One rank's intervals: another may have more of them.
fn of_rank(marks: &[Vec<f64>], rank: usize) -> Vec<f64> {
    marks.iter().filter_map(|ranks| ranks.get(rank).copied()).filter(|interval| !interval.is_nan()).collect()
}

/// Time of one call, of the slowest rank.
fn a_call(ranks: &[f64], method: &Method) -> f64 {
    ranks.iter().copied().fold(0.0, f64::max) / f64::from(method.calls)
}

/// What makes a rank late.
pub(super) fn delay(late: Late) -> Op {
    Op::Launch(Launch {
        module: "bench/late".into(),
        entry: "late".into(),
        grid: 1.into(),
        block: 1.into(),
        cluster: None,
        dynamic_shared: 0,
        waits_for_peers: false,
        programmatic: false,
        registers: None,
        variables: Vec::new(),
        args: vec![Arg::U64(late.microseconds.saturating_mul(1000))],
    })
}
