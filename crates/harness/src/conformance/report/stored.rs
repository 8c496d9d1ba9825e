//! How the cases of a record stand in its file. Verdicts are rows that refer to what many of them share; everything else is as it is.

use std::{collections::HashMap, io};

use serde::{Deserialize, Serialize, de::DeserializeOwned, ser::SerializeMap};
use serde_json::{Value, ser::Formatter};

use crate::conformance::{Finding, Status, Verdict, verdict::tenths};
use passmuster_plan::machine::{Blamed, Waived};

/// What a record may be of.
pub trait RecordCase: Sized {
    /// Writes the field `cases`, and what belongs to it.
    ///
    /// # Errors
    /// Those of the writer.
    fn write<M: SerializeMap>(cases: &[Self], fields: &mut M) -> Result<(), M::Error>
    where
        Self: Serialize,
    {
        fields.serialize_entry("cases", cases)
    }

    /// The cases of the fields `cases` and `shared`.
    ///
    /// # Errors
    /// Which case is not understood, and why.
    fn read(cases: Vec<Value>, _shared: Vec<Value>) -> Result<Vec<Self>, String>
    where
        Self: DeserializeOwned,
    {
        let read = |(index, case)| serde_json::from_value(case).map_err(|error| format!("cases[{index}]: {error}"));
        cases.into_iter().enumerate().map(read).collect()
    }
}

/// What many cases have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Shared {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    not_applicable: Vec<(String, String)>,
}

/// What a case has to itself, where there is more to say than that it passed or could not run.
#[derive(Serialize, Deserialize)]
struct Own {
    status: Status,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Finding>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    waived: Vec<Waived>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waiver: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    blamed: Vec<Blamed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    came_to: Option<Status>,
}

/// Case, index into `shared`, outputs, milliseconds to a tenth, and what it has to itself.
type Row = (String, usize, Option<String>, f64);

impl RecordCase for Verdict {
    fn write<M: SerializeMap>(cases: &[Verdict], fields: &mut M) -> Result<(), M::Error> {
        let mut table = Vec::new();
        let mut known = HashMap::new();
        let mut rows = Vec::new();
        for verdict in cases {
            let (shared, own) = split(verdict);
            let index = *known.entry(shared).or_insert_with_key(|shared| {
                table.push(shared.clone());
                table.len() - 1
            });
            let row: Row = (verdict.case.clone(), index, verdict.outputs.clone(), tenths(verdict.milliseconds));
            rows.push(match own {
                None => Stored::Usual(row),
                Some(own) => Stored::Special(row.0, row.1, row.2, row.3, own),
            });
        }
        fields.serialize_entry("shared", &table)?;
        fields.serialize_entry("cases", &rows)
    }

