//! Records of commands that judge (`validate`, `test-gpu`, `mutants`, `ledger`), as the report has them: a verdict, findings in full, tables.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Deserialize;

use super::Table;
use passmuster_harness::{
    conformance::{
        Status, Verdict,
        coverage::{self, ModuleCoverage, Place},
        mutants::Outcome,
        report::{
            Assumed, Partial, Record, Summary, WaivedRace,
            table::{self, Outcomes},
        },
    },
    ledger::{Difference, Row},
};
use passmuster_plan::machine::MachineInfo;

/// How many of the slowest cases are shown.
const SLOWEST: usize = 20;

/// A record of a command that judges, ready to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The command.
    pub kind: String,
    /// What it ran on.
    pub machine: MachineInfo,
    /// When: RFC 3339.
    pub date: String,
    /// A heading: `test-gpu merge`.
    pub title: String,
    /// What became of all cases, in a sentence.
    pub verdict: String,
    /// Whether that is bad news.
    pub is_bad: bool,
    /// What is wrong, in full.
    pub findings: Vec<Found>,
    /// What became of all cases, then what there is besides.
    pub tables: Vec<Table>,
    /// How many of the tables are for everybody; a page has the others folded.
    pub open: usize,
    /// What the command had to say; the first is of the whole run.
    pub notes: Vec<String>,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The status and the case.
    pub title: String,
    /// What was found, several lines.
    pub text: String,
}

/// Why a record cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableRecord {
    /// It is no record, or not whole.
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
    /// Nobody knows how to show it.
    #[error("a record of `{kind}`, and report renders those of bench, {}", KINDS.join(", "))]
    Unknown {
        /// What it is of.
        kind: String,
    },
}

/// Commands that judge and whose records can be shown.
const KINDS: [&str; 4] = ["validate", "test-gpu", "mutants", "ledger"];

/// The command that wrote a record, which says what its cases are.
///
/// # Errors
/// Where the text is no JSON object with a `kind`.
pub fn kind_of(text: &str) -> Result<String, serde_json::Error> {
    #[derive(Deserialize)]
    struct Head {
        kind: String,
    }
    serde_json::from_str::<Head>(text).map(|head| head.kind)
}

impl Judged {
    /// Reads a record of a command that judges.
    ///
    /// # Errors
    /// Where it is no record, or one of another command.
    pub fn read(text: &str) -> Result<Judged, UnreadableRecord> {
        match kind_of(text)? {
            kind if kind == "validate" || kind == "test-gpu" => Ok(Judged::of_verdicts(&serde_json::from_str(text)?)),
            kind if kind == "mutants" => Ok(Judged::of_mutants(&serde_json::from_str(text)?)),
            kind if kind == "ledger" => Ok(Judged::of_ledger(&serde_json::from_str(text)?)),
            kind => Err(UnreadableRecord::Unknown { kind }),
        }
    }

    /// Of `validate` and `test-gpu`.
    pub fn of_verdicts(record: &Record) -> Judged {
        let with = |status: Status| record.cases.iter().filter(move |verdict| verdict.status == status);
        let wrong = |status: &Status| status.is_finding() || *status == Status::InfraError;
        let findings = Status::ALL.into_iter().filter(wrong).flat_map(with).map(found).collect();
        let mut tables = vec![statuses(&record.summary)];
        tables.extend(by_algorithm(&record.cases));
        for status in [Status::NotSupported, Status::NotRun, Status::Inconclusive, Status::Waived] {
            tables.extend(by_reason(status, with(status).map(|verdict| (verdict.case.as_str(), verdict.reason.as_str()))));
        }
        tables.extend(races_waived(record));
        tables.extend(executed(&record.coverage));
        tables.extend(slowest(&record.cases));
        // Records of before there were selections have it in a note alone.
        let noted = || record.notes.iter().find_map(|note| note.split("query ").nth(1)?.split(", seed").next());
        let query = record.selection.as_ref().map(|selection| selection.query.as_str()).or_else(noted);
        let title = query.map_or_else(|| record.kind.clone(), |query| format!("{} {query}", record.kind));
        let verdict = verdict(&record.summary);
        let (verdict, is_whole) = match &record.partial {
            Some(Partial { judged, of, why }) => (format!("partial, {judged} of {of} judged ({why}): {verdict}"), false),
            None => (verdict, true),
        };
        Judged::new(record, title, verdict, record.summary.has_findings() || !is_whole, findings, tables)
    }

