//! The record of a run, and what of it holds for the sources that there are.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::{journal::Outcome, mutate, sample::Candidate};

/// The committed record.
pub(super) const RECORD: &str = "fixtures/records/judge-mutants.json";

/// Mutants that do nothing wrong, with the reason.
pub(super) const EQUIVALENTS: &str = "fixtures/judge-equivalents.toml";

/// What the judge's mutants came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    schema: u32,
    kind: String,
    source: Source,
    /// The files that were mutated, with the hashes of their code.
    pub(super) files: BTreeMap<String, String>,
    pub(super) summary: Summary,
    pub(super) cases: Vec<Case>,
}

/// What was tested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Source {
    pub(super) commit: String,
    pub(super) dirty: bool,
    /// The judge has no kernels.
    ptx_hash: String,
}

/// How many mutants came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Summary {
    pub(super) total: usize,
    pub(super) caught: usize,
    pub(super) equivalent: usize,
    pub(super) survived: usize,
    pub(super) not_reached: usize,
}

/// A mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) file: String,
    pub(super) line: usize,
    function: String,
    change: String,
    text: String,
    #[serde(default, skip_serializing_if = "is_first")]
    nth: usize,
    pub(super) verdict: Verdict,
    /// The test that catches it; why it does nothing wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Caught,
    TimedOut,
    Equivalent,
    Survived,
    NotReached,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Equivalents {
    #[serde(default)]
    equivalent: Vec<Equivalent>,
}

/// A mutant that does nothing wrong.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Equivalent {
    file: String,
    function: String,
    change: String,
    text: String,
    #[serde(default)]
    nth: usize,
    reason: String,
}

fn is_first(nth: &usize) -> bool {
    *nth == 0
}

impl Equivalent {
    fn is(&self, case: &Case) -> bool {
        (&self.file, &self.function, &self.change, &self.text, self.nth) == (&case.file, &case.function, &case.change, &case.text, case.nth)
    }
}

impl Case {
    pub(super) fn new(candidate: &Candidate, outcome: &Outcome) -> Case {
        let (verdict, by) = match outcome {
            Outcome::Caught(by) => (Verdict::Caught, by.clone()),
            Outcome::TimedOut(by) => (Verdict::TimedOut, by.clone()),
            Outcome::Survived(_) => (Verdict::Survived, String::new()),
            Outcome::NotReached => (Verdict::NotReached, String::new()),
        };
        let of = &candidate.mutation;
        let (function, change, text) = (of.function.clone(), of.change.clone(), of.text.clone());
        Case { file: candidate.file.clone(), line: of.line, function, change, text, nth: candidate.nth, verdict, by }
    }

    pub(super) fn is_missed(&self) -> bool {
        matches!(self.verdict, Verdict::Survived | Verdict::NotReached)
    }

    /// Whether it is the same mutant, whatever became of it.
    fn is_same(&self, other: &Case) -> bool {
        (&self.file, &self.function, &self.change, &self.text, self.nth)
            == (&other.file, &other.function, &other.change, &other.text, other.nth)
    }

    /// The mutant, in a line.
    pub(super) fn shown(&self) -> String {
        super::line(&self.file, self.line, &self.function, &self.change, &self.text)
    }
}

impl Summary {
    fn of(cases: &[Case]) -> Summary {
        let count = |is: &[Verdict]| cases.iter().filter(|case| is.contains(&case.verdict)).count();
        Summary {
            total: cases.len(),
            caught: count(&[Verdict::Caught, Verdict::TimedOut]),
            equivalent: count(&[Verdict::Equivalent]),
            survived: count(&[Verdict::Survived]),
            not_reached: count(&[Verdict::NotReached]),
        }
    }

    /// Caught ones in a hundred, of those that do something wrong.
    pub(super) fn score(&self) -> f64 {
        let wrong = self.total - self.equivalent;
        if wrong == 0 { 100.0 } else { 100.0 * self.caught as f64 / wrong as f64 }
    }
}

impl Record {
    /// A record of files and their cases; what `before` has of other files stays.
    pub(super) fn new(source: Source, files: BTreeMap<String, String>, mut cases: Vec<Case>, before: Option<Record>) -> Record {
        let mut all = BTreeMap::new();
        if let Some(before) = before {
            cases.extend(before.cases.into_iter().filter(|case| !files.contains_key(&case.file)));
            all.extend(before.files);
        }
        all.extend(files);
        cases.sort_by(|a, b| (&a.file, a.line, &a.text, &a.change, a.nth).cmp(&(&b.file, b.line, &b.text, &b.change, b.nth)));
        Record { schema: 2, kind: "judge-mutants".into(), source, files: all, summary: Summary::of(&cases), cases }
    }

