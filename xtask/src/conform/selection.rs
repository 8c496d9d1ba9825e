//! Which cases are asked for.

use std::str::FromStr;

use anyhow::bail;
use passmuster::{
    conformance::{AnyCase, List, Query},
    emulator::Interleaving,
};
use passmuster_collectives::algorithms::Foreign;

use super::Cases;

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
            of_list(List::Merge).into_iter().filter(|case| query.matches(case)).collect()
        };
        if cases.is_empty() {
            let lists: Vec<&str> = List::ALL.iter().map(|list| list.name()).collect();
            bail!(
                "`{}` selects no case: expected a list ({}), a case id, or a pattern such as 'all_reduce/*:bf16,*:w=3,5'",
                self.query,
                lists.join(", ")
            );
        }
        if let Some(part) = self.part {
            cases = part.take(cases);
        }
        cases.truncate(self.limit.unwrap_or(usize::MAX));
        Ok(cases)
    }
}