    /// Of `mutants`. Those that were missed come first.
    pub fn of_mutants(record: &Record<Outcome>) -> Judged {
        let (equivalent, others): (Vec<&Outcome>, Vec<&Outcome>) = record.cases.iter().partition(|outcome| outcome.equivalent.is_some());
        let (not_reached, counted): (Vec<&Outcome>, Vec<&Outcome>) = others.into_iter().partition(|outcome| outcome.not_reached);
        let missed: Vec<&Outcome> = counted.iter().copied().filter(|outcome| !outcome.caught).collect();
        // One that does nothing wrong, and was caught.
        let contradicted = equivalent.iter().filter(|outcome| outcome.caught).count();
        let mut scores: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let mut caught_by: BTreeMap<&str, usize> = BTreeMap::new();
        for outcome in &counted {
            let made = outcome.defect.as_ref().map_or_else(|| "planted by people".to_owned(), |defect| format!("made by rule, {defect}"));
            let (caught, all) = scores.entry(format!("{}, {made}", outcome.kind)).or_default();
            (*caught, *all) = (*caught + usize::from(outcome.caught), *all + 1);
            if outcome.caught {
                *caught_by.entry(outcome.caught_by()).or_default() += 1;
            }
        }
        let percent =
            |caught: usize, all: usize| if all == 0 { "-".into() } else { format!("{:.1} %", 100.0 * caught as f64 / all as f64) };
        let rows = scores.into_iter().map(|(kind, (caught, all))| vec![kind, caught.to_string(), all.to_string(), percent(caught, all)]);
        let mut tables = Vec::new();
        let row = |outcome: &&Outcome| {
            let schedule = outcome.schedule.map(|schedule| schedule.to_string()).unwrap_or_default();
            let case = outcome.verdict.as_ref().map(|verdict| verdict.case.clone()).unwrap_or_default();
            vec![outcome.mutant.clone(), outcome.caught_by().to_owned(), schedule, outcome.tried.to_string(), case]
        };
        let why = |outcome: &&Outcome| {
            vec![
                outcome.mutant.clone(),
                outcome.tried.to_string(),
                outcome.equivalent.clone().unwrap_or_else(|| outcome.description.clone()),
            ]
        };
        if !missed.is_empty() {
            tables.push(table("Missed", &["mutant", "cases", "bug"], 3, missed.iter().map(why)));
        }
        tables.push(table("Mutants by kind", &["kind", "caught", "all", "score"], 1, rows));
        let open = tables.len();
        let mut by_count: Vec<(&str, usize)> = caught_by.into_iter().collect();
        by_count.sort_by_key(|(_, count)| Reverse(*count));
        tables.push(table(
            "What caught them",
            &["property", "mutants"],
            1,
            by_count.iter().map(|(property, count)| vec![(*property).to_owned(), count.to_string()]),
        ));
        if !not_reached.is_empty() {
            let title = "Not reached: no case executes what they change, and they do not count";
            tables.push(table(title, &["mutant", "cases", "bug"], 2, not_reached.iter().map(why)));
        }
        if !equivalent.is_empty() {
            tables.push(table(
                "Equivalent: they do nothing wrong, and do not count",
                &["mutant", "cases", "why"],
                1,
                equivalent.iter().map(why),
            ));
        }
        let caught = counted.iter().filter(|outcome| outcome.caught);
        tables.push(table("Caught", &["mutant", "by", "schedule", "cases", "case"], 2, caught.map(row)));
        let of = counted.len();
        let mut verdict =
            format!("{} of {of} mutants caught ({}), {} missed", of - missed.len(), percent(of - missed.len(), of), missed.len());
        if contradicted > 0 {
            verdict += &format!("; {contradicted} caught that are said to do nothing wrong");
        }
        let found = |outcome: &&Outcome| Found { title: format!("MISSED {}", outcome.mutant), text: outcome.description.clone() };
        // A bug of synchronisation may be missed; one of values may not.
        let findings: Vec<Found> = missed.iter().filter(|outcome| outcome.kind == "value").map(found).collect();
        let is_bad = !findings.is_empty() || contradicted > 0;
        Judged { open, ..Judged::new(record, record.kind.clone(), verdict, is_bad, findings, tables) }
    }

