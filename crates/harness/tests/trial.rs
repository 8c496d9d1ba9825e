//! Kernels in the manner of bugs that were reported to other projects, each with the verdict that it should get: see the heads of trial/*/kernel.cu.
//!
//! If one of these failed, a bug of that kind would pass, or a kernel without it would be refused or blamed.

use std::{fs, path::PathBuf, sync::LazyLock, time::Duration};

use passmuster_harness::{
    conformance::{
        CollectiveCase, List, Status, Verdict, mutants,
        runner::{self, Settings},
    },
    emulator::{Emulator, EmulatorOptions},
};
use passmuster_plan::{
    algorithms::{Algorithm, Foreign, Registry},
    library::Library,
};
use rstest::rstest;

fn read(path: &str) -> String {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trial")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A name, a folder, its specification and PTX, and an entry in place of the specification's.
type Judged = (&'static str, &'static str, &'static str, &'static str, Option<(&'static str, &'static str)>);

/// Algorithms by the name that they get here: folder, specification, PTX, and the entry where it is not the specification's.
const ALGORITHMS: [Judged; 20] = [
    ("bounded_grid", "vllm41189_more_blocks_than_fit", "spec.toml", "kernel.ptx", None),
    ("shared_memory", "vllm41189_more_blocks_than_fit", "spec.bug.toml", "kernel.ptx", None),
    ("threads", "vllm41189_more_blocks_than_fit", "spec.threads.toml", "kernel.ptx", None),
    ("waits", "vllm41189_more_blocks_than_fit", "spec.waits.toml", "kernel.ptx", None),
    ("room", "modular6242_blocks_beyond_flags", "spec.toml", "kernel.ptx", None),
    ("no_room", "modular6242_blocks_beyond_flags", "spec.toml", "kernel.bug.ptx", None),
    ("narrow_shuffle", "trtllm16111_sub_warp_block", "spec.toml", "kernel.ptx", None),
    ("wide_shuffle", "trtllm16111_sub_warp_block", "spec.toml", "kernel.bug.ptx", None),
    ("traps", "trtllm17647_timeout_returns", "spec.toml", "kernel.ptx", None),
    ("goes_on", "trtllm17647_timeout_returns", "spec.toml", "kernel.bug.ptx", None),
    ("envreg", "probes_envreg", "spec.toml", "kernel.ptx", Some(("p_plain", "p_envreg"))),
    ("plain", "probes_envreg", "spec.toml", "kernel.ptx", None),
    ("function_table", "probes_function_table", "spec.toml", "kernel.ptx", None),
    ("dependent_chain", "false_finding_programmatic_chain", "spec.toml", "kernel.ptx", None),
    ("waits_first", "flashinfer5081_reads_before_wait", "spec.toml", "kernel.ptx", None),
    ("waits_first_alone", "flashinfer5081_reads_before_wait", "spec.single.toml", "kernel.ptx", None),
    ("reads_first", "flashinfer5081_reads_before_wait", "spec.np.toml", "kernel.bug.ptx", None),
    ("reads_first_alone", "flashinfer5081_reads_before_wait", "spec.single.toml", "kernel.bug.ptx", None),
    ("compares_bits", "flashinfer3304_flushed_sentinel", "spec.toml", "kernel.ptx", None),
    ("flushes", "flashinfer3304_flushed_sentinel", "spec.toml", "kernel.bug.ptx", None),
];

static KNOWN: LazyLock<(Registry, Library)> = LazyLock::new(|| {
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
    let mut library = registry.library();
    let mut all = Vec::new();
    for (name, folder, spec, ptx, entry) in ALGORITHMS {
        let spec = read(&format!("{folder}/{spec}"));
        let (first, rest) = spec.split_once('\n').unwrap();
        assert!(first.starts_with("name = "), "{first}");
        let mut spec = format!("name = \"{name}\"\n{rest}");
        if let Some((from, to)) = entry {
            spec = spec.replace(&format!("entry = \"{from}\""), &format!("entry = \"{to}\""));
        }
        let foreign = Foreign::read(&spec, None).unwrap_or_else(|error| panic!("{name}: {error}"));
        for module in foreign.kernels().modules() {
            library.replace(&module.name, read(&format!("{folder}/{ptx}")));
        }
        all.push(foreign);
    }
    (registry.with_foreign(all).unwrap(), library)
});

fn judged(id: &str) -> Verdict {
    judge(&id.parse().unwrap_or_else(|error| panic!("{id}: {error}")))
}

fn judge(case: &CollectiveCase) -> Verdict {
    let options = EmulatorOptions { library: KNOWN.1.clone(), ..EmulatorOptions::default() };
    runner::judge(
        case,
        &mut Emulator::new(options),
        &Settings { registry: &KNOWN.0, deadline: Duration::from_secs(120), shared_pads: false, progress: &|_| {} },
    )
}

#[rstest]
#[case::grid_bounded("all_reduce/bounded_grid:f32,sum:w=2:n=8960")]
#[case::room_for_flags("all_reduce/room:f32,sum:w=2:n=2112:blocks=33")]
#[case::narrow_shuffle("all_reduce/narrow_shuffle:f32,sum:w=3:n=40")]
#[case::wait_that_traps("all_gather/traps:bf16,copy:w=2:n=64")]
#[case::wait_that_goes_on("all_gather/goes_on:bf16,copy:w=2:n=64")]
#[case::environment_registers("all_gather/envreg:bf16,copy:w=2:n=64")]
#[case::beside_environment_registers("all_gather/plain:bf16,copy:w=2:n=64")]
#[case::function_table("all_gather/function_table:bf16,copy:w=2:n=63")]
fn correct_kernels_pass(#[case] id: &str) {
    let verdict = judged(id);
    assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
    assert!(verdict.held.contains(&"reference".into()), "{verdict:#?}");
}

/// A list must find these without being told of the shape that shows them.
#[rstest]
#[case::flags_for_fewer_blocks("no_room")]
#[case::flushed_sentinel("flushes")]
#[case::reads_before_wait("reads_first")]
#[case::reads_before_wait_alone("reads_first_alone")]
fn smoke_finds(#[case] name: &str) {
    let foreign = KNOWN.0.foreign().iter().find(|foreign| foreign.name() == name).unwrap();
    let (tried, caught) = mutants::hunt(&List::Smoke.cases_of(&KNOWN.0, foreign, 0), 1, |case, _| judge(case));
    assert!(caught.is_some(), "missed in {tried} cases");
}

/// The same kernels without the bug.
#[rstest]
#[case::flags_for_all_blocks("room")]
#[case::bits_of_a_sentinel("compares_bits")]
#[case::waits_first("waits_first")]
#[case::waits_first_alone("waits_first_alone")]
#[case::dependent_chain("dependent_chain")]
fn smoke_passes(#[case] name: &str) {
    let foreign = KNOWN.0.foreign().iter().find(|foreign| foreign.name() == name).unwrap();
    for case in List::Smoke.cases_of(&KNOWN.0, foreign, 0) {
        let verdict = judge(&case);
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
    }
}

/// Blocks of a grid wait for one another, and not all of them are ever there at once.
#[rstest]
#[case::by_shared_memory(
    "all_reduce/shared_memory:f32,sum:w=2:n=8960",
    "only 132 of 140 blocks fit (1 on each of 132 SMs, by shared memory; registers not counted)"
)]
#[case::by_threads(
    "all_reduce/threads:f32,sum:w=2:n=8512",
    "only 264 of 266 blocks fit (2 on each of 132 SMs, by threads; registers not counted)"
)]
#[case::that_wait_for_peers(
    "all_reduce/waits:f32,sum:w=2:n=8960",
    "only 132 of 140 blocks fit (1 on each of 132 SMs, by shared memory; registers not counted)"
)]
fn blocks_that_do_not_fit(#[case] id: &str, #[case] reason: &str) {
    let verdict = judged(id);
    assert_eq!(verdict.status, Status::Hang, "{verdict:#?}");
    assert!(verdict.findings[0].summary.contains(reason), "{verdict:#?}");
    assert!(verdict.findings[0].summary.contains("the others start only as these end"), "{verdict:#?}");
}

