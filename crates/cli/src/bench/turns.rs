//! Turns: what `bench` and `tune` ask the workers for, in which order.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt, mem,
};

use indicatif::ProgressBar;
use passmuster_bench::{
    Check, CollectiveWorkload, Conditions, Contender, Hosts, How, Method, ProcessKind, Rendezvous, Round, Span, Summary, Timing, Waits,
    Workload,
};
use passmuster_harness::conformance::{CollectiveCase, Status};
use passmuster_plan::{algorithms::Algorithm, machine::Condition, plan::Call};

use super::{
    worker::{Answer, Request},
    workers::{Silence, Workers},
};

/// The largest workload that is judged, in bytes: judging takes a second for each 128 MiB of all ranks' inputs. Larger ones go by this one.
const MOST_JUDGED: u64 = 16 << 20;

/// The case that is judged before an algorithm is timed.
fn case(contender: &dyn Algorithm, workload: &CollectiveWorkload) -> CollectiveCase {
    let judged = CollectiveWorkload { bytes: workload.bytes.min(MOST_JUDGED), ..*workload };
    let CollectiveWorkload { collective, dtype, op, world, in_place, .. } = judged;
    CollectiveCase { in_place, ..CollectiveCase::new(collective, contender.name(), dtype, op, world, judged.shape().count) }
}

/// Judges and times all contenders at all workloads: at each, first every contender is judged, then they take turns, A B A B. One that hangs or
/// dies is not timed again. If a method has several starts, each start does its share of the rounds in new processes; only the first judges. `taken` gets each
/// timing, with its place in the result, once its workload is done.
///
/// # Errors
/// Where no process can be started, or the machine cannot run any.
pub(crate) fn take(
    workers: &mut Workers<'_>,
    contenders: &[Contender],
    workloads: &[(Workload, Method)],
    bar: &ProgressBar,
    taken: &dyn Fn(usize, &Timing),
) -> anyhow::Result<Vec<Timing>> {
    let mut checks: BTreeMap<(ProcessKind, String), (Check, String)> = BTreeMap::new();
    let mut lost: BTreeMap<String, String> = BTreeMap::new();
    let mut timings = Vec::new();
    let of_workload = |(workload, method): &(Workload, Method)| -> Vec<Runner> {
        contenders.iter().map(|contender| Runner::new(contender.clone(), Timing::new(contender.name(), *workload, *method))).collect()
    };
    let mut all: Vec<Vec<Runner>> = workloads.iter().map(of_workload).collect();
    let starts = workloads.iter().map(|(_, method)| method.starts).max().unwrap_or(1);
    for start in 0..starts {
        if start > 0 {
            workers.restart();
        }
        for ((workload, method), runners) in workloads.iter().zip(&mut all) {
            bar.set_message(format!("{} {}", workload.title(), workload.size_name()));
            for runner in &mut *runners {
                if let Some(how) = lost.get(&runner.contender.name()) {
                    runner.stop(Status::NotRun, format!("not timed after {how}"));
                } else if start == 0 {
                    let (check, reason) = checked(workers, &runner.contender, workload, &mut checks)?;
                    runner.judged(check, reason);
                    runner.hold(workers)?;
                }
            }
            for _ in 0..method.rounds / method.starts {
                for runner in &mut *runners {
                    if runner.runs {
                        runner.round(workers)?;
                    }
                    bar.inc(1);
                }
            }
            for Runner { contender, timing, .. } in &*runners {
                let name = contender.name();
                if (timing.status.voids_device() || timing.status == Status::Inconclusive) && !lost.contains_key(&name) {
                    lost.insert(name, format!("a verdict of {} at {} {}", timing.status, workload.title(), workload.size_name()));
                }
            }
            if start + 1 == starts {
                for runner in mem::take(runners) {
                    let timing = runner.done();
                    taken(timings.len(), &timing);
                    timings.push(timing);
                }
            }
        }
    }
    Ok(timings)
}

/// Whether a contender's results are right, by the case of the call where it is a collective, which is judged once.
fn checked(
    workers: &mut Workers<'_>,
    contender: &Contender,
    workload: &Workload,
    checks: &mut BTreeMap<(ProcessKind, String), (Check, String)>,
) -> anyhow::Result<(Check, String)> {
    let (Some(algorithm), Workload::Collective(of)) = (contender.algorithm(), workload) else { return look(workers, contender, workload) };
    let (place, case) = (contender.place(workload), case(&**algorithm, of).to_string());
    Ok(match checks.entry((place, case.clone())) {
        Entry::Occupied(known) => known.get().clone(),
        Entry::Vacant(new) => new.insert(judge(workers, place, &case)?).clone(),
    })
}

