//! Scenarios: what a case does to the machine, and what is known of the results beforehand.
//!
//! A case does not make one call but a script of them, back to back on free-running ranks: a fill kernel produces each call's input in
//! stream order just before it, the output is poisoned, and a copy takes the result away just after. So a late read meets the next
//! input, an early one the previous, and nothing has to be waited for in between.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    collective_case::{CallSpec, CollectiveCase, Fault, Graph, Item, Moment, Skew},
    compare::Relation,
    inputs::{InputClass, Payload, Transform},
    oracle::is_exact,
};
use passmuster_plan::{
    algorithms::{Algorithm, Registry, Target},
    collective::ReduceOp,
    contract::Contract,
    plan::{Arg, BufferSpec, Call, Departure, Fill, Launch, Op, Plan, RankCall, Region, Role, Script, Step},
};

/// A case made ready to run.
pub struct Scenario {
    /// Buffers of each group.
    pub groups: Vec<Vec<BufferSpec>>,
    /// What the ranks do.
    pub script: Script,
    /// Every call whose output was kept, in the order of the script.
    pub calls: Vec<Recorded>,
    /// What must hold between two calls.
    pub relations: Vec<Related>,
    /// Inputs that must still be what they were: group, region, payload.
    pub inputs: Vec<(usize, Region, Payload)>,
    /// Properties that do not apply, with the reason.
    pub not_applicable: Vec<(String, String)>,
}

/// A call whose output was kept.
pub struct Recorded {
    /// Which group made it.
    pub group: usize,
    /// The call.
    pub call: Call,
    /// What lay in outputs that are no inputs before it.
    pub poison: u8,
    /// What the algorithm promises about it.
    pub contract: Contract,
    /// Its inputs.
    pub payload: Payload,
    /// For each rank, where its output was kept.
    pub outputs: Vec<Region>,
    /// Whether it is the peer's call rather than that of the algorithm under test.
    pub by_peer: bool,
}

/// What must hold between the outputs of two calls, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Related {
    /// Name of the property.
    pub property: &'static str,
    /// The call that it starts from.
    pub base: usize,
    /// The call that it speaks of.
    pub other: usize,
    /// What must hold.
    pub relation: Relation<usize>,
}

/// Payloads above this size are judged by a single call whose output is read in place: no log, no relations.
const LARGE_BYTES: u64 = 64 << 20;

/// What outputs are overwritten with before each call, in turn: NaN in every float type, and a large number.
const POISON: [u8; 2] = [0xff, 0x7b];

/// What outputs are overwritten with before call `number`.
pub(super) fn poison(number: usize) -> u8 {
    POISON[number % POISON.len()]
}

/// Has every 32-bit word of signals and of state that starts with zeros start with this.
pub(super) fn start_at(start: u32, workspace: &mut [BufferSpec]) {
    if start != 0 {
        let counted = |buffer: &&mut BufferSpec| matches!(buffer.role, Role::Signals | Role::State) && buffer.fill == Fill::Byte(0);
        workspace.iter_mut().filter(counted).for_each(|buffer| buffer.fill = Fill::Repeated(start.to_le_bytes().to_vec()));
    }
}

/// Exponent of the scaling property: small enough that no input class overflows.
const SCALE: i32 = 2;

/// One call to make.
#[derive(Clone)]
struct Planned {
    algorithm: Arc<dyn Algorithm>,
    shot: CallSpec,
    /// Which of the buffers of its kind: calls of one graph have buffers of their own.
    slot: usize,
    payload: Payload,
    by_peer: bool,
}

enum Stage {
    Eager(Planned),
    /// The calls of each launch; all launches have the same calls but for the payload.
    Graph(Vec<Vec<Planned>>),
}

/// How a case is made ready.
#[derive(Clone, Copy)]
pub struct Options<'r> {
    /// Where its algorithms are.
    pub registry: &'r Registry,
    /// Blocks of a rank that the machine lets wait for peers.
    pub waiting_blocks: u32,
    /// A planted bug: groups of the same ranks use one signal pad instead of one each.
    pub shared_pads: bool,
}

/// Makes a case ready to run.
///
/// # Errors
/// Why the case is not supported: the algorithm's own reason.
pub fn build(case: &CollectiveCase, options: &Options<'_>) -> Result<Scenario, String> {
    let mut stages = Stages {
        case,
        registry: options.registry,
        stages: Vec::new(),
        recorded: 0,
        fresh: 0,
        relations: Vec::new(),
        not_applicable: Vec::new(),
    };
    if case.calls.is_empty() {
        stages.standard()?;
    } else {
        stages.sequence()?;
    }
    let Stages { stages, recorded, relations, not_applicable, .. } = stages;
    let mut emitter = Emitter::new(case, options, &stages, recorded)?;
    for stage in stages {
        emitter.emit(stage)?;
    }
    emitter.depart(Moment::End);
    Ok(Scenario {
        groups: emitter.groups,
        script: emitter.script,
        calls: emitter.calls,
        relations,
        inputs: emitter.inputs.into_iter().map(|((group, _), (region, payload))| (group, region, payload)).collect(),
        not_applicable,
    })
}

