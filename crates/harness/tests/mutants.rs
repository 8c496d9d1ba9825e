//! Mutants on the emulator: planted ones, and a sample of those made by rule that `cargo xtask mutants` runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{Arc, LazyLock},
    time::Duration,
};

use passmuster_harness::{
    conformance::{
        Case, CollectiveCase, InputClass, List, Status, Verdict,
        mutants::{self, Defect, Derived},
        runner::Settings,
    },
    emulator::{Emulator, EmulatorOptions, Interleaving, Strategy},
};
use passmuster_plan::{
    algorithms::{Mutant, MutantKind, Registry, Target, TensorParallelFusion},
    collective::{Collective, DType, Shape},
    library::Library,
    machine::Machine,
    plan::{BufferSpec, Call, MAX_RANKS, Op, Plan, RankCall, Region, Role, Script, Step},
};
use passmuster_ptx as ptx;
use rstest::rstest;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

/// Schedules that a mutant gets: as many as `cargo xtask mutants` gives.
const SCHEDULES: u64 = 8;

/// Schedules that those get that do nothing wrong, whose runs nothing ends early: `cargo xtask mutants` gives them all.
const SCHEDULES_OF_EQUIVALENTS: u64 = 4;

/// How many mutants are tried here.
const SAMPLE: usize = 24;

/// Known misses (docs/emulator/mutants.md): a fence between aliases, where profile `hopper` waives what it orders and a kernel's boundary is one in our reading; of
/// kernels of Lamport packs looks of a wait that gives up, which rules cannot tell from others, and of two what rare words of sums do not reach.
fn is_missed(mutant: &Derived) -> bool {
    let is_look = mutant.original.starts_with("ld.relaxed.sys") && matches!(mutant.defect, Defect::Strength | Defect::Scope | Defect::Slot);
    let of_sums = ["reduce/lamport", "all_reduce/two_shot_lamport"].contains(&&*mutant.module);
    mutant.original.contains("fence.proxy.alias") || is_look && mutant.module.ends_with("lamport") || of_sums
}

fn emulator(library: Library) -> Emulator {
    Emulator::new(EmulatorOptions { library, ..EmulatorOptions::default() })
}

fn judge(case: &Case, machine: &mut Emulator, schedule: u64) -> Verdict {
    judge_under(Interleaving::nth(0, schedule as usize), case, machine)
}

fn judge_under(interleaving: Interleaving, case: &Case, machine: &mut Emulator) -> Verdict {
    machine.set_interleaving(interleaving);
    case.judge(machine, &Settings { registry: &REGISTRY, deadline: Duration::from_secs(120), shared_pads: false, progress: &|_| {} })
}

fn is_caught(mutant: &Derived, schedules: u64) -> bool {
    let (mut machine, mut kernel) = (emulator(mutant.library(&REGISTRY)), emulator(REGISTRY.library()));
    let mut hunt = |schedules| {
        let of_mutant = |case: &Case, schedule| judge(case, &mut machine, schedule);
        mutants::hunt_beside(&mutant.cases(&REGISTRY), schedules, of_mutant, |case, schedule| judge(case, &mut kernel, schedule))
            .1
            .is_some()
    };
    // What rests on an assumption does so under the first schedule, too.
    hunt(1) || hunt(schedules)
}

/// The same, but that it may rest on an assumption that its kernel does not need.
fn is_finding(mutant: &Derived, schedules: u64) -> bool {
    let mut machine = emulator(mutant.library(&REGISTRY));
    mutants::hunt(&mutant.cases(&REGISTRY), schedules, |case, schedule| judge(case, &mut machine, schedule)).1.is_some()
}

