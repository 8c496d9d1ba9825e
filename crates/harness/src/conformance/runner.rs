//! The way of a case: scenario, run, checks, verdict.

use std::{
    collections::BTreeSet,
    fmt::{Display, Write},
    time::{Duration, Instant},
};

use super::{
    collective_case::{CollectiveCase, Fault},
    compare::{compare, ranks_disagree, relation_broken},
    faults,
    scenario::{self, Options, Recorded, Related, Scenario},
    verdict::{Finding, Place, Status, Verdict},
    worker,
};
use passmuster_plan::{
    algorithms::Registry,
    collective::{DType, Shape},
    contract::Order,
    machine::{Blamed, How, Machine, MachineError, Waived},
    plan::{BufferSpec, Region, Script, Step},
};
use xxhash_rust::xxh3::Xxh3Default;

/// The property that the vendor's library took the path that was asked for. Where it is known not to hold the case is not supported; where it is not known, it is
/// among those that do not apply.
pub const PEER_PATH: &str = "peer_path";

/// How cases are judged.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// Where the algorithms are that cases name.
    pub registry: &'a Registry,
    /// The time that a run on the machine gets.
    pub deadline: Duration,
    /// A planted bug: see [`Options::shared_pads`].
    pub shared_pads: bool,
    /// Called with how far the case is.
    pub progress: &'a dyn Fn(&str),
}

/// Judges one case on a machine. The verdict of a case with an injected fault says whether the run [named it](faults::named). The machine must not be used again if
/// the verdict [says so](Verdict::voids_device). A case whose fault is that the process dies is not supported but in a
/// [worker that has said that it may](worker::expendable).
pub fn judge(case: &CollectiveCase, machine: &mut dyn Machine, settings: &Settings<'_>) -> Verdict {
    let verdict = timed(case, || try_judge(case, machine, settings));
    match case.fault {
        Some(_) => faults::named(settings.registry, &case.clone().into(), verdict),
        None => verdict,
    }
}

/// The verdict of a case, with the time it took; on a machine's refusal or failure, what that makes of it.
pub(super) fn timed(case: &impl ToString, judge: impl FnOnce() -> Result<Verdict, MachineError>) -> Verdict {
    let start = Instant::now();
    let mut verdict = judge().unwrap_or_else(|error| refused(case, error));
    verdict.milliseconds = start.elapsed().as_secs_f64() * 1e3;
    verdict
}

fn refused(case: &impl ToString, error: MachineError) -> Verdict {
    let mut verdict = Verdict::without_checks(case.to_string(), Status::of(&error), error.to_string());
    verdict.findings = findings_of(&error);
    verdict.blamed = error.blamed();
    if let MachineError::Races { waived, .. } = error {
        verdict.waived = waived;
    }
    verdict
}

fn findings_of(error: &MachineError) -> Vec<Finding> {
    let finding = |property: &str, summary: String, details: String| Finding {
        property: property.into(),
        call: None,
        summary,
        details,
        ..Finding::default()
    };
    match error {
        MachineError::Hang { stuck, standing, .. } => {
            let waits: Vec<String> = stuck.iter().map(|wait| wait.to_string()).chain(standing.iter().cloned()).collect();
            vec![finding("finishes", error.to_string(), waits.join("\n"))]
        }
        MachineError::Fault { .. } => vec![finding("survives", error.to_string(), String::new())],
        MachineError::Finding { findings } => findings.iter().map(|found| finding("memory", found.clone(), String::new())).collect(),
        MachineError::Races { findings, ended, .. } => {
            let ended = ended.as_deref().map_or_else(Vec::new, findings_of);
            ended.into_iter().chain(findings.iter().map(|found| finding("races", found.clone(), String::new()))).collect()
        }
        MachineError::NotSupported { .. }
        | MachineError::Invalid { .. }
        | MachineError::Unshared { .. }
        | MachineError::Differs { .. }
        | MachineError::Inconclusive { .. } => Vec::new(),
    }
}