/// Collects the calls of a case.
struct Stages<'a> {
    case: &'a CollectiveCase,
    registry: &'a Registry,
    stages: Vec<Stage>,
    /// Outputs kept so far: the number of the next.
    recorded: usize,
    /// The next payload that no call has had.
    fresh: u32,
    relations: Vec<Related>,
    not_applicable: Vec<(String, String)>,
}

impl Stages<'_> {
    fn payload(&self, call: u32, transform: Transform) -> Payload {
        Payload { transform, ..self.case.payload(call) }
    }

    fn fresh_payload(&mut self) -> Payload {
        self.fresh += 1;
        self.payload(self.fresh - 1, Transform::None)
    }

    fn plan(&self, algorithm: &str, shot: CallSpec, slot: usize, payload: Payload) -> Result<Planned, String> {
        Ok(Planned { algorithm: find(self.registry, self.case, algorithm)?, shot, slot, payload, by_peer: false })
    }

    /// Adds an eager call and returns its number.
    fn eager(&mut self, planned: Planned) -> usize {
        self.stages.push(Stage::Eager(planned));
        self.recorded += 1;
        self.recorded - 1
    }

    /// Adds a graph of `shots`, launched `replays` times with fresh payloads; the first launch's first call has `first`.
    fn graph(&mut self, shots: &[CallSpec], replays: u32, first: Option<Payload>) -> Result<usize, String> {
        let start = self.recorded;
        let mut first = first;
        let mut launches = Vec::new();
        for _ in 0..replays {
            let mut launch = Vec::new();
            for (slot, shot) in shots.iter().enumerate() {
                let payload = first.take().unwrap_or_else(|| self.fresh_payload());
                launch.push(self.plan(&shot.algorithm, shot.clone(), slot, payload)?);
            }
            self.recorded += launch.len();
            launches.push(launch);
        }
        self.stages.push(Stage::Graph(launches));
        Ok(start)
    }

    fn sequence(&mut self) -> Result<(), String> {
        for item in &self.case.calls {
            match item {
                Item::Eager(shot) => {
                    let payload = self.fresh_payload();
                    let planned = self.plan(&shot.algorithm, shot.clone(), 0, payload)?;
                    self.eager(planned);
                }
                Item::Graph { calls, replays } => {
                    self.graph(calls, *replays, None)?;
                }
            }
        }
        Ok(())
    }

    /// The calls that let every property be tested on one configuration.
    fn standard(&mut self) -> Result<(), String> {
        let case = self.case;
        let shot = standard_shot(case);
        let first = self.fresh_payload();
        let planned = self.plan(&case.algorithm, shot.clone(), 0, first)?;
        let contract = planned.algorithm.contract(&call(case, &shot, 0, &buffers_of(case, &shot, 0)?)?);
        self.eager(planned.clone());
        if !case.collective.gives_all_ranks_the_same() {
            let reasons = [Some("ranks_agree"), case.peer.as_ref().map(|_| "peer_ranks_agree")];
            let all_receive = case.shape(case.count).receivers().len() == case.world as usize;
            let reason = if all_receive { "each rank gets a part of its own" } else { "the root alone gets a result" };
            let note = |property: &str| (property.to_owned(), reason.to_owned());
            self.not_applicable.extend(reasons.into_iter().flatten().map(note));
        }
        let bytes = case.shape(case.count).larger().checked_mul(case.dtype.size()).ok_or("count x size overflows 64 bits")?;
        if bytes > LARGE_BYTES {
            let reason = format!("payloads above {} MiB are judged by one call", LARGE_BYTES >> 20);
            for property in ["history", "repeat", "negation", "scaling", "additivity", "independence", "in_place", "graph", "equals_peer"] {
                self.not_applicable.push((property.into(), reason.clone()));
            }
            return Ok(());
        }
        let second = self.fresh_payload();
        let fresh = self.eager(Planned { payload: second, ..planned.clone() });

        let promised = |yes: bool| if yes { Ok(()) } else { Err("the contract does not promise it") };
        let repeats = promised(contract.equal_run_to_run);
        let same = planned;
        let changed = |transform| Planned { payload: Payload { transform, ..first }, ..same.clone() };

        self.relate("history", repeats, Relation::Equal, same.clone());
        self.relate("repeat", repeats, Relation::Equal, same.clone());
        self.relate("negation", negation_applies(case, &contract), Relation::Negated, changed(Transform::Negate));
        self.relate("scaling", scaling_applies(case, &contract), Relation::Scaled(SCALE), changed(Transform::Scale(SCALE)));
        let sum = changed(Transform::Plus(second.call));
        self.relate("additivity", additivity_applies(case), Relation::Plus(fresh), sum);
        let independence = if case.count == 0 { Err("there is no element") } else { repeats };
        let index = (case.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3) % case.shape(case.count).input().max(1);
        let rank = (case.seed >> 1) as u32 % case.world;
        let flipped = changed(Transform::Flip { rank, index });
        let to = if case.count == 0 { None } else { case.shape(case.count).destination(rank, index) };
        self.relate("independence", independence, to.map_or(Relation::Equal, Relation::EqualBut), flipped);
        let elsewhere = CallSpec { in_place: !case.in_place, ..shot.clone() };
        let applies = if !case.collective.has_in_place() {
            Err("the collective has no call in place")
        } else if same.algorithm.supports(&call(case, &elsewhere, 0, &buffers_of(case, &elsewhere, 0)?)?).is_err() {
            Err("the algorithm does only one of the two")
        } else {
            promised(contract.in_place_equals_out_of_place)
        };
        self.relate("in_place", applies, Relation::Equal, Planned { shot: elsewhere, ..same.clone() });

        let Graph { calls, replays } = case.graph;
        if replays == 0 {
            self.not_applicable.push(("graph".into(), "the case asks for no replay".into()));
        } else if same.algorithm.numbers_calls() {
            self.not_applicable.push(("graph".into(), "hosts pass the number of the call, which a graph would repeat".into()));
        } else {
            let other = self.graph(&vec![shot.clone(); calls as usize], replays, Some(first))?;
            self.hold("graph", promised(contract.graph_equals_eager), Relation::Equal, other);
        }
        if let Some(peer) = &case.peer {
            let shot = CallSpec { algorithm: peer.clone(), ..shot };
            let planned = Planned { by_peer: true, ..self.plan(peer, shot.clone(), 0, first)? };
            let of_peer = planned.algorithm.contract(&call(case, &shot, 0, &buffers_of(case, &shot, 0)?)?);
            // Where one of them says nothing about the sign of a zero, neither is held to the other's.
            let relation = if contract.special_values && of_peer.special_values { Relation::Equal } else { Relation::EqualValue };
            let other = self.eager(planned);
            let applies = if is_exact(case.op, case.dtype, case.inputs) && (case.inputs != InputClass::Special || !case.op.reduces()) {
                Ok(())
            } else {
                Err("each is held against its own contract: no order gives the same bits")
            };
            self.hold("equals_peer", applies, relation, other);
        }
        Ok(())
    }

    /// Makes a call of which something must hold in relation to the first.
    fn relate(&mut self, property: &'static str, applies: Result<(), &str>, relation: Relation<usize>, planned: Planned) {
        let other = self.recorded;
        if applies.is_ok() {
            self.eager(planned);
        }
        self.hold(property, applies, relation, other);
    }

    /// Notes what must hold of a call in relation to the first, or why it need not.
    fn hold(&mut self, property: &'static str, applies: Result<(), &str>, relation: Relation<usize>, other: usize) {
        match applies {
            Ok(()) => self.relations.push(Related { property, base: 0, other, relation }),
            Err(reason) => self.not_applicable.push((property.into(), reason.into())),
        }
    }
}

