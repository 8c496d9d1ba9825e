//! Kernels from elsewhere: the examples of docs/tutorial-foreign-kernel.md, their planted bugs, and input that is no kernel or no specification.
//!
//! If one of these failed, the documented way to bring a kernel would not work, or bad input would take the command down with it.

use std::{fs, path::PathBuf, sync::LazyLock, time::Duration};

use passmuster_harness::{
    conformance::{
        Case, CollectiveCase, Item, List, Status, Verdict, mutants,
        runner::{self, Settings},
    },
    emulator::{self, Emulator, EmulatorOptions, Interleaving, Profile},
};
use passmuster_plan::{
    algorithms::{Algorithm, Foreign, Registry},
    library::Library,
};
use passmuster_ptx as ptx;
use rstest::rstest;

fn example(path: &str) -> String {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("examples/foreign").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A specification for kernels of one argument, the address of eight bytes of signals; `NAME` is the algorithm's and the kernel's.
const OF_ONE_POINTER: &str = r#"
name = "NAME"
collective = "all_reduce"
entry = "NAME"
dtypes = ["f32"]
ops = ["sum"]
worlds = [2]
launch = { grid = 1, block = 32 }
buffer = [{ name = "flag", role = "signals", bytes = 8 }]
argument = [{ pointer = "flag" }]
"#;

/// Our own multimem kernel, as one from elsewhere.
const OVER_MULTICAST: &str = r#"
name = "over_multicast"
collective = "all_reduce"
entry = "all_reduce_multimem_one_shot_bf16_sum"
dtypes = ["bf16"]
ops = ["sum"]
worlds = [2, 3]
call = { in_place = false }
launch = { grid = 2, block = 512, waits_for_peers = true }
contract = { order = "any", roundings = "per_hop" }
buffer = [
    { name = "signals", role = "signals", bytes = "2 * 72 * 4" },
    { name = "epochs", role = "state", bytes = 8 },
    { name = "stuck", role = "state", bytes = "64 + 2 * 72 * 16" },
    { name = "stalls", role = "state", bytes = 32 },
]
argument = [
    { multicast = "input" },
    { pointer = "output" },
    { u64 = "count" },
    { struct = [
        { u32 = "rank" },
        { u32 = "world" },
        { pointer = "epochs" },
        { pointer = "stuck" },
        { pointer = "stalls" },
        { u64 = 1000000000 },
        { struct = [{ peers = "signals", length = 72 }] },
    ] },
    { struct = [{ peers = "input", length = 72 }] },
]
"#;

/// A kernel of one argument, the address of eight bytes.
fn kernel(name: &str, body: &str) -> String {
    format!(
        ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry {name}(.param .u64 {name}_param_0)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [{name}_param_0];\n{body}\nret;\n}}\n"
    )
}

/// An all-gather by boxes of 8 rows of 128 bytes: a thread loads what each rank has by that rank's map, and stores it by the map of its own output.
const GATHER_BOXES: &str = r#"
name = "NAME"
collective = "all_gather"
entry = "gather_boxes"
dtypes = ["bf16", "f32"]
worlds = [2]
call = { count_multiple_of = "128 / element_size", alignment = 16 }
launch = { grid = 1, block = 32, waits_for_peers = true }
buffer = [{ name = "signals", role = "signals", bytes = 4 }, { name = "calls", role = "state", bytes = 4, memory = "local" }]

[[argument]] # of each rank's input
struct = [{ tensor_map = { buffer = "input", extents = ["128 / element_size", "slot_bytes / 128"], box = ["128 / element_size", 8], swizzle = 128 }, of_rank = "i", repeat = "world" }]

[[argument]] # slots are the last dimension
tensor_map = { buffer = "output", extents = ["128 / element_size", "slot_bytes / 128", "world"], strides = [128, "slot_bytes"], box = ["128 / element_size", 8, 1], swizzle = 128 }

[[argument]]
struct = [{ peers = "signals" }]

[[argument]]
pointer = "signals"