    /// # Errors
    /// It cannot be read, or is another record.
    pub(super) fn read(path: &Path) -> anyhow::Result<Record> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let record: Record =
            serde_json::from_str(&text).with_context(|| format!("{} is no record of the judge's mutants", path.display()))?;
        ensure!(record.kind == "judge-mutants", "{} is a record of {}", path.display(), record.kind);
        Ok(record)
    }

    /// Takes the mutants that do nothing wrong for what they are.
    ///
    /// # Errors
    /// One of them is caught, or is none of the record's though its file has not changed.
    pub(super) fn argue(&mut self, equivalents: &[Equivalent]) -> anyhow::Result<()> {
        for equivalent in equivalents {
            let Some(case) = self.cases.iter_mut().find(|case| equivalent.is(case)) else { continue };
            ensure!(
                case.is_missed() || case.verdict == Verdict::Equivalent,
                "{EQUIVALENTS} has {} as equivalent, and {} catches it",
                case.shown(),
                case.by
            );
            (case.verdict, case.by) = (Verdict::Equivalent, equivalent.reason.clone());
        }
        self.summary = Summary::of(&self.cases);
        Ok(())
    }

    /// Equivalents that are no mutant of the record.
    pub(super) fn unknown<'e>(&self, equivalents: &'e [Equivalent]) -> Vec<&'e Equivalent> {
        equivalents.iter().filter(|equivalent| !self.cases.iter().any(|case| equivalent.is(case))).collect()
    }

    /// The files that are not what they were, or that have mutants and that the record does not have.
    ///
    /// # Errors
    /// One of them is no Rust.
    pub(super) fn stale<'f>(&self, files: &'f BTreeMap<String, String>) -> anyhow::Result<Vec<&'f str>> {
        let mut stale = Vec::new();
        for (file, text) in files {
            let is_fresh = match self.files.get(file) {
                Some(hash) => *hash == hash_of_code(file, text)?,
                None => mutate::mutations(text).with_context(|| file.clone())?.is_empty(),
            };
            if !is_fresh {
                stale.push(file.as_str());
            }
        }
        Ok(stale)
    }

    /// Takes what became of mutants that ran again.
    pub(super) fn renew(&mut self, source: Source, cases: Vec<Case>) {
        for case in cases {
            if let Some(before) = self.cases.iter_mut().find(|before| before.is_same(&case)) {
                *before = case;
            }
        }
        self.source = source;
        self.summary = Summary::of(&self.cases);
    }

    /// Whether a mutant is one of those that were missed.
    pub(super) fn missed(&self, candidate: &Candidate) -> bool {
        let this = Case::new(candidate, &Outcome::NotReached);
        self.cases.iter().any(|case| case.is_missed() && case.is_same(&this))
    }

    /// Drops files that are gone.
    pub(super) fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.files.retain(|file, _| is_there(file));
        self.cases.retain(|case| is_there(&case.file));
        self.summary = Summary::of(&self.cases);
    }

    /// The record as it is written: a line for each field, and for each element of a field that is a list.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let Value::Object(fields) = serde_json::to_value(self)? else { unreachable!("a struct is an object") };
        let order = ["schema", "kind", "source", "files", "summary", "cases"];
        let field = |name: &str| -> anyhow::Result<String> {
            let value = match (&fields[name], name) {
                (_, "cases") => {
                    let lines: Vec<String> = self.cases.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
                    format!("[\n{}\n]", lines.join(",\n"))
                }
                (Value::Object(files), "files") => {
                    let lines: Vec<String> = files.iter().map(|(file, hash)| format!("\"{file}\": {hash}")).collect();
                    format!("{{\n{}\n}}", lines.join(",\n"))
                }
                (value, _) => value.to_string(),
            };
            Ok(format!("\"{name}\": {value}"))
        };
        let lines: Vec<String> = order.iter().map(|name| field(name)).collect::<anyhow::Result<_>>()?;
        Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
    }
}

impl Source {
    pub(super) fn new(commit: String, dirty: bool) -> Source {
        Source { commit, dirty, ptx_hash: String::new() }
    }
}

/// The hash of a file's code: comments, tests and imports do not count.
///
/// # Errors
/// It is no Rust.
pub(super) fn hash_of_code(file: &str, text: &str) -> anyhow::Result<String> {
    Ok(hash(&mutate::code(text).with_context(|| file.to_owned())?))
}

/// The hash of a text.
pub(super) fn hash(text: &str) -> String {
    format!("{:016x}", xxh3_64(text.as_bytes()))
}

