//! `museum`: real bugs of other people's kernels, re-created under museum/, each with its fix.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use passmuster_harness::{
    conformance::{
        Case, List, Status, Verdict,
        mutants::{self, Caught},
        report::{Record, RecordCase, Summary, table},
        supervisor::StartError,
    },
    emulator::{Emulator, EmulatorOptions, Interleaving},
};
use passmuster_plan::{
    algorithms::Registry,
    library::Library,
    machine::{Machine as _, MachineInfo},
    modules::fnv1a64,
};
use serde::{Deserialize, Serialize};
use xshell::Shell;

use crate::{
    CANNOT_RUN, FINDING, emulated,
    foreign::{self, ForeignArgs, Known, Registered, RegisteredKernel},
    input,
    judging::{Judge, Judging},
    progress::progress_bar,
    project,
    result_file::ResultFile,
    worker::{Machine, MachineKind},
};

/// Check that passmuster finds real bugs of other projects.
///
/// Each folder of museum/ re-creates a bug that was reported in public: the kernel with the bug (kernel.bug.ptx), the fixed kernel (kernel.ptx), a specification, and
/// an entry.toml that says what the bug was and where it was reported. On the emulator, the cases run under one schedule after another until the bug is found. The
/// fixed kernel must pass the small cases, and the case that found the bug, under many schedules. On GPUs, both run the list, except for bugs that would hang there.
/// Exits 1 if a bug is not found, is found as something else, or a fixed kernel fails; on GPUs, only the last counts.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask museum                        all of it, on the emulator
  cargo xtask museum --only vllm            those whose names contain this
  cargo xtask museum --list                 what there is, and its sources
  cargo xtask museum --machine cuda         what GPUs say
  cargo xtask museum --gpus-record gpus.json       with a column of GPUs
  cargo xtask validate --spec museum/NAME/spec.toml \\
    --ptx museum/NAME/kernel.bug.ptx        one, with its whole diagnosis")]
pub(crate) struct Museum {
    /// Run only entries whose names contain TEXT.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the entries and their sources, and stop.
    #[arg(long)]
    list: bool,
    /// Schedules that a fixed kernel must pass, on the emulator.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    schedules: u64,
    /// Write the record of the run (docs/reference/record-schema-commands.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A record of `museum --machine cuda`, to show beside the emulator's results.
    #[arg(long, value_name = "RECORD")]
    gpus_record: Option<PathBuf>,
    /// Where the kernels run.
    #[arg(long = "machine", value_enum, default_value_t = MachineKind::Emulator)]
    on: MachineKind,
    #[command(flatten)]
    machine: Machine,
}

/// Where the entries are.
pub(crate) const FOLDER: &str = "museum";

/// Schedules under which a bug is looked for, where its entry does not say.
const SCHEDULES: u64 = 4;

/// What entry.toml says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// What was wrong, in one line.
    pub(crate) title: String,
    /// Whose kernel it was.
    pub(crate) project: String,
    /// Where it was reported.
    pub(crate) source: Vec<String>,
    /// What the emulator says it is.
    pub(crate) found_as: FoundAs,
    /// The list that finds it.
    query: String,
    /// Schedules that it takes, where the usual are too few.
    schedules: Option<u64>,
    /// Whether GPUs may run the bug: it does not hang there, nor touch what it must not.
    gpu: bool,
    /// What was wrong, what it takes to show, and what came of it.
    pub(crate) bug: String,
    /// What fixes it.
    pub(crate) fix: String,
}

/// What a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FoundAs {
    /// Accesses that nothing orders.
    Race,
    /// Results.
    WrongValues,
    /// It does not end.
    Hang,
    /// Memory that is not its own, or was never written.
    BadAccess,
}

impl FoundAs {
    /// What a verdict says; where it says more than one thing, what was expected if that is among them.
    fn of(verdict: &Verdict, expected: FoundAs) -> FoundAs {
        let mut all = verdict.findings.iter().map(|finding| match finding.property.as_str() {
            "races" => FoundAs::Race,
            "finishes" => FoundAs::Hang,
            "memory" | "survives" => FoundAs::BadAccess,
            _ => FoundAs::WrongValues,
        });
        let first = all.next().unwrap_or(FoundAs::WrongValues);
        if all.any(|other| other == expected) { expected } else { first }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            FoundAs::Race => "race",
            FoundAs::WrongValues => "wrong values",
            FoundAs::Hang => "hang",
            FoundAs::BadAccess => "bad access",
        }
    }
}

