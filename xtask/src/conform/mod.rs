//! `validate` and `test-gpu`: selected cases, judged on the emulator in this process or on GPUs in worker processes.

mod github;
mod judges;
mod presentation;
mod selection;

use std::{
    fs,
    num::NonZeroUsize,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use passmuster::{
    algorithms::Target,
    conformance::{
        AnyCase, List, Status, Verdict, generate,
        report::{Record, junit, table, today},
        supervisor::StartError,
        waivers,
    },
    emulator::{Interleaving, MultimemReduction, Profile},
    kernels::Library,
};
use xshell::Shell;

pub(crate) use judges::{Judge, Judged, Judging, named};
pub(crate) use presentation::progress_bar;

use self::{
    presentation::{announced, concluded, explain, named_schedules, quoted, waived},
    selection::{Part, Replay},
};
use crate::{
    CANNOT_RUN, FINDING, INCONCLUSIVE, USAGE,
    emulated::{self, Emulated},
    foreign::{Elsewhere, Known},
    print, project, units,
    worker::{EMULATOR, Gpus, Machine, On},
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
    #[command(flatten)]
    gpus: Gpus,
}

/// Judge an algorithm: the conformance of the selected cases, on the emulator.
///
/// QUERY is a list (smoke, merge, faults), a case id, or a pattern over the ids of the merge list: any part may be `*`, a list or left
/// out, as in 'all_reduce/*:bf16,*:w=3,5'. The emulator runs the kernels' PTX on the CPU under a schedule that the seed decides; the library calls of
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
    #[arg(long, help_heading = EMULATOR, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    schedules: u32,
    /// Write what ranks, streams, blocks and waits of one case did, for ui.perfetto.dev or chrome://tracing; the times are emulated. Under several
    /// schedules, that of the last one, which is the one that found something.
    #[arg(long, help_heading = EMULATOR, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    elsewhere: Elsewhere,
    /// The most memory of all ranks' buffers together on the emulator, as in 512M; 8G by default.
    #[arg(long, help_heading = EMULATOR, value_name = "SIZE", value_parser = units::size)]
    memory: Option<u64>,
    #[command(flatten)]
    machine: Machine,
}

const VALIDATE_EXAMPLES: &str = "\
Examples:
  cargo xtask validate                  the smoke list, on the CPU
  cargo xtask validate 'all_reduce/two_shot:bf16,*:w=3,5'    of the merge list
  cargo xtask validate --seed 7         other inputs, sequences and schedules
  cargo xtask validate --schedules 20   each case under twenty schedules
  cargo xtask validate --machine cuda   on this machine's GPUs

Your own kernel, from its PTX and a page of TOML (docs/foreign-kernels.md):
  cargo xtask validate --ptx mine.ptx --spec mine.toml

A finding again, as its report says; and what its ranks did, as a picture:
  cargo xtask validate --replay 'all_reduce/two_shot:f32,sum:w=8:n=9@stalled-5f'
  cargo xtask validate 'all_reduce/two_shot:bf16,sum:w=4:n=9' --trace trace.json";

const EXAMPLES: &str = "\
Examples:
  cargo xtask test-gpu                            the smoke list
  cargo xtask test-gpu merge --json merge.json    before a merge
  cargo xtask test-gpu faults                     is each planted fault named?
  cargo xtask test-gpu 'all_reduce/two_shot:bf16,*:w=3,5'    of the merge list
  cargo xtask test-gpu --replay 'all_reduce/two_shot:bf16,sum:w=8:n=1040'
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
    limit: Option<NonZeroUsize>,
    /// One part of several of the selected cases, which take turns: 2/3 is the second of three. For a machine that is lent for less time than a
    /// list takes.
    #[arg(long, value_name = "K/N")]
    part: Option<Part>,
    /// How long one case may run on the machine: seconds, or with a unit, as in 2min; 10 s by default, 60 s on the emulator.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    deadline: Option<Duration>,
    /// How long to look for a smaller case for each of the first three findings; 0 to leave them as they are.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = units::duration)]
    shrink: Duration,
    /// List what was waived in full, and not only how often.
    #[arg(long)]
    waivers: bool,
    /// Write the record of the run (docs/record-schema.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

impl TestGpu {
    pub(crate) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        self.cases.run(&Run::plain("test-gpu", On::Cuda, self.gpus.into()), sh)
    }
}