/// With more blocks than flags have room for, block 32's are block 0's.
#[test]
fn flags_of_another_block() {
    let verdict = judged("all_reduce/no_room:f32,sum:w=2:n=2112:blocks=33");
    assert!(verdict.status.is_finding(), "{verdict:#?}");
    let of_both = |text: &str| text.contains("no_room.pads+1024..1028") && text.contains(" block 0 ") && text.contains(" block 32 ");
    assert!(verdict.findings.iter().any(|finding| finding.property == "races" && of_both(&finding.summary)), "{verdict:#?}");
}

/// The finding names the shuffle, not only the wrong element.
#[test]
fn shuffle_wider_than_the_block() {
    let verdict = judged("all_reduce/wide_shuffle:f32,sum:w=3:n=40");
    assert_eq!(verdict.status, Status::Fail, "{verdict:#?}");
    let summary = &verdict.findings[0].summary;
    assert!(summary.contains("Shuffle at PTX") && summary.contains("kernel.cu:15"), "{verdict:#?}");
    assert!(summary.contains("takes a value from lane 16, which a block of 8 threads does not have"), "{verdict:#?}");
}

/// A rank does not come. The kernel prints that, and traps, or goes on without it.
#[test]
fn printed_before_a_trap() {
    let verdict = judged("all_gather/traps:bf16,copy:w=2:n=64:fault=absent@r1");
    // It was named as it should be, so the case passes.
    assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
    assert!(verdict.reason.contains("trapped") && verdict.reason.contains("printed: rank 0: rank 1 is late"), "{verdict:#?}");
}

#[test]
fn goes_on_without_a_rank() {
    let verdict = judged("all_gather/goes_on:bf16,copy:w=2:n=64:fault=absent@r1");
    assert_eq!(verdict.status, Status::Fail, "{verdict:#?}");
    assert!(verdict.reason.contains("kernel.cu:28") && verdict.reason.contains("was never written"), "{verdict:#?}");
}
