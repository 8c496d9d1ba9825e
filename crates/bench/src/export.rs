//! Timings for other programs: CSV, and the JSON that nccl-tests writes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{CollectiveWorkload, Launching, Section, Summary, Timing, Workload, sections};
use passmuster_harness::conformance::report::Record;
use passmuster_plan::collective::{Collective, ReduceOp};

/// Columns of the CSV. Times are microseconds of a call, bandwidths GB/s; what is not known, or is not of a workload, is empty. `products` is the
/// median time of the products within a call, `in_place` is given for gathers beside products, and for collectives in place.
const COLUMNS: [&str; 34] = [
    "collective",
    "dtype",
    "op",
    "world",
    "bytes",
    "m",
    "n",
    "k",
    "layers",
    "in_place",
    "contender",
    "launching",
    "status",
    "median",
    "low",
    "high",
    "p5",
    "p95",
    "p99",
    "min",
    "max",
    "products",
    "algbw",
    "busbw",
    "link_bytes",
    "link_gbps",
    "check",
    "checked_case",
    "sm_mhz_low",
    "sm_mhz_high",
    "watts",
    "celsius",
    "throttled",
    "reason",
];

/// A line for each contender, workload and way of launching.
///
/// # Panics
/// Never: what is written is text in memory.
pub fn csv(timings: &[Timing]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS).expect("memory takes any line");
    for timing in timings {
        for launching in Launching::ALL {
            let times = launching.of(timing);
            // What has no time has one line, and what was not made eagerly none.
            if times.is_some() || launching == Launching::Graph {
                writer.write_record(line(timing, launching, times)).expect("memory takes any line");
            }
        }
    }
    String::from_utf8(writer.into_inner().expect("memory takes any line")).expect("it was text")
}

fn line(timing: &Timing, launching: Launching, times: Option<&Summary>) -> [String; COLUMNS.len()] {
    let workload = &timing.workload;
    let (op, [bytes, m, n, k, layers]) = match workload {
        Workload::Collective(of) => (of.op.to_string(), [Some(of.bytes), None, None, None, None]),
        Workload::Matmul(of) => (String::new(), [Some(of.gathered).filter(|&bytes| bytes > 0), Some(of.m), Some(of.n), Some(of.k), None]),
        Workload::Pipeline(of) => (String::new(), [Some(of.bytes), None, None, None, None]),
        Workload::Fsdp(of) => (String::new(), [None, Some(of.m), Some(of.n), Some(of.k), Some(of.layers.into())]),
    };
    let [bytes, m, n, k, layers] = [bytes, m, n, k, layers].map(|extent| extent.map(|extent| extent.to_string()).unwrap_or_default());
    let in_place = match workload {
        Workload::Matmul(of) if of.gathered > 0 => (!of.out_of_place).to_string(),
        Workload::Collective(of) if of.in_place => true.to_string(),
        _ => String::new(),
    };
    let number = |value: Option<f64>| value.map(|value| format!("{value:.4}")).unwrap_or_default();
    let interval = times.and_then(|times| times.estimate().interval);
    // Bandwidths and what goes over the links are given for graphs only.
    let in_graph = launching == Launching::Graph;
    let bandwidths = timing.algbw_busbw.filter(|_| in_graph);
    let wire = timing.wire.filter(|_| in_graph);
    let conditions = timing.conditions.as_ref();
    let check = timing.check.as_ref();
    [
        workload.subject().into(),
        workload.dtype().to_string(),
        op,
        workload.world().to_string(),
        bytes,
        m,
        n,
        k,
        layers,
        in_place,
        timing.contender.clone(),
        if in_graph { "graph".into() } else { "eager".into() },
        timing.status.to_string(),
        number(times.map(|times| times.median)),
        number(interval.map(|(low, _)| low)),
        number(interval.map(|(_, high)| high)),
        number(times.map(|times| times.p5)),
        number(times.map(|times| times.p95)),
        number(times.and_then(|times| times.p99)),
        number(times.map(|times| times.min)),
        number(times.map(|times| times.max)),
        number(timing.products.as_ref().filter(|_| !in_graph).map(|times| times.median)),
        number(bandwidths.map(|(algbw, _)| algbw)),
        number(bandwidths.map(|(_, busbw)| busbw)),
        wire.map(|wire| wire.bytes.to_string()).unwrap_or_default(),
        number(wire.map(|wire| wire.gbps)),
        check.map(|check| check.status.to_string()).unwrap_or_default(),
        check.map(|check| check.case.clone()).unwrap_or_default(),
        conditions.map(|conditions| conditions.sm_mhz.0.to_string()).unwrap_or_default(),
        conditions.map(|conditions| conditions.sm_mhz.1.to_string()).unwrap_or_default(),
        number(conditions.map(|conditions| conditions.watts)),
        conditions.map(|conditions| conditions.celsius.to_string()).unwrap_or_default(),
        conditions.map(|conditions| conditions.throttled.iter().cloned().collect::<Vec<_>>().join(" ")).unwrap_or_default(),
        timing.reason.clone(),
    ]
}

/// The version of nccl-tests' JSON that this is.
const NCCL_TESTS_VERSION: u32 = 2;