[[argument]]
pointer = "calls"

[[argument]]
u32 = "slot_bytes / 128"
"#;

/// Its kernel. Ranks meet before and after: the counter of each goes up by two each time.
const GATHER_BOXES_PTX: &str = "\
.version 9.0\n.target sm_90\n.address_size 64\n\
.visible .entry gather_boxes(.param .align 64 .b8 inputs[256], .param .align 64 .b8 output[128], .param .align 8 .b8 peers[16],\n\
    .param .u64 own, .param .u64 calls, .param .u32 rows)\n{\n\
.reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %d<8>;\n\
.shared .align 1024 .b8 room[1024]; .shared .align 8 .b64 bar;\n\
mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 0; @%p0 ret;\n\
ld.param.u64 %d0, [peers]; ld.param.u64 %d1, [peers+8]; ld.param.u64 %d2, [own]; ld.param.u64 %d3, [calls]; ld.param.u32 %r1, [rows];\n\
ld.global.u32 %r2, [%d3]; add.u32 %r3, %r2, 4; st.global.u32 [%d3], %r3; add.u32 %r2, %r2, 2;\n\
mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; mov.u32 %r8, 0;\n\
red.release.sys.global.add.u32 [%d0], 1; red.release.sys.global.add.u32 [%d1], 1;\n\
FIRST: ld.acquire.sys.global.u32 %r4, [%d2]; setp.lt.u32 %p1, %r4, %r2; @%p1 bra FIRST;\n\
fence.proxy.async; mov.b64 %d4, inputs; cvta.param.u64 %d4, %d4; mov.b64 %d5, output; cvta.param.u64 %d5, %d5; mov.u32 %r5, 0;\n\
RANK: mov.u32 %r6, 0;\n\
BOX: setp.ge.u32 %p1, %r6, %r1; @%p1 bra NEXT;\n\
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;\n\
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [room], [%d4, {0, %r6}], [bar];\n\
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], %r8; @!%p1 bra WAIT;\n\
xor.b32 %r8, %r8, 1;\n\
cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%d5, {0, %r6, %r5}], [room];\n\
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n\
add.u32 %r6, %r6, 8; bra BOX;\n\
NEXT: add.u64 %d4, %d4, 128; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 2; @%p1 bra RANK;\n\
red.release.sys.global.add.u32 [%d0], 1; red.release.sys.global.add.u32 [%d1], 1;\n\
LAST: ld.acquire.sys.global.u32 %r4, [%d2]; setp.lt.u32 %p1, %r4, %r3; @%p1 bra LAST;\n\
ret;\n}\n";

const NEVER_SIGNALLED: &str = "again: ld.acquire.sys.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra again;";
const SPINS: &str = "mov.u32 %r1, 0; again: add.u32 %r1, %r1, 1; bra again;";
const COUNTS: &str = "mov.u32 %r1, 0; again: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 4000000000; @%p1 bra again;";
const TRAPS_WHERE_WORDS_DIFFER: &str = "ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd1+4]; setp.ne.u32 %p1, %r1, %r2; @%p1 trap;";
const RECURSES: &str = "call down, ();";

/// The examples of all-reduces, and of the other collectives.
const EXAMPLES: [&str; 14] = [
    "one_shot_by_value",
    "two_shot_by_table",
    "one_shot_triton",
    "all_gather_push",
    "all_gather_triton",
    "reduce_scatter_pull",
    "reduce_scatter_triton",
    "all_to_all_dispatch",
    "all_to_all_triton",
    "broadcast_push",
    "broadcast_triton",
    "reduce_pull",
    "reduce_push",
    "reduce_triton",
];

/// Every algorithm of these tests: the examples with and without their bugs, and kernels without end.
struct Registered {
    registry: Registry,
    library: Library,
}

