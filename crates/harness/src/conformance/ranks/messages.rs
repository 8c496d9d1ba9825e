//! What the coordinator and the ranks' processes say to each other: JSON, and behind it the bytes that JSON is too slow for.

use std::{collections::HashMap, sync::Arc};

use passmuster_plan::{
    machine::{Awaited, Condition, Fetched, MachineError, MachineInfo, Run, Waived},
    plan::{BufferSpec, Departure, Plan, Region, Script, Step},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::Mishap;

/// What a rank is asked. Every rank is asked the same, but for what is read and written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// To open a group, together with the others.
    OpenGroup {
        /// How many ranks it has.
        world: usize,
        /// On how many nodes.
        nodes: usize,
        /// Its buffers.
        buffers: Vec<BufferSpec>,
    },
    /// To close all groups.
    CloseGroups,
    /// For bytes of its own.
    Read {
        /// Of which group.
        group: usize,
        /// Which bytes.
        region: Region,
    },
    /// To write what comes behind, to its own.
    Write {
        /// Of which group.
        group: usize,
        /// Where to.
        region: Region,
    },
    /// Whether bytes outside its buffers have changed.
    BrokenCanary {
        /// Of which group.
        group: usize,
    },
    /// To run its part of a script, together with the others.
    Run {
        /// The script.
        script: PackedScript,
        /// How long the run may take, in milliseconds.
        deadline_ms: u64,
    },
    /// What [`Machine::waiting_blocks`](passmuster_plan::machine::Machine::waiting_blocks) says, or the most.
    WaitingBlocks {
        /// Of this many ranks.
        world: usize,
        /// Of this many groups.
        groups: usize,
        /// Whether a case asks for more than usual.
        most: bool,
    },
    /// What [`Machine::check_budget`](passmuster_plan::machine::Machine::check_budget) says.
    CheckBudget {
        /// Of this many elements.
        elements: u64,
    },
    /// What [`Machine::check_multiplications`](passmuster_plan::machine::Machine::check_multiplications) says.
    CheckMultiplications {
        /// Of this many.
        multiplications: u64,
    },
    /// How its device fares.
    Conditions,
    /// That something befalls it.
    Befall(Mishap),
    /// To leave.
    Leave,
}

/// What a rank says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It is there.
    Ready {
        /// Its machine.
        info: MachineInfo,
        /// The most ranks of a group.
        max_world: usize,
    },
    /// It has done so; where it was asked for bytes, they are behind.
    Done,
    /// The number of the group that was opened.
    Opened(usize),
    /// A number.
    Number(u32),
    /// How its device fares, where it can tell.
    Conditions(Vec<Condition>),
    /// What was broken, if anything: the buffer, and the distance from its start.
    Canary(Option<(String, i64)>),
    /// Its part of a run has come to its end. What it fetched is behind.
    Ran(Part),
    /// It could not.
    Error(MachineError),
}

/// One rank's part of a [`Run`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its own times, as bits: a rank that left has none.
    marks: Vec<u64>,
    /// Lengths of what it fetched, and how it came to it.
    fetched: Vec<(usize, Option<(bool, f64)>)>,
    waived: Vec<Waived>,
    undefined: Vec<String>,
    unchecked_path: Option<String>,
    /// How often the machine's hosts have met.
    pub rendezvous: u64,
}

impl Part {
    /// The part of a rank, and the bytes that go behind it.
    pub(super) fn of(run: Run, rank: usize, rendezvous: u64) -> (Part, Vec<u8>) {
        let Run { marks, mut fetched, waived, undefined, unchecked_path } = run;
        let marks = marks.iter().map(|interval| interval.get(rank).copied().unwrap_or(f64::NAN).to_bits()).collect();
        let own = if rank < fetched.len() { fetched.swap_remove(rank) } else { Vec::new() };
        let how = |fetched: &Fetched| (fetched.bytes.len(), fetched.awaited.map(|awaited| (awaited.was_there, awaited.blocked)));
        let part = Part { marks, fetched: own.iter().map(how).collect(), waived, undefined, unchecked_path, rendezvous };
        (part, own.into_iter().flat_map(|fetched| fetched.bytes).collect())
    }

