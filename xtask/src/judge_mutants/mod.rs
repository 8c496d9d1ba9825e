//! `cargo xtask judge-mutants`: is each bug that is planted in the judge noticed by its tests?
//!
//! [`targets`] has the files that judge. [`mutate`] finds what can be wrong in them, [`sample`] takes some of it, [`schemata`] writes all of that into one
//! text, where a number chooses at run time. [`build`] compiles a copy of the tree with it, [`run`] runs the tests that come to each mutant, and
//! [`journal`] keeps what was found. [`record`] is what becomes of it.

mod build;
mod journal;
mod mutate;
mod record;
mod run;
mod sample;
mod schemata;
mod targets;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
};

use anyhow::{Context, bail, ensure};
use xshell::{Shell, cmd};

use build::Workshop;
use journal::Journal;
use record::{Case, EQUIVALENTS, RECORD, Record, Source};
use run::Limits;
use sample::Candidate;

/// What `cargo xtask judge-mutants --help` says.
pub const HELP: &str = "\
Plants bugs in the code that judges, one at a time, and runs the tests that come to them: is each of them noticed?

All mutants are in one build, under target/judge-mutants/; an environment variable says which is on. A run with none on comes first: it must pass, and says
which tests come to which mutants. The sample depends on the text of the files alone. docs/emulator/judge-mutants.md has the score.

Usage: cargo xtask judge-mutants [OPTIONS]

Options:
  --sample N      as many mutants, over all files [default: 300]
  --only PATTERN  only files whose path has this in it
  --stale         only files whose code has changed since the record was made
  --missed        only mutants that the record has as missed
  --list          print the mutants and run nothing
  --check         run nothing; exit 1 if the record is of other files, of fewer than 300 mutants, or of less than 95 % caught
  --resume        go on with the run that was interrupted
  --json FILE     write the record; with --only, --stale and --missed, FILE keeps what it has of others
  --jobs N        tests at the same time [default: as many as processors]
  --longest S     leave out tests that take longer, in seconds [default: 30]
  --budget S      seconds of tests after which a mutant has survived [default: 120]

Exit status: 0 if at least 95 % are caught, 1 if not, 2 for everything else.

Examples:
  cargo xtask judge-mutants --only conformance/oracle
  cargo xtask judge-mutants --stale --json fixtures/records/judge-mutants.json
  cargo xtask judge-mutants --missed --json fixtures/records/judge-mutants.json";

/// Mutants of a sample that is worth a score.
const SAMPLE: usize = 300;

/// Caught ones in a hundred that are enough.
const ENOUGH: f64 = 95.0;

/// Exit status if too few are caught.
const FINDING: u8 = 1;

/// What is asked for.
struct Options {
    sample: usize,
    only: Option<String>,
    stale: bool,
    missed: bool,
    list: bool,
    check: bool,
    resume: bool,
    json: Option<PathBuf>,
    limits: Limits,
}

impl Options {
    /// # Errors
    /// An option that is not known, or a value that is missing or no number.
    fn parse(arguments: &[OsString]) -> anyhow::Result<Options> {
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let limits = Limits { jobs, longest: 30.0, budget: 120.0 };
        let mut options = Options {
            sample: SAMPLE,
            only: None,
            stale: false,
            missed: false,
            list: false,
            check: false,
            resume: false,
            json: None,
            limits,
        };
        let mut rest = arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
        while let Some(name) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{name} wants a value"));
            let number =
                |value: String| value.parse::<f64>().ok().filter(|of| *of > 0.0).with_context(|| format!("{value} is no number above 0"));
            match &*name {
                "--sample" => options.sample = number(value()?)? as usize,
                "--only" => options.only = Some(value()?),
                "--json" => options.json = Some(std::path::absolute(value()?)?),
                "--jobs" => options.limits.jobs = number(value()?)? as usize,
                "--longest" => options.limits.longest = number(value()?)?,
                "--budget" => options.limits.budget = number(value()?)?,
                "--stale" => options.stale = true,
                "--missed" => options.missed = true,
                "--list" => options.list = true,
                "--check" => options.check = true,
                "--resume" => options.resume = true,
                unknown => bail!("`cargo xtask judge-mutants` takes no `{unknown}`: see `cargo xtask judge-mutants --help`"),
            }
        }
        ensure!(!(options.stale && options.missed), "--stale and --missed exclude each other");
        Ok(options)
    }
}

