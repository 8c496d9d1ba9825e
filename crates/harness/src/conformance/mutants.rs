//! Mutants: kernels with planted bugs, each of which the checks must catch.
//!
//! Those that people describe in fixtures/mutants/ are compiled by `cargo xtask kernels` and come with the kernels
//! ([`Registry::mutants`]). Those of synchronisation are besides made by rule from the kernels' PTX ([`derived`]). What of the
//! latter does nothing wrong stands in fixtures/mutants/equivalent.toml, each with the reason. Of plans in which streams synchronise, mutants
//! are made by rule too ([`of_plan`]).

mod asynchronous;
mod derived;
mod lines;
mod plans;
mod sites;

pub use derived::{
    Defect, Derived, cases_of_foreign, cases_of_product, cases_of_task, derived, derived_of, module_of, of_launches, subjects,
    subjects_of_products, sync_cases,
};
pub use plans::of_plan;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CollectiveCase, Finding, ProductCase, Skew, Status, Verdict, report::RecordCase};
use passmuster_plan::{
    algorithms::{Mutant, Registry, TensorParallelFusion},
    collective::{DType, Layout, Product},
    modules::Calls,
};

impl RecordCase for Outcome {}

/// What became of one mutant: a case of a record of `mutants`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name.
    pub mutant: String,
    /// `value` or `sync`.
    pub kind: String,
    /// What the rule does, for those made by rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defect: Option<String>,
    /// The bug, in one line.
    pub description: String,
    /// Of a kernel from elsewhere, the line of the source that is changed: `signals.cuh:31`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Of a kernel from elsewhere, the line of the PTX that is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Whether a check caught it.
    pub caught: bool,
    /// Cases judged until it was caught, or all.
    pub tried: usize,
    /// The schedule under which it was caught, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<u64>,
    /// Why it does nothing wrong, where it is known to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equivalent: Option<String>,
    /// Whether no case executes what it changes, under any schedule: it was not judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_reached: bool,
    /// The verdict that caught it, with the first of its findings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl Outcome {
    /// What caught it, in a word: the property that does not hold; `missed`, or `equivalent` or `not reached` where there was nothing to catch.
    pub fn caught_by(&self) -> &str {
        match &self.verdict {
            None if self.equivalent.is_some() => "equivalent",
            None if self.not_reached => "not reached",
            None => "missed",
            Some(verdict) => verdict.findings.first().map_or(verdict.status.name(), |finding| &finding.property),
        }
    }
}

/// What a planted bug of synchronisation is judged on by the emulator: see [`sync_cases`].
pub fn sync_cases_of(registry: &Registry, mutant: &Mutant) -> Vec<CollectiveCase> {
    registry.module(mutant.shown_by).map(|module| sync_cases(registry, module)).unwrap_or_default()
}

/// Cases of a product that run the kernel of a planted bug: see [`product_cases`].
pub fn product_cases_of(registry: &Registry, mutant: &Mutant, small: bool) -> Vec<ProductCase> {
    let (Some(half), Some((_, algorithm))) = (mutant.half(), mutant.shown_by.split_once('/')) else { return Vec::new() };
    product_cases(registry, half, algorithm, mutant.dtype, small)
}

/// Whether all that a case runs is the kernel of a planted bug, or all that it sums comes from it.
pub fn reaches(registry: &Registry, case: &CollectiveCase, mutant: &Mutant) -> bool {
    let (module, kind) = (mutant.of(registry), (mutant.dtype, mutant.op));
    if mutant.half().is_some() || (case.dtype, case.op) != kind || case.peer.is_some() {
        return false;
    }
    if module.calls == Calls::BeforeSums {
        return true;
    }
    let shown_by = registry.module(mutant.shown_by);
    let of_id = || {
        let (collective, algorithm) = mutant.shown_by.split_once('/').expect("COLLECTIVE/ALGORITHM");
        (collective.parse().expect("a collective"), algorithm.to_owned())
    };
    let (collective, algorithm) = shown_by.map_or_else(of_id, |module| derived::of_module(registry, module));
    let packs = |elements: u64| module.calls != Calls::PremulSum || (elements * mutant.dtype.size()).is_multiple_of(16);
    collective == case.collective
        && case.counts.is_some() == shown_by.is_some_and(|module| module.calls == Calls::AllToAllV)
        && case.skew.is_none_or(|skew| skew.site.is_none())
        && match case.calls.is_empty() {
            true => case.algorithm == algorithm && packs(case.count) && packs(case.offset),
            false => case.shots().all(|shot| shot.algorithm == algorithm && packs(shot.count) && packs(shot.offset)),
        }
}

