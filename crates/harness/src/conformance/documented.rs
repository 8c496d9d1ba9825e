//! docs/reference/case-ids.md and checks.md mention everything that an id, a query or a verdict can say.

use std::{collections::BTreeSet, time::Duration};

use rstest::rstest;

use super::{
    Case, CaseId, CollectiveCase, Fault, InputClass, List, Moment, Query, Status, TaskCase, Verdict,
    collective_case::KEYS,
    mutants,
    products::{self, ProductCase},
    runner, scenario, tasks,
};
use crate::{
    REGISTRY,
    emulator::{Emulator, EmulatorOptions},
};
use passmuster_plan::{
    algorithms::{Nccl, TensorParallelFusion},
    collective::{Collective, DType, Layout, Product, ReduceOp},
    machine::{Machine, Site},
    plan::{MAX_RANKS, Step},
};

const IDS: &str = include_str!("../../docs/reference/case-ids.md");
const CHECKS: &str = include_str!("../../docs/reference/checks.md");
const OF_TASKS: &str = include_str!("../../docs/reference/tasks.md");

#[track_caller]
fn assert_row(name: &str, what: &str) {
    let row = format!("| `{name}` |");
    assert!(IDS.contains(&row) || CHECKS.contains(&row), "docs/reference/case-ids.md and checks.md have no row for {what} `{name}`");
}

/// What is said of a case on ranks without bugs.
fn judged(id: &str) -> Verdict {
    let verdict = runner::judge(&id.parse().unwrap(), &mut Emulator::new(EmulatorOptions::of(&REGISTRY)), &runner::tests::settings());
    assert_eq!(verdict.status, Status::Pass, "{verdict:?}");
    verdict
}

/// Properties that the script of `id` leads to, whether they hold, do not apply or are broken.
fn properties(id: &str) -> BTreeSet<String> {
    let verdict = judged(id);
    verdict.held.into_iter().chain(verdict.not_applicable.into_iter().map(|(name, _)| name)).collect()
}

#[test]
fn the_document_has_a_row_for_every_key() {
    for key in KEYS {
        assert_row(key, "key");
    }
    for key in products::KEYS.into_iter().filter(|key| !["rows", "columns", "depth"].contains(key)) {
        assert_row(key, "key of products");
    }
    assert_row("rows`, `columns`, `depth", "keys");
}

#[test]
fn the_document_has_a_row_for_every_property() {
    let mut names = properties("all_reduce/two_shot:bf16,sum:w=3:n=100:peer=nccl_ring");
    names.extend(properties("reduce/pull:bf16,sum:w=3:n=100:root=1"));
    // What is said of a process that hung or died: no property of results, so that no run has them that came to its end.
    // Products have it.
    names.insert("equals_plain".into());
    names.extend(["finishes", "survives", "worker"].map(str::to_owned));
    assert!(names.len() >= 19, "{names:?}");
    for name in names {
        assert_row(&name, "property");
    }
}

#[test]
fn the_document_has_a_row_for_every_name() {
    let lists = List::ALL.map(|list| ("list", list.name()));
    let statuses = Status::ALL.map(|status| ("status", status.name()));
    let classes = InputClass::ALL.map(|class| ("input class", class.name()));
    let sites = Site::ALL.map(|site| ("site", site.name()));
    for (what, name) in lists.into_iter().chain(statuses).chain(classes).chain(sites) {
        assert_row(name, what);
    }
    for collective in Collective::ALL {
        assert_row(collective.name(), "collective");
    }
    for half in TensorParallelFusion::ALL {
        assert_row(half.name(), "half");
    }
    for fault in Fault::all(1) {
        // A table has one row for all moments.
        let form = fault.to_string().replace("@r1", "@rRANK");
        assert_row(form.split('.').next().unwrap(), "fault");
    }
    for moment in Moment::ALL.iter().filter(|moment| **moment != Moment::Between) {
        assert_row(moment.suffix(), "moment");
    }
}

