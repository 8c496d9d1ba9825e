//! The report: one HTML page with everything in it, which opens without a network. It has no script.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Launching, Method, Section, Table, Timing, Workload, plots, sections, tables};
use passmuster::conformance::report::Record;

const STYLE: &str = "
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 96rem; padding: 0 1rem; color: #1a1a1a; background: #fff; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; font-size: .87rem; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #e3e3e3; text-align: right; white-space: nowrap; }
th.left, td.left { text-align: left; } td.wide { white-space: normal; text-align: left; }
caption { text-align: left; color: #555; padding: .3rem 0; } .scroll { overflow-x: auto; }
figure { display: inline-block; margin: .5rem .5rem .5rem 0; } figure svg { max-width: 100%; height: auto; }
code, pre { font: .85rem/1.4 ui-monospace, monospace; } pre { background: #f5f5f5; padding: .7rem; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .6rem 0; } summary { cursor: pointer; }
";

/// The report on a record, with `more` tables at its head: the comparison with a baseline. `hidden` is the row length in elements where sizes are
/// rows of tokens.
pub fn page(record: &Record<Timing>, hidden: Option<u64>, more: &[Table]) -> String {
    let title = format!("passmuster bench, {}", on_a_day(record));
    let head = html! {
        @if !more.is_empty() { h2 { "Against the baseline" } }
        @for table in more { (table_of(table)) }
    };
    document(&title, html! { h1 { (title) } (of_record(record, hidden, head)) })
}

/// The report on several records, each under its own machine, command line and date; what one of them has timed another may have, too.
pub fn pages(records: &[Record<Timing>], hidden: Option<u64>) -> String {
    let title = format!("passmuster bench, {} records", records.len());
    let subjects = |record: &Record<Timing>| {
        let mut subjects: Vec<&str> = Vec::new();
        for section in sections(&record.cases) {
            if !subjects.contains(&section.workload.subject()) {
                subjects.push(section.workload.subject());
            }
        }
        let controls = record.cases.iter().any(|timing| timing.contender.starts_with("control/"));
        format!("{}{}", subjects.join(", "), if controls { ", with controls" } else { "" })
    };
    let body = html! {
        h1 { (title) }
        ul { @for (at, record) in records.iter().enumerate() {
            li { a href=(format!("#{at}")) { (subjects(record)) } ": " (on_a_day(record)) }
        } }
        @for (at, record) in records.iter().enumerate() {
            h1 id=(at) { (subjects(record)) }
            (of_record(record, hidden, html! {}))
        }
    };
    document(&title, body)
}

/// `2 x NVIDIA H200, 2026-11-22`.
fn on_a_day(record: &Record<Timing>) -> String {
    format!("{} x {}, {}", record.machine.gpus, record.machine.gpu, &record.date[..record.date.len().min(10)])
}

fn document(title: &str, body: Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    }
    .into_string()
}

fn of_record(record: &Record<Timing>, hidden: Option<u64>, head: Markup) -> Markup {
    let sections = sections(&record.cases);
    html! {
        (machine(record))
        h2 { "How to do it again" }
        @for line in repro(record, &sections) { pre { (line) } }
        (head)
        @for section in &sections { (of_section(section, record, hidden)) }
        (troubles(&record.cases))
    }
}

/// What it ran on, and how it was measured.
fn machine(record: &Record<Timing>) -> Markup {
    let Record { machine, source, .. } = record;
    let dirty = if source.dirty { ", with changes" } else { "" };
    let mut lines = vec![
        ("date".to_owned(), record.date.clone()),
        ("GPUs".to_owned(), format!("{} x {}", machine.gpus, machine.gpu)),
        ("driver's CUDA".to_owned(), machine.driver.clone()),
        ("NCCL".to_owned(), machine.nccl.clone()),
        ("commit".to_owned(), format!("{}{dirty}", source.commit)),
        ("PTX".to_owned(), source.ptx_hash.clone()),
        ("cases".to_owned(), record.summary.to_string()),
    ];
    lines.extend(tables::link_limit(machine).map(|limit| ("links of a GPU, one direction".to_owned(), limit.name())));
    lines.extend(machine.notes.iter().cloned());
    let mut methods: Vec<(Method, Vec<Workload>)> = Vec::new();
    for timing in &record.cases {
        match methods.iter_mut().find(|(method, _)| *method == timing.method) {
            Some((_, sizes)) if !sizes.iter().any(|known| known.size_name() == timing.workload.size_name()) => sizes.push(timing.workload),
            Some(_) => {}
            None => methods.push((timing.method, vec![timing.workload])),
        }
    }
    html! {
        div.scroll { table {
            caption { "Machine and sources" }
            @for (name, value) in &lines { tr { th.left { (name) } td.wide { (value) } } }
        } }
        div.scroll { table {
            caption { "Method" }
            @for (method, sizes) in &methods {
                tr { th.left { (sizes.iter().map(Workload::size_name).collect::<Vec<_>>().join(", ")) } td.wide { (method) } }
            }
        } }
    }
}

/// Command lines that time the same again. Older records do not have theirs: what they timed gives it.
fn repro(record: &Record<Timing>, sections: &[Section<'_>]) -> Vec<String> {
    if !record.notes.is_empty() {
        return record.notes.clone();
    }
    let line = |section: &Section<'_>| {
        let sizes: Vec<String> = section.sizes().map(|bytes| bytes.to_string()).collect();
        let (of, contenders) = (section.workload, section.contenders.join(","));
        format!("cargo xtask bench {} --worlds {} --sizes {} --contenders {contenders}", of.subject(), of.world(), sizes.join(","))
    };
    sections.iter().map(line).collect()
}

fn of_section(section: &Section<'_>, record: &Record<Timing>, hidden: Option<u64>) -> Markup {
    let figures = plots::plots(section, &record.machine);
    html! {
        h2 { (section.name()) }
        @for figure in figures.iter().filter_map(|plot| plot.svg().ok()) { figure { (PreEscaped(figure)) } }
        @for table in section.tables(&record.machine, hidden) { (table_of(&table)) }
        details { summary { "Percentiles, checks and clocks" } (table_of(&details(section))) }
    }
}

/// All that is known of each figure.
fn details(section: &Section<'_>) -> Table {
    let header = ["size", "contender", "launching", "median", "p5", "p95", "p99", "min", "max", "judged", "SM MHz", "W", "°C", "held down"];
    let mut rows = Vec::new();
    for (bytes, contender) in section.sizes().flat_map(|bytes| section.contenders.iter().map(move |contender| (bytes, contender))) {
        let Some(timing) = section.at(bytes, contender) else { continue };
        for launching in Launching::ALL {
            let Some(times) = launching.of(timing) else { continue };
            let mut row = vec![timing.workload.size_name(), (*contender).to_owned(), launching.name().to_owned()];
            let figures = [Some(times.median), Some(times.p5), Some(times.p95), times.p99, Some(times.min), Some(times.max)];
            row.extend(figures.map(|figure| figure.map_or_else(|| "-".into(), |figure| format!("{figure:.2}"))));
            row.push(timing.check.as_ref().map_or_else(|| "not in this run".into(), |check| format!("{} ({})", check.status, check.case)));
            row.extend(timing.conditions.as_ref().map_or_else(
                || vec!["-".to_owned(); 4],
                |conditions| {
                    let (low, high) = conditions.sm_mhz;
                    let clock = if low == high { low.to_string() } else { format!("{low} to {high}") };
                    let held = conditions.throttled.iter().cloned().collect::<Vec<_>>().join(" ");
                    vec![clock, format!("{:.0}", conditions.watts), conditions.celsius.to_string(), held]
                },
            ));
            rows.push(row);
        }
    }
    let title = format!("{}: microseconds a call of all samples", section.name());
    Table { title, header: header.map(str::to_owned).to_vec(), left: 3, rows }
}

/// What has no time, and why.
fn troubles(timings: &[Timing]) -> Markup {
    let of: Vec<&Timing> = timings.iter().filter(|timing| !timing.reason.is_empty()).collect();
    html! {
        @if !of.is_empty() {
            h2 { "Not timed, or not right" }
            div.scroll { table {
                @for timing in of {
                    tr {
                        td.left { (timing.workload.kind()) "/" (timing.contender) }
                        td { "w=" (timing.workload.world()) }
                        td { (timing.workload.size_name()) }
                        td.left { (timing.status) }
                        td.wide { (timing.reason) }
                    }
                }
            } }
        }
    }
}

fn table_of(table: &Table) -> Markup {
    let class = |at: usize| (at < table.left).then_some("left");
    html! {
        div.scroll { table {
            caption { (table.title) }
            thead { tr { @for (at, name) in table.header.iter().enumerate() { th class=[class(at)] { (name) } } } }
            tbody {
                @for row in &table.rows { tr { @for (at, cell) in row.iter().enumerate() { td class=[class(at)] { (cell) } } } }
            }
        } }
    }
}
