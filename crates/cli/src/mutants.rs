//! `mutants`: kernels with planted bugs, each of which the checks must catch.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroUsize,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail, ensure};
use passmuster_harness::{
    conformance::{
        Case, CollectiveCase, Finding, List, Status, Verdict, coverage, manifest,
        mutants::{self, Caught, Defect, Derived, Equivalent, Outcome},
        report::{Record, Selection, Source, Summary, table},
        supervisor::StartError,
    },
    emulator::{Coverage, Emulator, EmulatorOptions, Interleaving},
};
use passmuster_plan::{
    algorithms::{Algorithm, Mutant, MutantKind, Registry, TensorParallelFusion},
    library::Library,
    machine::{Machine as _, MachineInfo},
    modules::FOREIGN,
};
use xshell::Shell;

use crate::{
    CANNOT_RUN, FINDING, emulated,
    foreign::{ForeignArgs, Known, RegisteredKernel},
    journal::{self, EVERY, Journal},
    judging::{Judge, Judging},
    modules, project,
    require::{Planted, Require},
    result_file::ResultFile,
    resume::{self, Resumed},
    units,
    worker::{Machine, MachineKind},
};

/// Plant bugs in kernels and check that each is caught.
///
/// Some bugs are written by hand, in values and in synchronisation. Others are made by rule, at every place where a kernel synchronises. On the emulator, each runs
/// short cases under a few schedules until one reports it. On GPUs, only the hand-written ones run, on the merge list. Prints what caught each bug, and the score.
/// Exits 1 if a value bug is missed, or if a mutant is caught that fixtures/mutants/equivalent.toml calls harmless. A missed synchronisation bug is recorded and
/// is no failure. With --spec, the bugs are made by rule in your kernel, and named by its source lines.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask mutants                       all of them, on the emulator
  cargo xtask mutants --only value_06       those whose names contain this
  cargo xtask mutants --only two_shot/      those made by rule from a kernel
  cargo xtask mutants --sample 20           of those made by rule, twenty
  cargo xtask mutants --machine cuda        the planted ones, on GPUs
  cargo xtask mutants --json mutants.json
  cargo xtask mutants --stale --json mutants.json    those of changed kernels
  cargo xtask mutants --spec mine.toml      of your kernel: what is missed is
                                            needed by nothing that was executed")]
pub(crate) struct Mutants {
    /// Run only mutants whose names, or lines as in kernel.py:13, contain TEXT.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run N of the mutants made by rule, spread evenly.
    #[arg(long, value_name = "N")]
    sample: Option<NonZeroUsize>,
    /// Schedules to try for each mutant, on the emulator.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    schedules: u64,
    /// On GPUs: the most cases of the merge list to try for each mutant.
    #[arg(long, value_name = "N", default_value = "400")]
    limit: NonZeroUsize,
    /// On GPUs: how long one mutant may take, in seconds or with a unit, as in 2min.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration_above_zero)]
    budget: Duration,
    /// Write the record of the run (docs/reference/record-schema-commands.md). An interrupted run leaves FILE.partial.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Continue an interrupted run: keep the outcomes of its record and run the rest. Sources, machine and options must be the same.
    #[arg(long, value_name = "RECORD", requires = "json")]
    resume: Option<PathBuf>,
    /// Judge only mutants of kernels that have changed since the record at --json, and those that it lacks. Keeps its other outcomes, and writes it again.
    #[arg(long, requires = "json", conflicts_with = "resume")]
    stale: bool,
    /// Where the mutants run.
    #[arg(long = "machine", value_enum, default_value_t = MachineKind::Emulator)]
    on: MachineKind,
    #[command(flatten)]
    elsewhere: ForeignArgs,
    #[command(flatten)]
    require: Require,
    #[command(flatten)]
    machine: Machine,
}

/// Cases of the merge list that a value mutant is judged on, on the emulator.
const VALUE_CASES: usize = 120;

/// About how many times as long as others the mutants of products take the emulator, under a fourth of the schedules.
const SLOW: f64 = 50.0;

/// Characters of a line of the table.
const WIDTH: u16 = 80;

/// The verdict with the first of its findings, by its property alone, and the first clause of its reason: of thousands of mutants, a record of all would be
/// megabytes.
fn in_short(verdict: Verdict) -> Verdict {
    let by_property = |finding: Finding| Finding { property: finding.property, ..Finding::default() };
    let findings = verdict.findings.into_iter().take(1).map(by_property).collect();
    let reason = verdict.reason.split("; ").next().unwrap_or_default().into();
    Verdict { reason, findings, held: Vec::new(), not_applicable: Vec::new(), waived: Vec::new(), outputs: None, ..verdict }
}

