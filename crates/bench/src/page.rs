//! The report: one HTML page with everything in it, which opens without a network. It has no script.
//!
//! The verdict comes first: a table of scores, then for each collective a table with a line for each size, and a plot of how far ours is ahead. All
//! contenders, what was judged, and the facts of machines and methods are there to be unfolded.

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    Contest, Estimate, Inks, Judged, Launching, Method, Score, Section, Standing, Summary, Table, Timing, Winner, Workload, contests,
    plots::{self, plots},
    sections, tables,
};
use passmuster_harness::conformance::report::Record;
use passmuster_plan::machine::MachineInfo;

const STYLE: &str = "
:root { color-scheme: light dark; --ground: #fff; --ink: #1b1f24; --soft: #59626c; --edge: #d5dade; --tint: #f4f6f8; --link: #0055a5; --win: #e3effa; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 84rem; padding: 1rem 1rem 4rem; color: var(--ink); background: var(--ground); }
h1 { font-size: 1.55rem; line-height: 1.2; margin: .5rem 0; } h2 { font-size: 1.25rem; margin: 2.4rem 0 .4rem; padding-top: .8rem; border-top: 1px solid var(--edge); }
h3 { font-size: 1.05rem; margin: 1.4rem 0 .3rem; } h1, h2, h3, p, li, td, th, summary { overflow-wrap: anywhere; }
a { color: var(--link); } p { margin: .4rem 0; max-width: 60rem; } .soft, caption { color: var(--soft); } .soft { font-size: .9rem; }
nav ul { columns: 15rem; padding-left: 1.2rem; margin: .3rem 0; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .6rem; border-bottom: 1px solid var(--edge); text-align: right; vertical-align: top; white-space: nowrap; font-weight: normal; }
th:first-child { position: sticky; left: 0; background: var(--ground); } thead th { font-weight: 600; vertical-align: bottom; } caption { text-align: left; padding: .3rem 0; } th:first-child, td.text, th.text { text-align: left; }
.l2 :is(td, th):nth-child(2), .l3 :is(td, th):nth-child(-n+3) { text-align: left; } .wrap, .wrap :is(td, th) { white-space: normal; }
.scroll { overflow-x: auto; max-width: 100%; margin: .6rem 0; } .scroll:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--link); }
.verdict { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: .4rem 1.6rem; align-items: start; }
.verdict table, .scores { width: 100%; } .verdict table { max-width: 44rem; } .verdict :is(td, th), .scores :is(td, th) { white-space: normal; padding: .18rem .4rem; } .scores { max-width: 60rem; } .scores :is(td, th) { text-align: left; }
.verdict small { display: block; } small { color: var(--soft); font-size: .8rem; line-height: 1.25; } .scores small { padding-left: .4rem; }
@media (min-width: 48.01rem) { .scores { table-layout: fixed; } .scores th:first-child { width: 28%; } }
@media (max-width: 48rem) { .scores small { display: block; padding: 0; } th:first-child { white-space: normal; min-width: 5rem; } } .win { background: var(--win); } strong { font-weight: 700; }
tfoot :is(td, th) { border-bottom: 0; font-weight: 600; } .plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: .8rem 1.6rem; }
figure { margin: .6rem 0; } figure svg { display: block; width: 100%; max-width: 44rem; height: auto; }
code, pre { font: .82rem/1.45 ui-monospace, monospace; } pre { background: var(--tint); padding: .6rem .7rem; margin: .4rem 0; overflow-x: auto; }
pre.line { white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .6rem 0; } summary { cursor: pointer; padding: .15rem 0; } details > :not(summary) { margin-left: .2rem; }
.bad { border-left: .3rem solid #c2252b; padding-left: .7rem; }
.plot{color:var(--ink)}.p .m{fill:var(--ground)}
";

/// Colours for those who want them dark.
const DARK: &str = "--ink: #e6e9ec; --soft: #a4adb6; --edge: #363d45; --tint: #1e2329; --link: #7ab8ff; --win: #16324d;";

/// The page's style sheet.
fn style() -> String {
    let [light, dark] = [plots::colours(|ink| ink.light), plots::colours(|ink| ink.dark)];
    format!(
        "{STYLE}{light}{shapes}\n@media (prefers-color-scheme: dark) {{ :root {{ --ground: {ground}; {DARK} }} {dark} }}\n",
        shapes = plots::SHAPES,
        ground = plots::DARK
    )
}

/// What a page is about.
#[derive(Clone, Copy, Default)]
pub struct Contents<'a> {
    /// Records of `bench`; what one of them has timed another may have, too.
    pub timed: &'a [Record<Timing>],
    /// Records of other commands.
    pub judged: &'a [Judged],
    /// How the first of the timed ones stands to a baseline.
    pub against: &'a [Table],
    /// The row length in elements where sizes are rows of tokens.
    pub hidden: Option<u64>,
}