/// What became of one entry: a case of a record of `museum`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The folder.
    pub(crate) entry: String,
    /// Hash of the PTX, fixed and with the bug, fnv1a64.
    pub(crate) kernels: String,
    /// The finding, if there was one.
    pub(crate) found: Option<Found>,
    /// Cases that the bug was judged on, those that found nothing included.
    pub(crate) tried: usize,
    /// Cases that the fixed kernel passed, each schedule counted.
    pub(crate) clean: usize,
    /// What was found in the fixed kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) blamed: Option<String>,
    /// Why it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_run: Option<String>,
}

impl RecordCase for Outcome {}

/// How a bug was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// As what.
    pub(crate) found_as: FoundAs,
    /// In which case.
    pub(crate) case: String,
    /// Under which schedule of the emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<String>,
    /// Seconds until it was found.
    pub(crate) seconds: f64,
    /// The verdict's reason.
    pub(crate) reason: String,
}

/// An entry with its kernels.
struct Exhibit {
    name: String,
    entry: Entry,
    /// Where its kernel is found.
    registry: Registry,
    of: Registered,
    /// Kernels, fixed and with the bug.
    fixed: Library,
    bugged: Library,
    /// Of the bug.
    cases: Vec<Case>,
    /// The options that name its kernels to a worker.
    options: [Vec<String>; 2],
    /// Hash of the kernels.
    kernels: String,
}

/// Hash of the PTX, fixed and with the bug of an entry.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn kernels(root: &Path, name: &str) -> anyhow::Result<String> {
    let read = |file: &str| input::text(&root.join(FOLDER).join(name).join(file), foreign::MOST_PTX);
    Ok(format!("{:016x}", fnv1a64((read("kernel.ptx")? + &read("kernel.bug.ptx")?).as_bytes())))
}

/// The entries, by folder.
pub(crate) fn entries(root: &Path) -> anyhow::Result<BTreeMap<String, Entry>> {
    let folder = root.join(FOLDER);
    let mut entries = BTreeMap::new();
    for found in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = found?.path().join("entry.toml");
        if path.is_file() {
            let text = input::text(&path, input::MOST_TOML)?;
            let entry: Entry = toml::from_str(&text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
            let name = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
            entries.insert(name, entry);
        }
    }
    Ok(entries)
}

