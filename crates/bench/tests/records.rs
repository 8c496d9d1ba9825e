//! The committed page and plot are of the committed records.

use std::{fs, path::Path};

use passmuster_bench::{Inks, Timing, Winner, contests, plots, sections};
use passmuster_harness::conformance::report::{Record, packed};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn record(name: &str) -> Record<Timing> {
    let text = packed::committed(&root().join("fixtures/records"), name).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The records that the report is made of, in its order.
const REPORTED: [&str; 12] = [
    "h100x4-bench-all_reduce",
    "h100x4-bench-all_gather",
    "h100x4-bench-reduce_scatter",
    "h100x4-bench-all_to_all",
    "h100x4-bench-broadcast",
    "h200x4-bench-reduce",
    "h200x2-bench-types-reduce_scatter",
    "h100x4-bench-all_gather_matmul",
    "h100x4-bench-matmul_reduce_scatter",
    "h200x4-bench-overlap",
    "h200x2-bench-fsdp",
    "h200x2-bench-all_to_all-async",
];

/// If this fails, the report that docs/performance/results.md refers to is not of the records, or too large to be read.
#[test]
fn the_report_is_of_the_records() {
    let path = "docs/report.html";
    assert!(fs::read_to_string(root().join("docs/performance/results.md")).unwrap().contains("(../report.html)"));
    let records = REPORTED.map(record);
    let committed = fs::read_to_string(root().join(path)).unwrap_or_default();
    let again = format!("cargo xtask report --separately fixtures/records/{{{}}}.json --html {path}", REPORTED.join(","));
    assert!(committed.len() < 3 << 19, "{} bytes", committed.len());
    let fetches = ["<script", "https://", "<link", "<img", "url(", "@import"].into_iter().find(|what| committed.contains(what));
    assert_eq!(fetches, None, "it opens without a network");
    let (mut ours, mut rows) = (0, 0);
    for record in &records {
        let lacking = record.notes.iter().find(|line| !committed.contains(line.as_str()));
        assert!(!record.notes.is_empty() && lacking.is_none(), "{path} does not say how to do it again: {lacking:?}: {again}");
        for contest in contests(&record.cases) {
            for (section, standings) in contest.worlds().into_iter().flat_map(|world| contest.of_world(world)) {
                assert!(
                    committed.contains(&format!("{}</h3>", section.name())) || committed.contains(&format!("{} (", section.name())),
                    "{again}"
                );
                for standing in standings {
                    let Some((timing, times)) = standing.ours else { continue };
                    // The time and, below it, whose it is, as tables have them.
                    let name = timing.contender.replace('_', "_<wbr>");
                    let cell = |open: &str, close: &str| format!("{open}{:.2}{close}<small>{name}</small>", times.median);
                    let stands = match standing.winner() {
                        Some(Winner::Ours) => cell("<strong>", "</strong>"),
                        _ => cell("<td>", ""),
                    };
                    ours += usize::from(standing.winner() == Some(Winner::Ours));
                    rows += 1;
                    assert!(committed.contains(&stands), "{}: {stands} is not in {path}: {again}", section.name());
                }
            }
        }
    }
    assert!(rows > 150 && ours > rows / 2, "{ours} of {rows}");
}

/// If this fails, the plot in the README is not of the record. `cargo xtask report fixtures/records/h100x4-bench-all_reduce.json --plot DIR` draws it again.
#[test]
fn the_readme_s_plot_is_of_the_record() {
    let path = "docs/plots/all_reduce-w4-busbw.svg";
    assert!(include_str!("../../../README.md").contains(path));
    let record = record("h100x4-bench-all_reduce");
    let sections = sections(&record.cases);
    let all = sections.iter().flat_map(|section| plots(section, &record.machine, &Inks::of(&sections)));
    let drawn = all.into_iter().find(|plot| path.ends_with(&format!("/{}.svg", plot.name))).unwrap().svg().unwrap();
    let committed = fs::read_to_string(root().join(path)).unwrap_or_default();
    // The same contenders, the same values at both ends of their lines, and as many points.
    let said = |svg: &str| -> Vec<String> {
        let of = |begin: &str| svg.split(begin).skip(1).filter_map(|rest| Some(rest.split('<').next()?.to_owned())).collect::<Vec<_>>();
        [of("<title>"), of("<desc>")].concat()
    };
    let marks =
        |svg: &str| svg.split("class=\"m\" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default().matches('M').count()).sum();
    let (of_record, of_file): (usize, usize) = (marks(&drawn), marks(&committed));
    assert!(said(&drawn).len() > 10 && of_record > 60, "{drawn}");
    assert_eq!((said(&drawn), of_record), (said(&committed), of_file), "{path} is not what the record gives");
}