/// What the operations of one call took, for each timing that has a time and whose contender still answers.
///
/// # Errors
/// Where no process can be started.
pub(super) fn spans(
    workers: &mut Workers<'_>,
    contenders: &[Contender],
    timings: &[Timing],
) -> anyhow::Result<Vec<(Timing, Vec<Vec<Span>>)>> {
    let mut spans = Vec::new();
    for timing in timings.iter().filter(|timing| timing.microseconds.is_some() || timing.waits.is_some()) {
        let Some(contender) = contenders.iter().find(|contender| contender.name() == timing.contender) else { continue };
        let Timing { contender: name, workload, method, .. } = timing;
        let request = Request::Spans { contender: name.clone(), workload: *workload, method: *method };
        match workers.ask(contender.place(workload), &request)? {
            Ok(Answer::Spans(Ok(ranks))) => spans.push((timing.clone(), ranks)),
            Ok(Answer::Spans(Err(error))) => eprintln!("no trace of {name} at {} {}: {error}", workload.title(), workload.size_name()),
            Ok(_) => eprintln!("no trace of {name}: the bench worker answered something else"),
            Err(silence) => eprintln!("no trace of {name}: {silence}"),
        }
    }
    Ok(spans)
}

/// Judges a case, and says why it did not pass.
fn judge(workers: &mut Workers<'_>, place: ProcessKind, case: &str) -> anyhow::Result<(Check, String)> {
    let (status, reason) = match workers.ask(place, &Request::Judge { case: case.into() })? {
        Ok(Answer::Verdict(verdict)) => {
            let found = verdict.findings.first().map(|finding| format!("{}: {}", finding.property, finding.summary));
            (verdict.status, if verdict.reason.is_empty() { found.unwrap_or_default() } else { verdict.reason })
        }
        Ok(_) => (Status::InfraError, "the bench worker answered something else".into()),
        Err(silence) => (silence.status(), silence.to_string()),
    };
    Ok((Check { case: case.into(), status }, reason))
}

/// Has a contender's results looked at, and says what is wrong with them.
fn look(workers: &mut Workers<'_>, contender: &Contender, workload: &Workload) -> anyhow::Result<(Check, String)> {
    let request = Request::Check { contender: contender.name(), workload: *workload };
    let (case, status, reason) = match workers.ask(contender.place(workload), &request)? {
        Ok(Answer::Checked(Ok((looked, None)))) => (looked, Status::Pass, String::new()),
        Ok(Answer::Checked(Ok((looked, Some(wrong))))) => (looked, Status::Fail, wrong),
        Ok(Answer::Checked(Err(error))) => ("none".into(), Status::of(&error), error.to_string()),
        Ok(_) => ("none".into(), Status::InfraError, "the bench worker answered something else".into()),
        Err(silence) => ("none".into(), silence.status(), silence.to_string()),
    };
    Ok((Check { case, status }, reason))
}

/// A contender at one workload.
struct Runner {
    contender: Contender,
    timing: Timing,
    runs: bool,
    graph: Vec<Vec<f64>>,
    eager: Vec<Vec<f64>>,
    products: Vec<Vec<f64>>,
    conditions: Vec<Condition>,
    /// As the last round told.
    met: u64,
    hosts: Vec<Hosts>,
}

impl Runner {
    fn new(contender: Contender, timing: Timing) -> Runner {
        let (graph, eager, products, conditions) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Runner { contender, timing, runs: false, graph, eager, products, conditions, met: 0, hosts: Vec::new() }
    }

    /// What does not give the right result is timed all the same, but its status says so.
    fn judged(&mut self, check: Check, reason: String) {
        self.runs = matches!(check.status, Status::Pass | Status::Waived | Status::UnexpectedPass | Status::Fail);
        self.timing.status = if check.status == Status::Waived { Status::Pass } else { check.status };
        self.timing.reason = reason;
        self.timing.check = Some(check);
    }

    /// Sees whether it needs SMs, where it goes by the name of copy engines or gathers by what does: what needs them is not timed under that name.
    fn hold(&mut self, workers: &mut Workers<'_>) -> anyhow::Result<()> {
        // Out of place, as steps gather, there is a copy within a device as well.
        let (gather, alone, out_of_place) = match (&self.contender, self.timing.workload) {
            (Contender::OverlapContender(arm), Workload::Matmul(of)) => (arm.gather.clone(), arm.how == How::Gather, of.out_of_place),
            (Contender::Fsdp(step), _) => (step.gather(), false, true),
            (contender, _) => (contender.algorithm().cloned(), false, true),
        };
        let by_copy_engines = gather.is_some_and(|gather| gather.name() == "nccl_copy_engine");
        if !self.runs || !(alone || by_copy_engines) {
            return Ok(());
        }
        let request = Request::SmFreeCheck { contender: self.contender.name(), workload: self.timing.workload };
        match workers.ask(self.contender.place(&self.timing.workload), &request)? {
            Ok(Answer::SmFreeCheck(Ok(held))) => {
                self.timing.held = held;
                let done = held.is_none_or(|held| if out_of_place { held.out_of_place } else { held.in_place != Some(false) });
                if by_copy_engines && !done {
                    self.stop(Status::NotSupported, "NCCL takes a kernel: it did not get done while blocks held all SMs".into());
                }
            }
            Ok(Answer::SmFreeCheck(Err(error))) => self.stop(Status::of(&error), error.to_string()),
            Ok(_) => self.stop(Status::InfraError, "the bench worker answered something else".into()),
            Err(silence) => self.stop(silence.status(), silence.to_string()),
        }
        Ok(())
    }

