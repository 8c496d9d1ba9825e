//! `--stale`: of a record, what is still true.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
};

use anyhow::{Context, ensure};
use passmuster_harness::conformance::{
    Status, Verdict,
    coverage::ModuleCoverage,
    report::{Assumed, Record},
};

use super::Run;
use crate::{
    modules,
    resume::{self, Resumed},
    worker::MachineKind,
};

/// What a record keeps besides verdicts.
#[derive(Default)]
pub(super) struct Kept {
    /// What the cases that are kept rest on.
    pub(super) assumed: Vec<Assumed>,
    /// Of modules of which no case is judged again.
    pub(super) coverage: Vec<ModuleCoverage>,
    /// Ids of the cases that are kept.
    pub(super) cases: HashSet<String>,
}

/// The harness's own modules: they launch in most cases, and no coverage is counted of them.
const OWN: &str = "conformance/";

/// The verdicts of the record in a file that are still true, and what belongs to them.
///
/// A module is judged again, with all its cases, if its code has changed or if the list has other cases of it. So is what the machine did not support.
///
/// # Errors
/// As [`resume::whole`], and if a case of the record is no longer known, or if its coverage would be lost.
pub(super) fn kept(path: &Path, here: &Record, names: &[String], run: &Run) -> anyhow::Result<(Resumed<Verdict>, Kept)> {
    ensure!(run.on == MachineKind::Emulator, "--stale is for --machine emulator: other GPUs may give other verdicts");
    ensure!(!run.launch.is_asked_for() && !run.launch.has_ranks(), "--stale judges in one process: without --launcher");
    ensure!(run.known.is_empty(), "--stale is for the kernels of this repository: all cases rest on yours");
    let file = path.display();
    let mut record = resume::whole(path, here)?;
    ensure!(run.coverage.is_some() || record.coverage.is_empty(), "{file} has coverage: add --coverage, or remove {file}");
    ensure!(run.coverage.is_none() || !record.coverage.is_empty(), "{file} has no coverage: judge all cases, without --stale");

    let selected: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut changed: BTreeSet<String> = run.library.changed_since(&record.source.modules).into_iter().collect();
    let mut launched: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for verdict in &record.cases {
        let modules = modules::of_verdict(&run.registry, verdict)
            .with_context(|| format!("cannot keep what {file} has: {} is no longer a case", verdict.case))?;
        if !selected.contains(&*verdict.case) {
            changed.extend(modules.iter().filter(|name| !name.starts_with(OWN)).cloned());
        }
        launched.insert(&verdict.case, modules);
    }
    for name in names.iter().filter(|name| !launched.contains_key(&***name)) {
        let modules = modules::of_case(&run.registry, name).unwrap_or_default();
        changed.extend(modules.into_iter().filter(|name| !name.starts_with(OWN)));
    }
    let is_fresh = |modules: &BTreeSet<String>| modules.is_disjoint(&changed);
    let is_kept = |verdict: &&Verdict| {
        let case = &*verdict.case;
        selected.contains(case) && is_fresh(&launched[case]) && !matches!(verdict.status, Status::NotSupported | Status::NotRun)
    };
    let cases: HashSet<String> = record.cases.iter().filter(is_kept).map(|verdict| verdict.case.clone()).collect();
    let assumed = std::mem::take(&mut record.assumed);
    let coverage = std::mem::take(&mut record.coverage);
    let kept = Kept {
        assumed: assumed.into_iter().filter(|row| is_fresh(&row.modules.iter().cloned().collect())).collect(),
        coverage: coverage.into_iter().filter(|of| !changed.contains(&of.module)).collect(),
        cases,
    };
    let before = Resumed::fresh(record, names, |verdict| &verdict.case, |verdict| kept.cases.contains(&verdict.case));
    Ok((before, kept))
}

/// The coverage that was kept, and of other modules what the cases executed, by module.
pub(super) fn with(kept: Vec<ModuleCoverage>, executed: impl Iterator<Item = ModuleCoverage>) -> Vec<ModuleCoverage> {
    let new: BTreeMap<String, ModuleCoverage> = executed.map(|of| (of.module.clone(), of)).collect();
    let kept = kept.into_iter().map(|of| (of.module.clone(), of));
    new.into_iter().chain(kept).collect::<BTreeMap<_, _>>().into_values().collect()
}
