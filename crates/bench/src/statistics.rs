//! The statistics of repeated measurements: the one place where figures, their noise and their comparison are made.
//!
//! Measurements come in rounds: contenders take turns (A B A B ...), and what drifts from round to round hits all alike. Samples of one round
//! resemble each other more than those of another, so a round counts once: its median. The figure is the median of the rounds' medians, and
//! its noise an interval that holds the true median in at least 95 of 100 cases whatever the distribution: two order statistics of the rounds
//! (Conover, Practical Nonparametric Statistics, 3.2). Two contenders of one run are compared round by round; two runs, whose rounds have
//! nothing to do with each other, by the shift of Hodges and Lehmann with the interval that belongs to the test of Mann and Whitney
//! (Hollander and Wolfe, Nonparametric Statistical Methods, 4.2 and 4.3), as a ratio.

use serde::{Deserialize, Serialize};

/// How often an interval may miss what it is about, both sides together.
const MISSES: f64 = 0.05;

/// What repeated measurements say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The median of the rounds' medians.
    pub median: f64,
    /// 5th percentile of all samples.
    pub p5: f64,
    /// 95th percentile of all samples.
    pub p95: f64,
    /// 99th percentile of all samples; absent in records that are older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
    /// The median of each round, in the order in which they ran; empty in records that are older than this field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<f64>,
}

/// To four places: more digits say nothing, and make records half as large again.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

/// A figure with its noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Where the true value lies with 95 % confidence; none where there are too few rounds to say.
    pub interval: Option<(f64, f64)>,
}

impl Summary {
    /// Summarizes the samples of each round; `None` where a round has none, or there is no round. Percentiles are samples, those of the
    /// nearest rank. Samples are taken to four places: in microseconds less than any event of a GPU resolves.
    pub fn of(rounds: &[Vec<f64>]) -> Option<Summary> {
        let rounds: Vec<Vec<f64>> = rounds.iter().map(|round| round.iter().copied().map(rounded).collect()).collect();
        let mut sorted: Vec<f64> = rounds.concat();
        sorted.sort_by(f64::total_cmp);
        let at = |fraction: f64| sorted.get(((sorted.len() - 1) as f64 * fraction).round() as usize).copied();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let rounds: Vec<f64> = rounds.iter().map(|round| median(round)).collect::<Option<_>>()?;
        Some(Summary { median: median(&rounds)?, p5: at(0.05)?, p95: at(0.95)?, p99: at(0.99), min, max, rounds })
    }

    /// The median and its noise.
    pub fn estimate(&self) -> Estimate {
        Estimate { value: self.median, interval: median_interval(&self.rounds) }
    }

    /// How many times as long `other` took, measured in the same run: the median over the rounds of its time over ours. `None` where one of
    /// the two has no rounds, or they have not as many.
    pub fn speed_up_over(&self, other: &Summary) -> Option<Estimate> {
        if self.rounds.len() != other.rounds.len() {
            return None;
        }
        let ratios: Vec<f64> = self.rounds.iter().zip(&other.rounds).map(|(ours, theirs)| theirs / ours).collect();
        Some(Estimate { value: median(&ratios)?, interval: median_interval(&ratios) })
    }

    /// Our time over that of another run: above 1 we are slower. Without rounds, the ratio of the medians with no interval.
    pub fn change_from(&self, earlier: &Summary) -> Estimate {
        let mut ratios: Vec<f64> = self.rounds.iter().flat_map(|now| earlier.rounds.iter().map(move |then| now / then)).collect();
        ratios.sort_by(f64::total_cmp);
        let Some(value) = median(&ratios) else { return Estimate { value: self.median / earlier.median, interval: None } };
        // The number of ratios below the true one is distributed as Mann and Whitney's U.
        let ways = rank_sums(self.rounds.len(), earlier.rounds.len());
        Estimate { value, interval: between(&ratios, &ways) }
    }
}

