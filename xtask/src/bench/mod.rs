//! `bench`: times of algorithms beside their peers. `turns` says who is asked when, `workers` holds the processes, `worker` is what runs in
//! them; `output` is what becomes of the timings, also of recorded ones (`report`).

mod output;
mod report;
mod turns;
mod worker;
mod workers;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{bail, ensure};
use passmuster::{
    algorithms::{self, Algorithm},
    bench::{Late, Method, Timing, Workload, trace},
    collective::Collective,
    conformance::{
        Status,
        report::{Record, Summary as Counts},
    },
};
use xshell::Shell;

use self::{
    output::{Output, written},
    turns::spans,
};
pub(crate) use self::{
    report::Report,
    turns::{take, workload},
    worker::BenchWorker,
    workers::Workers,
};
use crate::{CANNOT_RUN, FINDING, USAGE, conform::progress_bar, project, worker::Machine};

/// Time the algorithms of a collective beside NCCL.
///
/// Microseconds of one call, the slowest rank, in a captured graph and as the host launches it: the median of the rounds' medians, with where it lies
/// at 95 % confidence. Contenders take turns (A B A B). Registered buffers, out of place, bf16, sums where the collective reduces. Ranks meet on
/// their devices before each sample in a graph. L2 is cold: memory larger than it is overwritten before each sample, and its calls go round copies
/// of the buffers. Before a contender is timed, a case of the same call is judged; a speed-up over NCCL is printed only where it passes.
///
/// The emulator cannot be timed.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask bench --worlds 2,4,8 --save before.json
  cargo xtask bench --worlds 2,4,8 --baseline before.json
  cargo xtask bench all_gather --worlds 8 --sizes 8K,1M --contenders push,nccl_ring
  cargo xtask bench --rows 1,32,512,2048 --worlds 8 --html report.html --plot plots")]
pub(crate) struct Bench {
    /// The collective: all_reduce, all_gather, ...
    #[arg(default_value_t = Collective::AllReduce)]
    collective: Collective,
    /// World sizes; when left out, those of 2, 4, 6 and 8 that this machine has GPUs for.
    #[arg(long, value_delimiter = ',')]
    worlds: Vec<u32>,
    /// Sizes in bytes of each rank's input or output, whichever is larger: 8K, 1M, ...
    #[arg(long, value_delimiter = ',', value_parser = size, default_value = "8K,64K,256K,1M,4M,16M,64M,256M")]
    sizes: Vec<u64>,
    /// Sizes as rows of tokens instead: so many times --hidden elements.
    #[arg(long, value_delimiter = ',', value_name = "TOKENS", conflicts_with = "sizes", value_parser = clap::value_parser!(u64).range(1..))]
    rows: Vec<u64>,
    /// Elements of a row of --rows.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..))]
    hidden: u64,
    /// Algorithms, by name; when left out, all but those that need multicast addresses.
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    /// Turns that each contender has at each size: with fewer than 6 nothing is said of noise.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Leave L2 as it is and use the same buffers each time, so that small ones are found there.
    #[arg(long)]
    warm: bool,
    /// Have one rank come late to every call by so many microseconds.
    #[arg(long, value_name = "RANK+US")]
    late_rank: Option<Late>,
    /// Also time worlds of more ranks than GPUs, of which several share one. Says little about their speed.
    #[arg(long)]
    share_gpus: bool,
    /// Go through all of it on the emulator, to see that it works. What it prints are no times.
    #[arg(long, hide = true)]
    rehearse: bool,
    /// Write what the operations of one call of each contender took at each size, for https://ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    machine: Machine,
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return Err(format!("`{text}` is not a number with K, M or G")),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(|| format!("`{text}` is not a number with K, M or G"))
}

