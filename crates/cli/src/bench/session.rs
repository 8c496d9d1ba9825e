//! What all scenarios of `bench` have in common: options, workers, and what becomes of the timings.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{bail, ensure};
use passmuster_bench::{Contender, Late, Method, Timing, Workload, trace};
use passmuster_harness::conformance::{
    Status,
    manifest::Outcome,
    report::{Record, Source, Summary as Counts},
};
use passmuster_plan::{
    algorithms::Registry,
    machine::{MachineInfo, UNCHECKED_PATH},
    modules::FOREIGN,
};
use xshell::Shell;

use super::{
    output::Output,
    turns::{spans, take},
    workers::Workers,
};
use crate::{
    CANNOT_RUN, FINDING, USAGE,
    bench::timed::Timed,
    exit,
    foreign::{ForeignArgs, Known},
    gpus::Gpus,
    journal::{self, EVERY, Journal},
    modules,
    progress::progress_bar,
    project,
    require::Require,
    result_file::{ResultFile, all_of},
    worker::MachineKind,
};

/// How anything is timed, and where it goes.
#[derive(clap::Args)]
pub(super) struct Session {
    /// Rounds of each contender at each size. With fewer than 6, no confidence interval is printed.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) rounds: u32,
    /// Restart all processes N times, for fresh buffer addresses. They change small calls by up to 5 %.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    starts: u32,
    /// Do not run a kernel of another process on the GPUs before each round. Most kernels then take up to 0.4 us more, until another process has run.
    #[arg(long)]
    alone: bool,
    /// Keep L2 warm: use the same buffers each time.
    #[arg(long)]
    warm: bool,
    /// Delay one rank before every call, by this many microseconds.
    #[arg(long, value_name = "RANK+US")]
    late_rank: Option<Late>,
    /// Also time more ranks than GPUs; they share GPUs. The times say little about speed.
    #[arg(long)]
    share_gpus: bool,
    /// Dry run on the emulator. The printed times mean nothing.
    #[arg(long, hide = true)]
    pub(super) rehearse: bool,
    /// Write a trace of one call of each contender at each size, for https://ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    elsewhere: ForeignArgs,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    require: Require,
    #[command(flatten)]
    gpus: Gpus,
}

/// What is to be timed.
pub(super) struct Task {
    pub(super) contenders: Vec<Contender>,
    pub(super) workloads: Vec<(Workload, Method)>,
    /// The command line that times the same again, without files and what the session adds.
    pub(super) line: String,
    /// Elements of a row, where sizes are rows of tokens.
    pub(super) hidden: Option<u64>,
    /// What the record says beside that line.
    pub(super) notes: Vec<String>,
    /// Whether it is of interest why a contender cannot do a workload.
    pub(super) tells: bool,
}