impl Museum {
    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let root = project::enter(sh)?;
        let mut entries = entries(&root)?;
        entries.retain(|name, _| self.only.as_ref().is_none_or(|only| name.contains(only.as_str())));
        ensure!(!entries.is_empty(), "no entry's name contains `{}`", self.only.as_deref().unwrap_or_default());
        if self.list {
            for (name, Entry { title, project, source, bug, fix, .. }) in &entries {
                let lines = bug.trim().lines().chain([fix.trim()]).chain(source.iter().map(String::as_str));
                println!("{name}\n  {project}: {title}\n\n  {}\n", lines.collect::<Vec<_>>().join("\n  "));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let gpus = self.gpus_record.as_deref().map(recorded).transpose()?;
        let file = ResultFile::asked(self.json.as_deref())?;
        let exhibits = exhibits(registry, &root, entries, self.on)?;
        let (mut machine, outcomes) = match self.on {
            MachineKind::Emulator => self.emulated(registry, &exhibits)?,
            MachineKind::Cuda => match self.on_gpus(&exhibits) {
                Ok(judged) => judged,
                Err(StartError::CannotRun { reason }) => {
                    eprintln!("museum cannot run on this machine: {reason}");
                    return Ok(ExitCode::from(CANNOT_RUN));
                }
                Err(error) => bail!(error),
            },
        };
        if self.on == MachineKind::Cuda {
            machine.notes.extend(project::gpu_settings(sh));
        }
        let wrong = |(exhibit, outcome): &(&Exhibit, &Outcome)| {
            let is_as_said = outcome.found.as_ref().is_some_and(|found| found.found_as == exhibit.entry.found_as);
            outcome.blamed.is_some() || self.on == MachineKind::Emulator && !is_as_said
        };
        let failed = exhibits.iter().zip(&outcomes).filter(wrong).count();
        println!("{}\n", shown(&exhibits, &outcomes, gpus.as_ref()));
        for (exhibit, outcome) in exhibits.iter().zip(&outcomes).filter(wrong) {
            println!("{}", complaint(exhibit, outcome));
        }
        println!("{}", score(&outcomes, gpus.as_ref()));
        let summary = Summary::of(outcomes.iter().map(|outcome| match outcome {
            Outcome { not_run: Some(_), .. } => Status::NotRun,
            Outcome { found: Some(_), blamed: None, .. } => Status::Pass,
            _ => Status::Fail,
        }));
        let notes = vec![score(&outcomes, None)];
        let record = Record { notes, ..Record::new("museum", machine, project::source(sh, &registry.library()), summary, outcomes) };
        file.iter().try_for_each(|file| file.write(&record.to_json()))?;
        // Of what did not run nothing is known.
        let ran = |outcome: &Outcome| outcome.clean > 0 || outcome.found.is_some() || outcome.blamed.is_some();
        if failed == 0 && !record.cases.iter().any(ran) {
            eprintln!("no case of these entries could run on this machine");
            return Ok(ExitCode::from(CANNOT_RUN));
        }
        Ok(if failed > 0 { ExitCode::from(FINDING) } else { ExitCode::SUCCESS })
    }

    /// Looks for all bugs in this process, one on each processor.
    fn emulated(&self, registry: &Registry, exhibits: &[Exhibit]) -> anyhow::Result<(MachineInfo, Vec<Outcome>)> {
        let options = self.machine.emulator(registry.library(), 0)?;
        let info = Emulator::new(options.clone()).info();
        let numbered: Vec<&Exhibit> = exhibits.iter().collect();
        let outcomes = emulated::in_parallel(&numbered, || (), |(), exhibit, _| exhibit.on_emulator(&options, self.schedules));
        Ok((info, outcomes))
    }

    /// Judges bugs and fixed kernels in workers, one after the other.
    fn on_gpus(&self, exhibits: &[Exhibit]) -> Result<(MachineInfo, Vec<Outcome>), StartError> {
        let (mut machine, mut outcomes) = (MachineInfo::default(), Vec::new());
        let bar = progress_bar(exhibits.len());
        for exhibit in exhibits {
            let judge = |options: &[String]| {
                let arguments: Vec<String> = options.iter().cloned().chain([MachineKind::Cuda.argument()]).collect();
                Judge::new(&exhibit.registry, &self.machine, &arguments, Duration::from_secs(10))
            };
            let [fixed, bugged] = &exhibit.options;
            let mut outcome = exhibit.nothing();
            let mut of_fixed = judge(fixed);
            machine = of_fixed.machine(&exhibit.cases)?;
            for case in &exhibit.cases {
                let verdict = of_fixed.one(case)?;
                outcome.clean += usize::from(verdict.status == Status::Pass);
                if verdict.status.is_finding() {
                    outcome.blamed = Some(format!("{}: {}", verdict.case, verdict.reason));
                    break;
                }
            }
            drop(of_fixed);
            if exhibit.entry.gpu {
                let (mut of_bug, start) = (judge(bugged), Instant::now());
                for case in &exhibit.cases {
                    outcome.tried += 1;
                    let verdict = of_bug.one(case)?;
                    if verdict.status.is_finding() {
                        outcome.found = Some(found(&verdict, exhibit.entry.found_as, None, start.elapsed()));
                        break;
                    }
                }
            } else {
                outcome.not_run = Some("the bug may hang a GPU, or touch what it must not".into());
            }
            bar.inc(1);
            outcomes.push(outcome);
        }
        bar.finish_and_clear();
        Ok((machine, outcomes))
    }
}

fn found(verdict: &Verdict, expected: FoundAs, schedule: Option<String>, elapsed: Duration) -> Found {
    Found {
        found_as: FoundAs::of(verdict, expected),
        case: verdict.case.clone(),
        schedule,
        seconds: (elapsed.as_secs_f64() * 100.0).round() / 100.0,
        reason: verdict.reason.clone(),
    }
}

/// Reads the kernels of all entries.
fn exhibits(registry: &Registry, root: &Path, entries: BTreeMap<String, Entry>, on: MachineKind) -> anyhow::Result<Vec<Exhibit>> {
    let spec = |name: &String| root.join(FOLDER).join(name).join("spec.toml");
    let all = ForeignArgs { specs: entries.keys().map(spec).collect(), ..ForeignArgs::default() };
    let Known { registry, library, foreign: known } = all.beside(registry, on)?;
    let mut exhibits = Vec::new();
    for ((name, entry), RegisteredKernel { of, ptx, .. }) in entries.into_iter().zip(known) {
        ensure!(of.name() == name, "{}: its name is `{}`, which is to be that of the folder", spec(&name).display(), of.name());
        let Some(list) = List::ALL.into_iter().find(|list| list.name() == entry.query) else {
            bail!("{FOLDER}/{name}/entry.toml: query `{}` is no list", entry.query);
        };
        let bug = ptx.with_file_name("kernel.bug.ptx");
        let mut bugged = library.clone();
        let modules = of.kernels().modules();
        ensure!(modules.len() == 1, "{FOLDER}/{name}: {} modules, and one kernel.bug.ptx", modules.len());
        let text = input::text(&bug, foreign::MOST_PTX)?;
        modules.iter().for_each(|module| bugged.replace(&module.name, text.clone()));
        // Nobody else's GPU is to be held by a kernel of ours that hangs.
        let option = |ptx: &Path| {
            let options = [format!("--spec={}", spec(&name).display()), format!("--ptx={}", ptx.display()), "--bound-waits".into()];
            options.to_vec()
        };
        exhibits.push(Exhibit {
            kernels: kernels(root, &name)?,
            options: [option(&ptx), option(&bug)],
            cases: of.cases(&registry, list, 0),
            registry: registry.clone(),
            fixed: library.clone(),
            bugged,
            of,
            name,
            entry,
        });
    }
    Ok(exhibits)
}

impl Exhibit {
    /// Before anything was judged.
    fn nothing(&self) -> Outcome {
        Outcome { entry: self.name.clone(), kernels: self.kernels.clone(), found: None, tried: 0, clean: 0, blamed: None, not_run: None }
    }