static REGISTERED: LazyLock<Registered> = LazyLock::new(|| {
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
    let mut library = registry.library();
    let mut all = Vec::new();
    let mut add = |spec: String, kernel: Option<&str>, text: String| {
        let foreign = Foreign::read(&spec, kernel).unwrap_or_else(|error| panic!("{error}\n{spec}"));
        let module = ptx::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", foreign.name()));
        for launch in foreign.samples() {
            emulator::accepts(&module, &launch).unwrap();
        }
        for module in foreign.kernels().modules() {
            library.replace(&module.name, text.clone());
        }
        all.push(foreign);
    };
    for name in EXAMPLES {
        let spec = example(&format!("{name}/spec.toml"));
        let with_bug = spec.replace(&format!("name = \"{name}\""), &format!("name = \"{name}_bug\""));
        add(spec, None, example(&format!("{name}/kernel.ptx")));
        add(with_bug, None, example(&format!("{name}/kernel.bug.ptx")));
    }
    for Rare { name, edits, .. } in RARE {
        let starts = "\n[contract]\nstart = 0xffffff80\n\n[[buffer]]\nname = \"signals\"";
        let spec = example("all_gather_push/spec.toml").replacen("\n[[buffer]]\nname = \"signals\"", starts, 1);
        let mut text =
            example("all_gather_push/kernel.ptx").replace("%rd<71>", "%rd<80>").replace("%p<15>", "%p<20>").replace("%r<50>", "%r<60>");
        for (find, replace) in *edits {
            assert_eq!(text.matches(find).count(), 1, "{name}: {find}");
            text = text.replace(find, replace);
        }
        add(spec.replace("name = \"all_gather_push\"", &format!("name = \"{name}\"")), None, text);
    }
    let named_boxes = |name: &str| GATHER_BOXES.replace("NAME", name);
    add(named_boxes("gather_boxes"), None, GATHER_BOXES_PTX.into());
    add(named_boxes("gather_boxes_unwaited"), None, GATHER_BOXES_PTX.replace("@!%p1 bra WAIT;", ""));
    add(named_boxes("gather_boxes_unmet"), None, GATHER_BOXES_PTX.replace("setp.lt.u32 %p1, %r4, %r2; @%p1 bra FIRST;", ""));
    let straight = named_boxes("gather_boxes_straight").replacen("swizzle = 128", "swizzle = 0", 1);
    add(straight, None, GATHER_BOXES_PTX.into());
    for (name, body) in [("never_signalled", NEVER_SIGNALLED), ("spins", SPINS), ("counts", COUNTS)] {
        add(OF_ONE_POINTER.replace("NAME", name), None, kernel(name, body));
    }
    add(OVER_MULTICAST.into(), None, registry.library().ptx("all_reduce/multimem_one_shot").unwrap().into());
    let function = ".func down() { call down, (); ret; }\n.visible .entry recurses";
    add(OF_ONE_POINTER.replace("NAME", "recurses"), None, kernel("recurses", RECURSES).replace(".visible .entry recurses", function));
    let without_three = OF_ONE_POINTER.replace("NAME", "without_three").replace("[2]", "[2, 3]").replace("= 8", "= \"8 / (3 - world)\"");
    add(without_three, None, kernel("without_three", ""));
    add(OF_ONE_POINTER.replace("NAME", "huge").replace("bytes = 8", "bytes = \"1024 * 1024 * 1024 * world\""), None, kernel("huge", ""));
    let largest = OF_ONE_POINTER.replace("NAME", "largest").replace("\"flag\" }]", "\"flag\" }, { i32 = \"most_count\" }]");
    add(largest, None, kernel("largest", "").replace("largest_param_0)\n", "largest_param_0, .param .u32 largest_param_1)\n"));
    let starts = OF_ONE_POINTER.replace("NAME", "starts").replace("[2]", "[1]").replace("= 8", "= 8, fill = { u32 = [\"bytes\"] }");
    let steps = "step = [{ copy = { from = \"input\", to = \"output\" } }, { write = { buffer = \"flag\", offset = 4, value = \"most_bytes\" } }, \
                 { launch = {} }]\n";
    add(starts + steps, None, kernel("starts", TRAPS_WHERE_WORDS_DIFFER));
    Registered { registry: registry.with_foreign(all).unwrap(), library }
});