/// If this fails, a kernel has places whose mutants are not made, or the names that fixtures/mutants/equivalent.toml uses are ambiguous.
#[test]
fn every_kernel_has_mutants_of_every_kind() {
    let all = mutants::derived(&REGISTRY);
    for of in [|mutant: &Derived| mutant.name.clone(), |mutant: &Derived| mutant.site.clone()] {
        assert_eq!(all.iter().map(of).collect::<BTreeSet<_>>().len(), all.len());
    }
    for (module, _) in mutants::subjects(&REGISTRY) {
        let name = module.name;
        let of_module: Vec<&Derived> = all.iter().filter(|mutant| mutant.module == module.name).collect();
        let mut counts = BTreeMap::<Defect, usize>::new();
        of_module.iter().for_each(|mutant| *counts.entry(mutant.defect).or_default() += 1);
        assert!(of_module.len() >= 30, "{name}: {counts:?}");
        let publishes = module.ptx.contains(".release.sys");
        // Kernels whose data carries its flag have no barriers, and their looks no branch each.
        let meets = module.ptx.contains("bar.sync");
        let is_due = |defect: &Defect| match defect {
            Defect::Order => publishes,
            // Of what is no release or acquire.
            Defect::Strength => module.ptx.contains(".relaxed.sys"),
            Defect::Barrier | Defect::Peers | Defect::Wait => meets,
            Defect::Mbarrier | Defect::Group => false,
            _ => true,
        };
        for defect in Defect::ALL.into_iter().filter(is_due) {
            assert!(counts.contains_key(&defect), "{name} has no mutant of {}: {counts:?}", defect.name());
        }
    }
    assert!(all.len() >= 60);
    for (module, _) in mutants::subjects_of_products(&REGISTRY) {
        let of = |defect| all.iter().filter(|mutant| mutant.module == module.name && mutant.defect == defect).count();
        for (defect, least) in [(Defect::Mbarrier, 36), (Defect::Group, 4), (Defect::Wait, 6), (Defect::Barrier, 8), (Defect::Order, 8)] {
            assert!(of(defect) >= least, "{}: {} mutants of {}", module.name, of(defect), defect.name());
        }
    }
}

#[test]
fn rules_say_what_they_do() {
    let all = mutants::derived(&REGISTRY);
    let of = |name: &str| all.iter().find(|mutant| mutant.name.contains(name)).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(of("two_shot/L").module, "all_reduce/two_shot");
    assert!(of("st.release.sys -> st.relaxed.sys").mutated.starts_with("st.relaxed.sys.global.u32 [%rd"));
    assert!(of("ld.relaxed.sys -> ld.weak").mutated.starts_with("ld.weak.global.u32 %r"));
    assert!(of("st.relaxed.sys -> st.relaxed.cta").mutated.starts_with("st.relaxed.cta.global.u32"));
    assert!(of("ld.acquire.sys not waited for").mutated.starts_with("bra $L"));
    assert!(of("ld.acquire.sys waited for in reverse").mutated.starts_with("@!%p"));
    assert!(of("next block's slot").mutated.contains(&format!("+{}]", 4 * MAX_RANKS)));
    assert!(of("st.relaxed.sys at the next line's slot").mutated.contains("+16], {%r"));
    assert!(of("ld.relaxed.sys at the next line's slot").mutated.starts_with("ld.relaxed.sys.global.v4.u32 {%r"));
    let moved = of("st.release.sys before bar.sync");
    let at = |text: &str| moved.ptx.find(text).unwrap();
    assert!(at("st.release.sys") < moved.ptx.rfind("bar.sync").unwrap() && moved.ptx.matches("st.release.sys").count() == 1);
}

/// If this fails, a reason is given for a mutant that is no longer made: the kernel has changed, and the argument with it.
#[test]
fn every_equivalent_mutant_exists_and_has_a_reason() {
    let all = mutants::derived(&REGISTRY);
    for equivalent in mutants::equivalents(&REGISTRY).expect("the file can be read") {
        let sites = all.iter().filter(|mutant| mutant.site == equivalent.site).count();
        assert_eq!(sites, 1, "mutants at `{}`: the kernel has other places than when the reason was given", equivalent.site);
        assert!(!equivalent.reason.is_empty(), "{}", equivalent.site);
    }
}

