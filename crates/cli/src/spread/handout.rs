//! Which process judges which case: the longest first, and what a lost process had once more.

use std::collections::BTreeMap;

/// How many processes may be lost with a case before it is given up.
const MOST_LOSSES: u32 = 2;

/// Cases that are handed out.
#[derive(Debug)]
pub(super) struct Handout {
    /// What nobody has, the shortest first.
    waiting: Vec<usize>,
    /// What each process has.
    running: BTreeMap<usize, Vec<usize>>,
    done: Vec<bool>,
    /// Processes that were lost with each case.
    losses: Vec<u32>,
}

impl Handout {
    /// Cases that take so long.
    pub(super) fn new(costs: &[f64]) -> Handout {
        let mut waiting: Vec<usize> = (0..costs.len()).collect();
        // Of cases that take the same, the first one first.
        waiting.sort_by(|&one, &other| costs[one].total_cmp(&costs[other]).then(other.cmp(&one)));
        Handout { waiting, running: BTreeMap::new(), done: vec![false; costs.len()], losses: vec![0; costs.len()] }
    }

    /// The next case, for a process.
    pub(super) fn next(&mut self, process: usize) -> Option<usize> {
        let case = self.waiting.pop()?;
        self.running.entry(process).or_default().push(case);
        Some(case)
    }

    /// How many cases a process has.
    pub(super) fn held_by(&self, process: usize) -> usize {
        self.running.get(&process).map_or(0, Vec::len)
    }

    /// A process has judged a case. Whether it is the first to do so: one that was taken for lost may come late.
    pub(super) fn judged(&mut self, process: usize, case: usize) -> bool {
        if let Some(running) = self.running.get_mut(&process) {
            running.retain(|&held| held != case);
        }
        let first = self.done.get(case) == Some(&false);
        if first {
            self.done[case] = true;
            self.waiting.retain(|&other| other != case);
        }
        first
    }

    /// A process is lost. What it had is handed out again, first; the cases that come back are given up.
    pub(super) fn lost(&mut self, process: usize) -> Vec<usize> {
        let mut given_up = Vec::new();
        for case in self.running.remove(&process).unwrap_or_default() {
            self.losses[case] += 1;
            match self.done[case] {
                true => {}
                false if self.losses[case] < MOST_LOSSES => self.waiting.push(case),
                false => given_up.push(case),
            }
        }
        given_up.iter().for_each(|&case| self.done[case] = true);
        given_up
    }

    /// Whether every case is judged or given up.
    pub(super) fn is_done(&self) -> bool {
        self.done.iter().all(|&done| done)
    }
}

#[cfg(test)]
mod tests {
    use passmuster_harness::conformance::List;

    use super::*;
    use crate::costs::{Costs, UNKNOWN};

    /// When the last of `processes` processes is done with cases that are handed out by their costs.
    fn simulated(costs: &[f64], processes: usize) -> f64 {
        let mut handout = Handout::new(costs);
        let mut free_at = vec![0.0; processes];
        while let Some(process) = (0..processes).min_by(|&one, &other| f64::total_cmp(&free_at[one], &free_at[other]))
            && let Some(case) = handout.next(process)
        {
            free_at[process] += costs[case];
        }
        free_at.into_iter().fold(0.0, f64::max)
    }

    /// If this fails, the processes of a cluster wait for one that was given its longest case last.
    #[test]
    fn the_merge_list_is_shared_out_evenly() {
        let recorded = Costs::recorded();
        let costs: Vec<f64> = List::Merge.all_cases(&crate::built_in(), 0).iter().map(|case| recorded.of(case)).collect();
        let total: f64 = costs.iter().sum();
        assert!(recorded.known() > 10_000 && costs.iter().filter(|&&cost| cost == UNKNOWN).count() < costs.len() / 10);
        // Nothing is faster than the longest case.
        let most = total / costs.iter().copied().fold(0.0, f64::max);
        for processes in [2, 8, 64] {
            let speed_up = total / simulated(&costs, processes);
            println!("{processes} processes: {speed_up:.1} times as fast");
            assert!(speed_up > 0.97 * most.min(processes as f64), "{processes} processes: {speed_up:.2}, where {most:.2} can be had");
        }
    }

    /// If this fails, a case is lost with the process that had it, is judged for ever, or twice.
    #[test]
    fn what_a_lost_process_had_is_judged_by_another() {
        let mut handout = Handout::new(&[1.0, 3.0, 2.0, 3.0]);
        assert_eq!([handout.next(0), handout.next(0), handout.next(1)], [Some(1), Some(3), Some(2)]);
        assert!(handout.judged(0, 1));
        assert_eq!((handout.lost(0), handout.held_by(0), handout.held_by(1)), (vec![], 0, 1));
        assert_eq!([handout.next(1), handout.next(1), handout.next(1)], [Some(3), Some(0), None]);
        assert!(handout.judged(0, 3), "it was not lost after all");
        assert!(!handout.judged(1, 3), "it is judged already");
        assert!(handout.judged(1, 0) && !handout.is_done());
        assert!(handout.lost(1).is_empty());
        assert_eq!((handout.next(2), handout.lost(2)), (Some(2), vec![2]));
        assert!(handout.is_done());
        assert!(!handout.judged(2, 2) && !handout.judged(2, 99));
    }
}