fn judge(case: &CollectiveCase, options: EmulatorOptions) -> Verdict {
    let mut machine = Emulator::new(options);
    runner::judge(
        case,
        &mut machine,
        &Settings { registry: &REGISTERED.registry, deadline: Duration::from_secs(120), shared_pads: false, progress: &|_| {} },
    )
}

fn options() -> EmulatorOptions {
    EmulatorOptions { library: REGISTERED.library.clone(), ..EmulatorOptions::default() }
}

/// Nothing assumed about the hardware: an example is to show a kernel that needs none of it.
fn by_the_isa() -> EmulatorOptions {
    EmulatorOptions { profile: Profile::Ptx, ..options() }
}

fn named(name: &str) -> &'static Foreign {
    REGISTERED.registry.foreign().iter().find(|foreign| foreign.name() == name).unwrap()
}

fn judged(id: &str) -> Verdict {
    judge(&id.parse().unwrap(), options())
}

/// If this fails, what the page shows does not do what it says.
#[rstest]
fn examples_pass_their_smoke_lists(#[values("one_shot_by_value", "two_shot_by_table", "one_shot_triton")] name: &str) {
    let cases = List::Smoke.cases_of(&REGISTERED.registry, named(name), 0);
    assert!((12..=60).contains(&cases.len()), "{} cases", cases.len());
    assert!(cases.iter().any(|case| !case.calls.is_empty()), "no sequence of calls");
    for case in &cases {
        assert_eq!(
            Case::resolve(&case.to_string(), &REGISTERED.registry),
            Ok(case.clone().into()),
            "ids of registered algorithms read back"
        );
        let verdict = judge(case, by_the_isa());
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        assert!(verdict.held.contains(&"reference".into()), "{verdict:#?}");
    }
}

/// If this fails, a kernel of another collective is not launched as its page says, or its planted bug is not found on the smoke list.
#[rstest]
#[case::all_gather("all_gather_push", "races")]
#[case::all_gather_in_triton("all_gather_triton", "races")]
#[case::reduce_scatter("reduce_scatter_pull", "reference")]
#[case::reduce_scatter_in_triton("reduce_scatter_triton", "reference")]
#[case::all_to_all("all_to_all_dispatch", "reference")]
#[case::all_to_all_in_triton("all_to_all_triton", "races")]
#[case::broadcast("broadcast_push", "races")]
#[case::broadcast_in_triton("broadcast_triton", "races")]
#[case::reduce("reduce_pull", "reference")]
#[case::reduce_that_counts("reduce_push", "races")]
#[case::reduce_in_triton("reduce_triton", "races")]
fn examples_of_other_collectives_pass_and_their_bugs_do_not(#[case] name: &str, #[case] property: &str) {
    let cases = mutants::cases_of_foreign(&REGISTERED.registry, named(name));
    assert!(cases.len() >= 8, "{} cases", cases.len());
    for case in &cases {
        let verdict = judge(case, by_the_isa());
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        assert!(verdict.held.contains(&"reference".into()), "{verdict:#?}");
    }
    let cases = List::Smoke.cases_of(&REGISTERED.registry, named(&format!("{name}_bug")), 0);
    let (tried, caught) = mutants::hunt(&cases, 4, |case, schedule| judge(case, options().with(Interleaving::nth(0, schedule as usize))));
    let verdict = caught.unwrap_or_else(|| panic!("missed in {tried} cases")).verdict;
    assert!(verdict.findings.iter().any(|finding| finding.property == property), "{verdict:#?}");
}

