//! What a run waived, as its notes count it.

use std::{collections::BTreeMap, fmt, str::FromStr};

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
    use passmuster_collectives::machine::Waived;

    /// If this fails, a record has what it waived several times over, or not at all.
    #[test]
    fn the_first_case_keeps_what_was_waived_and_all_are_counted() {
        let waived = |what: &str, times| Waived { assumption: "alias".into(), what: what.into(), first: "here".into(), times };
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