/// A part of the page under a heading of its own, which the list of contents has.
struct Part {
    id: String,
    heading: String,
    body: Markup,
}

/// The parts so far. No two have the same heading or anchor.
#[derive(Default)]
struct Parts {
    all: Vec<Part>,
    ids: BTreeSet<String>,
}

impl Parts {
    /// An anchor for a heading that nothing else has.
    fn anchor(&mut self, heading: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
        let slug: String = heading.chars().map(plain).collect();
        let slug = slug.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
        let numbered = (1..).map(|n| if n == 1 { slug.clone() } else { format!("{slug}-{n}") });
        numbered.into_iter().find(|id| self.ids.insert(id.clone())).unwrap_or_default()
    }

    /// A heading, or with what tells it from another that is the same.
    fn heading(&self, heading: &str, other: &str) -> String {
        let taken = |text: &str| self.all.iter().any(|part| part.heading == text);
        if !taken(heading) {
            return heading.to_owned();
        }
        let with = format!("{heading} ({other})");
        if !taken(&with) { with } else { (2..).map(|n| format!("{with}, {n}")).find(|text| !taken(text)).unwrap_or(with) }
    }

    fn add(&mut self, heading: String, body: impl FnOnce(&mut Parts) -> Markup) -> String {
        let id = self.anchor(&heading);
        let body = body(self);
        self.all.push(Part { id: id.clone(), heading, body });
        id
    }
}

/// One row of the table of scores: a heading's anchor, the heading, and the score for each number of ranks.
struct Scored {
    id: String,
    heading: String,
    scores: Vec<(u32, Option<Score>, Workload)>,
}

/// The page.
pub fn page(of: &Contents<'_>) -> String {
    let all_sections: Vec<Section<'_>> = of.timed.iter().flat_map(|record| sections(&record.cases)).collect();
    let inks = Inks::of(&all_sections);
    let mut parts = Parts::default();
    let mut scores: Vec<Scored> = Vec::new();
    for id in ["verdict", "contents"] {
        parts.ids.insert(id.into());
    }
    if !of.against.is_empty() {
        parts.add("Against the baseline".into(), |_| html! { @for table in of.against { (table_of(table)) } });
    }
    for record in of.timed {
        for contest in contests(&record.cases) {
            let heading = parts.heading(&contest.family, &on_a_day(&record.machine, &record.date));
            let worlds = contest.worlds();
            let row = |&world: &u32| (world, contest.score(world), contest.sections[0].workload);
            let scored = worlds.iter().map(row).collect();
            let id = parts.add(heading.clone(), |parts| of_contest(&contest, record, of, &inks, &heading, parts));
            scores.push(Scored { id, heading, scores: scored });
        }
    }
    let mut judged = Vec::new();
    for record in of.judged {
        let heading = parts.heading(&record.title, &on_a_day(&record.machine, &record.date));
        let id = parts.add(heading.clone(), |parts| of_judged(record, parts));
        judged.push((id, heading, record));
    }
    let troubles: Vec<&Timing> = of.timed.iter().flat_map(|record| &record.cases).filter(|timing| !timing.reason.is_empty()).collect();
    if !troubles.is_empty() {
        parts.add("Not timed, or not right".into(), |_| not_timed(&troubles));
    }
    parts.add("Machines".into(), |_| machines(of));
    if !of.timed.is_empty() {
        parts.add("How to do it again".into(), |_| again(of.timed));
        parts.add("Method".into(), |_| methods(of.timed));
    }
    let title = title(of);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(style())) }
            }
            body {
                header { h1 { (title) } p.soft { (lead(of)) } }
                main {
                    section aria-labelledby="verdict" {
                        h2 id="verdict" { "Verdict" }
                        (table_of_scores(&scores))
                        @for (id, heading, record) in &judged { p { a href=(format!("#{id}")) { (heading) } ": " (sentence(record)) } }
                    }
                    nav aria-labelledby="contents" {
                        h2 id="contents" { "Contents" }
                        ul { @for part in &parts.all { li { a href=(format!("#{}", part.id)) { (part.heading) } } } }
                    }
                    @for part in &parts.all {
                        section aria-labelledby=(part.id) { h2 id=(part.id) { (part.heading) } (part.body) }
                    }
                }
            }
        }
    }
    .into_string()
    // HTML lets the ends of cells and rows be left out. They are a fifth of a page of tables.
    .replace("</td>", "")
    .replace("</th>", "")
    .replace("</tr>", "")
}

