//! Scripts: sequences of plans on one or more groups. Most real bugs live between calls.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Plan;

/// What all ranks do, step by step. Ranks do not wait for each other between steps, nor for their streams: only what the plans
/// themselves synchronise is synchronised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// In the order in which every rank goes through them.
    pub steps: Vec<Step>,
}

impl Script {
    /// All plans that it enqueues or captures, as often as it does.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        fn of(step: &Step) -> &[Arc<Plan>] {
            match step {
                Step::Enqueue { plan, .. } => std::slice::from_ref(plan),
                Step::Capture { plans, .. } => plans,
                _ => &[],
            }
        }
        self.steps.iter().flat_map(of).map(|plan| &**plan)
    }

    /// The ranks that leave while others go on, each with the first plan that it misses: the first in which ranks wait for each other, where
    /// there is one.
    pub fn absences(&self) -> Vec<(usize, &Plan)> {
        let left = |step: &Step| if let Step::Leave { rank, .. } = step { Some(*rank) } else { None };
        let leaves = self.steps.iter().enumerate().filter_map(|(at, step)| left(step).map(|rank| (at, rank)));
        let absence = |(at, rank): (usize, usize)| {
            let mut graphs: HashMap<usize, &[Arc<Plan>]> = HashMap::new();
            let mut missed = Vec::new();
            for (number, step) in self.steps.iter().enumerate() {
                match step {
                    Step::Capture { graph, plans, .. } => drop(graphs.insert(*graph, plans)),
                    Step::Enqueue { plan, .. } if number > at => missed.push(plan),
                    Step::Replay { graph, .. } if number > at => missed.extend(graphs.get(graph).copied().unwrap_or_default()),
                    _ => {}
                }
            }
            missed.retain(|plan| plan.ranks.get(rank).is_some_and(|operations| !operations.is_empty()));
            let first = missed.iter().find(|plan| plan.waits()).or(missed.first())?;
            Some((rank, &***first))
        };
        leaves.filter_map(absence).collect()
    }
}

/// What becomes of a rank that takes no part any more. All but the first need ranks that are processes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Departure {
    /// Its host does nothing more; what it has enqueued goes on.
    Idle,
    /// Its process gets SIGKILL.
    Killed,
    /// Its process gets SIGSTOP: it is there, and says nothing.
    Stopped,
    /// Its process exits with status 0.
    Exited,
    /// Its process panics.
    Panicked,
    /// Its host sleeps for good.
    Stalled,
}

impl Departure {
    /// All but [`Departure::Idle`].
    pub const OF_PROCESSES: [Departure; 5] =
        [Departure::Killed, Departure::Stopped, Departure::Exited, Departure::Panicked, Departure::Stalled];

    /// Its name in case ids and messages.
    pub fn name(self) -> &'static str {
        match self {
            Departure::Idle => "idle",
            Departure::Killed => "killed",
            Departure::Stopped => "stopped",
            Departure::Exited => "exited",
            Departure::Panicked => "panicked",
            Departure::Stalled => "stalled",
        }
    }
}

/// One step of a script. Groups are numbered as the machine opened them, graphs by the script.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Enqueues a plan.
    Enqueue {
        /// Whose buffers the regions are in.
        group: usize,
        /// Which of the ranks' streams.
        stream: usize,
        /// What.
        plan: Arc<Plan>,
    },
    /// Captures plans, in order, into graph number `graph`; enqueues nothing. Where an earlier script has captured these very plans under this number, a
    /// machine may replay that graph, as long as the group is open.
    Capture {
        /// Number of the graph, new in this script.
        graph: usize,
        /// Whose buffers the regions are in.
        group: usize,
        /// What.
        plans: Vec<Arc<Plan>>,
    },
    /// Enqueues a captured graph.
    Replay {
        /// Number of the graph.
        graph: usize,
        /// Which of the ranks' streams.
        stream: usize,
    },
    /// The host of one rank sleeps before it goes on.
    Delay {
        /// Which rank.
        rank: usize,
        /// How long.
        microseconds: u64,
    },
    /// One rank takes no part in the steps that follow: it never arrives.
    Leave {
        /// Which rank.
        rank: usize,
        /// What becomes of it.
        how: Departure,
    },
    /// Every rank's host needs what its fetch of this number brings ([`Op::Fetch`](super::Op::Fetch)): it looks whether that is there, and waits where it is
    /// not. The run reports both. What is enqueued from here on comes after it.
    Await {
        /// Which, of those enqueued before.
        fetch: usize,
    },
    /// Every rank notes the time on stream 0: the run reports microseconds between consecutive marks.
    Mark,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Op, Region};

    /// If this fails, a report says that a rank did not come to what it came to, or to what nobody waits in.
    #[test]
    fn who_leaves_misses_the_first_plan_that_waits() {
        let word = || Region::new("words", 0, 4);
        let plan = |name: &str, op: Op| Arc::new(Plan::per_rank(name, 2, |_| vec![op.clone()]));
        let fill = plan("fill", Op::Fill { region: word(), byte: 1 });
        let waits = plan("waits", Op::WaitValue { at: word(), value: 1 });
        let enqueue = |plan: &Arc<Plan>| Step::Enqueue { group: 0, stream: 0, plan: plan.clone() };
        let missed =
            |steps: Vec<Step>| Script { steps }.absences().into_iter().map(|(rank, plan)| (rank, plan.name.clone())).collect::<Vec<_>>();
        let leave = || Step::Leave { rank: 1, how: Departure::Idle };
        let capture = Step::Capture { graph: 0, group: 0, plans: vec![fill.clone(), waits.clone()] };
        assert_eq!(missed(vec![enqueue(&waits), enqueue(&fill)]), []);
        assert_eq!(missed(vec![enqueue(&waits), leave()]), [], "it misses nothing");
        assert_eq!(missed(vec![enqueue(&waits), leave(), enqueue(&fill)]), [(1, "fill".into())]);
        assert_eq!(missed(vec![leave(), enqueue(&fill), enqueue(&waits)]), [(1, "waits".into())]);
        assert_eq!(missed(vec![capture, leave(), Step::Replay { graph: 0, stream: 0 }]), [(1, "waits".into())]);
    }
}
