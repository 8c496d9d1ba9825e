//! Cases on ranks that are processes of their own: one case at a time, on all of them.

use std::{env, fs, io, mem, net::TcpListener, thread, time::Duration};

use passmuster_bootstrap::{BootstrapError, Rank, Secret, placement::OpenHub};
use passmuster_harness::{
    conformance::{
        Case, CollectiveCase, Fault, Status, Verdict, faults,
        ranks::{self, Mishap, Processes},
        runner::Settings,
        supervisor::StartError,
    },
    emulator::{EmulatorOptions, Interleaving, RankEmulator},
};
use passmuster_plan::{
    algorithms::Registry,
    library::Library,
    machine::{Blamed, How, Machine, MachineError, MachineInfo},
    plan::Departure,
};

use crate::{
    gpus::{self, Gpus},
    judging::{Judged, Judging, by_environment, known_better, large_case_extra},
    launch::{Environment, Job},
    progress::{findings, progress_bar},
};

/// Wall time of one run by default. Ranks that wait for each other do so until then: nobody sees that all of them do.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// How long the ranks of a case have of which one is there and does nothing, as after SIGSTOP: the others wait for it until then. On GPUs it comes on top of
/// what a wait inside a kernel may take: one that gives up says for whom it waited, and has to be launched before.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);

/// Bytes that a rank may share whose memory is capped.
const CAP: u64 = 4096;

/// The same on GPUs, where a device that is at work is seen.
pub(crate) const DEADLINE_OF_GPUS: Duration = Duration::from_secs(10);

/// How much longer than that ranks on GPUs may take: they compile kernels, and have NCCL connect.
const GRACE_OF_GPUS: Duration = Duration::from_secs(90);

/// Starts the processes of a job once more in an environment. The process of a rank may be lost at once.
pub(crate) type Again = Box<dyn FnMut(Option<usize>, &Environment) -> anyhow::Result<Job>>;

/// What to say if this process may use few of the host's cores: it computes all references.
fn bound_to_few() -> Option<String> {
    let usable = thread::available_parallelism().ok()?.get();
    let online = cores(&fs::read_to_string("/sys/devices/system/cpu/online").ok()?)?;
    (4 * usable <= online).then(|| {
        format!("note: this process may use {usable} of {online} cores, and computes all references on them; `mpirun --bind-to none` leaves it all")
    })
}

/// How many cores a list of Linux has: `0-15,32`.
fn cores(list: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.trim().split(',').map(count).sum()
}

/// Judges cases on ranks that are processes.
pub(crate) struct ByRanks {
    registry: Registry,
    /// None where the last one broke, and no other is there yet.
    machine: Option<Processes<Job>>,
    info: MachineInfo,
    /// None where others started the processes.
    again: Option<Again>,
    /// What the processes were started in.
    environment: Environment,
    /// The emulator's. On GPUs there is none.
    schedule: Option<Interleaving>,
    deadline: Duration,
    /// The deadline of cases in which a rank does nothing.
    silence: Duration,
    /// Why there is no machine any more.
    over: Option<String>,
}

impl ByRanks {
    /// On the processes of a job, which are emulators under this schedule, or have GPUs. The schedule's seed decides what a rank's own streams and warps do;
    /// `deadline` is wall time, as is `silence`, the deadline of cases in which a rank does nothing.
    ///
    /// # Errors
    /// Where they do not come, or one of them cannot.
    pub(crate) fn open(
        registry: &Registry,
        job: Job,
        again: Option<Again>,
        schedule: Option<Interleaving>,
        deadline: Duration,
        silence: Duration,
    ) -> Result<ByRanks, MachineError> {
        let (info, environment) = (MachineInfo::default(), Environment::new());
        let mut judge =
            ByRanks { registry: registry.clone(), machine: None, info, again, environment, schedule, deadline, silence, over: None };
        judge.take(job)?;
        if judge.again.is_none()
            && let Some(note) = bound_to_few()
        {
            eprintln!("{note}");
        }
        Ok(judge)
    }

