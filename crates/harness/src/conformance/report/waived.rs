//! What a run waived, as its notes count it.

use std::{collections::BTreeMap, fmt, str::FromStr};

use passmuster_plan::machine::{Needed, Waived};
use serde::{Deserialize, Serialize};

use crate::conformance::Verdict;

/// A race that an assumption about the hardware waives, over all cases of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaivedRace {
    /// Name of the assumption.
    pub assumption: String,
    /// What it is, without ranks, threads and places.
    pub what: String,
    /// How often it was seen.
    pub times: u64,
    /// In how many cases.
    pub cases: usize,
}

impl WaivedRace {
    /// One for each thing that cases were waived, in alphabetical order. Only the first case of each keeps it, in full.
    pub fn fold(verdicts: &mut [Verdict]) -> Vec<WaivedRace> {
        let mut all = BTreeMap::new();
        for verdict in verdicts {
            // Where, is in [`Assumed`].
            verdict.waived.iter_mut().for_each(|waived| waived.places.clear());
            verdict.waived.retain(|waived| {
                let (assumption, what) = (waived.assumption.clone(), waived.what.clone());
                add(&mut all, WaivedRace { assumption, what, times: waived.times, cases: 1 }).cases == 1
            });
        }
        all.into_values().collect()
    }

    /// What several runs waived, together.
    pub fn together(races: impl IntoIterator<Item = WaivedRace>) -> Vec<WaivedRace> {
        let mut all = BTreeMap::new();
        races.into_iter().for_each(|race| _ = add(&mut all, race));
        all.into_values().collect()
    }
}

/// An assumption about the hardware that verdicts rest on: without it, what it waives were findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assumed {
    /// Its name.
    pub assumption: String,
    /// Why the kernel may rest on it, if its contract says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<String>,
    /// How often it was needed.
    pub times: u64,
    /// In how many cases.
    pub cases: usize,
    /// Where, most often first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Needed>,
}

impl Assumed {
    /// What verdicts rest on, in alphabetical order; `declared` are assumptions that contracts name, with their reasons. Of verdicts as they were given: a
    /// record keeps less of them.
    pub fn of(verdicts: &[Verdict], declared: &[(String, String)]) -> Vec<Assumed> {
        let of_verdict = |verdict: &Verdict| {
            let mut all: BTreeMap<String, Assumed> = BTreeMap::new();
            for Waived { assumption, times, places, .. } in &verdict.waived {
                let declared = declared.iter().find(|(name, _)| name == assumption).map(|(_, reason)| reason.clone());
                let none = Assumed { assumption: assumption.clone(), declared, times: 0, cases: 1, places: Vec::new() };
                let known = all.entry(assumption.clone()).or_insert(none);
                known.times += times;
                Needed::add(&mut known.places, places.iter().cloned());
            }
            all.into_values()
        };
        Assumed::together(verdicts.iter().flat_map(of_verdict))
    }

    /// What several runs rest on, together.
    pub fn together(runs: impl IntoIterator<Item = Assumed>) -> Vec<Assumed> {
        let mut all: BTreeMap<String, Assumed> = BTreeMap::new();
        for Assumed { assumption, declared, times, cases, places } in runs {
            match all.get_mut(&assumption) {
                Some(known) => {
                    (known.times, known.cases) = (known.times + times, known.cases + cases);
                    Needed::add(&mut known.places, places);
                }
                None => drop(all.insert(assumption.clone(), Assumed { assumption, declared, times, cases, places })),
            }
        }
        all.into_values().collect()
    }
}

/// Adds one, and returns what is there of it now.
fn add(all: &mut BTreeMap<(String, String), WaivedRace>, race: WaivedRace) -> &WaivedRace {
    let none = WaivedRace { times: 0, cases: 0, ..race.clone() };
    let known = all.entry((race.assumption, race.what)).or_insert(none);
    known.times += race.times;
    known.cases += race.cases;
    known
}

