//! Verdicts that hosts get while a call is carried out: where they wait for them, and how long that holds them up.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use passmuster_plan::{
    machine::{Awaited, Fetched},
    plan::{Plan, Step},
};

/// The one fetch of each plan, which all ranks' hosts wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostChecks {
    /// Whether they wait for all at the end, and not for each before they enqueue the next plan.
    pub defers: bool,
    /// Each of them, as 32-bit words, where all is well.
    pub good: [u32; 2],
}

/// How hosts came to what they waited for in one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hosts {
    /// Of each sample, microseconds for which a host waited: of the rank whose host waited longest.
    pub blocked: Vec<f64>,
    /// How often hosts looked before they waited.
    pub looked: u64,
    /// How often it was not there yet.
    pub not_there: u64,
}

impl HostChecks {
    /// All plans, and where hosts wait.
    pub(super) fn steps(&self, group: usize, plans: &[Arc<Plan>]) -> Vec<Step> {
        let enqueue = |plan: &Arc<Plan>| Step::Enqueue { group, stream: 0, plan: plan.clone() };
        let wait = |fetch| Step::Await { fetch };
        match self.defers {
            true => plans.iter().map(enqueue).chain((0..plans.len()).map(wait)).collect(),
            false => plans.iter().enumerate().flat_map(|(fetch, plan)| [enqueue(plan), wait(fetch)]).collect(),
        }
    }

    /// The first that is not good, when all were waited for.
    pub(super) fn wrong(&self, fetched: &[Vec<Fetched>]) -> Option<String> {
        let good = self.good.map(u32::to_le_bytes).concat();
        let mut all = fetched.iter().enumerate().flat_map(|(rank, all)| all.iter().enumerate().map(move |(batch, one)| (rank, batch, one)));
        all.find(|(_, _, one)| one.bytes != good).map(|(rank, batch, Fetched { bytes, .. })| {
            let words: Vec<u32> = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
            format!("rank {rank}: batch {batch}: {} elements are wrong, as {} of {} blocks tell", words[0], words[1], self.good[1])
        })
    }
}

impl Hosts {
    /// Adds what the hosts of all ranks fetched in a sample.
    pub(super) fn add(&mut self, fetched: &[Vec<Fetched>]) {
        let awaited = |all: &[Fetched]| all.iter().filter_map(|one| one.awaited).collect::<Vec<_>>();
        let of_ranks: Vec<Vec<Awaited>> = fetched.iter().map(|all| awaited(all)).collect();
        self.blocked.push(of_ranks.iter().map(|all| all.iter().map(|one| one.blocked).sum()).fold(0.0, f64::max));
        self.looked += of_ranks.iter().map(|all| all.len() as u64).sum::<u64>();
        self.not_there += of_ranks.iter().flatten().filter(|one| !one.was_there).count() as u64;
    }
}