/// If this fails, a kernel that copies by TMA cannot be judged by a page that says which maps it takes, or is judged by other maps.
#[test]
fn kernels_that_copy_boxes_are_judged() {
    let ids = |name: &str| {
        ["bf16,copy:w=2:n=64", "bf16,copy:w=2:n=1600", "f32,copy:w=2:n=288:graph=2x2:skew=r1+50us:seed=3"]
            .map(|case| format!("all_gather/{name}:{case}"))
    };
    for id in ids("gather_boxes") {
        let verdict = judged(&id);
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        assert!(verdict.held.contains(&"reference".into()), "{verdict:#?}");
    }
    for (name, told) in [("unwaited", "mbarrier"), ("unmet", "between ranks"), ("straight", "elements wrong")] {
        let [_, id, _] = ids(&format!("gather_boxes_{name}"));
        let verdict = judged(&id);
        assert!(verdict.status.is_finding() && format!("{verdict:?}").contains(told), "{verdict:#?}");
    }
    let refused = judged(&ids("gather_boxes")[0].replace("n=64", "n=72"));
    assert_eq!(refused.status, Status::NotSupported, "{refused:#?}");
}

/// If this fails, an instance of a bug that is on the list of those that were missed would be missed again.
#[test]
fn the_lists_have_what_finds_rare_bugs() {
    for name in EXAMPLES {
        let foreign = named(name);
        let cases = List::Smoke.cases_of(&REGISTERED.registry, foreign, 0);
        let any = |is: &dyn Fn(&CollectiveCase) -> bool| cases.iter().any(is);
        let elements = |case: &CollectiveCase, count: u64| case.shape(count).larger();
        assert!(any(&|case| case.shots().any(|shot| elements(case, shot.count) > 1_000_000)), "{name}: no large call");
        assert!(any(&|case| case.blocks.is_some_and(|blocks| blocks > 8)), "{name}: no call on many blocks");
        assert!(any(&|case| case.skew.is_some_and(|skew| skew.microseconds >= 10_000)), "{name}: no rank is very late");
        let calls = |case: &CollectiveCase| -> u32 {
            let of_item = |item: &Item| match item {
                Item::Eager(_) => 1,
                Item::Graph { calls, replays } => calls.len() as u32 * replays,
            };
            case.calls.iter().map(of_item).sum()
        };
        assert!(any(&|case| calls(case) > 120), "{name}: no sequence of more than 120 calls");
    }
}

/// A bug that no small call shows, as edits of `all_gather_push`.
struct Rare {
    name: &'static str,
    edits: &'static [(&'static str, &'static str)],
    /// The only case of the smoke list that can show it; none of a kernel that is right.
    shown_by: Option<fn(&CollectiveCase) -> bool>,
}

/// Those that lists before these missed.
const RARE: &[Rare] = &[
    Rare { name: "as_it_is", edits: &[], shown_by: None },
    Rare {
        name: "index_of_16_bits",
        edits: &[
            ("mul.wide.u32 %rd30, %r45, 16;", "and.b32 %r50, %r45, 65535; mul.wide.u32 %rd30, %r50, 16;"),
            ("add.s32 %r38, %r45, %r9;", "add.s32 %r38, %r50, %r9;"),
        ],
        shown_by: Some(|case| case.largest_count() > 1 << 18),
    },
    Rare {
        name: "count_of_16_bits",
        edits: &[("ld.param.u32 %r23, [all_gather_param_4];", "ld.param.u32 %r50, [all_gather_param_4]; and.b32 %r23, %r50, 65535;")],
        shown_by: Some(|case| case.largest_count() > 1 << 18),
    },
    Rare {
        name: "eighth_block",
        edits: &[("setp.ge.u32 %p3, %r45, %r23;", "setp.ge.u32 %p3, %r45, %r23; setp.ge.u32 %p15, %r31, 8; or.pred %p3, %p3, %p15;")],
        shown_by: Some(|case| case.blocks.is_some()),
    },
    Rare {
        name: "hundred_epochs",
        edits: &[
            ("setp.lt.s32 %p2, %r30, 0;", "setp.lt.s32 %p2, %r30, 0; setp.le.u32 %p15, %r1, 100; and.pred %p2, %p2, %p15;"),
            ("setp.lt.s32 %p13, %r43, 0;", "setp.lt.s32 %p13, %r43, 0; setp.le.u32 %p15, %r1, 100; and.pred %p13, %p13, %p15;"),
        ],
        shown_by: Some(|case| case.calls.len() > 8 && case.start == 0),
    },
    Rare {
        name: "compared_by_less",
        edits: &[
            ("setp.lt.s32 %p2, %r30, 0;", "setp.lt.u32 %p2, %r29, %r1;"),
            ("setp.lt.s32 %p13, %r43, 0;", "setp.lt.u32 %p13, %r42, %r1;"),
        ],
        shown_by: Some(|case| case.start != 0),
    },
    Rare {
        name: "millisecond",
        edits: &[
            ("$L__BB0_2:\n", "mov.u64 %rd71, %globaltimer;\n$L__BB0_2:\n"),
            (
                "@%p2 bra $L__BB0_2;",
                "mov.u64 %rd72, %globaltimer; sub.u64 %rd72, %rd72, %rd71; setp.gt.u64 %p15, %rd72, 1000000; @%p15 bra $L__BB0_3; @%p2 bra $L__BB0_2;",
            ),
        ],
        shown_by: Some(|case| case.skew.is_some_and(|skew| skew.microseconds >= 10_000)),
    },
];

