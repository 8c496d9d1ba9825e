//! Statistics of repeated measurements.

use serde::{Deserialize, Serialize};

/// What repeated measurements say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// 5th percentile.
    pub p5: f64,
    /// 95th percentile.
    pub p95: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// Summarizes samples; `None` where there is none. Percentiles are those of the nearest rank.
pub fn summarize(samples: &[f64]) -> Option<Summary> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |fraction: f64| sorted.get(((sorted.len() - 1) as f64 * fraction).round() as usize).copied();
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    Some(Summary { median: at(0.5)?, p5: at(0.05)?, p95: at(0.95)?, min, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let samples: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert_eq!(summarize(&samples), Some(Summary { median: 51.0, p5: 6.0, p95: 96.0, min: 1.0, max: 101.0 }));
        assert_eq!(summarize(&[]), None);
    }
}
