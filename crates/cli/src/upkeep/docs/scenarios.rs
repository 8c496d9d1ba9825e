//! Tables from the records in which products, training steps and batches were timed.

use std::{collections::BTreeMap, fmt::Write};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::committed::{Committed, cases, is_peer, mean_and_least, number, size};

/// What became of one contender: its name, and its microseconds.
type Took = (String, f64);

/// Median microseconds of the contenders of a record of a scenario, by what `key` takes from the workload.
///
/// # Errors
/// One of the times was not judged.
fn took<K: Ord>(
    committed: &Committed,
    name: &str,
    times: &str,
    key: impl Fn(&Value) -> anyhow::Result<K>,
) -> anyhow::Result<BTreeMap<K, Vec<Took>>> {
    let mut all: BTreeMap<K, Vec<Took>> = BTreeMap::new();
    for case in cases(&*committed.value(name)?) {
        let Some(median) = case[times]["median"].as_f64() else { continue };
        ensure!(case["check"]["status"] == "pass", "{name}.json: a time that was not judged: {}", case["workload"]);
        all.entry(key(&case["workload"])?).or_default().push((case["contender"].as_str().unwrap_or_default().into(), median));
    }
    Ok(all)
}

/// The fastest of those that are asked for.
fn fastest(times: &[Took], is: impl Fn(&str) -> bool) -> anyhow::Result<Took> {
    let asked = times.iter().filter(|(name, _)| is(name));
    asked.min_by(|a, b| a.1.total_cmp(&b.1)).cloned().context("none of those that a table compares was timed")
}

/// Columns and inner dimension of a product, then its rows.
fn shape(workload: &Value) -> anyhow::Result<(u64, u64, u64)> {
    Ok((number(workload, "n")?, number(workload, "k")?, number(workload, "m")?))
}

/// The times of products with a collective, as a table: cuBLASLt alone, our plain product, the best of NCCL's collectives before or behind cuBLASLt, PyTorch's
/// `fused_all_gather_matmul` or `fused_matmul_reduce_scatter` and our best, in one run. Ahead is that over the better of the two; the product alone is the faster of the first two.
pub(super) fn products(committed: &Committed, name: &str) -> anyhow::Result<String> {
    let mut table = String::from(
        "| N, K | M | cuBLASLt alone | our product alone | NCCL and cuBLASLt | PyTorch | ours | ahead | over the product alone |\n",
    );
    table.push_str("|---|---|---|---|---|---|---|---|---|\n");
    let (mut ahead, mut plain) = (Vec::new(), Vec::new());
    for ((n, k, m), times) in took(committed, name, "microseconds", shape)? {
        let of = |name: &str| Ok::<_, anyhow::Error>(fastest(&times, |known| known == name)?.1);
        let (library, own, torch) = (of("cublas_lt")?, of("matmul")?, of("torch_fused")?);
        let peer = |name: &str| name.split('+').any(is_peer);
        let (_, theirs) = fastest(&times, |name| peer(name) && name != "torch_fused")?;
        let (name, ours) = fastest(&times, |name| !peer(name) && !["cublas_lt", "matmul"].contains(&name))?;
        let best = theirs.min(torch);
        ahead.push(best / ours);
        plain.push(library / own);
        writeln!(
            table,
            "| {n}, {k} | {m} | {library:.0} | {own:.0} | {theirs:.0} | {torch:.0} | {ours:.0} ({name}) | {:.2}x | {:.2} |",
            best / ours,
            ours / library.min(own)
        )?;
    }
    let ((ahead, least), (plain, slowest)) = (mean_and_least(&ahead), mean_and_least(&plain));
    Ok(format!(
        "{table}\nAhead: geometric mean {ahead:.2}x, least {least:.2}x. Our product alone is {plain:.2}x as fast as cuBLASLt's as a geometric mean, \
         {slowest:.2}x at least.\n"
    ))
}

/// A product and a gather at once: microseconds among two and among four GPUs, and by how much that is more than the longer of the two alone.
pub(super) fn overlapped(committed: &Committed) -> anyhow::Result<String> {
    let mut table = String::from("| gather | w=2, at once | over ideal | w=4, at once | over ideal |\n|---|---|---|---|---|\n");
    let side =
        |name: &str| took(committed, name, "microseconds", |_| Ok(()))?.remove(&()).with_context(|| format!("{name}.json has no times"));
    let sides = [side("h200x2-bench-overlap")?, side("h200x4-bench-overlap")?];
    for gather in ["copy_engine", "push", "nccl_copy_engine", "nccl_symmetric_st", "nccl_ring"] {
        write!(table, "| {gather} |")?;
        for times in &sides {
            let of = |wanted: &str| Ok::<_, anyhow::Error>(fastest(times, |name| name == wanted)?.1);
            let (at_once, ideal) = (of(&format!("overlap/{gather}"))?, of(&format!("gather/{gather}"))?.max(of("matmul")?));
            write!(table, " {at_once:.0} | {:+.1} % |", 100.0 * (at_once / ideal - 1.0))?;
        }
        table.push('\n');
    }
    Ok(table)
}

/// Training steps: the products alone, the fastest of NCCL's beside them and of ours, between them and beside them.
pub(super) fn steps(committed: &Committed) -> anyhow::Result<String> {
    let mut table = String::from(
        "| M | products alone | NCCL beside them | ours between them | ours beside them | ahead |\n|---|---|---|---|---|---|\n",
    );
    for (m, times) in took(committed, "h200x2-bench-fsdp", "microseconds", |workload| number(workload, "m"))? {
        let by = |how: &str, peers: bool| {
            fastest(&times, |name| {
                name.strip_prefix(how).and_then(|rest| rest.strip_prefix('/')).is_some_and(|name| is_peer(name) == peers)
            })
        };
        let short = |(name, time): &Took| format!("{time:.0} ({})", name.rsplit('/').next().unwrap_or_default());
        let (theirs, apart, ours) = (by("overlap", true)?, by("sequential", false)?, by("overlap", false)?);
        let alone = fastest(&times, |name| name == "matmul")?.1;
        let ahead = theirs.1 / ours.1;
        writeln!(table, "| {m} | {alone:.0} | {} | {} | {} | {ahead:.2}x |", short(&theirs), short(&apart), short(&ours))?;
    }
    Ok(table)
}

/// Batches of all-to-alls: hosts that wait for each verdict, hosts that wait at the end, and how many times as fast these are.
pub(super) fn deferred(committed: &Committed) -> anyhow::Result<String> {
    const SIZES: [u64; 5] = [8 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20];
    let exchanges = ["push", "copy_engine", "nccl_send_recv"];
    let mut table = format!("| a batch | {} |\n|---|---|---|---|\n", exchanges.join(" | "));
    let sizes = took(committed, "h200x2-bench-all_to_all-async", "eager", |workload| number(workload, "bytes"))?;
    for (bytes, times) in sizes.into_iter().filter(|(bytes, _)| SIZES.contains(bytes)) {
        write!(table, "| {} |", size(bytes))?;
        for exchange in exchanges {
            let of = |order: &str| Ok::<_, anyhow::Error>(fastest(&times, |name| name == format!("{order}/{exchange}"))?.1);
            let (each, end) = (of("blocking")?, of("deferred")?);
            write!(table, " {each:.0}, {end:.0}: {:.2}x |", each / end)?;
        }
        table.push('\n');
    }
    Ok(table)
}