fn title(of: &Contents<'_>) -> String {
    let machines: BTreeSet<String> = machines_of(of).into_iter().map(|(machine, ..)| name_of(machine)).collect();
    let machines =
        if machines.len() > 2 { format!("{} machines", machines.len()) } else { machines.into_iter().collect::<Vec<_>>().join(" and ") };
    let what = match (of.timed.is_empty(), of.judged) {
        (false, []) => "passmuster bench".to_owned(),
        (true, [only]) => format!("passmuster {}", only.kind),
        _ => "passmuster".into(),
    };
    format!("{what}, {machines}")
}

fn lead(of: &Contents<'_>) -> String {
    let records = of.timed.len() + of.judged.len();
    let dates: BTreeSet<&str> = machines_of(of).iter().map(|(_, date, _)| &date[..date.len().min(10)]).collect();
    let days = match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (Some(only), _) => (*only).to_owned(),
        _ => String::new(),
    };
    format!("{records} record{}, {days}.", if records == 1 { "" } else { "s" })
}

/// `2 x NVIDIA H200`, or what there is instead of GPUs.
fn name_of(machine: &MachineInfo) -> String {
    if machine.gpus == 0 { machine.gpu.clone() } else { format!("{} x {}", machine.gpus, machine.gpu) }
}

/// `2 x NVIDIA H200, 2026-11-22 13:15`.
fn on_a_day(machine: &MachineInfo, date: &str) -> String {
    format!("{}, {}", name_of(machine), date[..date.len().min(16)].replace('T', " "))
}

/// Machine, date and subject of every record.
fn machines_of<'a>(of: &Contents<'a>) -> Vec<(&'a MachineInfo, &'a str, String)> {
    let subjects =
        |record: &Record<Timing>| contests(&record.cases).into_iter().map(|contest| contest.family).collect::<Vec<_>>().join(", ");
    let timed = of.timed.iter().map(|record| (&record.machine, record.date.as_str(), subjects(record)));
    timed.chain(of.judged.iter().map(|record| (&record.machine, record.date.as_str(), record.title.clone()))).collect()
}

/// The score of every contest: the answer.
fn table_of_scores(scores: &[Scored]) -> Markup {
    let worlds: BTreeSet<u32> = scores.iter().flat_map(|scored| &scored.scores).map(|(world, ..)| *world).collect();
    let compared = scores.iter().flat_map(|scored| &scored.scores).any(|(_, score, _)| score.is_some());
    html! {
        @if !scores.is_empty() {
            p {
                "How many times as long as our best algorithm the best of the peers takes, geometric mean over sizes and below it the least: above 1 ours is faster. "
                @if !compared { "Nothing can be compared here: a ratio stands only where the results of both were judged in the same run, and both have times." }
            }
            table.scores {
                thead { tr { th scope="col" { "collective" } @for world in &worlds { th scope="col" { (world) " ranks" } } } }
                tbody { @for scored in scores {
                    tr {
                        th scope="row" { a href=(format!("#{}", scored.id)) { (breakable(&scored.heading)) } }
                        @for world in &worlds { (score_cell(scored.scores.iter().find(|(of, ..)| of == world))) }
                    }
                } }
            }
        }
    }
}