/// The middle of the samples, or half-way between the two in the middle; `None` where there is none.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The geometric mean: the one that a ratio and its inverse agree about. `None` where there is no ratio.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logarithms / ratios.len() as f64).exp())
}

/// Where the median of the distribution lies that these are independent samples of, with 95 % confidence; `None` for fewer than six, which
/// cannot say.
pub fn median_interval(samples: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The number of samples below the median is distributed as the number of heads when as many coins are tossed.
    let mut ways = vec![1.0];
    for n in 0..sorted.len() {
        let next = ways[n] * (sorted.len() - n) as f64 / (n + 1) as f64;
        ways.push(next);
    }
    between(&sorted, &ways)
}

/// The k-th smallest and the k-th largest value, for the largest k with which both together miss in at most [`MISSES`]. `ways[n]` is in
/// how many ways, all alike, n of the values may lie below what is looked for.
fn between(sorted: &[f64], ways: &[f64]) -> Option<(f64, f64)> {
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    let fits = |ways: &&f64| {
        below += **ways;
        below / all <= MISSES / 2.0
    };
    let k = ways.iter().take_while(fits).count();
    (k > 0).then(|| (sorted[k - 1], sorted[sorted.len() - k]))
}

/// In how many ways the ranks of `m` of m + n values can sum up to the least possible and 0, 1, 2, ... more.
fn rank_sums(m: usize, n: usize) -> Vec<f64> {
    // ways[taken][excess]: each value in turn is one of the m, behind all those that are not and came before, or is not.
    let mut ways = vec![vec![0.0; m * n + 1]; m + 1];
    ways[0][0] = 1.0;
    for value in 0..m + n {
        for taken in (0..m.min(value + 1)).rev() {
            let others = value - taken;
            if others > n {
                continue;
            }
            for excess in (0..=m * n - others.min(m * n)).rev() {
                let so_far = ways[taken][excess];
                ways[taken + 1][excess + others] += so_far;
            }
        }
    }
    ways.swap_remove(m)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn up_to(n: usize) -> Vec<f64> {
        (1..=n).rev().map(|n| n as f64).collect()
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let summary = Summary::of(&[up_to(101)]).unwrap();
        let expected = Summary { median: 51.0, p5: 6.0, p95: 96.0, p99: Some(100.0), min: 1.0, max: 101.0, rounds: vec![51.0] };
        assert_eq!(summary, expected);
        assert_eq!(summary.estimate().interval, None, "one round says nothing of noise");
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[vec![1.0], vec![]]), None);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!((geometric_mean(&[0.5, 2.0]), geometric_mean(&[])), (Some(1.0), None));
    }

    /// Of the tables of the sign test.
    #[rstest]
    #[case(5, None)]
    #[case(6, Some((1.0, 6.0)))]
    #[case(8, Some((1.0, 8.0)))]
    #[case(9, Some((2.0, 8.0)))]
    #[case(10, Some((2.0, 9.0)))]
    #[case(15, Some((4.0, 12.0)))]
    #[case(20, Some((6.0, 15.0)))]
    #[case(50, Some((18.0, 33.0)))]
    fn the_interval_of_a_median_is_the_tables(#[case] samples: usize, #[case] interval: Option<(f64, f64)>) {
        assert_eq!(median_interval(&up_to(samples)), interval);
    }

    /// Critical values of U for 5 % on both sides, of Mann and Whitney's tables: the interval begins one above.
    #[rstest]
    #[case(3, 3, None)]
    #[case(4, 4, Some(0))]
    #[case(5, 5, Some(2))]
    #[case(6, 6, Some(5))]
    #[case(6, 10, Some(11))]
    #[case(10, 10, Some(23))]
    #[case(20, 20, Some(127))]
    fn the_interval_of_a_shift_is_the_tables(#[case] m: usize, #[case] n: usize, #[case] critical: Option<usize>) {
        let sorted: Vec<f64> = (0..m * n).map(|index| index as f64).collect();
        let low = between(&sorted, &rank_sums(m, n)).map(|(low, _)| low as usize);
        assert_eq!(low, critical);
    }

    #[test]
    fn ranks_sum_up_in_as_many_ways_as_there_are_choices() {
        assert_eq!(rank_sums(2, 2), [1.0, 1.0, 2.0, 1.0, 1.0]);
        assert_eq!(rank_sums(6, 6).iter().sum::<f64>(), 924.0);
        assert_eq!(rank_sums(3, 7).iter().sum::<f64>(), 120.0);
    }

    /// If this fails, drift that hits both contenders alike is taken for a difference.
    #[test]
    fn contenders_are_compared_round_by_round() {
        let rounds = |factor: f64| [1.0, 2.0, 4.0, 8.0, 16.0, 32.0].map(|drift| vec![factor * drift; 3]).to_vec();
        let (ours, theirs) = (Summary::of(&rounds(1.0)).unwrap(), Summary::of(&rounds(1.5)).unwrap());
        assert_eq!(ours.speed_up_over(&theirs), Some(Estimate { value: 1.5, interval: Some((1.5, 1.5)) }));
        assert_eq!(ours.estimate().interval, Some((1.0, 32.0)));
        assert_eq!(ours.speed_up_over(&Summary::of(&[vec![1.0]]).unwrap()), None);
    }

    #[test]
    fn runs_are_compared_by_all_pairs() {
        let of = |rounds: [f64; 6]| Summary::of(&rounds.map(|time| vec![time])).unwrap();
        let (then, now) = (of([10.0, 10.1, 10.2, 9.9, 9.8, 10.0]), of([12.0, 12.1, 12.2, 11.9, 11.8, 12.0]));
        let change = now.change_from(&then);
        let (low, high) = change.interval.unwrap();
        assert!((change.value - 1.2).abs() < 0.01 && low > 1.17 && high < 1.23, "{change:?}");
        let same = then.change_from(&then).interval.unwrap();
        assert!(same.0 <= 1.0 && same.1 >= 1.0, "{same:?}");
        let old = Summary { rounds: Vec::new(), ..then };
        assert_eq!(now.change_from(&old), Estimate { value: now.median / old.median, interval: None });
    }

    proptest! {
        /// If this fails, a figure lies outside its own noise.
        #[test]
        fn the_figure_is_within_its_noise(rounds in prop::collection::vec(prop::collection::vec(0.1f64..100.0, 1..8), 6..12)) {
            let Estimate { value, interval } = Summary::of(&rounds).unwrap().estimate();
            let (low, high) = interval.unwrap();
            prop_assert!(low <= value && value <= high);
        }
    }

    /// If this fails, intervals that claim 95 % hold the true value less often. The samples are skewed, as times are.
    #[test]
    fn intervals_hold_the_true_median_as_often_as_they_claim() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut uniform = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let runs = 4000;
        let (mut medians, mut shifts) = (0, 0);
        for _ in 0..runs {
            let mut rounds = || [(); 6].map(|()| vec![1.0 - (1.0 - uniform()).ln()]).to_vec();
            let (one, other) = (Summary::of(&rounds()).unwrap(), Summary::of(&rounds()).unwrap());
            let holds = |interval: Option<(f64, f64)>, value: f64| interval.is_some_and(|(low, high)| low <= value && value <= high);
            medians += u32::from(holds(one.estimate().interval, 1.0 + std::f64::consts::LN_2));
            shifts += u32::from(holds(one.change_from(&other).interval, 1.0));
        }
        let share = |held: u32| f64::from(held) / f64::from(runs);
        assert!(share(medians) > 0.955 && share(medians) < 0.985, "{}", share(medians));
        assert!(share(shifts) > 0.945 && share(shifts) < 0.975, "{}", share(shifts));
    }
}
