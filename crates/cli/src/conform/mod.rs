//! `validate` and `test-gpu`: selected cases, judged on the emulator in this process or on GPUs in worker processes.

mod files;
mod github;
#[cfg(feature = "bench")]
mod merge;
mod presentation;
mod selection;

use std::{
    fs,
    num::NonZeroUsize,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;
use passmuster_bootstrap::{Bootstrap, Rank};
use passmuster_harness::{
    conformance::{
        Case, Fault, List, Status, Verdict, causes, coverage,
        report::{Assumed, Part, Record, Selection, Summary, WaivedRace, first_note, is_not_compared, table, today},
        shrink,
        supervisor::StartError,
        waivers::{self, Waiver},
    },
    emulator::{Coverage, EmulatorOptions, Interleaving, MultimemReduction, Profile, Strategy, TensorCores},
};
use passmuster_plan::{
    algorithms::{Algorithm, Registry, Target},
    device::DeviceModel,
    library::Library,
    machine::MachineError,
};
use xshell::Shell;

use self::{
    files::Files,
    presentation::{MOST_PLACES, UNCOUNTED, announced, announced_foreign, concluded, named_schedules, rests_on, uncounted},
    selection::Replay,
};
use crate::{
    CANNOT_RUN, FINDING,
    by_ranks::{self, ByRanks, RankMachine},
    emulated::{self, Emulated},
    exit,
    foreign::{ForeignArgs, Known, RegisteredKernel},
    gpus::Gpus,
    journal::{self, EVERY, Journal},
    judging::{Judge, Judging},
    launch::{Job, LaunchArgs, Part as Process},
    modules, print, project,
    require::Require,
    resume::Resumed,
    spread::{self, Spread},
    units,
    worker::{EMULATOR, Machine, MachineKind, RaceProfile},
};

#[cfg(feature = "bench")]
pub(crate) use merge::merged;

/// Test kernels on this machine's GPUs, against their contracts and NCCL.
///
/// QUERY is a list (smoke, merge, faults), a case id, or a pattern over the ids of the merge list. In a pattern, any part may be `*`, a list or left out:
/// 'all_reduce/*:bf16,*:w=3,5,7'. Each case runs a script of calls back to back, and checks every property that applies to the results. Without a GPU the command
/// exits 3 and says what it looked for.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TestGpu {
    #[command(flatten)]
    cases: Cases,
    #[command(flatten)]
    elsewhere: ForeignArgs,
    #[command(flatten)]
    gpus: Gpus,
    #[command(flatten)]
    launch: LaunchArgs,
}

/// Test kernels on the emulator; no GPU is needed.
///
/// QUERY is a list (smoke, merge, faults), a case id, or a pattern over the ids of the merge list. In a pattern, any part may be `*`, a list or left out:
/// 'all_reduce/*:bf16,*:w=3,5'. The emulator runs the kernels' PTX on the CPU, under a schedule that the seed decides. In place of NCCL it computes the reference.
/// It reports races on the paths that the schedule takes, by the PTX memory model and the assumptions of the profile, and lists what those assumptions waive.
#[derive(clap::Args)]
#[command(after_long_help = VALIDATE_EXAMPLES)]
pub(crate) struct Validate {
    #[command(flatten)]
    cases: Cases,
    /// Where the cases run.
    #[arg(long = "machine", value_enum, default_value_t = MachineKind::Emulator)]
    on: MachineKind,
    /// Run each case under N schedules, until one finds something. Kinds take turns: random turns, one slow rank, changing priorities, late stores. The
    /// default is 1, and 4 with --spec.
    #[arg(long, help_heading = EMULATOR, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    schedules: Option<u32>,
    /// Thread instructions after which a run is inconclusive. The default is 2^34.
    #[arg(long, help_heading = EMULATOR, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Write what ranks, streams, blocks and waits of one case did, for ui.perfetto.dev or chrome://tracing. Times are emulated. With several schedules, it is
    /// the last one: the one that found something.
    #[arg(long, help_heading = EMULATOR, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    elsewhere: ForeignArgs,
    /// Show what the cases executed of each kernel: instructions, both sides of branches, and waits with each side last. Names what was not executed; --json has
    /// all of it.
    #[arg(long, help_heading = EMULATOR)]
    coverage: bool,
    /// Write the coverage as an LCOV file, for genhtml, editors and CI services. Lines are source lines, or lines of PTX if it has no .loc.
    #[arg(long, help_heading = EMULATOR, value_name = "FILE")]
    lcov: Option<PathBuf>,
    /// Memory for the buffers of all ranks together, as in 512M. The default is 8G, or less if the machine has less.
    #[arg(long, help_heading = EMULATOR, value_name = "SIZE", value_parser = units::size)]
    memory: Option<u64>,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    launch: LaunchArgs,
}

