//! One record of several: the parts of a list, which were judged one by one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Assumed, Part, Record, Selection, Source, Summary};
use crate::conformance::Verdict;

/// What a record has for a commit that nobody knows.
const UNKNOWN: &str = "unknown";

/// Whether two records are of one run, or of parts of one: the same command, sources, kind of machine and selection.
///
/// # Errors
/// What differs, for people.
pub fn same_run<C>(here: &Record<C>, recorded: &Record<C>) -> Result<(), String> {
    let pairs = [
        ("command", &recorded.kind, &here.kind),
        ("sources: commit", &recorded.source.commit, &here.source.commit),
        ("sources: PTX", &recorded.source.ptx_hash, &here.source.ptx_hash),
        ("machine", &recorded.machine.kind, &here.machine.kind),
    ];
    if let Some((what, there, here)) = pairs.into_iter().find(|(_, there, here)| there != here) {
        return Err(format!("other {what} {there}, here {here}"));
    }
    if here.source.dirty != recorded.source.dirty {
        let changed = |dirty| if dirty { "changed since the commit" } else { "as committed" };
        return Err(format!("other sources: {}, here {}", changed(recorded.source.dirty), changed(here.source.dirty)));
    }
    let [there, own] = [recorded, here].map(|record| record.source.binary.as_deref().unwrap_or("of another time"));
    let known = |source: &Source| !source.dirty && source.commit != UNKNOWN;
    // The commit of either says nothing of what has changed since.
    if there != own && !(known(&recorded.source) && known(&here.source)) {
        return Err(format!("other sources: binary {there}, here {own}"));
    }
    let mut machines = here.machine.differences(&recorded.machine);
    // A part of which no case needs NCCL does not load it.
    let [there, own] = [recorded, here].map(|record| &record.machine.nccl);
    if there != own && !there.is_empty() && !own.is_empty() {
        machines.push(format!("NCCL {there}, here {own}"));
    }
    if !machines.is_empty() {
        return Err(format!("other machine: {}", machines.join("; ")));
    }
    same_selection(here, recorded)
}

/// Whether two records were asked for the same, of the same kind of machine, whatever their sources.
///
/// # Errors
/// What differs, for people.
pub fn same_question<C>(here: &Record<C>, recorded: &Record<C>) -> Result<(), String> {
    let pairs = [("command", &recorded.kind, &here.kind), ("machine", &recorded.machine.kind, &here.machine.kind)];
    if let Some((what, there, here)) = pairs.into_iter().find(|(_, there, here)| there != here) {
        return Err(format!("other {what} {there}, here {here}"));
    }
    same_selection(here, recorded)
}

fn same_selection<C>(here: &Record<C>, recorded: &Record<C>) -> Result<(), String> {
    match (&recorded.selection, &here.selection) {
        (Some(recorded), Some(here)) => match here.differs(recorded) {
            Some(differs) => Err(format!("other selection: {differs}")),
            None => Ok(()),
        },
        _ => Err("a record without a selection: it is older, or its command has none".into()),
    }
}

/// Puts the parts of a list together; each has a name for people. One record that is whole comes back as it is.
///
/// # Errors
/// Parts that are missing, that are there twice, that did not come to their end, or that are not of one run: which, and why.
pub fn merge(records: Vec<(String, Record)>) -> Result<Record, String> {
    for (name, record) in &records {
        if let Some(partial) = &record.partial {
            let (judged, of) = (partial.judged, partial.of);
            return Err(format!("{name} has {judged} of {of} cases: `--resume {name}` judges the rest"));
        }
    }
    if let [(_, whole)] = &records[..]
        && whole.selection.as_ref().is_none_or(|selection| selection.part.is_none())
    {
        return Ok(whole.clone());
    }
    let parts = in_order(records)?;
    let cases = interleaved(&parts)?;
    Ok(together(parts, cases))
}

