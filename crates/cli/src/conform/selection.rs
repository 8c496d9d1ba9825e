//! Which cases are asked for.

use std::{num::NonZeroUsize, str::FromStr};

use anyhow::bail;
use passmuster_harness::{
    conformance::{Case, List, Query},
    emulator::Interleaving,
};
use passmuster_plan::algorithms::Registry;

use super::arguments::Cases;
use crate::foreign::RegisteredKernel;

/// What a replay token says: a case, and on the emulator a schedule.
#[derive(Clone)]
pub(super) struct Replay {
    pub(super) case: Case,
    pub(super) schedule: Option<Interleaving>,
}

impl FromStr for Replay {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Replay> {
        // Faults and skews have an @ of their own.
        let whole = text.parse::<Case>();
        let (case, schedule) = match (whole, text.rsplit_once('@')) {
            (Ok(case), _) => return Ok(Replay { case, schedule: None }),
            (Err(_), Some(parts)) => parts,
            (Err(error), None) => return Err(error.into()),
        };
        Ok(Replay { case: case.parse()?, schedule: Some(schedule.parse().map_err(anyhow::Error::msg)?) })
    }
}

impl Cases {
    /// The cases that are asked for; with kernels from elsewhere, lists and patterns are of their cases.
    pub(super) fn select(&self, replay: Option<&Replay>, registry: &Registry, known: &[RegisteredKernel]) -> anyhow::Result<Vec<Case>> {
        let of_list = |list: List| {
            let [_, ..] = known else { return Ok(list.all_cases(registry, self.seed)) };
            let mut all = Vec::new();
            for kernel in known {
                let cases = kernel.of.cases(registry, list, self.seed);
                // Beside cases of another kernel nobody would see that this one has none.
                if !cases.iter().any(|case| case.elements_of_calls() > 0) {
                    bail!(
                        "the list {} has no case of {} that moves an element: nothing of it would be judged",
                        list.name(),
                        kernel.of.name()
                    );
                }
                all.extend(cases);
            }
            Ok(all)
        };
        let parameters = registry.tasks().iter().flat_map(|task| task.task().parameters()).map(|parameter| parameter.name.clone());
        let parameters: Vec<String> = parameters.collect();
        replay.iter().try_for_each(|replay| replay.case.check_known(registry))?;
        let exact = replay.map(|replay| replay.case.clone()).or_else(|| Case::resolve(&self.query, registry).ok());
        let mut cases = if let Some(case) = exact {
            vec![case]
        } else if let Some(list) = List::ALL.into_iter().find(|list| list.name() == self.query) {
            of_list(list)?
        } else {
            let query = Query::with_keys(&self.query, &parameters).map_err(anyhow::Error::msg)?;
            let all = of_list(query.list())?;
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
            bail!(
                "the list {} is empty, since this command has no algorithms of its own: name your kernel with --spec SPEC.toml",
                self.query
            );
        }
        if let Some(except) = &self.except {
            let left_out = Query::with_keys(except, &parameters).map_err(anyhow::Error::msg)?;
            if let Some(unknown) = left_out.unknown(&cases) {
                bail!("--except {except}: {unknown}");
            }
            cases.retain(|case| !left_out.matches(case));
            if cases.is_empty() {
                bail!("--except {except}: it leaves no case of `{}`", self.query);
            }
        }
        if let Some(part) = self.part {
            let all = cases.len();
            cases = part.take(cases);
            if cases.is_empty() {
                bail!("--part {part}: `{}` has {all} cases, and that part none of them", self.query);
            }
        }
        cases.truncate(self.limit.map_or(usize::MAX, NonZeroUsize::get));
        Ok(cases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// If this fails, a report's own line does not run the case again.
    #[rstest]
    #[case::plain("all_reduce/two_shot:bf16,sum:w=2:n=40", None)]
    #[case::schedule("all_reduce/two_shot:bf16,sum:w=2:n=40@late-5f", Some("late-5f"))]
    #[case::site("all_reduce/two_shot:bf16,sum:w=2:n=40:skew=r1+20us@end", None)]
    #[case::site_and_schedule("all_reduce/two_shot:bf16,sum:w=2:n=40:skew=r1+20us@end@random-0", Some("random-0"))]
    #[case::fault("all_reduce/two_shot:bf16,sum:w=2:n=40:fault=absent@r1", None)]
    fn tokens_are_cases_and_schedules(#[case] text: &str, #[case] schedule: Option<&str>) {
        let replay: Replay = text.parse().unwrap();
        assert_eq!(replay.schedule.map(|schedule| schedule.to_string()).as_deref(), schedule);
        let case = replay.case.to_string();
        assert_eq!(text, schedule.map_or(case.clone(), |schedule| format!("{case}@{schedule}")));
    }

    #[test]
    fn what_is_no_token_says_why() {
        let refusal = |text: &str| text.parse::<Replay>().err().unwrap().to_string();
        assert!(refusal("all_reduce/two_shot:bf16,sum:w=2:n=40@later-5").contains("schedule `later-5`: expected one of random, stalled,"));
        assert!(refusal("all_reduce/two_shot:bf16,sum:w=2").contains("exactly one of n= and calls= must be given"));
    }

    /// If this fails, who has the command without our kernels does not learn what to type.
    #[test]
    fn empty_list_asks_for_a_specification() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            cases: Cases,
        }
        let Line { cases } = clap::Parser::parse_from(["validate"]);
        let registry = passmuster_harness::registry(passmuster_plan::algorithms::Catalogue::peers());
        let refused = cases.select(None, &registry, &[]).unwrap_err().to_string();
        assert!(refused.starts_with("the list smoke is empty") && refused.ends_with("--spec SPEC.toml"), "{refused}");
    }
}