#[test]
fn a_sample_is_spread_over_all() {
    let all: Vec<u32> = (0..37).collect();
    assert_eq!(mutants::sample(all.clone(), 5), [0, 7, 14, 22, 29]);
    assert_eq!(mutants::sample(all.clone(), all.len() + 5), all, "more than there are is all");
}

/// If this fails, a mutant is caught for not being PTX, and its score says nothing.
#[test]
fn every_mutant_is_ptx() {
    for mutant in mutants::derived(&REGISTRY) {
        if let Err(error) = ptx::parse(&mutant.ptx) {
            panic!("{}: {error}", mutant.name);
        }
    }
}

/// If this fails, a planted bug of synchronisation is judged on cases that do not run the entry it is in, and passes.
#[test]
fn planted_mutants_are_run_by_their_cases() {
    let planted = REGISTRY.mutants().iter().filter(|mutant| mutant.kind == MutantKind::Sync && mutant.half().is_none());
    let is_run = |mutant: &Mutant| mutants::sync_cases_of(&REGISTRY, mutant).iter().any(|case| mutants::reaches(&REGISTRY, case, mutant));
    assert_eq!(planted.filter(|mutant| !is_run(mutant)).map(|mutant| mutant.name).collect::<Vec<_>>(), [""; 0]);
}

/// If this fails, mutants are caught for what the kernels do without them. In two parts, for a core each.
#[rstest]
#[case::at_first(0..2)]
#[case::later(2..SCHEDULES)]
fn kernels_pass_the_cases_of_their_mutants(#[case] schedules: Range<u64>) {
    let mut machine = emulator(REGISTRY.library());
    for (module, _) in mutants::subjects(&REGISTRY) {
        for case in mutants::sync_cases(&REGISTRY, module).into_iter().map(Case::from) {
            for schedule in schedules.clone() {
                let verdict = judge(&case, &mut machine, schedule);
                assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
            }
        }
    }
}

/// What a mutant of synchronisation is judged on by the command, then small cases of the merge list that reach the kernel, those with most ranks first.
fn cases_for(mutant: &Mutant) -> Vec<Case> {
    static MERGE: LazyLock<Vec<CollectiveCase>> = LazyLock::new(|| List::Merge.cases(&REGISTRY, 0));
    let reaching = MERGE.iter().filter(|case| case.calls.is_empty() && mutants::reaches(&REGISTRY, case, mutant)).cloned().collect();
    let own = match mutant.kind {
        MutantKind::Sync => mutants::sync_cases_of(&REGISTRY, mutant),
        MutantKind::Value => Vec::new(),
    };
    own.into_iter().chain(mutants::small(reaching)).map(Case::from).collect()
}

/// Planted mutants of a kind that no small case catches, under none of these schedules.
fn missed(kind: MutantKind, schedules: &[Interleaving]) -> Vec<&'static str> {
    let is_missed = |mutant: &&Mutant| {
        let mut machine = emulator(mutant.library(&REGISTRY));
        let mut found = |case: &Case, schedule| judge_under(schedule, case, &mut machine).status.is_finding();
        !cases_for(mutant).iter().take(120).any(|case| schedules.iter().any(|schedule| found(case, *schedule)))
    };
    let planted = REGISTRY.mutants().iter().filter(|mutant| mutant.kind == kind && mutant.half().is_none());
    planted.filter(is_missed).map(|mutant| mutant.name).collect()
}

/// If this fails, the checks miss a bug that any run shows.
#[test]
fn value_mutants_are_caught() {
    assert_eq!(missed(MutantKind::Value, &[Interleaving { strategy: Strategy::Random, seed: 0 }]), [""; 0]);
}

/// If this fails, a missing or a weak synchronisation passes. Two of them are wrong by the memory model only: no schedule shows them.
#[test]
fn synchronisation_mutants_are_caught() {
    // Those of the command: some show it under one in a few.
    let schedules: Vec<Interleaving> = (0..SCHEDULES as usize).map(|number| Interleaving::nth(0, number)).collect();
    assert_eq!(missed(MutantKind::Sync, &schedules), [""; 0]);
}

