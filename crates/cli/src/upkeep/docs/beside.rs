//! Tables from the records of two H100: our collectives beside NCCL, PyTorch and kernels of serving engines, all in one run.

use std::{collections::BTreeMap, fmt::Write};

use anyhow::{Context, ensure};
use passmuster_plan::{collective::Collective, modules::FOREIGN};

use super::committed::{Committed, cases, number, size};

/// Sizes in bytes, each with the medians of contenders in a graph.
type Times = BTreeMap<u64, BTreeMap<String, f64>>;

/// What was timed of a collective: all-reduce beside kernels of other projects, the others beside the examples of this repository.
///
/// # Errors
/// A time was not judged, or is of another collective or world.
fn timed(committed: &Committed, collective: Collective) -> anyhow::Result<Times> {
    let name = if collective == Collective::AllReduce { "peers" } else { collective.name() };
    recorded(committed, &format!("h100x2-bench-{name}"), collective)
}

/// What a record has of a collective.
fn recorded(committed: &Committed, name: &str, collective: Collective) -> anyhow::Result<Times> {
    let mut times = Times::new();
    for case in cases(&*committed.value(name)?) {
        let Some(median) = case["microseconds"]["median"].as_f64() else { continue };
        let workload = &case["workload"];
        let as_said = workload["collective"] == collective.name() && workload["world"] == 2 && case["check"]["status"] == "pass";
        ensure!(as_said, "a time that was not judged, or of something else: {workload}");
        let contender = case["contender"].as_str().unwrap_or_default().to_owned();
        times.entry(number(workload, "bytes")?).or_default().insert(contender, median);
    }
    Ok(times)
}

/// Whether a contender is none of ours.
fn is_peer(name: &str) -> bool {
    ["nccl_", "torch_", FOREIGN].iter().any(|start| name.starts_with(start))
}

/// The name and time of our fastest algorithm that ships, or of the fastest peer.
fn least(times: &BTreeMap<String, f64>, peers: bool) -> anyhow::Result<(&str, f64)> {
    let side = times.iter().filter(|(name, _)| is_peer(name) == peers && !name.ends_with("_serial"));
    let fastest = side.min_by(|a, b| a.1.total_cmp(b.1)).context("nothing was timed at a size")?;
    Ok((fastest.0, *fastest.1))
}

/// For the README: each collective at three sizes, ours and the best peer, and how far ahead ours is from 8 KiB to 4 MiB and beyond.
pub(super) fn collectives(committed: &Committed) -> anyhow::Result<String> {
    const SIZES: [u64; 3] = [8 << 10, 1 << 20, 64 << 20];
    let mut table = String::from("| collective | size | ours (us) | best peer (us) | speed-up |\n|---|---|---|---|---|\n");
    for collective in Collective::ALL {
        let times = timed(committed, collective)?;
        for bytes in SIZES {
            let of_size = times.get(&bytes).with_context(|| format!("{collective} was not timed at {bytes} bytes"))?;
            let (ours, peer) = (least(of_size, false)?.1, least(of_size, true)?.1);
            writeln!(table, "| {collective} | {} | {ours:.2} | {peer:.2} | {:.2} |", size(bytes), peer / ours)?;
        }
    }
    Ok(table)
}

/// All-reduce: every contender's microseconds at each size, ours first, and by how much our fastest is ahead of the fastest peer.
pub(super) fn peers(committed: &Committed) -> anyhow::Result<String> {
    let times = timed(committed, Collective::AllReduce)?;
    let mut names: Vec<&String> = times.values().flat_map(BTreeMap::keys).collect();
    names.sort_by_key(|name| (is_peer(name), *name));
    names.dedup();
    let mut table = format!(
        "| all_reduce |{}\n|---|{}\n",
        times.keys().map(|&bytes| format!(" {} |", size(bytes))).collect::<String>(),
        "---|".repeat(times.len())
    );
    for name in names {
        let cell = |of_size: &BTreeMap<String, f64>| of_size.get(name).map_or_else(|| " - |".to_owned(), |time| format!(" {time:.2} |"));
        writeln!(table, "| {name} |{}", times.values().map(cell).collect::<String>())?;
    }
    table.push_str("| **best peer / ours** |");
    for of_size in times.values() {
        write!(table, " {:.2}x |", least(of_size, true)?.1 / least(of_size, false)?.1)?;
    }
    table.push('\n');
    Ok(table)
}

/// Each other collective by size: ours, the best peer, and how far ahead ours is.
pub(super) fn others(committed: &Committed) -> anyhow::Result<String> {
    let all = Collective::ALL.into_iter().filter(|&collective| collective != Collective::AllReduce);
    table(all.map(|collective| Ok((collective, timed(committed, collective)?))).collect::<anyhow::Result<_>>()?)
}

/// Collectives beside NCCL 2.32.3, likewise.
pub(super) fn newest(committed: &Committed) -> anyhow::Result<String> {
    let of = |collective| {
        let name = format!("h100x2-bench-newest_nccl-{collective}");
        let version = committed.value(&name)?["machine"]["nccl"].clone();
        ensure!(version == "2.32.3", "{name} is of NCCL {version}");
        Ok((collective, recorded(committed, &name, collective)?))
    };
    table(Collective::ALL.into_iter().map(of).collect::<anyhow::Result<_>>()?)
}

/// A row for each collective, of the sizes at which all were timed: ours and the best peer.
fn table(all: Vec<(Collective, Times)>) -> anyhow::Result<String> {
    let (_, first) = all.first().context("no collective")?;
    let sizes: Vec<u64> = first.keys().copied().filter(|bytes| all.iter().all(|(_, times)| times.contains_key(bytes))).collect();
    let heads: String = sizes.iter().map(|&bytes| format!(" {} |", size(bytes))).collect();
    let mut table = format!("| ours, best peer |{heads}\n|---|{}\n", "---|".repeat(sizes.len()));
    for (collective, times) in &all {
        write!(table, "| {collective} |")?;
        for bytes in &sizes {
            let ((own, ours), (_, theirs)) = (least(&times[bytes], false)?, least(&times[bytes], true)?);
            write!(table, " {ours:.2} ({own}), {theirs:.2} |")?;
        }
        table.push('\n');
    }
    Ok(table)
}
