//! The bench without a GPU: its method on the emulator, whose times order and do not measure, and its reports on recorded timings.

use std::{fs, io, path::Path, time::Duration};

use passmuster_bench::{
    Check, CollectiveWorkload, Contender, Contents, DARK, Estimate, Fsdp, FsdpWorkload, How, INKS, Inks, Judged, Late, Launching,
    MatmulWorkload, Method, Multiplier, OverlapContender, Pipeline, PipelineWorkload, Plot, Rendezvous, Scenario, Score, Section,
    SmFreeCheck, Span, Summary, Table, Timer, Timing, Waits, Winner, Workload, ahead, baseline, contests, csv, link_limit, nccl_tests,
    page, plots, sections, tables, trace,
};
use passmuster_harness::{
    conformance::{
        Finding, Status, Verdict,
        report::{Partial, Record, packed},
    },
    emulator::{Emulator, EmulatorOptions},
};
use passmuster_plan::{
    algorithms::Target,
    collective::{Collective, DType},
    machine::{Machine, MachineError, MachineInfo},
    plan::{Call, Op, Region},
};

const DEADLINE: Duration = Duration::from_secs(60);

fn workload(collective: Collective, world: u32, bytes: u64) -> CollectiveWorkload {
    CollectiveWorkload { collective, dtype: DType::BF16, op: collective.operators()[0], world, bytes, in_place: false }
}

/// Small, with everything that a large one has.
const METHOD: Method = Method {
    calls: 3,
    replays: 2,
    warm_up: 1,
    rounds: 1,
    starts: 1,
    beside: false,
    copies: 2,
    flush: 4096,
    gated: true,
    late: None,
    batched: false,
};

/// If this fails, what `bench` has machines do races, deadlocks or leaves its buffers.
#[test]
fn every_contender_can_be_timed_on_the_emulator() {
    let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
    let mut timer = Timer::new(&mut machine, DEADLINE);
    for algorithm in passmuster_harness::registry(passmuster_kernels::catalogue()).algorithms() {
        let round = timer.round(&algorithm.clone().into(), &workload(algorithm.collective(), 3, 960).into(), &METHOD);
        let round = round.unwrap_or_else(|error| panic!("{}/{}: {error}", algorithm.collective(), algorithm.name()));
        for samples in [&round.graph, &round.eager] {
            assert_eq!(samples.len(), METHOD.replays as usize, "{}", algorithm.name());
            // The emulated time of a library call is 0.
            assert!(samples.iter().all(|time| *time >= 0.0 && time.is_finite()), "{}: {samples:?}", algorithm.name());
        }
    }
}

/// What is timed where it does not matter what.
fn something() -> (Contender, Workload) {
    (
        passmuster_harness::registry(passmuster_kernels::catalogue()).find(Collective::AllReduce, "one_shot").unwrap().into(),
        workload(Collective::AllReduce, 2, 960).into(),
    )
}

/// If this fails, what another process is asked to run between rounds is not run, or what was made ready is opened once more, which maps memory.
#[test]
fn a_kernel_runs_on_every_gpu_beside_others() {
    let (contender, of) = something();
    let opened = |rounds: usize| {
        let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
        let mut timer = Timer::new(&mut machine, DEADLINE);
        (0..rounds).for_each(|_| timer.run_beside().unwrap());
        for _ in 0..rounds {
            timer.get_ready(&contender, &of, &METHOD).unwrap();
            timer.round(&contender, &of, &METHOD).unwrap();
        }
        machine.rendezvous()
    };
    assert!(opened(1) > 0);
    assert_eq!(opened(1), opened(3));

    let mut library = passmuster_harness::registry(passmuster_kernels::catalogue()).library();
    library.replace("bench/late", "no PTX");
    let mut machine = Emulator::new(EmulatorOptions { library, ..EmulatorOptions::default() });
    assert!(Timer::new(&mut machine, DEADLINE).run_beside().is_err(), "no kernel was run");
}

/// If this fails, all starts have their buffers at the same places, and what that is worth looks like something else.
#[test]
fn buffers_lie_elsewhere_in_each_start() {
    let (contender, of) = something();
    let bytes = |start: u32| {
        let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
        Timer::new(&mut machine, DEADLINE).of_start(start).get_ready(&contender, &of, &METHOD).unwrap();
        let has = |bytes: &u64| machine.read(0, 0, &Region::new("displacement", 0, *bytes)).is_ok();
        (1..=200).map(|lines| lines * 512).take_while(has).count()
    };
    assert_eq!([0, 1, 2].map(bytes), [0, 77, 154]);
}

fn product(scenario: Scenario, gathered: u64) -> Workload {
    MatmulWorkload { scenario, dtype: DType::BF16, world: 2, n: 24, k: 40, m: 16, gathered, out_of_place: false }.into()
}

/// If this fails, what the scenarios have machines do races, deadlocks or leaves its buffers, or its results are wrong.
#[test]
fn every_contender_of_products_can_be_checked_and_timed() {
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
    let controls = Multiplier::controls().into_iter().map(|multiplier| (Scenario::AllGatherMatmul, multiplier));
    let multipliers = [Scenario::AllGatherMatmul, Scenario::MatmulReduceScatter]
        .into_iter()
        .flat_map(|scenario| Multiplier::all(&registry, scenario).into_iter().map(move |multiplier| (scenario, multiplier)))
        .chain(controls)
        .map(|(scenario, multiplier)| (Contender::Multiplier(multiplier), product(scenario, 0)));
    let Workload::Matmul(in_place) = product(Scenario::Overlap, 4096) else { panic!("it is a product") };
    let arms = [false, true].into_iter().flat_map(|out_of_place| {
        let of = Workload::from(MatmulWorkload { out_of_place, ..in_place });
        OverlapContender::all(&[100]).into_iter().map(move |arm| (Contender::OverlapContender(arm), of))
    });
    let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
    let mut timer = Timer::new(&mut machine, DEADLINE);
    for (contender, workload) in multipliers.chain(arms) {
        let name = contender.name();
        if ["matmul", "pull", "fused", "control/flags_set", "control/copies_elsewhere"].contains(&&*name)
            && matches!(contender, Contender::Multiplier(_))
        {
            // Tiles of this size and this number of calls take the emulator minutes; the lists of the harness run these kernels at small shapes.
            continue;
        }
        let checked = timer.check(&contender, &workload);
        let (looked, wrong) = checked.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(wrong.is_none() && looked.starts_with("integers, "), "{name}: {looked}, {wrong:?}");
        let round = timer.round(&contender, &workload, &METHOD).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((round.graph.len(), round.eager.len()), (2, 2), "{name}");
        let multiplies = matches!(contender, Contender::OverlapContender(arm) if arm.how != How::Gather);
        assert_eq!(round.products.len(), if multiplies { 2 } else { 0 }, "{name}");
    }
}

