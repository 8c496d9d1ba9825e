//! Records: the JSON that every command writes. docs/record-schema.md says what each field is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    conformance::{Status, Verdict},
    machine::MachineInfo,
};

/// What one command found, on what, and with which sources. `C` is what its cases are: verdicts unless the command times things.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record<C = Verdict> {
    /// The command: `validate`, `test-gpu`, `bench`, `mutants`, ...
    pub kind: String,
    /// When it was written: RFC 3339, in UTC, to the second.
    pub date: String,
    /// What it ran on.
    pub machine: MachineInfo,
    /// What was tested.
    pub source: Source,
    /// Counts of the cases.
    pub summary: Summary,
    /// The cases, in the order in which they ran.
    pub cases: Vec<C>,
    /// What a reader should know besides: what was left out and why.
    pub notes: Vec<String>,
}

/// Which sources were tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The git commit, or `unknown` outside a checkout.
    pub commit: String,
    /// Whether tracked files differed from the commit.
    pub dirty: bool,
    /// [`crate::kernels::ptx_hash`] of the kernels that the binary carries.
    pub ptx_hash: String,
    /// The kernels that the cases rest on, with their hashes: [`crate::kernels::Library::hashes`]. Empty in records that do not know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modules: BTreeMap<String, String>,
}

/// How many cases came to what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// All cases.
    pub total: usize,
    /// Mutants that were caught; absent in other records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caught: Option<usize>,
    /// Cases of each status. Every status is there, also those that no case has.
    #[serde(flatten)]
    pub by_status: BTreeMap<Status, usize>,
}

impl<C> Record<C> {
    /// A record of now.
    pub fn new(kind: impl Into<String>, machine: MachineInfo, source: Source, summary: Summary, cases: Vec<C>) -> Record<C> {
        Record { kind: kind.into(), date: now(), machine, source, summary, cases, notes: Vec::new() }
    }
}

impl Record {
    /// A record of these verdicts, with their counts.
    pub fn of_verdicts(kind: impl Into<String>, machine: MachineInfo, source: Source, verdicts: Vec<Verdict>) -> Record {
        Record::new(kind, machine, source, Summary::of(verdicts.iter().map(|verdict| verdict.status)), verdicts)
    }
}

impl Summary {
    /// Counts statuses.
    ///
    /// ```
    /// use passmuster::conformance::{Status, report::Summary};
    /// let summary = Summary::of([Status::Pass, Status::Pass, Status::Hang]);
    /// assert_eq!((summary.total, summary.by_status[&Status::Pass], summary.by_status[&Status::Crash]), (3, 2, 0));
    /// assert_eq!(summary.to_string(), "3 cases: 2 pass, 1 hang");
    /// ```
    pub fn of(statuses: impl IntoIterator<Item = Status>) -> Summary {
        let mut by_status: BTreeMap<Status, usize> = Status::ALL.into_iter().map(|status| (status, 0)).collect();
        let mut total = 0;
        for status in statuses {
            total += 1;
            *by_status.entry(status).or_default() += 1;
        }
        Summary { total, caught: None, by_status }
    }

    /// Whether something is wrong with what was tested, so that the command exits 1.
    pub fn has_findings(&self) -> bool {
        self.by_status.iter().any(|(status, &count)| status.is_finding() && count > 0)
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} case{}", self.total, if self.total == 1 { "" } else { "s" })?;
        let counts = Status::ALL.into_iter().map(|status| (status, self.by_status.get(&status).copied().unwrap_or_default()));
        for (index, (status, count)) in counts.filter(|&(_, count)| count > 0).enumerate() {
            write!(f, "{} {count} {status}", if index == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// The day in UTC: YYYY-MM-DD.
pub fn today() -> String {
    now()[..10].to_owned()
}

/// The present second.
fn now() -> String {
    jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).expect("the clock shows a time that can be written").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Finding;

    fn record() -> Record {
        let mut failed = Verdict::without_checks("all_reduce/two_shot:bf16,sum:w=8:n=1040", Status::Fail, "one property does not hold");
        failed.held.push("ranks_agree".into());
        failed.not_applicable.push(("graph".into(), "the case has no graph".into()));
        failed.findings.push(Finding {
            property: "reference".into(),
            call: Some(3),
            summary: "8 of 1040 elements wrong".into(),
            details: String::new(),
        });
        let passed = Verdict::without_checks("all_reduce/one_shot:f32,sum:w=2:n=1", Status::Pass, "");
        let source = Source { commit: "0123abcd".into(), dirty: false, ptx_hash: crate::kernels::ptx_hash(), modules: BTreeMap::new() };
        Record::of_verdicts("validate", MachineInfo { kind: "emulator".into(), ..MachineInfo::default() }, source, vec![failed, passed])
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let record = record();
        let text = serde_json::to_string_pretty(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        assert!(record.summary.has_findings());
        for status in Status::ALL {
            assert!(text.contains(&format!("\"{status}\": ")), "{status} is not counted: zero and forgotten would look alike");
        }
    }

    #[test]
    fn the_date_is_rfc_3339_in_utc_to_the_second() {
        let date = record().date;
        assert_eq!((date.len(), &date[10..11], &date[19..]), (20, "T", "Z"), "{date}");
        assert!(date.parse::<jiff::Timestamp>().is_ok(), "{date}");
    }

    #[test]
    fn the_schema_names_every_field() {
        let schema = include_str!("../../../docs/record-schema.md");
        let mut record = serde_json::to_value(record()).unwrap();
        record["summary"]["caught"] = 0.into();
        let mut paths = Vec::new();
        paths_of(&record, "", &mut paths);
        assert!(paths.contains(&"cases[].findings[].property".to_owned()), "{paths:?}");
        for path in paths {
            assert!(schema.contains(&format!("| `{path}` |")), "docs/record-schema.md does not say what `{path}` is");
        }
    }

    fn paths_of(value: &serde_json::Value, path: &str, paths: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    paths.push(path.clone());
                    paths_of(value, &path, paths);
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| paths_of(item, &format!("{path}[]"), paths)),
            _ => {}
        }
    }
}