    /// Waits for the processes of a job.
    fn take(&mut self, job: Job) -> Result<&mut Processes<Job>, MachineError> {
        let mut machine = Processes::open(job)?;
        if self.has_gpus() {
            machine.set_grace(GRACE_OF_GPUS);
        }
        self.info = known_better(Some(mem::take(&mut self.info)), machine.info());
        Ok(self.machine.insert(machine))
    }

    fn has_gpus(&self) -> bool {
        self.schedule.is_none()
    }

    /// What the processes must have in their environment for a case.
    fn environment_of(&self, case: &Case) -> Environment {
        if self.has_gpus() { case.environment(&self.registry) } else { Environment::new() }
    }

    /// Starts the processes again if there are none, or if they need another environment.
    fn machine(&mut self, environment: &Environment) -> Result<&mut Processes<Job>, String> {
        if let Some(over) = &self.over {
            return Err(over.clone());
        }
        if self.again.is_some() && self.environment != *environment {
            self.machine = None;
            self.environment.clone_from(environment);
        }
        if self.machine.is_none() {
            let started = match &mut self.again {
                Some(again) => again(None, environment).map_err(|error| error.to_string()),
                None => Err("a rank's process is lost: start the job again".into()),
            };
            if let Err(error) = started.and_then(|job| self.take(job).map(drop).map_err(|error| error.to_string())) {
                return Err(self.over.insert(error).clone());
            }
        }
        Ok(self.machine.as_mut().expect("it was just opened"))
    }

    /// Which variables the processes lack for a case, where others started them.
    fn lacks(&self, case: &Case) -> Option<String> {
        let is_missing = |(name, value): &(&str, &str)| env::var(name).ok().as_deref() != Some(*value);
        let missing: Vec<String> = match self.again {
            Some(_) => Vec::new(),
            None => self.environment_of(case).into_iter().filter(is_missing).map(|(name, value)| format!("{name}={value}")).collect(),
        };
        (!missing.is_empty()).then(|| {
            format!("its processes need {} in their environment: set it before you start them, or use --launcher own", missing.join(" "))
        })
    }

    fn judge(&mut self, case: &Case) -> Verdict {
        let verdict = match case.fault() {
            // What is left behind is the fault's where no other process is there before and after it.
            Some(fault) if fault.is_of_processes() && self.again.is_some() => {
                self.machine = None;
                let before = Traces::now();
                let verdict = self.struck(case, fault);
                self.machine = None;
                match before.left() {
                    None => faults::named(&self.registry, case, verdict),
                    Some(left) => {
                        Verdict { status: Status::Fail, reason: format!("{left} left behind by {fault}: {}", verdict.reason), ..verdict }
                    }
                }
            }
            Some(fault) => {
                let verdict = self.struck(case, fault);
                faults::named(&self.registry, case, verdict)
            }
            None => self.run(case, self.deadline + self.extra(case), &mut |_| Ok(())),
        };
        // What a lost rank's process had is lost; on GPUs threads may be held up in a library.
        let may_be_held = self.has_gpus() && (verdict.voids_device() || verdict.was_given_up());
        self.machine.take_if(|machine| machine.is_broken() || may_be_held);
        verdict
    }

    /// How much more time a large case gets.
    fn extra(&self, case: &Case) -> Duration {
        if self.has_gpus() { large_case_extra(case) } else { Duration::ZERO }
    }