fn try_judge(case: &CollectiveCase, machine: &mut dyn Machine, settings: &Settings<'_>) -> Result<Verdict, MachineError> {
    let is_killed = case.fault == Some(Fault::Killed);
    if is_killed {
        worker::check_expendable().map_err(|reason| MachineError::NotSupported { reason })?;
    }
    if let Some(fault) = case.fault.filter(|fault| fault.is_of_processes() && !matches!(fault, Fault::Departs { .. })) {
        let reason = format!("{fault} is for ranks that are processes: --launcher own --processes {}", case.world);
        return Err(MachineError::NotSupported { reason });
    }
    case.check_known(settings.registry).map_err(|reason| MachineError::Invalid { reason })?;
    machine.close_groups();
    let waiting_blocks = machine.waiting_blocks(case.world as usize, case.groups() as usize);
    if let Some(blocks) = case.blocks.filter(|&blocks| blocks > machine.most_waiting_blocks(case.world as usize, case.groups() as usize)) {
        return Err(MachineError::NotSupported {
            reason: format!("{blocks} blocks of a rank that wait for others': this machine lets {waiting_blocks}"),
        });
    }
    let scenario = scenario::build(case, &Options { registry: settings.registry, waiting_blocks, shared_pads: settings.shared_pads })
        .map_err(|reason| MachineError::NotSupported { reason })?;
    machine.check_budget(case.elements())?;
    (settings.progress)("opening groups");
    for buffers in &scenario.groups {
        machine.open_nodes(case.world as usize, case.nodes as usize, buffers)?;
    }
    if is_killed {
        worker::kill_this_process_soon();
    }
    (settings.progress)("running");
    let ran = run(machine, &scenario.script, settings.deadline)?;
    (settings.progress)("checking");
    Ok(ran.on(check(case, &scenario, machine, 0)?))
}

/// A run whose ranks came to the end: what is to be said besides the numbers.
pub(super) struct Ran {
    races: Option<MachineError>,
    waived: Vec<Waived>,
    undefined: Vec<String>,
    unchecked_path: Option<String>,
}

/// Runs a script.
///
/// # Errors
/// What kept the ranks from coming to the end.
pub(super) fn run(machine: &mut dyn Machine, script: &Script, deadline: Duration) -> Result<Ran, MachineError> {
    match machine.run(script, deadline) {
        Ok(run) => Ok(Ran { races: None, waived: run.waived, undefined: run.undefined, unchecked_path: run.unchecked_path }),
        // What the races did to the numbers is worth telling beside them.
        Err(MachineError::Races { findings, waived, ended: None }) => {
            let races = Some(MachineError::Races { findings, waived: Vec::new(), ended: None });
            Ok(Ran { races, waived, undefined: Vec::new(), unchecked_path: None })
        }
        Err(error) => Err(with_those_who_left(error, script)),
    }
}

/// Says which ranks did not come to what the others wait in. Kernels that have no stuck report say where ranks wait at most, and not for whom.
fn with_those_who_left(error: MachineError, script: &Script) -> MachineError {
    let did_not_come = |stuck: &[usize]| {
        let absences = script.absences().into_iter().filter(|(rank, _)| !stuck.contains(rank));
        let (absent, told): (Vec<Blamed>, Vec<String>) = absences
            .map(|(rank, plan)| (Blamed::new(rank, How::Absent), format!("rank {rank} did not come to {}: it had left", plan.name)))
            .unzip();
        (absent, (!told.is_empty()).then(|| told.join("; ")))
    };
    match error {
        MachineError::Hang { after, cause, stuck, unfinished, standing, blamed } => {
            let known = (!cause.is_empty()).then_some(cause);
            let (absent, told) = did_not_come(&unfinished);
            let blamed = blamed.into_iter().chain(absent).collect();
            let cause = known.into_iter().chain(told).collect::<Vec<_>>().join("; ");
            MachineError::Hang { after, cause, stuck, unfinished, standing, blamed }
        }
        // A wait that traps where it has lasted too long.
        MachineError::Fault { ranks, what, code, blamed } => {
            let (absent, told) = did_not_come(&ranks);
            let blamed = blamed.into_iter().chain(absent).collect();
            let code = [code].into_iter().chain(told).collect::<Vec<_>>().join("; ");
            MachineError::Fault { ranks, what, code, blamed }
        }
        MachineError::Races { findings, waived, ended: Some(ended) } => {
            MachineError::Races { findings, waived, ended: Some(Box::new(with_those_who_left(*ended, script))) }
        }
        other => other,
    }
}