/// If this fails, what a training step has machines do races, deadlocks or leaves its buffers, memory is used again before its time, or ranks meet
/// again for it.
#[test]
fn every_contender_of_steps_can_be_checked_and_timed() {
    let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
    let mut timer = Timer::new(&mut machine, DEADLINE);
    for (layers, contender) in [1, 2, 5].into_iter().flat_map(|layers| Fsdp::all().into_iter().map(move |step| (layers, step))) {
        let of = Workload::from(FsdpWorkload { layers, dtype: DType::BF16, world: 3, m: 16, n: 24, k: 40 });
        let (name, contender) = (contender.name(), Contender::Fsdp(contender));
        assert_eq!(
            Contender::find(&passmuster_harness::registry(passmuster_kernels::catalogue()), &of, &name).map(|found| found.name()),
            Ok(name.clone())
        );
        let (looked, wrong) = timer.check(&contender, &of).unwrap_or_else(|error| panic!("{name}, {layers} layers: {error}"));
        assert!(wrong.is_none() && looked.starts_with("integers, "), "{name}, {layers} layers: {looked}, {wrong:?}");
        for _ in 0..2 {
            let round = timer.round(&contender, &of, &METHOD).unwrap_or_else(|error| panic!("{name}, {layers} layers: {error}"));
            assert_eq!((round.graph.len(), round.eager.len(), round.products.len()), (2, 2, 2), "{name}");
            assert_eq!(round.rendezvous, 1, "{name}: one for all steps of all rounds");
        }
    }
    let odd = Workload::from(FsdpWorkload { layers: 1, dtype: DType::BF16, world: 3, m: 16, n: 32, k: 40 });
    let refused = timer.round(&Contender::Fsdp(Fsdp::PRODUCTS), &odd, &METHOD);
    assert!(matches!(&refused, Err(MachineError::NotSupported { reason }) if reason == "N = 32 does not divide by 3 ranks"), "{refused:?}");
}

/// If this fails, a pipeline races, deadlocks or has its hosts wait for something else.
#[test]
fn every_pipeline_can_be_checked_and_timed() {
    let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
    let mut timer = Timer::new(&mut machine, DEADLINE);
    let of = Workload::from(PipelineWorkload { batches: 4, world: 3, bytes: 960 });
    let controls =
        Pipeline::all(&passmuster_harness::registry(passmuster_kernels::catalogue())).into_iter().flat_map(|pipeline| pipeline.controls());
    for pipeline in Pipeline::all(&passmuster_harness::registry(passmuster_kernels::catalogue())).into_iter().chain(controls) {
        let (name, contender) = (pipeline.name(), Contender::Pipeline(pipeline));
        let checked = timer.check(&contender, &of).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(checked, ("integers, by the device, 4 batches".into(), None), "{name}");
        let round = timer.round(&contender, &of, &METHOD).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((round.graph.len(), round.eager.len()), (0, 2), "{name}: verdicts that hosts get are in no graph");
        let hosts = round.hosts.unwrap();
        // Two samples of four batches on three ranks.
        assert_eq!((hosts.blocked.len(), hosts.looked), (2, 24), "{name}");
        assert!(hosts.not_there > 0 && hosts.blocked.iter().all(|&blocked| blocked > 0.0), "{name}: {hosts:?}");
    }
}

#[test]
fn a_late_rank_holds_up_every_call() {
    let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
    let mut timer = Timer::new(&mut machine, DEADLINE);
    let two_shot =
        &Contender::from(passmuster_harness::registry(passmuster_kernels::catalogue()).find(Collective::AllReduce, "two_shot").unwrap());
    let of = &Workload::from(workload(Collective::AllReduce, 2, 256));
    let mut slowest = |late| {
        let round = timer.round(two_shot, of, &Method { late, ..METHOD }).unwrap();
        round.graph.iter().chain(&round.eager).copied().fold(f64::INFINITY, f64::min)
    };
    let late = Late { rank: 1, microseconds: 200 };
    let (on_time, held_up) = (slowest(None), slowest(Some(late)));
    assert!(on_time < 200.0 && held_up >= 200.0, "{on_time} us, and {held_up} us with a rank that is 200 us late");

    let nobody = timer.round(two_shot, of, &Method { late: Some(Late { rank: 2, ..late }), ..METHOD });
    let Err(MachineError::Invalid { reason }) = nobody else { panic!("{nobody:?}") };
    assert_eq!(reason, "rank 2 cannot be late: there are ranks 0 to 1");
    assert_eq!("1+200".parse::<Late>(), Ok(late));
    assert_eq!("r1".parse::<Late>(), Err("`r1` is not RANK+MICROSECONDS, as in 3+20".into()));
}

#[test]
fn what_an_algorithm_does_not_do_is_not_timed() {
    let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
    let push = passmuster_harness::registry(passmuster_kernels::catalogue()).find(Collective::AllReduce, "one_shot_push").unwrap();
    let refused = Timer::new(&mut machine, DEADLINE).round(&push.into(), &workload(Collective::AllReduce, 2, 1 << 20).into(), &METHOD);
    assert!(matches!(refused, Err(MachineError::NotSupported { .. })), "{refused:?}");
}

/// If this fails, a trace lacks operations, or they overlap on a row.
#[test]
fn a_trace_has_every_operation_of_every_rank() {
    let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
    let algorithm = passmuster_harness::registry(passmuster_kernels::catalogue()).find(Collective::AllReduce, "copy_engine").unwrap();
    let of = workload(Collective::AllReduce, 3, 960).into();
    let spans = Timer::new(&mut machine, DEADLINE).spans(&algorithm.into(), &of, &METHOD).unwrap();
    assert_eq!(spans.len(), 3);
    for ops in &spans {
        assert!(ops.windows(2).all(|pair| pair[0].begin <= pair[0].end && pair[0].end <= pair[1].begin), "{ops:?}");
        let count = |what: &str| ops.iter().filter(|span| span.name.starts_with(what)).count();
        // Two copies each way, two meetings of two peers, and the reduction between them.
        assert_eq!((count("copy"), count("write"), count("wait"), count("launch")), (4, 8, 4, 1));
    }
    let text = trace(&[("copy_engine", of, spans)]).unwrap();
    let events = serde_json::from_str::<serde_json::Value>(&text).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let rows = |kind: &str| events.iter().filter(|event| event["ph"] == kind).count();
    assert_eq!((rows("M"), rows("X")), (6, 3 * 17), "{text}");
}

#[test]
fn calls_in_a_trace_come_one_after_the_other() {
    let call = |end| vec![vec![Span { name: "launch".into(), stream: 0, begin: 0.0, end }]];
    let of = workload(Collective::AllReduce, 1, 8192).into();
    insta::assert_snapshot!(trace(&[("one_shot", of, call(5.0)), ("two_shot", of, call(7.5))]).unwrap());
}

