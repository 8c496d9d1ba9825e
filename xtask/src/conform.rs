//! `validate` and `test-gpu`: selected cases, judged on the emulator in this process or on GPUs in worker processes.

use std::{
    collections::BTreeMap,
    fs,
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use passmuster::{
    algorithms::{Foreign, Target},
    conformance::{
        AnyCase, Fault, List, Query, Status, Verdict, generate,
        report::{Record, junit, table, today},
        supervisor::{StartError, Supervisor, WorkerCommand},
        waivers,
        worker::Request,
    },
    emulator::{Interleaving, MultimemReduction, Profile},
    kernels::Library,
    machine::MachineInfo,
};
use xshell::Shell;

use crate::{
    CANNOT_RUN, FINDING, USAGE,
    emulated::{self, Emulated},
    foreign::{Elsewhere, Known},
    project,
    worker::{Machine, On},
};

/// Hold algorithms against their contracts and against NCCL on this machine's GPUs.
///
/// QUERY is a list (smoke, merge, faults), a case id, or a pattern over the ids of the merge list: any part may be `*`, a list or left
/// out, as in 'all_reduce/*:bf16,*:w=3,5,7'. Every case makes a script of calls back to back, and every property that applies to it is
/// checked on the results. Without a GPU this exits 3 and says what it looked for.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TestGpu {
    #[command(flatten)]
    cases: Cases,
}

/// Judge an algorithm: the conformance of the selected cases, on the emulator.
///
/// QUERY is as for test-gpu. The emulator runs the kernels' PTX on the CPU under a schedule that the seed decides; the library calls of
/// peers do what the reference does. Races are judged on the paths that this schedule takes, by the PTX memory model and the profile's
/// assumptions about the hardware; what these waive is listed.
#[derive(clap::Args)]
#[command(after_long_help = VALIDATE_EXAMPLES)]
pub(crate) struct Validate {
    #[command(flatten)]
    cases: Cases,
    /// What the cases run on.
    #[arg(long = "machine", value_enum, default_value_t = On::Emulator)]
    on: On,
    /// On the emulator, judge each case under this many schedules, until one finds something: random turns, one rank that lags, changing priorities.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    schedules: u32,
    /// Write what ranks, streams, blocks and waits of one case did, for ui.perfetto.dev or chrome://tracing; the times are emulated. Under several
    /// schedules, that of the last one, which is the one that found something.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    elsewhere: Elsewhere,
    /// The most bytes of buffers of all ranks together on the emulator; 8 GiB by default.
    #[arg(long, value_name = "BYTES")]
    memory: Option<u64>,
}

const VALIDATE_EXAMPLES: &str = "\
Examples:
  cargo xtask validate                                     the smoke list, on the CPU
  cargo xtask validate 'all_reduce/two_shot:bf16,*:w=3,5'  a selection of the merge list
  cargo xtask validate --seed 7                            other inputs, other sequences, another schedule
  cargo xtask validate --schedules 20                      each case under twenty schedules
  cargo xtask validate --machine cuda                      the same on this machine's GPUs
  cargo xtask validate 'all_reduce/two_shot:bf16,sum:w=4:n=1040' --trace two_shot.json
  cargo xtask validate --ptx mine.ptx --spec mine.toml     a kernel from elsewhere (docs/foreign-kernels.md)
  cargo xtask validate --replay 'all_reduce/two_shot:bf16,sum:w=8:n=1040:seed=9f3c@stalled-5f'";

const EXAMPLES: &str = "\
Examples:
  cargo xtask test-gpu                                     the smoke list
  cargo xtask test-gpu merge --json merge.json             what must pass before a merge
  cargo xtask test-gpu 'all_reduce/two_shot:bf16,*:w=3,5'  a selection of the merge list
  cargo xtask test-gpu faults                              does the harness name what it should?
  cargo xtask test-gpu --replay 'all_reduce/two_shot:bf16,sum:w=8:n=1040:seed=9f3c'
  cargo xtask test-gpu --plan 'all_reduce/two_shot:bf16,sum:w=2:n=1040'";