impl Ran {
    /// Adds it to the verdict on the numbers.
    pub(super) fn on(self, mut verdict: Verdict) -> Verdict {
        verdict.waived = self.waived;
        // Of many wrong elements the first finding says enough.
        if let Some(first) = verdict.findings.first_mut() {
            first.summary.extend(self.undefined.iter().map(|undefined| format!("; {undefined}")));
        }
        verdict.not_applicable.extend(self.unchecked_path.map(|why| (PEER_PATH.to_owned(), format!("path unchecked: {why}"))));
        if let Some(races) = self.races {
            (verdict.status, verdict.reason) = (Status::of(&races), races.to_string());
            verdict.findings.splice(0..0, findings_of(&races));
        }
        verdict
    }
}

/// The kernel modules that a script launches.
pub(super) fn modules(script: &Script) -> BTreeSet<String> {
    script.plans().flat_map(|plan| plan.modules()).collect()
}

/// What a case would do: the buffers of each group, and the script.
///
/// # Errors
/// Why the case is not supported.
pub(super) fn prepared(registry: &Registry, case: &CollectiveCase, waiting_blocks: u32) -> Result<(Vec<Vec<BufferSpec>>, Script), String> {
    let scenario = scenario::build(case, &Options { registry, waiting_blocks, shared_pads: false })?;
    Ok((scenario.groups, scenario.script))
}

/// The buffers of groups and the steps of a script, with the plan of each call.
pub(super) fn described(case: &impl Display, groups: &[Vec<BufferSpec>], script: &Script) -> String {
    let mut text = format!("{case}\n");
    for (group, buffers) in groups.iter().enumerate() {
        for buffer in buffers {
            let _ = writeln!(text, "group {group} buffer {}: {} bytes, {:?}", buffer.name, buffer.bytes, buffer.role);
        }
    }
    for step in &script.steps {
        let _ = match step {
            Step::Enqueue { group, plan, .. } => write!(text, "group {group}: {plan}"),
            Step::Capture { graph, group, plans } => {
                let _ = writeln!(text, "group {group}: capture graph {graph} of {} plans", plans.len());
                plans
                    .iter()
                    .flat_map(|plan| plan.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
                    .try_for_each(|line| writeln!(text, "  {line}"))
            }
            Step::Replay { graph, .. } => writeln!(text, "launch graph {graph}"),
            Step::Delay { rank, microseconds } => writeln!(text, "rank {rank} sleeps {microseconds} us"),
            Step::Leave { rank, how } => writeln!(text, "rank {rank} leaves: it is {}", how.name()),
            Step::Await { fetch } => writeln!(text, "await fetch {fetch}"),
            Step::Mark => writeln!(text, "mark"),
        };
    }
    text
}

/// Checks everything that must hold after the run, in which the scenario's groups had the numbers from `first_group` on.
pub(super) fn check(
    case: &CollectiveCase,
    scenario: &Scenario,
    machine: &mut dyn Machine,
    first_group: usize,
) -> Result<Verdict, MachineError> {
    let mut checks = Checks { not_applicable: scenario.not_applicable.clone(), ..Checks::default() };
    for group in 0..scenario.groups.len() {
        checks.canaries(machine, first_group + group)?;
    }
    let mut outputs = Vec::with_capacity(scenario.calls.len());
    for (index, recorded) in scenario.calls.iter().enumerate() {
        let mut kept = read_all(machine, recorded, first_group)?;
        checks.call(index, recorded, &kept);
        checks.untouched(index, recorded, &kept);
        let shape = recorded.call.shape();
        // What parts leave of an output stays, which is poison of one call or of another.
        for (rank, output) in (0..).zip(&mut kept).filter(|_| shape.counts.is_some()) {
            output.truncate((shape.received(rank) * case.dtype.size()) as usize);
        }
        if !recorded.by_peer && matches!(recorded.contract.order, Order::RankAscending | Order::Copied) {
            kept.iter().for_each(|output| checks.outputs.add(output));
        }
        outputs.push(kept);
    }
    for related in &scenario.relations {
        checks.related(related, case, &scenario.calls[related.base].call.shape(), &outputs);
    }
    for (group, region, payload) in &scenario.inputs {
        for rank in 0..case.world {
            let now = machine.read(first_group + group, rank as usize, region)?;
            let sent = payload.bytes(rank, 0..region.bytes / case.dtype.size());
            checks.input(rank, region, case.dtype, (&sent, &now));
        }
    }
    Ok(checks.verdict(case))
}

/// What each rank got.
fn read_all(machine: &mut dyn Machine, recorded: &Recorded, first_group: usize) -> Result<Vec<Vec<u8>>, MachineError> {
    recorded.outputs.iter().enumerate().map(|(rank, region)| machine.read(first_group + recorded.group, rank, region)).collect()
}

/// What a check has found.
pub(super) struct Found {
    /// In a line.
    summary: String,
    /// At length.
    details: String,
    /// Where first.
    place: Option<Place>,
    /// Whether no element is right.
    all_wrong: bool,
}

impl From<(String, String)> for Found {
    fn from((summary, details): (String, String)) -> Found {
        Found { summary, details, place: None, all_wrong: false }
    }
}

/// What was found so far.
#[derive(Default)]
pub(super) struct Checks {
    held: Vec<String>,
    pub not_applicable: Vec<(String, String)>,
    findings: Vec<Finding>,
    outputs: Digest,
}

/// A hash of outputs: XXH3 of each, its length behind it.
#[derive(Default)]
struct Digest(Option<Xxh3Default>);

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        let hash = self.0.get_or_insert_default();
        hash.update(bytes);
        hash.update(&(bytes.len() as u64).to_le_bytes());
    }

    /// 16 hexadecimal digits, if there was anything.
    fn text(&self) -> Option<String> {
        self.0.as_ref().map(|hash| format!("{:016x}", hash.digest()))
    }
}