/// If this fails, a call of a sample finds its data where the call before has left it, or copies overlap.
#[test]
fn small_calls_go_round_copies_until_l2_is_full() {
    assert_eq!([8 << 10, 1 << 20, 8 << 20, 64 << 20, 1 << 30].map(|bytes| Method::for_bytes(bytes).copies), [20, 20, 16, 2, 1]);
    let warm = Method::for_bytes(8192).warm();
    assert_eq!((warm.copies, warm.flush), (1, 0));
}

/// If this fails, an algorithm says that it takes other bytes over the links than its lines, shots and copies come to. What nccl-tests counts is the
/// least that a collective of its kind needs.
#[test]
fn links_carry_what_algorithms_say() {
    let world = 4;
    for algorithm in passmuster_harness::registry(passmuster_kernels::catalogue())
        .algorithms()
        .iter()
        .filter(|algorithm| !algorithm.is_peer() && !algorithm.uses_multicast())
    {
        let of = workload(algorithm.collective(), world, 64 << 10);
        let (call, _) = Call::standalone(of.shape(), of.dtype, of.op).unwrap();
        // In a microsecond, GB/s are thousands of bytes.
        let least = 1000.0 * of.bandwidths(1.0).1;
        let times = match (of.collective, algorithm.name()) {
            (_, "ll") => 2.0,
            (Collective::AllReduce, "one_shot" | "one_shot_lamport" | "two_shot_push") => 2.0,
            (Collective::AllReduce, "one_shot_push") => 4.0,
            (Collective::Broadcast | Collective::Reduce, "pull" | "lamport" | "copy_engine" | "copy_engine_barrier") => 3.0,
            _ => 1.0,
        };
        let said = algorithm.link_bytes(&call).unwrap_or_else(|| panic!("{} does not say", algorithm.name()));
        assert_eq!(said as f64, times * least, "{}/{}", of.collective, algorithm.name());
        if algorithm.protocol().is_by_copy_engine() {
            let copied = |op: &Op| match op {
                Op::Copy { to, to_rank: Some(peer), .. } if *peer != 0 => to.bytes,
                _ => 0,
            };
            assert_eq!(algorithm.plan(&call, &Target::default()).operations(0).map(copied).sum::<u64>(), said);
        }
    }
}