/// If this fails, one of the bugs that an earlier list missed is missed again, or a kernel that is right is not.
#[rstest]
fn rare_bugs_are_found(#[values(0, 1, 2, 3, 4, 5, 6)] number: usize) {
    let Rare { name, shown_by, .. } = &RARE[number];
    let once = |case: &CollectiveCase| RARE.iter().filter_map(|rare| rare.shown_by).any(|shows| shows(case));
    let cases: Vec<CollectiveCase> = List::Smoke.cases_of(&REGISTERED.registry, named(name), 0).into_iter().filter(once).collect();
    let found = |case: &CollectiveCase| {
        let judged = (0..4).map(|schedule| judge(case, options().with(Interleaving::nth(0, schedule))));
        judged
            .map(|verdict| (verdict.status.is_finding(), verdict))
            .find(|(is_finding, verdict)| *is_finding || verdict.status != Status::Pass)
    };
    match shown_by {
        Some(shows) => {
            let case = cases.iter().find(|case| shows(case)).expect("a case that can show it");
            let (is_finding, verdict) = found(case).unwrap_or_else(|| panic!("missed by {case}"));
            assert!(is_finding, "{verdict:#?}");
        }
        None => {
            assert_eq!(cases.len(), 6, "{cases:?}");
            cases.iter().for_each(|case| assert!(found(case).is_none(), "{:#?}", found(case)));
        }
    }
}

/// Offsets beyond 4 GiB are for GPUs: the emulator has no time for that many elements. The Triton kernels' own specifications exclude them. If this fails,
/// no list has them.
#[test]
fn merge_has_offsets_that_32_bits_do_not_hold() {
    for name in EXAMPLES.into_iter().filter(|name| !name.ends_with("_triton")) {
        let cases = List::Merge.cases_of(&REGISTERED.registry, named(name), 0);
        let bytes = |case: &CollectiveCase| case.shape(case.largest_count()).larger().saturating_mul(case.dtype.size());
        assert!(cases.iter().any(|case| bytes(case) > 1 << 32), "{name}");
    }
}

/// Triton's polls through barriers of the block, by all of its threads. If this fails, a kernel that is right is said to hang, or runs out of steps,
/// where a rank lags.
#[rstest]
#[case::value("one_shot_by_value:bf16,sum:w=2:n=64")]
#[case::table("two_shot_by_table:f32,sum:w=3:n=64:in_place")]
#[case::triton("one_shot_triton:bf16,sum:w=3:n=100:skew=r1+100us")]
fn examples_end_under_every_schedule(#[case] id: &str) {
    let case: CollectiveCase = format!("all_reduce/{id}").parse().unwrap();
    for schedule in (0..20).map(|n| Interleaving::nth(7, n)) {
        let verdict = judge(&case, EmulatorOptions { steps: 1 << 28, ..options().with(schedule) });
        assert_eq!(verdict.status, Status::Pass, "{schedule}: {verdict:#?}");
    }
}