/// The parts, from the first to the last.
fn in_order(records: Vec<(String, Record)>) -> Result<Vec<Record>, String> {
    let mut parts: BTreeMap<usize, (String, Record)> = BTreeMap::new();
    let mut all = 0;
    for (name, mut record) in records {
        let Some(part) = record.selection.as_mut().and_then(|selection| selection.part.take()) else {
            return Err(format!("{name} is no part: `--part K/N` makes parts"));
        };
        if let Some(limit) = record.selection.as_ref().and_then(|selection| selection.limit) {
            return Err(format!("{name} has at most {limit} cases of part {part}: with --limit there are gaps"));
        }
        let Part { number, of } = part;
        if let Some((first_name, first)) = parts.values().next() {
            same_run(first, &record).map_err(|why| format!("{name} does not go with {first_name}: {why}"))?;
            if of != all {
                return Err(format!("{name} is part {part}, {first_name} is one of {all}"));
            }
        }
        all = of;
        if let Some((other, _)) = parts.insert(number, (name.clone(), record)) {
            return Err(format!("{other} and {name} are both part {part}"));
        }
    }
    match (1..=all).find(|number| !parts.contains_key(number)) {
        Some(missing) => Err(format!("part {missing}/{all} is missing")),
        None => Ok(parts.into_values().map(|(_, record)| record).collect()),
    }
}

/// The cases of all parts, in the order of the list of which they took turns.
fn interleaved(parts: &[Record]) -> Result<Vec<Verdict>, String> {
    let total: usize = parts.iter().map(|part| part.cases.len()).sum();
    for (index, part) in parts.iter().enumerate() {
        let (has, should) = (part.cases.len(), (total + parts.len() - 1 - index) / parts.len());
        if has != should {
            return Err(format!("part {}/{} has {has} cases, of {total} it should have {should}", index + 1, parts.len()));
        }
    }
    Ok((0..total).map(|at| parts[at % parts.len()].cases[at / parts.len()].clone()).collect())
}

/// One record of parts and of their cases.
fn together(mut parts: Vec<Record>, cases: Vec<Verdict>) -> Record {
    let notes: Vec<String> = parts.iter_mut().flat_map(|part| std::mem::take(&mut part.notes)).collect();
    let seconds = parts.iter().map(|part| part.seconds).sum();
    let date = parts.iter().map(|part| part.date.clone()).max().unwrap_or_default();
    // A part that has loaded NCCL says more of the machine.
    let at = parts.iter().rposition(|part| !part.machine.nccl.is_empty()).unwrap_or(parts.len() - 1);
    let modules = parts.iter_mut().flat_map(|part| std::mem::take(&mut part.source.modules)).collect();
    let assumed: Vec<Assumed> = parts.iter_mut().flat_map(|part| std::mem::take(&mut part.assumed)).collect();
    let mut whole = parts.swap_remove(at);
    whole.source.modules = modules;
    whole.assumed = Assumed::together(assumed);
    if whole.selection.as_ref().is_none_or(|selection| selection.kernel.is_none()) {
        Assumed::shorten(&mut whole.assumed);
    }
    (whole.seconds, whole.date) = (seconds, date);
    whole.summary = Summary::of(cases.iter().map(|verdict| verdict.status));
    whole.notes = whole.selection.iter().map(|selection| first_note(cases.len(), seconds, selection)).collect();
    for note in notes.into_iter().filter(|note| !is_first_note(note)) {
        if let Some(known) = whole.notes.iter_mut().find(|known| is_not_compared(known) && is_not_compared(&note)) {
            let all: BTreeSet<&str> = [&**known, &note].into_iter().filter_map(forms).flat_map(|forms| forms.split(", ")).collect();
            *known = not_compared(all);
        } else if !whole.notes.contains(&note) {
            whole.notes.push(note);
        }
    }
    whole.cases = cases;
    whole
}