/// Something with a bug in it: a kernel, or a plan.
struct Subject {
    name: String,
    /// The one machine that runs its kernel: the emulator has multicast addresses.
    needs: Option<MachineKind>,
    kind: MutantKind,
    /// The kernel module; `plans` where it is a bug of plans.
    module: Cow<'static, str>,
    defect: Option<Defect>,
    description: String,
    equivalent: Option<String>,
    /// Lines of the kernel's PTX that are changed, where that is known.
    lines: Vec<u32>,
    /// The line of its source, where that is known.
    source: Option<String>,
    library: Library,
    /// The kernels without it.
    kernel: Library,
    shared_pads: bool,
    /// What makes a worker run it.
    arguments: Vec<String>,
    cases: Vec<Case>,
}

/// What was chosen to be judged.
struct Chosen {
    registry: Registry,
    subjects: Vec<Subject>,
    /// What the record says of kernels from elsewhere.
    kernel: Option<String>,
    /// The modules that are mutated, with the hashes of what they are unchanged.
    modules: BTreeMap<String, String>,
}

impl Subject {
    /// Whether it is made by rule of a product, each case of which takes the emulator seconds.
    fn is_slow(&self) -> bool {
        self.defect.is_some() && TensorParallelFusion::of(&self.module).is_some()
    }

    /// About how many times as long as others it takes the emulator.
    fn cost(&self) -> f64 {
        if self.is_slow() { SLOW } else { 1.0 }
    }

    /// How many schedules mutants of its kernel get on the emulator, if `asked` are asked for.
    fn most_schedules(&self, asked: u64) -> u64 {
        if self.is_slow() { asked.div_ceil(4) } else { asked }
    }

    /// How many schedules it gets itself.
    fn schedules(&self, asked: u64) -> u64 {
        if self.is_slow() && self.equivalent.is_some() { 1 } else { self.most_schedules(asked) }
    }

    fn of(registry: &Registry, mutant: &Mutant, merge: &[CollectiveCase], on: MachineKind) -> Subject {
        let reached = || merge.iter().filter(|case| mutants::reaches(registry, case, mutant)).cloned().collect();
        let of_collectives = match (on, mutant.kind) {
            _ if mutant.half().is_some() => Vec::new(),
            (MachineKind::Cuda, _) => reached(),
            (MachineKind::Emulator, MutantKind::Value) => mutants::small(reached()).into_iter().take(VALUE_CASES).collect(),
            (MachineKind::Emulator, MutantKind::Sync) => mutants::sync_cases_of(registry, mutant),
        };
        let of_collectives = of_collectives.into_iter().map(Case::from);
        let cases = of_collectives
            .chain(mutants::product_cases_of(registry, mutant, on == MachineKind::Emulator).into_iter().map(Case::from))
            .collect();
        let is_its_own = |own: &dyn Algorithm| format!("{}/{}", own.collective(), own.name()) == mutant.shown_by;
        let uses_multicast = registry.algorithms().iter().any(|own| is_its_own(&**own) && own.uses_multicast());
        Subject {
            name: mutant.name.into(),
            needs: uses_multicast.then_some(MachineKind::Emulator),
            kind: mutant.kind,
            module: mutant.module.into(),
            defect: None,
            description: mutant.description.into(),
            equivalent: None,
            lines: Vec::new(),
            source: None,
            library: mutant.library(registry),
            kernel: registry.library(),
            shared_pads: false,
            arguments: vec![format!("--mutant={}", mutant.name)],
            cases,
        }
    }

    /// Two groups of the same ranks on one signal pad: a bug of plans, not of kernels.
    fn shared_pads(registry: &Registry, merge: &[CollectiveCase], on: MachineKind) -> Subject {
        let cases: Vec<CollectiveCase> = merge.iter().filter(|case| case.groups() > 1).cloned().collect();
        Subject {
            name: modules::SHARED_PADS.into(),
            needs: None,
            kind: MutantKind::Sync,
            module: "plans".into(),
            defect: None,
            description: "Two groups of the same ranks use one signal pad, each on a stream of its own".into(),
            equivalent: None,
            lines: Vec::new(),
            source: None,
            library: registry.library(),
            kernel: registry.library(),
            shared_pads: true,
            arguments: vec!["--shared-pads".into()],
            cases: if on == MachineKind::Emulator { mutants::small(cases) } else { cases }.into_iter().map(Case::from).collect(),
        }
    }

