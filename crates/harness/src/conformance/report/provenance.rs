//! Which kernels a record rests on, whether they are still what they were, and which parts of documents were made from it.
//!
//! A document says which records a part of it was made from in a comment, `<!-- records: NAME NAME -->`, on a line of its own before it. Where kernels
//! have changed since, the next line must say which: the mark, which [`marked`] writes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Source;
use crate::conformance::{Case, Status, Verdict};
use passmuster_plan::{algorithms::Registry, library::Library};

/// Whether the kernels that a record rests on are still what they were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Freshness {
    /// They are, or it rests on none.
    Fresh,
    /// These are not, or no longer there: names as [`passmuster_plan::modules::file_name`] has them.
    Stale(Vec<String>),
    /// The record does not say which they are.
    Unknown,
}

impl Freshness {
    /// What is to be said of a record of a kind, where the kernels are those of a library. Ledgers rest on kernels that are generated from the table of forms, and on none of ours.
    pub fn of(kind: &str, source: &Source, library: &Library) -> Freshness {
        if source.modules.is_empty() {
            return if ["judge-mutants", "ledger", "litmus", "museum"].contains(&kind) { Freshness::Fresh } else { Freshness::Unknown };
        }
        match library.changed_since(&source.modules) {
            changed if changed.is_empty() => Freshness::Fresh,
            changed => Freshness::Stale(changed),
        }
    }

    /// The kernels that have changed.
    pub fn changed(&self) -> &[String] {
        if let Freshness::Stale(changed) = self { changed } else { &[] }
    }
}

/// The kernel modules that a verdict rests on: what its case launches, if it ran. None where there is no such case any more.
pub fn modules_of(registry: &Registry, verdict: &Verdict, waiting_blocks: u32) -> Option<BTreeSet<String>> {
    if matches!(verdict.status, Status::NotSupported | Status::NotRun) {
        return Some(BTreeSet::new());
    }
    Some(Case::resolve(&verdict.case, registry).ok()?.modules(registry, waiting_blocks))
}

/// The module of a name in a record, whether it is of a text with stalls or, in old records, of one of several builds: `all_reduce/push.checked`.
fn module_of(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// A part of a document that was made from records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quote {
    /// The line of the comment that says so, counted from 1.
    pub line: usize,
    /// Names of the records, without `.json`.
    pub records: Vec<String>,
    /// What follows, up to the next such comment, without the mark.
    pub text: String,
    mark: Option<String>,
}

const OPENS: &str = "<!-- records: ";
const CLOSES: &str = " -->";
const MARK: &str = "*Kernels have changed since: ";

/// The records that a line names, where it is such a comment.
fn named(line: &str) -> Option<Vec<String>> {
    let names = line.trim().strip_prefix(OPENS)?.strip_suffix(CLOSES)?;
    Some(names.split_whitespace().map(str::to_owned).collect())
}

/// All parts of a document that say that they were made from records.
pub fn quotes(document: &str) -> Vec<Quote> {
    let mut quotes: Vec<Quote> = Vec::new();
    for (number, line) in (1..).zip(document.lines()) {
        if let Some(records) = named(line) {
            quotes.push(Quote { line: number, records, text: String::new(), mark: None });
        } else if let Some(last) = quotes.last_mut() {
            if number == last.line + 1 && line.trim_start().starts_with(MARK) {
                last.mark = Some(line.trim().to_owned());
            } else {
                last.text.push_str(line);
                last.text.push('\n');
            }
        }
    }
    quotes
}

/// The comment that stands before what was made from these records.
pub fn comment<'n>(records: impl IntoIterator<Item = &'n String>) -> String {
    let names: Vec<&str> = records.into_iter().map(String::as_str).collect();
    format!("{OPENS}{}{CLOSES}", names.join(" "))
}

impl Quote {
    /// The kernels that have changed since any of its records, by `changed`: what has changed since the record of a name.
    pub fn changed(&self, changed: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
        self.records.iter().filter_map(|name| changed.get(name)).flatten().map(|name| module_of(name).to_owned()).collect()
    }