/// The note that says how many cases, in which time, of what: the first of a record of verdicts. A run that asks for the same judges the same.
pub fn first_note(cases: usize, seconds: Option<f64>, selection: &Selection) -> String {
    let except = selection.except.as_ref().map(|except| format!(", except {except}")).unwrap_or_default();
    let limit = selection.limit.map(|limit| format!(", limit {limit}")).unwrap_or_default();
    let part = selection.part.map(|part| format!(", part {part}")).unwrap_or_default();
    let time = seconds.map(|seconds| format!(" in {seconds:.1} s")).unwrap_or_default();
    format!("{cases} cases{time}, query {}{except}{limit}{part}, seed {}", selection.query, selection.seed)
}

fn is_first_note(note: &str) -> bool {
    note.split_once(" cases").is_some_and(|(number, rest)| number.parse::<usize>().is_ok() && rest.contains(", query "))
}

const NOT_COMPARED: &str = "forms not compared with hardware: ";

/// The note that says which instruction forms of the cases' kernels were not compared with hardware.
pub fn not_compared<'a>(forms: impl IntoIterator<Item = &'a str>) -> String {
    format!("{NOT_COMPARED}{}", forms.into_iter().collect::<Vec<_>>().join(", "))
}

/// Whether a note is [that](not_compared).
pub fn is_not_compared(note: &str) -> bool {
    forms(note).is_some()
}