    fn made_by_rule(mutant: &Derived, [library, kernel]: [Library; 2], cases: Vec<Case>, equivalents: &[Equivalent]) -> Subject {
        Subject {
            name: mutant.name.clone(),
            needs: Some(MachineKind::Emulator),
            kind: MutantKind::Sync,
            module: mutant.module.clone(),
            defect: Some(mutant.defect),
            description: format!("{} ==> {}", mutant.original, if mutant.mutated.is_empty() { "nothing" } else { &mutant.mutated }),
            equivalent: equivalents.iter().find(|known| known.site == mutant.site).map(|known| known.reason.clone()),
            lines: mutant.lines.clone(),
            source: mutant.source.clone(),
            library,
            kernel,
            shared_pads: false,
            arguments: Vec::new(),
            cases,
        }
    }

    /// As queries have it.
    fn planted(&self) -> Planted<'_> {
        Planted { kind: self.kind.name(), name: &self.name, defect: self.defect.map_or("planted", Defect::name), module: &self.module }
    }

    fn outcome(&self, tried: usize, caught: Option<Caught>) -> Outcome {
        let (schedule, verdict) = caught.map(|caught| (caught.schedule, in_short(caught.verdict))).unzip();
        Outcome {
            mutant: self.name.clone(),
            kind: self.kind.name().into(),
            defect: self.defect.map(|defect| defect.name().into()),
            description: self.description.clone(),
            source: self.source.clone(),
            line: self.lines.first().copied().filter(|_| self.module.starts_with(FOREIGN)),
            caught: verdict.is_some(),
            tried,
            schedule,
            equivalent: self.equivalent.clone(),
            not_reached: false,
            verdict,
        }
    }

    /// The outcome where no case comes to what is changed.
    fn not_reached(&self) -> Outcome {
        Outcome { not_reached: true, ..self.outcome(0, None) }
    }
}

impl Mutants {
    pub(crate) fn run(self, registry: &Registry, sh: &Shell) -> anyhow::Result<ExitCode> {
        let file = ResultFile::asked(self.json.as_deref())?;
        let Chosen { registry, subjects, kernel, modules } =
            if self.elsewhere.any() { self.theirs(registry)? } else { self.ours(registry)? };
        let start = Instant::now();
        let machine = match self.machine_info(&registry, &subjects) {
            Err(StartError::CannotRun { reason }) => {
                eprintln!("mutants cannot run on this machine: {reason}");
                return Ok(ExitCode::from(CANNOT_RUN));
            }
            machine => machine?,
        };
        let source = Source { modules, ..project::source(sh, &registry.library()) };
        let head =
            Record { selection: Some(self.selection(kernel)), ..Record::new("mutants", machine, source, Summary::default(), Vec::new()) };
        let names: Vec<String> = subjects.iter().map(|subject| subject.name.clone()).collect();
        let before = match &self.json {
            Some(path) if self.stale => {
                let of: HashMap<&str, &str> = subjects.iter().map(|subject| (&*subject.name, &*subject.module)).collect();
                let record = resume::whole(path, &head)?;
                let then = record.source.modules.clone();
                Resumed::fresh(record, &names, name_of, |outcome: &Outcome| {
                    let now = of.get(&*outcome.mutant).and_then(|&module| Some((module, head.source.modules.get(module)?)));
                    now.is_some_and(|(module, hash)| then.get(module) == Some(hash))
                })
            }
            _ => Resumed::read(self.resume.as_deref(), &head, &names, name_of)?,
        };
        let kept = file.as_ref().map(|file| journal::kept_in(file, self.resume.as_deref())).transpose()?.flatten();
        let rest: Vec<(usize, &Subject)> = before.rest().into_iter().map(|index| (index, &subjects[index])).collect();
        let so_far = move |outcomes| record(&head, before.seconds + start.elapsed().as_secs_f64(), outcomes);
        let journal = Journal::open(kept, Duration::from_secs(EVERY), before.judged, so_far.clone())?;
        let put = |index, outcome| journal.put(index, outcome);
        let (ran, looked) = (Ran::default(), rest.len() == subjects.len());
        match self.on {
            MachineKind::Emulator => self.emulated(&registry, &rest, &ran, &put)?,
            MachineKind::Cuda => self.on_gpus(&registry, &rest, &ran, &put)?,
        }
        let mut record = so_far(journal.judged());
        if self.on == MachineKind::Cuda {
            record.machine.notes.extend(project::gpu_settings(sh));
        }
        let written = journal.end(|| file.iter().try_for_each(|file| file.write(&record.to_json())));
        let outcomes = &record.cases;
        let shown = if self.elsewhere.any() { groups(outcomes) } else { rows(outcomes) };
        println!("{shown}\n\n{}", score(outcomes));
        written?;
        let wrong = |o: &Outcome| (o.kind == "value" && !o.caught) || (o.equivalent.is_some() && o.caught);
        if looked && let Some(reason) = ran.nothing() {
            eprintln!("no mutant was judged: {reason}");
            return Ok(ExitCode::from(CANNOT_RUN));
        }
        let code = if outcomes.iter().any(wrong) { ExitCode::from(FINDING) } else { ExitCode::SUCCESS };
        let planted: Vec<Planted<'_>> = subjects.iter().map(Subject::planted).collect();
        let run = outcomes.iter().zip(&planted).map(|(o, planted)| manifest::Outcome {
            case: planted,
            name: &o.mutant,
            status: if o.caught { Status::Pass } else { Status::Fail },
            reason: o.equivalent.as_deref().unwrap_or("missed"),
        });
        Ok(self.require.exit(code, &record.machine, &run.collect::<Vec<_>>()))
    }

