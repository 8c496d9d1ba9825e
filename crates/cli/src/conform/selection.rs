//! Which cases are asked for.

use std::{num::NonZeroUsize, str::FromStr};

use super::Cases;
use crate::foreign::RegisteredKernel;
use anyhow::bail;
use passmuster::{
    conformance::{Case, List, Query},
    emulator::Interleaving,
};

/// What a replay token says: a case, and on the emulator a schedule.
#[derive(Clone)]
pub(super) struct Replay {
    pub(super) case: Case,
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
    /// The cases that are asked for; with kernels from elsewhere, lists and patterns are of their cases.
    pub(super) fn select(&self, replay: Option<&Replay>, known: &[RegisteredKernel]) -> anyhow::Result<Vec<Case>> {
        let of_list = |list: List| match known {
            [] => list.all_cases(self.seed),
            known => known.iter().flat_map(|known| list.cases_of(known.foreign, self.seed)).map(Case::from).collect(),
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
            let selected: Vec<Case> = all.iter().filter(|case| query.matches(*case)).cloned().collect();
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