/// If this fails, a bug of synchronisation goes unseen.
#[test]
fn a_sample_of_the_mutants_is_caught() {
    let equivalents = mutants::equivalents(&REGISTRY).unwrap();
    let mut all = mutants::derived(&REGISTRY);
    all.retain(|mutant| {
        TensorParallelFusion::of(&mutant.module).is_none()
            && !is_missed(mutant)
            && !equivalents.iter().any(|known| known.site == mutant.site)
    });
    let missed: Vec<String> =
        mutants::sample(all, SAMPLE).into_iter().filter(|mutant| !is_caught(mutant, SCHEDULES)).map(|mutant| mutant.name).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

/// If this fails, what orders asynchronous operations could be left out of a kernel and nothing would say so; or the kernels themselves do not pass the first
/// case of their mutants.
#[rstest]
fn mutants_of_products_are_caught(#[values("all_gather_matmul/fused", "matmul_reduce_scatter/fused")] module: &str) {
    let all: Vec<Derived> = mutants::derived_of(&REGISTRY, |name| name == module);
    assert!(all.len() > 100, "{}", all.len());
    let cases = &all[0].cases(&REGISTRY)[..1];
    let verdict = judge(&cases[0], &mut emulator(REGISTRY.library()), 0);
    assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
    let some = [
        "mbarrier.init dropped (1 of",
        "mbarrier of one arrival more (1 of",
        "mbarrier.expect_tx dropped",
        "mbarrier.expect_tx of half",
        "wgmma.fence dropped",
        "wgmma.wait_group 0 dropped",
        "wgmma.commit_group.sync.aligned dropped",
        "fence.proxy.async.shared::cta dropped",
        "mbarrier not waited for",
    ];
    for wanted in some {
        let mutant = all.iter().find(|mutant| mutant.site.contains(wanted)).unwrap_or_else(|| panic!("no {wanted}"));
        let mut machine = emulator(mutant.library(&REGISTRY));
        let (_, caught) = mutants::hunt(cases, 1, |case, schedule| judge(case, &mut machine, schedule));
        assert!(caught.is_some(), "{}", mutant.name);
    }
}

/// If this fails, no case of these mutants sends a word that Lamport packs cannot carry, and what goes beside them could be left out.
#[rstest]
fn rare_words_are_in_cases_of_kernels_of_lamport_packs(
    #[values(
        "all_gather/lamport",
        "all_reduce/one_shot_lamport",
        "all_reduce/two_shot_lamport",
        "all_to_all/lamport",
        "broadcast/lamport",
        "reduce/lamport",
        "reduce_scatter/lamport"
    )]
    module: &str,
) {
    let mut stores: Vec<Derived> = mutants::derived_of(&REGISTRY, |name| name == module);
    stores.retain(|mutant| mutant.site.contains("st.relaxed.sys dropped"));
    let is_rare = |case: &Case| matches!(case, Case::Collective(case) if case.inputs == InputClass::Special);
    let catch = |mutant: &Derived, rare: bool| {
        let cases: Vec<Case> = mutant.cases(&REGISTRY).into_iter().filter(|case| is_rare(case) == rare).collect();
        let mut machine = emulator(mutant.library(&REGISTRY));
        assert!(!cases.is_empty());
        mutants::hunt(&cases, 1, |case, schedule| judge(case, &mut machine, schedule)).1.is_some()
    };
    assert!(stores.iter().any(|mutant| catch(mutant, true) && !catch(mutant, false)), "of {}", stores.len());
}