    /// The mutants of kernels from elsewhere.
    fn theirs(&self, registry: &Registry) -> anyhow::Result<Chosen> {
        if self.on == MachineKind::Cuda {
            bail!("mutants of kernels from elsewhere run on the emulator only: it alone bounds what they do to memory");
        }
        let Known { registry, library, foreign: known } = self.elsewhere.beside(registry, self.on)?;
        let mut subjects = Vec::new();
        for kernel in &known {
            let cases = kernel.of.cases_of_mutants(&registry);
            let mut of_kernel = kernel.of.mutants(&library);
            if let Some(number) = self.sample {
                of_kernel = mutants::sample(of_kernel, number.get());
            }
            let subject =
                |mutant: &Derived| Subject::made_by_rule(mutant, [mutant.among(library.clone()), library.clone()], cases.clone(), &[]);
            subjects.extend(of_kernel.iter().map(subject));
        }
        if subjects.is_empty() {
            bail!("no mutant: the kernels have no barrier, fence, or strong operation of system scope that one could be made of");
        }
        self.retain_asked(&mut subjects)?;
        let modules = library.hashes(&subjects.iter().map(|subject| subject.module.to_string()).collect());
        Ok(Chosen { registry, subjects, kernel: RegisteredKernel::noted(&known), modules })
    }

    /// Those of our kernels.
    fn ours(&self, registry: &Registry) -> anyhow::Result<Chosen> {
        let merge = List::Merge.cases(registry, 0);
        let mut subjects: Vec<Subject> = registry.mutants().iter().map(|mutant| Subject::of(registry, mutant, &merge, self.on)).collect();
        subjects.push(Subject::shared_pads(registry, &merge, self.on));
        // Only the emulator bounds what these do to memory: one of them signals a rank that is not there.
        if self.on == MachineKind::Emulator {
            let equivalents = mutants::equivalents(registry).map_err(|error| anyhow!(error))?;
            let mut derived = mutants::derived(registry);
            if let Some(number) = self.sample {
                derived = mutants::sample(derived, number.get());
            }
            // Each has kernels and cases of its own, which take a while to make.
            derived.retain(|mutant| self.only.as_ref().is_none_or(|only| mutant.name.contains(only.as_str())));
            let subject = |mutant: &Derived| {
                Subject::made_by_rule(mutant, [mutant.library(registry), registry.library()], mutant.cases(registry), &equivalents)
            };
            subjects.extend(derived.iter().map(subject));
        }
        self.retain_asked(&mut subjects)?;
        for subject in subjects.extract_if(.., |subject| subject.needs.is_some_and(|machine| machine != self.on)) {
            println!("NotRun: {}: multimem runs on the emulator only (--machine emulator)", subject.name);
        }
        if subjects.is_empty() {
            bail!("no mutant is left that runs on GPUs: --machine emulator runs them");
        }
        let modules = modules::modules_of_mutants(registry, subjects.iter().map(|subject| &*subject.name));
        Ok(Chosen { registry: registry.clone(), subjects, kernel: None, modules })
    }