impl Checks {
    /// Notes one check of a property: it holds, or what was found.
    pub(super) fn note(&mut self, property: &str, call: Option<usize>, found: Option<impl Into<Found>>) {
        match found.map(Into::into) {
            Some(Found { summary, details, place, all_wrong }) => {
                self.findings.push(Finding { property: property.into(), call, summary, details, place, all_wrong, case: None })
            }
            None if self.held.iter().any(|held| held == property) => {}
            None => self.held.push(property.into()),
        }
    }

    /// The bytes around a group's buffers.
    pub(super) fn canaries(&mut self, machine: &mut dyn Machine, group: usize) -> Result<(), MachineError> {
        let broken = machine.broken_canary(group)?.map(|(rank, buffer, at)| {
            let place = if at < 0 { format!("{} bytes before", -at) } else { format!("at byte {at} from the start of") };
            (format!("rank {rank}: a byte {place} buffer {buffer} was overwritten"), String::new())
        });
        self.note("canaries", None, broken);
        Ok(())
    }

    /// One call against its contract, and the ranks against each other.
    fn call(&mut self, index: usize, recorded: &Recorded, outputs: &[Vec<u8>]) {
        let Recorded { call, contract, payload, .. } = recorded;
        let (reference, ranks_agree) = if recorded.by_peer { ("peer_reference", "peer_ranks_agree") } else { ("reference", "ranks_agree") };
        let mismatch = compare(contract, call.op, payload, &call.shape(), outputs);
        let found = mismatch.map(|m| {
            let all_wrong = m.wrong == m.total;
            Found { summary: m.summary(), details: m.to_string(), place: m.place(), all_wrong }
        });
        self.note(reference, Some(index), found);
        if contract.equal_across_ranks && call.collective.gives_all_ranks_the_same() {
            let difference = ranks_disagree(outputs, call.dtype);
            let found = difference.map(|d| {
                let summary = format!("ranks {:?} differ from rank 0", d.ranks);
                let place = d.ranks.first().and_then(|&rank| d.place(rank));
                Found { place, ..(summary, d.to_string()).into() }
            });
            self.note(ranks_agree, Some(index), found);
        }
    }

