//! What a run has found so far: a line of JSON for each test and each mutant, from which `--resume` goes on.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write},
    path::Path,
};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// This test fails with it.
    Caught(String),
    /// This test takes too long with it.
    TimedOut(String),
    /// As many tests came to it, and all passed.
    Survived(usize),
    /// No test comes to it.
    NotReached,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    /// What is run: a hash of the tree and of the mutants that were taken.
    Run(String),
    /// A test with no mutant on.
    Test {
        /// `BINARY TEST`.
        name: String,
        seconds: f64,
        /// The mutants that it comes to, ascending; none, if it was left out because it takes too long.
        reached: Option<Vec<u32>>,
    },
    /// A mutant, by its number.
    Mutant { number: u32, outcome: Outcome },
}

/// The file, open at its end.
pub(super) struct Journal(File);

impl Journal {
    /// Begins a run, or goes on with one: then its entries come, too.
    ///
    /// # Errors
    /// To go on: another tree, or other mutants.
    pub(super) fn open(path: &Path, run: &str, resume: bool) -> anyhow::Result<(Journal, Vec<Entry>)> {
        let text = match fs::read_to_string(path) {
            Ok(text) if resume => text,
            Err(error) if resume && error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
            _ => String::new(),
        };
        let entries = parse(&text).with_context(|| path.display().to_string())?;
        if let Some(first) = entries.first() {
            ensure!(
                *first == Entry::Run(run.to_owned()),
                "the sources or the sample have changed since {} was begun: start without --resume",
                path.display()
            );
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        // What was written in part is written again.
        let whole: String = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
        fs::write(path, whole).with_context(|| format!("cannot write {}", path.display()))?;
        let file = OpenOptions::new().append(true).open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut journal = Journal(file);
        if entries.is_empty() {
            journal.add(&Entry::Run(run.to_owned()))?;
        }
        Ok((journal, entries.into_iter().skip(1).collect()))
    }

    pub(super) fn add(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let line = serde_json::to_string(entry)? + "\n";
        self.0.write_all(line.as_bytes()).context("cannot write the journal")
    }
}

/// The lines of a journal; one at the end that was not written whole is none.
fn parse(text: &str) -> anyhow::Result<Vec<Entry>> {
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    (1..).zip(whole).map(|(number, line)| serde_json::from_str(line).with_context(|| format!("line {number}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("passmuster-journal-{name}-{}", std::process::id()))
    }

    fn entries() -> [Entry; 3] {
        [
            Entry::Test { name: "passmuster a::b".into(), seconds: 0.25, reached: Some(vec![1, 3]) },
            Entry::Test { name: "passmuster a::c".into(), seconds: 31.0, reached: None },
            Entry::Mutant { number: 3, outcome: Outcome::Caught("passmuster a::b".into()) },
        ]
    }

    /// If this fails, a run that was killed in the middle of a line starts from the beginning, or loses what it had found.
    #[test]
    fn killed_runs_go_on() {
        let path = file("resumed");
        let (mut journal, before) = Journal::open(&path, "a run", false).unwrap();
        assert_eq!(before, []);
        entries().iter().for_each(|entry| journal.add(entry).unwrap());
        journal.0.write_all(b"{\"mutant\": {\"num").unwrap();
        let (mut journal, before) = Journal::open(&path, "a run", true).unwrap();
        assert_eq!(before, entries());
        let last = Entry::Mutant { number: 4, outcome: Outcome::NotReached };
        journal.add(&last).unwrap();
        assert_eq!(Journal::open(&path, "a run", true).unwrap().1.last(), Some(&last));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn other_sources_do_not_resume() {
        let path = file("other");
        Journal::open(&path, "a run", false).unwrap();
        let Err(error) = Journal::open(&path, "another", true) else { panic!("resumed") };
        assert!(error.to_string().contains("start without --resume"), "{error}");
        assert_eq!(Journal::open(&path, "another", false).unwrap().1, []);
        fs::remove_file(path).unwrap();
    }
}