fn score_cell(of: Option<&(u32, Option<Score>, Workload)>) -> Markup {
    let Some((_, score, workload)) = of else { return html! { td { "-" } } };
    let Some(Score { mean, least, behind, sizes }) = score else { return html! { td { "-" small { "nothing to compare" } } } };
    html! {
        td class=[(*mean > 1.0).then_some("win")] {
            @if *mean > 1.0 { strong { (times(*mean)) } } @else { (times(*mean)) }
            @let (several, faster) = (*sizes > 1, *behind > 0);
            @if several || faster { small {
                @if several { "least " (times(least.0)) " at " (at_size(workload, least.1)) @if faster { "; " } }
                @if faster { "peer faster at " (behind) " of " (sizes) }
            } }
        }
    }
}

/// `256 MiB`, `M = 8192`.
fn at_size(of: &Workload, size: u64) -> String {
    let name = of.with_size(size).size_name();
    if of.unit() == "M" { format!("M = {name}") } else { name }
}

/// `1.35×`.
fn times(ratio: f64) -> String {
    format!("{ratio:.2}×")
}

/// A name that may be broken where it has an underscore.
fn breakable(name: &str) -> Markup {
    html! { @for (at, word) in name.split('_').enumerate() { @if at > 0 { "_" wbr; } (word) } }
}

/// Verdict, plot, and all contenders folded.
fn of_contest(contest: &Contest<'_>, record: &Record<Timing>, of: &Contents<'_>, inks: &Inks, heading: &str, parts: &mut Parts) -> Markup {
    let plot = plots::ahead(contest).filter(plots::Plot::has_course).and_then(|plot| plot.inline().ok());
    let launching = contest.sections[0].launching().name();
    html! {
        p.soft { (on_a_day(&record.machine, &record.date)) "; medians of microseconds a call, " (launching) ". Bold is who is faster beyond the noise. Sizes are "
            (contest.sections[0].workload.axis()) "."
        }
        div.verdict {
            @for world in contest.worlds() { (standings_of(contest, world, of.hidden)) }
            @if let Some(plot) = plot { figure { (PreEscaped(plot)) } }
        }
        details {
            summary { "All contenders of " (heading) ": plots, times, bandwidths, noise" }
            @for section in &contest.sections { (all_of(section, record, of.hidden, inks, heading, parts)) }
        }
    }
}

/// A line for each size: ours, the best peer, and who is ahead.
fn standings_of(contest: &Contest<'_>, world: u32, hidden: Option<u64>) -> Markup {
    let of_world = contest.of_world(world);
    let rows = || of_world.iter().flat_map(|(section, standings)| standings.iter().map(move |standing| (section, standing)));
    let unit = contest.sections[0].workload.unit();
    let label = |section: &Section<'_>, size: u64| {
        let name = section.workload.with_size(size).size_name();
        match hidden.and_then(|hidden| section.tokens(size, hidden)) {
            Some(shape) => format!("{name} {shape}"),
            None => name,
        }
    };
    html! {
        div.scroll tabindex="0" role="region" aria-label=(format!("{}, {world} ranks", contest.family)) {
            table {
                caption { (world) " ranks" @if !contest.has_extents() { (contest.sections[0].workload.extents()) } }
                thead { tr {
                    th scope="col" { (unit) } th scope="col" { "ours, µs" } th scope="col" { "best peer, µs" } th scope="col" { "ahead" }
                } }
                tbody { @for (section, standing) in rows() { tr {
                    th scope="row" { (label(section, standing.size)) @if contest.has_extents() { small { (section.workload.extents().trim()) } } }
                    (standing_cells(standing))
                } } }
                @if let Some(Score { mean, least, sizes, .. }) = contest.score(world) { @if sizes > 1 { tfoot {
                    tr { th scope="row" colspan="3" { "geometric mean" } td { (times(mean)) } }
                    tr { th scope="row" colspan="3" { "least, at " (at_size(&contest.sections[0].workload, least.1)) } td { (times(least.0)) } }
                } } }
            }
        }
    }
}

