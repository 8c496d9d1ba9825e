//! Tables from the records in which collectives were timed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    rc::Rc,
};

use anyhow::{Context, ensure};
use passmuster_bench::{
    Launching, Timing,
    baseline::{self, Drift},
};
use passmuster_plan::collective::{Collective, ReduceOp};
use serde_json::Value;

use super::{
    committed::{Committed, cases, is_peer, mean_and_least, number, paragraph, size},
    verdicts::machine,
};

/// A collective that was timed among two, three and four of four GPUs, in one run beside NCCL and PyTorch.
fn timed(committed: &Committed, collective: Collective) -> anyhow::Result<Rc<Value>> {
    committed.value(&format!("{}x4-bench-{collective}", gpu(collective)))
}

/// The GPUs that the records of a collective are of.
fn gpu(collective: Collective) -> &'static str {
    if collective == Collective::Reduce { "h200" } else { "h100" }
}

/// Median microseconds of contenders in a graph, by world and bytes.
type Times = BTreeMap<(u64, u64), Vec<(String, f64)>>;

/// # Errors
/// One of the times was not judged, or is of another collective.
fn medians(committed: &Committed, collective: Collective) -> anyhow::Result<Times> {
    let mut times = Times::new();
    for case in cases(&*timed(committed, collective)?) {
        let Some(median) = case["microseconds"]["median"].as_f64() else { continue };
        let workload = &case["workload"];
        ensure!(workload["collective"] == collective.name() && case["check"]["status"] == "pass", "a time that was not judged: {workload}");
        let key = (number(workload, "world")?, number(workload, "bytes")?);
        times.entry(key).or_default().push((case["contender"].as_str().unwrap_or_default().into(), median));
    }
    Ok(times)
}

/// Our best and the best peer, in microseconds.
struct Standing {
    own: String,
    ours: f64,
    peer: String,
    theirs: f64,
}

impl Standing {
    fn of(times: &Times, world: u64, bytes: u64) -> anyhow::Result<Standing> {
        let nothing = || format!("nothing was timed at {bytes} bytes among {world} ranks");
        let timed = times.get(&(world, bytes)).with_context(nothing)?;
        let least = |peers: bool| {
            let side = timed.iter().filter(|(contender, _)| is_peer(contender) == peers);
            side.min_by(|a, b| a.1.total_cmp(&b.1)).cloned().with_context(nothing)
        };
        let ((own, ours), (peer, theirs)) = (least(false)?, least(true)?);
        Ok(Standing { own, ours, peer, theirs })
    }

    fn ahead(&self) -> f64 {
        self.theirs / self.ours
    }
}

/// Six rows for the README: each collective among four GPUs, microseconds of ours and of the best peer at three sizes, and how far ahead ours is at all sizes.
pub(super) fn speed(committed: &Committed) -> anyhow::Result<String> {
    const WORLD: u64 = 4;
    const SIZES: [u64; 3] = [8 << 10, 1 << 20, 256 << 20];
    let mut table = String::from("| W = 4 |");
    SIZES.iter().for_each(|&bytes| _ = write!(table, " {} |", size(bytes)));
    table.push_str(" ahead, geometric mean of eight sizes | least |\n|---|---|---|---|---|---|\n");
    for collective in Collective::ALL {
        let times = medians(committed, collective)?;
        write!(table, "| {collective} |")?;
        for bytes in SIZES {
            let Standing { ours, theirs, .. } = Standing::of(&times, WORLD, bytes)?;
            write!(table, " {ours:.2}, {theirs:.2} |")?;
        }
        let sizes = times.keys().filter(|(world, _)| *world == WORLD);
        let ahead = sizes.map(|&(world, bytes)| Ok(Standing::of(&times, world, bytes)?.ahead())).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(ahead.len() == 8, "{collective} was timed at {} sizes, and the head of the table says eight", ahead.len());
        let (mean, least) = mean_and_least(&ahead);
        writeln!(table, " {mean:.2}x | {least:.2}x |")?;
    }
    Ok(table)
}

/// The times of a collective as a table, for each number of GPUs that it was timed on.
/// It has our best and the best peer in the same run, which they were, and our speed-up.
pub(super) fn times(committed: &Committed, collective: Collective) -> anyhow::Result<String> {
    let times = medians(committed, collective)?;
    let worlds: BTreeSet<u64> = times.keys().map(|(world, _)| *world).collect();
    let sizes: BTreeSet<u64> = times.keys().map(|(_, bytes)| *bytes).collect();
    let mut table = format!("| {collective} |");
    worlds.iter().for_each(|world| _ = write!(table, " ours, w={world} | best peer | ahead |"));
    write!(table, "\n|---|{}\n", "---|".repeat(3 * worlds.len()))?;
    let mut ahead: Vec<f64> = Vec::new();
    for bytes in sizes {
        write!(table, "| {} |", size(bytes))?;
        for &world in &worlds {
            let standing = Standing::of(&times, world, bytes)?;
            let Standing { own, ours, peer, theirs } = &standing;
            write!(table, " {ours:.2} ({own}) | {theirs:.2} ({peer}) | {:.2}x |", standing.ahead())?;
            ahead.push(standing.ahead());
        }
        table.push('\n');
    }
    let (mean, least) = mean_and_least(&ahead);
    let on = machine(&*timed(committed, collective)?);
    Ok(format!("{table}\nGeometric mean {mean:.2}x, least {least:.2}x; {on}.\n"))
}

/// One contender's call: its name, its microseconds in a graph, and what it takes over the links, where it says.
type Timed = (String, f64, Option<f64>);