/// The call that a case which is no sequence makes over and over.
pub(super) fn standard_shot(case: &CollectiveCase) -> CallSpec {
    let CollectiveCase { count, root, offset, in_place, .. } = *case;
    CallSpec { algorithm: case.algorithm.clone(), count, root, offset, in_place, group: 0 }
}

/// Why what is true of numbers is not asked of copies, whose every bit is compared.
const NO_ARITHMETIC: &str = "copies do no arithmetic";

fn negation_applies(case: &CollectiveCase, contract: &Contract) -> Result<(), &'static str> {
    if !case.op.reduces() {
        return Err(NO_ARITHMETIC);
    }
    match case.op {
        ReduceOp::Min | ReduceOp::Max => return Err("min of negated inputs is max"),
        ReduceOp::Prod => return Err("as many signs as ranks are multiplied"),
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum | ReduceOp::Copy => {}
    }
    if case.inputs == InputClass::Special && !contract.special_values {
        return Err("the contract does not promise it for special values");
    }
    let wraps = !case.dtype.is_float() && (case.inputs != InputClass::Tagged || !case.dtype.is_signed());
    if case.op == ReduceOp::Avg && wraps {
        return Err("wrapped sums do not average symmetrically");
    }
    if !contract.equal_run_to_run { Err("the contract does not promise it") } else { Ok(()) }
}

