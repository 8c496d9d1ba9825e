//! `--resume`: what an earlier run has judged already.

use std::{fs, path::Path};

use anyhow::{Context, anyhow, bail, ensure};
use passmuster::conformance::{
    Case, Verdict,
    report::{Record, same_run},
};
use passmuster_collectives::machine::MachineInfo;

/// What was judged before.
pub(super) struct Resumed {
    /// In the order of the cases; none where one is not yet judged.
    pub(super) verdicts: Vec<Option<Verdict>>,
    /// What that took.
    pub(super) seconds: f64,
    machine: Option<MachineInfo>,
}

/// Reads a record of verdicts.
///
/// # Errors
/// Where it cannot be read, or is none.
pub(super) fn read(path: &Path) -> anyhow::Result<Record> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    serde_json::from_str(&text).with_context(|| format!("{name} is no record of cases"))
}

impl Resumed {
    /// Nothing.
    pub(super) fn none(cases: usize) -> Resumed {
        Resumed { verdicts: vec![None; cases], seconds: 0.0, machine: None }
    }

    /// What a record has of these cases.
    ///
    /// # Errors
    /// Where it is whole, or of another run than `here`: what differs.
    pub(super) fn read(path: &Path, here: &Record, cases: &[Case]) -> anyhow::Result<Resumed> {
        let name = path.display();
        let record = read(path)?;
        let Some(partial) = &record.partial else { bail!("{name} is of a run that came to its end: nothing is left to judge") };
        same_run(here, &record).map_err(|why| anyhow!("cannot go on with {name}: {why}"))?;
        ensure!(partial.of == cases.len(), "cannot go on with {name}: it is of {} cases, here are {}", partial.of, cases.len());

        let mut judged = record.cases.into_iter().peekable();
        let verdicts = cases.iter().map(|case| judged.next_if(|verdict| verdict.case == case.to_string())).collect();
        if let Some(verdict) = judged.next() {
            bail!("cannot go on with {name}: {} is not selected here, or at another place", verdict.case);
        }
        Ok(Resumed { verdicts, seconds: record.seconds.unwrap_or_default(), machine: Some(record.machine) })
    }

    /// The machine of both runs. What judged last may not have loaded what was needed before.
    pub(super) fn machine_of_both(&self, now: MachineInfo) -> MachineInfo {
        match &self.machine {
            Some(before) if now.kind.is_empty() || (now.nccl.is_empty() && !before.nccl.is_empty()) => before.clone(),
            _ => now,
        }
    }
}
