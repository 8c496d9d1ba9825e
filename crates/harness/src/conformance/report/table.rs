//! The one table writer, and the table that ends a run: what became of each algorithm and element type in each world size.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

use crate::conformance::{Status, Verdict, runner::PEER_PATH};

/// Text columns with aligned edges, without lines. The first `left` columns are flush left, the others flush right.
///
/// ```
/// let rows = [vec!["one_shot".to_owned(), "5.1".to_owned()], vec!["two_shot".to_owned(), "17.7".to_owned()]];
/// let text = passmuster_harness::conformance::report::table::aligned(&["algorithm", "us"], 1, &rows);
/// assert_eq!(text, "algorithm    us\none_shot    5.1\ntwo_shot   17.7");
/// ```
pub fn aligned(header: &[&str], left: usize, rows: &[Vec<String>]) -> String {
    text_of(columns(header, left, rows))
}

/// The same in lines of at most `width` characters: the last column is text, flush left, which goes on in the next line of its column.
///
/// ```
/// let rows = [vec!["7".to_owned(), "a bug that takes more than a line".to_owned()]];
/// let text = passmuster_harness::conformance::report::table::aligned_within(24, &["cases", "mutant"], 0, &rows);
/// assert_eq!(text, "cases  mutant\n    7  a bug that takes\n       more than a line");
/// ```
pub fn aligned_within(width: u16, header: &[&str], left: usize, rows: &[Vec<String>]) -> String {
    let mut table = columns(header, left, rows);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    let last = header.len().saturating_sub(1);
    for (index, column) in table.column_iter_mut().enumerate() {
        if index == last {
            column.set_cell_alignment(CellAlignment::Left);
        } else {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    text_of(table)
}

fn columns(header: &[&str], left: usize, rows: &[Vec<String>]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header.iter().copied());
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { 2 }, 0));
        column.set_cell_alignment(if index < left { CellAlignment::Left } else { CellAlignment::Right });
    }
    table
}

fn text_of(table: Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// One case for the table of outcomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `all_reduce/two_shot`.
    pub algorithm: String,
    /// `bf16`.
    pub dtype: String,
    /// World size.
    pub world: usize,
    /// What became of it.
    pub status: Status,
}

impl Outcome {
    /// The outcome of a verdict, by its case id; none where the id has no algorithm, element type or world size.
    pub fn of(verdict: &Verdict) -> Option<Outcome> {
        let mut parts = verdict.case.split(':');
        let algorithm = parts.next()?.to_owned();
        let dtype = parts.next()?.split(',').next()?.to_owned();
        let world = parts.find_map(|part| part.strip_prefix("w="))?.parse().ok()?;
        Some(Outcome { algorithm, dtype, world, status: verdict.status })
    }
}

/// What became of each algorithm and element type in each world size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// `algorithm`, `dtype`, and a column for each world size.
    pub header: Vec<String>,
    /// A line for each algorithm and element type. A cell says how many cases passed: `96` when all did, `95/96 F1` when one failed.
    pub rows: Vec<Vec<String>>,
    /// What the letters are; empty where all passed.
    pub legend: String,
}

/// The table that ends a run, with a legend of the letters below.
pub fn outcomes(cases: impl IntoIterator<Item = Outcome>) -> String {
    let Outcomes { header, rows, legend } = Outcomes::of(cases);
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let legend = if legend.is_empty() { legend } else { format!("\n{legend}") };
    aligned(&header, 2, &rows) + &legend
}

impl Outcomes {
    /// Counts cases.
    pub fn of(cases: impl IntoIterator<Item = Outcome>) -> Outcomes {
        let mut cells: BTreeMap<(String, String), BTreeMap<usize, BTreeMap<Status, usize>>> = BTreeMap::new();
        let mut worlds: BTreeSet<usize> = BTreeSet::new();
        let mut seen: BTreeSet<Status> = BTreeSet::new();
        for Outcome { algorithm, dtype, world, status } in cases {
            *cells.entry((algorithm, dtype)).or_default().entry(world).or_default().entry(status).or_default() += 1;
            worlds.insert(world);
            seen.insert(status);
        }

        let columns = worlds.iter().map(|world| format!("w={world}"));
        let header = ["algorithm", "dtype"].into_iter().map(str::to_owned).chain(columns).collect();
        let mut previous = String::new();
        let rows: Vec<Vec<String>> = cells
            .into_iter()
            .map(|((algorithm, dtype), by_world)| {
                let name = if algorithm == previous { String::new() } else { algorithm.clone() };
                previous = algorithm;
                let counts = worlds.iter().map(|world| by_world.get(world).map_or_else(|| "-".to_owned(), cell));
                [name, dtype].into_iter().chain(counts).collect()
            })
            .collect();

        let letters: Vec<String> =
            Status::ALL.into_iter().filter(|s| seen.contains(s) && *s != Status::Pass).map(|s| format!("{} {s}", letter(s))).collect();
        let legend = if letters.is_empty() { String::new() } else { format!("passed/cases; {}", letters.join(", ")) };
        Outcomes { header, rows, legend }
    }
}