/// Runs the command.
///
/// # Errors
/// Wrong options, files that cannot be read or written, a tree that does not compile, or tests that fail with no mutant on.
pub fn run(sh: &Shell, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let options = Options::parse(arguments)?;
    let root = sh.current_dir();
    let tracked: Vec<String> = cmd!(sh, "git ls-files -z --cached --others --exclude-standard")
        .quiet()
        .read()?
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    let files = targets(&root, &tracked)?;
    let argued = fs::read_to_string(root.join(EQUIVALENTS)).with_context(|| format!("cannot read {EQUIVALENTS}"))?;
    let argued = record::equivalents(&argued)?;
    if options.check {
        return check(&root, &files, &argued);
    }
    let mut candidates = sample::candidates(&files)?;
    let mut wanted = options.sample;
    let committed = if options.stale || options.missed { Some(Record::read(&root.join(RECORD))?) } else { None };
    if let Some(committed) = committed.as_ref().filter(|_| options.missed) {
        let stale = committed.stale(&files)?;
        ensure!(stale.is_empty(), "the code of {} has changed since its mutants ran: run them with --stale first", stale.join(", "));
        candidates.retain(|candidate| committed.missed(candidate));
        wanted = candidates.len();
    }
    let mut quotas = sample::quotas(&candidates, wanted);
    if let Some(committed) = committed.as_ref().filter(|_| options.stale) {
        let stale = committed.stale(&files)?;
        quotas.retain(|file, _| stale.contains(file));
    }
    if let Some(only) = &options.only {
        quotas.retain(|file, _| file.contains(&**only));
    }
    if quotas.is_empty() {
        println!("no file to mutate");
        return Ok(ExitCode::SUCCESS);
    }
    if options.list {
        for mutant in sample::take(&candidates, &quotas, &BTreeSet::new()) {
            println!("{}", shown(mutant));
        }
        return Ok(ExitCode::SUCCESS);
    }
    // What is judged is copied first: what changes while tests run is not in it.
    let source = source(sh)?;
    let cases = judge(&root, &tracked, &files, &candidates, &quotas, &options)?;
    let mut record = match committed.filter(|_| options.missed) {
        Some(mut committed) => {
            committed.renew(source, cases);
            committed
        }
        None => {
            let hash = |file: &&str| Ok(((*file).to_owned(), record::hash_of_code(file, &files[*file])?));
            let hashes = quotas.keys().map(hash).collect::<anyhow::Result<_>>()?;
            let partly = options.stale || options.only.is_some();
            let before = options.json.as_ref().filter(|path| partly && path.exists()).map(|path| Record::read(path)).transpose()?;
            Record::new(source, hashes, cases, before)
        }
    };
    record.keep(|file| files.contains_key(file));
    record.argue(&argued)?;
    if let Some(path) = &options.json {
        fs::write(path, record.text()?).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(report(&record))
}

/// The files that are mutated, with their text.
fn targets(root: &Path, tracked: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let files = tracked.iter().filter(|path| targets::of_file(path).is_some() && root.join(path).is_file());
    let read = |path: &String| fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    targets::that_judge(files.map(|path| Ok((path.clone(), read(path)?))).collect::<anyhow::Result<_>>()?)
}

/// Compiles and runs the mutants of a sample.
fn judge(
    root: &Path,
    tracked: &[String],
    files: &BTreeMap<String, String>,
    candidates: &[Candidate],
    quotas: &BTreeMap<&str, usize>,
    options: &Options,
) -> anyhow::Result<Vec<Case>> {
    let workshop = Workshop::new(root);
    let sources = fingerprint(root, tracked);
    let taken = workshop.prepare(tracked, files, candidates, quotas, &sources)?;
    let suites: BTreeSet<targets::Suite> =
        quotas.keys().filter_map(|file| targets::of_file(file)).flat_map(|target| target.suites).copied().collect();
    let binaries = workshop.build(&suites)?;
    ensure!(binaries.len() == suites.len(), "cargo has built {} of {} binaries of tests", binaries.len(), suites.len());
    let numbers: Vec<String> = taken.iter().map(|candidate| candidate.number.to_string()).collect();
    let run = record::hash(&format!("{sources} {}", numbers.join(" ")));
    let (mut journal, before) = Journal::open(&workshop.folder.join("journal.jsonl"), &run, options.resume)?;
    let outcomes = run::run(&binaries, &taken, &options.limits, &before, &mut journal)?;
    Ok(taken.iter().map(|candidate| Case::new(candidate, &outcomes[&candidate.number])).collect())
}

/// A hash of the sources that are built, for the journal.
fn fingerprint(root: &Path, tracked: &[String]) -> String {
    let is_built =
        |path: &&String| path.starts_with("crates/") && (path.ends_with(".rs") || path.ends_with(".toml")) || *path == "Cargo.lock";
    let hashes: Vec<String> =
        tracked.iter().filter(is_built).map(|path| record::hash(&fs::read_to_string(root.join(path)).unwrap_or_default())).collect();
    record::hash(&hashes.concat())
}

fn source(sh: &Shell) -> anyhow::Result<Source> {
    let commit = cmd!(sh, "git rev-parse --short=8 HEAD").quiet().ignore_stderr().read().unwrap_or_else(|_| "unknown".into());
    let dirty =
        cmd!(sh, "git status --porcelain --untracked-files=no").quiet().ignore_stderr().read().is_ok_and(|changed| !changed.is_empty());
    Ok(Source::new(commit, dirty))
}

/// Whether the committed record is of the files that there are, and good enough.
fn check(root: &Path, files: &BTreeMap<String, String>, argued: &[record::Equivalent]) -> anyhow::Result<ExitCode> {
    let mut record = Record::read(&root.join(RECORD))?;
    record.argue(argued)?;
    let stale = record.stale(files)?;
    for file in &stale {
        println!("{file} has changed since its mutants ran: `cargo xtask judge-mutants --stale --json {RECORD}`");
    }
    let gone: Vec<&String> = record.files.keys().filter(|file| !files.contains_key(*file)).collect();
    gone.iter().for_each(|file| println!("{file} is gone, and {RECORD} has it"));
    let unknown = record.unknown(argued);
    unknown.iter().for_each(|equivalent| println!("{EQUIVALENTS} has a mutant that {RECORD} has not: {equivalent:?}"));
    let few = record.summary.total < SAMPLE;
    if few {
        println!("{RECORD} has {} mutants, at least {SAMPLE} are wanted", record.summary.total);
    }
    let status = report(&record);
    Ok(if few || !stale.is_empty() || !gone.is_empty() || !unknown.is_empty() { ExitCode::from(FINDING) } else { status })
}

/// Prints what was missed and the score.
fn report(record: &Record) -> ExitCode {
    let summary = &record.summary;
    for case in record.cases.iter().filter(|case| case.is_missed()) {
        println!("missed: {}", case.shown());
    }
    println!(
        "{} mutants of {} files: {} caught, {} equivalent, {} survived, {} not reached: {:.1} % of what is wrong",
        summary.total,
        record.files.len(),
        summary.caught,
        summary.equivalent,
        summary.survived,
        summary.not_reached,
        summary.score()
    );
    if summary.score() < ENOUGH { ExitCode::from(FINDING) } else { ExitCode::SUCCESS }
}

/// A mutant, in a line.
fn shown(candidate: &Candidate) -> String {
    let of = &candidate.mutation;
    line(&candidate.file, of.line, &of.function, &of.change, &of.text)
}

fn line(file: &str, line: usize, function: &str, change: &str, text: &str) -> String {
    let text = if text.is_empty() { String::new() } else { format!(" in `{text}`") };
    format!("{file}:{line} {function}: {change}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, String> {
        Options::parse(&arguments.iter().map(OsString::from).collect::<Vec<_>>()).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_parsed() {
        let options = parsed(&["--sample", "20", "--only", "oracle", "--resume", "--longest", "2.5"]).unwrap();
        assert_eq!((options.sample, options.only.as_deref(), options.resume, options.limits.longest), (20, Some("oracle"), true, 2.5));
        assert_eq!(parsed(&["--sample"]).err().unwrap(), "--sample wants a value");
        assert_eq!(parsed(&["--jobs", "none"]).err().unwrap(), "none is no number above 0");
        assert!(parsed(&["--stale", "--missed"]).is_err());
        assert!(parsed(&["--all"]).err().unwrap().contains("takes no `--all`"));
    }

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    fn files_that_judge() -> BTreeMap<String, String> {
        let sh = Shell::new().unwrap();
        sh.change_dir(root());
        let tracked: Vec<String> = cmd!(sh, "git ls-files").quiet().read().unwrap().lines().map(str::to_owned).collect();
        targets(root(), &tracked).unwrap()
    }

    /// If this fails, a mutant counts as one that does nothing wrong, and the record does not have it, or has a test that catches it.
    #[test]
    fn equivalents_are_of_the_record() {
        let mut record = Record::read(&root().join(RECORD)).unwrap();
        let argued = record::equivalents(&fs::read_to_string(root().join(EQUIVALENTS)).unwrap()).unwrap();
        let before = record.clone();
        record.argue(&argued).unwrap();
        assert!(record.unknown(&argued).is_empty(), "{:?}", record.unknown(&argued));
        assert_eq!(record, before, "{EQUIVALENTS} has changed since the record was written");
    }

    /// If this fails, the score that README.md quotes is of another judge, or too low.
    #[test]
    fn record_is_of_the_judge_that_there_is() {
        let (record, files) = (Record::read(&root().join(RECORD)).unwrap(), files_that_judge());
        let stale = record.stale(&files).unwrap();
        let again = format!("cargo xtask judge-mutants --stale --json {RECORD}");
        assert!(stale.is_empty(), "the code of {} has changed since its mutants ran: `{again}`", stale.join(", "));
        assert!(record.files.keys().all(|file| files.contains_key(file)), "the record has files that are gone: `{again}`");
        assert!(record.summary.total >= SAMPLE && record.summary.score() >= ENOUGH, "{:?}", record.summary);
    }

    /// If this fails, a part of the judge has become something that the mutator does not read, and nobody sees that it has no mutants.
    #[test]
    fn every_target_has_mutants() {
        let files = files_that_judge();
        let candidates = sample::candidates(&files).unwrap();
        assert!(candidates.len() > 3000, "{}", candidates.len());
        let quotas = sample::quotas(&candidates, SAMPLE);
        assert!(quotas.values().sum::<usize>() >= SAMPLE);
        for part in [
            "oracle",
            "compare",
            "runner",
            "scenario",
            "diagnosis",
            "waivers",
            "strategy",
            "schedule",
            "races/clock",
            "memory/access",
            "numerics/float",
        ] {
            assert!(quotas.keys().any(|file| file.contains(part)), "{part} has no mutants");
        }
    }
}
