//! Graphs, kept while the groups are open whose buffers they use: a script that captures what one before it did replays what there is. Everything
//! else that a graph refers to (kernels, communicators, library handles) lives as long as the machine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{device::Device, stream::Graph};
use passmuster_plan::plan::Plan;

/// Those of the open groups.
#[derive(Default)]
pub(crate) struct Graphs {
    kept: Vec<Kept>,
    captured: u64,
}

/// One graph of a script, on all ranks.
struct Kept {
    /// Its number in the script: two of one script may have to run at once, and so are two.
    number: usize,
    group: usize,
    /// Held, so that no other plan gets their place in memory.
    plans: Vec<Arc<Plan>>,
    ranks: Vec<Arc<OfRank>>,
}

/// One rank's part.
pub(crate) struct OfRank {
    device: Arc<Device>,
    graph: Mutex<Option<Graph>>,
}

impl OfRank {
    /// The graph; none until the rank's thread has captured it.
    pub(crate) fn graph(&self) -> MutexGuard<'_, Option<Graph>> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OfRank {
    fn drop(&mut self) {
        // For the graph, which is dropped next, on whatever thread that is.
        let _ = self.device.make_current();
    }
}

impl Graphs {
    /// What each rank of a script has of a graph, or will have.
    pub(crate) fn of(&mut self, number: usize, group: usize, plans: &[Arc<Plan>], devices: &[Arc<Device>]) -> Vec<Arc<OfRank>> {
        let same = |kept: &&Kept| {
            (kept.number, kept.group, kept.plans.len(), kept.ranks.len()) == (number, group, plans.len(), devices.len())
                && kept.plans.iter().zip(plans).all(|(kept, plan)| Arc::ptr_eq(kept, plan))
        };
        if let Some(kept) = self.kept.iter().find(same) {
            return kept.ranks.clone();
        }
        self.captured += 1;
        let ranks: Vec<_> = devices.iter().map(|device| Arc::new(OfRank { device: device.clone(), graph: Mutex::default() })).collect();
        self.kept.push(Kept { number, group, plans: plans.to_vec(), ranks: ranks.clone() });
        ranks
    }

    /// How many were captured so far.
    pub(crate) fn captured(&self) -> u64 {
        self.captured
    }

    /// Drops all of them. Nothing may be running.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }
}
