//! What docs/emulator/judge-mutants.md and README.md say of bugs planted in the judge, from the record of `cargo xtask judge-mutants`.

use std::{collections::BTreeMap, fmt::Write};

use anyhow::{Context, bail};
use serde_json::Value;

use super::committed::{Committed, cases, number};

const RECORD: &str = "judge-mutants";

/// What became of the mutants of a file.
#[derive(Default)]
struct Counts {
    total: usize,
    caught: usize,
    equivalent: usize,
    survived: usize,
    not_reached: usize,
}

impl Counts {
    fn add(&mut self, verdict: &str) -> anyhow::Result<()> {
        self.total += 1;
        *match verdict {
            "caught" | "timed_out" => &mut self.caught,
            "equivalent" => &mut self.equivalent,
            "survived" => &mut self.survived,
            "not_reached" => &mut self.not_reached,
            unknown => bail!("{RECORD}.json has a verdict `{unknown}`"),
        } += 1;
        Ok(())
    }

    /// Caught ones in a hundred, of those that do something wrong.
    fn score(&self) -> String {
        match self.total - self.equivalent {
            0 => "-".into(),
            wrong => format!("{:.1}", 100.0 * self.caught as f64 / wrong as f64),
        }
    }

    fn row(&self, name: &str) -> String {
        let Counts { total, caught, equivalent, survived, not_reached } = self;
        format!("| {name} | {total} | {equivalent} | {caught} | {survived} | {not_reached} | {} |", self.score())
    }
}

fn text<'c>(case: &'c Value, field: &str) -> anyhow::Result<&'c str> {
    case[field].as_str().with_context(|| format!("{RECORD}.json has a mutant without `{field}`"))
}

/// A row for each file, and one for all.
pub(super) fn table(committed: &Committed) -> anyhow::Result<String> {
    let record = committed.value(RECORD)?;
    let (mut of_files, mut of_all) = (BTreeMap::<&str, Counts>::new(), Counts::default());
    for case in cases(&record) {
        let verdict = text(case, "verdict")?;
        of_files.entry(text(case, "file")?).or_default().add(verdict)?;
        of_all.add(verdict)?;
    }
    let mut rows =
        String::from("| file | mutants | equivalent | caught | survived | not reached | caught, % |\n|---|---|---|---|---|---|---|\n");
    for (file, counts) in &of_files {
        writeln!(rows, "{}", counts.row(&format!("`{}`", file.replace("/src/", "/").trim_start_matches("crates/"))))?;
    }
    writeln!(rows, "{}", of_all.row("all"))?;
    Ok(rows)
}

/// The mutants that no test notices, and those that do nothing wrong, with the reason.
pub(super) fn missed(committed: &Committed) -> anyhow::Result<String> {
    let record = committed.value(RECORD)?;
    let mut rows = String::from("| mutant | in | why |\n|---|---|---|\n");
    let mut count = 0;
    for case in cases(&record) {
        let why = match text(case, "verdict")? {
            "survived" => "all its tests pass",
            "not_reached" => "no test comes to it",
            "equivalent" => text(case, "by")?,
            _ => continue,
        };
        count += 1;
        let place = format!("{}:{}", text(case, "file")?.rsplit('/').next().unwrap_or_default(), case["line"]);
        // A bar ends a cell, in code, too.
        let change = text(case, "change")?.replace('|', "\\|");
        writeln!(rows, "| {change} | `{}`, {place} | {why} |", text(case, "function")?)?;
    }
    Ok(if count == 0 { "None.\n".into() } else { rows })
}

/// The score, in a sentence.
pub(super) fn score(committed: &Committed) -> anyhow::Result<String> {
    let record = committed.value(RECORD)?;
    let of = |name: &str| number(&record["summary"], name);
    Ok(format!(
        "Of {} mutants of passmuster's own judging code, tests catch {}; {} change no verdict ([by file](docs/emulator/judge-mutants.md)).",
        of("total")?,
        of("caught")?,
        of("equivalent")?,
    ))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::upkeep::records::FOLDER;

    fn written(name: &str, verdicts: [&str; 4]) -> (Committed, std::path::PathBuf) {
        let root = std::env::temp_dir().join(format!("passmuster-judge-{name}-{}", std::process::id()));
        fs::create_dir_all(root.join(FOLDER)).unwrap();
        let case = |verdict: &&str| {
            format!(
                r#"{{"file": "crates/a/src/b.rs", "line": 3, "function": "f", "change": "`|` to `&`", "verdict": "{verdict}", "by": "it is"}}"#
            )
        };
        let cases: Vec<String> = verdicts.iter().map(case).collect();
        let record = format!(r#"{{"summary": {{"total": 4, "caught": 2, "equivalent": 1}}, "cases": [{}]}}"#, cases.join(","));
        fs::write(root.join(FOLDER).join("judge-mutants.json"), record).unwrap();
        (Committed::new(&root), root)
    }

    #[test]
    fn score_leaves_out_equivalents() {
        let (committed, root) = written("score", ["caught", "timed_out", "equivalent", "survived"]);
        let rows = table(&committed).unwrap();
        assert_eq!(rows.lines().nth(2), Some("| `a/b.rs` | 4 | 1 | 2 | 1 | 0 | 66.7 |"));
        assert_eq!(rows.lines().last(), Some("| all | 4 | 1 | 2 | 1 | 0 | 66.7 |"));
        let missed = missed(&committed).unwrap();
        assert_eq!(
            missed.lines().skip(2).collect::<Vec<_>>(),
            ["| `\\|` to `&` | `f`, b.rs:3 | it is |", "| `\\|` to `&` | `f`, b.rs:3 | all its tests pass |"]
        );
        assert!(score(&committed).unwrap().starts_with("Of 4 mutants"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn unknown_verdicts_are_refused() {
        let (committed, root) = written("verdicts", ["caught", "caught", "fine", "survived"]);
        assert_eq!(table(&committed).unwrap_err().to_string(), "judge-mutants.json has a verdict `fine`");
        fs::remove_dir_all(root).unwrap();
    }

    /// If this fails, the summary that README.md quotes is not of the mutants that the table has.
    #[test]
    fn record_sums_up() {
        let committed = Committed::new(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")));
        let record = committed.value(RECORD).unwrap();
        let mut all = Counts::default();
        cases(&record).for_each(|case| all.add(case["verdict"].as_str().unwrap()).unwrap());
        let of = |name: &str| number(&record["summary"], name).unwrap() as usize;
        assert_eq!((all.total, all.caught, all.equivalent), (of("total"), of("caught"), of("equivalent")));
    }
}
