//! What was found, by cause: one bug may fail hundreds of cases, and is shown once.
//!
//! Two cases fail of one cause if they share a finding: the same property, and the same text but for ranks, threads, addresses and numbers. Places in sources and
//! in PTX are part of the text, as is the diagnosis of wrong elements.

use std::collections::{BTreeMap, HashMap};

use super::{Case, CaseId, Verdict, counted, pattern::pattern};

/// Cases that fail of one cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause<'v> {
    /// The smallest of them.
    pub shown: &'v Verdict,
    /// The others, in their order.
    pub also: Vec<&'v Verdict>,
}

/// Groups verdicts by what causes them, in the order in which the causes were first seen.
pub fn causes<'v>(verdicts: impl IntoIterator<Item = &'v Verdict>) -> Vec<Cause<'v>> {
    let mut groups: Vec<Vec<&Verdict>> = Vec::new();
    let mut of_key: HashMap<String, usize> = HashMap::new();
    for verdict in verdicts {
        let keys = keys(verdict);
        let mut known: Vec<usize> = keys.iter().filter_map(|key| of_key.get(key).copied()).collect();
        known.sort_unstable();
        known.dedup();
        let group = known.first().copied().unwrap_or_else(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        // What this case has in common with several groups makes them one.
        for &other in known.iter().skip(1) {
            let moved = std::mem::take(&mut groups[other]);
            groups[group].extend(moved);
            of_key.values_mut().filter(|of| **of == other).for_each(|of| *of = group);
        }
        groups[group].push(verdict);
        of_key.extend(keys.into_iter().map(|key| (key, group)));
    }
    groups.into_iter().filter_map(cause).collect()
}

fn cause(mut group: Vec<&Verdict>) -> Option<Cause<'_>> {
    let smallest = (0..group.len()).min_by_key(|&at| size(&group[at].case))?;
    let shown = group.remove(smallest);
    Some(Cause { shown, also: group })
}

/// Elements, ranks, and the length of the id: by which of them a case is smaller than another.
fn size(id: &str) -> (u64, u32, usize) {
    id.parse::<Case>().map_or((u64::MAX, u32::MAX, id.len()), |case| (case.elements_of_calls(), case.world(), id.len()))
}

/// What is the same of all cases that fail as this one: of a text with places, each part that has one. Of a hang these are the waits, of which another case has
/// some.
fn keys(verdict: &Verdict) -> Vec<String> {
    let of = |property: &str, text: &str| -> Vec<String> {
        let places = text.split("; ").filter(|part| part.contains(" at PTX "));
        let parts: Vec<&str> = if text.contains(" at PTX ") { places.collect() } else { vec![text] };
        parts.into_iter().map(|part| format!("{} {property}: {}", verdict.status, pattern(part))).collect()
    };
    if verdict.findings.is_empty() {
        return of("", &verdict.reason);
    }
    verdict.findings.iter().flat_map(|finding| of(&finding.property, &finding.summary)).collect()
}