#[derive(clap::Args)]
struct Cases {
    /// A list, a case id or a pattern.
    #[arg(default_value = "smoke")]
    query: String,
    /// Run exactly this case, whether or not a list has it; on the emulator also ID@SCHEDULE, as reports have it: exactly this run.
    #[arg(long, value_name = "TOKEN", conflicts_with = "query")]
    replay: Option<String>,
    /// Seed of the lists and of the emulator's schedules: other inputs, other choices, other sequences.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the ids of the selected cases and stop.
    #[arg(long)]
    list: bool,
    /// Print what the selected cases do (buffers, steps, plans) and stop.
    #[arg(long)]
    plan: bool,
    /// At most this many of the selected cases.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// One part of several of the selected cases, which take turns: 2/3 is the second of three. For a machine that is lent for less time than a
    /// list takes.
    #[arg(long, value_name = "K/N")]
    part: Option<Part>,
    /// Seconds that one case may run on the machine; 10 by default, 60 on the emulator.
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<u64>,
    /// Seconds to look for a smaller case for each of the first three findings; 0 to leave them as they are.
    #[arg(long, default_value_t = 20)]
    shrink: u64,
    /// Write the record of the run (docs/record-schema.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    machine: Machine,
}

/// One part of a list of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// From one.
    number: usize,
    of: usize,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let parts = text.split_once('/').and_then(|(number, of)| Some(Part { number: number.parse().ok()?, of: of.parse().ok()? }));
        parts
            .filter(|part| (1..=part.of).contains(&part.number))
            .ok_or_else(|| format!("`{text}` is no part: expected K/N with K from 1 to N"))
    }
}

impl Part {
    fn take<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.number - 1).step_by(self.of).collect()
    }
}

/// What a replay token says: a case, and on the emulator a schedule.
#[derive(Clone)]
struct Replay {
    case: AnyCase,
    schedule: Option<Interleaving>,
}

impl FromStr for Replay {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Replay> {
        let (case, schedule) = text.split_once('@').map_or((text, None), |(case, schedule)| (case, Some(schedule)));
        Ok(Replay { case: case.parse()?, schedule: schedule.map(str::parse).transpose().map_err(anyhow::Error::msg)? })
    }
}

impl TestGpu {
    pub(crate) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        self.cases.run(&Run::plain("test-gpu", On::Cuda), sh)
    }
}

impl Validate {
    pub(crate) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        let Validate { cases, on, schedules, trace, elsewhere, memory } = self;
        if (memory.is_some() || trace.is_some()) && on == On::Cuda {
            bail!("--memory and --trace are for --machine emulator");
        }
        let mut run = Run { memory, schedules, trace, ..Run::plain("validate", on) };
        run.known = elsewhere.register(&mut run.library, on)?;
        run.elsewhere = elsewhere.arguments();
        cases.run(&run, sh)
    }
}

/// What a command adds to the cases.
struct Run {
    /// Its name.
    kind: &'static str,
    on: On,
    library: Library,
    /// The options that name a kernel from elsewhere, again.
    elsewhere: Vec<String>,
    known: Option<Known>,
    memory: Option<u64>,
    /// The emulator's schedules of each case.
    schedules: u32,
    trace: Option<PathBuf>,
}

impl Run {
    /// Nothing but the command and its machine.
    fn plain(kind: &'static str, on: On) -> Run {
        Run { kind, on, library: Library::default(), elsewhere: Vec::new(), known: None, memory: None, schedules: 1, trace: None }
    }
}

/// Findings for which a smaller case is looked for.
const SHRUNK_FINDINGS: usize = 3;

