//! Records: the JSON that every command writes. docs/reference/record-schema.md says what each field is; `stored` how cases stand in it.

use std::{collections::BTreeMap, time::SystemTime};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error as _},
    ser::SerializeMap,
};
use serde_json::Value;

use super::{
    selection::Selection,
    stored::{Lines, RecordCase},
    waived::Assumed,
};
use crate::conformance::{Status, Verdict, coverage::ModuleCoverage, verdict::tenths};
use passmuster_plan::machine::MachineInfo;

/// The version of what records look like. Records without one are of the first.
const SCHEMA: u32 = 2;

/// What one command found, on what, and with which sources. `C` is what its cases are: verdicts unless the command times things.
#[derive(Clone, Debug, PartialEq)]
pub struct Record<C = Verdict> {
    /// The command: `validate`, `test-gpu`, `bench`, `mutants`, ...
    pub kind: String,
    /// When it was written: RFC 3339, in UTC, to the second.
    pub date: String,
    /// What it ran on.
    pub machine: MachineInfo,
    /// What was tested.
    pub source: Source,
    /// What was asked for; absent where the command takes no cases, and in older records.
    pub selection: Option<Selection>,
    /// How far the run came; absent where it came to its end.
    pub partial: Option<Partial>,
    /// Wall time in seconds, of all parts and runs that the record is of; absent where the command does not say, and in older records.
    pub seconds: Option<f64>,
    /// Counts of the cases.
    pub summary: Summary,
    /// The assumptions about the hardware that the verdicts rest on; none in records of other machines, and in older ones.
    pub assumed: Vec<Assumed>,
    /// What of the kernels' code the cases executed, where that was asked for.
    pub coverage: Vec<ModuleCoverage>,
    /// The cases, in the order of the selection.
    pub cases: Vec<C>,
    /// What a reader should know besides: what was left out and why.
    pub notes: Vec<String>,
}

/// How far a run came that has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// Cases that were judged: those of the record.
    pub judged: usize,
    /// Cases that were to be judged.
    pub of: usize,
    /// What ended it: `SIGINT`, `SIGTERM`, or `not yet ended` where nothing that could be told.
    pub why: String,
}

/// Which sources were tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The git commit, or `unknown` outside a checkout.
    pub commit: String,
    /// Whether tracked files differed from the commit.
    pub dirty: bool,
    /// The binary, where the commit does not say what it was built from: a hash of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// [`passmuster_plan::library::ptx_hash`] of the kernels that the binary carries.
    pub ptx_hash: String,
    /// The kernels that the cases rest on, with their hashes: [`Library::hashes`](passmuster_plan::library::Library::hashes). Empty in records that do
    /// not know.
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
        let (selection, partial, seconds) = (None, None, None);
        let (assumed, coverage, notes) = (Vec::new(), Vec::new(), Vec::new());
        Record { kind: kind.into(), date: now(), machine, source, selection, partial, seconds, summary, assumed, coverage, cases, notes }
    }
}

impl<C: RecordCase + Serialize> Record<C> {
    /// The text of a file: JSON with a line for each field, and for each element of a field that is a list.
    pub fn to_json(&self) -> String {
        let mut text = Vec::new();
        self.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Lines::default())).expect("a record is plain data");
        String::from_utf8(text).expect("JSON is text")
    }
}

impl<C: RecordCase + Serialize> Serialize for Record<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("schema", &SCHEMA)?;
        fields.serialize_entry("kind", &self.kind)?;
        fields.serialize_entry("date", &self.date)?;
        fields.serialize_entry("machine", &self.machine)?;
        fields.serialize_entry("source", &self.source)?;
        if let Some(selection) = &self.selection {
            fields.serialize_entry("selection", selection)?;
        }
        if let Some(partial) = &self.partial {
            fields.serialize_entry("partial", partial)?;
        }
        if let Some(seconds) = self.seconds {
            fields.serialize_entry("seconds", &tenths(seconds))?;
        }
        fields.serialize_entry("summary", &self.summary)?;
        fields.serialize_entry("notes", &self.notes)?;
        if !self.assumed.is_empty() {
            fields.serialize_entry("assumed", &self.assumed)?;
        }
        if !self.coverage.is_empty() {
            fields.serialize_entry("coverage", &self.coverage)?;
        }
        C::write(&self.cases, &mut fields)?;
        fields.end()
    }
}