/// Cases of an algorithm of products with the narrowest tiles: on two to four ranks, one of which is late, in turn; `small` are those that the emulator does
/// not take long for.
pub fn product_cases(registry: &Registry, half: TensorParallelFusion, algorithm: &str, dtype: DType, small: bool) -> Vec<ProductCase> {
    let narrowest = registry.product(half, algorithm).ok().and_then(|algorithm| algorithm.tiles().last().copied());
    // Rows, columns and depth, and the most ranks. The first of the small ones has so few tiles that blocks end with some that are not their own rank's.
    // The third has enough steps that each stage of the ring is used again, and again by another tile. The last has two slices of A.
    let (seeds, shapes): (u64, &[(u64, u64, u64, u32)]) = if small {
        (1, &[(40, 72, 72, 3), (40, 136, 72, 3), (300, 8, 456, 2), (300, 136, 24, 2), (4, 8, 1032, 2)])
    } else {
        (4, &[(200, 256, 200, 4), (513, 208, 136, 4), (1030, 520, 264, 4), (200, 264, 2120, 4)])
    };
    let mut cases = Vec::new();
    for seed in 0..seeds {
        for &(rows, columns, depth, most_ranks) in shapes {
            for world in 2..=most_ranks {
                let product = Product { dtype, rows, columns, depth, layout: Layout::Nk };
                let late = (0..world).map(|rank| Skew { rank, microseconds: 2000, site: None });
                let case = ProductCase { tile: narrowest, seed, ..ProductCase::new(half, algorithm, product, world) };
                cases.extend(late.map(|skew| ProductCase { skew: Some(skew), ..case.clone() }));
            }
        }
    }
    cases
}

/// Those of `cases` that the emulator runs in milliseconds, the ones with most ranks first.
pub fn small(mut cases: Vec<CollectiveCase>) -> Vec<CollectiveCase> {
    cases.retain(|case| case.world <= 4 && case.elements() < 60_000);
    cases.sort_by_key(|case| std::cmp::Reverse(case.world));
    cases
}

/// `number` of `all`, spread evenly: the same ones each time.
pub fn sample<T>(all: Vec<T>, number: usize) -> Vec<T> {
    let total = all.len();
    let chosen = |index: &usize| (0..number).any(|nth| nth * total / number == *index);
    all.into_iter().enumerate().filter(|(index, _)| chosen(index)).map(|(_, chosen)| chosen).collect()
}

/// The verdict that catches a mutant.
#[derive(Clone, Debug, PartialEq)]
pub struct Caught {
    /// The number of the schedule, counted from 0.
    pub schedule: u64,
    /// What was found.
    pub verdict: Verdict,
}

/// Has cases judged, each under schedule 0, then each under schedule 1, and so on, until a verdict is a finding. Returns how many were
/// judged, and the finding.
pub fn hunt<C>(cases: &[C], schedules: u64, mut judge: impl FnMut(&C, u64) -> Verdict) -> (usize, Option<Caught>) {
    let mut tried = 0;
    for schedule in 0..schedules {
        for case in cases {
            tried += 1;
            let verdict = judge(case, schedule);
            if verdict.status.is_finding() {
                return (tried, Some(Caught { schedule, verdict }));
            }
        }
    }
    (tried, None)
}

/// As [`hunt`]; and if no verdict of the mutant is a finding, compares what it rests on with what the `kernel` itself rests on in the same runs. An
/// assumption about the hardware that the mutant alone needs, or needs elsewhere, catches it: what was dropped is what made it unnecessary.
pub fn hunt_beside<C>(
    cases: &[C],
    schedules: u64,
    mut judge: impl FnMut(&C, u64) -> Verdict,
    mut kernel: impl FnMut(&C, u64) -> Verdict,
) -> (usize, Option<Caught>) {
    let mut rests: BTreeMap<(String, String), Caught> = BTreeMap::new();
    let (tried, caught) = hunt(cases, schedules, |case, schedule| {
        let verdict = judge(case, schedule);
        for waived in &verdict.waived {
            let caught = || Caught { schedule, verdict: assuming(&verdict, &waived.assumption, &waived.what) };
            rests.entry((waived.assumption.clone(), waived.what.clone())).or_insert_with(caught);
        }
        verdict
    });
    if caught.is_some() {
        return (tried, caught);
    }
    for schedule in 0..schedules {
        for case in cases {
            if rests.is_empty() {
                return (tried, None);
            }
            kernel(case, schedule).waived.into_iter().for_each(|waived| drop(rests.remove(&(waived.assumption, waived.what))));
        }
    }
    (tried, rests.into_values().next())
}

