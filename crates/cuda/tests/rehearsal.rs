//! What machines of one, two and four GPUs would make of the lists, without a GPU.
//!
//! If this fails, `test-gpu` ends with an error of its own on a case that is simply too large for the machine, or that contradicts itself.

use std::{fs, path::PathBuf, time::Duration};

use passmuster_cuda::Rehearsal;
use passmuster_harness::conformance::{
    Case, List, Status, Verdict,
    runner::Settings,
    soak::{Round, Soak},
};
use passmuster_plan::{
    algorithms::{Foreign, Registry},
    library::Library,
};

const NCCL: Option<i32> = Some(22809);

/// What becomes of each case on a machine of `gpus` GPUs.
fn rehearsed(cases: &[Case], gpus: usize, nccl: Option<i32>, (registry, library): (&Registry, &Library)) -> Vec<Verdict> {
    let judge = |cases: &[Case]| {
        let mut machine = Rehearsal::of_h200(gpus, nccl, library.clone());
        let settings = Settings { registry, deadline: Duration::from_secs(10), shared_pads: false, progress: &|_| {} };
        cases.iter().map(|case| case.judge(&mut machine, &settings)).collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let parts: Vec<&[Case]> = cases.chunks(cases.len().div_ceil(threads).max(1)).collect();
    std::thread::scope(|scope| {
        let judged: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || judge(part))).collect();
        judged.into_iter().flat_map(|part| part.join().expect("no case panics")).collect()
    })
}

/// Asserts that each case would run or is not supported, and returns how many would run.
#[track_caller]
fn run_or_not_supported(verdicts: &[Verdict], gpus: usize) -> usize {
    for Verdict { case, status, reason, .. } in verdicts {
        let would_run = *status == Status::Inconclusive && reason.ends_with("a rehearsal runs nothing");
        let not_supported = *status == Status::NotSupported && reason.len() > "not supported: ".len();
        assert!(would_run || not_supported, "{case} on {gpus} GPUs: {status}: {reason}");
    }
    verdicts.iter().filter(|verdict| verdict.status == Status::Inconclusive).count()
}

#[test]
fn no_list_has_a_case_that_gpus_would_call_an_error() {
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
    let library = registry.library();
    for list in List::ALL {
        let all = list.all_cases(&registry, 0);
        for gpus in [1, 2, 4] {
            // On two GPUs every case, as before a merge; otherwise a fifth of them, and the worlds that few cases have.
            let is_rare =
                |case: &Case| case.to_string().split(':').any(|part| part.strip_prefix("w=").is_some_and(|world| world.len() > 1));
            let cases: Vec<Case> = match gpus {
                2 => all.clone(),
                _ => all.iter().enumerate().filter(|(index, case)| index % 5 == 0 || is_rare(case)).map(|(_, case)| case.clone()).collect(),
            };
            assert!(!cases.is_empty(), "{}: no case on {gpus} GPUs", list.name());
            let would_run = run_or_not_supported(&rehearsed(&cases, gpus, NCCL, (&registry, &library)), gpus);
            // More ranks than eight times the GPUs, peers that want a GPU for each rank, and multicast are not supported; the rest is.
            let least = cases.len() * [0, 20, 60, 0, 50][gpus] / 100;
            assert!(would_run >= least, "{}: {would_run} of {} would run on {gpus} GPUs, expected {least}", list.name(), cases.len());
        }
    }
}

/// Worlds that only copies by copy engines have, on paper, are beyond two GPUs and say so.
#[test]
fn worlds_that_two_gpus_have_no_place_for_are_not_supported() {
    let cases: Vec<Case> =
        ["all_gather/copy_engine:bf16,copy:w=17:n=40", "all_to_all/copy_engine:bf16,copy:w=64:n=8"].map(|id| id.parse().unwrap()).into();
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
    let reasons: Vec<String> = rehearsed(&cases, 2, NCCL, (&registry, &registry.library()))
        .into_iter()
        .map(|verdict| format!("{} {}", verdict.status, verdict.reason))
        .collect();
    let sharing = |world, ranks| format!("not_supported not supported: world {world} puts {ranks} ranks on one GPU: at most 8 share one");
    assert_eq!(reasons, [sharing(17, 9), sharing(64, 32)]);
}

#[test]
fn without_nccl_its_cases_are_not_supported() {
    let case: Case = "all_reduce/two_shot:bf16,sum:w=2:n=1040:peer=nccl_ring".parse().unwrap();
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
    let judge = |nccl| rehearsed(std::slice::from_ref(&case), 2, nccl, (&registry, &registry.library())).remove(0);
    let verdicts = [None, NCCL].map(judge);
    assert_eq!(verdicts.each_ref().map(|verdict| verdict.status), [Status::NotSupported, Status::Inconclusive], "{verdicts:#?}");
}

#[test]
fn no_list_of_a_kernel_from_elsewhere_has_one_either() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("examples/foreign");
    let text = |path: String| fs::read_to_string(folder.join(path)).unwrap();
    let mut library = passmuster_harness::registry(passmuster_kernels::catalogue()).library();
    let names = [("one_shot_by_value", None), ("two_shot_by_table", None), ("one_shot_triton", Some("one_shot_all_reduce"))];
    let read = names.map(|(name, entry)| {
        let foreign = Foreign::read(&text(format!("{name}/spec.toml")), entry).unwrap();
        for module in foreign.kernels().modules() {
            library.replace(&module.name, text(format!("{name}/kernel.ptx")));
        }
        foreign
    });
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue()).with_foreign(read).unwrap();
    for foreign in registry.foreign() {
        for list in [List::Smoke, List::Merge] {
            let cases: Vec<Case> = list.cases_of(&registry, foreign, 0).into_iter().map(Case::from).collect();
            for gpus in [1, 2, 4] {
                assert!(run_or_not_supported(&rehearsed(&cases, gpus, NCCL, (&registry, &library)), gpus) > 0);
            }
        }
    }
}

/// If this fails, a soak on GPUs ends with an error of the harness, or most of its rounds are not run.
#[test]
fn no_round_of_a_soak_is_one_that_gpus_would_call_an_error() {
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
    for (gpus, worlds, least) in [(1, 1..=4, 25), (2, 1..=2, 100), (4, 1..=4, 100), (4, 2..=8, 40)] {
        let soak = Soak { seed: 3, worlds: worlds.collect(), bytes: 4 << 20, multicast: false };
        let mut machine = Rehearsal::of_h200(gpus, None, registry.library());
        let settings = Settings { registry: &registry, deadline: Duration::from_secs(10), shared_pads: false, progress: &|_| {} };
        let rounds = (0..100).map(|number| Round::draw(&registry, soak.clone(), number).judge(&mut machine, &settings));
        let would_run = run_or_not_supported(&rounds.collect::<Vec<_>>(), gpus);
        assert!(would_run >= least, "{would_run} of 100 rounds of worlds {:?} would run on {gpus} GPUs, expected {least}", soak.worlds);
    }
}
