//! What cases take, by what was recorded: who gets which case, and how long a run takes yet, go by that.

use std::collections::HashMap;

use passmuster_harness::conformance::{
    Case,
    report::{Record, packed},
};

use crate::project;

/// The record, and where it lies.
const RECORD: &str = "emulator-merge";
const FOLDER: &str = "fixtures/records";

/// Milliseconds of a case of which nothing is known.
pub(crate) const UNKNOWN: f64 = 50.0;

/// What cases took on the emulator, in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    of_case: HashMap<String, f64>,
    /// The mean of each algorithm.
    of_algorithm: HashMap<String, f64>,
}

impl Costs {
    /// What the record of the merge list has; nothing outside a checkout.
    pub(crate) fn recorded() -> Costs {
        let folder = project::source_tree().unwrap_or_default().join(FOLDER);
        let text = packed::committed(&folder, RECORD).unwrap_or_default();
        let Ok(record) = serde_json::from_str::<Record>(&text) else { return Costs::default() };
        let mut sums: HashMap<String, (f64, f64)> = HashMap::new();
        for verdict in &record.cases {
            let sum = sums.entry(algorithm(&verdict.case).to_owned()).or_default();
            *sum = (sum.0 + verdict.milliseconds, sum.1 + 1.0);
        }
        Costs {
            of_case: record.cases.into_iter().map(|verdict| (verdict.case, verdict.milliseconds)).collect(),
            of_algorithm: sums.into_iter().map(|(name, (sum, count))| (name, sum / count)).collect(),
        }
    }

    /// What a case will take, about.
    pub(crate) fn of(&self, case: &Case) -> f64 {
        let id = case.to_string();
        let known = self.of_case.get(&id).or_else(|| self.of_algorithm.get(algorithm(&id)));
        known.copied().unwrap_or(UNKNOWN)
    }

    /// How many cases it has.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.of_case.len()
    }
}

/// The part of an id that names the algorithm.
fn algorithm(id: &str) -> &str {
    id.split(':').next().unwrap_or(id)
}