/// A line below the table on peers of which nobody knows which path they took: how many cases, and why. None where all is known.
pub fn unchecked_paths(verdicts: &[Verdict]) -> Option<String> {
    let reasons = verdicts.iter().flat_map(|verdict| &verdict.not_applicable).filter(|(property, _)| property == PEER_PATH);
    let reasons: Vec<&str> = reasons.map(|(_, reason)| reason.as_str()).collect();
    let first = reasons.first()?;
    Some(format!("{} cases beside NCCL, of which it is not known that it took the path that was asked for: {first}", reasons.len()))
}

fn cell(counts: &BTreeMap<Status, usize>) -> String {
    let total: usize = counts.values().sum();
    let passed = counts.get(&Status::Pass).copied().unwrap_or_default();
    if passed == total {
        return total.to_string();
    }
    let others: Vec<String> = Status::ALL
        .into_iter()
        .filter(|status| *status != Status::Pass)
        .filter_map(|status| counts.get(&status).map(|count| format!("{}{count}", letter(status))))
        .collect();
    format!("{passed}/{total} {}", others.join(" "))
}

/// A status in a cell. Findings are capitals.
fn letter(status: Status) -> char {
    match status {
        Status::Pass => 'P',
        Status::Fail => 'F',
        Status::Hang => 'H',
        Status::Crash => 'C',
        Status::UnexpectedPass => 'X',
        Status::NotSupported => 's',
        Status::NotRun => 'n',
        Status::Inconclusive => 't',
        Status::Waived => 'w',
        Status::InfraError => 'i',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a run in which NCCL may have taken any path looks like one in which it took those that were asked for.
    #[test]
    fn paths_that_were_not_checked_are_told_below_the_table() {
        let mut verdicts = ["a", "b", "c"].map(|case| Verdict::without_checks(case, Status::Pass, ""));
        assert_eq!(unchecked_paths(&verdicts), None);
        for verdict in &mut verdicts[1..] {
            verdict.not_applicable = vec![("graph".into(), "no".into()), (PEER_PATH.into(), "path unchecked: no log".into())];
        }
        let told = "2 cases beside NCCL, of which it is not known that it took the path that was asked for: path unchecked: no log";
        assert_eq!(unchecked_paths(&verdicts).as_deref(), Some(told));
    }

    #[test]
    fn every_case_is_in_a_cell_and_every_letter_in_the_legend() {
        let case = |algorithm: &str, dtype: &str, world: usize, status| {
            Outcome::of(&Verdict::without_checks(format!("all_reduce/{algorithm}:{dtype},sum:w={world}:n=8"), status, "")).unwrap()
        };
        let mut cases = vec![case("two_shot", "bf16", 2, Status::Pass); 96];
        cases.extend(vec![case("two_shot", "bf16", 16, Status::Pass); 3]);
        cases.push(case("two_shot", "bf16", 16, Status::Fail));
        cases.push(case("two_shot", "bf16", 16, Status::NotSupported));
        cases.push(case("two_shot", "f32", 2, Status::Hang));
        cases.push(case("one_shot", "f32", 16, Status::Pass));
        insta::assert_snapshot!(outcomes(cases), @r"
        algorithm            dtype     w=2       w=16
        all_reduce/one_shot  f32         -          1
        all_reduce/two_shot  bf16       96  3/5 F1 s1
                             f32    0/1 H1          -
        passed/cases; F fail, H hang, s not_supported
        ");
    }

    #[test]
    fn an_id_without_a_world_has_no_cell() {
        assert_eq!(Outcome::of(&Verdict::without_checks("all_reduce/two_shot:bf16,sum", Status::Pass, "")), None);
    }

    #[test]
    fn letters_are_apart() {
        assert_eq!(Status::ALL.into_iter().map(letter).collect::<BTreeSet<_>>().len(), Status::ALL.len());
    }
}