    /// Of `ledger`.
    pub fn of_ledger(record: &Record<Row>) -> Judged {
        let shown = |difference: &Difference| {
            let Difference { operands, expected, got, instruction } = difference;
            format!("{operands} -> {expected}, got {got} {instruction}").trim_end().to_owned()
        };
        let found = |row: &Row| {
            let first = row.first.iter().chain(&row.examples).map(shown).collect::<Vec<_>>().join("\n");
            let title = format!("{} {}: {} of {} tuples differ", row.status.name().to_uppercase(), row.form, row.mismatches, row.tuples);
            Found { title, text: first }
        };
        let findings: Vec<Found> = record.cases.iter().filter(|row| row.status.is_finding()).map(found).collect();
        let mut tables = vec![statuses(&record.summary)];
        let refused = record.cases.iter().filter(|row| row.status == Status::NotSupported);
        tables.extend(by_reason(Status::NotSupported, refused.map(|row| (row.form.as_str(), row.reason.as_str()))));
        let open = record.cases.iter().filter(|row| row.open > 0);
        let open: Vec<Vec<String>> =
            open.map(|row| vec![row.form.clone(), row.open.to_string(), row.first_open.as_ref().map(shown).unwrap_or_default()]).collect();
        if !open.is_empty() {
            tables.push(table("Results that the ISA leaves open, and that differ", &["form", "results", "the first"], 3, open));
        }
        let bounded = record.cases.iter().filter_map(|row| {
            let ulps = row.max_ulps.map(|ulps| ulps.to_string()).unwrap_or_default();
            Some(vec![row.form.clone(), row.bound.clone()?, ulps, row.tuples.to_string()])
        });
        let bounded: Vec<Vec<String>> = bounded.collect();
        if !bounded.is_empty() {
            tables.push(table("Approximate forms", &["form", "bound", "max ulp", "tuples"], 2, bounded));
        }
        Judged::new(record, record.kind.clone(), verdict(&record.summary), record.summary.has_findings(), findings, tables)
    }

    fn new<C>(record: &Record<C>, title: String, verdict: String, is_bad: bool, findings: Vec<Found>, tables: Vec<Table>) -> Judged {
        Judged {
            kind: record.kind.clone(),
            machine: record.machine.clone(),
            date: record.date.clone(),
            title,
            verdict,
            is_bad,
            findings,
            tables,
            open: 1,
            notes: record.notes.clone(),
        }
    }

    /// All of it as text, the findings first and the verdict last.
    pub fn text(&self) -> String {
        let findings = self.findings.iter().map(|found| format!("{}\n{}\n", found.title, found.text));
        let tables = self.tables.iter().map(|table| table.aligned() + "\n");
        let head = format!("{}, {}, {}\n\n", self.title, self.machine.gpu, self.date);
        head + &findings.chain(tables).collect::<String>() + &self.verdict + "\n"
    }
}

/// `528 passed, 12 not_supported, 0 findings`.
fn verdict(summary: &Summary) -> String {
    let of = |status: Status| summary.by_status.get(&status).copied().unwrap_or_default();
    let others = Status::ALL.into_iter().filter(|&status| status != Status::Pass && of(status) > 0);
    let others: String = others.map(|status| format!(", {} {status}", of(status))).collect();
    let findings: usize = Status::ALL.into_iter().filter(|status| status.is_finding()).map(of).sum();
    let plural = if findings == 1 { "" } else { "s" };
    format!("{} cases: {} passed{others}; {findings} finding{plural}", summary.total, of(Status::Pass))
}

fn table(title: &str, header: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    Table { title: title.into(), header: header.iter().map(|&name| name.to_owned()).collect(), left, rows: rows.into_iter().collect() }
}

/// Cases by status, those that there are.
fn statuses(summary: &Summary) -> Table {
    let of = |status: Status| summary.by_status.get(&status).copied().unwrap_or_default();
    let rows = Status::ALL.into_iter().filter(|&status| of(status) > 0).map(|status| vec![status.to_string(), of(status).to_string()]);
    table("Cases by status", &["status", "cases"], 1, rows.chain([vec!["all".into(), summary.total.to_string()]]))
}

/// A case with everything that was found about it.
fn found(verdict: &Verdict) -> Found {
    let schedule = verdict.schedule.as_ref().map(|schedule| format!("@{schedule}")).unwrap_or_default();
    let mut text = if verdict.findings.is_empty() { format!("{}\n", verdict.reason) } else { String::new() };
    for finding in &verdict.findings {
        let call = finding.call.map(|call| format!(" call {call}")).unwrap_or_default();
        text += &format!("{}{call}: {}\n", finding.property, finding.summary);
        text.extend(finding.details.lines().map(|line| format!("  {line}\n")));
    }
    Found { title: format!("{} {}{schedule}", verdict.status.name().to_uppercase(), verdict.case), text }
}