    fn stop(&mut self, status: Status, reason: String) {
        (self.timing.status, self.timing.reason, self.runs) = (status, reason, false);
    }

    fn round(&mut self, workers: &mut Workers<'_>) -> anyhow::Result<()> {
        let Timing { contender, workload, method, .. } = self.timing.clone();
        let place = self.contender.place(&workload);
        if method.beside {
            let get_ready = Request::GetReady { contender: contender.clone(), workload, method };
            // PyTorch's ranks do so in their first round.
            let get_ready = (!matches!(place, ProcessKind::Python(_))).then_some((place, get_ready));
            for (place, request) in get_ready.into_iter().chain([(ProcessKind::Beside, Request::RunBeside)]) {
                let (status, reason) = match workers.ask(place, &request)? {
                    Ok(Answer::Done(Ok(()))) => continue,
                    Ok(Answer::Done(Err(error))) => (Status::of(&error), error.to_string()),
                    Ok(_) => (Status::InfraError, "the bench worker answered something else".into()),
                    Err(silence) => (silence.status(), silence.to_string()),
                };
                self.stop(status, reason);
                return Ok(());
            }
        }
        let (status, reason) = match workers.ask(place, &Request::Round { contender, workload, method })? {
            Ok(Answer::Round(Ok(Round { graph, eager, products, conditions, rendezvous, hosts }))) => {
                self.met = rendezvous;
                self.hosts.extend(hosts);
                self.products.push(products);
                self.graph.push(graph);
                self.eager.push(eager);
                self.conditions.extend(conditions);
                return Ok(());
            }
            Ok(Answer::Round(Err(error))) => (Status::of(&error), error.to_string()),
            Ok(_) => (Status::InfraError, "the bench worker answered something else".into()),
            Err(silence) => (silence.status(), silence.to_string()),
        };
        self.stop(status, reason);
        Ok(())
    }

    fn done(self) -> Timing {
        let Runner { contender, mut timing, runs, graph, eager, products, conditions, met, hosts } = self;
        if runs {
            // In a graph and eagerly.
            let steps =
                2 * u64::from(timing.method.rounds) * u64::from(timing.method.calls * (timing.method.replays + timing.method.warm_up));
            timing.rendezvous = matches!(contender, Contender::Fsdp(_)).then_some(Rendezvous { met, steps });
            timing.enter(&graph, &eager, link_bytes(&contender, &timing.workload));
            timing.products = Summary::of(&products);
            timing.waits = waits(&hosts);
            timing.conditions = Conditions::of(&conditions);
        }
        timing
    }
}

/// How hosts came to what they waited for in all rounds, where they did.
fn waits(rounds: &[Hosts]) -> Option<Waits> {
    let blocked = Summary::of(&rounds.iter().map(|round| round.blocked.clone()).collect::<Vec<_>>())?;
    let sum = |of: fn(&Hosts) -> u64| rounds.iter().map(of).sum();
    Some(Waits { blocked, looked: sum(|round| round.looked), not_there: sum(|round| round.not_there) })
}

/// Bytes that a call of a collective takes over the links, where its algorithm says.
fn link_bytes(contender: &Contender, workload: &Workload) -> Option<u64> {
    let (Some(algorithm), Workload::Collective(of)) = (contender.algorithm(), workload) else { return None };
    let (call, _) = Call::standalone(of.shape(), of.dtype, of.op).ok()?;
    algorithm.link_bytes(&call)
}

impl Silence {
    fn status(&self) -> Status {
        match self {
            Silence::CannotRun | Silence::NoPython(_) => Status::NotSupported,
            Silence::Lost(_) => Status::Crash,
            Silence::Silent(_) => Status::Inconclusive,
        }
    }
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Silence::CannotRun => f.write_str("this machine cannot run it"),
            Silence::NoPython(why) => f.write_str(why),
            Silence::Lost(how) => write!(f, "the bench worker was lost: {how}"),
            Silence::Silent(how) => write!(f, "the bench worker was killed: {how}"),
        }
    }
}