fn scaling_applies(case: &CollectiveCase, contract: &Contract) -> Result<(), &'static str> {
    if !case.op.reduces() {
        return Err(NO_ARITHMETIC);
    }
    if case.inputs == InputClass::Special {
        return Err("special values overflow and underflow when scaled");
    }
    if case.op == ReduceOp::Prod {
        return Err("as many factors as ranks are multiplied");
    }
    if !case.dtype.is_float() && (case.inputs != InputClass::Tagged || case.op == ReduceOp::Avg) {
        return Err("scaled integers wrap or truncate");
    }
    if case.op == ReduceOp::PremulSum && case.inputs != InputClass::Tagged {
        return Err("products that are rounded below the normal numbers do not scale");
    }
    if !contract.equal_run_to_run { Err("the contract does not promise it") } else { Ok(()) }
}

fn additivity_applies(case: &CollectiveCase) -> Result<(), &'static str> {
    if case.inputs != InputClass::Tagged {
        return Err("only tagged inputs add up exactly");
    }
    match case.op {
        ReduceOp::Sum => Ok(()),
        ReduceOp::PremulSum => Err("halves of two payloads do not add up exactly"),
        _ => Err("only sums are additive"),
    }
}

/// Names of the input and output buffers that a shot uses in a slot. In-place calls have buffers of their own, so that inputs of the
/// others stay to be looked at.
fn buffer_names(shot: &CallSpec, slot: usize) -> (String, String) {
    if shot.in_place {
        (format!("in_place.{slot}"), format!("in_place.{slot}"))
    } else {
        (format!("input.{slot}"), format!("output.{slot}"))
    }
}

/// What bytes hold that kernels may read though nobody wrote them.
const UNWRITTEN: u8 = 0xc5;

/// The input and output buffers that a shot needs; one for both where it is in place.
fn buffers_of(case: &CollectiveCase, shot: &CallSpec, slot: usize) -> Result<Vec<BufferSpec>, String> {
    let shape = case.shape(shot.count);
    let (input, output) = buffer_names(shot, slot);
    let buffer = |name, elements: u64| {
        let elements = shot.offset.checked_add(elements).ok_or("offset + count overflows 64 bits")?;
        let bytes = elements.checked_mul(case.dtype.size()).ok_or("count x size overflows 64 bits")?;
        Ok::<_, String>(BufferSpec::new(name, bytes, Role::Data))
    };
    if shot.in_place {
        return Ok(vec![buffer(input, shape.larger())?]);
    }
    Ok(vec![buffer(input, shape.input())?, buffer(output, shape.output())?])
}

/// The call that all ranks agree on for a shot.
fn call(case: &CollectiveCase, shot: &CallSpec, slot: usize, buffers: &[BufferSpec]) -> Result<Call, String> {
    let (size, shape) = (case.dtype.size(), case.shape(shot.count));
    let (input, output) = buffer_names(shot, slot);
    // What overflows here was refused with its buffers.
    let region = |name: String, elements: u64| Region::new(name, shot.offset * size, elements * size);
    let call = RankCall {
        collective: case.collective,
        dtype: case.dtype,
        op: case.op,
        count: shot.count,
        root: shot.root,
        factor: None,
        parts: None,
        input: region(input, shape.input()),
        output: region(output, shape.output()),
    };
    match case.op {
        ReduceOp::PremulSum => Call::with_factors(&call, &case.factors(), buffers),
        _ => match &shape.counts {
            Some(counts) => Call::with_counts(&call, case.world, counts, buffers),
            None => Call::uniform(&call, case.world, buffers),
        },
    }
    .and_then(|call| call.on_nodes(case.nodes))
    .map_err(|error| error.to_string())
}

/// The algorithm of this name as it does the calls of a case.
fn find(registry: &Registry, case: &CollectiveCase, name: &str) -> Result<Arc<dyn Algorithm>, String> {
    registry.find_for(case.collective, name, case.op)
}

/// Whether the algorithm under test supports the standard call of a case.
///
/// # Errors
/// Why not.
pub(super) fn supports(registry: &Registry, case: &CollectiveCase) -> Result<(), String> {
    let shot = standard_shot(case);
    let call = call(case, &shot, 0, &buffers_of(case, &shot, 0)?)?;
    find(registry, case, &case.algorithm)?.supports(&call)
}

/// Which of the machine's groups makes a call, and which of that group's buffers it uses.
fn place(planned: &Planned, shared_pads: bool) -> (usize, usize) {
    let group = planned.shot.group as usize;
    if shared_pads { (0, planned.slot + SLOTS * group) } else { (group, planned.slot) }
}

