//! `--resume` and `--stale`: what an earlier run has judged already.

use std::{collections::HashMap, path::Path};

use anyhow::{Context, anyhow, bail, ensure};
use passmuster_harness::conformance::report::{Record, RecordCase, same_question, same_run};
use passmuster_plan::machine::MachineInfo;
use serde::de::DeserializeOwned;

use crate::input;

/// What was judged before.
pub(crate) struct Resumed<C> {
    /// In the order of the cases; none where one is not yet judged.
    pub(crate) judged: Vec<Option<C>>,
    /// What that took.
    pub(crate) seconds: f64,
    machine: Option<MachineInfo>,
}

/// Reads a record of what was judged.
///
/// # Errors
/// Where it cannot be read, or is none.
pub(crate) fn read<C: RecordCase + DeserializeOwned>(path: &Path) -> anyhow::Result<Record<C>> {
    let name = path.display();
    let text = input::record(path)?;
    serde_json::from_str(&text).with_context(|| format!("{name} is no record of cases"))
}

/// Reads the record of a run that came to its end and was asked for the same as `here`, for `--stale`.
///
/// # Errors
/// If it cannot be read, is not whole, or was asked for something else: what differs.
pub(crate) fn whole<C: RecordCase + DeserializeOwned>(path: &Path, here: &Record<C>) -> anyhow::Result<Record<C>> {
    let file = path.display();
    let record: Record<C> = read(path)?;
    ensure!(record.partial.is_none(), "{file} is of a run that was interrupted: go on with it (--resume)");
    same_question(here, &record).map_err(|why| anyhow!("cannot keep what {file} has: {why}"))?;
    Ok(record)
}

impl<C: RecordCase + DeserializeOwned> Resumed<C> {
    /// What the record of `resumed` has of what is to be judged, which has these names, and the record's cases those of `name`; nothing without a record.
    ///
    /// # Errors
    /// Where it is whole, or of another run than `here`: what differs.
    pub(crate) fn read(
        resumed: Option<&Path>,
        here: &Record<C>,
        names: &[String],
        name: impl Fn(&C) -> &str,
    ) -> anyhow::Result<Resumed<C>> {
        let Some(path) = resumed else {
            return Ok(Resumed { judged: names.iter().map(|_| None).collect(), seconds: 0.0, machine: None });
        };
        let file = path.display();
        let record: Record<C> = read(path)?;
        let Some(partial) = &record.partial else { bail!("{file} is of a run that came to its end: nothing is left to judge") };
        same_run(here, &record).map_err(|why| anyhow!("cannot go on with {file}: {why}"))?;
        ensure!(partial.of == names.len(), "cannot go on with {file}: it is of {} cases, here are {}", partial.of, names.len());

        let mut before = record.cases.into_iter().peekable();
        let judged = names.iter().map(|own| before.next_if(|case| name(case) == own)).collect();
        if let Some(case) = before.next() {
            bail!("cannot go on with {file}: {} is not selected here, or at another place", name(&case));
        }
        Ok(Resumed { judged, seconds: record.seconds.unwrap_or_default(), machine: Some(record.machine) })
    }

    /// The cases of a whole record for which `is_fresh` holds.
    pub(crate) fn fresh(record: Record<C>, names: &[String], name: impl Fn(&C) -> &str, is_fresh: impl Fn(&C) -> bool) -> Resumed<C> {
        let all = record.cases.len();
        let mut kept: HashMap<String, C> =
            record.cases.into_iter().filter(|case| is_fresh(case)).map(|case| (name(&case).to_owned(), case)).collect();
        let judged: Vec<Option<C>> = names.iter().map(|own| kept.remove(own)).collect();
        // The record does not say how long each took.
        let share = judged.iter().flatten().count() as f64 / all.max(1) as f64;
        Resumed { judged, seconds: record.seconds.unwrap_or_default() * share, machine: None }
    }
}

impl<C> Resumed<C> {
    /// Places of what is not yet judged.
    pub(crate) fn rest(&self) -> Vec<usize> {
        (0..self.judged.len()).filter(|&index| self.judged[index].is_none()).collect()
    }

    /// The machine of both runs. What judged last may not have loaded what was needed before.
    pub(crate) fn machine_of_both(&self, now: MachineInfo) -> MachineInfo {
        match &self.machine {
            Some(before) if now.kind.is_empty() || (now.nccl.is_empty() && !before.nccl.is_empty()) => before.clone(),
            _ => now,
        }
    }
}
