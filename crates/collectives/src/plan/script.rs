//! Scripts: sequences of plans on one or more groups. Most real bugs live between calls.

use std::sync::Arc;

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
