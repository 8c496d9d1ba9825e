//! The ways around the loop in which lanes look at a word.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    sync::Arc,
};

use passmuster_ptx::{Instruction, Operation, Position, successors};

use super::super::coverage::ends_wait;

/// The ways from a look of a function to itself.
pub(super) struct Way {
    /// From each operation the fewest operations to the look; `None` from where no way leads there.
    distances: Vec<Option<u32>>,
    /// Operations between one look and the next, the look itself among them, of who does nothing of consequence in between but to meet its block.
    around: HashSet<usize>,
}

impl Way {
    pub(super) fn new(code: &[Operation], look: usize) -> Way {
        let mut before = vec![Vec::new(); code.len()];
        let mut after = vec![Vec::new(); code.len()];
        for (at, operation) in code.iter().enumerate() {
            successors(operation, at, &mut |next| {
                if let Some(before) = before.get_mut(next) {
                    before.push(at);
                    after[at].push(next);
                }
            });
        }
        let passes = |at: usize| match &code[at].instruction {
            Instruction::BarrierSync { .. } | Instruction::BarrierReduce { .. } => true,
            _ => at == look || !ends_wait(&code[at]),
        };
        let distances = steps(look, &before, |_| true);
        let (to, from) = (steps(look, &before, passes), steps(look, &after, passes));
        let around = (0..code.len()).filter(|&at| to[at].is_some() && from[at].is_some() && passes(at)).collect();
        Way { distances, around }
    }

    /// The fewest operations from one to the look; `None` if no way leads there.
    pub(super) fn distance(&self, from: usize) -> Option<u32> {
        self.distances.get(from).copied().flatten()
    }

    /// Whether who stands at an operation has looked and will look again.
    pub(super) fn leads_around(&self, at: usize) -> bool {
        self.around.contains(&at)
    }

    /// The places of these operations.
    pub(super) fn places(&self, code: &[Operation]) -> Arc<BTreeSet<Position>> {
        Arc::new(self.around.iter().map(|&at| code[at].at).collect())
    }
}

/// The fewest steps from one operation to each that edges lead to, over those that `passes`.
fn steps(from: usize, edges: &[Vec<usize>], passes: impl Fn(usize) -> bool) -> Vec<Option<u32>> {
    let mut steps = vec![None; edges.len()];
    let mut next = VecDeque::from([(from, 0)]);
    while let Some((at, count)) = next.pop_front() {
        if steps[at].is_none() && passes(at) {
            steps[at] = Some(count);
            next.extend(edges[at].iter().map(|&at| (at, count + 1)));
        }
    }
    steps
}
