//! `bench`: times of algorithms beside their peers, each in a process with the environment that it needs.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow};
use passmuster::{
    algorithms::{self, Algorithm},
    bench::{Method, Summary, Workload, bandwidths, measure, summarize},
    collective::{Collective, DType},
    conformance::{
        Status,
        report::{Record, Summary as Counts, table},
    },
    kernels::Library,
    machine::{Machine as _, MachineError, MachineInfo},
};
use serde::{Deserialize, Serialize};
use xshell::Shell;

use crate::{CANNOT_RUN, FINDING, conform::write_record, project, worker::Machine};

/// Time the algorithms of a collective beside NCCL.
///
/// Microseconds of one call in a captured graph of several, the slowest rank, median over replays. Registered buffers, out of place, bf16,
/// sums where the collective reduces, the same buffers each time (so small ones stay in L2, for all contenders alike).
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask bench --worlds 2,4,8 --json bench.json
  cargo xtask bench all_gather --worlds 8 --sizes 8K,1M --contenders push,nccl_ring")]
pub(crate) struct Bench {
    /// The collective: all_reduce, all_gather, ...
    #[arg(default_value_t = Collective::AllReduce)]
    collective: Collective,
    /// World sizes.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8])]
    worlds: Vec<u32>,
    /// Sizes in bytes of each rank's input or output, whichever is larger: 8K, 1M, ...
    #[arg(long, value_delimiter = ',', value_parser = size, default_value = "8K,64K,256K,1M,4M,16M,64M,256M")]
    sizes: Vec<u64>,
    /// Algorithms, by name; when left out, all but those that need multicast addresses.
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    /// Write the record of the run (docs/record-schema.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    machine: Machine,
}

/// Time one contender (started by bench).
#[derive(clap::Args)]
pub(crate) struct BenchWorker {
    collective: Collective,
    /// The algorithm.
    #[arg(long)]
    contender: String,
    #[arg(long, value_delimiter = ',')]
    worlds: Vec<u32>,
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<u64>,
    #[command(flatten)]
    machine: Machine,
}

/// One cell of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Timing {
    contender: String,
    pub(crate) workload: Workload,
    method: Method,
    pub(crate) status: Status,
    /// Why there is no time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    /// Microseconds a call, over the replays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) microseconds: Option<Summary>,
    /// GB/s, as nccl-tests defines them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    algbw_busbw: Option<(f64, f64)>,
}

/// What a bench worker prints, one to a line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Machine(MachineInfo),
    Timing(Timing),
}

/// How long one measurement may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// After how long without a word a bench worker is killed: NCCL's start included.
const SILENCE: Duration = Duration::from_secs(60);

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
        let contenders: Vec<&'static dyn Algorithm> = match &self.contenders {
            None => {
                let timed = |algorithm: &dyn Algorithm| algorithm.collective() == self.collective && !algorithm.uses_multicast();
                algorithms::all().iter().copied().filter(|&algorithm| timed(algorithm)).collect()
            }
            Some(names) => {
                names.iter().map(|name| algorithms::find(self.collective, name).map_err(anyhow::Error::msg)).collect::<Result<_, _>>()?
            }
        };
        let mut machine = None;
        let mut timings = Vec::new();
        for contender in &contenders {
            eprintln!("timing {}", contender.name());
            match time(&self.machine, *contender, &self.worlds, &self.sizes)? {
                Some((info, times)) => {
                    machine = Some(info);
                    timings.extend(times);
                }
                None => return Ok(ExitCode::from(CANNOT_RUN)),
            }
        }
        for &world in &self.worlds {
            println!("\n{} bf16 {}, w={world}: microseconds a call, median (p95)", self.collective, self.collective.operators()[0]);
            println!("{}", self.rows(world, &contenders, &timings));
        }
        let counts = Counts::of(timings.iter().map(|t| t.status));
        let code = if counts.has_findings() { ExitCode::from(FINDING) } else { ExitCode::SUCCESS };
        for timing in timings.iter().filter(|t| t.status.is_finding()) {
            eprintln!("{} {}: {}", timing.status, timing.contender, timing.reason);
        }
        if let Some(path) = &self.json {
            let mut machine = machine.unwrap_or_default();
            machine.notes.extend(project::gpu_settings(sh));
            let record = Record::new("bench", machine, project::source(sh), counts, timings);
            write_record(path, &record)?;
        }
        Ok(code)
    }

    fn rows(&self, world: u32, contenders: &[&dyn Algorithm], timings: &[Timing]) -> String {
        let header: Vec<&str> = std::iter::once("bytes").chain(contenders.iter().map(|c| c.name())).collect();
        let rows: Vec<Vec<String>> = self
            .sizes
            .iter()
            .map(|&bytes| {
                let cell = |c: &&dyn Algorithm| {
                    let found = timings.iter().find(|t| t.contender == c.name() && t.workload.world == world && t.workload.bytes == bytes);
                    match found.and_then(|t| t.microseconds) {
                        Some(times) => format!("{:.2} ({:.2})", times.median, times.p95),
                        None => "-".into(),
                    }
                };
                std::iter::once(bytes.to_string()).chain(contenders.iter().map(cell)).collect()
            })
            .collect();
        table::aligned(&header, 0, &rows)
    }
}

