//! How many cases the lists have, as a file that a reviewer sees in the diff: a list that loses a case changes a number.

use std::{collections::BTreeMap, fmt::Write};

use super::{CaseId, List};
use crate::REGISTRY;

/// If this fails, a list has other cases than before: more are welcome, and fewer need a reason.
#[test]
fn lists_have_counted_cases() {
    let mut text = String::new();
    for list in [List::Smoke, List::Merge, List::Faults] {
        let cases = list.all_cases(&REGISTRY, 0);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for case in &cases {
            let [collective, algorithm, ..] = case.head();
            *counts.entry(format!("{collective}/{algorithm}")).or_default() += 1;
            for (key, value) in case.fields() {
                let worth_counting =
                    ["w", "inputs", "in_place", "graph", "peer", "skew", "fault", "calls", "counts", "off", "nodes", "root", "groups"];
                let value = if ["w", "inputs", "peer"].contains(&key) { format!("={value}") } else { String::new() };
                *counts.entry(format!("{key}{value}")).or_default() += usize::from(worth_counting.contains(&key));
            }
        }
        writeln!(text, "{} {}", list.name(), cases.len()).unwrap();
        counts.iter().filter(|(_, cases)| **cases > 0).for_each(|(what, cases)| writeln!(text, "  {what} {cases}").unwrap());
    }
    insta::assert_snapshot!(text);
}