fn standing_cells(standing: &Standing<'_>) -> Markup {
    let winner = standing.winner();
    let cell = |best: Option<(&Timing, &Summary)>, wins: bool| {
        let Some((timing, summary)) = best else { return html! { td { "-" } } };
        let time = format!("{:.2}", summary.median);
        html! { td class=[wins.then_some("win")] { @if wins { strong { (time) } } @else { (time) } small { (breakable(&timing.contender)) } } }
    };
    let ahead = match (standing.ahead, standing.ours.zip(standing.peer)) {
        (Some(Estimate { value, interval }), _) => html! {
            td {
                @if winner == Some(Winner::Ours) { strong { (times(value)) } } @else { (times(value)) }
                @match (winner, interval) {
                    (Some(Winner::Peer), _) => small { "peer faster" },
                    (Some(Winner::Level), Some((low, high))) => small { "level " (format!("{low:.2} to {high:.2}")) },
                    (Some(Winner::Level), None) => small { "level" },
                    _ => "",
                }
            }
        },
        (None, Some(_)) => html! { td { "-" small { "not judged" } } },
        (None, None) => html! { td { "-" } },
    };
    html! { (cell(standing.ours, winner == Some(Winner::Ours))) (cell(standing.peer, winner == Some(Winner::Peer))) (ahead) }
}

/// Plots and tables of all contenders of one section.
fn all_of(section: &Section<'_>, record: &Record<Timing>, hidden: Option<u64>, inks: &Inks, heading: &str, parts: &mut Parts) -> Markup {
    let figures = plots(section, &record.machine, inks);
    // Times themselves go over decades, which leaves no room for what is between contenders; tables have them.
    let figures = figures.iter().skip(1).filter(|plot| plot.has_course()).filter_map(|plot| plot.inline().ok());
    // What tells the heading from another record's of the same tells this one, too.
    let title = section.name() + heading.strip_prefix(&section.workload.family()).unwrap_or_default();
    let id = parts.anchor(&title);
    html! {
        h3 id=(id) { (title) }
        div.plots { @for figure in figures { figure { (PreEscaped(figure)) } } }
        @for table in section.tables(&record.machine, hidden) { (table_of(&table)) }
        details { summary { "Percentiles and clocks, " (section.name()) } (table_of(&percentiles(section))) (judged_before(section)) }
    }
}