/// If this fails, a world that the specification names is left out without a word: all that ran has passed.
#[test]
fn a_world_without_a_call_is_not_supported() {
    for list in [List::Smoke, List::Merge] {
        let cases = list.cases_of(&REGISTERED.registry, named("without_three"), 0);
        let of_three: Vec<&CollectiveCase> = cases.iter().filter(|case| case.world == 3).collect();
        assert_eq!((of_three.len(), cases.len() > 1), (1, true), "{cases:?}");
        let verdict = judge(of_three[0], options());
        assert_eq!(verdict.status, Status::NotSupported, "{verdict:#?}");
        assert!(verdict.reason.contains("division of 8 by zero in bytes of buffer `flag` `8 / (3 - world)`"), "{}", verdict.reason);
    }
}

/// If this fails, what a buffer starts with is of the first call, and the buffer is of the largest.
#[test]
fn buffers_start_with_what_the_largest_call_needs() {
    for calls in ["starts.16+starts.64", "starts.64+starts.16"] {
        let verdict = judged(&format!("all_reduce/starts:f32,sum:w=1:calls={calls}"));
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
    }
}

/// If this fails, a kernel with multimem instructions cannot be brought.
#[test]
fn kernels_take_multicast_addresses() {
    for id in ["w=2:n=1040", "w=3:n=77"] {
        let verdict = judged(&format!("all_reduce/over_multicast:bf16,sum:{id}"));
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        assert!(verdict.held.contains(&"reference".into()), "{verdict:#?}");
    }
}

#[rstest]
#[case::value("one_shot_by_value_bug:bf16,sum:w=4:n=1040", Status::Fail, "rank 3's contribution is missing (100 % of wrong elements fit)")]
#[case::hang("two_shot_by_table_bug:f32,sum:w=2:n=1040:in_place", Status::Hang, "deadlock: every warp that is left")]
#[case::bounds("one_shot_triton_bug:bf16,sum:w=2:n=1000", Status::Fail, "kernel.py:60")]
fn planted_bugs_are_named(#[case] id: &str, #[case] status: Status, #[case] named: &str) {
    let verdict = judged(&format!("all_reduce/{id}"));
    assert_eq!(verdict.status, status, "{verdict:#?}");
    let text: String = verdict.findings.iter().flat_map(|finding| [finding.summary.as_str(), "\n", &finding.details, "\n"]).collect();
    assert!(text.contains(named), "{text}");
}

#[test]
fn what_a_specification_excludes_is_not_supported_with_the_reason() {
    for (id, reason) in [
        ("one_shot_by_value:f32,sum:w=3:n=64", "the specification does not name sum of f32 on 3 ranks"),
        ("one_shot_by_value:bf16,sum:w=2:n=1041", "count 1041 is no multiple of 8"),
        ("one_shot_by_value:bf16,sum:w=2:n=1040:off=1", "starts at byte 2: a multiple of 16 is needed"),
        ("one_shot_by_value:bf16,sum:w=2:n=1040:in_place", "the specification excludes calls in place"),
        ("two_shot_by_table:bf16,sum:w=2:n=1040", "the specification allows calls in place only"),
    ] {
        let verdict = judged(&format!("all_reduce/{id}"));
        assert_eq!(verdict.status, Status::NotSupported, "{verdict:#?}");
        assert!(verdict.reason.contains(reason), "{}", verdict.reason);
    }
}