/// Turns stages into buffers and steps.
struct Emitter<'a> {
    case: &'a CollectiveCase,
    /// But for the number of the call.
    target: Target,
    /// For each group, how many calls of each algorithm it has made.
    numbers: Vec<BTreeMap<String, u64>>,
    /// For each group, the elements of a slot of its largest call.
    largest: Vec<u64>,
    groups: Vec<Vec<BufferSpec>>,
    script: Script,
    calls: Vec<Recorded>,
    /// The last payload of every input region that calls leave alone, by group and buffer.
    inputs: BTreeMap<(usize, String), (Region, Payload)>,
    /// Where in each group's log the next output goes; `None` for calls too large to log.
    log: Option<Vec<u64>>,
    graphs: usize,
    shared_pads: bool,
}

/// Buffers of a group that shares another's pads: past all slots that a graph can have.
const SLOTS: usize = 64;

const LOG: &str = "log";

// Names of the plans around calls.
const PRODUCE: &str = "produce";
const STALL: &str = "stall";
const KEEP: &str = "keep";
const FAULT: &str = "fault";

/// How long after a call is enqueued, and after everything is, a rank's process ends, in microseconds. A process with nothing else to do sleeps no longer
/// than that takes.
const INTO_A_CALL: u64 = 2;
const PAST_THE_END: u64 = 1_000_000;

/// What an aborted run may have left in every byte of signals.
const STALE: u8 = 0x80;

/// Whether a step of a scenario's script enqueues one of its calls, rather than what surrounds them.
#[cfg(test)]
pub(super) fn is_call(step: &Step) -> bool {
    matches!(step, Step::Enqueue { plan, .. } if ![PRODUCE, STALL, KEEP, FAULT].contains(&&*plan.name))
}