    /// The input of a rank, by bytes: one NaN in the place of another is a write, too.
    fn input(&mut self, rank: u32, region: &Region, dtype: DType, (sent, now): (&[u8], &[u8])) {
        debug_assert_eq!(sent.len(), now.len(), "rank {rank}: input {region}");
        let first = sent.iter().zip(now).position(|(sent, now)| sent != now);
        let found = first.map(|at| {
            let size = dtype.size() as usize;
            let (element, bit) = (at / size, 8 * (at % size) as u32 + (sent[at] ^ now[at]).trailing_zeros());
            let bytes = |of: &[u8]| of[element * size..].iter().take(size).rev().map(|byte| format!("{byte:02x}")).collect::<String>();
            let differing = sent.iter().zip(now).filter(|(sent, now)| sent != now).count();
            let summary = format!("rank {rank}: input {region} was overwritten");
            let details = format!(
                "{differing} of {} bytes differ, the first in element {element}: it was 0x{}, and is 0x{}",
                sent.len(),
                bytes(sent),
                bytes(now)
            );
            Found { place: Some(Place { rank, element: element as u64, bit: Some(bit) }), ..(summary, details).into() }
        });
        self.note("input_unchanged", None, found);
    }

    /// The outputs of ranks that get no result, which must be what they were. Peers promise nothing about them.
    fn untouched(&mut self, index: usize, recorded: &Recorded, outputs: &[Vec<u8>]) {
        let Recorded { call, poison, payload, by_peer, .. } = recorded;
        let shape = call.shape();
        let receivers = shape.receivers();
        let stays = |rank: &u32| !receivers.contains(rank) || shape.counts.is_some();
        for (rank, output) in (0..).zip(outputs).filter(|(rank, _)| !by_peer && stays(rank)) {
            let received = if receivers.contains(&rank) { (shape.received(rank) * call.dtype.size()) as usize } else { 0 };
            let before = if call.in_place() { payload.bytes(rank, 0..call.count) } else { vec![*poison; output.len()] };
            let first = before.iter().zip(output).skip(received).position(|(before, now)| before != now);
            let found = first.map(|at| match received {
                0 => format!("rank {rank} gets no result, but byte {at} of its output was overwritten"),
                _ => format!("rank {rank} gets {received} bytes, but byte {} of its output was overwritten", received + at),
            });
            self.note("untouched", Some(index), found.map(|summary| (summary, String::new())));
        }
    }

    /// One call of a shape against another, on every rank that gets a result.
    fn related(&mut self, related: &Related, case: &CollectiveCase, shape: &Shape, outputs: &[Vec<Vec<u8>>]) {
        let Related { property, base, other, relation } = *related;
        let receivers = shape.receivers();
        let pairs = outputs[base].iter().zip(&outputs[other]).enumerate().filter(|(rank, _)| receivers.contains(&(*rank as u32)));
        let broken = pairs.into_iter().find_map(|(rank, (base, other))| {
            let relation = relation.on(rank as u32).with_third(|third| &outputs[third][rank][..]);
            relation_broken(relation, case.dtype, base, other).map(|difference| (rank, difference))
        });
        let found = broken.map(|(rank, d)| {
            let summary = format!("rank {rank}: {} of {} elements are not {} of call {base}", d.wrong, d.total, d.relation);
            Found { place: d.place(rank as u32), ..(summary, d.to_string()).into() }
        });
        self.note(property, Some(other), found);
    }

    pub(super) fn verdict(mut self, case: &impl ToString) -> Verdict {
        self.held.retain(|held| !self.findings.iter().any(|finding| finding.property == *held));
        let status = if self.findings.is_empty() { Status::Pass } else { Status::Fail };
        let reason = self.findings.first().map(|finding| finding.summary.clone()).unwrap_or_default();
        let mut verdict = Verdict::without_checks(case.to_string(), status, reason);
        verdict.outputs = self.outputs.text();
        (verdict.held, verdict.not_applicable, verdict.findings) = (self.held, self.not_applicable, self.findings);
        verdict
    }
}