impl Validate {
    pub(crate) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        let Validate { cases, on, schedules, trace, elsewhere, memory, machine } = self;
        if (memory.is_some() || trace.is_some()) && on == On::Cuda {
            bail!("--memory and --trace are for --machine emulator");
        }
        let mut run = Run { memory, schedules, trace, ..Run::plain("validate", on, machine) };
        run.known = elsewhere.register(&mut run.library, on)?;
        run.elsewhere = elsewhere.arguments();
        run.ptx = elsewhere.ptx;
        cases.run(&run, sh)
    }
}

/// What a command adds to the cases.
struct Run {
    /// Its name.
    kind: &'static str,
    on: On,
    machine: Machine,
    library: Library,
    /// The options that name a kernel from elsewhere, again.
    elsewhere: Vec<String>,
    known: Option<Known>,
    /// The PTX of that kernel.
    ptx: Option<PathBuf>,
    memory: Option<u64>,
    /// The emulator's schedules of each case.
    schedules: u32,
    trace: Option<PathBuf>,
}

impl Run {
    /// Nothing but the command and its machine.
    fn plain(kind: &'static str, on: On, machine: Machine) -> Run {
        Run {
            kind,
            on,
            machine,
            library: Library::default(),
            elsewhere: Vec::new(),
            known: None,
            ptx: None,
            memory: None,
            schedules: 1,
            trace: None,
        }
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
            cases.iter().for_each(|case| println!("{case}"));
            return Ok(ExitCode::SUCCESS);
        }
        if self.plan {
            for case in cases.iter().take_while(|_| print::is_read()) {
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
        if cases.len() > 1 {
            eprintln!("{}", announced(cases.len(), schedules.len(), on));
        }
        let (mut machine, mut verdicts) = match judge.all(&cases, &|_| ()) {
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
            smaller.push((verdict.case.clone(), shrink(&mut *judge, case, verdict, self.shrink)));
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
        let waived = waived(&mut verdicts);
        let told: Vec<&String> =
            if self.waivers { waived.races.iter().chain(&waived.cases).collect() } else { waived.by_name.iter().collect() };
        told.into_iter().for_each(|line| println!("{line}"));
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
        record.notes.extend(waived.races);
        record.notes.push(match on {
            On::Cuda => "multimem is validated on the emulator only: nothing here creates NVLink multicast objects, and NCCL ran with \
                         NCCL_NVLS_ENABLE=0"
                .into(),
            On::Emulator => format!(
                "every case ran under {}; races were judged in profile {}; multimem sums were {}, and no hardware was asked",
                named_schedules(&schedules),
                Profile::from(run.machine.profile),
                run.machine.multimem.name()
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
        let verdict = concluded(&record.summary, seconds);
        if github::listens() {
            let told = |verdict: &&Verdict| verdict.status.is_finding() || verdict.status == Status::InfraError;
            let found: Vec<_> = cases.iter().zip(&record.cases).filter(|(_, verdict)| told(verdict)).collect();
            let command = self.command(run);
            github::annotations(&command, &found, run.ptx.as_deref()).iter().for_each(|line| println!("{line}"));
            github::summarise(kind, &verdict, &command, &found);
        }
        println!("{verdict}");
        let of = |status| record.summary.by_status.get(&status).copied().unwrap_or(0);
        Ok(if record.summary.has_findings() {
            ExitCode::from(FINDING)
        } else if of(Status::InfraError) > 0 {
            ExitCode::from(USAGE)
        } else if of(Status::Inconclusive) > 0 {
            ExitCode::from(INCONCLUSIVE)
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
        let deadline = |default| self.deadline.unwrap_or(Duration::from_secs(default));
        Ok(match run.on {
            On::Cuda => Box::new(Judge::new(&run.machine, &run.elsewhere, deadline(10))),
            On::Emulator => {
                let mut options = run.machine.emulator(run.library.clone(), self.seed)?;
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
        let mode = run.machine.multimem;
        let multimem =
            if on == On::Emulator && mode != MultimemReduction::default() { format!(" --multimem {}", mode.name()) } else { String::new() };
        let profile = Profile::from(run.machine.profile);
        let profile = if on == On::Emulator && profile != Profile::default() { format!(" --profile {profile}") } else { String::new() };
        format!("{} {kind}{machine}{elsewhere}{memory}{multimem}{profile}", project::invocation())
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

/// Writes a record, or says why it cannot.
pub(crate) fn write_record<C: serde::Serialize>(path: &std::path::Path, record: &Record<C>) -> anyhow::Result<()> {
    fs::write(path, serde_json::to_string(record)?).with_context(|| format!("cannot write {}", path.display()))
}