impl Session {
    /// Times what `task` says for the machine, and shows it.
    ///
    /// # Errors
    /// Wrong usage, or where no process can be started.
    pub(super) fn run(
        &self,
        registry: &Registry,
        sh: &Shell,
        task: impl FnOnce(&MachineInfo) -> anyhow::Result<Task>,
    ) -> anyhow::Result<ExitCode> {
        let baseline = self.output.baseline()?;
        let files = self.output.files()?;
        let traced = ResultFile::asked(self.trace.as_deref())?;
        journal::end_with_children()?;
        let mut workers = Workers::new(&self.gpus, self.elsewhere.arguments(), self.rehearse);
        let Some(machine) = workers.machine()? else { return Ok(ExitCode::from(CANNOT_RUN)) };
        if let Some(baseline) = &baseline {
            self.output.comparable(&machine, baseline)?;
        }
        let Task { contenders, workloads, line, hidden, notes, tells } = task(&machine)?;
        ensure!(!contenders.is_empty(), "no contender");
        ensure!(!workloads.is_empty(), "nothing to time: no size is left of those that were asked for");
        let is_foreign = |contender: &Contender| contender.name().starts_with(FOREIGN);
        ensure!(!self.elsewhere.any() || contenders.iter().any(is_foreign), "--spec: none of its kernels is a contender here");
        let bar = progress_bar(contenders.len() * workloads.iter().map(|(_, method)| method.rounds as usize).sum::<usize>());
        let line = format!("{} bench {line}{}", project::name(), self.arguments());
        let (notes, source) = ([vec![line], notes].concat(), project::source(sh, &registry.library()));
        let (of_machine, of_source, of_notes) = (machine.clone(), source.clone(), notes.clone());
        let of_registry = registry.clone();
        let so_far = move |timings| record(&of_registry, of_machine.clone(), of_source.clone(), of_notes.clone(), timings);
        let all = vec![None; contenders.len() * workloads.len()];
        let journal = Journal::open(files.kept()?, Duration::from_secs(EVERY), all, so_far)?;
        let timings = take(&mut workers, &contenders, &workloads, &bar, &|index, timing| journal.put(index, timing.clone()))?;
        bar.finish_and_clear();
        // Before what is timed is shown, while the workers live.
        let spans = if self.trace.is_some() { spans(&mut workers, &contenders, &timings)? } else { Vec::new() };
        let mut machine = workers.together();
        machine.notes.extend(project::gpu_settings(sh));
        let record = record(registry, machine, source, notes, timings);
        if let Some((_, why)) = record.machine.notes.iter().find(|(name, _)| name == UNCHECKED_PATH) {
            eprintln!("it is not known that NCCL took the paths that were asked for (path unchecked): {why}");
        }

        // What a contender does not do is no news, unless nothing was done.
        let nothing = record.cases.iter().all(|timing| timing.microseconds.is_none() && timing.eager.is_none());
        let told = |timing: &&Timing| timing.status != Status::Pass && (nothing || tells || timing.status != Status::NotSupported);
        for timing in record.cases.iter().filter(told) {
            let Timing { status, contender, workload, reason, .. } = timing;
            eprintln!("{status} {contender} {}, {}: {reason}", workload.title(), workload.size_name());
        }
        if self.rehearse {
            eprintln!("a rehearsal on the emulator: its times order and do not measure");
        }
        let shown = self.output.compare(&record, hidden, baseline.as_ref());
        let written = journal.end(|| {
            let calls: Vec<_> = spans.iter().map(|(timing, spans)| (timing.contender.as_str(), timing.workload, spans.clone())).collect();
            let traced = traced.iter().map(|file| file.write(&trace(&calls)?));
            all_of(traced.chain([self.output.write(&files, &record, &[], hidden, &shown)]))
        });
        shown.print(&record);
        written?;
        let has = |status| record.cases.iter().any(|timing| timing.status == status);
        let code = exit_status(has, (shown.regressed, shown.uncompared, nothing)).into();
        let timed: Vec<Timed<'_>> = record.cases.iter().map(Timed).collect();
        let run: Vec<Outcome<'_>> = timed
            .iter()
            .map(|timed| Outcome { case: timed, name: &timed.0.contender, status: timed.0.status, reason: &timed.0.reason })
            .collect();
        Ok(self.require.exit(code, &record.machine, &run))
    }

    /// The algorithms of a registry, with the kernels from elsewhere that are named.
    ///
    /// # Errors
    /// As [`ForeignArgs::beside`].
    pub(super) fn known(&self, registry: &Registry) -> anyhow::Result<Known> {
        let on = if self.rehearse { MachineKind::Emulator } else { MachineKind::Cuda };
        self.elsewhere.beside(registry, on)
    }

    /// The world sizes that were asked for, or those of `usual` that fit.
    ///
    /// # Errors
    /// One that does not fit, where several ranks may not share a GPU.
    pub(super) fn fitting(&self, asked: &[u32], usual: &[u32], machine: &MachineInfo) -> anyhow::Result<Vec<u32>> {
        fitting(asked, usual, machine, self.share_gpus || self.rehearse)
    }

    /// A method as the options have it.
    pub(super) fn method(&self, usual: Method) -> Method {
        let (starts, rounds) = (self.starts, self.rounds * self.starts);
        let timed = Method { rounds, starts, beside: !self.alone, late: self.late_rank, batched: self.gpus.batch_copies, ..usual };
        // The emulator has no L2.
        let method = if self.rehearse { Method { calls: timed.calls.min(2), replays: 2, copies: 2, flush: 4096, ..timed } } else { timed };
        if self.warm { method.warm() } else { method }
    }

    fn arguments(&self) -> String {
        let mut line = format!(" --rounds {}", self.rounds);
        line += &(if self.starts > 1 { format!(" --starts {}", self.starts) } else { String::new() });
        line += if self.alone { " --alone" } else { "" };
        line += &self.late_rank.map(|late| format!(" --late-rank {late}")).unwrap_or_default();
        line += if self.warm { " --warm" } else { "" };
        line += if self.gpus.batch_copies { " --batch-copies" } else { "" };
        line += if self.share_gpus { " --share-gpus" } else { "" };
        line + &self.elsewhere.arguments().iter().map(|argument| format!(" {argument}")).collect::<String>()
    }
}