impl<'a> Emitter<'a> {
    fn new(case: &'a CollectiveCase, options: &Options, stages: &[Stage], recorded: usize) -> Result<Emitter<'a>, String> {
        // Each with the bytes of the largest call that it was made for: what buffers start with may be of that, too.
        let mut sizes: Vec<BTreeMap<String, (u64, BufferSpec)>> =
            vec![BTreeMap::new(); if options.shared_pads { 1 } else { case.groups() as usize }];
        let mut log = vec![0; sizes.len()];
        let mut largest = vec![0; sizes.len()];
        let planned = stages.iter().flat_map(|stage| match stage {
            Stage::Eager(planned) => std::slice::from_ref(planned).iter().collect::<Vec<_>>(),
            Stage::Graph(launches) => launches.iter().flatten().collect(),
        });
        for planned in planned {
            let (group, slot) = place(planned, options.shared_pads);
            let mut own = buffers_of(case, &planned.shot, slot)?;
            let call = call(case, &planned.shot, slot, &own)?;
            // What says that it takes any memory gets memory that no peer can touch.
            own.iter_mut().for_each(|buffer| buffer.local = planned.algorithm.accepts_unregistered());
            let readable = planned.algorithm.readable_behind();
            if readable > 0 {
                // The first is the input, in place or not. Behind a small call's lies what is left of a larger one's, which may be read as well.
                (own[0].readable, own[0].fill) = (readable, Fill::Byte(UNWRITTEN));
            }
            let extent = call.input.offset + call.bytes();
            let mut workspace = planned.algorithm.workspace(case.dtype, case.world, extent);
            start_at(case.start, &mut workspace);
            if case.fault == Some(Fault::Poisoned) {
                let signals = |buffer: &&mut BufferSpec| buffer.role == Role::Signals;
                workspace.iter_mut().filter(signals).for_each(|buffer| buffer.fill = Fill::Byte(STALE));
            }
            let most = &mut largest[group];
            *most = (*most).max(extent / case.dtype.size() / case.collective.slots(case.world).0);
            for buffer in own.into_iter().chain(workspace) {
                let (of, known) = sizes[group].entry(buffer.name.clone()).or_insert_with(|| (extent, buffer.clone()));
                known.bytes = known.bytes.max(buffer.bytes);
                known.local &= buffer.local;
                known.readable = known.readable.max(buffer.readable);
                if extent > *of {
                    (*of, known.fill) = (extent, buffer.fill);
                }
            }
            log[group] += call.output.bytes.next_multiple_of(16);
        }
        let logged = recorded > 1 || log.iter().all(|&bytes| bytes <= LARGE_BYTES);
        let groups = sizes
            .into_iter()
            .zip(&log)
            .map(|(buffers, &bytes)| {
                let log = logged.then(|| BufferSpec::new(LOG, bytes, Role::Data));
                buffers.into_values().map(|(_, buffer)| buffer).chain(log).collect()
            })
            .collect::<Vec<_>>();
        Ok(Emitter {
            case,
            target: Target {
                stalls: case.skew.is_some_and(|skew| skew.site.is_some()),
                waiting_blocks: case.blocks.unwrap_or(options.waiting_blocks),
                ..Target::default()
            },
            numbers: vec![BTreeMap::new(); groups.len()],
            largest,
            shared_pads: options.shared_pads,
            log: logged.then(|| vec![0; groups.len()]),
            groups,
            script: Script::default(),
            calls: Vec::with_capacity(recorded),
            inputs: BTreeMap::new(),
            graphs: 0,
        })
    }

    fn emit(&mut self, stage: Stage) -> Result<(), String> {
        match stage {
            Stage::Eager(planned) => {
                let call = self.call(&planned)?;
                let plan = self.plan(&planned, &call)?;
                self.inject_fault(&planned);
                let late = self.late();
                self.produce(&planned, &call, self.calls.len());
                self.stall(&planned, late, true);
                self.enqueue(&planned, plan);
                if self.calls.len() == 1 {
                    self.depart(Moment::Call);
                }
                self.stall(&planned, late, false);
                self.keep(planned, call);
            }
            Stage::Graph(launches) => {
                let Some(first) = launches.first() else { return Ok(()) };
                let (group, stream) = (self.group(&first[0]), first[0].shot.group as usize);
                let mut plans = Vec::new();
                for planned in first {
                    if planned.algorithm.numbers_calls() {
                        return Err(format!("{} is given the number of the call, which a graph would repeat", planned.algorithm.name()));
                    }
                    let call = self.call(planned)?;
                    plans.push(Arc::new(self.plan(planned, &call)?));
                }
                let graph = self.graphs;
                self.graphs += 1;
                self.script.steps.push(Step::Capture { graph, group, plans });
                for launch in launches {
                    let late = self.late();
                    let calls = launch.iter().map(|planned| self.call(planned)).collect::<Result<Vec<_>, _>>()?;
                    for (number, (planned, call)) in (self.calls.len()..).zip(launch.iter().zip(&calls)) {
                        self.produce(planned, call, number);
                    }
                    self.stall(&launch[0], late, true);
                    self.script.steps.push(Step::Replay { graph, stream });
                    self.stall(&launch[0], late, false);
                    for (planned, call) in launch.into_iter().zip(calls) {
                        self.keep(planned, call);
                    }
                }
            }
        }
        Ok(())
    }

    fn group(&self, planned: &Planned) -> usize {
        place(planned, self.shared_pads).0
    }

    /// The plan of the next call of an algorithm on its group.
    fn plan(&mut self, planned: &Planned, call: &Call) -> Result<Plan, String> {
        let group = self.group(planned);
        let number = self.numbers[group].entry(planned.algorithm.name().to_owned()).or_default();
        let target = Target { call: *number, most_count: Some(self.largest[group]), ..self.target };
        *number += 1;
        planned.algorithm.check_target(call, &target)?;
        Ok(planned.algorithm.plan(call, &target))
    }

    fn call(&self, planned: &Planned) -> Result<Call, String> {
        let (group, slot) = place(planned, self.shared_pads);
        let call = call(self.case, &planned.shot, slot, &self.groups[group])?;
        planned.algorithm.supports(&call)?;
        Ok(call)
    }

    /// Every group of a case has a stream of its own, so that groups run at once.
    fn enqueue(&mut self, planned: &Planned, plan: Plan) {
        let group = self.group(planned);
        self.script.steps.push(Step::Enqueue { group, stream: planned.shot.group as usize, plan: Arc::new(plan) });
    }

    /// The late rank of the call that comes next: every second call has one, so that calls with and without follow each other.
    fn late(&self) -> Option<Skew> {
        self.case.skew.filter(|_| self.calls.len() % 2 == 1)
    }

    /// Has every rank write its input of call `number` and spoil its output, in stream order.
    fn produce(&mut self, planned: &Planned, call: &Call, number: usize) {
        if let Some(Skew { rank, microseconds, site: None }) = self.late() {
            self.script.steps.push(Step::Delay { rank: rank as usize, microseconds: microseconds.into() });
        }
        let byte = poison(number);
        let plan = Plan::per_rank(PRODUCE, call.world(), |rank| {
            let fill = planned.payload.fill(rank, call.input_of(rank), call.shape().input());
            let poison = Op::Fill { region: call.output_of(rank), byte };
            if call.count == 0 {
                Vec::new()
            } else if !call.in_place() {
                vec![fill, poison]
            } else if call.output.bytes > call.bytes() {
                // The input is a slot of the output.
                vec![poison, fill]
            } else {
                vec![fill]
            }
        });
        self.enqueue(planned, plan.by_caller());
        if !call.in_place() && !planned.algorithm.destroys_input() {
            let group = self.group(planned);
            self.inputs.insert((group, call.input.buffer.clone()), (call.input.clone(), planned.payload));
        }
    }

    /// Arms or disarms the stall hook of the late rank.
    fn stall(&mut self, planned: &Planned, late: Option<Skew>, on: bool) {
        let Some(Skew { rank: late, microseconds, site: Some(site) }) = late else { return };
        let stalls = format!("{}.stalls", planned.algorithm.name());
        if !self.groups[self.group(planned)].iter().any(|buffer| buffer.name == stalls) {
            return;
        }
        let to = Region::new(stalls, site as u64 * 4, 4);
        let value = if on { microseconds.saturating_mul(1000) } else { 0 };
        let write = Op::WriteValue { to, value, to_rank: None };
        self.enqueue(planned, Plan::per_rank(STALL, self.case.world, |rank| if rank == late { vec![write.clone()] } else { vec![] }));
    }

    /// Has every rank take its output away, in stream order.
    fn keep(&mut self, planned: Planned, call: Call) {
        let group = self.group(&planned);
        let mut outputs: Vec<Region> = (0..call.world()).map(|rank| call.output_of(rank)).collect();
        if let Some(log) = &mut self.log {
            let kept = Region::new(LOG, log[group], call.output.bytes);
            log[group] += kept.bytes.next_multiple_of(16);
            if call.count > 0 {
                let copy = |rank: u32| Op::Copy { from: outputs[rank as usize].clone(), to: kept.clone(), to_rank: None };
                self.enqueue(&planned, Plan::per_rank(KEEP, call.world(), |rank| vec![copy(rank)]).by_caller());
            }
            outputs.fill(kept);
        }
        let contract = planned.algorithm.contract(&call);
        let poison = poison(self.calls.len());
        self.calls.push(Recorded { group, call, poison, contract, payload: planned.payload, outputs, by_peer: planned.by_peer });
    }

    /// One rank's process ends here, if that is the fault and the moment.
    fn depart(&mut self, moment: Moment) {
        let Some(Fault::Departs { rank, how, when }) = self.case.fault else { return };
        if when != moment {
            return;
        }
        let rank = rank as usize;
        let later = match when {
            Moment::Start | Moment::Between => None,
            Moment::Call => Some(INTO_A_CALL),
            Moment::End => Some(PAST_THE_END),
        };
        self.script.steps.extend(later.map(|microseconds| Step::Delay { rank, microseconds }));
        self.script.steps.push(Step::Leave { rank, how });
    }

    /// Most faults strike before the second call, when the first has shown that all is well.
    fn inject_fault(&mut self, planned: &Planned) {
        if self.calls.is_empty() {
            self.depart(Moment::Start);
        }
        if self.calls.len() != 1 {
            return;
        }
        self.depart(Moment::Between);
        match self.case.fault {
            Some(Fault::Absent(rank)) => self.script.steps.push(Step::Leave { rank: rank as usize, how: Departure::Idle }),
            Some(Fault::IllegalAddress(struck)) => {
                let launch = Launch {
                    module: "conformance/faults".into(),
                    entry: "illegal_address".into(),
                    grid: 1.into(),
                    block: 1.into(),
                    cluster: None,
                    dynamic_shared: 0,
                    waits_for_peers: false,
                    programmatic: false,
                    registers: None,
                    variables: Vec::new(),
                    args: vec![Arg::U64(16)],
                };
                let plan =
                    Plan::per_rank(FAULT, self.case.world, |rank| if rank == struck { vec![Op::Launch(launch.clone())] } else { vec![] });
                self.enqueue(planned, plan);
            }
            // The others are no part of the script, or what it starts from.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::atomic::{AtomicU64, Ordering::Relaxed},
    };

    use super::*;
    use crate::REGISTRY;
    use passmuster_plan::collective::{Collective, DType};

    fn options() -> Options<'static> {
        Options { registry: &REGISTRY, waiting_blocks: 4, shared_pads: false }
    }

    fn case(id: &str) -> CollectiveCase {
        id.parse().unwrap()
    }

    fn built(id: &str) -> Scenario {
        build(&case(id), &options()).unwrap()
    }

    /// If this fails, a report takes the data of a call for that of the one before: each call has the payload after the last one's.
    #[test]
    fn payloads_of_calls_follow_each_other() {
        let scenario = built("all_reduce/two_shot:bf16,sum:w=2:calls=two_shot.7+[two_shot.9+two_shot.5]x2+two_shot.3");
        assert_eq!(scenario.calls.iter().map(|recorded| recorded.payload.call).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    }

    /// If this fails, whether results depend on elements of others is asked of the elements of some ranks only, however many seeds run.
    #[test]
    fn seeds_change_elements_of_every_rank() {
        let changed = |seed: u64| {
            let scenario = built(&format!("all_reduce/two_shot:bf16,sum:w=4:n=20:seed={seed}"));
            scenario.calls.iter().find_map(|recorded| match recorded.payload.transform {
                Transform::Flip { rank, .. } => Some(rank),
                _ => None,
            })
        };
        assert_eq!((0..8).map(changed).collect::<BTreeSet<_>>(), (0..4).map(Some).collect());
    }

    /// If this fails, a call of many bytes needs memory for its output twice, or calls of few bytes overwrite each other's.
    #[test]
    fn large_outputs_are_read_where_they_are() {
        let has_log = |count: u64| {
            let scenario = built(&format!("all_reduce/two_shot:bf16,sum:w=2:n={count}"));
            let logged = scenario.calls.iter().all(|recorded| recorded.outputs.iter().all(|region| region.buffer == LOG));
            assert_eq!(scenario.groups[0].iter().any(|buffer| buffer.name == LOG), logged);
            (logged, scenario.calls.len() > 1)
        };
        assert_eq!(has_log(LARGE_BYTES / 2), (true, true));
        assert_eq!(has_log(LARGE_BYTES / 2 + 1), (false, false));
    }

    /// An algorithm that does nothing, and keeps what its plans are made for.
    struct Idle {
        readable: u64,
        destroys: bool,
        most: AtomicU64,
    }

    impl Idle {
        fn new(readable: u64, destroys: bool) -> Arc<Idle> {
            Arc::new(Idle { readable, destroys, most: AtomicU64::new(0) })
        }
    }

    impl Algorithm for Idle {
        fn collective(&self) -> Collective {
            Collective::ReduceScatter
        }

        fn name(&self) -> &'static str {
            "idle"
        }

        fn contract(&self, _: &Call) -> Contract {
            Contract::ORDERED
        }

        fn check_supported(&self, _: &Call) -> Result<(), String> {
            Ok(())
        }

        fn readable_behind(&self) -> u64 {
            self.readable
        }

        fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
            Vec::new()
        }

        fn plan(&self, call: &Call, target: &Target) -> Plan {
            self.most.store(target.most_count.unwrap_or(0), Relaxed);
            Plan::per_rank("idle", call.world(), |_| Vec::new())
        }

        fn destroys_input(&self) -> bool {
            self.destroys
        }
    }