impl<'de, C: RecordCase + DeserializeOwned> Deserialize<'de> for Record<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Record<C>, D::Error> {
        let file = File::deserialize(deserializer)?;
        if file.schema > SCHEMA {
            return Err(D::Error::custom(format!("a record of schema {}: this version reads up to {SCHEMA}", file.schema)));
        }
        let cases = C::read(file.cases, file.shared).map_err(D::Error::custom)?;
        let File { kind, date, machine, source, selection, partial, seconds, summary, notes, assumed, coverage, .. } = file;
        Ok(Record { kind, date, machine, source, selection, partial, seconds, summary, assumed, coverage, cases, notes })
    }
}

/// A record as it is read.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    schema: u32,
    kind: String,
    date: String,
    machine: MachineInfo,
    source: Source,
    selection: Option<Selection>,
    partial: Option<Partial>,
    seconds: Option<f64>,
    summary: Summary,
    notes: Vec<String>,
    #[serde(default)]
    assumed: Vec<Assumed>,
    #[serde(default)]
    coverage: Vec<ModuleCoverage>,
    #[serde(default)]
    shared: Vec<Value>,
    cases: Vec<Value>,
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
    /// use passmuster_harness::conformance::{Status, report::Summary};
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
    to_the_second(SystemTime::now())
}