const VALIDATE_EXAMPLES: &str = "\
Examples:
  cargo xtask validate                  the smoke list, on the CPU
  cargo xtask validate 'all_reduce/two_shot:bf16,*:w=3,5'    of the merge list
  cargo xtask validate --seed 7         other inputs, sequences and schedules
  cargo xtask validate --schedules 20   each case under twenty schedules
  cargo xtask validate --profile ptx    by the PTX ISA alone, nothing assumed
  cargo xtask validate --coverage       and what of the kernels they executed
  cargo xtask validate --machine cuda   on this machine's GPUs

Your own kernel, its PTX and a page of TOML (docs/tutorial-foreign-kernel.md):
  cargo xtask validate --ptx mine.ptx --spec mine.toml
  cargo xtask validate faults --spec mine.toml   a rank that stays away

A finding again, as its report says; and what its ranks did, as a picture:
  cargo xtask validate --replay 'all_reduce/two_shot:f32,sum:w=8:n=9@stalled-5f'
  cargo xtask validate 'all_reduce/two_shot:bf16,sum:w=4:n=9' --trace trace.json";

const EXAMPLES: &str = "\
Examples:
  cargo xtask test-gpu                            the smoke list
  cargo xtask test-gpu merge --json merge.json    before a merge
  cargo xtask test-gpu faults                     is each planted fault named?
  cargo xtask test-gpu faults --spec mine.toml --bound-waits
  cargo xtask test-gpu 'all_reduce/two_shot:bf16,*:w=3,5'    of the merge list
  cargo xtask test-gpu --replay 'all_reduce/two_shot:bf16,sum:w=8:n=1040'
  cargo xtask test-gpu --plan 'all_reduce/two_shot:bf16,sum:w=2:n=1040'";

#[derive(clap::Args)]
struct Cases {
    /// A list, a case id or a pattern.
    #[arg(default_value = "smoke")]
    query: String,
    /// Run exactly this case, in a list or not. On the emulator, ID@SCHEDULE repeats exactly one run; reports print it.
    #[arg(long, value_name = "TOKEN", conflicts_with = "query")]
    replay: Option<String>,
    /// Leave out the cases that this pattern selects, as in '*:*,*:n=2147483657'.
    #[arg(long, value_name = "PATTERN", conflicts_with = "replay")]
    except: Option<String>,
    /// Seed of the lists and of the emulator's schedules. Another seed draws other inputs and sequences.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the ids of the selected cases and stop.
    #[arg(long)]
    list: bool,
    /// Print what the selected cases do (buffers, steps, plans) and stop.
    #[arg(long)]
    plan: bool,
    /// Run at most N of the selected cases.
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    /// Run one part of the selected cases: 2/3 runs the second of every three.
    #[arg(long, value_name = "K/N")]
    part: Option<Part>,
    /// How long a case may run: seconds, or with a unit, as in 2min. The default is 10 s on GPUs. On the emulator it is 10 min a schedule; then the case is
    /// inconclusive.
    #[arg(long, value_name = "TIME", value_parser = units::duration_above_zero)]
    deadline: Option<Duration>,
    /// How long to look for a smaller case, for each of the first three causes of findings. 0 turns it off.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = units::duration)]
    shrink: Duration,
    /// Show every case that failed, in full. Without it, cases that fail of one cause are shown once: the smallest of them, and how many others there are.
    #[arg(long, short)]
    verbose: bool,
    /// List everything that was waived, not only the most frequent places.
    #[arg(long)]
    list_waived: bool,
    /// Your known findings (TOML, as fixtures/waivers.toml), in addition to the known bugs of NCCL. A waiver has a reason, an owner and a last day. It covers a
    /// failure if it names all of its findings.
    #[arg(long, value_name = "FILE", value_parser = own_waivers)]
    waivers: Option<Waivers>,
    /// Exit 1 if a case passed only because of a hardware assumption or a waiver.
    #[arg(long)]
    fail_on_waived: bool,
    /// Write the record of the run (docs/reference/record-schema.md). An interrupted run leaves FILE.partial.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Continue an interrupted run: keep the verdicts of its record and run the rest. Sources, machine and options must be the same.
    #[arg(long, value_name = "RECORD", requires = "json")]
    resume: Option<PathBuf>,
    /// Seconds between two writes of FILE.partial, beside the file of --json.
    #[arg(long, value_name = "SECONDS", default_value_t = EVERY)]
    keep_every: u64,
    /// Write the results as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    require: Require,
}