/// # Errors
/// What is wrong with the text, and where.
pub(super) fn equivalents(text: &str) -> anyhow::Result<Vec<Equivalent>> {
    let all: Equivalents = toml::from_str(text).context(EQUIVALENTS)?;
    for equivalent in &all.equivalent {
        ensure!(!equivalent.reason.trim().is_empty(), "{EQUIVALENTS}: no reason for `{}` in {}", equivalent.change, equivalent.function);
    }
    Ok(all.equivalent)
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    const FILE: &str = "crates/harness/src/conformance/oracle.rs";

    fn record(before: Option<Record>) -> Record {
        let text = "fn f(a: u8) -> u8 {\n    g(a < b)\n}\nfn h() { i(); }";
        let files: BTreeMap<String, String> = [(FILE.to_owned(), text.to_owned())].into();
        let all = sample::candidates(&files).unwrap();
        let outcomes =
            [Outcome::Caught("passmuster a::b".into()), Outcome::Survived(3), Outcome::TimedOut("c".into()), Outcome::NotReached];
        let cases = all.iter().zip(&outcomes).map(|(candidate, outcome)| Case::new(candidate, outcome)).collect();
        let files = files.iter().map(|(file, text)| (file.clone(), hash_of_code(file, text).unwrap())).collect();
        Record::new(Source::new("abc".into(), false), files, cases, before)
    }

    const ARGUED: &str = "[[equivalent]]\nfile = 'crates/harness/src/conformance/oracle.rs'\nfunction = 'f'\nchange = '`<` to `>`'\n\
                          text = 'a < b'\nreason = 'b is never there'";

    #[test]
    fn score_counts_what_is_wrong() {
        let mut record = record(None);
        assert_eq!(record.summary, Summary { total: 4, caught: 2, equivalent: 0, survived: 1, not_reached: 1 });
        assert_eq!(record.summary.score(), 50.0);
        record.argue(&equivalents(ARGUED).unwrap()).unwrap();
        assert_eq!(record.summary, Summary { total: 4, caught: 2, equivalent: 1, survived: 0, not_reached: 1 });
        assert!(record.summary.score() > 66.0);
        assert!(record.unknown(&equivalents(ARGUED).unwrap()).is_empty());
    }

    /// If this fails, a mutant that a test catches counts as one that does nothing wrong.
    #[test]
    fn caught_mutants_are_not_equivalent() {
        let caught = equivalents(&ARGUED.replace("`>`", "`<=`")).unwrap();
        let error = record(None).argue(&caught).unwrap_err();
        assert!(error.to_string().ends_with("and passmuster a::b catches it"), "{error}");
        let gone = equivalents(&ARGUED.replace("'f'", "'g'")).unwrap();
        assert_eq!(record(None).unknown(&gone).len(), 1);
        assert!(equivalents(&ARGUED.replace("b is never there", " ")).is_err());
    }

    #[test]
    fn text_reads_back() {
        let record = record(None);
        let text = record.text().unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        assert_eq!(text.lines().filter(|line| line.starts_with("{\"file\"")).count(), 4, "{text}");
    }

    #[test]
    fn changed_files_are_stale() {
        let record = record(None);
        let files = |text: &str| [(FILE.to_owned(), text.to_owned())].into();
        assert_eq!(record.stale(&files("fn f(a: u8) -> u8 {\n    g(a < b)\n}\nfn h() { i(); }")).unwrap(), [""; 0]);
        assert_eq!(record.stale(&files("fn f() {}")).unwrap(), [FILE]);
        let other = |text: &str| [("other.rs".to_owned(), text.to_owned())].into();
        assert_eq!(record.stale(&other("fn f() { g(); }")).unwrap(), ["other.rs"]);
        assert_eq!(record.stale(&other("struct Nothing;")).unwrap(), [""; 0], "it has no mutants");
    }

    /// If this fails, a test that was written for a mutant changes nothing in the record, or loses the others.
    #[test]
    fn missed_mutants_run_again() {
        let mut record = record(None);
        let mut again = record.cases.iter().find(|case| case.verdict == Verdict::Survived).unwrap().clone();
        (again.verdict, again.by) = (Verdict::Caught, "passmuster c::d".into());
        record.renew(Source::new("def".into(), false), vec![again]);
        assert_eq!(record.summary, Summary { total: 4, caught: 3, equivalent: 0, survived: 0, not_reached: 1 });
        assert_eq!(record.source.commit, "def");
    }

    #[test]
    fn other_files_stay() {
        let mut before = record(None);
        before.files.insert("other.rs".into(), "0".into());
        before.cases[0].file = "other.rs".into();
        let after = record(Some(before));
        assert_eq!((after.cases.len(), after.files.len()), (5, 2));
        let mut kept = after.clone();
        kept.keep(|file| file == FILE);
        assert_eq!((kept.cases.len(), kept.summary.total), (4, 4));
    }
}
