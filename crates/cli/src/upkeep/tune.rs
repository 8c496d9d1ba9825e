//! `tune`: measures which algorithm is the fastest at which size, and writes the table that `auto` goes by.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, bail, ensure};
use passmuster_bench::{CollectiveWorkload, Contender, Method, Timing, Workload};
use passmuster_harness::conformance::report::{table, today};
use passmuster_kernels::{
    auto::sample_call,
    tuning::{Row, Tuning, steps},
};
use passmuster_plan::{
    algorithms::{Algorithm, Registry},
    collective::{Collective, DType, Roundings},
    machine::MachineInfo,
};

use crate::{
    CANNOT_RUN,
    bench::{self, Workers},
    gpus::Gpus,
    journal,
    progress::progress_bar,
    result_file::ResultFile,
    units,
};

/// Measure which algorithm is fastest at each size, for `auto`.
///
/// Tests and times passmuster's algorithms as `bench` does: in a graph, cold, registered buffers, bf16. An algorithm stays the choice while it is within 2 % of the
/// fastest. The choice changes half-way between two sizes. Rows of the table that were not measured stay. Algorithms that round at each rank are left out.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask tune --worlds 2,4 --out fixtures/tuning/hopper.json
  cargo xtask tune --from mine.json --out fixtures/tuning/hopper.json
                                        of what bench has timed, without GPUs
  cargo xtask choose all_reduce --worlds 8    what the table says")]
pub(crate) struct Tune {
    /// World sizes.
    #[arg(long, alias = "world", value_delimiter = ',', default_values_t = [2, 3, 4, 8])]
    worlds: Vec<u32>,
    /// Sizes in bytes of each rank's input or output, whichever is larger, ascending.
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = units::size,
        default_value = "1K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M,8M,16M,64M,256M"
    )]
    sizes: Vec<u64>,
    /// The table to write, or to read.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Records of bench to take times from, instead of measuring.
    #[arg(long, value_name = "RECORD", num_args = 1.., conflicts_with_all = ["worlds", "sizes", "warm"])]
    from: Vec<PathBuf>,
    /// Keep L2 warm, as bench --warm does.
    #[arg(long)]
    warm: bool,
    #[command(flatten)]
    gpus: Gpus,
}

