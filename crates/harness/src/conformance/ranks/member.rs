//! A rank's process: does what the coordinator asks, on a machine that has this rank.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use passmuster_bootstrap::{
    Bootstrap, BootstrapError, LIMIT, Rank,
    agreement::{Disagreement, agree},
};
use passmuster_plan::{
    library::Library,
    machine::{Machine, MachineError},
    plan::Script,
};

use super::{
    Mishap,
    messages::{Answer, KnownPlans, Part, Request, decode, encode},
    mishap, of_loss,
};

/// How long ranks wait for each other before a run at least.
const SHORTEST_LIMIT: Duration = Duration::from_secs(1);

/// Does what the coordinator asks, until that is to leave. Before each run the ranks compare what they will do. If it differs, all say so and none begins.
///
/// # Errors
/// Where the job has failed or the coordinator is lost. What the machine cannot do is an answer.
pub fn serve(rank: &Rank, machine: &mut dyn Machine, library: &Library) -> Result<(), BootstrapError> {
    rank.send(encode(0, &Answer::Ready { info: machine.info(), max_world: machine.max_world() }, &[]))?;
    let mut kernels = Kernels { all: library.ptx_hash(), library, known: BTreeMap::new() };
    let (mut plans, mut runs, mut garbage) = (KnownPlans::default(), 0, false);
    loop {
        let message = rank.receive()?;
        let (number, request, bytes) = decode::<Request>(&message).map_err(BootstrapError::SetUp)?;
        match request {
            Request::Run { .. } => runs += 1,
            Request::Befall(Mishap::Garbage) => garbage = true,
            _ => {}
        }
        let (answer, bytes) = match request {
            Request::Leave => return Ok(()),
            Request::Run { .. } if garbage => {
                rank.send_garbage();
                continue;
            }
            request => answered(rank, machine, (&mut kernels, &mut plans), (request, bytes), runs)
                .unwrap_or_else(|error| (Answer::Error(error), Vec::new())),
        };
        rank.send(encode(number, &answer, &bytes))?;
    }
}

/// Tells the coordinator that this rank has no machine to serve with.
///
/// # Errors
/// Where the coordinator is lost.
pub fn decline(rank: &Rank, error: &MachineError) -> Result<(), BootstrapError> {
    rank.send(encode(0, &Answer::Error(error.clone()), &[]))
}

fn answered(
    rank: &Rank,
    machine: &mut dyn Machine,
    (kernels, plans): (&mut Kernels<'_>, &mut KnownPlans),
    (request, bytes): (Request, &[u8]),
    runs: u64,
) -> Result<(Answer, Vec<u8>), MachineError> {
    let own = rank.rank();
    let only = |answer| Ok((answer, Vec::new()));
    match request {
        Request::OpenGroup { world, nodes, buffers } => only(Answer::Opened(machine.open_nodes(world, nodes, &buffers)?)),
        Request::CloseGroups => {
            machine.close_groups();
            plans.clear();
            only(Answer::Done)
        }
        Request::Read { group, region } => Ok((Answer::Done, machine.read(group, own, &region)?)),
        Request::Write { group, region } => machine.write(group, own, &region, bytes).and_then(|()| only(Answer::Done)),
        Request::BrokenCanary { group } => {
            let broken = machine.broken_canary(group)?.filter(|(rank, ..)| *rank == own);
            only(Answer::Canary(broken.map(|(_, buffer, distance)| (buffer, distance))))
        }
        Request::Run { script, deadline_ms } => {
            let script = script.unpack(plans).map_err(|reason| MachineError::Invalid { reason })?;
            let deadline = Duration::from_millis(deadline_ms);
            let mut exchanges = rank.clone();
            // A rank that does not come to compare is named before the coordinator's patience ends.
            let usual = exchanges.set_limit(deadline.clamp(SHORTEST_LIMIT, LIMIT));
            let ran = compare(rank, &script, kernels, runs).and_then(|()| machine.run(&script, deadline));
            exchanges.set_limit(usual);
            let run = ran?;
            let (part, bytes) = Part::of(run, own, machine.rendezvous());
            Ok((Answer::Ran(part), bytes))
        }
        Request::WaitingBlocks { world, groups, most: false } => only(Answer::Number(machine.waiting_blocks(world, groups))),
        Request::WaitingBlocks { world, groups, most: true } => only(Answer::Number(machine.most_waiting_blocks(world, groups))),
        Request::Conditions => only(Answer::Conditions(machine.conditions())),
        Request::CheckBudget { elements } => machine.check_budget(elements).and_then(|()| only(Answer::Done)),
        Request::CheckMultiplications { multiplications } => {
            machine.check_multiplications(multiplications).and_then(|()| only(Answer::Done))
        }
        Request::Befall(Mishap::Capped { bytes }) => {
            mishap::cap(bytes).map_err(|reason| MachineError::NotSupported { reason })?;
            only(Answer::Done)
        }
        Request::Befall(Mishap::Garbage) | Request::Leave => only(Answer::Done),
    }
}

/// The kernels of this process, by their hashes.
struct Kernels<'a> {
    /// Of all that the program carries.
    all: String,
    library: &'a Library,
    /// Of those that were launched, as records have them.
    known: BTreeMap<String, Vec<(String, String)>>,
}

/// Compares with the other ranks what all are about to run.
fn compare(rank: &Rank, script: &Script, kernels: &mut Kernels<'_>, number: u64) -> Result<(), MachineError> {
    let fields = descriptor(script, kernels);
    let fields: Vec<(&str, String)> = fields.iter().map(|(name, value)| (&**name, value.clone())).collect();
    agree(&mut rank.clone(), &format!("run {number}"), &fields).map_err(|disagreement| match disagreement {
        Disagreement::Differs { rank, ref field, .. } => {
            MachineError::Differs { rank, field: field.clone(), reason: disagreement.to_string() }
        }
        Disagreement::Bootstrap(error) => of_loss(rank.rank(), &error),
    })
}

/// What ranks compare: of each call what its plan is called by, which is collective, type, operator, world size, count and root; and the kernels.
fn descriptor(script: &Script, kernels: &mut Kernels<'_>) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (call, plan) in script.plans().enumerate() {
        let named = plan.name.split_whitespace().enumerate().map(|(place, word)| match (word.split_once('='), place) {
            (Some(("n", value)), _) => ("count", value),
            (Some(("w", value)), _) => ("world size", value),
            (Some((name, value)), _) => (name, value),
            (None, 0) => ("collective", word),
            (None, 1) => ("dtype", word),
            (None, 2) => ("op", word),
            (None, _) => ("plan", word),
        });
        fields.extend(named.map(|(name, value)| (format!("{name} of call {call}"), value.to_owned())));
    }
    fields.push(("steps".to_owned(), script.steps.len().to_string()));
    fields.push(("PTX".into(), kernels.all.clone()));
    let modules: BTreeSet<String> = script.plans().flat_map(|plan| plan.modules()).collect();
    for module in modules {
        let hashes = || kernels.library.hashes(&BTreeSet::from([module.clone()])).into_iter().collect();
        let hashes = kernels.known.entry(module.clone()).or_insert_with(hashes);
        fields.extend(hashes.iter().map(|(module, hash)| (format!("PTX of {module}"), hash.clone())));
    }
    fields
}