impl Bench {
    pub(crate) fn run(self, sh: &Shell) -> anyhow::Result<ExitCode> {
        let contenders = self.contenders()?;
        let baseline = self.output.baseline()?;
        let mut workers = Workers::new(&self.machine, self.rehearse);
        let Some(&first) = contenders.first() else { bail!("no contender") };
        let Some(machine) = workers.machine(first)? else { return Ok(ExitCode::from(CANNOT_RUN)) };
        if let Some(baseline) = &baseline {
            self.output.comparable(&machine, baseline)?;
        }
        let worlds = self.fitting(machine.gpus as u32, &machine.gpu)?;
        let workloads = self.workloads(&worlds);
        let bar = progress_bar(contenders.len() * workloads.iter().map(|(_, method)| method.rounds as usize).sum::<usize>());
        let timings = take(&mut workers, &contenders, &workloads, &bar)?;
        bar.finish_and_clear();
        // Before what is timed is shown, while the workers live.
        let spans = if self.trace.is_some() { spans(&mut workers, &contenders, &timings)? } else { Vec::new() };
        let mut machine = workers.together();
        machine.notes.extend(project::gpu_settings(sh));
        let counts = Counts::of(timings.iter().map(|timing| timing.status));
        let mut record = Record::new("bench", machine, project::source(sh), counts, timings);
        record.notes.push(format!("{} {}", project::invocation(), self.arguments(&worlds, &contenders)));

        // What a contender does not do is no news, unless nothing was done.
        let nothing = record.cases.iter().all(|timing| timing.microseconds.is_none());
        let told = |timing: &&Timing| timing.status != Status::Pass && (nothing || timing.status != Status::NotSupported);
        for timing in record.cases.iter().filter(told) {
            eprintln!(
                "{} {} w={} {} bytes: {}",
                timing.status, timing.contender, timing.workload.world, timing.workload.bytes, timing.reason
            );
        }
        if self.rehearse {
            eprintln!("a rehearsal on the emulator: its times order and do not measure");
        }
        let shown = self.output.show(&record, self.hidden(), baseline.as_ref())?;
        let traced = written(self.trace.as_deref(), || {
            let calls: Vec<_> = spans.iter().map(|(timing, spans)| (timing.contender.as_str(), timing.workload, spans.clone())).collect();
            Ok(trace(&calls)?)
        });
        let failed = record.cases.iter().any(|timing| timing.status == Status::InfraError);
        Ok(if record.summary.has_findings() || shown.regressed {
            ExitCode::from(FINDING)
        } else if shown.unwritten || !traced || failed {
            ExitCode::from(USAGE)
        } else if nothing {
            ExitCode::from(CANNOT_RUN)
        } else {
            ExitCode::SUCCESS
        })
    }

    fn contenders(&self) -> anyhow::Result<Vec<&'static dyn Algorithm>> {
        let find = |name: &String| algorithms::find(self.collective, name).map_err(anyhow::Error::msg);
        let timed = |algorithm: &dyn Algorithm| algorithm.collective() == self.collective && !algorithm.uses_multicast();
        match &self.contenders {
            None => Ok(algorithms::all().iter().copied().filter(|&algorithm| timed(algorithm)).collect()),
            Some(names) => names.iter().map(find).collect(),
        }
    }

    /// The world sizes that were asked for, or all usual ones that fit.
    ///
    /// # Errors
    /// One that does not fit, where several ranks may not share a GPU.
    fn fitting(&self, gpus: u32, name: &str) -> anyhow::Result<Vec<u32>> {
        if self.worlds.is_empty() {
            let fitting: Vec<u32> = [2, 4, 6, 8].into_iter().filter(|&world| world <= gpus).collect();
            ensure!(!fitting.is_empty(), "this machine has {gpus} x {name}: a world of 2 needs two GPUs, or --worlds 2 --share-gpus");
            return Ok(fitting);
        }
        if let Some(world) = self.worlds.iter().find(|&&world| world == 0 || world > gpus && !self.share_gpus && !self.rehearse) {
            bail!(
                "--worlds {world}: this machine has {gpus} x {name}, so worlds of 1 to {gpus}; with --share-gpus several ranks share one"
            );
        }
        Ok(self.worlds.clone())
    }

    fn hidden(&self) -> Option<u64> {
        (!self.rows.is_empty()).then_some(self.hidden)
    }

    fn workloads(&self, worlds: &[u32]) -> Vec<(Workload, Method)> {
        let dtype = workload(self.collective, 1, 0).dtype;
        let sizes = if self.rows.is_empty() {
            self.sizes.clone()
        } else {
            self.rows.iter().map(|rows| rows * self.hidden * dtype.size()).collect()
        };
        let method = |bytes| {
            let timed = Method { rounds: self.rounds, late: self.late_rank, ..Method::for_bytes(bytes) };
            // The emulator has no L2.
            let method = if self.rehearse { Method { calls: 2, replays: 2, copies: 2, flush: 4096, ..timed } } else { timed };
            if self.warm { method.warm() } else { method }
        };
        worlds.iter().flat_map(|&world| sizes.iter().map(move |&bytes| (workload(self.collective, world, bytes), method(bytes)))).collect()
    }

    /// The command line that times the same again, without files.
    fn arguments(&self, worlds: &[u32], contenders: &[&dyn Algorithm]) -> String {
        let list = |values: &[u64]| values.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let worlds: Vec<u64> = worlds.iter().map(|&world| world.into()).collect();
        let names: Vec<&str> = contenders.iter().map(|contender| contender.name()).collect();
        let sizes = match self.hidden() {
            Some(hidden) => format!("--rows {} --hidden {hidden}", list(&self.rows)),
            None => format!("--sizes {}", list(&self.sizes)),
        };
        let mut line = format!("bench {} --worlds {} {sizes} --contenders {}", self.collective, list(&worlds), names.join(","));
        line += &format!(" --rounds {}", self.rounds);
        line += &self.late_rank.map(|late| format!(" --late-rank {late}")).unwrap_or_default();
        line += if self.warm { " --warm" } else { "" };
        line + if self.share_gpus { " --share-gpus" } else { "" }
    }
}