#[cfg(test)]
mod planted;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        REGISTRY,
        conformance::planted_machine::{Bug, Observed, PlantedMachine},
    };
    use passmuster_plan::plan::{Arg, Op, Plan};
    use rstest::rstest;

    /// For the emulator, where nothing here takes a second.
    pub(in super::super) fn settings() -> Settings<'static> {
        Settings { registry: &REGISTRY, deadline: Duration::from_secs(60), shared_pads: false, progress: &|_| {} }
    }

    /// If this fails, a case of an algorithm that nobody brought is taken for one that its algorithm does not do.
    #[test]
    fn algorithms_that_the_registry_lacks_are_an_error() {
        for id in ["all_reduce/nobody:bf16,sum:w=2:n=8", "all_reduce/two_shot:bf16,sum:w=2:n=8:peer=nobody"] {
            let verdict = judge(&id.parse().unwrap(), &mut PlantedMachine::correct(), &settings());
            assert_eq!(verdict.status, Status::InfraError, "{verdict:?}");
            assert!(verdict.reason.contains("unknown algorithm `nobody` of all_reduce: expected one of one_shot, "), "{}", verdict.reason);
        }
    }

    /// If this fails, records of one version are taken to differ from those of another: the digest is not what its head says.
    #[test]
    fn digest_stays_what_it_was() {
        let mut digest = Digest::default();
        digest.add(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        digest.add(&[]);
        assert_eq!(digest.text().as_deref(), Some("c257331fd664d55c"));
    }

    /// If this fails, outputs that differ in the order of their elements, ranks or calls have one digest, and two machines are taken to agree.
    #[test]
    fn digest_depends_on_order() {
        let digest = |outputs: &[&[u8]]| {
            let mut digest = Digest::default();
            outputs.iter().for_each(|output| digest.add(output));
            digest.text()
        };
        let (a, b) = ([1u8; 8], [2u8; 8]);
        let both = [a, b].concat();
        let all = [
            digest(&[&a, &b]),
            digest(&[&b, &a]),
            digest(&[&both]),
            digest(&[&[b, a].concat()]),
            digest(&[&a, &a]),
            digest(&[&b, &b]),
            digest(&[&a]),
            digest(&[&a, &[]]),
            digest(&[&[1; 7]]),
            digest(&[&[0; 8]]),
            digest(&[&[0; 9]]),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        assert_eq!((digest(&[]), digest(&[&a]).map(|text| text.len())), (None, Some(16)));
    }

    fn judged(id: &str, bug: Bug) -> Verdict {
        let case = id.parse().unwrap();
        judge(&case, &mut PlantedMachine::with_bug(&case, bug), &settings())
    }

    #[test]
    fn every_property_is_checked_or_says_why_not() {
        let verdict = judged("all_reduce/two_shot:bf16,sum:w=3:n=100:peer=nccl_ring", |_, _| {});
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        let mut names = verdict.held.clone();
        names.extend(verdict.not_applicable.iter().map(|(name, _)| name.clone()));
        names.sort();
        let expected = [
            "additivity",
            "canaries",
            "equals_peer",
            "graph",
            "history",
            "in_place",
            "independence",
            "input_unchanged",
            "negation",
            "peer_ranks_agree",
            "peer_reference",
            "ranks_agree",
            "reference",
            "repeat",
            "scaling",
        ];
        assert_eq!(names, expected);
    }

    fn element(bytes: &mut [u8], index: usize) -> &mut [u8] {
        &mut bytes[2 * index..2 * index + 2]
    }

    fn flip_one_bit_on_rank_2(seen: Observed<'_>, result: &mut [u8]) {
        if seen.rank == 2 {
            element(result, 7)[0] ^= 1;
        }
    }

    fn written_on_rank_2(seen: Observed<'_>, result: &mut [u8]) {
        if seen.rank == 2 {
            element(result, 9)[1] ^= 1;
        }
    }

    /// If this fails, a reduce may spoil the outputs of ranks that get no result.
    #[rstest]
    #[case("reduce/pull:bf16,sum:w=3:n=100:root=1:peer=nccl_ring")]
    #[case("reduce/pull:bf16,sum:w=3:n=100:in_place")]
    #[case("reduce/pull:bf16,sum:w=3:calls=pull.100+[pull.50.root1+pull.70]x3")]
    fn ranks_that_get_no_result_keep_what_they_have(#[case] id: &str) {
        let verdict = judged(id, |_, _| {});
        assert!(verdict.status == Status::Pass && verdict.held.contains(&"untouched".into()), "{verdict:#?}");
        let verdict = judged(id, written_on_rank_2);
        assert!(!verdict.findings.is_empty() && verdict.findings.iter().all(|found| found.property == "untouched"), "{verdict:#?}");
        assert_eq!(verdict.reason, "rank 2 gets no result, but byte 19 of its output was overwritten");
    }

    /// If this fails, an all-to-all-v is judged as slots, or what they leave of an output is not looked at.
    #[rstest]
    #[case("all_to_all/push:bf16,copy:w=3:n=40:counts=7:peer=nccl_send_recv")]
    #[case("all_to_all/copy_engine:f32,copy:w=4:n=9:counts=1:off=3")]
    #[case("all_to_all/ll:f64,copy:w=5:n=33:counts=4:off=1")]
    #[case("all_to_all/push:bf16,copy:w=3:counts=2:calls=push.40+[copy_engine.17+push.0]x2+ll.23")]
    fn parts_arrive_and_the_rest_stays(#[case] id: &str) {
        let verdict = judged(id, |_, _| {});
        assert!(verdict.status == Status::Pass && verdict.held.contains(&"untouched".into()), "{verdict:#?}");
    }

    /// What the ranks of a pull launch the kernel of one_shot with: the elements, on which ranks, and how many.
    fn pulled(plan: &Plan) -> Option<Vec<[Arg; 2]>> {
        let of_rank = |ops: &Vec<Op>| match ops.last() {
            Some(Op::Launch(launch)) if launch.module == "all_reduce/one_shot" => Some([launch.args[4].clone(), launch.args[1].clone()]),
            _ => None,
        };
        plan.ranks.iter().map(of_rank).collect()
    }

    /// Has each rank of a pull pull what `as_rank` of it does.
    fn pull_as(plan: &mut Plan, as_rank: impl Fn(usize, &[[Arg; 2]]) -> usize) {
        let Some(pulled) = pulled(plan) else { return };
        for (rank, ops) in plan.ranks.iter_mut().enumerate() {
            let Some(Op::Launch(launch)) = ops.last_mut() else { unreachable!("each rank pulls") };
            [launch.args[4], launch.args[1]] = pulled[as_rank(rank, &pulled)].clone();
        }
    }

    /// The rank that reduces something.
    fn root_of(pulled: &[[Arg; 2]]) -> usize {
        pulled.iter().position(|[_, count]| *count != Arg::U64(0)).unwrap_or(0)
    }

    fn root_is_rank_0(plan: &mut Plan) {
        pull_as(plan, |rank, pulled| match root_of(pulled) {
            root if rank == root => 0,
            root if rank == 0 => root,
            _ => rank,
        });
    }

    fn next_rank_reduces_too(plan: &mut Plan) {
        pull_as(plan, |rank, pulled| if rank == (root_of(pulled) + 1) % pulled.len() { root_of(pulled) } else { rank });
    }

    fn next_ranks_slot(plan: &mut Plan) {
        pull_as(plan, |rank, pulled| (rank + 1) % pulled.len());
    }

    /// If this fails, the kernel of one_shot may be told to reduce another rank's elements, or on another rank, and nothing would say so.
    #[rstest]
    #[case::root("reduce/pull:bf16,sum:w=3:n=100:root=1", root_is_rank_0, "reference")]
    #[case::next("reduce/pull:bf16,sum:w=3:n=100:root=1", next_rank_reduces_too, "untouched")]
    #[case::next_of_last("reduce/pull:bf16,sum:w=3:n=100:root=2", next_rank_reduces_too, "untouched")]
    #[case::slot("reduce_scatter/pull:bf16,sum:w=3:n=100", next_ranks_slot, "reference")]
    fn plans_that_pull_something_else_are_findings(#[case] id: &str, #[case] change: fn(&mut Plan), #[case] property: &str) {
        let verdict = judge(&id.parse().unwrap(), &mut PlantedMachine::with_plans(change), &settings());
        assert!(verdict.findings.iter().any(|finding| finding.property == property), "{verdict:#?}");
        assert_eq!(judged(id, |_, _| {}).status, Status::Pass);
    }

    fn wrong_in_later_calls(seen: Observed<'_>, result: &mut [u8]) {
        if seen.call == 2 {
            element(result, 0)[1] ^= 0x40;
        }
    }

    fn last_element_not_written(_: Observed<'_>, result: &mut [u8]) {
        let last = result.len() / 2 - 1;
        element(result, last).fill(0xff);
    }

    /// What only relations between calls see: consistent with the reference of each call's inputs it is not, but a relation says why.
    fn depends_on_a_neighbour(seen: Observed<'_>, result: &mut [u8]) {
        if seen.inputs[0][..8].iter().map(|byte| byte.count_ones()).sum::<u32>() % 2 == 1 {
            element(result, 3)[0] ^= 1;
        }
    }

    #[rstest]
    #[case::rank(flip_one_bit_on_rank_2, "ranks_agree")]
    #[case::history(wrong_in_later_calls, "history")]
    #[case::unwritten(last_element_not_written, "reference")]
    #[case::neighbour(depends_on_a_neighbour, "reference")]
    fn planted_bugs_are_findings(#[case] bug: Bug, #[case] property: &str) {
        let verdict = judged("all_reduce/two_shot:bf16,sum:w=3:n=100:seed=5", bug);
        assert_eq!(verdict.status, Status::Fail);
        assert!(verdict.findings.iter().any(|f| f.property == property), "{verdict:#?}");
        assert!(!verdict.held.contains(&property.to_owned()), "{verdict:#?}");
    }

    #[test]
    fn a_sequence_is_judged_call_by_call() {
        let id = "all_reduce/one_shot:bf16,sum:w=4:calls=one_shot.7+[two_shot.9+one_shot.33.in_place]x2+two_shot.5.off3.g1";
        assert_eq!(judged(id, |_, _| {}).status, Status::Pass);
        let verdict = judged(id, wrong_in_later_calls);
        assert_eq!(verdict.findings.iter().map(|f| f.call).collect::<Vec<_>>(), [Some(2)]);
    }

    /// If this fails, a process that judges a list of faults itself dies of it.
    #[test]
    fn nobody_is_killed_who_has_not_said_that_they_may_be() {
        let verdict = judged("all_reduce/two_shot:bf16,sum:w=2:n=5000:fault=killed", |_, _| {});
        assert_eq!(verdict.status, Status::NotSupported, "{verdict:#?}");
        assert_eq!(verdict.reason, "not supported: only a worker is killed: this process has not said that it may be");
        // Longer than a killed process would live.
        std::thread::sleep(Duration::from_millis(20));
    }

    /// If this fails, a record does not say that nobody knows which path the peer took.
    #[test]
    fn a_path_that_was_not_checked_is_told() {
        let ran = Ran { races: None, waived: Vec::new(), undefined: Vec::new(), unchecked_path: Some("no log".into()) };
        let verdict = ran.on(Verdict::without_checks("case", Status::Pass, ""));
        assert_eq!(verdict.not_applicable, [("peer_path".to_owned(), "path unchecked: no log".to_owned())]);
    }

    #[test]
    fn what_a_peer_cannot_do_is_not_supported_with_the_reason() {
        let verdict = judged("all_reduce/two_shot:f64,sum:w=2:n=4:peer=nccl_symmetric_ll", |_, _| {});
        assert_eq!(verdict.status, Status::NotSupported);
        assert!(
            verdict.reason.contains("symmetric kernels do sums of f32, f16, bf16, e4m3 and e5m2, not sum of f64"),
            "{}",
            verdict.reason
        );
    }
}