    /// A reduce-scatter of three ranks.
    const SCATTER: &str = "reduce_scatter/pull:f32,sum:w=3:n=7";

    fn planned(case: &CollectiveCase, algorithm: Arc<Idle>, count: u64) -> Planned {
        Planned { algorithm, shot: CallSpec { count, ..standard_shot(case) }, slot: 0, payload: case.payload(0), by_peer: false }
    }

    /// If this fails, kernels from elsewhere see a larger call than there is, or read what nobody lets them.
    #[test]
    fn buffers_are_for_the_largest_call_of_all() {
        let case = case(SCATTER);
        let [strict, loose] = [0, 16].map(|readable| Idle::new(readable, false));
        for order in [[(&strict, 7), (&loose, 5)], [(&loose, 5), (&strict, 7)]] {
            let stages = order.map(|(algorithm, count)| Stage::Eager(planned(&case, algorithm.clone(), count)));
            let mut emitter = Emitter::new(&case, &options(), &stages, 2).unwrap();
            let input = emitter.groups[0].iter().find(|buffer| buffer.name == "input.0").unwrap();
            assert_eq!((input.bytes, input.readable), (3 * 7 * 4, 16));
            stages.into_iter().for_each(|stage| emitter.emit(stage).unwrap());
            assert_eq!([&strict, &loose].map(|algorithm| algorithm.most.load(Relaxed)), [7, 7], "elements of a slot");
        }
    }

    /// If this fails, an algorithm is blamed for what it may do to its input, or another one is not.
    #[test]
    fn inputs_that_may_be_destroyed_are_not_looked_at() {
        let case = case(SCATTER);
        let looks = |destroys| {
            let stage = || Stage::Eager(planned(&case, Idle::new(0, destroys), 7));
            let mut emitter = Emitter::new(&case, &options(), &[stage()], 1).unwrap();
            emitter.emit(stage()).unwrap();
            emitter.inputs.len()
        };
        assert_eq!([false, true].map(looks), [1, 0]);
    }
}