    fn read(cases: Vec<Value>, shared: Vec<Value>) -> Result<Vec<Verdict>, String> {
        let shared: Vec<Shared> = serde_json::from_value(Value::Array(shared)).map_err(|error| format!("shared: {error}"))?;
        let read = |(index, case)| verdict(case, &shared).map_err(|error| format!("cases[{index}]: {error}"));
        cases.into_iter().enumerate().map(read).collect()
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Stored {
    Usual(Row),
    Special(String, usize, Option<String>, f64, Own),
}

/// A verdict in two, without its case, outputs and time.
fn split(verdict: &Verdict) -> (Shared, Option<Own>) {
    let Verdict {
        status,
        ref reason,
        ref held,
        ref not_applicable,
        ref findings,
        ref schedule,
        ref waived,
        ref waiver,
        ref blamed,
        came_to,
        ..
    } = *verdict;
    let says_no_more = match status {
        Status::Pass => reason.is_empty(),
        Status::NotSupported | Status::NotRun => true,
        _ => false,
    };
    let (held, not_applicable) = (held.clone(), not_applicable.clone());
    if says_no_more
        && findings.is_empty()
        && schedule.is_none()
        && waived.is_empty()
        && waiver.is_none()
        && blamed.is_empty()
        && came_to.is_none()
    {
        return (Shared { status: Some(status), reason: reason.clone(), held, not_applicable }, None);
    }
    let own = Own {
        status,
        reason: reason.clone(),
        findings: findings.clone(),
        schedule: schedule.clone(),
        waived: waived.clone(),
        waiver: waiver.clone(),
        blamed: blamed.clone(),
        came_to,
    };
    (Shared { held, not_applicable, ..Shared::default() }, Some(own))
}

/// A verdict of a row; of an object in older records.
fn verdict(case: Value, shared: &[Shared]) -> Result<Verdict, String> {
    let wrong = |error: serde_json::Error| error.to_string();
    let Value::Array(mut row) = case else { return serde_json::from_value(case).map_err(wrong) };
    let own: Option<Own> = if row.len() == 5 { row.pop().map(serde_json::from_value).transpose().map_err(wrong)? } else { None };
    let (case, index, outputs, milliseconds): Row = serde_json::from_value(Value::Array(row)).map_err(wrong)?;
    let of = shared.get(index).ok_or_else(|| format!("{case} refers to shared[{index}], of {}", shared.len()))?;
    let Shared { status, reason, held, not_applicable } = of.clone();
    let own = match (own, status) {
        (Some(own), _) => own,
        (None, Some(status)) => Own {
            status,
            reason,
            findings: Vec::new(),
            schedule: None,
            waived: Vec::new(),
            waiver: None,
            blamed: Vec::new(),
            came_to: None,
        },
        (None, None) => return Err(format!("{case} has no status")),
    };
    let Own { status, reason, findings, schedule, waived, waiver, blamed, came_to } = own;
    Ok(Verdict { case, status, reason, held, not_applicable, findings, outputs, schedule, waived, waiver, blamed, came_to, milliseconds })
}

/// A line for each field of a record, and for each element of a field that is a list.
#[derive(Default)]
pub(super) struct Lines {
    depth: usize,
}

impl Lines {
    fn begin<W: ?Sized + io::Write>(&mut self, bracket: &[u8], writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(bracket)
    }

    fn end<W: ?Sized + io::Write>(&mut self, bracket: &[u8], writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.depth == 0 {
            writer.write_all(b"\n")?;
        }
        writer.write_all(bracket)?;
        if self.depth == 0 { writer.write_all(b"\n") } else { Ok(()) }
    }

    /// Before an element of what is so deep.
    fn separate<W: ?Sized + io::Write>(&mut self, first: bool, depth: usize, writer: &mut W) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        if self.depth == depth { writer.write_all(b"\n") } else { Ok(()) }
    }
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(b"[", writer)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(b"]", writer)
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.separate(first, 2, writer)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(b"{", writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(b"}", writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.separate(first, 1, writer)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::conformance::report::{Record, Source};
    use passmuster_plan::machine::MachineInfo;

    /// 13,000 cases, of which each tenth is not supported and each hundredth fails.
    fn large() -> Record {
        let verdict = |n: usize| {
            let case = format!("all_reduce/two_shot_push:bf16,sum:w=8:n={}:off=3:in_place:graph=2x3:inputs=special:seed={n:04x}", n * 7);
            let mut verdict = Verdict::without_checks(case, Status::Pass, "");
            verdict.milliseconds = n as f64 / 10.0;
            if n.is_multiple_of(10) {
                (verdict.status, verdict.reason) = (Status::NotSupported, format!("world {} needs more GPUs", n % 8));
                return verdict;
            }
            verdict.held = ["canaries", "reference", "ranks_agree", "history", "repeat", "negation", "scaling", "in_place", "graph"]
                .map(str::to_owned)
                .into();
            verdict.not_applicable.push(("additivity".into(), format!("only tagged inputs add up exactly, {}", n % 20)));
            verdict.outputs = Some(format!("{:016x}", (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            if n.is_multiple_of(101) {
                verdict.status = Status::Fail;
                verdict.findings.push(Finding {
                    property: "reference".into(),
                    call: None,
                    summary: "wrong".into(),
                    details: "\n".into(),
                    ..Finding::default()
                });
            }
            verdict
        };
        let source = Source { commit: "0".into(), dirty: false, binary: None, ptx_hash: "0".into(), modules: BTreeMap::new() };
        Record::of_verdicts("validate", MachineInfo::default(), source, (0..13_000).map(verdict).collect())
    }

    /// If this fails, the merge list does not go into one file of the repository, or cases are lost on the way through it.
    #[test]
    fn a_list_of_13000_cases_is_one_file_of_at_most_2_mib() {
        let record = large();
        let text = record.to_json();
        assert!(text.len() <= 2 << 20, "{} bytes", text.len());
        assert!(serde_json::from_str::<Record>(&text).unwrap() == record);
    }

    /// If this fails, docs/reference/record-schema.md tells readers the wrong way to a verdict.
    #[test]
    fn a_row_and_what_it_shares_are_the_verdict() {
        let record = large();
        let file = serde_json::to_value(&record).unwrap();
        for index in [0, 1, 101] {
            let row = &file["cases"][index];
            let mut verdict = serde_json::json!({"case": row[0], "outputs": row[2], "milliseconds": row[3]});
            let shared = &file["shared"][row[1].as_u64().unwrap() as usize];
            for part in [shared.as_object(), row[4].as_object()] {
                verdict.as_object_mut().unwrap().extend(part.cloned().into_iter().flatten());
            }
            assert_eq!(serde_json::from_value::<Verdict>(verdict).unwrap(), record.cases[index]);
        }
        assert!(file["cases"][1].get(4).is_none() && file["cases"][101][4]["status"] == "fail");
    }

    #[test]
    fn rows_are_lines_and_errors_name_them() {
        let mut record = large();
        record.cases.truncate(3);
        let text = record.to_json();
        assert_eq!(text.lines().filter(|line| line.starts_with("[\"all_reduce/two_shot_push:")).count(), 3, "{text}");
        assert!(text.starts_with("{\n\"schema\":2,\n\"kind\":\"validate\",\n") && text.ends_with("]\n}\n"), "{text}");
        let mut file = serde_json::to_value(&record).unwrap();
        file["cases"][2][1] = 9.into();
        let error = serde_json::from_value::<Record>(file.clone()).unwrap_err().to_string();
        assert!(error.starts_with("cases[2]: all_reduce/two_shot_push:") && error.ends_with("refers to shared[9], of 3"), "{error}");
        file["cases"][2] = serde_json::json!([1, 2]);
        assert!(serde_json::from_value::<Record>(file).unwrap_err().to_string().starts_with("cases[2]: "));
    }
}