    /// Whether it says of exactly these kernels that they have changed.
    pub fn says(&self, changed: &BTreeSet<String>) -> bool {
        self.mark == mark(changed)
    }
}

/// Names of kernels that a mark lists at most. Of more it has the number, and `cargo xtask records` the names.
const MOST_NAMES: usize = 4;

/// What must be said where these kernels have changed, if any have.
fn mark(changed: &BTreeSet<String>) -> Option<String> {
    let names: Vec<String> = changed.iter().map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => None,
        1..=MOST_NAMES => Some(format!("{MARK}{}.*", names.join(", "))),
        many => Some(format!("{MARK}{many}.*")),
    }
}

/// The document with the marks that it must have. `changed` has, for each record, the kernels that have changed since.
///
/// ```
/// use passmuster_harness::conformance::report::provenance::marked;
/// let changed = [("h200".to_owned(), vec!["all_reduce/push".to_owned()])].into();
/// let document = "<!-- records: h200 -->\nall_reduce: 3 us\n";
/// let says = "<!-- records: h200 -->\n*Kernels have changed since: `all_reduce/push`.*\nall_reduce: 3 us\n";
/// assert_eq!(marked(document, &changed), says);
/// assert_eq!(marked(says, &[].into()), document);
/// ```
pub fn marked(document: &str, changed: &BTreeMap<String, Vec<String>>) -> String {
    let mut text = String::with_capacity(document.len());
    let mut quotes = quotes(document).into_iter().peekable();
    let mut is_mark = false;
    for (number, line) in (1..).zip(document.lines()) {
        if std::mem::take(&mut is_mark) {
            continue;
        }
        text.push_str(line);
        text.push('\n');
        if let Some(quote) = quotes.next_if(|quote| quote.line == number) {
            is_mark = quote.mark.is_some();
            if let Some(mark) = mark(&quote.changed(changed)) {
                let indentation = &line[..line.len() - line.trim_start().len()];
                text.push_str(indentation);
                text.push_str(&mark);
                text.push('\n');
            }
        }
    }
    text
}