    /// The run of all parts, in rank order, each with the bytes that came behind it.
    ///
    /// # Errors
    /// Bytes that are not those of its fetches.
    pub(super) fn together(parts: Vec<(Part, Vec<u8>)>) -> Result<Run, String> {
        let intervals = parts.iter().map(|(part, _)| part.marks.len()).max().unwrap_or(0);
        let mark = |part: &Part, interval: usize| part.marks.get(interval).map_or(f64::NAN, |bits| f64::from_bits(*bits));
        let marks = (0..intervals).map(|interval| parts.iter().map(|(part, _)| mark(part, interval)).collect()).collect();
        let mut run = Run { marks, ..Run::default() };
        for (rank, (part, bytes)) in parts.into_iter().enumerate() {
            let mut rest = &bytes[..];
            let mut own = Vec::new();
            for (length, awaited) in part.fetched {
                let (bytes, after) = rest.split_at_checked(length).ok_or_else(|| format!("rank {rank} says less than it fetched"))?;
                let awaited = awaited.map(|(was_there, blocked)| Awaited { was_there, blocked });
                own.push(Fetched { bytes: bytes.to_vec(), awaited });
                rest = after;
            }
            run.fetched.push(own);
            Waived::add(&mut run.waived, part.waived);
            run.undefined.extend(part.undefined);
            run.unchecked_path = run.unchecked_path.or(part.unchecked_path);
        }
        Ok(run)
    }
}

/// Plans that a rank has run. One that comes again is the one it was, by which a machine knows what it has captured.
#[derive(Default)]
pub struct KnownPlans(Vec<Arc<Plan>>);

impl KnownPlans {
    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn known(&mut self, plan: Plan) -> Arc<Plan> {
        if let Some(known) = self.0.iter().find(|known| ***known == plan) {
            return known.clone();
        }
        let plan = Arc::new(plan);
        self.0.push(plan.clone());
        plan
    }
}

/// A [`Script`] that names each plan once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PackedScript {
    plans: Vec<Plan>,
    steps: Vec<PackedStep>,
}

/// A [`Step`] with the places of its plans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum PackedStep {
    Enqueue { group: usize, stream: usize, plan: usize },
    Capture { graph: usize, group: usize, plans: Vec<usize> },
    Replay { graph: usize, stream: usize },
    Delay { rank: usize, microseconds: u64 },
    Leave { rank: usize, how: Departure },
    Await { fetch: usize },
    Mark,
}

impl PackedScript {
    /// Of a script.
    pub fn of(script: &Script) -> PackedScript {
        let mut places: HashMap<*const Plan, usize> = HashMap::new();
        let mut plans: Vec<Plan> = Vec::new();
        let mut place = |plan: &Arc<Plan>| {
            *places.entry(Arc::as_ptr(plan)).or_insert_with(|| {
                plans.push((**plan).clone());
                plans.len() - 1
            })
        };
        let steps = script.steps.iter().map(|step| match step {
            Step::Enqueue { group, stream, plan } => PackedStep::Enqueue { group: *group, stream: *stream, plan: place(plan) },
            Step::Capture { graph, group, plans } => {
                PackedStep::Capture { graph: *graph, group: *group, plans: plans.iter().map(&mut place).collect() }
            }
            Step::Replay { graph, stream } => PackedStep::Replay { graph: *graph, stream: *stream },
            Step::Delay { rank, microseconds } => PackedStep::Delay { rank: *rank, microseconds: *microseconds },
            Step::Leave { rank, how } => PackedStep::Leave { rank: *rank, how: *how },
            Step::Await { fetch } => PackedStep::Await { fetch: *fetch },
            Step::Mark => PackedStep::Mark,
        });
        let steps = steps.collect();
        PackedScript { plans, steps }
    }

    /// The script, with the plans of earlier ones where it has the same.
    ///
    /// # Errors
    /// A plan that is not there.
    pub fn unpack(self, known: &mut KnownPlans) -> Result<Script, String> {
        let plans: Vec<Arc<Plan>> = self.plans.into_iter().map(|plan| known.known(plan)).collect();
        let plan = |at: usize| plans.get(at).cloned().ok_or_else(|| format!("plan {at} of {}", plans.len()));
        let step = |step: PackedStep| {
            Ok(match step {
                PackedStep::Enqueue { group, stream, plan: at } => Step::Enqueue { group, stream, plan: plan(at)? },
                PackedStep::Capture { graph, group, plans } => {
                    Step::Capture { graph, group, plans: plans.into_iter().map(plan).collect::<Result<_, String>>()? }
                }
                PackedStep::Replay { graph, stream } => Step::Replay { graph, stream },
                PackedStep::Delay { rank, microseconds } => Step::Delay { rank, microseconds },
                PackedStep::Leave { rank, how } => Step::Leave { rank, how },
                PackedStep::Await { fetch } => Step::Await { fetch },
                PackedStep::Mark => Step::Mark,
            })
        };
        Ok(Script { steps: self.steps.into_iter().map(step).collect::<Result<_, String>>()? })
    }
}