/// Has a process of its own time one contender. `None` where this machine cannot.
pub(crate) fn time(
    machine: &Machine,
    contender: &dyn Algorithm,
    worlds: &[u32],
    sizes: &[u64],
) -> anyhow::Result<Option<(MachineInfo, Vec<Timing>)>> {
    let list = |values: &[u64]| values.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let worlds: Vec<u64> = worlds.iter().map(|&w| w.into()).collect();
    let mut child = Command::new(std::env::current_exe()?)
        .args([
            "bench-worker",
            contender.collective().name(),
            "--contender",
            contender.name(),
            "--worlds",
            &list(&worlds),
            "--sizes",
            &list(sizes),
        ])
        .args(machine.arguments())
        .envs(contender.environment().iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the bench worker")?;
    let (sender, lines) = mpsc::channel();
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut info = None;
    let mut timings = Vec::new();
    loop {
        // Libraries print on standard output too.
        match lines.recv_timeout(SILENCE).map(|line| serde_json::from_str(&line)) {
            Ok(Ok(Line::Machine(found))) => info = Some(found),
            Ok(Ok(Line::Timing(timing))) => timings.push(timing),
            Ok(Err(_)) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                eprintln!("the bench worker of {} said nothing for {} s and was killed", contender.name(), SILENCE.as_secs());
                child.kill()?;
                break;
            }
        }
    }
    let status = child.wait()?;
    if status.code() == Some(i32::from(CANNOT_RUN)) {
        return Ok(None);
    }
    let info = info.ok_or_else(|| anyhow!("the bench worker of {} ended early: {status}", contender.name()))?;
    Ok(Some((info, timings)))
}

impl BenchWorker {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let collective = self.collective;
        let contender = algorithms::find(collective, &self.contender).map_err(anyhow::Error::msg)?;
        let mut machine = match self.machine.open(Library::default()) {
            Ok(machine) => machine,
            Err(error) => {
                eprintln!("{error}");
                return Ok(ExitCode::from(CANNOT_RUN));
            }
        };
        for &world in &self.worlds {
            for &bytes in &self.sizes {
                let workload = Workload { collective, dtype: DType::BF16, op: collective.operators()[0], world, bytes };
                let method = Method::for_bytes(bytes);
                let mut timing = Timing {
                    contender: self.contender.clone(),
                    workload,
                    method,
                    status: Status::Pass,
                    reason: String::new(),
                    microseconds: None,
                    algbw_busbw: None,
                };
                match measure(&mut machine, contender, &workload, &method, DEADLINE) {
                    Ok(samples) => {
                        timing.microseconds = summarize(&samples);
                        timing.algbw_busbw = timing.microseconds.map(|times| bandwidths(&workload, times.median));
                    }
                    Err(error @ MachineError::NotSupported { .. }) => {
                        (timing.status, timing.reason) = (Status::NotSupported, error.to_string());
                    }
                    Err(error) => {
                        let status = if matches!(error, MachineError::Hang { .. }) { Status::Hang } else { Status::Crash };
                        (timing.status, timing.reason) = (status, error.to_string());
                    }
                }
                let lost = matches!(timing.status, Status::Hang | Status::Crash);
                // Each time: NCCL's version is known once it was used, and what comes after may not be heard.
                println!("{}", serde_json::to_string(&Line::Machine(machine.info()))?);
                println!("{}", serde_json::to_string(&Line::Timing(timing))?);
                if lost {
                    std::process::exit(1)
                }
            }
        }
        std::process::exit(0)
    }
}