/// Whether a line of a listing is an id or a query.
fn is_case(line: &str) -> bool {
    let mut names =
        Collective::ALL.iter().map(|collective| collective.name()).chain(TensorParallelFusion::ALL.map(TensorParallelFusion::name));
    line.starts_with('*') || names.any(|name| line.starts_with(&format!("{name}/")))
}

#[test]
fn ids_in_the_document_are_ids_and_queries_are_queries() {
    let mut ids = 0;
    for block in IDS.split("```").skip(1).step_by(2) {
        for line in block.lines().skip(1).filter(|line| is_case(line)) {
            let text = line.split("  ").next().unwrap();
            let query = Query::new(text).unwrap_or_else(|error| panic!("{error}"));
            if text.contains(['*', '|']) || !text.contains(":w=") {
                assert!(query.list().all_cases(&REGISTRY, 0).iter().any(|case| query.matches(case)), "`{text}` selects nothing");
            } else {
                let case = Case::resolve(text, &REGISTRY).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(case.to_string(), text, "not the form that the harness prints");
                ids += 1;
            }
        }
    }
    assert!(ids > 5, "{ids}");
}

/// The cells of the rows of a section's table, without backticks around a whole cell. Sections are named by their heads, tables by the head of their first column.
fn table(section: &str, first_column: &str) -> Vec<Vec<String>> {
    let document = if CHECKS.contains(&format!("\n## {section}\n")) { CHECKS } else { IDS };
    table_of(document, section, first_column)
}