impl fmt::Display for WaivedRace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WaivedRace { assumption, what, times, cases } = self;
        write!(f, "waived by `{assumption}`: {what} ({times} times in {cases} cases)")
    }
}

impl FromStr for WaivedRace {
    type Err = ();

    /// Reads a note of a record.
    fn from_str(note: &str) -> Result<WaivedRace, ()> {
        let parse = || {
            let (assumption, rest) = note.strip_prefix("waived by `")?.split_once("`: ")?;
            let (what, counts) = rest.strip_suffix(" cases)")?.rsplit_once(" (")?;
            let (times, cases) = counts.split_once(" times in ")?;
            let (assumption, what) = (assumption.to_owned(), what.to_owned());
            Some(WaivedRace { assumption, what, times: times.parse().ok()?, cases: cases.parse().ok()? })
        };
        parse().ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Status;

    /// If this fails, a verdict does not say which assumptions it rests on, how often, or on which lines.
    #[test]
    fn assumptions_count_cases_and_lines() {
        let waived = |assumption: &str, what: &str, places: &[(&str, u64)]| Waived {
            assumption: assumption.into(),
            what: what.into(),
            first: String::new(),
            times: places.iter().map(|(_, times)| times).sum(),
            places: places.iter().map(|&(at, times)| Needed { at: at.into(), times }).collect(),
        };
        let verdict = |waived| Verdict { waived, ..Verdict::without_checks("case", Status::Pass, "") };
        let verdicts = [
            verdict(vec![waived("retired", "a", &[("k.cu:1", 2)]), waived("retired", "b", &[("k.cu:2", 5), ("k.cu:1", 1)])]),
            verdict(Vec::new()),
            verdict(vec![waived("retired", "a", &[("k.cu:1", 4)]), waived("boundary", "c", &[("k.cu:3", 1)])]),
        ];
        let assumed = Assumed::of(&verdicts, &[("boundary".into(), "why".into()), ("vector".into(), "unused".into())]);
        let of = |assumption: &str, declared: Option<&str>, (times, cases), places: &[(&str, u64)]| Assumed {
            assumption: assumption.into(),
            declared: declared.map(str::to_owned),
            times,
            cases,
            places: places.iter().map(|&(at, times)| Needed { at: at.into(), times }).collect(),
        };
        let expected =
            [of("boundary", Some("why"), (1, 1), &[("k.cu:3", 1)]), of("retired", None, (12, 2), &[("k.cu:1", 7), ("k.cu:2", 5)])];
        assert_eq!(assumed, expected);
    }

    /// If this fails, a record has what it waived several times over, or not at all.
    #[test]
    fn the_first_case_keeps_what_was_waived_and_all_are_counted() {
        let waived =
            |what: &str, times| Waived { assumption: "alias".into(), what: what.into(), first: "here".into(), times, places: Vec::new() };
        let verdict = |waived| Verdict { waived, ..Verdict::without_checks("case", Status::Pass, "") };
        let mut verdicts = [verdict(vec![waived("b (2 ranks)", 3)]), verdict(vec![waived("a", 1), waived("b (2 ranks)", 4)])];
        let races = WaivedRace::fold(&mut verdicts);
        assert_eq!(verdicts.map(|verdict| verdict.waived), [vec![waived("b (2 ranks)", 3)], vec![waived("a", 1)]]);
        let notes: Vec<String> = races.iter().map(WaivedRace::to_string).collect();
        assert_eq!(notes, ["waived by `alias`: a (1 times in 1 cases)", "waived by `alias`: b (2 ranks) (7 times in 2 cases)"]);
        let read: Vec<WaivedRace> = notes.iter().map(|note| note.parse().unwrap()).collect();
        assert_eq!(read, races);
        let twice = WaivedRace::together([races.clone(), races].concat());
        assert_eq!((twice.len(), twice[1].times, twice[1].cases), (2, 14, 4));
        assert!("3 cases in 2.0 s, query merge, seed 0".parse::<WaivedRace>().is_err());
    }
}