    /// Judges a case, after the machine is made ready for it.
    fn run(
        &mut self,
        case: &Case,
        deadline: Duration,
        prepare: &mut dyn FnMut(&mut Processes<Job>) -> Result<(), MachineError>,
    ) -> Verdict {
        if let Some(lacks) = self.lacks(case) {
            return Verdict::without_checks(case.to_string(), Status::NotSupported, lacks);
        }
        let (schedule, environment) = (self.schedule.map(|schedule| schedule.to_string()), self.environment_of(case));
        let registry = self.registry.clone();
        let machine = match self.machine(&environment) {
            Ok(machine) => machine,
            Err(over) => return Verdict::without_checks(case.to_string(), Status::NotRun, over),
        };
        if let Err(error) = prepare(machine) {
            return refused(case, &error);
        }
        let mut verdict = case.judge(machine, &Settings { registry: &registry, deadline, shared_pads: false, progress: &|_| {} });
        if verdict.status.is_finding() || verdict.status == Status::Inconclusive {
            verdict.schedule = schedule;
        }
        verdict
    }

    /// What becomes of a case under its fault.
    fn struck(&mut self, case: &Case, fault: Fault) -> Verdict {
        let (Case::Collective(own), deadline) = (case, self.deadline) else { return self.run(case, self.deadline, &mut |_| Ok(())) };
        let sound = Case::Collective(CollectiveCase { fault: None, ..own.clone() });
        let registry = self.registry.clone();
        let mut verdict = match fault {
            Fault::Departs { how: Departure::Stopped | Departure::Stalled, .. } => {
                self.run(case, deadline.min(self.silence), &mut |_| Ok(()))
            }
            Fault::Capped(_) if self.has_gpus() => Verdict::without_checks(
                case.to_string(),
                Status::NotSupported,
                "memory of GPUs is no file: what a process may share of it cannot be capped",
            ),
            Fault::Capped(rank) => self.run(&sound, deadline, &mut |machine| machine.befall(rank as usize, Mishap::Capped { bytes: CAP })),
            Fault::Garbage(rank) => self.run(&sound, deadline, &mut |machine| machine.befall(rank as usize, Mishap::Garbage)),
            Fault::Other { rank, field } => self.run(&sound, deadline, &mut |machine| {
                let blocks = machine.waiting_blocks(own.world as usize, own.groups() as usize);
                let other = ranks::another_call(&registry, own, field, blocks).map_err(|reason| MachineError::NotSupported { reason })?;
                machine.mislead(rank as usize, other);
                Ok(())
            }),
            Fault::LostAtStart(rank) => match self.again.as_mut().map(|again| again(Some(rank as usize), &Environment::new())) {
                Some(Ok(job)) => match Processes::open(job) {
                    Ok(_) => Verdict::without_checks(case.to_string(), Status::Fail, "the ranks began without one of them"),
                    Err(error) => refused(case, &error),
                },
                Some(Err(error)) => Verdict::without_checks(case.to_string(), Status::InfraError, error.to_string()),
                None => Verdict::without_checks(
                    case.to_string(),
                    Status::NotSupported,
                    "only ranks that --launcher own starts are lost at once",
                ),
            },
            Fault::PortInUse => port_in_use(own),
            Fault::Departs { .. } | Fault::Absent(_) | Fault::IllegalAddress(_) | Fault::Killed | Fault::Poisoned => {
                self.run(case, deadline, &mut |_| Ok(()))
            }
        };
        verdict.case = case.to_string();
        verdict
    }
}

fn refused(case: &Case, error: &MachineError) -> Verdict {
    Verdict { blamed: error.blamed(), ..Verdict::without_checks(case.to_string(), Status::of(error), error.to_string()) }
}

/// Opens a hub where somebody else listens.
fn port_in_use(case: &CollectiveCase) -> Verdict {
    let open = || -> Result<OpenHub, BootstrapError> {
        let failed = |error: io::Error| BootstrapError::SetUp(error.to_string());
        let others = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
        let address = others.local_addr().map_err(failed)?.to_string();
        OpenHub::open(&address, case.world as usize, Secret::random()?, SILENCE, false)
    };
    match open() {
        Ok(hub) => {
            let reason = format!("a hub listens at {}, where somebody else does", hub.address);
            Verdict::without_checks(case.to_string(), Status::Fail, reason)
        }
        Err(error) => {
            let blamed = matches!(error, BootstrapError::InUse(_)).then(|| Blamed::process(How::AddressInUse));
            let verdict = Verdict::without_checks(case.to_string(), Status::InfraError, error.to_string());
            Verdict { blamed: blamed.into_iter().collect(), ..verdict }
        }
    }
}