/// A committed record.
fn file_of(name: &str) -> String {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/records"));
    packed::committed(folder, name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn recorded(name: &str) -> Record<Timing> {
    serde_json::from_str(&file_of(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Timings as the present method takes them, made up: `factor` times as long as they should, all but for `drift` in each round.
fn made_up(factor: f64) -> Vec<Timing> {
    let drift = [1.00, 1.01, 1.02, 0.99, 0.98, 1.00];
    let of = |(contender, base, per_byte): (&str, f64, f64), bytes: u64| {
        let mut timing = Timing::new(contender, workload(Collective::AllReduce, 8, bytes), Method::for_bytes(bytes));
        let peer = contender.starts_with("nccl_");
        let time = if peer { 1.0 } else { factor } * (base + per_byte * bytes as f64);
        let rounds = |times: f64| drift.map(|drift| vec![times * drift; 10]).to_vec();
        let link_bytes = (contender == "two_shot").then_some(bytes * 14 / 8);
        timing.enter(&rounds(time), &rounds(time + 4.0), link_bytes);
        timing.status = Status::Pass;
        timing.check = Some(Check { case: format!("all_reduce/{contender}:bf16,sum:w=8:n={}", bytes / 2), status: Status::Pass });
        timing
    };
    let contenders = [("one_shot", 4.0, 2.2e-5), ("two_shot", 7.5, 6.1e-6), ("nccl_ring", 20.0, 5.2e-6)];
    [8 << 10, 1 << 20, 64 << 20].into_iter().flat_map(|bytes| contenders.map(|contender| of(contender, bytes))).collect()
}

fn h200() -> MachineInfo {
    MachineInfo {
        kind: "cuda".into(),
        gpu: "NVIDIA H200".into(),
        gpus: 8,
        driver: "13000".into(),
        nccl: "2.28.9".into(),
        ..MachineInfo::default()
    }
}

fn text_of(timings: &[Timing], hidden: Option<u64>) -> String {
    tables(timings, &h200(), hidden).iter().map(|table| table.aligned()).collect::<Vec<_>>().join("\n")
}

#[test]
fn tables_are_for_people() {
    insta::assert_snapshot!("tables", text_of(&made_up(1.0), None));
    let markdown: Vec<String> = tables(&made_up(1.0), &h200(), Some(8192)).iter().map(|table| table.markdown()).collect();
    insta::assert_snapshot!("markdown", markdown.join("\n"));
}

/// Those of the present method, and the same once more with ranks in processes, which take `factor` times as long.
fn made_up_in_processes(factor: f64) -> Vec<Timing> {
    let mut timings = made_up(1.0);
    let longer = |times: &Summary| Summary::of(&times.rounds.iter().map(|round| vec![round * factor]).collect::<Vec<_>>());
    let of = |timing: &Timing| Timing {
        contender: format!("{}@processes", timing.contender),
        microseconds: timing.microseconds.as_ref().and_then(longer),
        eager: timing.eager.as_ref().and_then(longer),
        ..timing.clone()
    };
    timings.extend(timings.iter().filter(|timing| timing.contender != "two_shot").map(of).collect::<Vec<_>>());
    timings
}

/// If this fails, what ranks in processes cost is hidden by drift, or taken for a contender that wins; or stands where nobody saw that the result is right.
#[test]
fn ranks_in_processes_are_held_against_ranks_in_threads() {
    let mut timings = made_up_in_processes(0.9);
    let best = |timings: &[Timing]| sections(timings)[0].times(Launching::Graph, None).unwrap().rows[0].last().unwrap().clone();
    assert_eq!(best(&timings), best(&made_up(1.0)), "the fastest is one in threads");

    let at = |timings: &[Timing], bytes| {
        let is = |timing: &Timing| timing.contender == "one_shot@processes" && timing.workload.size() == bytes;
        timings.iter().position(is).unwrap()
    };
    let slower = made_up_in_processes(1.02);
    let largest = at(&slower, 1 << 20);
    timings[largest].clone_from(&slower[largest]);
    let unjudged = at(&timings, 64 << 20);
    timings[unjudged].check = None;
    let table = sections(&timings)[0].processes_over_threads(Launching::Graph, None).unwrap();
    assert_eq!(table.header, ["bytes", "one_shot", "nccl_ring"]);
    let level = "0.900 [0.900, 0.900]";
    let rows = [["8 KiB", level, level], ["1 MiB", "1.020 [1.020, 1.020]", level], ["64 MiB", "-", level], ["largest", "1.020", "0.900"]];
    assert_eq!(table.rows, rows);
    let rows_of_tokens = sections(&timings)[0].processes_over_threads(Launching::Eager, Some(8192)).unwrap();
    assert_eq!(rows_of_tokens.rows.last().unwrap()[..3], ["", "largest", "1.020"]);
    assert_eq!(sections(&made_up(1.0))[0].processes_over_threads(Launching::Graph, None), None);

    let (changes, _) = baseline::compare(&slower, &timings, 0.05);
    assert!(baseline::has_regressed(&changes), "what is slower in processes is slower");
}

/// Timings of a product's contenders, made up: microseconds of each.
fn made_up_products(workload: Workload, times: &[(&str, f64)]) -> Vec<Timing> {
    let drift = [1.00, 1.01, 1.02, 0.99, 0.98, 1.00];
    let of = |&(contender, time): &(&str, f64)| {
        let mut timing = Timing::new(contender, workload, Method { calls: 1, ..METHOD });
        let rounds = |times: f64| drift.map(|drift| vec![times * drift; 10]).to_vec();
        timing.enter(&rounds(time), &rounds(time + 5.0), None);
        timing.status = Status::Pass;
        timing.check = Some(Check { case: "integers, 1024 elements of results, eager and in a graph".into(), status: Status::Pass });
        timing
    };
    times.iter().map(of).collect()
}

#[test]
fn products_are_held_against_what_they_could_be() {
    let h200s = |scenario, m, n, k, gathered| {
        MatmulWorkload { scenario, dtype: DType::BF16, world: 8, n, k, m, gathered, out_of_place: false }.into()
    };
    let shape = h200s(Scenario::AllGatherMatmul, 16384, 3584, 8192, 0);
    let mut timings = made_up_products(
        shape,
        &[("cublas_lt", 1211.0), ("matmul", 1250.0), ("nccl_ring+matmul", 1944.0), ("chunked", 1500.0), ("fused", 1280.0)],
    );
    timings.extend(made_up_products(shape.with_size(4096), &[("cublas_lt", 325.0), ("nccl_ring+matmul", 562.0), ("fused", 360.0)]));
    // What was not judged is compared with nothing.
    timings.last_mut().unwrap().check = None;
    let controls = [("control/flags_set", 1262.0), ("control/copies_elsewhere", 1274.0), ("control/copies_alone", 560.0)];
    timings.extend(made_up_products(shape, &controls));
    let scattered = [("cublas_lt", 1220.0), ("matmul+nccl_ring", 1990.0), ("torch_fused", 1700.0), ("chunked", 1420.0)];
    timings.extend(made_up_products(h200s(Scenario::MatmulReduceScatter, 16384, 8192, 3584, 0), &scattered));
    let shape = h200s(Scenario::Overlap, 8192, 8192, 8192, 64 << 20);
    let arms = [("matmul", 1460.0), ("gather/copy_engine", 1320.0), ("sequential/copy_engine", 2790.0), ("overlap/copy_engine", 1510.0)];
    let mut overlap = made_up_products(shape, &arms);
    overlap[1].held = Some(SmFreeCheck { in_place: Some(true), out_of_place: false });
    overlap[3].products = Summary::of(&[vec![1490.0]]);
    overlap.push(Timing { status: Status::NotSupported, ..Timing::new("overlap/nccl_copy_engine", shape, METHOD) });
    timings.extend(overlap);
    insta::assert_snapshot!(text_of(&timings, None));
    let page = page_of(&record_of(timings));
    assert!(page.contains("done while all SMs are held") && page.contains("M: rows of A, those of all ranks together"), "{page}");
}

/// If this fails, a step is compared with another's, or a speed-up stands where a result was not seen to be right.
#[test]
fn steps_are_held_against_their_own_sequence_and_the_peers_best() {
    let shape = Workload::from(FsdpWorkload { layers: 8, dtype: DType::BF16, world: 8, m: 2048, n: 8192, k: 8192 });
    let arms = [
        ("matmul", 9000.0),
        ("sequential/nccl_ring", 14000.0),
        ("overlap/nccl_ring", 11000.0),
        ("sequential/copy_engine", 13500.0),
        ("overlap/copy_engine", 10000.0),
        ("overlap/push", 10500.0),
    ];
    let mut timings = made_up_products(shape, &arms);
    timings[4].products = Summary::of(&[vec![9400.0]]);
    timings[4].rendezvous = Some(Rendezvous { met: 1, steps: 144 });
    // What was not judged is compared with nothing.
    timings[5].check = None;
    timings.push(Timing { status: Status::NotSupported, ..Timing::new("overlap/nccl_copy_engine", shape, METHOD) });
    insta::assert_snapshot!(text_of(&timings, None));
    let section = &sections(&timings)[0];
    let names: Vec<String> = drawn(section, &h200()).into_iter().map(|plot| plot.name).collect();
    assert_eq!(names, ["time", "behind", "rate"].map(|what| format!("fsdp-l8-n8192-k8192-w8-{what}")));
    let record = record_of(timings);
    let page = page_of(&record);
    assert!(page.contains("rendezvous / steps") && page.contains("M: rows of each rank"), "{page}");
    let schema = include_str!("../../../docs/reference/record-schema-commands.md");
    let case = serde_json::to_value(&record.cases[4]).unwrap();
    for (field, _) in case.as_object().unwrap() {
        assert!(
            schema.contains(&format!("| `cases[].{field}` |")),
            "docs/reference/record-schema-commands.md does not say what `{field}` is"
        );
    }
    let lines = csv(&record.cases);
    assert!(lines.lines().nth(1).unwrap().starts_with("fsdp,bf16,,8,,2048,8192,8192,8,,matmul,graph,pass,"), "{lines}");
}

#[test]
fn hosts_that_wait_at_the_end_are_held_against_those_that_wait_for_each_batch() {
    let shape = Workload::from(PipelineWorkload { batches: 16, world: 8, bytes: 16 << 20 });
    let mut timings = made_up_products(shape, &[("blocking/push", 900.0), ("deferred/push", 600.0)]);
    for (timing, blocked) in timings.iter_mut().zip([850.0, 40.0]) {
        timing.microseconds = None;
        timing.waits = Some(Waits { blocked: Summary::of(&[vec![blocked]]).unwrap(), looked: 1280, not_there: 17 });
    }
    timings.push(Timing { status: Status::NotSupported, ..Timing::new("blocking/nccl_send_recv", shape, METHOD) });
    insta::assert_snapshot!(text_of(&timings, None));
    let record = record_of(timings);
    assert!(page_of(&record).contains("not there when looked for"));
    let drawn = drawn(&sections(&record.cases)[0], &h200());
    assert_eq!(
        drawn.iter().map(|plot| plot.name.as_str()).collect::<Vec<_>>(),
        ["all_to_all_async-b16-w8-time", "all_to_all_async-b16-w8-behind"]
    );
    assert!(
        drawn[0].svg().unwrap().contains("microseconds for all batches"),
        "hosts get no verdict in a graph: the plot is of eager times"
    );
    let schema = include_str!("../../../docs/reference/record-schema-commands.md");
    for (field, _) in serde_json::to_value(&record.cases[0]).unwrap().as_object().unwrap() {
        assert!(
            schema.contains(&format!("| `cases[].{field}` |")),
            "docs/reference/record-schema-commands.md does not say what `{field}` is"
        );
    }
}

#[test]
fn recorded_timings_have_tables_too() {
    let record = recorded("h200x4-bench");
    let text: Vec<String> = tables(&record.cases, &record.machine, None).iter().map(|table| table.aligned()).collect();
    insta::assert_snapshot!("recorded_tables", text.join("\n"));
    assert_eq!(csv(&record.cases).lines().count(), 1 + record.cases.len());
}

/// If this fails, a speed-up stands where nobody has seen that the result is right.
#[test]
fn what_was_not_judged_has_no_speed_up() {
    let mut timings = made_up(1.0);
    let standing = |timings: &[Timing]| sections(timings)[0].times(Launching::Graph, None).unwrap().rows[0].last().unwrap().clone();
    assert_eq!(standing(&timings), "one_shot 4.79x [4.79, 4.79] over nccl_ring");
    let at = timings.iter().position(|timing| timing.contender == "one_shot").unwrap();
    timings[at].check.as_mut().unwrap().status = Status::Fail;
    timings[at].status = Status::Fail;
    assert_eq!(standing(&timings), "one_shot (not judged)");
    assert!(text_of(&timings, None).contains(" FAIL"));
    timings[at].check = None;
    assert_eq!(standing(&timings), "one_shot (not judged)");
    let ours: Vec<Timing> = timings.into_iter().filter(|timing| timing.contender != "nccl_ring").collect();
    assert_eq!(standing(&ours), "one_shot");
}

#[test]
fn csv_has_a_line_for_each_figure() {
    insta::assert_snapshot!(csv(&made_up(1.0)[..2]));
}

#[test]
fn nccl_tests_json_has_its_fields() {
    let record = record_of(made_up(1.0));
    let documents = nccl_tests(&record);
    let names: Vec<&str> = documents.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["all_reduce-w8-one_shot.json", "all_reduce-w8-two_shot.json", "all_reduce-w8-nccl_ring.json"]);
    insta::assert_json_snapshot!(documents[1].1);
    let broadcast = Timing { workload: workload(Collective::Broadcast, 8, 8192).into(), ..record.cases[0].clone() };
    let (_, document) = nccl_tests(&record_of(vec![broadcast])).remove(0);
    assert_eq!((&document["results"][0]["root"], &document["results"][0]["redop"]), (&"     0".into(), &"none".into()));
}

fn record_of(cases: Vec<Timing>) -> Record<Timing> {
    let mut record = recorded("h200x4-bench");
    record.machine = h200();
    record.cases = cases;
    record
}

#[test]
fn a_regression_is_beyond_the_noise() {
    let (then, same, slower) = (made_up(1.0), made_up(1.02), made_up(1.2));
    let verdicts = |now: &[Timing]| {
        let (changes, alone) = baseline::compare(now, &then, 0.05);
        assert_eq!((changes.len(), alone), (18, 0));
        baseline::has_regressed(&changes)
    };
    assert!(!verdicts(&then) && !verdicts(&same) && verdicts(&slower));
    insta::assert_snapshot!(baseline::changed(&baseline::compare(&slower, &then, 0.05).0).aligned());

    // A peer that is slower is no finding of ours, and another method is no comparison.
    let peer: Vec<Timing> = then.iter().map(|timing| if timing.is_peer() { slower_by_half(timing) } else { timing.clone() }).collect();
    assert!(!verdicts(&peer));
    let warm: Vec<Timing> = slower.iter().map(|timing| Timing { method: timing.method.warm(), ..timing.clone() }).collect();
    assert_eq!(baseline::compare(&warm, &then, 0.05), (Vec::new(), 18));

    // One round says nothing of noise.
    let old = recorded("h200x4-bench").cases;
    let (changes, _) = baseline::compare(&old, &old, 0.05);
    assert!(!changes.is_empty() && changes.iter().all(|change| change.verdict == baseline::Drift::Unknown));
}

fn slower_by_half(timing: &Timing) -> Timing {
    let times = timing.microseconds.clone().unwrap();
    let rounds: Vec<Vec<f64>> = times.rounds.iter().map(|time| vec![1.5 * time]).collect();
    Timing { microseconds: Summary::of(&rounds), ..timing.clone() }
}

#[test]
fn a_baseline_of_another_machine_says_how_it_differs() {
    let other = MachineInfo { gpus: 4, ..h200() };
    let refused = baseline::same_machine(&h200(), &other).unwrap_err();
    assert_eq!(refused, "the baseline is of another machine: number of GPUs 4, here 8");
    assert_eq!(baseline::same_machine(&h200(), &h200()), Ok(()));
}

#[test]
fn link_limits_are_told_or_known() {
    let name = |machine: &MachineInfo| link_limit(machine).map(|limit| limit.name());
    assert_eq!(name(&h200()).unwrap(), "450 GB/s by the data sheet");
    assert_eq!(name(&MachineInfo { link_gbps: Some(478.1), ..h200() }).unwrap(), "478 GB/s as the driver tells");
    assert_eq!(name(&MachineInfo { gpu: "NVIDIA A10".into(), ..h200() }), None);
}

/// The plots of a section by itself.
fn drawn(section: &Section<'_>, machine: &MachineInfo) -> Vec<Plot> {
    plots(section, machine, &Inks::of([section]))
}

/// How many points an SVG has: marks within the paths of its lines, but for one of each line in the legend.
fn points(svg: &str) -> usize {
    let marks = svg.split(r#"<path class="m" d=""#).skip(1).map(|path| path.split('"').next().unwrap_or_default().matches('M').count());
    marks.sum::<usize>() - svg.matches("</g><text").count()
}

#[test]
fn plots_show_every_contender_and_the_limit() {
    let timings = made_up(1.0);
    let section = &sections(&timings)[0];
    let [time, _, busbw]: [Plot; 3] = drawn(section, &h200()).try_into().unwrap();
    let (time, busbw) = (time.svg().unwrap(), busbw.svg().unwrap());
    for svg in [&time, &busbw] {
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        for text in ["one_shot", "two_shot", "nccl_ring", "8 KiB", "64 MiB", "all_reduce bf16 sum, w=8", "in a graph", "<title>", "<desc>"]
        {
            assert!(svg.contains(text), "{text}\n{svg}");
        }
    }
    // A point for each contender at each size.
    assert_eq!(points(&busbw), 9, "{busbw}");
    assert!(busbw.contains("links: 450 GB/s by the data sheet") && !time.contains("links"));
    let other = MachineInfo { gpu: "NVIDIA A10".into(), ..h200() };
    assert!(!drawn(section, &other)[2].svg().unwrap().contains("links"));

    let nothing = [Timing::new("one_shot", workload(Collective::AllReduce, 8, 8192), METHOD)];
    let refused = drawn(&sections(&nothing)[0], &h200())[0].svg().unwrap_err();
    assert_eq!(refused.to_string(), "cannot draw all_reduce-w8-time: no contender has a time");
}

/// If this fails, one slow contender squeezes all others into a corner, or its point is left out without a word.
#[test]
fn what_is_far_slower_does_not_stretch_the_axis() {
    let mut timings = made_up(1.0);
    let places = |timings: &[Timing]| {
        let svg = drawn(&sections(timings)[0], &h200())[0].svg().unwrap();
        let line = svg.split(r#"<title>two_shot</title><path class="l" d=""#).nth(1).unwrap().split('"').next().unwrap().to_owned();
        (svg, line)
    };
    // 64 MiB by one_shot take four times as long as by NCCL's ring: that is the end of the axis.
    let (svg, line) = places(&timings);
    assert!(svg.contains("beyond the axis (arrows): one_shot at 64 MiB: 1480<"), "{svg}");
    assert_eq!(points(&svg), 8);
    for timing in timings.iter_mut().filter(|timing| timing.contender == "one_shot" && timing.workload.size() == 64 << 20) {
        timing.enter(&[vec![44_000.0]], &[], None);
    }
    let (stretched, same) = places(&timings);
    assert!(stretched.contains("one_shot at 64 MiB: 44000<") && line == same, "{line}\n{same}");
    // The same of ratios: 30 times ahead at one size.
    let peer_of = |timings: &mut [Timing], factor: f64| {
        let of = timings.iter_mut().find(|timing| timing.is_peer() && timing.workload.size() == 8 << 10).unwrap();
        of.enter(&[vec![factor * 4.18; 6], vec![factor * 4.18; 6]], &[], None);
    };
    peer_of(&mut timings, 30.0);
    let ratios = ahead(&contests(&timings)[0]).unwrap().svg().unwrap();
    assert!(ratios.contains("beyond the axis (arrows): w=8 at 8 KiB: 30"), "{ratios}");
    peer_of(&mut timings, 1.5);
    assert!(!ahead(&contests(&timings)[0]).unwrap().svg().unwrap().contains("beyond"));
}

/// If this fails, a time that a machine could not tell apart from none keeps the axis from ever ending.
#[test]
fn a_time_of_nothing_has_no_point() {
    let mut timings = made_up(1.0);
    timings[0].algbw_busbw = None;
    timings[0].enter(&[vec![0.0]], &[], Some(1));
    assert_eq!((timings[0].algbw_busbw, timings[0].wire), (None, None), "and no bandwidth, which JSON has no number for");
    assert_eq!(points(&drawn(&sections(&timings)[0], &h200())[2].svg().unwrap()), 8);
    // Nor has it a ratio.
    assert!(ahead(&contests(&timings)[0]).is_some_and(|plot| points(&plot.svg().unwrap()) == 2));
    timings.truncate(1);
    assert!(drawn(&sections(&timings)[0], &h200()).iter().all(|plot| plot.svg().is_err()));
    assert!(ahead(&contests(&timings)[0]).is_none());
}

#[test]
fn plots_are_pictures_too() {
    let timings = made_up(1.0);
    let path = std::env::temp_dir().join(format!("passmuster-plot-{}.png", std::process::id()));
    drawn(&sections(&timings)[0], &h200())[2].write_png(&path).unwrap();
    let mut reader = png::Decoder::new(io::BufReader::new(fs::File::open(&path).unwrap())).read_info().unwrap();
    fs::remove_file(&path).unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.color_type), (920, png::ColorType::Rgba));
    // Text is drawn, and the lines of one_shot and of NCCL's ring in their colours.
    for colour in [[0x22, 0x22, 0x22], rgb(INKS[0].light[0]), rgb(INKS[1].light[0])] {
        assert!(pixels.chunks(4).filter(|pixel| pixel[..3] == colour).count() > 200, "{colour:?} is not in the picture");
    }
}

fn rgb(colour: &str) -> [u8; 3] {
    [1, 3, 5].map(|at| u8::from_str_radix(&colour[at..at + 2], 16).unwrap())
}

/// If this fails, lines cannot be seen, ours look like peers, or a contender changes its colour from section to section.
#[test]
fn colours_can_be_told_apart() {
    // WCAG 2.2: 3 to 1 for what is no text.
    let luminance = |colour: &str| {
        let linear = |byte: u8| {
            let share = f64::from(byte) / 255.0;
            if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        };
        let [r, g, b] = rgb(colour).map(linear);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let contrast = |a: &str, b: &str| {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    };
    for ink in &INKS {
        assert!(ink.light.iter().all(|colour| contrast(colour, "#ffffff") >= 3.0) && ink.light.len() == ink.dark.len());
        assert!(ink.dark.iter().all(|colour| contrast(colour, DARK) >= 3.0));
    }
    // Ours are bluer than they are red, peers the other way: so they differ for those who do not see red and green apart.
    for (light, bluer) in [(0, true), (1, false)].map(|(at, bluer)| (&INKS[at], bluer)) {
        assert!(light.light.iter().chain(light.dark).map(|colour| rgb(colour)).all(|[r, _, b]| (b > r) == bluer));
    }
    let records = [recorded("h100x4-bench-all_reduce"), recorded("h100x4-bench-all_gather")];
    let sections: Vec<Section<'_>> = records.iter().flat_map(|record| sections(&record.cases)).collect();
    let inks = Inks::of(&sections);
    let mut of_name = std::collections::BTreeMap::new();
    for section in &sections {
        let svg = plots(section, &h200(), &inks)[0].svg().unwrap();
        let lines: Vec<(&str, &str)> = svg
            .split(r#"<g class=""#)
            .filter_map(|rest| Some((rest.split('"').next()?, rest.split("\"><title>").nth(1)?.split('<').next()?)))
            .collect();
        assert_eq!(lines.len(), section.contenders.iter().filter(|name| svg.contains(&format!("<title>{name}<"))).count());
        for (class, name) in &lines {
            assert_eq!(class.starts_with('p'), name.starts_with("nccl_") || name.starts_with("torch_"), "{name}: {class}");
            assert_eq!(of_name.entry((*name).to_owned()).or_insert((*class).to_owned()), class, "{name} has two colours");
            assert_eq!(lines.iter().filter(|(other, _)| other == class).count(), 1, "two lines of {class} in {}", section.name());
        }
    }
}

/// If this fails, the winner is not who is faster, or one is named where noise or a missing judgement forbids it.
#[test]
fn the_verdict_names_who_is_faster() {
    let mut timings = made_up(1.0);
    let winners = |timings: &[Timing]| sections(timings)[0].standings().iter().map(|standing| standing.winner()).collect::<Vec<_>>();
    assert_eq!(winners(&timings), [Some(Winner::Ours), Some(Winner::Ours), Some(Winner::Peer)]);
    let score = contests(&timings)[0].score(8).unwrap();
    let Score { mean, least: (least, at), behind, sizes } = score;
    assert_eq!((format!("{mean:.2} {least:.2}"), at, behind, sizes), ("1.98 0.89".to_owned(), 64 << 20, 1, 3));
    // Rounds of which either is faster in some.
    for (timing, rounds) in timings.iter_mut().filter(|timing| timing.workload.size() == 8 << 10).zip([[4.0, 5.0], [9.0, 9.0], [5.0, 4.0]])
    {
        timing.enter(&rounds.repeat(3).iter().map(|time| vec![*time]).collect::<Vec<_>>(), &[], None);
    }
    assert_eq!(winners(&timings)[0], Some(Winner::Level));
    timings[0].check = None;
    timings.iter_mut().filter(|timing| timing.contender == "nccl_ring").for_each(|timing| timing.check = None);
    assert_eq!((winners(&timings), contests(&timings)[0].score(8)), (vec![None; 3], None), "nobody has seen that the results are right");
}

fn page_of(record: &Record<Timing>) -> String {
    page(&Contents { timed: std::slice::from_ref(record), ..Contents::default() })
}

/// What is between two marks, everywhere.
fn between<'a>(text: &'a str, begin: &'a str, end: &'a str) -> Vec<&'a str> {
    text.split(begin).skip(1).filter_map(|rest| rest.split(end).next()).collect()
}

/// If this fails, the report needs a network, runs something, cannot be navigated, or is too large to be sent around.
#[test]
fn the_report_is_one_page_without_a_network() {
    let all = ["h100x4-bench-all_gather", "h100x4-bench-reduce_scatter", "h100x4-bench-all_gather_matmul", "h200x2-bench-overlap"];
    let mut record = recorded("h100x4-bench-all_reduce");
    all.iter().for_each(|name| record.cases.extend(recorded(name).cases));
    record.cases[0].reason = "<script>alert(1)</script>".into();
    let (text, again) = (page_of(&record), recorded("h100x4-bench-all_gather"));
    for word in ["<script", "https://", "<link", "<img", "url(", "@import"] {
        assert!(!text.contains(word), "{word}");
    }
    assert_eq!(text.matches("http://").count(), text.matches("http://www.w3.org/2000/svg").count());
    for section in sections(&record.cases) {
        assert_eq!(text.matches(&format!(">{}</h3>", section.name())).count(), 1, "{}", section.name());
    }
    for word in ["4 x NVIDIA H100", "580.159.04", "2.28.3", &record.source.ptx_hash, "./passmuster bench all_reduce --worlds 2,3,4"] {
        assert!(text.contains(word), "{word}");
    }
    // The answer is first: before any plot, any machine and any command line.
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not there"));
    assert!(at("geometric mean over sizes") < at("<svg ") && at("<strong>") < at("<svg ") && at("<svg ") < at("driver_version"));
    // Two records of the same, and of one machine.
    let text = page(&Contents { timed: &[record, again], ..Contents::default() });
    let (ids, headings) = (between(&text, " id=\"", "\""), between(&text, "<h", "</h"));
    for all in [&ids, &headings] {
        let distinct: std::collections::BTreeSet<&&str> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:#?}");
    }
    assert!(
        headings.iter().any(|heading| heading.ends_with("all_gather bf16 (4 x NVIDIA H100 80GB HBM3, 2026-11-26 09:08)")),
        "{headings:#?}"
    );
    let dead: Vec<&str> = between(&text, "href=\"#", "\"").into_iter().filter(|target| !ids.contains(target)).collect();
    assert!(dead.is_empty(), "{dead:?}");
    assert_eq!(text.matches("Facts of 4 x NVIDIA H100 80GB HBM3").count(), 1, "the machine's facts are there once");
    // Every header cell says what it is the header of.
    assert_eq!(text.matches("<th ").count(), text.matches(" scope=\"").count());
    assert!(!text.contains("<th>"));
}

/// A record as it lies there, rendered.
fn judged(name: &str) -> Judged {
    Judged::read(&file_of(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn table_named<'a>(record: &'a Judged, title: &str) -> &'a Table {
    let found = record.tables.iter().find(|table| table.title.starts_with(title));
    found.unwrap_or_else(|| panic!("{title} is none of {:?}", record.tables.iter().map(|table| &table.title).collect::<Vec<_>>()))
}

/// If this fails, a record of a conformance run cannot be looked at, or what was not tested is not told.
#[test]
fn records_of_conformance_are_rendered() {
    let merge = judged("h200x2-merge");
    let text: serde_json::Value = serde_json::from_str(&file_of("h200x2-merge")).unwrap();
    let [total, pass, not_supported, waived] =
        ["total", "pass", "not_supported", "waived"].map(|status| text["summary"][status].as_u64().unwrap() as usize);
    assert!(merge.title.starts_with("test-gpu merge") && !merge.is_bad);
    assert_eq!(merge.verdict, format!("{total} cases: {pass} passed, {not_supported} not_supported, {waived} waived; 0 findings"));
    let reasons = &table_named(&merge, "not_supported, by reason").rows;
    let count = |row: &Vec<String>| row[0].parse::<usize>().unwrap();
    assert!(
        reasons.len() < 30
            && reasons.iter().map(count).sum::<usize>() == not_supported
            && reasons.windows(2).all(|pair| count(&pair[0]) >= count(&pair[1])),
        "{reasons:?}"
    );
    assert!(reasons.iter().any(|row| row[1].contains("GPUs for NCCL, 2 given")), "{reasons:?}");
    assert!(table_named(&merge, "waived, by reason").rows.iter().any(|row| row[1].starts_with("nccl-symmetric-ll-misaligned")));
    let outcomes = table_named(&merge, "all_reduce: cases by algorithm");
    assert!(outcomes.header.contains(&"w=16".into()) && outcomes.rows.len() > 10);
    let slowest = &table_named(&merge, "Slowest cases").rows;
    let milliseconds: Vec<f64> = slowest.iter().map(|row| row[2].parse().unwrap()).collect();
    assert!(milliseconds.len() == 20 && milliseconds.windows(2).all(|pair| pair[0] >= pair[1]) && milliseconds[0] > 0.0);
    let emulated = judged("emulator-merge");
    assert!(table_named(&emulated, "Races waived").rows.iter().any(|row| row[0] == "alias"));
    let executed = table_named(&emulated, "Code executed");
    assert!(executed.rows.iter().any(|row| row[0] == "all_reduce/two_shot" && row[2].contains(" % of ")), "{executed:?}");
    assert!(!emulated.tables.iter().any(|table| table.title.starts_with("Code that no case")), "of a whole list its file has the places");
    let mut few: Record = serde_json::from_str(&file_of("emulator-merge")).unwrap();
    few.coverage.retain(|of| of.module == "broadcast/push");
    let few = Judged::of_verdicts(&few);
    let untouched = table_named(&few, "Code that no case executed");
    assert!(untouched.rows.iter().any(|row| row[0].starts_with("broadcast/push: PTX line ")), "{untouched:?}");
    let waits = table_named(&few, "Waits");
    let both = |row: &Vec<String>| row[2..].iter().all(|count| count.parse::<u64>().is_ok_and(|count| count > 0));
    assert!(waits.rows.iter().any(both) && !table_named(&few, "Branches that always").rows.is_empty(), "{waits:?}");

    let mut record = Record::of_verdicts("validate", h200(), recorded("h200x4-bench").source, Vec::new());
    let mut failed = Verdict::without_checks("all_reduce/two_shot:bf16,sum:w=8:n=1040", Status::Fail, "wrong");
    let finding = Finding {
        property: "reference".into(),
        call: Some(3),
        summary: "8 elements <wrong>".into(),
        details: "i  expected".into(),
        ..Finding::default()
    };
    failed.findings.push(finding);
    failed.schedule = Some("random-5".into());
    record.cases = vec![Verdict::without_checks("all_reduce/one_shot:f32,sum:w=2:n=1", Status::Pass, ""), failed];
    let mut record = Record::of_verdicts("validate", record.machine, record.source, record.cases);
    record.partial = Some(Partial { judged: 2, of: 13148, why: "SIGINT".into() });
    let partial = Judged::of_verdicts(&record);
    assert!(partial.is_bad && partial.verdict.starts_with("partial, 2 of 13148 judged (SIGINT): 2 cases: "), "{}", partial.verdict);
    record.partial = None;
    let record = Judged::of_verdicts(&record);
    let text = record.text();
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in {text}"));
    assert!(place("FAIL all_reduce/two_shot:bf16,sum:w=8:n=1040@random-5") < place("reference call 3: 8 elements <wrong>"));
    assert!(place("  i  expected") < place("Cases by status"));
    assert!(text.ends_with("2 cases: 1 passed, 1 fail; 1 finding\n") && record.is_bad);
    let page = page(&Contents { judged: &[record, merge], ..Contents::default() });
    assert!(
        page.contains("reference call 3: 8 elements &lt;wrong&gt;")
            && page.contains("<strong>2 cases: 1 passed, 1 fail; 1 finding</strong>")
    );
    assert!(page.find("FAIL all_reduce").unwrap() < page.find("Cases by status").unwrap());
}

/// If this fails, the score of a record of mutants is not that of the command, or what was missed is not first.
#[test]
fn records_of_mutants_and_of_the_ledger_are_rendered() {
    let mutants = judged("emulator-mutants");
    let text: serde_json::Value = serde_json::from_str(&file_of("emulator-mutants")).unwrap();
    let those = |is: fn(&serde_json::Value) -> bool| text["cases"].as_array().unwrap().iter().filter(|case| is(case)).count();
    let (all, equivalent) = (those(|_| true), those(|case| case["equivalent"].is_string()));
    let caught = those(|case| case["caught"] == true);
    let not_reached = those(|case| case["not_reached"] == true && !case["equivalent"].is_string());
    let counted = all - equivalent - not_reached;
    let missed = counted - caught;
    assert!(missed > 0 && not_reached > 100 && equivalent > 100);
    let percent = 100.0 * caught as f64 / counted as f64;
    assert_eq!(mutants.verdict, format!("{caught} of {counted} mutants caught ({percent:.1} %), {missed} missed"));
    assert!(!mutants.is_bad && mutants.findings.is_empty(), "a synchronisation bug may be missed");
    let rows = |title: &str| table_named(&mutants, title).rows.clone();
    assert!(rows("Mutants by kind").contains(&["value, planted by people", "94", "94", "100.0 %"].map(str::to_owned).to_vec()));
    assert!(rows("Mutants by kind").contains(&["sync, made by rule, order", "91", "101", "90.1 %"].map(str::to_owned).to_vec()));
    assert_eq!((rows("Missed").len(), rows("Equivalent").len(), rows("Caught").len()), (missed, equivalent, caught));
    assert!(rows("What caught them").iter().any(|row| row[0] == "races"));
    let titles: Vec<&str> = mutants.tables.iter().map(|table| table.title.as_str()).collect();
    assert_eq!((&titles[..2], mutants.open), (&["Missed", "Mutants by kind"][..], 2));

    let ledger = judged("ledger");
    // Each record has its own number of them: forms are added.
    let (cases, rest) = ledger.verdict.split_once(" cases: ").unwrap();
    assert!(cases.parse::<usize>().unwrap() > 2000 && rest == format!("{cases} passed; 0 findings"), "{}", ledger.verdict);
    assert!(
        table_named(&ledger, "Approximate forms").rows.len() > 3
            && !table_named(&ledger, "Results that the ISA leaves open").rows.is_empty()
    );
}

/// If this fails, a record of another command is an error of serde's, or is shown as what it is not.
#[test]
fn what_cannot_be_rendered_is_named() {
    let refused = |text: &str| Judged::read(text).unwrap_err().to_string();
    let kinds = "and report renders those of bench, validate, test-gpu, mutants, ledger";
    assert_eq!(refused(r#"{"kind": "tune", "cases": 7}"#), format!("a record of `tune`, {kinds}"));
    assert!(refused(r#"{"cases": []}"#).starts_with("missing field `kind`"));
    assert!(refused("PASS").starts_with("expected value"));
}

#[test]
fn records_read_back_as_they_were_written() {
    let record = record_of(made_up(1.0));
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record<Timing>>(&text).unwrap(), record);
    let schema = include_str!("../../../docs/reference/record-schema-commands.md");
    let case = serde_json::to_value(&record.cases[1]).unwrap();
    for (field, _) in case.as_object().unwrap() {
        assert!(
            schema.contains(&format!("| `cases[].{field}` |")),
            "docs/reference/record-schema-commands.md does not say what `{field}` is"
        );
    }
    let old = recorded("h200x4-bench").cases.remove(0);
    assert_eq!((old.method.rounds, old.method.copies, old.method.flush, old.method.gated), (1, 1, 0, false));
    assert_eq!(old.microseconds.unwrap().estimate(), Estimate { value: 4.024, interval: None });
}
