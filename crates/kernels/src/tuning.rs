//! Tuning tables: which algorithm was the fastest at which size, as measured on one machine. `cargo xtask tune` writes them.

use serde::{Deserialize, Serialize};

use passmuster_plan::collective::Collective;

/// What was measured on machines of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// One for each collective and world size that was measured.
    pub rows: Vec<Row>,
}

/// What is chosen for one collective and world size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The collective.
    pub collective: Collective,
    /// Ranks.
    pub world: u32,
    /// Ranks that shared a GPU. Above 1, links carried less of the traffic than they would among as many GPUs.
    pub ranks_a_gpu: u32,
    /// By size, ascending; the last has no end.
    pub steps: Vec<Step>,
}

/// The algorithm for a range of sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The last size in bytes, of the larger of input and output; none for the last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to: Option<u64>,
    /// Name of the algorithm.
    pub algorithm: String,
    /// Where and when that was measured: GPUs, driver, day.
    pub measured: String,
}

impl Tuning {
    /// The row of a world size, or that of the nearest that was measured, the smaller of two.
    pub fn row(&self, collective: Collective, world: u32) -> Option<&Row> {
        let of_collective = self.rows.iter().filter(|row| row.collective == collective);
        of_collective.min_by_key(|row| (row.world.abs_diff(world), row.world))
    }

    /// Takes a row in, in place of that of the same collective and world size, whose steps stay beyond the largest size that the new one was measured at.
    pub fn replace(&mut self, mut row: Row, largest: u64) {
        let of = |row: &Row| (row.collective, row.world);
        if let Some(at) = self.rows.iter().position(|known| of(known) == of(&row)) {
            row.continue_with(&self.rows.remove(at), largest);
        }
        self.rows.push(row);
        self.rows.sort_by_key(|row| (Collective::ALL.iter().position(|&collective| collective == row.collective), row.world));
    }
}

impl Row {
    /// The sizes at which the choice changes: the last of each step that has one.
    pub fn thresholds(&self) -> impl Iterator<Item = u64> {
        self.steps.iter().filter_map(|step| step.up_to)
    }

    /// The index of the step that `bytes` bytes fall into.
    ///
    /// # Panics
    /// If the row has no step without an end.
    pub fn step_of(&self, bytes: u64) -> usize {
        self.steps.iter().position(|step| step.up_to.is_none_or(|last| bytes <= last)).expect("the last step has no end")
    }

    /// Beyond `largest`, steps are another row's.
    fn continue_with(&mut self, other: &Row, largest: u64) {
        let from = other.step_of(largest + 1);
        let last = self.steps.last_mut().expect("a row has a step");
        let goes_on = last.algorithm == other.steps[from].algorithm;
        last.up_to = if goes_on { other.steps[from].up_to } else { Some(largest) };
        self.steps.extend_from_slice(&other.steps[from + usize::from(goes_on)..]);
    }

    /// Why `bytes` bytes among `world` ranks fall into their step.
    pub fn reason(&self, bytes: u64, world: u32) -> String {
        let at = self.step_of(bytes);
        let from = at.checked_sub(1).and_then(|before| self.steps[before].up_to).map_or(0, |last| last + 1);
        let to = self.steps[at].up_to.map_or_else(|| "on".into(), |last| format!("to {last} bytes"));
        let nearest = if world == self.world { String::new() } else { format!(", the nearest to w={world} that was measured") };
        let shared = if self.ranks_a_gpu > 1 { format!(" ({} ranks a GPU)", self.ranks_a_gpu) } else { String::new() };
        let Step { algorithm, measured, .. } = &self.steps[at];
        format!("{bytes} bytes: {algorithm} was the fastest from {from} {to} at w={}{shared}{nearest}; {measured}", self.world)
    }
}

/// How much slower than the fastest an algorithm may be to stay the choice from one size to the next: less is noise.
pub const MARGIN: f64 = 1.02;

