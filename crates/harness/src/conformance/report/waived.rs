//! What the verdicts of a run rest on besides the PTX ISA.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use passmuster_plan::machine::{Needed, Waived};
use serde::{Deserialize, Serialize};

use crate::conformance::Verdict;

/// An assumption about the hardware that verdicts rest on: without it, what it waives were findings.
///
/// A record has one for each assumption and each set of modules that needed it, so that cases of changed modules can be judged again and the rest is still
/// true ([`Assumed::of`]). People read one for each assumption ([`Assumed::by_assumption`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assumed {
    /// Its name.
    pub assumption: String,
    /// Why the kernel may rest on it, if its contract says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<String>,
    /// The modules that the cases launched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// How often it was needed.
    pub times: u64,
    /// In how many cases.
    pub cases: usize,
    /// Where, most often first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Needed>,
    /// What it waived, in alphabetical order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub races: Vec<WaivedRace>,
}

/// A race that an assumption about the hardware waives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaivedRace {
    /// What it is, without ranks, threads and places.
    pub what: String,
    /// How often it was seen.
    pub times: u64,
    /// In how many cases.
    pub cases: usize,
    /// The case with the shortest id, the first in alphabetical order of several.
    pub case: String,
    /// What was first seen there, in full.
    pub first: String,
}

/// The counts of what is put together.
#[derive(Default)]
struct Counts {
    declared: Option<String>,
    times: u64,
    cases: usize,
    places: BTreeMap<String, u64>,
    races: BTreeMap<String, WaivedRace>,
}

impl Counts {
    fn add_race(&mut self, race: WaivedRace) {
        let Some(known) = self.races.get_mut(&race.what) else { return drop(self.races.insert(race.what.clone(), race)) };
        (known.times, known.cases) = (known.times + race.times, known.cases + race.cases);
        if (race.case.len(), &race.case) < (known.case.len(), &known.case) {
            (known.case, known.first) = (race.case, race.first);
        }
    }

    fn add_places(&mut self, places: Vec<Needed>) {
        places.into_iter().for_each(|Needed { at, times }| *self.places.entry(at).or_default() += times);
    }

    fn finished(self, assumption: String, modules: Vec<String>) -> Assumed {
        let Counts { declared, times, cases, places, races } = self;
        let mut places: Vec<Needed> = places.into_iter().map(|(at, times)| Needed { at, times }).collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.times));
        Assumed { assumption, declared, modules, times, cases, places, races: races.into_values().collect() }
    }
}

/// In alphabetical order: the assumption, and the modules.
type All = BTreeMap<(String, Vec<String>), Counts>;

fn finished(all: All) -> Vec<Assumed> {
    all.into_iter().map(|((assumption, modules), counts)| counts.finished(assumption, modules)).collect()
}

impl Assumed {
    /// What verdicts rest on. `declared` are assumptions that contracts name, with their reasons; `modules_of` says what a verdict's case launched.
    ///
    /// What the verdicts were waived moves to what is returned.
    pub fn of<'v>(
        verdicts: impl IntoIterator<Item = &'v mut Verdict>,
        declared: &[(String, String)],
        modules_of: impl Fn(&Verdict) -> Vec<String>,
    ) -> Vec<Assumed> {
        let mut all = All::new();
        for verdict in verdicts.into_iter().filter(|verdict| !verdict.waived.is_empty()) {
            let modules = modules_of(verdict);
            let mut seen: BTreeSet<String> = BTreeSet::new();
            for Waived { assumption, what, first, times, places } in std::mem::take(&mut verdict.waived) {
                let counts = all.entry((assumption.clone(), modules.clone())).or_insert_with(|| {
                    let declared = declared.iter().find(|(name, _)| *name == assumption).map(|(_, reason)| reason.clone());
                    Counts { declared, ..Counts::default() }
                });
                counts.times += times;
                counts.cases += usize::from(seen.insert(assumption));
                counts.add_places(places);
                counts.add_race(WaivedRace { what, times, cases: 1, case: verdict.case.clone(), first });
            }
        }
        finished(all)
    }

    /// What several runs rest on, together.
    pub fn together(runs: impl IntoIterator<Item = Assumed>) -> Vec<Assumed> {
        let mut all = All::new();
        for Assumed { assumption, declared, modules, times, cases, places, races } in runs {
            let counts = all.entry((assumption, modules)).or_insert_with(|| Counts { declared, ..Counts::default() });
            (counts.times, counts.cases) = (counts.times + times, counts.cases + cases);
            counts.add_places(places);
            races.into_iter().for_each(|race| counts.add_race(race));
        }
        finished(all)
    }

    /// One for each assumption, whatever the modules.
    pub fn by_assumption(rows: &[Assumed]) -> Vec<Assumed> {
        Assumed::together(rows.iter().cloned().map(|row| Assumed { modules: Vec::new(), ..row }))
    }

    /// Keeps the most frequent places of a list of this repository's own kernels: all of them would be most of a record. Only of a whole list, since parts are
    /// counted together.
    pub fn shorten(rows: &mut [Assumed]) {
        const MOST_PLACES: usize = 8;
        rows.iter_mut().for_each(|row| row.places.truncate(MOST_PLACES));
    }

    /// A line for each race that it waived.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.races.iter().map(|race| format!("waived by `{}`: {race}", self.assumption))
    }
}