impl Cause<'_> {
    /// In what other cases it was found, as in `also in 41 cases: w=2..8, bf16 f32, n=33..4097`; none if in none.
    pub fn elsewhere(&self) -> Option<String> {
        if self.also.is_empty() {
            return None;
        }
        let cases: Vec<Case> = self.also.iter().filter_map(|verdict| verdict.case.parse().ok()).collect();
        let mut told: Vec<String> = Vec::new();
        let mut ranges: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut dtypes: Vec<String> = Vec::new();
        for case in &cases {
            let [_, _, dtype, _] = case.head();
            if !dtypes.iter().any(|known| known == dtype) {
                dtypes.push(dtype.to_owned());
            }
            for (key, value) in case.fields() {
                let (true, Ok(number)) = (["w", "n"].contains(&key), value.parse::<u64>()) else { continue };
                let range = ranges.entry(key).or_insert((number, number));
                *range = (range.0.min(number), range.1.max(number));
            }
        }
        let range = |key: &str| {
            ranges.get(key).map(|(least, most)| if least == most { format!("{key}={least}") } else { format!("{key}={least}..{most}") })
        };
        told.extend(range("w"));
        told.extend((!dtypes.is_empty()).then(|| dtypes.join(" ")));
        told.extend(range("n"));
        let cases = counted(self.also.len(), "case");
        Some(if told.is_empty() { format!("also in {cases}") } else { format!("also in {cases}: {}", told.join(", ")) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Finding, Status};

    fn verdict(case: &str, findings: &[(&str, &str)]) -> Verdict {
        let mut verdict = Verdict::without_checks(case, Status::Fail, "");
        let of = |&(property, summary): &(&str, &str)| Finding { property: property.into(), summary: summary.into(), ..Finding::default() };
        verdict.findings = findings.iter().map(of).collect();
        verdict
    }

    const RACE: &str = "race, read after write: rank 1 output.0+16..32, by rank 0 stream 0 operation 2 f_bf16, block 0 warp 0 lane 0, Store (weak) at PTX 157:1 \
                        and then by rank 1 stream 0 operation 3 (a copy)";

    /// If this fails, a bug is printed once for each case that shows it, or two bugs as one.
    #[test]
    fn cases_that_fail_alike_are_of_one_cause() {
        let other_rank =
            RACE.replace("rank 1", "rank 0").replace("16..32", "2064..2080").replace("lane 0", "lane 7").replace("bf16", "f32");
        let other_line = RACE.replace("157:1", "133:1");
        let verdicts = [
            verdict("all_gather/push:bf16,copy:w=2:n=4096", &[("races", RACE)]),
            verdict("all_gather/push:f32,copy:w=4:n=40", &[("races", &other_rank)]),
            verdict("all_gather/push:bf16,copy:w=8:n=64", &[("races", &other_line)]),
            verdict(
                "all_gather/push:bf16,copy:w=2:n=8",
                &[("reference", "8 of 16 elements wrong on ranks 0-1: rank 1's part is missing (100 % fit)")],
            ),
            verdict(
                "all_gather/push:bf16,copy:w=3:n=9",
                &[("reference", "3 of 27 elements wrong on rank 2: rank 0's part is missing (100 % fit)")],
            ),
        ];
        let found = causes(&verdicts);
        let ids: Vec<(&str, usize)> = found.iter().map(|cause| (&*cause.shown.case, cause.also.len())).collect();
        assert_eq!(
            ids,
            [("all_gather/push:f32,copy:w=4:n=40", 1), ("all_gather/push:bf16,copy:w=8:n=64", 0), ("all_gather/push:bf16,copy:w=2:n=8", 1)]
        );
        assert_eq!(found[0].elsewhere().unwrap(), "also in 1 case: w=2, bf16, n=4096");
        assert_eq!(found[1].elsewhere(), None);
    }

    /// A case that shows two findings shows that those who have either fail of one cause.
    #[test]
    fn what_a_case_has_in_common_with_two_groups_makes_them_one() {
        let (one, two) = ("canaries: rank 0: a byte 4 bytes before buffer 1 was overwritten", "race at a.cu:12 and then b.cu:4");
        let verdicts = [
            verdict("reduce/push:f32,sum:w=2:n=64", &[("canaries", one)]),
            verdict("reduce/push:f32,sum:w=4:n=64", &[("races", two)]),
            verdict("reduce/push:f16,sum:w=8:n=16", &[("races", two), ("canaries", one)]),
        ];
        let found = causes(&verdicts);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].elsewhere().unwrap(), "also in 2 cases: w=4..8, f32 f16, n=16..64");
    }

    /// If this fails, each number of blocks that hang is a cause of its own.
    #[test]
    fn hangs_at_one_wait_are_of_one_cause() {
        let wait =
            |rank: u32, line: &str| format!("rank {rank} stream 0 `f` block 0 warp 0 polls rank {rank} flags+0 at PTX {line} (k.py:39)");
        let hang = |waits: &[String]| format!("hang after 2 ms: deadlock; ranks [0] did not finish; {}", waits.join("; "));
        let (both, one, other) = (hang(&[wait(0, "9:2"), wait(1, "12:8")]), hang(&[wait(1, "9:2")]), hang(&[wait(0, "30:1")]));
        let verdicts = [both, one, other].map(|text| verdict("broadcast/push:f32,copy:w=2:n=8", &[("finishes", &text)]));
        assert_eq!(causes(&verdicts).iter().map(|cause| cause.also.len()).collect::<Vec<_>>(), [1, 0]);
    }
}