/// Steps from measured times: for each contender its name and its microseconds at each of `sizes`, ascending, where it does the call.
/// A contender stays the choice while it is within [`MARGIN`] of the fastest; the choice changes half-way, on a logarithmic scale,
/// between two sizes, or after the last size that the contender does. `measured` is where and when.
///
/// # Errors
/// A size that no contender does.
pub fn steps(sizes: &[u64], contenders: &[(String, Vec<Option<f64>>)], measured: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    for (at, &bytes) in sizes.iter().enumerate() {
        let times = || contenders.iter().filter_map(|(name, times)| times[at].map(|time| (name, time)));
        let Some((fastest, least)) = times().min_by(|a, b| a.1.total_cmp(&b.1)) else {
            return Err(format!("no algorithm has a time at {bytes} bytes"));
        };
        let current = steps.last().and_then(|step| times().find(|(name, _)| **name == step.algorithm));
        if current.is_some_and(|(_, time)| time <= least * MARGIN) {
            continue;
        }
        if let Some(last) = steps.last_mut() {
            let before = sizes[at - 1];
            last.up_to = Some(if current.is_some() { ((before as f64) * (bytes as f64)).sqrt() as u64 } else { before });
        }
        steps.push(Step { up_to: None, algorithm: fastest.clone(), measured: measured.into() });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(up_to: Option<u64>, algorithm: &str) -> Step {
        Step { up_to, algorithm: algorithm.into(), measured: "here".into() }
    }

    #[test]
    fn the_fastest_is_chosen_and_noise_changes_nothing() {
        let push = ("push".to_owned(), vec![Some(2.0), Some(3.02), Some(5.0), None]);
        let pull = ("pull".to_owned(), vec![Some(4.0), Some(3.0), Some(4.0), Some(9.0)]);
        let steps = steps(&[1024, 4096, 16384, 65536], &[push, pull], "here").unwrap();
        assert_eq!(steps, [step(Some(8192), "push"), step(None, "pull")]);
    }

    /// If this fails, what was measured at large sizes is lost where small ones are measured again, or stands where it was not.
    #[test]
    fn what_was_not_measured_again_stays() {
        let row = |steps: &[Step]| Row { collective: Collective::AllToAll, world: 2, ranks_a_gpu: 1, steps: steps.to_vec() };
        let known = [step(Some(64), "ll"), step(Some(4096), "push"), step(None, "copy_engine")];
        let replaced = |new: &[Step], largest| {
            let mut table = Tuning { rows: vec![row(&known)] };
            table.replace(row(new), largest);
            table.rows.remove(0).steps
        };
        let new = [step(Some(128), "lamport"), step(None, "push")];
        assert_eq!(replaced(&new, 1024), [step(Some(128), "lamport"), step(Some(4096), "push"), step(None, "copy_engine")]);
        assert_eq!(replaced(&new, 4096), [step(Some(128), "lamport"), step(Some(4096), "push"), step(None, "copy_engine")]);
        assert_eq!(
            replaced(&[step(None, "lamport")], 64),
            [step(Some(64), "lamport"), step(Some(4096), "push"), step(None, "copy_engine")]
        );
        assert_eq!(replaced(&[step(None, "copy_engine")], 8192), [step(None, "copy_engine")]);
    }

    /// Half-way to the next size, it might do no call.
    #[test]
    fn a_contender_is_chosen_up_to_the_last_size_that_it_does() {
        let ll = ("ll".to_owned(), vec![Some(2.0), Some(3.0), None]);
        let push = ("push".to_owned(), vec![Some(4.0), Some(4.0), Some(4.0)]);
        assert_eq!(steps(&[1024, 4096, 16384], &[ll, push], "here").unwrap(), [step(Some(4096), "ll"), step(None, "push")]);
    }

    #[test]
    fn a_size_that_nobody_does_is_an_error() {
        let error = steps(&[8, 16], &[("ll".into(), vec![Some(1.0), None])], "here").unwrap_err();
        assert_eq!(error, "no algorithm has a time at 16 bytes");
    }

    #[test]
    fn worlds_that_were_not_measured_go_by_the_nearest() {
        let row = |world, ranks_a_gpu| Row {
            collective: Collective::AllReduce,
            world,
            ranks_a_gpu,
            steps: vec![step(Some(8192), "one_shot"), step(None, "two_shot")],
        };
        let mut table = Tuning { rows: vec![row(2, 1), row(4, 1), row(8, 2)] };
        let reason = |world, bytes| table.row(Collective::AllReduce, world).unwrap().reason(bytes, world);
        assert_eq!(
            reason(3, 8192),
            "8192 bytes: one_shot was the fastest from 0 to 8192 bytes at w=2, the nearest to w=3 that was measured; here"
        );
        assert_eq!(reason(4, 8193), "8193 bytes: two_shot was the fastest from 8193 on at w=4; here");
        assert_eq!(
            reason(16, 1 << 20),
            "1048576 bytes: two_shot was the fastest from 8193 on at w=8 (2 ranks a GPU), the nearest to w=16 that was measured; here"
        );
        assert!(table.row(Collective::AllGather, 2).is_none());
        table.replace(row(4, 3), 1 << 30);
        table.replace(row(3, 1), 1 << 30);
        assert_eq!(table.rows.iter().map(|row| (row.world, row.ranks_a_gpu)).collect::<Vec<_>>(), [(2, 1), (3, 1), (4, 3), (8, 2)]);
    }
}
