//! Which cases are asked for.

use std::{num::NonZeroUsize, str::FromStr};

use anyhow::bail;
use passmuster::{
    algorithms::Foreign,
    conformance::{AnyCase, List, Query},
    emulator::Interleaving,
};

use super::Cases;

/// One part of a list of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// From one.
    pub(super) number: usize,
    pub(super) of: usize,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let parts = text.split_once('/').and_then(|(number, of)| Some(Part { number: number.parse().ok()?, of: of.parse().ok()? }));
        parts
            .filter(|part| (1..=part.of).contains(&part.number))
            .ok_or_else(|| format!("`{text}` is no part: expected K/N with K from 1 to N"))
    }
}

impl Part {
    fn take<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.number - 1).step_by(self.of).collect()
    }
}

/// What a replay token says: a case, and on the emulator a schedule.
#[derive(Clone)]
pub(super) struct Replay {
    pub(super) case: AnyCase,
    pub(super) schedule: Option<Interleaving>,
}

impl FromStr for Replay {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Replay> {
        let (case, schedule) = text.split_once('@').map_or((text, None), |(case, schedule)| (case, Some(schedule)));
        Ok(Replay { case: case.parse()?, schedule: schedule.map(str::parse).transpose().map_err(anyhow::Error::msg)? })
    }
}

impl Cases {
    /// The cases that are asked for; with a kernel from elsewhere, lists and patterns are of its cases.
    pub(super) fn select(&self, replay: Option<&Replay>, foreign: Option<&Foreign>) -> anyhow::Result<Vec<AnyCase>> {
        let of_list = |list: List| match foreign {
            Some(foreign) => list.cases_of(foreign, self.seed).into_iter().map(AnyCase::from).collect(),
            None => list.all_cases(self.seed),
        };
        let exact = replay.map(|replay| replay.case.clone()).or_else(|| self.query.parse().ok());
        let mut cases = if let Some(case) = exact {
            vec![case]
        } else if let Some(list) = List::ALL.into_iter().find(|list| list.name() == self.query) {
            of_list(list)
        } else {
            let query = Query::new(&self.query).map_err(anyhow::Error::msg)?;
            let all = of_list(List::Merge);
            if let Some(unknown) = query.unknown(&all) {
                bail!("{unknown}");
            }
            let selected: Vec<AnyCase> = all.iter().filter(|case| query.matches(*case)).cloned().collect();
            if selected.is_empty() {
                bail!("`{}` selects no case: {}", self.query, query.never_together(&all));
            }
            selected
        };
        if cases.is_empty() {
            bail!("the list {} has no case of this kernel", self.query);
        }
        if let Some(part) = self.part {
            cases = part.take(cases);
        }
        cases.truncate(self.limit.map_or(usize::MAX, NonZeroUsize::get));
        Ok(cases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a list that is judged in parts loses cases.
    #[test]
    fn parts_make_up_the_whole() {
        let part = |text: &str| text.parse::<Part>().unwrap().take((0..8).collect());
        assert_eq!([part("1/3"), part("2/3"), part("3/3")], [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
        assert_eq!(part("1/1"), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for text in ["0/3", "4/3", "2", "a/b", "1/"] {
            assert_eq!(text.parse::<Part>().unwrap_err(), format!("`{text}` is no part: expected K/N with K from 1 to N"));
        }
    }
}