/// The verdict on a mutant that rests on an assumption, and its kernel does not.
fn assuming(verdict: &Verdict, assumption: &str, what: &str) -> Verdict {
    let reason = format!("it rests on `{assumption}`, and the kernel does not: {what}");
    let finding = Finding { property: "assumptions".into(), summary: reason.clone(), ..Finding::default() };
    Verdict { status: Status::Waived, reason, findings: vec![finding], waived: Vec::new(), ..verdict.clone() }
}

/// A derived mutant that does nothing wrong.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equivalent {
    /// The [site](Derived::site) of the mutant.
    pub site: String,
    /// Why no schedule can show a difference, argued from the kernel.
    pub reason: String,
}

/// Why the list of mutants that do nothing wrong cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("fixtures/mutants/equivalent.toml: {0}")]
pub struct EquivalentsError(#[from] toml::de::Error);

/// The derived mutants that do nothing wrong, of the kernels of a registry: fixtures/mutants/equivalent.toml.
///
/// # Errors
/// What is wrong with the file, and where.
pub fn equivalents(registry: &Registry) -> Result<Vec<Equivalent>, EquivalentsError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        equivalent: Vec<Equivalent>,
    }
    let file: File = toml::from_str(registry.equivalents())?;
    Ok(file.equivalent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;
    use passmuster_plan::{machine::Waived, modules::entries};

    #[test]
    fn a_hunt_ends_at_the_first_finding() {
        let cases = sync_cases(&REGISTRY, REGISTRY.module("all_reduce/two_shot").unwrap());
        let mut judged = Vec::new();
        let (tried, caught) = hunt(&cases, 8, |case, schedule| {
            judged.push((case.to_string(), schedule));
            let found = schedule == 2 && *case == cases[1];
            Verdict::without_checks(case.to_string(), if found { Status::Hang } else { Status::Pass }, "")
        });
        assert_eq!(tried, 2 * cases.len() + 2);
        assert_eq!(judged.last(), Some(&(cases[1].to_string(), 2)));
        assert_eq!(caught.map(|caught| (caught.schedule, caught.verdict.case)), Some((2, cases[1].to_string())));
        assert_eq!(hunt(&cases, 0, |_, _| unreachable!()), (0, None));
    }

    /// If this fails, a synchronisation that only an assumption replaces is called unnecessary.
    #[test]
    fn new_assumption_catches_mutant() {
        let cases = sync_cases(&REGISTRY, REGISTRY.module("all_reduce/two_shot").unwrap());
        let waived =
            |what: &str| Waived { assumption: "boundary".into(), what: what.into(), first: String::new(), times: 1, places: Vec::new() };
        let verdict = |case: &CollectiveCase, what: &[&str]| Verdict {
            waived: what.iter().copied().map(waived).collect(),
            ..Verdict::without_checks(case.to_string(), Status::Pass, "")
        };
        let of =
            |mutant: &[&str], kernel: &[&str]| hunt_beside(&cases, 2, |case, _| verdict(case, mutant), |case, _| verdict(case, kernel)).1;
        let caught = of(&["old", "new"], &["old"]).unwrap();
        assert_eq!((caught.schedule, caught.verdict.status, &*caught.verdict.findings[0].property), (0, Status::Waived, "assumptions"));
        assert!(caught.verdict.reason.ends_with("new"), "{}", caught.verdict.reason);
        assert_eq!([of(&["old"], &["old"]), of(&[], &["old"])], [None, None]);
    }

    #[test]
    fn every_mutant_has_its_one_entry_and_differs_from_its_module() {
        assert!(!REGISTRY.mutants().is_empty());
        for mutant in REGISTRY.mutants() {
            let expected = mutant.entry(&REGISTRY);
            assert_eq!(entries(mutant.ptx).collect::<Vec<_>>(), [expected.as_str()], "{}", mutant.name);
            let library = mutant.library(&REGISTRY);
            let original = REGISTRY.library();
            assert_eq!(library.ptx(mutant.module), Ok(mutant.ptx));
            let body = |ptx: &str| {
                let (_, after) = ptx.split_once(&format!(".entry {expected}(")).expect("the entry is there");
                // What follows is of the next entry; a label has the number of the entry in its module: `$L__BB12_3`.
                let body = after.split("// .globl").next().expect("a split has a first part").trim_end();
                let pieces = body.split("$L__BB").map(|piece| piece.trim_start_matches(|c: char| c.is_ascii_digit()));
                pieces.collect::<Vec<_>>().join("$L__BB")
            };
            let unchanged = original.ptx(mutant.module).expect("the module is there");
            assert!(body(mutant.ptx) != body(unchanged), "the planted bug of {} was compiled away", mutant.name);
        }
    }
}