/// What became of each algorithm and element type in each world size, a table for each collective.
fn by_algorithm(verdicts: &[Verdict]) -> Vec<Table> {
    let mut collectives: Vec<(String, Vec<table::Outcome>)> = Vec::new();
    for outcome in verdicts.iter().filter_map(table::Outcome::of) {
        let collective = outcome.algorithm.split('/').next().unwrap_or_default().to_owned();
        match collectives.iter_mut().find(|(known, _)| *known == collective) {
            Some((_, outcomes)) => outcomes.push(outcome),
            None => collectives.push((collective, vec![outcome])),
        }
    }
    let table = |(collective, outcomes): (String, Vec<table::Outcome>)| {
        let Outcomes { header, rows, legend } = Outcomes::of(outcomes);
        let legend = if legend.is_empty() { "passed".into() } else { legend };
        Table { title: format!("{collective}: cases by algorithm, type and ranks ({legend})"), header, left: 2, rows }
    };
    collectives.into_iter().map(table).collect()
}

/// Cases of a status by their reasons, which count as one where they differ in numbers only; none where there is no case.
fn by_reason<'a>(status: Status, cases: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Table> {
    let mut reasons: BTreeMap<String, (usize, &str, &str)> = BTreeMap::new();
    for (case, reason) in cases {
        let (count, ..) = reasons.entry(without_numbers(reason)).or_insert((0, reason, case));
        *count += 1;
    }
    let mut all: Vec<(usize, &str, &str)> = reasons.into_values().collect();
    all.sort_by_key(|(count, ..)| Reverse(*count));
    let rows = all.into_iter().map(|(count, reason, case)| vec![count.to_string(), reason.to_owned(), case.to_owned()]);
    let rows: Vec<Vec<String>> = rows.collect();
    (!rows.is_empty()).then(|| {
        let title = format!("{status}, by reason; those that differ in numbers are one");
        table(&title, &["cases", "reason of the first", "the first"], 3, rows)
    })
}

/// A text with every number as one sign.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let sign = if c.is_ascii_digit() { '#' } else { c };
        if sign != '#' || !out.ends_with('#') {
            out.push(sign);
        }
    }
    out
}

/// What the machine found and waives, by the assumption that it rests on, with an example of each.
fn races_waived(record: &Record) -> Option<Table> {
    let row = |(assumption, race): (&str, &WaivedRace)| vec![assumption.to_owned(), race.what.clone(), race.case.clone()];
    let all = Assumed::by_assumption(&record.assumed);
    let rows: Vec<Vec<String>> =
        all.iter().flat_map(|assumed| assumed.races.iter().map(|race| (&*assumed.assumption, race))).map(row).collect();
    (!rows.is_empty()).then(|| table("Races waived by the profile's assumptions", &["assumption", "what", "for example"], 3, rows))
}

/// What of the kernels was executed, and of a few kernels what was not, by source line.
fn executed(modules: &[ModuleCoverage]) -> Vec<Table> {
    if modules.is_empty() {
        return Vec::new();
    }
    let mut tables = vec![table("Code executed", &coverage::HEADER, 1, modules.iter().map(ModuleCoverage::row))];
    if modules.len() > coverage::DETAILED {
        return tables;
    }
    let line = |place: &Place| format!("{}: {place}", place.module);
    let untouched = modules.iter().flat_map(|of| &of.untouched);
    let untouched = untouched.map(|of| vec![line(&of.from), of.to_line.to_string(), of.instructions.to_string()]);
    tables.push(table("Code that no case executed", &["from", "to PTX line", "instructions"], 1, untouched));
    let one_way = modules.iter().flat_map(|of| &of.one_way);
    let one_way = one_way.map(|of| vec![line(&of.at), if of.taken { "always taken" } else { "never taken" }.into()]);
    tables.push(table("Branches that always went one way", &["branch", "went"], 2, one_way));
    let waits = modules.iter().flat_map(|of| &of.edges).map(|wait| {
        let write = wait.write.as_ref().map_or_else(|| "no other block".into(), ToString::to_string);
        vec![line(&wait.read), write, wait.reader_last.to_string(), wait.writer_last.to_string()]
    });
    tables.push(table(
        "Waits, and how often each side came last",
        &["wait", "write that ended it", "reader last", "writer last"],
        2,
        waits,
    ));
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// The cases that took longest.
fn slowest(verdicts: &[Verdict]) -> Option<Table> {
    let mut timed: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.milliseconds > 0.0).collect();
    timed.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
    let all: f64 = timed.iter().map(|verdict| verdict.milliseconds).sum();
    let rows: Vec<Vec<String>> = timed
        .iter()
        .take(SLOWEST)
        .map(|verdict| vec![verdict.case.clone(), verdict.status.to_string(), format!("{:.1}", verdict.milliseconds)])
        .collect();
    let title = format!("Slowest cases, of {:.1} s of all", all / 1000.0);
    (!rows.is_empty()).then(|| table(&title, &["case", "status", "ms"], 2, rows))
}