impl Tune {
    pub(crate) fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        ensure!(self.sizes.is_sorted() && !self.sizes.is_empty(), "--sizes must ascend");
        let mut tuning = known(&self.out)?;
        let out = ResultFile::open(&self.out)?;
        let rows = match self.from.is_empty() {
            true => self.measured(registry)?,
            false => Some(recorded(registry, &self.from)?),
        };
        let Some(rows) = rows else { return Ok(ExitCode::from(CANNOT_RUN)) };
        rows.into_iter().for_each(|(row, largest)| tuning.replace(row, largest));
        let text = serde_json::to_string_pretty(&tuning).expect("a table is plain data") + "\n";
        if let Err(error) = out.write(&text) {
            println!("{text}");
            return Err(error).context("the table is above");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Rows of all collectives; none where the machine cannot run.
    fn measured(&self, registry: &Registry) -> anyhow::Result<Option<Vec<Measured>>> {
        journal::end_with_children()?;
        let mut workers = Workers::new(&self.gpus, Vec::new(), false);
        let Some(machine) = workers.machine()? else { return Ok(None) };
        let mut rows = Vec::new();
        for collective in Collective::ALL {
            let contenders = contenders(registry, collective);
            let pairs = self.worlds.iter().flat_map(|&world| self.sizes.iter().map(move |&bytes| (world, bytes)));
            let workloads: Vec<(Workload, Method)> =
                pairs.map(|(world, bytes)| (workload(collective, world, bytes).into(), self.method(bytes))).collect();
            let bar = progress_bar(contenders.len() * workloads.iter().map(|(_, method)| method.rounds as usize).sum::<usize>());
            let of_all: Vec<Contender> = contenders.iter().cloned().map(Contender::from).collect();
            let timings = bench::take(&mut workers, &of_all, &workloads, &bar, &|_, _| ())?;
            bar.finish_and_clear();
            if let Some(lost) = timings.iter().find(|timing| timing.status.is_finding()) {
                bail!("{collective}/{} w={}: {}", lost.contender, lost.workload.world(), lost.reason);
            }
            for &world in &self.worlds {
                rows.push(row(registry, (collective, world), &self.sizes, &timings, (&machine, &today()))?);
            }
        }
        Ok(Some(rows))
    }

    fn method(&self, bytes: u64) -> Method {
        let method = Method::for_bytes(bytes);
        if self.warm { method.warm() } else { method }
    }
}

/// The table of a file, which is empty where there is none.
fn known(path: &Path) -> anyhow::Result<Tuning> {
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{} is no tuning table", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Tuning::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// What is chosen from: those that every machine of the kind can run, and that round once: a call that is a byte longer is not to be less exact.
fn contenders(registry: &Registry, collective: Collective) -> Vec<Arc<dyn Algorithm>> {
    let of_collective = registry.of(collective).cloned();
    let call = sample_call(collective, 2, 1 << 10).expect("2 KiB fit");
    of_collective.filter(|a| !a.is_peer() && !a.uses_multicast() && a.contract(&call).roundings == Roundings::Once).collect()
}

/// Rows of what records of bench have of bf16 and the collective's first operator, for each world size.
///
/// # Errors
/// What is no record of bench, or has nothing to choose by; two records of the same collective and world.
fn recorded(registry: &Registry, paths: &[PathBuf]) -> anyhow::Result<Vec<Measured>> {
    let mut rows: Vec<Measured> = Vec::new();
    for path in paths {
        let record = bench::output::read(path)?;
        let before = rows.len();
        for collective in Collective::ALL {
            let is_timed =
                |timing: &&Timing| timing.workload == workload(collective, timing.workload.world(), timing.workload.size()).into();
            let timed: Vec<&Timing> = record.cases.iter().filter(is_timed).collect();
            for world in timed.iter().map(|timing| timing.workload.world()).collect::<BTreeSet<u32>>() {
                let of_world = timed.iter().filter(|timing| timing.workload.world() == world);
                let sizes: Vec<u64> = of_world.map(|timing| timing.workload.size()).collect::<BTreeSet<u64>>().into_iter().collect();
                ensure!(
                    rows.iter().all(|(row, _)| (row.collective, row.world) != (collective, world)),
                    "{} has {collective} w={world}, and so has another of the records",
                    path.display()
                );
                rows.push(row(registry, (collective, world), &sizes, &record.cases, (&record.machine, &record.date))?);
            }
        }
        ensure!(rows.len() > before, "{} has no times of bf16 and a collective's first operator", path.display());
    }
    Ok(rows)
}

/// A row, and the largest size that was measured.
type Measured = (Row, u64);

/// The row of a collective and a world size, of the times at these sizes, which are printed.
fn row(
    registry: &Registry,
    (collective, world): (Collective, u32),
    sizes: &[u64],
    timings: &[Timing],
    (machine, date): (&MachineInfo, &str),
) -> anyhow::Result<Measured> {
    let at = |contender: &str, bytes| {
        let of: Workload = workload(collective, world, bytes).into();
        let same = |timing: &&Timing| timing.workload == of && timing.contender == contender;
        timings.iter().find(same).and_then(|timing| timing.microseconds.as_ref()).map(|times| times.median)
    };
    let of =
        |contender: Arc<dyn Algorithm>| (contender.name().to_owned(), sizes.iter().map(|&bytes| at(contender.name(), bytes)).collect());
    let times: Vec<(String, Vec<Option<f64>>)> = contenders(registry, collective).into_iter().map(of).collect();
    print_times(collective, world, sizes, &times);
    let MachineInfo { gpu, gpus, driver, .. } = machine;
    let day = date.split('T').next().unwrap_or_default();
    let measured = format!("{gpus} x {gpu}, driver {driver}, {day}");
    let steps = steps(sizes, &times, &measured).map_err(anyhow::Error::msg).with_context(|| format!("{collective} w={world}"))?;
    let row = Row { collective, world, ranks_a_gpu: world.div_ceil(*gpus as u32), steps };
    Ok((row, sizes.last().copied().unwrap_or_default()))
}

/// What is timed, of bf16 and the collective's first operator.
fn workload(collective: Collective, world: u32, bytes: u64) -> CollectiveWorkload {
    CollectiveWorkload { collective, dtype: DType::BF16, op: collective.operators()[0], world, bytes, in_place: false }
}

fn print_times(collective: Collective, world: u32, sizes: &[u64], times: &[(String, Vec<Option<f64>>)]) {
    println!("\n{collective} bf16, w={world}: microseconds a call, median");
    let header: Vec<&str> = std::iter::once("bytes").chain(times.iter().map(|(name, _)| name.as_str())).collect();
    let cell = |time: Option<f64>| time.map_or_else(|| "-".into(), |time| format!("{time:.2}"));
    let row =
        |(at, bytes): (usize, &u64)| std::iter::once(bytes.to_string()).chain(times.iter().map(|(_, times)| cell(times[at]))).collect();
    let rows: Vec<Vec<String>> = sizes.iter().enumerate().map(row).collect();
    println!("{}", table::aligned(&header, 0, &rows));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, `auto` may take an algorithm that is less exact than another, for a size.
    #[test]
    fn what_rounds_at_each_rank_is_not_chosen_from() {
        let contenders = |collective| contenders(&crate::built_in(), collective);
        let of_reduce = contenders(Collective::Reduce);
        let names: Vec<&str> = of_reduce.iter().map(|algorithm| algorithm.name()).collect();
        assert!(names.contains(&"two_shot") && !names.contains(&"chain"), "{names:?}");
        assert!(Collective::ALL.into_iter().all(|collective| contenders(collective).len() >= 3));
    }
}