impl Cases {
    fn run(self, run: &Run, sh: &Shell) -> anyhow::Result<ExitCode> {
        let &Run { kind, on, .. } = run;
        let replay = self.replay.as_deref().map(str::parse::<Replay>).transpose()?;
        let cases = self.select(replay.as_ref(), run.known.as_ref().map(|known| known.foreign))?;
        if self.list {
            // A reader such as `head` may go before the end.
            let _ = cases.iter().try_for_each(|case| writeln!(std::io::stdout(), "{case}"));
            return Ok(ExitCode::SUCCESS);
        }
        if self.plan {
            for case in &cases {
                match case.describe(Target::default().waiting_blocks) {
                    Ok(text) => println!("{text}"),
                    Err(reason) => println!("{case}\nnot supported: {reason}\n"),
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        let start = Instant::now();
        if run.trace.is_some() && cases.len() != 1 {
            bail!("--trace is for one case: `{}` selects {}", self.query, cases.len());
        }
        let schedules = self.schedules(replay.as_ref(), run)?;
        let mut judge = self.judge(run, &schedules)?;
        let (mut machine, mut verdicts) = match judge.all(&cases) {
            Ok(done) => done,
            Err(StartError::CannotRun { reason }) => {
                eprintln!("{kind} cannot run on this machine: {reason}");
                return Ok(ExitCode::from(CANNOT_RUN));
            }
            Err(error) => bail!(error),
        };
        let seconds = start.elapsed().as_secs_f64();
        let waivers = waivers::in_force(&machine, &today()).map_err(anyhow::Error::msg)?;
        let whole = self.replay.is_none() && self.limit.is_none() && self.part.is_none() && self.query == List::Merge.name();
        waivers::apply(&waivers, &cases, &mut verdicts, whole);
        let mut smaller = Vec::new();
        for (case, verdict) in cases.iter().zip(&verdicts).filter(|(_, v)| v.status.is_finding()).take(SHRUNK_FINDINGS) {
            smaller.push((verdict.case.clone(), shrink(&mut *judge, case, verdict, Duration::from_secs(self.shrink))));
        }
        drop(judge);

        for verdict in verdicts.iter().filter(|v| v.status.is_finding() || v.status == Status::InfraError) {
            let smaller = smaller.iter().find(|(id, _)| *id == verdict.case).and_then(|(_, text)| text.as_deref());
            print!("{}", explain(&self.command(run), verdict, smaller));
        }
        if verdicts.iter().all(|v| v.status == Status::NotSupported)
            && let Some(first) = verdicts.first()
        {
            eprintln!("no case could run; {}: {}", first.case, first.reason);
        }
        let waived = races_waived(&mut verdicts);
        waived.iter().for_each(|line| println!("{line}"));
        println!("{}", table::outcomes(verdicts.iter().filter_map(table::Outcome::of)));
        if on == On::Cuda {
            machine.notes.extend(project::gpu_settings(sh));
        }
        let mut record = Record::of_verdicts(kind, machine, project::source(sh), verdicts);
        record.notes.push(format!(
            "{} cases in {seconds:.1} s, query {}{}, seed {}",
            cases.len(),
            self.replay.as_ref().unwrap_or(&self.query),
            self.part.map(|part| format!(", part {}/{}", part.number, part.of)).unwrap_or_default(),
            self.seed
        ));
        record.notes.extend(run.known.iter().map(|known| known.note.clone()));
        record.notes.extend(waived);
        record.notes.push(match on {
            On::Cuda => "multimem is validated on the emulator only: nothing here creates NVLink multicast objects, and NCCL ran with \
                         NCCL_NVLS_ENABLE=0"
                .into(),
            On::Emulator => format!(
                "every case ran under {}; races were judged in profile {}; multimem sums were {}, and no hardware was asked",
                named_schedules(&schedules),
                Profile::from(self.machine.profile),
                self.machine.multimem.name()
            ),
        });
        if let Some(note) = (on == On::Emulator).then(|| emulated::not_compared(&cases)).flatten() {
            println!("{note}");
            record.notes.push(note);
        }
        for (path, text) in [(&self.json, serde_json::to_string(&record)?), (&self.junit, junit(&record))] {
            if let Some(path) = path {
                // The verdicts have been printed; a file that cannot be written must not take them back.
                if let Err(error) = fs::write(path, text) {
                    eprintln!("cannot write {}: {error}", path.display());
                }
            }
        }
        println!("{} cases in {seconds:.1} s", cases.len());
        let of = |status| record.summary.by_status.get(&status).copied().unwrap_or(0);
        Ok(if record.summary.has_findings() {
            ExitCode::from(FINDING)
        } else if of(Status::InfraError) > 0 {
            ExitCode::from(USAGE)
        } else if of(Status::Pass) + of(Status::Waived) == 0 {
            ExitCode::from(CANNOT_RUN)
        } else {
            ExitCode::SUCCESS
        })
    }

    /// The emulator's schedules.
    fn schedules(&self, replay: Option<&Replay>, run: &Run) -> anyhow::Result<Vec<Interleaving>> {
        let replayed = replay.and_then(|replay| replay.schedule);
        if run.on == On::Cuda && (replayed.is_some() || run.schedules != 1) {
            bail!("GPUs have no schedules: --schedules and a token's @SCHEDULE are for the emulator");
        }
        Ok(match replayed {
            Some(schedule) => vec![schedule],
            None => (0..run.schedules as usize).map(|n| Interleaving::nth(self.seed, n)).collect(),
        })
    }

    fn judge(&self, run: &Run, schedules: &[Interleaving]) -> anyhow::Result<Box<dyn Judging>> {
        let deadline = |default| Duration::from_secs(self.deadline.unwrap_or(default));
        Ok(match run.on {
            On::Cuda => Box::new(Judge::new(&self.machine, &run.elsewhere, deadline(10))),
            On::Emulator => {
                let mut options = self.machine.emulator(run.library.clone(), self.seed)?;
                options.memory_budget = run.memory.unwrap_or(options.memory_budget);
                let emulated = Emulated::new(options, schedules.to_vec(), deadline(60));
                Box::new(match &run.trace {
                    Some(path) => emulated.traced(path.clone()),
                    None => emulated,
                })
            }
        })
    }

    /// What to type to run a case again as it ran here, before the case.
    fn command(&self, run: &Run) -> String {
        let &Run { kind, on, memory, .. } = run;
        let machine = if kind == "validate" && on == On::Cuda { " --machine cuda" } else { "" };
        let memory = memory.map(|bytes| format!(" --memory {bytes}")).unwrap_or_default();
        let elsewhere: String = run.elsewhere.iter().map(|option| format!(" {}", quoted(option))).collect();
        let mode = self.machine.multimem;
        let multimem =
            if on == On::Emulator && mode != MultimemReduction::default() { format!(" --multimem {}", mode.name()) } else { String::new() };
        let profile = Profile::from(self.machine.profile);
        let profile = if on == On::Emulator && profile != Profile::default() { format!(" --profile {profile}") } else { String::new() };
        format!("{} {kind}{machine}{elsewhere}{memory}{multimem}{profile}", project::invocation())
    }

    /// The cases that are asked for; with a kernel from elsewhere, lists and patterns are of its cases.
    fn select(&self, replay: Option<&Replay>, foreign: Option<&Foreign>) -> anyhow::Result<Vec<AnyCase>> {
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

/// Who judges cases.
pub(crate) trait Judging {
    /// Judges all cases, with a progress bar, and returns the machine and the verdicts in the order of the cases.
    ///
    /// # Errors
    /// Where the machine cannot be started at all.
    fn all(&mut self, cases: &[AnyCase]) -> Result<(MachineInfo, Vec<Verdict>), StartError>;

    /// Judges one case. An injected fault that was named as it should is a pass.
    ///
    /// # Errors
    /// Where the machine cannot be started at all.
    fn one(&mut self, case: &AnyCase) -> Result<Verdict, StartError>;
}

/// Judges cases in worker processes: one for each environment that cases ask for, one at a time.
pub(crate) struct Judge {
    arguments: Vec<String>,
    deadline: Duration,
    supervisor: Option<(BTreeMap<&'static str, &'static str>, Supervisor)>,
}

impl Judge {
    /// `extra` are further arguments of the worker.
    pub(crate) fn new(machine: &Machine, extra: &[String], deadline: Duration) -> Judge {
        let arguments = std::iter::once("worker".into()).chain(machine.arguments()).chain(extra.iter().cloned()).collect();
        Judge { arguments, deadline, supervisor: None }
    }

    /// The machine of the cases that need no particular environment.
    ///
    /// # Errors
    /// Where no worker starts at all.
    pub(crate) fn machine(&mut self) -> Result<MachineInfo, StartError> {
        self.supervisor(&BTreeMap::new())?.machine()
    }

    fn supervisor(&mut self, environment: &BTreeMap<&'static str, &'static str>) -> Result<&mut Supervisor, StartError> {
        if self.supervisor.as_ref().is_none_or(|(current, _)| current != environment) {
            self.supervisor = None;
            let command = WorkerCommand::of_this_program(&self.arguments)
                .map_err(|error| StartError::Failed { reason: error.to_string() })?
                .with_environment(environment);
            self.supervisor = Some((environment.clone(), Supervisor::new(command)));
        }
        Ok(&mut self.supervisor.as_mut().expect("it was just made").1)
    }
}

impl Judging for Judge {
    fn all(&mut self, cases: &[AnyCase]) -> Result<(MachineInfo, Vec<Verdict>), StartError> {
        let mut by_environment: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, case) in cases.iter().enumerate() {
            by_environment.entry(case.environment()).or_default().push(index);
        }
        let bar = progress_bar(cases.len());
        let mut machine = None;
        let mut verdicts: Vec<Option<Verdict>> = vec![None; cases.len()];
        for (environment, indices) in by_environment {
            let info = self.supervisor(&environment)?.machine()?;
            for index in indices {
                let verdict = self.one(&cases[index])?;
                if verdict.status.is_finding() {
                    bar.suspend(|| eprintln!("{} {}: {}", verdict.status, verdict.case, verdict.reason));
                }
                bar.inc(1);
                verdicts[index] = Some(verdict);
            }
            // The machine of the last environment has loaded what the others have, and NCCL besides.
            machine = Some(info);
        }
        bar.finish_and_clear();
        Ok((machine.unwrap_or_default(), verdicts.into_iter().flatten().collect()))
    }

    fn one(&mut self, case: &AnyCase) -> Result<Verdict, StartError> {
        let request = Request::new(case.to_string(), self.deadline + large_case_extra(case));
        let verdict = self.supervisor(&case.environment())?.judge(&request);
        Ok(case.fault().map_or(verdict.clone(), |fault| named(fault, verdict)))
    }
}

/// Schedules, for people.
fn named_schedules(schedules: &[Interleaving]) -> String {
    match schedules {
        [only] => format!("one schedule, {only}"),
        [first, .., last] => format!("{} schedules, {first} to {last}", schedules.len()),
        [] => "no schedule".into(),
    }
}

/// Looks for a smaller case that fails too, and says what was found.
fn shrink(judge: &mut dyn Judging, case: &AnyCase, verdict: &Verdict, budget: Duration) -> Option<String> {
    if budget.is_zero() || case.fault().is_some() {
        return None;
    }
    let start = Instant::now();
    let shrunk = generate::shrink(case, verdict.reason.clone(), budget, |candidate| {
        judge.one(candidate).ok().filter(|v| v.status.is_finding()).map(|v| v.reason)
    });
    (shrunk.case != *case)
        .then(|| format!("{}  ({} tried in {:.1} s): {}", shrunk.case, shrunk.tried, start.elapsed().as_secs_f64(), shrunk.failure))
}

/// More time for payloads that are seconds of copying and comparing: a second for each 128 MiB of all ranks' inputs.
fn large_case_extra(case: &AnyCase) -> Duration {
    Duration::from_secs((case.input_bytes() >> 27).min(600))
}

/// What becomes of a case with an injected fault: a pass where the harness named it.
pub(crate) fn named(fault: Fault, verdict: Verdict) -> Verdict {
    // The second of two is the emulator's.
    let (status, words): (_, &[String]) = match fault {
        Fault::Absent(rank) => (Status::Hang, &[format!("waited for rank {rank} ")]),
        Fault::IllegalAddress(rank) => (
            Status::Crash,
            &["CUDA_ERROR_ILLEGAL_ADDRESS".into(), format!("ranks [{rank}]: kernel `illegal_address` failed: illegal address")],
        ),
        Fault::Killed => (Status::Crash, &["signal 9".into()]),
    };
    if verdict.status == Status::NotSupported {
        return verdict;
    }
    let was_named = verdict.status == status && words.iter().any(|words| verdict.reason.contains(words));
    let reason = if was_named {
        format!("named as {}: {}", verdict.status, verdict.reason)
    } else {
        format!("the fault {fault} was to be a {status} that says `{}`, but was a {}: {}", words[0], verdict.status, verdict.reason)
    };
    Verdict { status: if was_named { Status::Pass } else { Status::Fail }, reason, ..verdict }
}

/// An option as a shell takes it.
fn quoted(option: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@".contains(c);
    if option.chars().all(plain) { option.to_owned() } else { format!("'{}'", option.replace('\'', "'\\''")) }
}

/// A line for each thing that cases were waived, with its assumption and how often it was seen. Only the first case of each keeps it, in full.
fn races_waived(verdicts: &mut [Verdict]) -> Vec<String> {
    let mut all: BTreeMap<(String, String), (usize, u64)> = BTreeMap::new();
    for verdict in verdicts {
        verdict.waived.retain(|waived| {
            let (cases, times) = all.entry((waived.assumption.clone(), waived.what.clone())).or_default();
            *cases += 1;
            *times += waived.times;
            *cases == 1
        });
    }
    let line = |((assumption, what), (cases, times))| format!("waived by `{assumption}`: {what} ({times} times in {cases} cases)");
    all.into_iter().map(line).collect()
}

/// A finding for people.
fn explain(command: &str, verdict: &Verdict, smaller: Option<&str>) -> String {
    let mut text = format!("{} {}\n", verdict.status.name().to_uppercase(), verdict.case);
    if verdict.findings.is_empty() {
        text += &format!("  {}\n", verdict.reason);
    }
    for finding in verdict.findings.iter().take(4) {
        let call = finding.call.map(|call| format!(" call {call}")).unwrap_or_default();
        text += &format!("  {}{call}: {}\n", finding.property, finding.summary);
        for line in finding.details.lines() {
            text += &format!("    {line}\n");
        }
    }
    if verdict.findings.len() > 4 {
        text += &format!("  and {} more findings\n", verdict.findings.len() - 4);
    }
    if let Some(smaller) = smaller {
        text += &format!("  shrunk to  {smaller}\n");
    }
    let schedule = verdict.schedule.as_ref().map(|schedule| format!("@{schedule}")).unwrap_or_default();
    text += &format!("  repro      {command} --replay '{}{schedule}'\n\n", verdict.case);
    text
}

pub(crate) fn progress_bar(cases: usize) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(cases as u64) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{elapsed_precise} {bar:40} {pos}/{len} {eta} left {msg}").expect("a valid template"));
    bar
}

/// Writes a record, or says why it cannot.
pub(crate) fn write_record<C: serde::Serialize>(path: &std::path::Path, record: &Record<C>) -> anyhow::Result<()> {
    fs::write(path, serde_json::to_string(record)?).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a list that is judged in parts loses cases.
    #[test]
    fn parts_make_up_the_whole() {
        let part = |text: &str| text.parse::<Part>().unwrap().take((0..8).collect());
        assert_eq!([part("1/3"), part("2/3"), part("3/3")], [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
        assert_eq!(part("1/1"), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for text in ["0/3", "4/3", "2", "a/b", "1/"] {
            assert_eq!(text.parse::<Part>().unwrap_err(), format!("`{text}` is no part: expected K/N with K from 1 to N"));
        }
    }
}