impl TestGpu {
    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let TestGpu { cases, elsewhere, gpus, launch } = self;
        let run = Run { launch: launch.on_gpus(), ..Run::plain("test-gpu", registry, MachineKind::Cuda, gpus.into()) };
        cases.run(&run.with(&elsewhere)?, sh)
    }

    /// Whether this process may open GPUs itself, as that of a rank does.
    pub(crate) fn opens_gpus(&self) -> bool {
        self.launch.clone().on_gpus().is_of_a_rank()
    }
}

impl Validate {
    /// As [`TestGpu::opens_gpus`].
    pub(crate) fn opens_gpus(&self) -> bool {
        self.on == MachineKind::Cuda && self.launch.clone().on_gpus().is_of_a_rank()
    }

    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let Validate { cases, on, schedules, steps, trace, coverage, lcov, elsewhere, memory, mut machine, launch } = self;
        let launch = if on == MachineKind::Cuda { launch.on_gpus() } else { launch };
        if launch.has_ranks() {
            // Processes that share memory do not see each other's accesses.
            machine.profile = RaceProfile::Off;
        }
        if (memory.is_some() || trace.is_some() || steps.is_some()) && on == MachineKind::Cuda {
            bail!("--memory, --steps and --trace are for --machine emulator");
        }
        let coverage = (coverage || lcov.is_some()).then(Arc::<Coverage>::default);
        if coverage.is_some() {
            cases.can_cover(on, &launch)?;
        }
        // A kernel that nobody here has run before gets one schedule of each kind.
        let several = elsewhere.any() && on == MachineKind::Emulator && !launch.has_ranks();
        let default = if several { Strategy::ALL.len() as u32 } else { 1 };
        let schedules = schedules.unwrap_or(default);
        let run = Run { memory, schedules, steps, trace, coverage, lcov, launch, ..Run::plain("validate", registry, on, machine) };
        cases.run(&run.with(&elsewhere)?, sh)
    }
}

/// What a command adds to the cases.
struct Run {
    /// Its name.
    kind: &'static str,
    on: MachineKind,
    machine: Machine,
    registry: Registry,
    library: Library,
    /// The options that name a kernel from elsewhere, again.
    elsewhere: Vec<String>,
    known: Vec<RegisteredKernel>,
    memory: Option<u64>,
    /// The emulator's schedules of each case.
    schedules: u32,
    /// The most thread instructions of one run there.
    steps: Option<u64>,
    trace: Option<PathBuf>,
    /// What the cases execute, if that is asked for, and where it goes as LCOV.
    coverage: Option<Arc<Coverage>>,
    lcov: Option<PathBuf>,
    launch: LaunchArgs,
}

impl Run {
    /// Nothing but the command and its machine.
    fn plain(kind: &'static str, registry: &Registry, on: MachineKind, machine: Machine) -> Run {
        Run {
            kind,
            on,
            machine,
            registry: registry.clone(),
            library: registry.library(),
            elsewhere: Vec::new(),
            known: Vec::new(),
            memory: None,
            schedules: 1,
            steps: None,
            trace: None,
            coverage: None,
            lcov: None,
            launch: LaunchArgs::default(),
        }
    }

    /// With these kernels from elsewhere.
    fn with(mut self, elsewhere: &ForeignArgs) -> anyhow::Result<Run> {
        let Known { registry, library, foreign } = elsewhere.beside_in(&self.registry, self.library, self.on)?;
        (self.registry, self.library, self.known) = (registry, library, foreign);
        self.elsewhere = elsewhere.arguments();
        Ok(self)
    }
}

/// Causes for which a smaller case is looked for.
const SHRUNK_FINDINGS: usize = 3;