/// The record of some timings. The first of its notes is the command line that takes them again.
fn record(registry: &Registry, machine: MachineInfo, source: Source, notes: Vec<String>, timings: Vec<Timing>) -> Record<Timing> {
    let counts = Counts::of(timings.iter().map(|timing| timing.status));
    let mut record = Record { notes, ..Record::new("bench", machine, source, counts, timings) };
    record.source.modules = modules::modules_of_timings(registry, &record.cases);
    record
}

/// The exit status of a run by the statuses that its timings have, and whether something is slower than it was, could not be compared, or nothing was timed.
fn exit_status(has: impl Fn(Status) -> bool, (regressed, uncompared, nothing): (bool, bool, bool)) -> u8 {
    match exit::status(has) {
        _ if regressed => FINDING,
        FINDING => FINDING,
        _ if uncompared => USAGE,
        // Which contenders refused is no matter, but for one that nothing else was timed beside.
        0 | CANNOT_RUN => {
            if nothing {
                CANNOT_RUN
            } else {
                0
            }
        }
        status => status,
    }
}

fn fitting(asked: &[u32], usual: &[u32], machine: &MachineInfo, share: bool) -> anyhow::Result<Vec<u32>> {
    let (gpus, name) = (machine.gpus as u32, &machine.gpu);
    if asked.is_empty() {
        let fitting: Vec<u32> = usual.iter().copied().filter(|&world| world <= gpus).collect();
        ensure!(!fitting.is_empty(), "this machine has {gpus} x {name}: a world of 2 needs two GPUs, or to be asked for with --share-gpus");
        return Ok(fitting);
    }
    if let Some(world) = asked.iter().find(|&&world| world == 0 || world > gpus && !share) {
        bail!("a world of {world}: this machine has {gpus} x {name}, so worlds of 1 to {gpus}; with --share-gpus several ranks share one");
    }
    Ok(asked.to_vec())
}

/// `1,2,3`.
pub(super) fn list<T: ToString>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::INCONCLUSIVE;

    /// If this fails, a session whose timings are not known to be right, or are slower than before, exits as one that passed.
    #[test]
    fn exit_status_knows_timings() {
        let of = |statuses: &[Status], flags| exit_status(|status| statuses.contains(&status), flags);
        let none = (false, false, false);
        assert_eq!(of(&[Status::Pass, Status::NotSupported], none), 0);
        assert_eq!(of(&[Status::Pass, Status::Inconclusive], none), INCONCLUSIVE);
        assert_eq!(of(&[Status::Pass, Status::InfraError, Status::Inconclusive], none), USAGE);
        assert_eq!(of(&[Status::Pass, Status::Fail, Status::Inconclusive], none), FINDING);
        assert_eq!(of(&[Status::Inconclusive], (true, true, false)), FINDING);
        assert_eq!(of(&[Status::Inconclusive], (false, true, false)), USAGE);
        assert_eq!(of(&[Status::NotSupported], (false, false, true)), CANNOT_RUN);
    }

    /// If this fails, a world is timed whose ranks share GPUs without anybody having asked for it, or an error does not say what fits.
    #[test]
    fn worlds_are_as_large_as_the_machine() {
        let machine = MachineInfo { gpu: "NVIDIA H200".into(), gpus: 2, ..MachineInfo::default() };
        let of = |asked: &[u32], share| fitting(asked, &[2, 4, 6, 8], &machine, share).map_err(|error| error.to_string());
        let refused = |world: u32| {
            format!("a world of {world}: this machine has 2 x NVIDIA H200, so worlds of 1 to 2; with --share-gpus several ranks share one")
        };
        assert_eq!((of(&[], false), of(&[1, 2], false), of(&[4], true)), (Ok(vec![2]), Ok(vec![1, 2]), Ok(vec![4])));
        assert_eq!((of(&[2, 4], false), of(&[0], true)), (Err(refused(4)), Err(refused(0))));
        let alone = fitting(&[], &[2, 4], &MachineInfo { gpus: 1, ..machine.clone() }, false).unwrap_err().to_string();
        assert_eq!(alone, "this machine has 1 x NVIDIA H200: a world of 2 needs two GPUs, or to be asked for with --share-gpus");
    }
}