/// Kernels without end are hangs or faults, in bounded time; of one that may end it is not said that it hangs.
#[rstest]
#[case::signal("never_signalled", Status::Hang, "deadlock: every warp that is left")]
#[case::spin("spins", Status::Hang, "a loop without end")]
#[case::count("counts", Status::Inconclusive, "4194304 thread instructions were not enough (--steps N allows more)")]
#[case::recursion("recurses", Status::Crash, "calls")]
fn kernels_without_end_are_findings(#[case] name: &str, #[case] status: Status, #[case] named: &str) {
    let case = format!("all_reduce/{name}:f32,sum:w=2:n=16").parse().unwrap();
    let verdict = judge(&case, EmulatorOptions { steps: 1 << 22, ..options() });
    assert_eq!(verdict.status, status, "{verdict:#?}");
    assert!(verdict.reason.contains(named), "{}", verdict.reason);
}

#[test]
fn buffers_past_the_budget_are_refused() {
    let case = "all_reduce/huge:f32,sum:w=2:n=16".parse().unwrap();
    let verdict = judge(&case, EmulatorOptions { memory_budget: 1 << 20, ..options() });
    assert_eq!(verdict.status, Status::NotSupported, "{verdict:#?}");
    assert!(verdict.reason.contains("the emulator's memory budget is 1048576"), "{}", verdict.reason);
}

/// If this fails, a specification whose argument has no room for the group's largest call ends the command in place of a case.
#[test]
fn a_largest_call_that_an_argument_has_no_room_for_is_refused() {
    let judged = |offset: u64| {
        let case = format!("all_reduce/largest:f32,sum:w=2:calls=largest.16.off{offset}+largest.16").parse().unwrap();
        judge(&case, options())
    };
    let verdict = judged((1 << 31) - 16);
    assert_eq!(verdict.status, Status::NotSupported, "{verdict:#?}");
    assert_eq!(verdict.reason, "not supported: i32 `most_count` is 2147483648: expected 0 to 2147483647");
    assert_ne!(judged(0).status, Status::NotSupported);
}

/// No prefix of a kernel takes the front end down, and what is cut within the kernel is an error with its place.
#[test]
fn truncated_and_garbled_ptx_is_an_error_with_its_place() {
    let text = example("one_shot_triton/kernel.ptx");
    let end = text.rfind('}').unwrap();
    for at in (0..end).step_by(97).filter(|&at| text.is_char_boundary(at)) {
        let parsed = ptx::parse(&text[..at]);
        let whole = parsed.is_ok_and(|module| module.entry("one_shot_all_reduce").is_some());
        assert!(!whole, "the first {at} bytes are no kernel");
    }
    for at in (0..end).step_by(211).filter(|&at| text.is_char_boundary(at)) {
        let mut garbled = text.clone().into_bytes();
        garbled[at] = b'#';
        // It may have hit a comment; all that matters is that an answer comes.
        if let Err(error) = ptx::parse(&String::from_utf8(garbled).unwrap()) {
            assert!(error.to_string().split(':').take(2).all(|part| part.trim().parse::<u32>().is_ok()), "{error}");
        }
    }
    let huge = format!("{}{}", text, "/".repeat(64 << 20));
    assert!(ptx::parse(&huge).unwrap_err().to_string().contains("67108864"));
}

#[test]
fn kernels_that_do_not_fit_the_specification_are_refused() {
    let spec = example("one_shot_by_value/spec.toml");
    let module = ptx::parse(&example("one_shot_by_value/kernel.ptx")).unwrap();
    let refusal = |spec: &str, kernel| {
        let samples = Foreign::read(spec, kernel).unwrap().samples();
        samples.iter().find_map(|launch| emulator::accepts(&module, launch).err()).expect("a refusal")
    };
    let missing = refusal(&spec, Some("mine_{dtype}"));
    assert!(
        missing.starts_with("kernel `mine_f32` is not in the PTX, which has one_shot_") && missing.contains("one_shot_f32"),
        "{missing}"
    );
    let short = refusal(&spec.replacen("length = 8", "length = 9", 1), None);
    assert_eq!(short, "argument 0 of kernel `one_shot_f32` has 72 bytes, its parameter 64");
    let fewer = refusal(&spec.replace("[[argument]]\ni32 = \"world\"\n", ""), None);
    assert!(fewer.starts_with("kernel `one_shot_f32` takes 7 arguments of ["), "{fewer}");
}