/// What a process holds that must not grow: descriptors and children.
#[derive(Clone, Copy)]
struct Traces {
    descriptors: usize,
    children: usize,
}

impl Traces {
    fn now() -> Traces {
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let children = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default().split_whitespace().count();
        let children = fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.flatten().map(children).sum());
        Traces { descriptors, children }
    }

    /// What is there now and was not.
    fn left(self) -> Option<String> {
        let now = Traces::now();
        let more = |now: usize, then: usize, what: &str| (now > then).then(|| format!("{} {what}", now - then));
        more(now.children, self.children, "processes").or_else(|| more(now.descriptors, self.descriptors, "descriptors"))
    }
}

impl Judging for ByRanks {
    fn machine(&mut self, _cases: &[Case]) -> Result<MachineInfo, StartError> {
        Ok(self.info.clone())
    }

    fn all(&mut self, cases: &[Case], judged: &Judged<'_>) -> Result<(MachineInfo, Vec<Verdict>), StartError> {
        let bar = progress_bar(cases.len());
        let (mut verdicts, mut found): (Vec<Option<Verdict>>, usize) = (vec![None; cases.len()], 0);
        for place in by_environment(cases, |case| self.environment_of(case)).into_values().flatten() {
            let verdict = self.judge(&cases[place]);
            found += usize::from(verdict.status.is_finding());
            bar.set_message(findings(found));
            bar.inc(1);
            judged((place, &verdict));
            verdicts[place] = Some(verdict);
        }
        bar.finish_and_clear();
        Ok((self.info.clone(), verdicts.into_iter().flatten().collect()))
    }

    fn one(&mut self, case: &Case) -> Result<Verdict, StartError> {
        Ok(self.judge(case))
    }
}

/// What a rank's process opens.
pub(crate) enum RankMachine {
    /// A rank that runs its kernels' PTX.
    Emulator(EmulatorOptions),
    /// A rank that has a GPU: which all have and their kernels, its number among those of its host, and how many nodes all are said to be on.
    Cuda { gpus: Gpus, library: Library, local_rank: usize, nodes: usize },
}

/// Serves as a rank of such a job, until the coordinator lets it leave.
///
/// # Errors
/// Where the job has failed; [`StartError::CannotRun`] where this machine does not have what a rank needs, of which the coordinator has been told.
pub(crate) fn serve(registry: &Registry, rank: &Rank, machine: RankMachine) -> anyhow::Result<()> {
    let declined = |error: MachineError| {
        if let Err(lost) = ranks::decline(rank, &error) {
            return anyhow::Error::from(lost);
        }
        // A rank that leaves before the coordinator has heard all counts as lost. It waits until it may leave, or the job has failed.
        let _ = rank.receive();
        match error {
            MachineError::NotSupported { reason } => StartError::CannotRun { reason }.into(),
            error => error.into(),
        }
    };
    match machine {
        RankMachine::Emulator(options) => {
            let library = options.library.clone();
            let mut machine = RankEmulator::new(options, Box::new(rank.clone())).map_err(declined)?;
            Ok(ranks::serve(rank, &mut machine, &library)?)
        }
        RankMachine::Cuda { gpus, library, local_rank, nodes } => {
            let mut machine = gpus::open_rank(registry, &gpus, library.clone(), rank, (local_rank, nodes)).map_err(declined)?;
            Ok(ranks::serve(rank, &mut *machine, &library)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, who is bound to a core by a launcher is not told why cases take long, or others are.
    #[test]
    fn lists_of_cores_are_counted() {
        assert_eq!(cores("0-31\n"), Some(32));
        assert_eq!(cores("0-3,8,64-65\n"), Some(7));
        assert_eq!(cores(""), None);
    }
}