/// What was timed of a collective between two GPUs, by bytes.
fn paired(committed: &Committed, collective: Collective) -> anyhow::Result<BTreeMap<u64, Vec<Timed>>> {
    let mut sizes: BTreeMap<u64, Vec<Timed>> = BTreeMap::new();
    for case in cases(&*timed(committed, collective)?).filter(|case| case["workload"]["world"] == 2) {
        let Some(median) = case["microseconds"]["median"].as_f64() else { continue };
        let name = case["contender"].as_str().unwrap_or_default().to_owned();
        sizes.entry(number(&case["workload"], "bytes")?).or_default().push((name, median, case["wire"]["bytes"].as_f64()));
    }
    Ok(sizes)
}

/// GB/s that a copy engine moves between two H200.
const LINK: f64 = 394.0;

/// What each of our algorithms took on two GPUs, and how much of it its bytes over the link take at least.
pub(super) fn floors(committed: &Committed, collective: Collective) -> anyhow::Result<String> {
    let sizes = paired(committed, collective)?;
    let (_, first) = sizes.first_key_value().with_context(|| format!("{collective} was not timed between two GPUs"))?;
    let names: Vec<&String> = first.iter().map(|(name, ..)| name).filter(|name| !is_peer(name)).collect();
    let mut table = format!("| {collective} |");
    names.iter().for_each(|name| _ = write!(table, " {name} |"));
    write!(table, "\n|---|{}\n", "---|".repeat(names.len()))?;
    for (bytes, times) in &sizes {
        write!(table, "| {} |", size(*bytes))?;
        for name in &names {
            match times.iter().find(|(known, ..)| known == *name) {
                Some((_, median, Some(wire))) => write!(table, " {median:.2} ({:.2}) |", wire / LINK / 1e3)?,
                _ => table.push_str(" - |"),
            }
        }
        table.push('\n');
    }
    let rates = names.iter().filter_map(|name| {
        let of =
            |bytes| sizes.get(&bytes)?.iter().find(|(known, ..)| known == *name).and_then(|(_, median, wire)| Some((*median, (*wire)?)));
        let ((less, few), (more, many)) = (of(64 << 20)?, of(256 << 20)?);
        Some(format!("{name} {:.0}", (many - few) / (more - less) / 1e3))
    });
    writeln!(table, "\nGB/s of what is more from 64 to 256 MiB: {}.", rates.collect::<Vec<_>>().join(", "))?;
    Ok(table)
}

/// How a list agrees with itself an hour later, in a sentence.
pub(super) fn repeated(committed: &Committed) -> anyhow::Result<String> {
    let (then, now) = (committed.record::<Timing>("h200x4-bench-broadcast")?, committed.record::<Timing>("h200x4-bench-broadcast-again")?);
    let (changes, alone) = baseline::compare(&now.cases, &then.cases, 0.05);
    ensure!(alone == 0, "{alone} times of one run have none in the other");
    let of = |launching| {
        let of_launching: Vec<_> = changes.iter().filter(|change| change.launching == launching).collect();
        let same = of_launching.iter().filter(|change| change.verdict == Drift::Same).count();
        format!("{same} of {}", of_launching.len())
    };
    let ours: Vec<_> = changes.iter().filter(|change| ["push", "pull"].contains(&change.contender)).collect();
    ensure!(!ours.is_empty() && ours.iter().all(|change| change.verdict == Drift::Same), "ours are not the same in both runs");
    let minute = |date: &str| date.chars().take(16).collect::<String>();
    Ok(paragraph(&format!(
        "`bench broadcast --worlds 2,4` was run twice, within an hour ({}, {}): in a graph, {} times are the same by their noise and the 5 % that \
         `--baseline` allows, and {} as the host launches them; of ours all are.",
        minute(&then.date),
        minute(&now.date),
        of(Launching::Graph),
        of(Launching::Eager),
    )))
}

/// What pre-multiplied sums take beside sums, as a table: our best of each, and NCCL's.
pub(super) fn premultiplied(committed: &Committed) -> anyhow::Result<String> {
    const SIZES: [u64; 5] = [64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20];
    let mut text = format!("| |{}\n|---|{}\n", SIZES.map(|bytes| format!(" {} |", size(bytes))).concat(), "---|".repeat(SIZES.len()));
    for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce] {
        let timings = committed.record::<Timing>(&format!("{}x2-bench-types-{collective}", gpu(collective)))?.cases;
        let dtypes: BTreeSet<_> = timings.iter().map(|timing| timing.workload.dtype()).collect();
        for dtype in dtypes {
            let least = |bytes: u64, op: ReduceOp, is_peer: bool| {
                let of = |timing: &&Timing| {
                    let asked = (dtype, bytes, op, is_peer);
                    let timed =
                        timing.workload.collective().map(|workload| (workload.dtype, workload.bytes, workload.op, timing.is_peer()));
                    timed.is_some_and(|timed| timed == asked) && timing.is_judged()
                };
                let medians = timings.iter().filter(of).filter_map(|timing| Some(timing.microseconds.as_ref()?.median));
                medians.fold(f64::INFINITY, f64::min)
            };
            let cell = |bytes| {
                let [sum, ours, theirs] = [(ReduceOp::Sum, false), (ReduceOp::PremulSum, false), (ReduceOp::PremulSum, true)]
                    .map(|(op, is)| least(bytes, op, is));
                format!(" {sum:.1}, {ours:.1}, {theirs:.1} |")
            };
            writeln!(text, "| {collective} {dtype} |{}", SIZES.map(cell).concat())?;
        }
    }
    Ok(text)
}