impl Cases {
    fn run(self, run: &Run, sh: &Shell) -> anyhow::Result<ExitCode> {
        let replay = self.replay.as_deref().map(str::parse::<Replay>).transpose()?;
        let cases = self.select(replay.as_ref(), &run.registry, &run.known)?;
        if self.list {
            cases.iter().for_each(|case| println!("{case}"));
            return Ok(ExitCode::SUCCESS);
        }
        if self.plan {
            for case in cases.iter().take_while(|_| print::is_read()) {
                match case.describe(&run.registry, Target::default().waiting_blocks) {
                    Ok(text) => println!("{text}"),
                    Err(reason) => println!("{case}\nnot supported: {reason}\n"),
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        if run.trace.is_some() && cases.len() != 1 {
            bail!("--trace is for one case: `{}` selects {}", self.query, cases.len());
        }
        let schedules = self.schedules(replay.as_ref(), run)?;
        let together = self.together(run)?;
        if let Process::Member(mut rank) = together {
            return match self.serve(run, &schedules, &rank) {
                Ok(()) => Ok(ExitCode::SUCCESS),
                // The coordinator says why.
                Err(error) if matches!(error.downcast_ref(), Some(StartError::CannotRun { .. })) => Ok(ExitCode::from(CANNOT_RUN)),
                Err(error) => {
                    // The others are to know why.
                    rank.give_up(&format!("{error:#}"));
                    Err(error)
                }
            };
        }
        let files = Files::open(&self, run)?;
        let judge = self.judge(run, &schedules, &files, together);
        let run = Conformance { asked: &self, run, cases, schedules, files };
        let (record, smaller, written) = match judge.and_then(|mut judge| run.judge(&mut *judge, sh)) {
            Ok(judged) => judged,
            Err(error) => match error.downcast_ref::<StartError>() {
                Some(StartError::CannotRun { reason }) => {
                    eprintln!("{} cannot run on this machine: {reason}", run.run.kind);
                    return Ok(ExitCode::from(CANNOT_RUN));
                }
                _ => return Err(error),
            },
        };
        run.tell(&record, &smaller);
        // The verdicts have been printed; a file that cannot be written must not take them back.
        written?;
        let mut status = if self.fail_on_waived && is_waived(&record) { FINDING.into() } else { exit_status(&record.summary) };
        if status == ExitCode::SUCCESS
            && let Some(verdict) = unjudged_absences(&run.cases, &record.cases)
        {
            eprintln!("no rank that stays away was judged; {}: {}", verdict.case, verdict.reason);
            status = ExitCode::from(CANNOT_RUN);
        }
        Ok(self.require.exit_of_record(status, &record))
    }

    /// Whether what is executed can be told of all the cases.
    fn can_cover(&self, on: MachineKind, launch: &LaunchArgs) -> anyhow::Result<()> {
        if on == MachineKind::Cuda || launch.is_asked_for() || launch.has_ranks() {
            bail!("--coverage and --lcov are for --machine emulator in one process, without --launcher");
        }
        if self.part.is_some() || self.resume.is_some() {
            bail!("--coverage and --lcov are of all cases in one run: without --part and --resume");
        }
        Ok(())
    }

    /// The emulator's schedules.
    fn schedules(&self, replay: Option<&Replay>, run: &Run) -> anyhow::Result<Vec<Interleaving>> {
        let replayed = replay.and_then(|replay| replay.schedule);
        if run.on == MachineKind::Cuda && (replayed.is_some() || run.schedules != 1) {
            bail!("GPUs have no schedules: --schedules and a token's @SCHEDULE are for the emulator");
        }
        if run.launch.has_ranks() && run.schedules != 1 {
            bail!("--schedules: ranks that are processes run as their hosts let them, and have one schedule");
        }
        Ok(match replayed {
            Some(schedule) => vec![schedule],
            None => (0..run.schedules as usize).map(|n| Interleaving::nth(self.seed, n)).collect(),
        })
    }

    /// What this process is of those that judge the cases together.
    fn together(&self, run: &Run) -> anyhow::Result<Process> {
        if run.on == MachineKind::Emulator && run.launch.nodes() > 1 {
            bail!("--nodes is for GPUs: on the emulator ranks are on as many nodes as a case says");
        }
        if run.on == MachineKind::Emulator && run.trace.is_none() {
            return run.launch.join();
        }
        if run.on == MachineKind::Cuda && run.launch.has_ranks() {
            return run.launch.join();
        }
        match run.launch.is_asked_for() {
            true if run.on == MachineKind::Cuda => {
                bail!(
                    "--launcher on GPUs: the ranks of each case are processes, as many as --processes N says; cases are shared out on the emulator only"
                )
            }
            true => bail!("--launcher: several processes share out cases of the emulator, and without --trace"),
            false => Ok(Process::Alone),
        }
    }

    fn judge(&self, run: &Run, schedules: &[Interleaving], files: &Files, together: Process) -> anyhow::Result<Box<dyn Judging>> {
        if run.launch.has_ranks()
            && let Process::Coordinator(job, own) = together
        {
            return Ok(Box::new(self.by_ranks(run, schedules, job, own)?));
        }
        if run.on == MachineKind::Cuda {
            return Ok(Box::new(Judge::new(&run.registry, &run.machine, &run.elsewhere, self.deadline.unwrap_or(Duration::from_secs(10)))));
        }
        let emulated = self.emulated(run, schedules)?;
        Ok(match (together, files.traced()) {
            (Process::Coordinator(job, own), _) => {
                let own = own.map(|rank| Ok::<_, anyhow::Error>((rank, self.emulated(run, schedules)?.config()))).transpose()?;
                Box::new(Spread::new(job, self.asked(run, schedules), emulated, own))
            }
            (_, Some(trace)) => Box::new(emulated.traced(trace)),
            (_, None) => Box::new(emulated),
        })
    }

    /// Who judges on ranks that are processes. Where this one is a rank as well, it is `own`.
    fn by_ranks(&self, run: &Run, schedules: &[Interleaving], job: Job, own: Option<Rank>) -> anyhow::Result<ByRanks> {
        if let Some(mut rank) = own {
            let machine = self.rank_machine(run, schedules, &rank)?;
            // If it fails, the coordinator learns of it, as of any rank.
            let registry = run.registry.clone();
            thread::spawn(move || by_ranks::serve(&registry, &rank, machine).unwrap_or_else(|error| rank.give_up(&format!("{error:#}"))));
        }
        let launch = run.launch.clone();
        let again = launch.starts_them().then(|| Box::new(move |lost, environment: &_| launch.start(lost, environment)) as by_ranks::Again);
        let on_gpus = run.on == MachineKind::Cuda;
        let default = if on_gpus { by_ranks::DEADLINE_OF_GPUS } else { by_ranks::DEADLINE };
        let silence = if on_gpus { run.machine.gpus.wait_limit + by_ranks::SILENCE } else { by_ranks::SILENCE };
        let schedule = (!on_gpus).then_some(schedules[0]);
        ByRanks::open(&run.registry, job, again, schedule, self.deadline.unwrap_or(default), silence).map_err(|error| match error {
            MachineError::NotSupported { reason } if on_gpus => StartError::CannotRun { reason }.into(),
            error => error.into(),
        })
    }

    /// What the process of a rank opens.
    fn rank_machine(&self, run: &Run, schedules: &[Interleaving], rank: &Rank) -> anyhow::Result<RankMachine> {
        Ok(match run.on {
            MachineKind::Emulator => RankMachine::Emulator(self.options(run)?.with(schedules[0])),
            MachineKind::Cuda => {
                let (gpus, library) = (run.machine.gpus.clone(), run.library.clone());
                RankMachine::Cuda { gpus, library, local_rank: run.launch.local_rank(rank.rank())?, nodes: run.launch.nodes() }
            }
        })
    }

    /// Does what the coordinator asks.
    fn serve(&self, run: &Run, schedules: &[Interleaving], rank: &Rank) -> anyhow::Result<()> {
        if run.launch.has_ranks() {
            return by_ranks::serve(&run.registry, rank, self.rank_machine(run, schedules, rank)?);
        }
        spread::serve(rank, &self.emulated(run, schedules)?.config(), self.asked(run, schedules))
    }

    /// What emulators are opened with.
    fn options(&self, run: &Run) -> anyhow::Result<EmulatorOptions> {
        let mut options = run.machine.emulator(run.library.clone(), self.seed)?;
        options.memory_budget = run.memory.unwrap_or(options.memory_budget);
        options.steps = run.steps.unwrap_or(options.steps);
        options.coverage = run.coverage.clone();
        Ok(options)
    }

    /// Who judges in this process.
    fn emulated(&self, run: &Run, schedules: &[Interleaving]) -> anyhow::Result<Emulated> {
        let options = self.options(run)?;
        let deadline = self.deadline.unwrap_or(emulated::DEADLINE);
        Ok(Emulated::new(run.registry.clone(), options, schedules.to_vec(), deadline).with_threads(run.launch.threads()?))
    }

    /// What processes that judge the cases together must have been asked for alike.
    fn asked(&self, run: &Run, schedules: &[Interleaving]) -> String {
        let selection = serde_json::to_string(&self.selection(run, schedules.len())).expect("a selection is plain data");
        format!("{} {} of PTX {}: {selection}", run.kind, env!("CARGO_PKG_VERSION"), run.library.ptx_hash())
    }

    /// What is asked for, for the record.
    fn selection(&self, run: &Run, schedules: usize) -> Selection {
        let of_machine = run.machine.selection(run.on);
        Selection {
            query: self.replay.as_ref().unwrap_or(&self.query).clone(),
            except: self.except.clone(),
            seed: self.seed,
            part: self.part,
            limit: self.limit.map(NonZeroUsize::get),
            schedules: (run.on == MachineKind::Emulator).then_some(schedules),
            memory: run.memory.or(of_machine.memory),
            steps: run.steps,
            deadline: self.deadline.map(|deadline| deadline.as_millis() as u64),
            processes: run.launch.of_ranks().map(|processes| processes.get() as u64),
            kernel: RegisteredKernel::noted(&run.known),
            ..of_machine
        }
    }

    /// What to type to run a case again as it ran here, before the case.
    fn command(&self, run: &Run) -> String {
        let &Run { kind, on, memory, .. } = run;
        let machine = if kind == "validate" && on == MachineKind::Cuda { " --machine cuda" } else { "" };
        let memory = memory.map(|bytes| format!(" --memory {bytes}")).unwrap_or_default();
        let elsewhere: String = run.elsewhere.iter().map(|option| format!(" {}", project::quoted(option))).collect();
        let Machine { device, multimem: mode, tensor_cores, profile, .. } = run.machine;
        let profile = Profile::from(profile);
        let emulated = [
            (device != DeviceModel::MEASURED).then(|| format!(" --device {}", device.name)),
            (mode != MultimemReduction::default()).then(|| format!(" --multimem {}", mode.name())),
            (tensor_cores != TensorCores::default()).then(|| format!(" --tensor-cores {}", tensor_cores.name())),
            (profile != Profile::default()).then(|| format!(" --profile {profile}")),
        ];
        let emulated: String = emulated.into_iter().flatten().filter(|_| on == MachineKind::Emulator).collect();
        let ranks = run.launch.of_ranks().map(|processes| format!(" --launcher own --processes {processes}")).unwrap_or_default();
        format!("{} {kind}{machine}{elsewhere}{memory}{emulated}{ranks}", project::invocation())
    }
}

/// A run that is about to begin.
struct Conformance<'a> {
    asked: &'a Cases,
    run: &'a Run,
    cases: Vec<Case>,
    /// The emulator's.
    schedules: Vec<Interleaving>,
    files: Files,
}

/// A smaller case for a case that failed, by its id, where one was found.
type Smaller = Vec<(String, Option<String>)>;

impl Conformance<'_> {
    /// Judges what is not judged yet and writes the record. The last value says whether it could be written.
    fn judge(&self, judge: &mut dyn Judging, sh: &Shell) -> anyhow::Result<(Record, Smaller, anyhow::Result<()>)> {
        let Conformance { asked, cases, files, .. } = self;
        let start = Instant::now();
        journal::end_with_children()?;
        let mut head = Record::of_verdicts(self.run.kind, judge.machine(cases)?, project::source(sh, &self.run.library), Vec::new());
        head.selection = Some(asked.selection(self.run, self.schedules.len()));
        let names: Vec<String> = cases.iter().map(Case::to_string).collect();
        let before = Resumed::read(asked.resume.as_deref(), &head, &names, |verdict| &verdict.case)?;
        let rest = before.rest();
        let seconds = move || before.seconds + start.elapsed().as_secs_f64();
        let so_far = head.clone();
        let journal = Journal::open(files.kept(asked)?, Duration::from_secs(asked.keep_every), before.judged.clone(), move |verdicts| {
            let Record { kind, machine, source, .. } = so_far.clone();
            let record = Record::of_verdicts(kind, machine, source, verdicts);
            Record { selection: so_far.selection.clone(), seconds: Some(seconds()), ..record }
        })?;

        if cases.len() > 1 {
            let schedules = self.schedules.len();
            let foreign = !self.run.known.is_empty() && self.run.on == MachineKind::Emulator;
            eprintln!("{}", if foreign { announced_foreign(cases, schedules) } else { announced(cases, schedules, self.run.on) });
        }
        let unjudged: Vec<Case> = rest.iter().map(|&index| cases[index].clone()).collect();
        let (machine, _) = judge.all(&unjudged, &|(at, verdict)| journal.put(rest[at], verdict.clone()))?;
        let took = seconds();
        let trace = files.take_trace()?;

        head.machine = before.machine_of_both(machine);
        head.cases = journal.judged();
        apply_waivers(&mut head, asked.waivers.as_ref(), &today());
        let smaller = self.smaller(judge, &head.cases);
        let record = self.finished(head, took, sh);
        let lcov = self.run.coverage.as_ref().map(|coverage| coverage::lcov(coverage, |module| ptx_path(&self.run.known, module)));
        let written = journal.end(|| files.write(&record, trace, lcov));
        Ok((record, smaller, written))
    }

    /// Smaller cases for the first causes.
    fn smaller(&self, judge: &mut dyn Judging, verdicts: &[Verdict]) -> Smaller {
        let budget = self.asked.shrink;
        let found = causes(verdicts.iter().filter(|verdict| verdict.status.is_finding()));
        let case = |verdict: &Verdict| self.cases.iter().zip(verdicts).find(|(_, of)| of.case == verdict.case).map(|(case, _)| case);
        let shown = found.iter().take(SHRUNK_FINDINGS).filter_map(|cause| Some((cause.shown, case(cause.shown)?)));
        shown.map(|(verdict, case)| (verdict.case.clone(), shrink(judge, case, verdict, budget))).collect()
    }

    /// The record of all cases, with its counts and notes.
    fn finished(&self, mut record: Record, seconds: f64, sh: &Shell) -> Record {
        let Conformance { run, cases, .. } = self;
        if run.on == MachineKind::Cuda {
            record.machine.notes.extend(project::gpu_settings(sh));
        }
        record.assumed = Assumed::of(&record.cases, &self.declared());
        let waived = WaivedRace::fold(&mut record.cases);
        record.seconds = Some(seconds);
        record.coverage = run.coverage.iter().flat_map(|coverage| coverage::modules(coverage)).collect();
        record.source.modules = modules::modules_of(&run.registry, &run.library, &record.cases);
        record.notes.extend(record.selection.iter().map(|selection| first_note(cases.len(), record.seconds, selection)));
        record.notes.extend(run.known.iter().map(|known| known.note.clone()));
        record.notes.extend((run.on == MachineKind::Emulator).then(|| uncounted(&run.known)).flatten());
        record.notes.extend(waived.iter().map(WaivedRace::to_string));
        record.notes.extend(table::unchecked_paths(&record.cases));
        record.notes.push(match run.on {
            MachineKind::Cuda => {
                "multimem is validated on the emulator only: nothing here creates NVLink multicast objects, and NCCL ran with \
                         NCCL_NVLS_ENABLE=0"
                    .into()
            }
            MachineKind::Emulator => format!(
                "every case ran under {}; races were judged in profile {}; multimem sums were {}, and no hardware was asked",
                named_schedules(&self.schedules),
                Profile::from(run.machine.profile),
                run.machine.multimem.name()
            ),
        });
        record.notes.extend((run.on == MachineKind::Emulator).then(|| emulated::not_compared(&run.registry, cases)).flatten());
        record
    }

    /// The assumptions about the hardware that every algorithm of the run declares, with the reasons of the first.
    fn declared(&self) -> Vec<(String, String)> {
        let of_case = |case: &Case| match case {
            Case::Collective(case) => case.algorithms(&self.run.registry).unwrap_or_default(),
            Case::Product(_) => Vec::new(),
        };
        let mut algorithms: Vec<Arc<dyn Algorithm>> = self.cases.iter().flat_map(of_case).filter(|own| !own.is_peer()).collect();
        let id = |own: &Arc<dyn Algorithm>| (own.collective().to_string(), own.name().to_owned());
        algorithms.sort_by_key(id);
        algorithms.dedup_by(|a, b| id(a) == id(b));
        let mut declared = algorithms.first().map(|first| first.assumes()).unwrap_or_default();
        for other in algorithms.iter().skip(1).map(|other| other.assumes()) {
            declared.retain(|(name, _)| other.iter().any(|(theirs, _)| theirs == name));
        }
        declared
    }

    /// Says what was found.
    fn tell(&self, record: &Record, smaller: &Smaller) {
        let command = self.asked.command(self.run);
        let shrunk = |verdict: &Verdict| smaller.iter().find(|(id, _)| *id == verdict.case).and_then(|(_, text)| text.as_deref());
        if self.asked.verbose {
            told(record).for_each(|verdict| print!("{}", verdict.explained(&command, None, shrunk(verdict))));
        } else {
            print!("{}", presentation::by_cause(&causes(told(record)), &command, shrunk));
        }
        if record.cases.iter().all(|v| v.status == Status::NotSupported)
            && let Some(first) = record.cases.first()
        {
            eprintln!("no case could run; {}: {}", first.case, first.reason);
        }
        if self.asked.list_waived {
            record.notes.iter().filter(|note| note.parse::<WaivedRace>().is_ok()).for_each(|note| println!("{note}"));
            let waived = record.cases.iter().filter(|verdict| verdict.status == Status::Waived);
            waived.for_each(|verdict| println!("waived {}: {}", verdict.case, verdict.reason));
        }
        println!("{}", table::outcomes(record.cases.iter().filter_map(table::Outcome::of)));
        table::unchecked_paths(&record.cases).iter().for_each(|line| println!("{line}"));
        record.notes.iter().filter(|note| is_not_compared(note) || note.starts_with(UNCOUNTED)).for_each(|note| println!("{note}"));
        let most = if self.asked.list_waived { usize::MAX } else { MOST_PLACES };
        rests_on(record, most).iter().for_each(|line| println!("{line}"));
        if !record.coverage.is_empty() {
            println!("\n{}\n", coverage::text(&record.coverage));
        }
        let verdict = concluded(&record.summary, record.seconds.unwrap_or_default());
        if github::listens() {
            let causes = causes(record.cases.iter().filter(|of| of.status.is_finding() || of.status == Status::InfraError));
            let is_shown = |verdict: &Verdict| causes.iter().any(|cause| std::ptr::eq(cause.shown, verdict));
            let found: Vec<_> = self.cases.iter().zip(&record.cases).filter(|(_, verdict)| is_shown(verdict)).collect();
            github::annotations(&self.run.registry, &command, &found, self.run.known.first().map(|known| &*known.ptx))
                .iter()
                .for_each(|line| print::command(line));
            github::summarise(self.run.kind, &verdict, &command, &found);
        }
        println!("{verdict}");
    }
}

/// The verdicts that are shown, each for itself or by cause.
fn told(record: &Record) -> impl Iterator<Item = &Verdict> {
    record.cases.iter().filter(|v| v.status.is_finding() || matches!(v.status, Status::InfraError | Status::Inconclusive))
}

/// Where the PTX of a module is: a file of the user's, or of this repository.
fn ptx_path(known: &[RegisteredKernel], module: &str) -> String {
    let own = known.iter().find_map(|known| known.modules.get(module));
    own.map_or_else(|| format!("kernels/ptx/{module}.ptx"), |path| path.display().to_string())
}

/// Waivers from a file.
type Waivers = Arc<[Waiver]>;

fn own_waivers(path: &str) -> Result<Waivers, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    waivers::parse(path, &text).map(Waivers::from)
}