/// A message: its number, what it says, and the bytes behind it.
pub fn encode(number: u64, said: &impl Serialize, bytes: &[u8]) -> Vec<u8> {
    let json = serde_json::to_vec(said).expect("a message is plain data");
    [&number.to_le_bytes()[..], &(json.len() as u64).to_le_bytes(), &json, bytes].concat()
}

/// The other way round.
///
/// # Errors
/// Why it is no message.
pub fn decode<T: DeserializeOwned>(message: &[u8]) -> Result<(u64, T, &[u8]), String> {
    let cut = || format!("a message of {} bytes ends too early", message.len());
    let (number, rest) = message.split_first_chunk::<8>().ok_or_else(cut)?;
    let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| cut())?;
    let (json, bytes) = rest.split_at_checked(length).ok_or_else(cut)?;
    let said = serde_json::from_slice(json).map_err(|error| format!("a message is not understood: {error}"))?;
    Ok((u64::from_le_bytes(*number), said, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        REGISTRY,
        conformance::{Case, List},
    };

    /// If this fails, ranks in processes run something else than ranks in threads do, or a script is too long to be sent.
    #[test]
    fn scripts_travel_as_they_are() {
        let mut seen = 0;
        for case in List::Smoke.all_cases(&REGISTRY, 0) {
            let Case::Collective(case) = case else { continue };
            let Ok((_, script)) = crate::conformance::runner::prepared(&REGISTRY, &case, 4) else { continue };
            let message = encode(7, &PackedScript::of(&script), &[1, 2]);
            let (number, packed, bytes) = decode::<PackedScript>(&message).unwrap();
            assert!((number, bytes, packed.unpack(&mut KnownPlans::default()).unwrap()) == (7, &[1, 2][..], script), "{case}");
            assert!(message.len() < 4 << 20, "{case}: {} bytes", message.len());
            seen += 1;
        }
        assert!(seen > 100);
    }

    /// If this fails, a rank's process captures a graph again in each round of a timing, and keeps all of them.
    #[test]
    fn a_plan_that_comes_again_is_the_one_it_was() {
        let plan = |name: &str| Arc::new(Plan::per_rank(name, 1, |_| Vec::new()));
        let message = |plans: &[&str]| {
            let plans = plans.iter().map(|name| plan(name)).collect();
            PackedScript::of(&Script { steps: vec![Step::Capture { graph: 0, group: 0, plans }] })
        };
        let mut known = KnownPlans::default();
        let mut captured = |plans: &[&str]| match message(plans).unpack(&mut known).unwrap().steps.remove(0) {
            Step::Capture { plans, .. } => plans,
            other => panic!("{other:?}"),
        };
        let (first, again) = (captured(&["a", "b"]), captured(&["b", "c"]));
        assert!(Arc::ptr_eq(&first[1], &again[0]) && !Arc::ptr_eq(&first[0], &again[1]));
    }

    /// If this fails, what a rank fetched is another's, or a message of anybody's ends the process.
    #[test]
    fn parts_of_a_run_are_put_together() {
        let fetched = |bytes: &[u8]| Fetched { bytes: bytes.to_vec(), awaited: Some(Awaited { was_there: true, blocked: 2.5 }) };
        let waived = Waived { assumption: "alias".into(), what: "race".into(), first: "here".into(), times: 2, places: Vec::new() };
        let run = Run {
            marks: vec![vec![1.0, 3.0], vec![2.0, 4.0]],
            fetched: vec![vec![fetched(b"ab"), fetched(b"")], vec![fetched(b"c")]],
            waived: vec![waived.clone()],
            undefined: vec!["here".into()],
            unchecked_path: None,
        };
        let parts: Vec<(Part, Vec<u8>)> = (0..2).map(|rank| Part::of(run.clone(), rank, 3)).collect();
        let waived = vec![Waived { times: 4, ..waived }];
        let undefined = vec!["here".to_owned(); 2];
        assert_eq!(Part::together(parts.clone()), Ok(Run { waived, undefined, ..run }));
        let mut short = parts;
        short[1].1.clear();
        assert_eq!(Part::together(short).unwrap_err(), "rank 1 says less than it fetched");
        for end in 0..20 {
            let message = encode(1, &Request::CloseGroups, &[]);
            assert!(decode::<Request>(&message[..end]).is_err());
        }
        assert!(decode::<Request>(&[&[0; 8][..], &u64::MAX.to_le_bytes(), b"x"].concat()).is_err());
        let packed = PackedScript { plans: Vec::new(), steps: vec![PackedStep::Enqueue { group: 0, stream: 0, plan: 3 }] };
        assert_eq!(packed.unpack(&mut KnownPlans::default()).unwrap_err(), "plan 3 of 0");
    }
}