/// If this fails, a pack that is not sent goes unseen, or a slot that is not made empty, or is by a weak store. Of a rare word's the first is seen only where the next one
/// in it comes later than the rest of its pack: where relaxed stores are not seen in the order in which they were made. The last is a race only where no kernel's boundary
/// is between that store and the next in the slot.
///
/// Of the kernels that copy, which take seconds: in sums few words are rare, and their cases are four times as large and often.
#[rstest]
fn stores_of_lamport_packs_that_are_left_out_or_weak_are_found(
    #[values("all_gather/lamport", "all_to_all/lamport", "broadcast/lamport")] module: &str,
) {
    let mut stores = mutants::derived_of(&REGISTRY, |name| name == module);
    let is_weak_store = |mutant: &Derived| mutant.defect == Defect::Strength && mutant.original.starts_with("st.");
    stores.retain(|mutant| mutant.defect == Defect::Signal || is_weak_store(mutant));
    assert!(stores.len() >= 36, "{}", stores.len());
    let missed: Vec<String> = stores.into_iter().filter(|mutant| !is_caught(mutant, SCHEDULES)).map(|mutant| mutant.name).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

/// If this fails, somebody's reason why a mutant does nothing wrong is not one. Nothing ends their runs early: a quarter of them here, in two parts for a core each;
/// the command has all of them.
#[rstest]
fn equivalent_mutants_are_not_caught(#[values(0, 4)] part: usize) {
    let equivalents = mutants::equivalents(&REGISTRY).unwrap();
    let all = mutants::derived(&REGISTRY).into_iter().filter(|mutant| equivalents.iter().any(|known| known.site == mutant.site));
    let is_caught = |mutant: &Derived| match TensorParallelFusion::of(&mutant.module) {
        None => is_finding(mutant, SCHEDULES_OF_EQUIVALENTS),
        // A case of a product takes seconds here.
        Some(_) => {
            let mut machine = emulator(mutant.library(&REGISTRY));
            mutants::hunt(&mutant.cases(&REGISTRY)[..2], 1, |case, schedule| judge(case, &mut machine, schedule)).1.is_some()
        }
    };
    let caught: Vec<String> = all.skip(part).step_by(8).filter(is_caught).map(|mutant| mutant.name).collect();
    assert!(caught.is_empty(), "{caught:#?}");
}

/// Calls that a plan is tried on, one after the other on the same buffers, its ranks and its elements a slot.
const CALLS: u64 = 3;
const WORLD: u32 = 3;
const COUNT: u64 = 41;

/// A call of `copy_engine` out of place on 32-bit integers, with the buffers that its tries need.
fn by_copy_engine(collective: Collective) -> (Vec<BufferSpec>, Call, Plan) {
    let algorithm = REGISTRY.find(collective, "copy_engine").unwrap();
    let shape = Shape::new(collective, WORLD, COUNT);
    let (input, output) = (shape.input() * 4, shape.output() * 4);
    let sizes = [("input", input), ("output", output), ("inputs", CALLS * input), ("outputs", CALLS * output)];
    let mut buffers: Vec<BufferSpec> = sizes.map(|(name, bytes)| BufferSpec::new(name, bytes, Role::Data)).into();
    buffers.extend(algorithm.workspace(DType::I32, WORLD, input));
    let (input, output) = (buffers[0].whole(), buffers[1].whole());
    let call = RankCall {
        collective,
        dtype: DType::I32,
        op: collective.operators()[0],
        root: 0,
        factor: None,
        parts: None,
        count: COUNT,
        input,
        output,
    };
    let call = Call::uniform(&call, WORLD, &buffers).unwrap();
    let plan = algorithm.plan(&call, &Target::default());
    (buffers, call, plan)
}

/// Whether calls with this plan end otherwise than with the right numbers, under any of the schedules.
fn goes_wrong(buffers: &[BufferSpec], call: &Call, plan: &Plan) -> bool {
    let (plan, input, output) = (Arc::new(plan.clone()), call.input.bytes, call.output.bytes);
    let all = |op: Op| Arc::new(Plan::per_rank("all", WORLD, |_| vec![op.clone()]));
    let copy = |from: Region, to: Region| all(Op::Copy { from, to, to_rank: None });
    let of_call = |buffer: &str, number: u64, bytes: u64| Region::new(buffer, number * bytes, bytes);
    let payload = |rank: u32, number: u64| -> Vec<u8> {
        (0..input / 4).flat_map(|i| (1000 * rank + 100_000 * number as u32 + i as u32).to_le_bytes()).collect()
    };
    let mut machine = emulator(REGISTRY.library());
    (0..SCHEDULES as usize).any(|schedule| {
        machine.close_groups();
        machine.set_interleaving(Interleaving::nth(0, schedule));
        let group = machine.open_group(WORLD as usize, buffers).unwrap();
        let mut steps = Vec::new();
        for number in 0..CALLS {
            for rank in 0..WORLD {
                machine.write(group, rank as usize, &of_call("inputs", number, input), &payload(rank, number)).unwrap();
            }
            let plans = [
                copy(of_call("inputs", number, input), call.input.clone()),
                all(Op::Fill { region: call.output.clone(), byte: 0xff }),
                plan.clone(),
                copy(call.output.clone(), of_call("outputs", number, output)),
            ];
            steps.extend(plans.map(|plan| Step::Enqueue { group, stream: 0, plan }));
        }
        machine.run(&Script { steps }, Duration::from_secs(60)).is_err()
            || (0..CALLS).any(|number| {
                let inputs: Vec<Vec<u8>> = (0..WORLD).map(|rank| payload(rank, number)).collect();
                let results = call.shape().results(call.dtype, call.op, &inputs);
                (0..).zip(results).any(|(rank, result)| machine.read(group, rank, &of_call("outputs", number, output)).unwrap() != result)
            })
    })
}

/// Mutants of `copy_engine` that do nothing wrong, but for those of the words of the first meeting: rule, what the operation starts with, why.
const HARMLESS: [(Collective, &str, &str, &str); 4] = [
    (Collective::AllGather, "early", "copy input[0..164] -> output[0..164]", "no peer writes or reads the rank's own slot of its output"),
    (Collective::AllGather, "late", "copy input[0..164] -> output[0..164]", "no peer writes or reads the rank's own slot of its output"),
    (Collective::AllGather, "early", "write 0 -> ", "set back before the next first meeting, and set again after it only"),
    (Collective::AllReduce, "early", "write 0 -> ", "set back before the next first meeting, and set again after it only"),
];

/// Whether a reason is known for a mutant to do nothing wrong.
fn is_harmless(collective: Collective, name: &str) -> bool {
    let of_the_first = name.contains("words[4..8]") || name.contains("words[8..12]");
    HARMLESS.iter().any(|(of, rule, operation, _)| {
        let own = name
            .split_once(": ")
            .is_some_and(|(first, text)| first.starts_with(rule) && text.starts_with(operation) && !text.contains("of rank"));
        *of == collective && own && !of_the_first
    })
}

/// If this fails, an operation by which streams synchronise could be left out or misplaced and nothing would say so; or one that is said to be
/// free of harm is not.
#[rstest]
fn mutants_of_plans_are_caught(#[values(Collective::AllGather, Collective::AllReduce)] collective: Collective) {
    let (buffers, call, plan) = by_copy_engine(collective);
    assert!(!goes_wrong(&buffers, &call, &plan), "{plan}");
    let mutants = mutants::of_plan(&plan);
    let (harmless, harmful): (Vec<_>, Vec<_>) = mutants.into_iter().partition(|(name, _)| is_harmless(collective, name));
    let passed = |(_, plan): &&(String, Plan)| !goes_wrong(&buffers, &call, plan);
    let missed: Vec<&String> = harmful.iter().filter(passed).map(|(name, _)| name).collect();
    assert!(missed.is_empty(), "{} of {} missed: {missed:#?}", missed.len(), harmful.len());
    let caught: Vec<&String> = harmless.iter().filter(|mutant| !passed(mutant)).map(|(name, _)| name).collect();
    assert!(caught.is_empty() && !harmless.is_empty(), "{caught:#?} of {}", harmless.len());
}