fn table_of(document: &str, section: &str, first_column: &str) -> Vec<Vec<String>> {
    let (_, section) = document.split_once(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let section = section.split("\n## ").next().unwrap();
    let head = format!("| {first_column} |");
    let rows = section.lines().skip_while(|line| !line.starts_with(&head)).skip(2).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    let rows: Vec<Vec<String>> = rows.map(cells).collect();
    assert!(!rows.is_empty(), "no table of {first_column} in {section}");
    rows
}

/// What stands in backticks, if all of the cell does.
fn literal(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`').filter(|text| !text.contains('`'))
}

/// If this fails, the page says that a key which an id leaves out means something else than it does.
#[test]
fn defaults_are_those_of_the_code() {
    let case = CollectiveCase::new(Collective::AllReduce, "push", DType::F32, ReduceOp::Sum, 2, 4);
    let product = Product { dtype: DType::BF16, rows: 8, columns: 8, depth: 8, layout: Layout::Nk };
    let of_product = ProductCase::new(TensorParallelFusion::Gather, "pull", product, 2);
    let mut seen = 0;
    let of_task = TaskCase::new("norm", "mine", DType::BF16, 2, Vec::new());
    for (section, case) in [("Ids", &case as &dyn CaseId), ("Products", &of_product as &dyn CaseId), ("Cases", &of_task as &dyn CaseId)] {
        for row in table_of(if section == "Cases" { OF_TASKS } else { IDS }, section, "key") {
            let (default, keys) = (&row[2], row[0].split(", ").map(|key| literal(key).unwrap()));
            for key in keys {
                seen += 1;
                let is_given = case.fields().iter().any(|(known, _)| *known == key);
                assert_eq!(is_given, default.starts_with("must be given") && key != "calls", "{key}: {default}");
                if !is_given {
                    assert_eq!(literal(default).unwrap_or_default(), case.default_of(key), "{section}: {key}");
                }
            }
        }
    }
    assert_eq!(seen, KEYS.len() + products::KEYS.len() - ["w", "fault", "seed"].len() + tasks::KEYS.len());
}

/// If this fails, the page names other bounds than the code has.
#[rstest]
#[case::world("Ids", "`w`", format!("1 to {MAX_RANKS}"), "all_gather/copy_engine:f32,copy:n=4:w=", "72", "73")]
#[case::graph("Ids", "`graph`", "1 to 16 calls and 0 to 1000 replays".into(), "all_reduce/push:f32,sum:w=2:n=4:graph=", "16x1000", "17x1")]
#[case::replays("Ids", "`graph`", "1 to 16 calls and 0 to 1000 replays".into(), "all_reduce/push:f32,sum:w=2:n=4:graph=", "1x0", "1x1001")]
#[case::groups("Products", "`groups`", "1 to 4".into(), "all_gather_matmul/pull:bf16,nk:w=2:rows=8:columns=8:depth=8:groups=", "4", "5")]
#[case::rows("Products", "`rows`, `columns`, `depth`", "1 to 2^24".into(), "all_gather_matmul/pull:bf16,nk:w=2:columns=8:depth=8:rows=", "16777216", "16777217")]
#[case::multiple("Products", "`rows`, `columns`, `depth`", "columns and depth multiples of 8".into(), "all_gather_matmul/pull:bf16,nk:w=2:rows=8:depth=8:columns=", "16", "12")]
fn bounds_are_those_of_the_code(
    #[case] section: &str,
    #[case] key: &str,
    #[case] bounds: String,
    #[case] id: &str,
    #[case] inside: &str,
    #[case] beyond: &str,
) {
    let row = table(section, "key").into_iter().find(|row| row[0] == key).unwrap();
    assert!(row[1].contains(&bounds), "{row:?}");
    let described =
        |value: &str| Case::resolve(&format!("{id}{value}"), &REGISTRY).map_err(|error| error.to_string())?.describe(&REGISTRY, 16);
    assert!(described(inside).is_ok(), "{:?}", described(inside));
    assert!(described(beyond).is_err(), "{beyond}");
}

#[test]
fn tiles_operators_and_findings_are_those_of_the_code() {
    let tile = table("Products", "key").into_iter().find(|row| row[0] == "`tile`").unwrap();
    let numbers = |text: &str| -> BTreeSet<u32> { text.split([' ', ',']).filter_map(|word| word.parse().ok()).collect() };
    assert_eq!(numbers(&tile[1]), passmuster_kernels::matmul::Tile::ALL.map(|tile| tile.columns).into());
    for row in table("Ids", "collective") {
        let collective: Collective = literal(&row[0]).unwrap().parse().unwrap();
        let operators: Vec<&str> = row[3].split(", ").map(|op| literal(op).unwrap()).collect();
        assert_eq!(operators, collective.operators().iter().map(|op| op.name()).collect::<Vec<_>>(), "{collective}");
        assert_eq!(
            row[1].contains("w x n elements"),
            CollectiveCase::new(collective, "push", DType::F32, ReduceOp::Sum, 3, 5).shape(5).input() == 15
        );
    }
    for row in table("Statuses", "status") {
        let status = Status::ALL.into_iter().find(|status| literal(&row[0]) == Some(status.name())).unwrap();
        assert_eq!(row.get(2).is_some_and(|cell| cell == "yes"), status.is_finding(), "{status}");
    }
}

/// If this fails, the page does not name an algorithm, or names it under another collective.
#[test]
fn algorithms_are_named_under_their_collectives() {
    let (_, text) = IDS.split_once("\nAlgorithms of all_reduce: ").unwrap();
    let (text, rest) = text.split_once(". Each of NCCL's runs").unwrap();
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = format!("of all_reduce: {}", one_line(text));
    let names = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned);
        words.filter(|word| REGISTRY.algorithms().iter().any(|own| own.name() == word)).collect()
    };
    for collective in Collective::ALL {
        let (_, after) = text.split_once(&format!("of {collective}: ")).unwrap_or_else(|| panic!("nothing of {collective}"));
        let part = after.split("; of ").next().unwrap();
        let own: BTreeSet<String> = REGISTRY.of(collective).map(|own| own.name().into()).collect();
        assert_eq!(names(part), own, "{collective}");
    }
    let (bench_only_peers, _) = rest.split_once(" are timed by `bench`").unwrap();
    for own in Nccl::bench_only() {
        let of =
            one_line(bench_only_peers).split(&format!("{} (", own.name())).nth(1).map(|rest| rest.split(')').next().unwrap().to_owned());
        assert!(of.is_some_and(|of| of.split(", ").any(|name| name.trim_end_matches(',') == own.collective().name())), "{}", own.name());
    }
}

