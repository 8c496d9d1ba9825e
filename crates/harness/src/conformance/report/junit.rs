//! JUnit XML, which CI systems show case by case.

use std::fmt::Write;

use super::Record;
use crate::conformance::{Status, Verdict};

/// A record as one JUnit test suite. Findings are failures, a failed harness is an error, what was not tested is skipped with its
/// reason. Times are in seconds.
pub fn junit(record: &Record) -> String {
    let count = |of: fn(Status) -> Outcome, outcome| record.cases.iter().filter(|verdict| of(verdict.status) == outcome).count();
    let seconds: f64 = record.cases.iter().map(|verdict| verdict.milliseconds / 1e3).sum();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"passmuster {}\" timestamp=\"{}\" tests=\"{}\" \
         failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{seconds:.3}\">\n",
        escaped(&record.kind),
        escaped(&record.date),
        record.cases.len(),
        count(outcome, Outcome::Failure),
        count(outcome, Outcome::Error),
        count(outcome, Outcome::Skipped),
    );
    for verdict in &record.cases {
        write_case(&mut xml, verdict);
    }
    xml + "</testsuite>\n</testsuites>\n"
}

#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Success,
    Failure,
    Error,
    Skipped,
}

fn outcome(status: Status) -> Outcome {
    match status {
        Status::Pass => Outcome::Success,
        Status::NotSupported | Status::NotRun | Status::Inconclusive | Status::Waived => Outcome::Skipped,
        Status::InfraError => Outcome::Error,
        Status::Fail | Status::Hang | Status::Crash | Status::UnexpectedPass => Outcome::Failure,
    }
}

fn write_case(xml: &mut String, verdict: &Verdict) {
    let class = verdict.case.split(':').next().unwrap_or_default();
    let open = format!(
        "<testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
        escaped(&class.replace('/', ".")),
        escaped(&verdict.case),
        verdict.milliseconds / 1e3
    );
    let message = match verdict.findings.first() {
        Some(finding) if verdict.reason.is_empty() => format!("{}: {}", finding.property, finding.summary),
        _ => verdict.reason.clone(),
    };
    let element = match outcome(verdict.status) {
        Outcome::Success => {
            xml.push_str(&open);
            xml.push_str("/>\n");
            return;
        }
        Outcome::Failure => "failure",
        Outcome::Error => "error",
        Outcome::Skipped => "skipped",
    };
    let mut text = String::new();
    for finding in &verdict.findings {
        writeln!(text, "{}: {}", finding.property, finding.summary).expect("a string takes any text");
        text.push_str(&finding.details);
    }
    let kind = if element == "skipped" { String::new() } else { format!(" type=\"{}\"", verdict.status) };
    writeln!(xml, "{open}><{element}{kind} message=\"{}\">{}</{element}></testcase>", escaped(&message), escaped(&text))
        .expect("a string takes any text");
}

/// Text for an attribute or an element. Control characters that XML 1.0 has no way to say become U+FFFD: kernels' logs may hold any.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\r' => out.push_str("&#13;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Finding, report::Source};
    use passmuster_plan::machine::MachineInfo;

    #[test]
    fn a_suite_has_every_case_in_its_column() {
        let mut failed = Verdict::without_checks("all_reduce/two_shot:bf16,sum:w=8:n=1040", Status::Fail, "");
        failed.milliseconds = 1500.0;
        failed.findings.push(Finding {
            property: "reference".into(),
            call: None,
            summary: "8 of 1040 elements are wrong: got < expected & \"late\"".into(),
            details: "i\texpected\n\u{1}".into(),
            ..Finding::default()
        });
        let verdicts = vec![
            Verdict::without_checks("all_reduce/one_shot:f32,sum:w=2:n=1", Status::Pass, ""),
            failed,
            Verdict::without_checks("all_reduce/one_shot:f32,sum:w=16:n=1", Status::NotSupported, "needs 16 GPUs, found 8"),
            Verdict::without_checks("all_reduce/one_shot:f32,sum:w=4:n=1", Status::InfraError, "the worker did not start"),
        ];
        let source = Source { commit: "0".into(), dirty: false, binary: None, ptx_hash: "0".into(), modules: Default::default() };
        let mut record = Record::of_verdicts("validate", MachineInfo::default(), source, verdicts);
        record.date = "2026-01-02T03:04:05Z".into();
        insta::assert_snapshot!(junit(&record), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites>
        <testsuite name="passmuster validate" timestamp="2026-01-02T03:04:05Z" tests="4" failures="1" errors="1" skipped="1" time="1.500">
        <testcase classname="all_reduce.one_shot" name="all_reduce/one_shot:f32,sum:w=2:n=1" time="0.000"/>
        <testcase classname="all_reduce.two_shot" name="all_reduce/two_shot:bf16,sum:w=8:n=1040" time="1.500"><failure type="fail" message="reference: 8 of 1040 elements are wrong: got &lt; expected &amp; &quot;late&quot;">reference: 8 of 1040 elements are wrong: got &lt; expected &amp; &quot;late&quot;&#10;i&#9;expected&#10;�</failure></testcase>
        <testcase classname="all_reduce.one_shot" name="all_reduce/one_shot:f32,sum:w=16:n=1" time="0.000"><skipped message="needs 16 GPUs, found 8"></skipped></testcase>
        <testcase classname="all_reduce.one_shot" name="all_reduce/one_shot:f32,sum:w=4:n=1" time="0.000"><error type="infra_error" message="the worker did not start"></error></testcase>
        </testsuite>
        </testsuites>
        "#);
    }
}