    /// Leaves those whose names contain what was asked for.
    ///
    /// # Errors
    /// None does.
    fn retain_asked(&self, subjects: &mut Vec<Subject>) -> anyhow::Result<()> {
        let Some(text) = &self.only else { return Ok(()) };
        let all = subjects.len();
        let is_asked =
            |subject: &Subject| [Some(&subject.name), subject.source.as_ref()].into_iter().flatten().any(|name| name.contains(text));
        subjects.retain(is_asked);
        ensure!(!subjects.is_empty(), "--only {text}: no name of {all} mutants contains it, and no line of a source");
        Ok(())
    }

    /// What is asked for, for the record; of kernels from elsewhere what it says of them.
    fn selection(&self, kernel: Option<String>) -> Selection {
        let on_gpus = self.on == MachineKind::Cuda;
        Selection {
            query: self.only.clone().unwrap_or_else(|| "*".into()),
            limit: on_gpus.then_some(self.limit.get()),
            budget: on_gpus.then_some(self.budget.as_millis() as u64),
            sample: self.sample.map(NonZeroUsize::get),
            schedules: (!on_gpus).then_some(self.schedules as usize),
            kernel,
            ..self.machine.selection(self.on)
        }
    }

    /// What the machine is that judges them: on GPUs what the worker of the first says.
    fn machine_info(&self, registry: &Registry, subjects: &[Subject]) -> Result<MachineInfo, StartError> {
        match self.on {
            MachineKind::Emulator => {
                let options =
                    self.machine.emulator(registry.library(), 0).map_err(|error| StartError::Failed { reason: error.to_string() })?;
                Ok(Emulator::new(options).info())
            }
            MachineKind::Cuda => self.judge(registry, &subjects[0]).machine(&subjects[0].cases),
        }
    }

    /// Judges in this process.
    fn emulated(&self, registry: &Registry, subjects: &[(usize, &Subject)], ran: &Ran, put: &Put<'_>) -> anyhow::Result<()> {
        let unchanged = self.machine.emulator(registry.library(), 0)?;
        let costs: Vec<f64> = subjects.iter().map(|(_, subject)| subject.cost()).collect();
        let kernels: BTreeMap<&str, OnceLock<Kernel>> = subjects.iter().map(|(_, subject)| (&*subject.module, OnceLock::new())).collect();
        emulated::in_threads(
            emulated::processors(),
            (subjects, &costs),
            || (),
            |(), &(index, subject), _| {
                let mut mutant = OnEmulator::new(registry, &subject.library, &unchanged);
                let schedules = subject.schedules(self.schedules);
                let kernel = (!subject.lines.is_empty())
                    .then(|| kernels[&*subject.module].get_or_init(|| Kernel::run(registry, subject, &unchanged, self.schedules, ran)));
                if kernel.is_some_and(|kernel| !subject.lines.iter().any(|line| kernel.reached.contains(line))) {
                    put(index, subject.not_reached());
                    return;
                }
                let of_mutant = |case: &Case, schedule| ran.note(mutant.judge(case, schedule, subject.shared_pads));
                // What an equivalent one rests on is in its reason.
                let (tried, caught) = match &subject.equivalent {
                    Some(_) => mutants::hunt(&subject.cases, schedules, of_mutant),
                    None => {
                        let mut unchanged = OnEmulator::new(registry, &subject.kernel, &unchanged);
                        let of_kernel = |case: &Case, schedule| match kernel {
                            Some(kernel) => kernel.verdicts[&(case.to_string(), schedule)].clone(),
                            None => unchanged.judge(case, schedule, false),
                        };
                        mutants::hunt_beside(&subject.cases, schedules, of_mutant, of_kernel)
                    }
                };
                put(index, subject.outcome(tried, caught));
            },
        );
        Ok(())
    }

    /// What judges a mutant on GPUs: workers of its own.
    fn judge(&self, registry: &Registry, subject: &Subject) -> Judge {
        let arguments: Vec<String> = subject.arguments.iter().cloned().chain([self.on.argument()]).collect();
        Judge::new(registry, &self.machine, &arguments, Duration::from_secs(10))
    }