    fn on_emulator(&self, options: &EmulatorOptions, schedules: u64) -> Outcome {
        let judge = |library: &Library, cases: &[Case], schedules: u64| {
            let options = EmulatorOptions { library: library.clone(), ..options.clone() };
            let mut machine = Emulator::new(options.clone());
            mutants::hunt(cases, schedules, |case, schedule| {
                machine.set_interleaving(Interleaving::nth(0, schedule as usize));
                emulated::judge(&self.registry, case, &mut machine, &options, emulated::DEADLINE, false)
            })
        };
        let start = Instant::now();
        let (tried, caught) = judge(&self.bugged, &self.cases, self.entry.schedules.unwrap_or(SCHEDULES));
        let elapsed = start.elapsed();
        let found = caught.map(|Caught { schedule, verdict }| {
            found(&verdict, self.entry.found_as, Some(Interleaving::nth(0, schedule as usize).to_string()), elapsed)
        });
        let mut cases: Vec<Case> = self.of.cases_of_mutants(&self.registry);
        if let Some(case) = found.as_ref().and_then(|found| self.cases.iter().find(|case| case.to_string() == found.case)) {
            cases.retain(|other| other != case);
            cases.insert(0, case.clone());
        }
        let (clean, blamed) = judge(&self.fixed, &cases, schedules);
        let of_fixed = |Caught { schedule, verdict }: Caught| {
            format!("{}@{}: {}", verdict.case, Interleaving::nth(0, schedule as usize), verdict.reason)
        };
        Outcome { found, tried, clean: clean - usize::from(blamed.is_some()), blamed: blamed.map(of_fixed), ..self.nothing() }
    }
}

/// A record of the museum on GPUs.
fn recorded(path: &Path) -> anyhow::Result<BTreeMap<String, Outcome>> {
    let text = input::record(path)?;
    let record: Record<Outcome> = serde_json::from_str(&text).with_context(|| format!("{} is no record of museum", path.display()))?;
    ensure!(record.kind == "museum" && record.machine.kind == "cuda", "{} is no record of `museum --machine cuda`", path.display());
    Ok(record.cases.into_iter().map(|outcome| (outcome.entry.clone(), outcome)).collect())
}

/// What is said of a bug on GPUs.
pub(crate) fn on_gpus(outcome: Option<&Outcome>) -> String {
    match outcome {
        None => "-".into(),
        Some(Outcome { not_run: Some(_), .. }) => "not run".into(),
        Some(Outcome { found: Some(found), .. }) => found.found_as.name().into(),
        Some(Outcome { tried, .. }) => format!("no, {tried} cases"),
    }
}

/// The table: bug, source, found as, seconds, found on GPUs.
fn shown(exhibits: &[Exhibit], outcomes: &[Outcome], gpus: Option<&BTreeMap<String, Outcome>>) -> String {
    let row = |(exhibit, outcome): (&Exhibit, &Outcome)| {
        let found = outcome.found.as_ref();
        let mut row = vec![
            exhibit.name.clone(),
            found.map_or_else(|| on_gpus(Some(outcome)), |found| found.found_as.name().to_owned()),
            found.and_then(|found| found.schedule.clone()).unwrap_or_default(),
            found.map(|found| format!("{:.2}", found.seconds)).unwrap_or_default(),
            if outcome.blamed.is_some() { "blamed".into() } else { outcome.clean.to_string() },
        ];
        row.extend(gpus.map(|gpus| on_gpus(gpus.get(&exhibit.name))));
        row
    };
    let rows: Vec<Vec<String>> = exhibits.iter().zip(outcomes).map(row).collect();
    let heads = ["bug", "found as", "schedule", "seconds", "fixed passed", "on GPUs"];
    table::aligned(&heads[..if gpus.is_some() { 6 } else { 5 }], 1, &rows)
}

fn complaint(exhibit: &Exhibit, outcome: &Outcome) -> String {
    let name = &exhibit.name;
    match (&outcome.blamed, &outcome.found) {
        (Some(blamed), _) => format!("{name}: the fixed kernel is blamed: {blamed}"),
        (None, None) => format!("{name}: not found in {} cases", outcome.tried),
        (None, Some(found)) => {
            format!("{name}: found as {}, and its entry says {}: {}", found.found_as.name(), exhibit.entry.found_as.name(), found.reason)
        }
    }
}

/// The last line: how many bugs were found, how fast, and how many GPUs found.
pub(crate) fn score(outcomes: &[Outcome], gpus: Option<&BTreeMap<String, Outcome>>) -> String {
    let found: Vec<f64> = outcomes.iter().filter_map(|outcome| Some(outcome.found.as_ref()?.seconds)).collect();
    let slowest = found.iter().copied().fold(0.0, f64::max);
    let run = outcomes.iter().filter(|outcome| outcome.not_run.is_none()).count();
    let clean = outcomes.iter().filter(|outcome| outcome.blamed.is_none()).count();
    let mut line = format!(
        "{} of {run} real bugs found, the slowest in {slowest:.1} s; {clean} of {} fixed versions pass",
        found.len(),
        outcomes.len()
    );
    if let Some(gpus) = gpus {
        let run: Vec<&Outcome> = gpus.values().filter(|outcome| outcome.not_run.is_none()).collect();
        line += &format!(
            "; GPUs found {} of the {} that are safe to run there",
            run.iter().filter(|outcome| outcome.found.is_some()).count(),
            run.len()
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(seconds: Option<f64>, blamed: bool) -> Outcome {
        let found = seconds.map(|seconds| Found {
            found_as: FoundAs::Race,
            case: "c".into(),
            schedule: Some("random-0".into()),
            seconds,
            reason: "r".into(),
        });
        Outcome { entry: "e".into(), kernels: String::new(), found, tried: 3, clean: 4, blamed: blamed.then(|| "b".into()), not_run: None }
    }

    /// If this fails, the last line counts what was not run, or what was missed.
    #[test]
    fn the_last_line_counts_what_was_found() {
        let not_run = Outcome { not_run: Some("why".into()), ..outcome(None, false) };
        let outcomes = [outcome(Some(0.25), false), outcome(Some(3.0), true), outcome(None, false)];
        let gpus = [("a", outcome(None, false)), ("b", not_run), ("c", outcome(Some(1.0), false))];
        let gpus: BTreeMap<String, Outcome> = gpus.into_iter().map(|(name, outcome)| (name.to_owned(), outcome)).collect();
        assert_eq!(
            score(&outcomes, Some(&gpus)),
            "2 of 3 real bugs found, the slowest in 3.0 s; 2 of 3 fixed versions pass; GPUs found 1 of the 2 that are safe to run there"
        );
        assert_eq!(on_gpus(gpus.get("a")), "no, 3 cases");
        assert_eq!([on_gpus(gpus.get("b")), on_gpus(gpus.get("c")), on_gpus(None)], ["not run", "race", "-"]);
    }
}
