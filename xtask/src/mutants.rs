//! `mutants`: kernels with planted bugs, each of which the merge list must catch.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::bail;
use passmuster::{
    algorithms,
    conformance::{
        Case, List, MUTANTS, Mutant, MutantKind, Status, Verdict,
        report::{Record, Summary, table},
        supervisor::StartError,
    },
    machine::MachineInfo,
};
use serde::Serialize;
use xshell::Shell;

use crate::{
    CANNOT_RUN, FINDING,
    conform::{Judge, Judging, write_record},
    project,
    worker::{Machine, On},
};

/// Run kernels with planted bugs: does the merge list catch each of them?
///
/// Prints what caught each and the score. Value bugs must all be caught; a synchronisation bug that one machine's timing hides may be
/// missed on GPUs, and the record says which. Exits 1 where a value bug was missed.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask mutants                       all of them
  cargo xtask mutants --only value_06       those whose names contain this
  cargo xtask mutants --json mutants.json")]
pub(crate) struct Mutants {
    /// Only mutants whose names contain this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Cases of the merge list to try on each mutant at most, those of the mutant's dtype and operator first.
    #[arg(long, value_name = "N", default_value_t = 400)]
    limit: usize,
    /// Seconds that one mutant may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    budget: u64,
    /// Write the record of the run (docs/record-schema.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What the mutants run on.
    #[arg(long = "machine", value_enum, default_value_t = On::Cuda)]
    on: On,
    #[command(flatten)]
    machine: Machine,
}

/// What became of one mutant.
#[derive(Serialize)]
struct Outcome {
    mutant: String,
    kind: &'static str,
    description: String,
    caught: bool,
    /// Cases judged until it was caught, or all.
    tried: usize,
    /// The verdict that caught it.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
}

/// Something with a bug in it: a kernel, or a plan.
struct Subject {
    name: String,
    /// Whether its kernel takes multicast addresses, which only the emulator has.
    uses_multicast: bool,
    kind: MutantKind,
    description: String,
    arguments: Vec<String>,
    cases: Vec<Case>,
}

impl Subject {
    fn of(mutant: &Mutant, merge: &[Case]) -> Subject {
        let algorithm = mutant.module.rsplit('/').next().unwrap_or_default();
        let reaches = |case: &&Case| {
            (case.dtype, case.op) == (mutant.dtype, mutant.op)
                && case.peer.is_none()
                && case.skew.is_none_or(|skew| skew.site.is_none())
                && match case.calls.is_empty() {
                    true => case.algorithm == algorithm,
                    false => case.shots().all(|shot| shot.algorithm == algorithm),
                }
        };
        let uses_multicast = algorithms::all().iter().any(|of_project| of_project.name() == algorithm && of_project.uses_multicast());
        Subject {
            name: mutant.name.into(),
            uses_multicast,
            kind: mutant.kind,
            description: mutant.description.into(),
            arguments: vec![format!("--mutant={}", mutant.name)],
            cases: merge.iter().filter(reaches).cloned().collect(),
        }
    }

    /// Two groups of the same ranks on one signal pad: a bug of plans, not of kernels.
    fn shared_pads(merge: &[Case]) -> Subject {
        Subject {
            name: "sync_two_groups_on_one_pad".into(),
            uses_multicast: false,
            kind: MutantKind::Sync,
            description: "Two groups of the same ranks use one signal pad, each on a stream of its own".into(),
            arguments: vec!["--shared-pads".into()],
            cases: merge.iter().filter(|case| case.groups() > 1).cloned().collect(),
        }
    }
}

impl Mutants {
    pub(crate) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        let merge = List::Merge.cases(0);
        let mut subjects: Vec<Subject> = MUTANTS.iter().map(|mutant| Subject::of(mutant, &merge)).collect();
        subjects.push(Subject::shared_pads(&merge));
        if let Some(text) = &self.only {
            subjects.retain(|subject| subject.name.contains(text.as_str()));
        }
        if self.on == On::Cuda {
            for subject in subjects.extract_if(.., |subject| subject.uses_multicast) {
                println!("NotRun: {}: multimem runs on the emulator only (--machine emulator)", subject.name);
            }
        }
        if subjects.is_empty() {
            bail!("no mutant's name contains `{}`", self.only.unwrap_or_default());
        }
        let mut machine = MachineInfo::default();
        let mut outcomes = Vec::new();
        for subject in subjects {
            match self.hunt(&subject) {
                Ok((info, outcome)) => {
                    let by = outcome.verdict.as_ref().map_or_else(|| "missed".into(), |v| format!("{} {}: {}", v.status, v.case, v.reason));
                    eprintln!("{}: {by} ({} tried)", outcome.mutant, outcome.tried);
                    machine = info;
                    outcomes.push(outcome);
                }
                Err(StartError::CannotRun { reason }) => {
                    eprintln!("mutants cannot run on this machine: {reason}");
                    return Ok(ExitCode::from(CANNOT_RUN));
                }
                Err(error) => bail!(error),
            }
        }
        println!("{}", rows(&outcomes));
        let caught = outcomes.iter().filter(|o| o.caught).count();
        let missed_value = outcomes.iter().any(|o| o.kind == "value" && !o.caught);
        println!("{caught} of {} caught", outcomes.len());
        if let Some(path) = &self.json {
            let statuses = outcomes.iter().map(|o| if o.caught { Status::Pass } else { Status::Fail });
            machine.notes.extend(project::gpu_settings(sh));
            let mut summary = Summary::of(statuses);
            summary.caught = Some(caught);
            write_record(path, &Record::new("mutants", machine, project::source(sh), summary, outcomes))?;
        }
        Ok(if missed_value { ExitCode::from(FINDING) } else { ExitCode::SUCCESS })
    }

    /// Judges cases on a mutant until one catches it.
    fn hunt(&self, subject: &Subject) -> Result<(MachineInfo, Outcome), StartError> {
        let start = std::time::Instant::now();
        let arguments: Vec<String> = subject.arguments.iter().cloned().chain([self.on.argument()]).collect();
        let mut judge = Judge::new(&self.machine, &arguments, Duration::from_secs(10));
        let machine = judge.machine()?;
        let mut tried = 0;
        let mut caught = None;
        for case in subject.cases.iter().take(self.limit) {
            if start.elapsed() > Duration::from_secs(self.budget) {
                break;
            }
            tried += 1;
            let verdict = judge.one(case)?;
            if verdict.status.is_finding() {
                caught = Some(verdict);
                break;
            }
        }
        let kind = match subject.kind {
            MutantKind::Value => "value",
            MutantKind::Sync => "sync",
        };
        let (mutant, description) = (subject.name.clone(), subject.description.clone());
        Ok((machine, Outcome { mutant, kind, description, caught: caught.is_some(), tried, verdict: caught }))
    }
}

fn rows(outcomes: &[Outcome]) -> String {
    let rows: Vec<Vec<String>> = outcomes
        .iter()
        .map(|o| {
            let by = match &o.verdict {
                None => "missed".into(),
                Some(v) => v.findings.first().map_or_else(|| v.status.to_string(), |f| f.property.clone()),
            };
            vec![o.mutant.clone(), by, o.tried.to_string(), o.description.clone()]
        })
        .collect();
    table::aligned(&["mutant", "caught by", "cases", "bug"], 4, &rows)
}