    /// Judges in workers, one mutant after the other.
    fn on_gpus(&self, registry: &Registry, subjects: &[(usize, &Subject)], ran: &Ran, put: &Put<'_>) -> Result<(), StartError> {
        for &(index, subject) in subjects {
            let start = Instant::now();
            let mut judge = self.judge(registry, subject);
            let mut tried = 0;
            let mut caught = None;
            for case in subject.cases.iter().take(self.limit.get()) {
                if start.elapsed() > self.budget {
                    break;
                }
                tried += 1;
                let verdict = ran.note(judge.one(case)?);
                if verdict.status.is_finding() {
                    caught = Some(Caught { schedule: 0, verdict });
                    break;
                }
            }
            let outcome = Outcome { schedule: None, ..subject.outcome(tried, caught) };
            let by = outcome.verdict.as_ref().map_or_else(|| "missed".into(), |v| format!("{} {}: {}", v.status, v.case, v.reason));
            eprintln!("{}: {by} ({tried} tried)", outcome.mutant);
            put(index, outcome);
        }
        Ok(())
    }
}

/// An emulator with some kernels, on which cases run under numbered schedules.
struct OnEmulator {
    registry: Registry,
    options: EmulatorOptions,
    machine: Emulator,
}

impl OnEmulator {
    fn new(registry: &Registry, library: &Library, like: &EmulatorOptions) -> OnEmulator {
        let options = EmulatorOptions { library: library.clone(), ..like.clone() };
        OnEmulator { registry: registry.clone(), machine: Emulator::new(options.clone()), options }
    }

    fn judge(&mut self, case: &Case, schedule: u64, shared_pads: bool) -> Verdict {
        self.machine.set_interleaving(Interleaving::nth(0, schedule as usize));
        emulated::judge(&self.registry, case, &mut self.machine, &self.options, emulated::DEADLINE, shared_pads)
    }
}

/// The kernel that mutants are made of, unchanged: its verdicts, and which of its lines run.
struct Kernel {
    /// By case and schedule.
    verdicts: BTreeMap<(String, u64), Verdict>,
    /// Lines of its PTX that some lane came to.
    reached: BTreeSet<u32>,
}

impl Kernel {
    /// Runs the cases of its mutants, one of which is `subject`, under the schedules that they get.
    fn run(registry: &Registry, subject: &Subject, unchanged: &EmulatorOptions, asked: u64, ran: &Ran) -> Kernel {
        let coverage = Arc::<Coverage>::default();
        let mut kernel =
            OnEmulator::new(registry, &subject.kernel, &EmulatorOptions { coverage: Some(coverage.clone()), ..unchanged.clone() });
        let mut verdicts = BTreeMap::new();
        for schedule in 0..subject.most_schedules(asked) {
            for case in &subject.cases {
                verdicts.insert((case.to_string(), schedule), ran.note(kernel.judge(case, schedule, false)));
            }
        }
        Kernel { verdicts, reached: coverage::lines_reached(&coverage, &subject.module) }
    }
}

/// Whether any case ran at all: a mutant that no case can run was not missed by any check.
#[derive(Default)]
struct Ran {
    any: AtomicBool,
    /// Why the first that did not run did not.
    refusal: OnceLock<String>,
}

impl Ran {
    /// Notes what became of a case.
    fn note(&self, verdict: Verdict) -> Verdict {
        if matches!(verdict.status, Status::NotSupported | Status::NotRun) {
            let _ = self.refusal.set(format!("{}: {}", verdict.case, verdict.reason));
        } else {
            self.any.store(true, Ordering::Relaxed);
        }
        verdict
    }

    /// Why nothing ran, if nothing did.
    fn nothing(&self) -> Option<&str> {
        let refusal = self.refusal.get().map_or("none of them has a case", String::as_str);
        (!self.any.load(Ordering::Relaxed)).then_some(refusal)
    }
}

/// Gets each outcome, with its subject's place in the list.
type Put<'a> = dyn Fn(usize, Outcome) + Sync + 'a;

fn name_of(outcome: &Outcome) -> &str {
    &outcome.mutant
}

/// The record of some outcomes, which took `seconds` seconds.
fn record(head: &Record<Outcome>, seconds: f64, outcomes: Vec<Outcome>) -> Record<Outcome> {
    let mut summary = Summary::of(outcomes.iter().map(|o| if o.caught { Status::Pass } else { Status::Fail }));
    summary.caught = Some(outcomes.iter().filter(|o| o.caught).count());
    let notes = score(&outcomes).lines().map(str::to_owned).collect();
    let (machine, source, selection) = (head.machine.clone(), head.source.clone(), head.selection.clone());
    Record { notes, selection, seconds: Some(seconds), ..Record::new(&*head.kind, machine, source, summary, outcomes) }
}