/// Whether a case passed, or is none of the findings, only because an assumption or a waiver covers something.
fn is_waived(record: &Record) -> bool {
    !record.assumed.is_empty() || record.cases.iter().any(|verdict| verdict.status == Status::Waived)
}

/// Applies the waivers of a day to a record of verdicts, those that this build carries and `own`, and counts the verdicts.
fn apply_waivers(record: &mut Record, own: Option<&Waivers>, day: &str) {
    let all = waivers::built_in().into_iter().chain(own.into_iter().flat_map(|own| own.iter().cloned()));
    let waivers: Vec<Waiver> = all.filter(|waiver| waiver.holds(&record.machine, day)).collect();
    let of_list = |selection: &Selection| {
        let Selection { query, except, limit, part, .. } = selection;
        query == List::Merge.name() && except.is_none() && limit.is_none() && part.is_none()
    };
    let whole = record.selection.as_ref().is_some_and(of_list);
    // What no longer is a case has no waiver either.
    let (cases, mut verdicts): (Vec<Case>, Vec<&mut Verdict>) =
        record.cases.iter_mut().filter_map(|verdict| Some((verdict.case.parse().ok()?, verdict))).unzip();
    waivers::apply(&waivers, &cases, &mut verdicts, whole);
    record.summary = Summary::of(record.cases.iter().map(|verdict| verdict.status));
}