/// All that is known of each figure.
fn percentiles(section: &Section<'_>) -> Table {
    let header = ["size", "contender", "launching", "median", "p5", "p95", "p99", "min", "max", "judged", "SM MHz", "W", "°C", "held down"];
    let mut rows = Vec::new();
    for (bytes, contender) in section.sizes().flat_map(|bytes| section.contenders.iter().map(move |contender| (bytes, contender))) {
        let Some(timing) = section.at(bytes, contender) else { continue };
        for launching in Launching::ALL {
            let Some(times) = launching.of(timing) else { continue };
            let mut row = vec![timing.workload.size_name(), (*contender).to_owned(), launching.name().to_owned()];
            let figures = [Some(times.median), Some(times.p5), Some(times.p95), times.p99, Some(times.min), Some(times.max)];
            row.extend(figures.map(|figure| figure.map_or_else(|| "-".into(), |figure| format!("{figure:.2}"))));
            row.push(timing.check.as_ref().map_or_else(|| "not in this run".into(), |check| check.status.to_string()));
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

/// The cases that were judged before the times were taken, each once.
fn judged_before(section: &Section<'_>) -> Markup {
    let timings = section.sizes().flat_map(|size| section.contenders.iter().filter_map(move |contender| section.at(size, contender)));
    let cases: BTreeSet<String> =
        timings.filter_map(|timing| timing.check.as_ref()).map(|check| format!("{} {}", check.status, check.case)).collect();
    html! { @if !cases.is_empty() { details { summary { "Judged in the same run: " (cases.len()) } pre.line { (cases.into_iter().collect::<Vec<_>>().join("\n")) } } } }
}

/// What has no time, and why.
fn not_timed(troubles: &[&Timing]) -> Markup {
    let row = |timing: &&Timing| {
        let workload = &timing.workload;
        vec![
            format!("{}/{}", workload.kind(), timing.contender),
            format!("w={}", workload.world()),
            workload.size_name(),
            timing.status.to_string(),
            timing.reason.clone(),
        ]
    };
    let header = ["contender", "ranks", "size", "status", "reason"].map(str::to_owned).to_vec();
    let table = Table {
        title: "Contenders without a time, or with a wrong result".into(),
        header,
        left: 1,
        rows: troubles.iter().map(row).collect(),
    };
    html! { details { summary { (troubles.len()) " of all figures" } (table_of(&table)) } }
}

/// Command lines that time the same again. Older records do not have theirs: what they timed gives it.
fn again(records: &[Record<Timing>]) -> Markup {
    let line = |section: &Section<'_>| {
        let sizes: Vec<String> = section.sizes().map(|bytes| bytes.to_string()).collect();
        let (of, contenders) = (section.workload, section.contenders.join(","));
        format!("cargo xtask bench {} --worlds {} --sizes {} --contenders {contenders}", of.subject(), of.world(), sizes.join(","))
    };
    let of_record = |record: &Record<Timing>| match record.notes.is_empty() {
        true => sections(&record.cases).iter().map(line).collect(),
        false => record.notes.clone(),
    };
    let lines: Vec<String> = records.iter().flat_map(of_record).collect();
    html! { details { summary { (lines.len()) " command lines" } @for line in lines { pre.line { (line) } } } }
}

/// Facts of each machine, once; what differs from record to record with how many have it.
fn machines(of: &Contents<'_>) -> Markup {
    let records = machines_of(of);
    let mut distinct: Vec<(&MachineInfo, Vec<&MachineInfo>)> = Vec::new();
    for (machine, ..) in &records {
        let same = |known: &MachineInfo| {
            (&known.kind, &known.gpu, known.gpus, &known.driver, &known.nccl)
                == (&machine.kind, &machine.gpu, machine.gpus, &machine.driver, &machine.nccl)
        };
        match distinct.iter_mut().find(|(known, _)| same(known)) {
            Some((_, all)) => all.push(machine),
            None => distinct.push((machine, vec![machine])),
        }
    }
    let facts = |machine: &MachineInfo| {
        let mut facts = vec![
            ("GPUs".to_owned(), name_of(machine)),
            ("driver's CUDA".to_owned(), machine.driver.clone()),
            ("NCCL".to_owned(), machine.nccl.clone()),
        ];
        facts.extend(tables::link_limit(machine).map(|limit| ("links of a GPU, one direction".to_owned(), limit.name())));
        facts.extend(machine.notes.iter().cloned());
        facts.retain(|(_, value)| !value.is_empty());
        facts
    };
    html! { @for (machine, all) in &distinct {
        @let values: Vec<(String, String)> = all.iter().flat_map(|machine| facts(machine)).collect();
        @let names = unique(values.iter().map(|(name, _)| name.as_str()));
        details {
            summary { (name_of(machine)) @if !machine.nccl.is_empty() { ", NCCL " (machine.nccl) } ": " (all.len()) (if all.len() == 1 { " record" } else { " records" }) }
            div.scroll tabindex="0" role="region" aria-label=(name_of(machine)) { table.wrap {
                caption { "Facts of " (name_of(machine)) }
                tbody { @for name in names {
                    @let of_name: Vec<&str> = values.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect();
                    tr { th scope="row" { (name) } td.text { @for value in unique(of_name.iter().copied()) {
                        @let times = of_name.iter().filter(|known| **known == value).count();
                        div { (value) @if times < all.len() { span.soft { " (" (times) " of " (all.len()) " records)" } } }
                    } } }
                } }
            } }
        }
    } }
}

/// Each text once, in the order in which they come.
fn unique<'a>(all: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    all.into_iter().filter(|text| seen.insert(*text)).collect()
}

/// How it was measured, and of which sources.
fn methods(records: &[Record<Timing>]) -> Markup {
    let mut methods: Vec<(Method, Vec<String>)> = Vec::new();
    for timing in records.iter().flat_map(|record| &record.cases) {
        let size = timing.workload.size_name();
        match methods.iter_mut().find(|(method, _)| *method == timing.method) {
            Some((_, sizes)) if !sizes.contains(&size) => sizes.push(size),
            Some(_) => {}
            None => methods.push((timing.method, vec![size])),
        }
    }
    html! {
        details {
            summary { "Samples, rounds and warm-up" }
            div.scroll tabindex="0" role="region" aria-label="Method" { table.wrap {
                thead { tr { th scope="col" { "sizes" } th.text scope="col" { "method" } } }
                tbody { @for (method, sizes) in &methods { tr { th scope="row" { (sizes.join(", ")) } td.text { (method) } } } }
            } }
        }
        details {
            summary { "Sources of each record" }
            div.scroll tabindex="0" role="region" aria-label="Sources" { table.wrap {
                thead { tr { th scope="col" { "record" } th.text scope="col" { "date" } th.text scope="col" { "commit" } th.text scope="col" { "PTX" } th scope="col" { "cases" } } }
                tbody { @for record in records { tr {
                    th scope="row" { (contests(&record.cases).into_iter().map(|contest| contest.family).collect::<Vec<_>>().join(", ")) }
                    td.text { (record.date) }
                    td.text { (record.source.commit) @if record.source.dirty { ", with changes" } }
                    td.text { (record.source.ptx_hash) }
                    td { (record.summary) }
                } } }
            } }
        }
    }
}

/// What a record of another command says: its verdict, then its findings, then tables.
fn of_judged(record: &Judged, parts: &mut Parts) -> Markup {
    html! {
        p.soft { (on_a_day(&record.machine, &record.date)) }
        p { (sentence(record)) }
        @for finding in &record.findings {
            div.bad { h3 id=(parts.anchor(&finding.title)) { (finding.title) } pre { (finding.text) } }
        }
        @for (number, table) in record.tables.iter().enumerate() {
            @if number < record.open { (table_of(table)) } @else { details { summary { (table.title) } (table_of(table)) } }
        }
        @if !record.notes.is_empty() {
            details { summary { "Notes of the record: " (record.notes.len()) } pre.line { (record.notes.join("\n")) } }
        }
    }
}

fn sentence(record: &Judged) -> Markup {
    html! { @if record.is_bad { strong { (record.verdict) } } @else { (record.verdict) } }
}

fn table_of(table: &Table) -> Markup {
    let class = match table.left {
        0 | 1 => None,
        2 => Some("l2"),
        _ => Some("l3"),
    };
    // Text that is long is not to be one line.
    let long = |at: usize| table.rows.iter().filter_map(|row| row.get(at)).any(|cell| cell.len() > 60);
    let text = |at: usize| long(at).then_some("text wrap");
    html! {
        div.scroll tabindex="0" role="region" aria-label=(table.title) {
            table class=[class] {
                caption { (table.title) }
                thead { tr { @for (at, name) in table.header.iter().enumerate() { th class=[text(at)] scope="col" { (name) } } } }
                tbody { @for row in &table.rows { tr { @for (at, cell) in row.iter().enumerate() {
                    @if at == 0 { th scope="row" class=[text(at)] { (cell) } } @else { td class=[text(at)] { (cell) } }
                } } } }
            }
        }
    }
}