fn forms(note: &str) -> Option<&str> {
    note.strip_prefix(NOT_COMPARED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Status, report::Source};
    use passmuster_plan::machine::{MachineInfo, Waived};

    /// A part of a list of `cases` cases, of which the second is waived something.
    fn part(number: usize, of: usize, cases: usize) -> (String, Record) {
        let part = Part { number, of };
        let verdict = |n: usize| {
            let mut verdict = Verdict::without_checks(format!("case {n}"), Status::Pass, "");
            let what = "race".to_owned();
            verdict.waived.push(Waived { assumption: "alias".into(), what, first: format!("in case {n}"), times: 2, places: Vec::new() });
            verdict
        };
        let mut verdicts = part.take((0..cases).map(verdict).collect());
        let assumed = Assumed::of(&mut verdicts, &[], |_| vec!["push".to_owned()]);
        let source = Source { commit: "0".into(), dirty: false, binary: None, ptx_hash: "0".into(), modules: BTreeMap::new() };
        let mut record = Record::of_verdicts("validate", MachineInfo::default(), source, verdicts);
        record.seconds = Some(number as f64);
        let selection = Selection { query: "merge".into(), part: Some(part), ..Selection::default() };
        record.notes.push(first_note(record.cases.len(), record.seconds, &selection));
        record.assumed = assumed;
        record.notes.push("every case ran under one schedule".into());
        record.notes.push(not_compared(["add", if number == 1 { "mul" } else { "fma" }]));
        record.selection = Some(selection);
        (format!("{number}.json"), record)
    }

    /// If this fails, a list that was judged in parts is not the list.
    #[test]
    fn parts_make_one_record_in_the_order_of_the_list() {
        let merged = merge(vec![part(2, 3, 8), part(3, 3, 8), part(1, 3, 8)]).unwrap();
        let cases: Vec<&str> = merged.cases.iter().map(|verdict| verdict.case.as_str()).collect();
        assert_eq!(cases, ["case 0", "case 1", "case 2", "case 3", "case 4", "case 5", "case 6", "case 7"]);
        assert_eq!((merged.summary.total, merged.seconds, merged.selection.as_ref().unwrap().part), (8, Some(6.0), None));
        let waived: Vec<String> = merged.assumed.iter().flat_map(Assumed::lines).collect();
        assert_eq!(waived, ["waived by `alias`: race (16 times in 8 cases)"]);
        let notes = [
            "8 cases in 6.0 s, query merge, seed 0",
            "every case ran under one schedule",
            "forms not compared with hardware: add, fma, mul",
        ];
        assert_eq!(merged.notes, notes);
        assert_eq!(merge(vec![("whole.json".into(), merged.clone())]).unwrap(), merged);
    }

    /// If this fails, a list that is judged again as a record's note says has cases that the record left out, of minutes each.
    #[test]
    fn the_first_note_says_what_was_left_out() {
        let selection =
            Selection { query: "merge".into(), except: Some("*:*,*:n=1073741833".into()), limit: Some(300), ..Selection::default() };
        let note = first_note(8, Some(6.0), &selection);
        assert_eq!(note, "8 cases in 6.0 s, query merge, except *:*,*:n=1073741833, limit 300, seed 0");
        assert!(is_first_note(&note));
    }

    /// If this fails, a record says that a list was judged of which cases are missing, or of which others were judged.
    #[test]
    fn what_is_not_all_of_one_list_is_refused() {
        let refused = |records| merge(records).unwrap_err();
        let changed = |change: fn(&mut Record)| {
            let mut second = part(2, 2, 8);
            change(&mut second.1);
            merge(vec![part(1, 2, 8), second]).map(|_| ()).unwrap_err()
        };
        assert_eq!(refused(vec![part(1, 3, 8), part(3, 3, 8)]), "part 2/3 is missing");
        assert_eq!(refused(vec![part(1, 2, 8)]), "part 2/2 is missing");
        assert_eq!(refused(vec![part(1, 2, 8), part(1, 2, 8)]), "1.json and 1.json are both part 1/2");
        assert_eq!(refused(vec![part(1, 2, 8), part(2, 3, 8)]), "2.json is part 2/3, 1.json is one of 2");
        assert_eq!(refused(vec![part(1, 2, 9), part(2, 2, 7)]), "part 1/2 has 5 cases, of 8 it should have 4");
        let other = "2.json does not go with 1.json: other ";
        assert_eq!(changed(|record| record.source.commit = "1".into()), format!("{other}sources: commit 1, here 0"));
        assert_eq!(changed(|record| record.source.ptx_hash = "1".into()), format!("{other}sources: PTX 1, here 0"));
        let of_binary = |binary: &str| Record {
            source: Source { dirty: true, binary: Some(binary.into()), ..part(1, 2, 4).1.source },
            ..part(1, 2, 4).1
        };
        let [one, other_build] = [of_binary("xxh3:1"), of_binary("xxh3:2")];
        assert_eq!(same_run(&one, &one.clone()), Ok(()));
        assert_eq!(same_run(&one, &other_build).unwrap_err(), "other sources: binary xxh3:2, here xxh3:1");
        let unknown = |record: Record| Record { source: Source { commit: UNKNOWN.into(), dirty: false, ..record.source }, ..record };
        assert!(same_run(&unknown(one), &unknown(other_build)).is_err());
        assert_eq!(changed(|record| record.source.dirty = true), format!("{other}sources: changed since the commit, here as committed"));
        assert_eq!(changed(|record| record.machine.kind = "cuda".into()), format!("{other}machine cuda, here "));
        assert_eq!(changed(|record| record.machine.gpus = 2), format!("{other}machine: number of GPUs 2, here 0"));
        assert_eq!(changed(|record| record.selection.as_mut().unwrap().seed = 7), format!("{other}selection: seed 7, here 0"));
        let partial = changed(|record| record.partial = Some(super::super::Partial { judged: 1, of: 4, why: "SIGINT".into() }));
        assert_eq!(partial, "2.json has 1 of 4 cases: `--resume 2.json` judges the rest");
        assert_eq!(changed(|record| record.selection = None), "2.json is no part: `--part K/N` makes parts");
        let limited = changed(|record| record.selection.as_mut().unwrap().limit = Some(3));
        assert_eq!(limited, "2.json has at most 3 cases of part 2/2: with --limit there are gaps");
    }
}