/// What nccl-tests' `-J FILE` writes of collectives, one document for each section of collectives and contender, with a name for its file:
/// `all_reduce-w8-two_shot.json`. Times are those in a graph; `nwrong` is 0 where the case was judged in the same run and is right, else null.
pub fn nccl_tests(record: &Record<Timing>) -> Vec<(String, Value)> {
    let documents = |section: Section<'_>| {
        // `foreign/NAME` is no folder.
        let name = |contender: &str| format!("{}-{}.json", section.workload.file_name(), contender.replace('/', "-"));
        let of = |&contender: &&str| (name(contender), document(record, &section, contender));
        let is_of_collective = section.workload.collective().is_some();
        section.contenders.iter().filter(|_| is_of_collective).map(of).collect::<Vec<_>>()
    };
    sections(&record.cases).into_iter().flat_map(documents).collect()
}

fn document(record: &Record<Timing>, section: &Section<'_>, contender: &str) -> Value {
    let timings: Vec<&Timing> = section.sizes().filter_map(|bytes| section.at(bytes, contender)).collect();
    let results: Vec<Value> = timings.iter().filter_map(|timing| result(timing)).collect();
    let buses: Vec<f64> = timings.iter().filter_map(|timing| timing.algbw_busbw).map(|(_, busbw)| busbw).collect();
    let world = section.workload.world();
    let time = record.date.replace('T', " ").trim_end_matches('Z').to_owned();
    let device = |rank: u32| {
        let (device, info) = (rank as usize % record.machine.gpus.max(1), &record.machine.gpu);
        json!({ "rank": rank, "group": 0, "pid": 0, "hostname": "", "device": device, "device_hex": "", "device_info": info })
    };
    let method = timings.first().map(|timing| timing.method);
    let (calls, warm_up, samples) = method.map_or((0, 0, 0), |method| (method.calls, method.warm_up, method.rounds * method.replays));
    let mut config = json!({
        "nthreads": 1,
        "ngpus": world,
        "minimum_bytes": section.sizes().next(),
        "maximum_bytes": section.sizes().last(),
        "warmup_iters": warm_up,
        "iterations": samples,
        "aggregated_iterations": calls,
        "validation": u32::from(timings.iter().all(|timing| timing.is_judged())),
        "graph": samples,
        "blocking_collectives": "false",
        "per_iter_timing": "false",
        "parallel_init": "false",
        "devices": (0..world).map(device).collect::<Vec<_>>(),
    });
    let (step, by) = step(&section.sizes().collect::<Vec<_>>());
    config[step] = by.into();
    json!({
        "version": NCCL_TESTS_VERSION,
        "start_time": time,
        "args": [format!("passmuster bench {}", section.workload.subject()), format!("--contenders {contender}")],
        "env": [],
        "nccl_version": nccl_version(&record.machine.nccl),
        "config": config,
        "results": results,
        "out_of_bounds": { "count": 0, "okay": "true" },
        "average_bus_bandwidth": { "bandwidth": buses.iter().sum::<f64>() / buses.len().max(1) as f64, "okay": "unchecked" },
        "errors": [],
        "end_time": time,
    })
}

/// One size; none where there is no time.
fn result(timing: &Timing) -> Option<Value> {
    let of = timing.workload.collective()?;
    let CollectiveWorkload { collective, dtype, op, bytes, in_place, .. } = of;
    let (times, (algbw, busbw)) = (timing.microseconds.as_ref()?, timing.algbw_busbw?);
    let wrong = if timing.is_judged() { json!(0.0) } else { Value::Null };
    let measured = json!({ "time": times.median, "alg_bw": algbw, "bus_bw": busbw, "nwrong": wrong });
    let (out_of_place, in_place) = if in_place { (Value::Null, measured) } else { (measured, Value::Null) };
    Some(json!({
        "size": bytes,
        "count": of.shape().count,
        "type": dtype.in_nccl_tests(),
        "redop": operator_name(op),
        "root": format!("{:6}", if collective.has_root() { 0 } else { -1 }),
        "out_of_place": out_of_place,
        "in_place": in_place,
        "actual_iterations": timing.method.rounds * timing.method.replays * timing.method.calls,
        "experiment_name": format!("{}/{}", Collective::name(collective), timing.contender),
    }))
}

/// How sizes go up: by a factor where they all do by the same, else by the bytes between the first two.
fn step(sizes: &[u64]) -> (&'static str, u64) {
    let factors: BTreeSet<(u64, bool)> =
        sizes.windows(2).map(|pair| (pair[1] / pair[0].max(1), pair[1].is_multiple_of(pair[0].max(1)))).collect();
    match factors.iter().collect::<Vec<_>>()[..] {
        [&(factor, true)] if factor > 1 => ("step_factor", factor),
        _ => ("step_bytes", sizes.windows(2).next().map_or(0, |pair| pair[1] - pair[0])),
    }
}

/// nccl-tests' name for an operator.
fn operator_name(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Copy => "none",
        ReduceOp::PremulSum => "mulsum",
        _ => op.name(),
    }
}

/// `2.28.9` as NCCL counts: 22809; 0 where it is none.
fn nccl_version(text: &str) -> u64 {
    let parts: Vec<u64> = text.split('.').filter_map(|part| part.parse().ok()).collect();
    if let [major, minor, patch] = parts[..] { major * 10000 + minor * 100 + patch } else { 0 }
}