/// If this fails, what the page says of when a property applies is not what is done.
#[rstest]
#[case("ranks_agree", &["all_reduce/two_shot:bf16,sum:w=3:n=9", "all_gather/push:f32,copy:w=2:n=9", "broadcast/push:f32,copy:w=2:n=9"],
       &["reduce_scatter/pull:bf16,sum:w=3:n=9", "all_to_all/push:f32,copy:w=3:n=9", "reduce/pull:bf16,sum:w=3:n=9"])]
#[case("negation", &["all_reduce/two_shot:bf16,sum:w=3:n=9", "all_reduce/two_shot:f32,avg:w=3:n=9", "all_reduce/two_shot:i32,avg:w=3:n=9"],
       &["all_reduce/two_shot:bf16,min:w=3:n=9", "all_reduce/two_shot:u32,avg:w=3:n=9", "all_reduce/two_shot:i32,avg:w=3:n=9:inputs=natural", "all_gather/push:f32,copy:w=2:n=9"])]
#[case("scaling", &["all_reduce/two_shot:bf16,sum:w=3:n=9:inputs=natural", "all_reduce/two_shot:f32,max:w=3:n=9:inputs=probe", "all_reduce/two_shot:i32,sum:w=3:n=9", "all_reduce/two_shot:f32,premul_sum:w=3:n=9"],
       &["all_reduce/two_shot:bf16,sum:w=3:n=9:inputs=special", "all_reduce/two_shot:i32,sum:w=3:n=9:inputs=natural", "all_reduce/two_shot:i32,avg:w=3:n=9",
         "all_reduce/two_shot:f32,premul_sum:w=3:n=9:inputs=natural", "all_reduce/two_shot:f32,prod:w=3:n=9"])]
#[case("additivity", &["all_reduce/two_shot:bf16,sum:w=3:n=9", "reduce/pull:i32,sum:w=3:n=9"],
       &["all_reduce/two_shot:bf16,sum:w=3:n=9:inputs=natural", "all_reduce/two_shot:bf16,avg:w=3:n=9", "all_reduce/two_shot:bf16,premul_sum:w=3:n=9"])]
#[case("independence", &["all_reduce/two_shot:bf16,sum:w=3:n=1", "broadcast/push:f32,copy:w=3:n=4:root=2"], &["all_reduce/two_shot:bf16,sum:w=3:n=0"])]
#[case("in_place", &["all_reduce/two_shot:bf16,sum:w=3:n=9", "all_gather/push:f32,copy:w=2:n=9:in_place"], &["all_to_all/push:f32,copy:w=3:n=9"])]
#[case("graph", &["all_reduce/two_shot:bf16,sum:w=3:n=9"], &["all_reduce/two_shot:bf16,sum:w=3:n=9:graph=1x0"])]
#[case("equals_peer", &["all_reduce/two_shot:bf16,min:w=3:n=9:peer=nccl_ring", "all_reduce/two_shot:i32,sum:w=3:n=9:inputs=natural:peer=nccl_ring",
         "all_reduce/two_shot:bf16,sum:w=3:n=9:peer=nccl_ring", "all_gather/push:f32,copy:w=3:n=9:inputs=special:peer=nccl_ring"],
       &["all_reduce/two_shot:bf16,sum:w=3:n=9:inputs=natural:peer=nccl_ring", "all_reduce/two_shot:bf16,max:w=3:n=9:inputs=special:peer=nccl_ring"])]
fn properties_apply_as_the_document_says(#[case] property: &str, #[case] applies: &[&str], #[case] does_not: &[&str]) {
    for id in applies {
        let verdict = judged(id);
        assert!(verdict.held.iter().any(|held| held == property), "{id}: {verdict:#?}");
    }
    for id in does_not {
        let verdict = judged(id);
        let reason = verdict.not_applicable.iter().find(|(name, _)| name == property);
        assert!(
            reason.is_some_and(|(_, reason)| !reason.is_empty()) && !verdict.held.iter().any(|held| held == property),
            "{id}: {verdict:#?}"
        );
    }
}

