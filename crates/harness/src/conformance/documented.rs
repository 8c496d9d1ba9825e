//! docs/case-ids.md mentions everything that an id, a query or a verdict can say.

use std::collections::BTreeSet;

use super::{AnyCase, Case, Fault, InputClass, List, Query, Status, case::KEYS, products, runner, simulated::Simulated};
use passmuster_collectives::{algorithms::Half, collective::Collective, machine::Site};

const DOCUMENT: &str = include_str!("../../docs/case-ids.md");

#[track_caller]
fn assert_row(name: &str, what: &str) {
    assert!(DOCUMENT.contains(&format!("| `{name}` |")), "docs/case-ids.md has no row for {what} `{name}`");
}

/// Properties that the script of `id` leads to, whether they hold, do not apply or are broken.
fn properties(id: &str) -> BTreeSet<String> {
    let verdict = runner::judge(&id.parse::<Case>().unwrap(), &mut Simulated::correct(), &runner::tests::SETTINGS);
    assert_eq!(verdict.status, Status::Pass, "{verdict:?}");
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
    // What is said of a process that hung or died: no property of results, so that no simulated run has them.
    // Products have it, whose kernels no simulated machine runs.
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
    for half in Half::ALL {
        assert_row(half.name(), "half");
    }
    for fault in [Fault::Absent(1), Fault::IllegalAddress(1), Fault::Killed] {
        assert_row(&fault.to_string().replace("r1", "rRANK"), "fault");
    }
}

/// Whether a line of a listing is an id or a query.
fn is_case(line: &str) -> bool {
    let mut names = Collective::ALL.iter().map(|collective| collective.name()).chain(Half::ALL.map(Half::name));
    line.starts_with('*') || names.any(|name| line.starts_with(&format!("{name}/")))
}

#[test]
fn ids_in_the_document_are_ids_and_queries_are_queries() {
    let mut ids = 0;
    for block in DOCUMENT.split("```").skip(1).step_by(2) {
        for line in block.lines().skip(1).filter(|line| is_case(line)) {
            let text = line.split("  ").next().unwrap();
            let query = Query::new(text).unwrap_or_else(|error| panic!("{error}"));
            if text.contains(['*', '|']) || !text.contains(":w=") {
                assert!(List::Merge.all_cases(0).iter().any(|case| query.matches(case)), "`{text}` selects nothing");
            } else {
                let case = text.parse::<AnyCase>().unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(case.to_string(), text, "not the form that the harness prints");
                ids += 1;
            }
        }
    }
    assert!(ids > 5, "{ids}");
}