impl fmt::Display for WaivedRace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WaivedRace { what, times, cases, .. } = self;
        write!(f, "{what} ({times} times in {cases} cases)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Status;

    fn waived(assumption: &str, what: &str, places: &[(&str, u64)]) -> Waived {
        Waived {
            assumption: assumption.into(),
            what: what.into(),
            first: String::new(),
            times: places.iter().map(|(_, times)| times).sum(),
            places: needed(places),
        }
    }

    fn needed(places: &[(&str, u64)]) -> Vec<Needed> {
        places.iter().map(|&(at, times)| Needed { at: at.into(), times }).collect()
    }

    fn verdict(case: &str, waived: Vec<Waived>) -> Verdict {
        Verdict { waived, ..Verdict::without_checks(case, Status::Pass, "") }
    }

    /// The module of a case is its first letter.
    fn module(verdict: &Verdict) -> Vec<String> {
        vec![verdict.case[..1].to_owned()]
    }

    fn verdicts() -> [Verdict; 3] {
        [
            verdict("k1", vec![waived("retired", "a", &[("k.cu:1", 2)]), waived("retired", "b", &[("k.cu:2", 5), ("k.cu:1", 1)])]),
            verdict("m1", vec![waived("retired", "a", &[("m.cu:1", 3)])]),
            verdict("k2", vec![waived("retired", "a", &[("k.cu:1", 4)]), waived("boundary", "c", &[("k.cu:3", 1)])]),
        ]
    }

    /// If this fails, a verdict does not say which assumptions it rests on, how often, or on which lines.
    #[test]
    fn assumptions_count_cases_lines_and_races() {
        let rows = Assumed::of(&mut verdicts(), &[("boundary".into(), "why".into()), ("vector".into(), "unused".into())], module);
        let names: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.assumption, &*row.modules[0])).collect();
        assert_eq!(names, [("boundary", "k"), ("retired", "k"), ("retired", "m")]);
        let all = Assumed::by_assumption(&rows);
        assert_eq!((all.len(), all[0].declared.as_deref(), all[1].declared.as_deref()), (2, Some("why"), None));
        assert_eq!((all[1].times, all[1].cases), (15, 3));
        assert_eq!(all[1].places, needed(&[("k.cu:1", 7), ("k.cu:2", 5), ("m.cu:1", 3)]));
        let lines: Vec<String> = all.iter().flat_map(Assumed::lines).collect();
        let expected = [
            "waived by `boundary`: c (1 times in 1 cases)",
            "waived by `retired`: a (9 times in 3 cases)",
            "waived by `retired`: b (6 times in 1 cases)",
        ];
        assert_eq!(lines, expected);
    }

    /// If this fails, a record has what it waived several times over, or an example of another race or case.
    #[test]
    fn the_smallest_case_is_the_example() {
        let mut verdicts = verdicts();
        verdicts.swap(0, 2);
        verdicts[0].waived[0].first = "in k2".into();
        verdicts[2].waived[0].first = "in k1".into();
        let all = Assumed::by_assumption(&Assumed::of(&mut verdicts, &[], module));
        let race = &all[1].races[0];
        assert_eq!((&*race.what, &*race.case, &*race.first), ("a", "k1", "in k1"));
        assert!(verdicts.iter().all(|verdict| verdict.waived.is_empty()));
    }

    /// If this fails, judging a list in two parts, or one module of it again, gives other counts than judging it at once.
    #[test]
    fn parts_add_up_to_the_whole() {
        let whole = Assumed::of(&mut verdicts(), &[], module);
        let [first, second, third] = verdicts();
        let parts = [vec![third], vec![first, second]].into_iter().flat_map(|mut part| Assumed::of(&mut part, &[], module));
        assert_eq!(Assumed::together(parts), whole);
    }
}