/// A time to the second; the nearest one that can be written, where a clock shows one of another age.
fn to_the_second(time: SystemTime) -> String {
    let nearest = if time < SystemTime::UNIX_EPOCH { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    let time = jiff::Timestamp::try_from(time).unwrap_or(nearest);
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(nearest).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Finding, report::WaivedRace};
    use passmuster_plan::machine::Needed;

    fn record() -> Record {
        let mut failed = Verdict::without_checks("all_reduce/two_shot:bf16,sum:w=8:n=1040", Status::Fail, "one property does not hold");
        failed.schedule = Some("stalled-5f".into());
        failed.held.push("ranks_agree".into());
        failed.not_applicable.push(("graph".into(), "the case has no graph".into()));
        failed.findings.push(Finding {
            property: "reference".into(),
            call: Some(3),
            summary: "8 of 1040 elements wrong".into(),
            details: String::new(),
            ..Finding::default()
        });
        let mut passed = Verdict::without_checks("all_reduce/one_shot:f32,sum:w=2:n=1", Status::Pass, "");
        (passed.outputs, passed.held, passed.milliseconds) = (Some("0123456789abcdef".into()), failed.held.clone(), 12.3);
        let skipped = Verdict::without_checks("all_reduce/one_shot:f32,sum:w=16:n=1", Status::NotSupported, "needs 16 GPUs, found 8");
        let source = Source {
            commit: "0123abcd".into(),
            dirty: false,
            binary: Some("xxh3:0".into()),
            ptx_hash: crate::REGISTRY.library().ptx_hash(),
            modules: BTreeMap::new(),
        };
        let machine = MachineInfo { kind: "emulator".into(), ..MachineInfo::default() };
        let mut record = Record::of_verdicts("validate", machine, source, vec![failed, passed, skipped]);
        record.selection = Some(Selection {
            device: Some("a100".into()),
            query: "merge".into(),
            except: None,
            seed: 7,
            part: Some("2/3".parse().unwrap()),
            limit: Some(3),
            sample: Some(20),
            schedules: Some(2),
            budget: Some(60_000),
            multimem: Some("bound".into()),
            profile: Some("hopper".into()),
            tensor_cores: Some("bound".into()),
            steps: Some(1 << 20),
            deadline: Some(10_000),
            processes: Some(2),
            wait_limit: 2000,
            memory: Some(1 << 30),
            batch_copies: true,
            kernel: Some("kernel from elsewhere mine".into()),
        });
        record.assumed.push(Assumed {
            assumption: "boundary".into(),
            declared: Some("the next kernel starts when this one has ended".into()),
            modules: vec!["all_reduce/two_shot".into()],
            times: 3,
            cases: 1,
            places: vec![Needed { at: "a.cu:1 and then a.cu:2".into(), times: 3 }],
            races: vec![WaivedRace {
                what: "race, read after write".into(),
                times: 3,
                cases: 1,
                case: "all_reduce/two_shot:bf16,sum:w=8:n=1040".into(),
                first: "rank 0 and rank 1".into(),
            }],
        });
        record.partial = Some(Partial { judged: 3, of: 5, why: "SIGTERM".into() });
        record.seconds = Some(12.5);
        record.notes.push("3 cases in 12.5 s".into());
        record
    }

    /// If this fails, records of before can no longer be read.
    #[test]
    fn older_records_are_read() {
        let record = record();
        let mut old = serde_json::to_value(&record).unwrap();
        old["cases"] = serde_json::to_value(&record.cases).unwrap();
        for added in ["schema", "shared", "selection", "partial", "seconds"] {
            old.as_object_mut().unwrap().remove(added);
        }
        let read: Record = serde_json::from_value(old).unwrap();
        assert_eq!(read, Record { selection: None, partial: None, seconds: None, ..record });
    }

    #[test]
    fn newer_records_are_refused() {
        let mut new = serde_json::to_value(record()).unwrap();
        new["schema"] = 3.into();
        assert_eq!(serde_json::from_value::<Record>(new).unwrap_err().to_string(), "a record of schema 3: this version reads up to 2");
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let record = record();
        let text = record.to_json().replace("\":", "\": ");
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

    /// If this fails, a record that somebody sends ends `report` or `--resume` in a panic.
    #[test]
    fn mutated_records_never_panic() {
        const WORDS: [&str; 14] = [
            "null",
            "-1",
            "1e400",
            "18446744073709551616",
            "[]",
            "{}",
            "\"\"",
            "\"\\u0000\"",
            "true",
            "[[1]]",
            "\"pass\"",
            "0",
            ",",
            "\"2/3\"",
        ];
        let text = record().to_json();
        let pieces: Vec<&str> = text.split_inclusive([',', ':', '[', ']', '{', '}', '\n']).collect();
        let mut state = 1_u64;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % limit
        };
        let (mut read, mut refused) = (0, 0);
        for _ in 0..4000 {
            let mut pieces: Vec<String> = pieces.iter().map(|&piece| piece.to_owned()).collect();
            for _ in 0..1 + below(2) {
                let at = below(pieces.len());
                let end = pieces[at].pop().unwrap_or(' ');
                pieces[at] = match below(3) {
                    0 => String::new(),
                    1 => format!("{0}{end}{0}{end}", pieces[at]),
                    _ => format!("{}{end}", WORDS[below(WORDS.len())]),
                };
            }
            let Ok(record) = serde_json::from_str::<Record>(&pieces.concat()) else {
                refused += 1;
                continue;
            };
            read += 1;
            let again: Record = serde_json::from_str(&record.to_json()).expect("what is written can be read");
            assert_eq!(again.cases.len(), record.cases.len());
            super::super::junit(&record);
            let _ = super::super::merge(vec![("one".into(), record.clone()), ("two".into(), record)]);
        }
        assert!(read > 100 && refused > 1000, "{read} read, {refused} refused: the mutations are too tame or too wild");
    }

    /// If this fails, a run on a machine whose clock is wrong ends in a panic, with all that it found.
    #[test]
    fn dates_of_any_clock_are_written() {
        let far = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(400_000_000_000);
        assert_eq!(to_the_second(far), "9999-12-30T22:00:00Z");
        assert_eq!(to_the_second(SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1500)), "1970-01-01T00:00:01Z");
    }

    #[test]
    fn the_schema_names_every_field() {
        let schema = include_str!("../../../docs/reference/record-schema.md");
        let mut record = serde_json::to_value(record()).unwrap();
        record["summary"]["caught"] = 0.into();
        let mut paths = Vec::new();
        paths_of(&record, "", &mut paths);
        assert!(paths.contains(&"cases[][].findings[].property".to_owned()), "{paths:?}");
        for path in paths {
            assert!(schema.contains(&format!("| `{path}` |")), "docs/reference/record-schema.md does not say what `{path}` is");
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