/// The lines of a document, counted from 1, that name the file of a record (`NAME.json`) in a part that does not say that it was made from it.
pub fn mentioned<'n>(document: &str, records: impl IntoIterator<Item = &'n String> + Clone) -> Vec<(usize, &'n str)> {
    let mut of: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for (number, line) in (1..).zip(document.lines()) {
        match named(line) {
            Some(names) => of = names,
            None => {
                let here = records.clone().into_iter().filter(|name| line.contains(&format!("{name}.json")) && !of.contains(name));
                found.extend(here.map(|name| (number, name.as_str())));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;
    use passmuster_plan::modules::code_hash;

    fn source(modules: BTreeMap<String, String>) -> Source {
        Source { commit: "0".into(), dirty: false, binary: None, ptx_hash: String::new(), modules }
    }

    fn freshness(kind: &str, source: &Source) -> Freshness {
        Freshness::of(kind, source, &REGISTRY.library())
    }

    fn hashes_of(case: &str) -> BTreeMap<String, String> {
        REGISTRY.library().hashes(&case.parse::<Case>().unwrap().modules(&REGISTRY, 16))
    }

    /// If this fails, a record is fresh though a kernel that its cases launched has changed, or stale because of one that they did not.
    #[test]
    fn a_record_is_stale_when_a_kernel_that_it_ran_has_changed() {
        let modules = hashes_of("all_reduce/two_shot:bf16,sum:w=2:n=40:skew=r1+20us@end");
        assert_eq!(modules.keys().collect::<Vec<_>>(), ["all_reduce/two_shot.stalls", "conformance/fill"]);
        assert_eq!(freshness("validate", &source(modules.clone())), Freshness::Fresh);
        let mut other = modules.clone();
        other.insert("all_reduce/two_shot.stalls".into(), code_hash("another"));
        assert_eq!(freshness("validate", &source(other)), Freshness::Stale(vec!["all_reduce/two_shot.stalls".into()]));
        let mut from_elsewhere = modules.clone();
        from_elsewhere.insert("foreign/mine/kernel.ptx".into(), code_hash("mine"));
        assert_eq!(freshness("test-gpu", &source(from_elsewhere)), Freshness::Fresh);
        let mut gone = modules;
        gone.insert("all_reduce/forgotten".into(), code_hash(""));
        assert_eq!(freshness("bench", &source(gone)).changed(), ["all_reduce/forgotten"]);
        assert_eq!(freshness("bench", &source(BTreeMap::new())), Freshness::Unknown);
        assert_eq!(freshness("ledger", &source(BTreeMap::new())), Freshness::Fresh);
    }

    /// If this fails, two modules, or a module with stalls and the one without, are taken for each other.
    #[test]
    fn every_text_has_a_hash_of_its_own() {
        let all: BTreeSet<String> = REGISTRY.modules().iter().flat_map(|of| [of.name.to_owned(), of.name_with_stalls()]).collect();
        let hashes = REGISTRY.library().hashes(&all);
        assert_eq!(hashes.len(), all.len());
        assert_eq!(hashes.values().collect::<BTreeSet<_>>().len(), all.len());
        let mut library = REGISTRY.library();
        library.replace("all_reduce/push", "another");
        assert_ne!(library.hashes(&all)["all_reduce/push"], hashes["all_reduce/push"]);
    }

    #[test]
    fn what_did_not_run_rests_on_nothing() {
        let verdict = |status| Verdict::without_checks("all_reduce/push:f32,sum:w=2:n=4", status, "");
        assert_eq!(modules_of(&REGISTRY, &verdict(Status::NotSupported), 16), Some(BTreeSet::new()));
        assert!(modules_of(&REGISTRY, &verdict(Status::Fail), 16).unwrap().contains("all_reduce/push"));
        assert_eq!(modules_of(&REGISTRY, &Verdict::without_checks("all_reduce/forgotten:f32,sum:w=2:n=4", Status::Pass, ""), 16), None);
    }

    /// If this fails, a figure stands unmarked though its kernels have changed, or a mark stays when they are measured again.
    #[test]
    fn marks_come_and_go() {
        let changed = |names: &[&str]| -> BTreeMap<String, Vec<String>> {
            [("a".to_owned(), names.iter().map(|&name| name.to_owned()).collect())].into()
        };
        let plain = "head\n  <!-- records: b a -->\n  text\n<!-- records: b -->\n\n| table |\n";
        let both = changed(&["all_reduce/push", "all_reduce/push.checked", "all_gather/ll"]);
        let says = "head\n  <!-- records: b a -->\n  *Kernels have changed since: `all_gather/ll`, `all_reduce/push`.*\n  text\n<!-- records: b -->\n\n| table |\n";
        assert_eq!(marked(plain, &both), says);
        assert_eq!(marked(says, &both), says);
        assert_eq!(marked(says, &changed(&["all_gather/ll"])), says.replace(", `all_reduce/push`", ""));
        assert_eq!(marked(says, &changed(&[])), plain);
        let many = marked(plain, &changed(&["a", "b", "c", "d", "e"]));
        assert!(many.contains("*Kernels have changed since: 5.*\n"), "{many}");
        assert_eq!((marked(&many, &changed(&["a", "b", "c", "d", "e"])), marked(&many, &changed(&[]))), (many.clone(), plain.to_owned()));
        let [first, second] = &quotes(says)[..] else { panic!("two quotes") };
        assert_eq!((first.line, first.records.join(" "), first.text.as_str()), (2, "b a".to_owned(), "  text\n"));
        assert!(first.says(&first.changed(&both)) && !first.says(&BTreeSet::new()));
        assert!(second.says(&second.changed(&both)) && second.text.contains("table"));
    }

    #[test]
    fn records_that_are_named_without_a_comment_are_found() {
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!(mentioned("of a.json\n<!-- records: a -->\na.json and b.json\n", &names), [(1, "a"), (3, "b")]);
    }
}