/// What the counts make of the run.
fn exit_status(summary: &Summary) -> ExitCode {
    exit::status(|status| summary.by_status.get(&status).is_some_and(|&cases| cases > 0)).into()
}

/// The first case of a rank that stays away, if there are such cases and none could run: beside others that passed nobody would miss them.
fn unjudged_absences<'v>(cases: &[Case], verdicts: &'v [Verdict]) -> Option<&'v Verdict> {
    let absences =
        || cases.iter().zip(verdicts).filter(|(case, _)| matches!(case.fault(), Some(Fault::Absent(_)))).map(|(_, verdict)| verdict);
    let ran = |verdict: &Verdict| !matches!(verdict.status, Status::NotSupported | Status::NotRun);
    absences().next().filter(|_| !absences().any(ran))
}

/// Looks for a smaller case that fails too, and says what was found.
fn shrink(judge: &mut dyn Judging, case: &Case, verdict: &Verdict, budget: Duration) -> Option<String> {
    if budget.is_zero() || case.fault().is_some() {
        return None;
    }
    let start = Instant::now();
    let shrunk = shrink::shrink(case, verdict.reason.clone(), budget, |candidate| {
        judge.one(candidate).ok().filter(|v| v.status.is_finding()).map(|v| v.reason)
    });
    (shrunk.case != *case)
        .then(|| format!("{}  ({} tried in {:.1} s): {}", shrunk.case, shrunk.tried, start.elapsed().as_secs_f64(), shrunk.failure))
}