fn rows(outcomes: &[Outcome]) -> String {
    let rows: Vec<Vec<String>> = outcomes
        .iter()
        .map(|o| {
            let schedule = o.schedule.map(|schedule| schedule.to_string()).unwrap_or_default();
            // A name of those made by rule says all; the lines stand in the record.
            let mutant = if o.defect.is_some() { o.mutant.clone() } else { format!("{}: {}", o.mutant, o.description) };
            vec![o.caught_by().into(), schedule, o.tried.to_string(), mutant]
        })
        .collect();
    table::aligned_within(WIDTH, &["caught by", "schedule", "cases", "mutant"], 1, &rows)
}

/// What the name of a mutant made by rule begins with.
fn kernel_of(outcome: &Outcome) -> &str {
    outcome.mutant.split_once("/L").map_or("", |(kernel, _)| kernel)
}

/// The mutants of kernels from elsewhere in three groups: those that survived, with what to look at, those that were not reached, and those that were caught.
fn groups(outcomes: &[Outcome]) -> String {
    let all = outcomes.len();
    let one = outcomes.iter().all(|o| kernel_of(o) == kernel_of(&outcomes[0]));
    let [mut survived, mut not_reached, mut caught] = [const { Vec::<&Outcome>::new() }; 3];
    for outcome in outcomes {
        match outcome {
            Outcome { caught: true, .. } => caught.push(outcome),
            Outcome { not_reached: true, .. } => not_reached.push(outcome),
            _ => survived.push(outcome),
        }
    }
    let table = |outcomes: &[&Outcome], by: bool| {
        let row = |o: &&Outcome| {
            let change = o.mutant.split_once("/L").and_then(|(_, change)| change.split_once(' ')).map_or(&*o.mutant, |(_, change)| change);
            let line = o.line.map(|line| line.to_string()).unwrap_or_default();
            let by = by.then(|| o.caught_by().to_owned());
            let at = match &o.source {
                Some(source) if one => source.clone(),
                Some(source) => format!("{}/{source}", kernel_of(o)),
                None => kernel_of(o).to_owned(),
            };
            by.into_iter().chain([at, line, change.to_owned()]).collect::<Vec<String>>()
        };
        let rows: Vec<Vec<String>> = outcomes.iter().map(row).collect();
        let header = ["caught by", "source", "PTX line", "mutant"];
        table::aligned_within(WIDTH, if by { &header } else { &header[1..] }, if by { 2 } else { 1 }, &rows)
    };
    let mut parts = Vec::new();
    if !survived.is_empty() {
        let of = |defect: Defect| survived.iter().filter(|o| o.defect.as_deref() == Some(defect.name())).count();
        let hints = Defect::ALL.into_iter().map(|defect| (defect, of(defect))).filter(|(_, survived)| *survived > 0);
        let hints: Vec<_> =
            hints.map(|(defect, survived)| vec![defect.name().into(), survived.to_string(), defect.if_missed().into()]).collect();
        let hints = table::aligned_within(WIDTH, &["kind", "survived", "what to look at"], 1, &hints);
        parts.push(format!("{} of {all} survived: no case needs what they break\n{}\n\n{hints}", survived.len(), table(&survived, false)));
    }
    if !not_reached.is_empty() {
        parts.push(format!("{} of {all} were not reached: no case executes the line\n{}", not_reached.len(), table(&not_reached, false)));
    }
    if !caught.is_empty() {
        parts.push(format!("{} of {all} were caught\n{}", caught.len(), table(&caught, true)));
    }
    parts.join("\n\n")
}