/// If this fails, the page says of other cases that outputs must stay as they were.
#[test]
fn untouched_is_of_reduce_and_of_parts() {
    for (id, applies) in [
        ("reduce/pull:bf16,sum:w=3:n=9:peer=nccl_ring", true),
        ("all_to_all/push:f32,copy:w=3:n=9:counts=7", true),
        ("all_to_all/push:f32,copy:w=3:n=9", false),
        ("all_reduce/two_shot:bf16,sum:w=3:n=9", false),
    ] {
        assert_eq!(judged(id).held.iter().any(|held| held == "untouched"), applies, "{id}");
    }
}

/// If this fails, the page says of another kernel that it multiplies what it sends, or of other types.
#[test]
fn premultiplied_sums_have_a_kernel_of_their_own_but_where_push_or_chain_multiplies() {
    let multiplying = [DType::F32, DType::F16, DType::BF16, DType::E4M3, DType::E5M2];
    for algorithm in
        REGISTRY.algorithms().iter().filter(|own| own.collective().operators().contains(&ReduceOp::PremulSum) && !own.is_peer())
    {
        for dtype in DType::ALL {
            for count in [48, 49] {
                let case = CollectiveCase::new(algorithm.collective(), algorithm.name(), dtype, ReduceOp::PremulSum, 2, count);
                let modules = Case::from(case.clone()).modules(&REGISTRY, 16);
                if modules.is_empty() {
                    continue;
                }
                let launches = |wanted: &str| modules.iter().any(|module| module == wanted);
                let pushes = algorithm.name() == "push" && multiplying.contains(&dtype) && (count * dtype.size()).is_multiple_of(16);
                let chains = algorithm.name() == "chain";
                let expected = [("premul_sum/push", pushes), ("premul_sum/chain", chains), ("premul_sum/products", !pushes && !chains)];
                assert_eq!(expected.map(|(module, _)| (module, launches(module))), expected, "{case}");
            }
        }
    }
}

/// Emulated microseconds from the first call's start to the last one's end on a rank.
fn took(id: &str, rank: usize) -> f64 {
    let case: CollectiveCase = id.parse().unwrap();
    let mut machine = Emulator::new(EmulatorOptions::of(&REGISTRY));
    let options = scenario::Options { registry: &REGISTRY, waiting_blocks: 4, shared_pads: false };
    let mut scenario = scenario::build(&case, &options).unwrap_or_else(|reason| panic!("{case}: {reason}"));
    for buffers in &scenario.groups {
        machine.open_nodes(case.world as usize, case.nodes as usize, buffers).unwrap();
    }
    scenario.script.steps.insert(0, Step::Mark);
    scenario.script.steps.push(Step::Mark);
    machine.run(&scenario.script, Duration::from_secs(60)).unwrap_or_else(|error| panic!("{case}: {error}")).marks[0][rank]
}

/// If this fails, a case that has a rank late at a site has nobody late: it shows less than it says.
#[test]
fn kernels_stall_at_every_site() {
    let sites = table("Ids", "site");
    assert_eq!(sites.len(), Site::ALL.len());
    for (module, _) in mutants::subjects(&REGISTRY).filter(|(module, _)| module.calls != passmuster_plan::modules::Calls::PremulSum) {
        let (of, name) = module.name.split_once('/').unwrap();
        let (name, parts) = name.strip_suffix("_v").map_or((name, ""), |name| (name, ":counts=3"));
        let op = of.parse::<Collective>().unwrap().operators()[0];
        let id = format!("{of}/{name}:bf16,{op}:w=2:calls={name}.40+{name}.40{parts}");
        let usual = took(&id, 1);
        // Between its barriers nothing of a kernel's is started.
        let has_start = module.own_entries != passmuster_plan::modules::OwnEntries::Untyped;
        for site in sites.iter().filter(|site| has_start || literal(&site[0]) != Some("start")) {
            let late = took(&format!("{id}:skew=r1+500us@{}", literal(&site[0]).unwrap()), 1);
            assert!(late > usual + 400.0, "{} at {}: {late} us, {usual} without", module.name, site[0]);
        }
    }
}