/// How many of each kind were caught. The equivalent ones do not count, nor those that no case comes to.
fn score(outcomes: &[Outcome]) -> String {
    let of = |wanted: &dyn Fn(&&Outcome) -> bool| {
        let counted: Vec<&Outcome> = outcomes.iter().filter(|o| o.equivalent.is_none() && !o.not_reached).filter(wanted).collect();
        (counted.iter().filter(|o| o.caught).count(), counted.len())
    };
    let mut lines = Vec::new();
    let mut line = |what: &str, (caught, all): (usize, usize)| {
        if all > 0 {
            lines.push(format!("{what}: {caught} of {all} caught ({:.1} %)", 100.0 * caught as f64 / all as f64));
        }
    };
    line("value mutants", of(&|o| o.kind == "value"));
    line("synchronisation mutants that people planted", of(&|o| o.kind == "sync" && o.defect.is_none()));
    let by_defect: BTreeMap<Defect, _> =
        Defect::ALL.into_iter().map(|defect| (defect, of(&|o| o.defect.as_deref() == Some(defect.name())))).collect();
    for (defect, counts) in by_defect {
        line(&format!("synchronisation mutants made by rule, {}", defect.name()), counts);
    }
    line("synchronisation mutants", of(&|o| o.kind == "sync"));
    let equivalent = outcomes.iter().filter(|o| o.equivalent.is_some()).count();
    if equivalent > 0 {
        lines.push(format!("{equivalent} equivalent ones are not counted (fixtures/mutants/equivalent.toml)"));
    }
    let not_reached = outcomes.iter().filter(|o| o.equivalent.is_none() && o.not_reached).count();
    if not_reached > 0 {
        lines
            .push(format!("{not_reached} not reached: no case executes what they change, under any schedule, so nothing is known of them"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, an author does not see which of their lines nothing needs, or reads of a bug without its line.
    #[test]
    fn mutants_from_elsewhere_are_grouped_by_what_became_of_them() {
        let outcome = |mutant: &str, defect: Defect, source: Option<&str>, caught: bool| Outcome {
            mutant: mutant.into(),
            kind: "sync".into(),
            defect: Some(defect.name().into()),
            description: String::new(),
            source: source.map(str::to_owned),
            line: Some(84),
            caught,
            tried: 1,
            schedule: None,
            equivalent: None,
            not_reached: defect == Defect::Slot,
            verdict: caught.then(|| Verdict::without_checks("case", Status::Hang, "")),
        };
        let outcomes = [
            outcome("mine/L13 atom.acq_rel.sys -> atom.relaxed.sys", Defect::Order, Some("rs.py:13"), true),
            outcome("mine/L20 bar.sync dropped", Defect::Barrier, Some("rs.py:20"), false),
            outcome("mine/L30 st.relaxed.sys at the next rank's slot", Defect::Slot, None, false),
        ];
        let text = groups(&outcomes);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let has = |row: &str| rows.contains(&row.split_whitespace().collect());
        assert!(text.starts_with("1 of 3 survived: no case needs what they break\n") && has("rs.py:20 84 bar.sync dropped"), "{text}");
        assert!(has("mine 84 st.relaxed.sys at the next rank's slot") && text.contains("\n1 of 3 were not reached: "), "{text}");
        assert!(has("hang rs.py:13 84 atom.acq_rel.sys -> atom.relaxed.sys"), "{text}");
        let hint = text.split("what to look at\n").nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(hint.starts_with(&format!("barrier 1 {}", Defect::Barrier.if_missed())), "{hint}");
        let of_two = groups(&[outcomes[0].clone(), Outcome { mutant: "other/L1 bar.sync dropped".into(), ..outcomes[1].clone() }]);
        assert!(of_two.contains("mine/rs.py:13") && of_two.contains("other/rs.py:20"), "{of_two}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    /// If this fails, the rows of the table are torn on a terminal of 80 columns.
    #[test]
    fn rows_keep_to_80_columns() {
        let outcome = |mutant: &str, defect: Option<&'static str>, description: &str| Outcome {
            mutant: mutant.into(),
            kind: "sync".into(),
            defect: defect.map(str::to_owned),
            description: description.into(),
            source: None,
            line: None,
            caught: false,
            tried: 1234,
            schedule: Some(10),
            equivalent: None,
            not_reached: false,
            verdict: None,
        };
        let bug = "One parity: a rank that is a call ahead overwrites lines that a peer has yet to read";
        let outcomes = [
            outcome("sync_all_gather_ll_one_parity", None, bug),
            outcome("multimem_one_shot/L260 st.relaxed.sys at the next block's slot", Some("slot"), "not shown"),
        ];
        let table = rows(&outcomes);
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let shown = words(&table);
        let is_shown = |text: &str| words(text).iter().all(|word| shown.contains(word));
        assert!(is_shown(bug) && is_shown(&outcomes[1].mutant) && !table.contains("not shown"), "{table}");
    }
}
