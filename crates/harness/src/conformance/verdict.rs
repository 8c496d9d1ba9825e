//! Verdicts: what became of a case.

use std::{collections::HashMap, fmt};

use serde::{Deserialize, Serialize, Serializer};

use super::pattern::pattern;
use passmuster_plan::machine::{Blamed, MachineError, Waived};

/// What became of a case. The order is by severity: the worst of several is their maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Every property that applies holds.
    Pass,
    /// The machine or the contender cannot do this case; says why, and is never a pass.
    NotSupported,
    /// It was never started; says why.
    NotRun,
    /// It ran out of time or steps, and nothing was found until then; never a pass, never a finding.
    Inconclusive,
    /// A known finding, waived with an owner and an expiry date.
    Waived,
    /// A waived finding that no longer appears: the waiver is stale.
    UnexpectedPass,
    /// The harness or the machine failed, not the kernel; never a pass, never a finding.
    InfraError,
    /// A property does not hold.
    Fail,
    /// Ranks did not finish in time.
    Hang,
    /// The process died or a device reported a fault.
    Crash,
}

impl Status {
    /// Every status, in the order of reports.
    pub const ALL: [Status; 10] = [
        Status::Pass,
        Status::Fail,
        Status::Hang,
        Status::Crash,
        Status::NotSupported,
        Status::NotRun,
        Status::Inconclusive,
        Status::Waived,
        Status::UnexpectedPass,
        Status::InfraError,
    ];

    /// What a machine's refusal or failure makes of a case.
    pub fn of(error: &MachineError) -> Status {
        match error {
            MachineError::NotSupported { .. } | MachineError::Unshared { .. } => Status::NotSupported,
            MachineError::Invalid { .. } | MachineError::Differs { .. } => Status::InfraError,
            MachineError::Finding { .. } => Status::Fail,
            // Races are findings, however the run ended.
            MachineError::Races { ended, .. } => {
                ended.as_deref().map(Status::of).filter(|ended| ended.is_finding()).unwrap_or(Status::Fail)
            }
            MachineError::Hang { .. } => Status::Hang,
            MachineError::Fault { .. } => Status::Crash,
            MachineError::Inconclusive { .. } => Status::Inconclusive,
        }
    }

    /// Whether a device may be left in a state that no other case should see.
    pub const fn voids_device(self) -> bool {
        matches!(self, Status::Hang | Status::Crash | Status::InfraError)
    }

    /// The name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Pass => "pass",
            Status::NotSupported => "not_supported",
            Status::NotRun => "not_run",
            Status::Inconclusive => "inconclusive",
            Status::Waived => "waived",
            Status::UnexpectedPass => "unexpected_pass",
            Status::InfraError => "infra_error",
            Status::Fail => "fail",
            Status::Hang => "hang",
            Status::Crash => "crash",
        }
    }

    /// Whether something is wrong with what was tested, so that the command exits 1.
    pub const fn is_finding(self) -> bool {
        matches!(self, Status::Fail | Status::Hang | Status::Crash | Status::UnexpectedPass)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a result is wrong first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// On which rank.
    pub rank: u32,
    /// Index of the element in its output.
    pub element: u64,
    /// The lowest bit of the element that differs from what was expected; absent where no bits are decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bit: Option<u32>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, element {}", self.rank, self.element)?;
        self.bit.map_or(Ok(()), |bit| write!(f, ", bit {bit}"))
    }
}

/// One thing that a check has to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The property that does not hold: `reference`, `ranks_agree`, `canaries`, ...
    pub property: String,
    /// Which call of the script, counted from 0, where it is about one.
    pub call: Option<usize>,
    /// One line.
    pub summary: String,
    /// The report for people, several lines; empty where the summary says it all.
    pub details: String,
    /// The first element that is wrong, where it is about elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Whether no element of the call is right.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_wrong: bool,
    /// The case that it is about, where several ran together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
}

/// The most findings of a verdict that are shown.
const MOST_FINDINGS: usize = 4;

/// What became of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The case's id: a query that selects just this case.
    pub case: String,
    /// The worst of its findings.
    pub status: Status,
    /// Why it was not run, or what the machine said; empty for a pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Properties that were checked and hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// Properties that do not apply, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_applicable: Vec<(String, String)>,
    /// What does not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// A hash of the outputs of all calls whose order of summation is declared, of all ranks: 16 hexadecimal digits. The same on every machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<String>,
    /// The schedule under which something was found, or which did not come to its end, where the machine has schedules: with it, the same happens again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// What the machine found and waives, each with the assumption that it rests on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waived: Vec<Waived>,
    /// The waiver that covers its findings, of a case that is waived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiver: Option<String>,
    /// What is known of ranks, where the run did not end well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blamed: Vec<Blamed>,
    /// What the run itself came to, where the status says whether an injected fault was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_to: Option<Status>,
    /// Wall time in milliseconds.
    #[serde(serialize_with = "to_a_tenth")]
    pub milliseconds: f64,
}

/// More digits say nothing and make records large.
fn to_a_tenth<S: Serializer>(milliseconds: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(tenths(*milliseconds))
}

/// To a tenth.
pub(super) fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// Findings of a verdict that say the same but for ranks, threads, addresses and numbers: the first of each, and how many more there are.
fn alike(findings: &[Finding]) -> Vec<(&Finding, usize)> {
    let mut all: Vec<(&Finding, usize)> = Vec::new();
    let mut known: HashMap<(&str, String), usize> = HashMap::new();
    for finding in findings {
        let at = *known.entry((&finding.property, pattern(&finding.summary))).or_insert_with(|| {
            all.push((finding, 0));
            all.len() - 1
        });
        all[at].1 += 1;
    }
    all.iter_mut().for_each(|(_, times)| *times -= 1);
    all
}

impl Verdict {
    /// A verdict without checks: the case was not supported, not run, hung or crashed.
    pub fn without_checks(case: impl Into<String>, status: Status, reason: impl Into<String>) -> Verdict {
        Verdict {
            case: case.into(),
            status,
            reason: reason.into(),
            held: Vec::new(),
            not_applicable: Vec::new(),
            findings: Vec::new(),
            outputs: None,
            schedule: None,
            waived: Vec::new(),
            waiver: None,
            blamed: Vec::new(),
            came_to: None,
            milliseconds: 0.0,
        }
    }

    /// Whether a device may be left in a state that no other case should see, also where that passes: its fault was named.
    pub fn voids_device(&self) -> bool {
        self.came_to.unwrap_or(self.status).voids_device()
    }

    /// Whether the run was given up before it was known how it ends.
    pub fn was_given_up(&self) -> bool {
        self.came_to.unwrap_or(self.status) == Status::Inconclusive
    }

    /// What was found, for people: up to four findings with their details, each once that differs from others by ranks, addresses and numbers alone, in what
    /// other cases, the smaller case that fails too, and what to type to see it again. `command` is what is typed before `--replay`.
    pub fn explained(&self, command: &str, also: Option<&str>, smaller: Option<&str>) -> String {
        let mut text = format!("{} {}\n", self.status.name().to_uppercase(), self.case);
        if self.findings.is_empty() {
            text += &format!("  {}\n", self.reason);
        }
        let told = alike(&self.findings);
        for (finding, more) in told.iter().take(MOST_FINDINGS) {
            let call = finding.call.map(|call| format!(" call {call}")).unwrap_or_default();
            let more = if *more > 0 { format!(" (and {more} alike)") } else { String::new() };
            text += &format!("  {}{call}: {}{more}\n", finding.property, finding.summary);
            for line in finding.details.lines() {
                text += &format!("    {line}\n");
            }
        }
        if told.len() > MOST_FINDINGS {
            let more: usize = told[MOST_FINDINGS..].iter().map(|(_, more)| 1 + more).sum();
            text += &format!("  and {more} more findings\n");
        }
        if let Some(also) = also {
            text += &format!("  {also}\n");
        }
        if let Some(smaller) = smaller {
            text += &format!("  shrunk to  {smaller}\n");
        }
        text += &format!("  repro      {}\n\n", self.repro(command));
        text
    }

    /// What to type to see it again.
    pub fn repro(&self, command: &str) -> String {
        let schedule = self.schedule.as_ref().map(|schedule| format!("@{schedule}")).unwrap_or_default();
        format!("{command} --replay '{}{schedule}'", self.case)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a race that many threads show is printed once for each of them.
    #[test]
    fn findings_that_say_the_same_are_told_once() {
        let race = "race, read after write: rank 1 output.0+16..32, by rank 0, block 0 warp 0 lane 0, Store (weak) at PTX 157:1";
        let findings = [race, &race.replace("lane 0", "lane 3"), "other"].map(|summary| Finding {
            property: "races".into(),
            summary: summary.into(),
            ..Finding::default()
        });
        assert_eq!(
            alike(&findings).iter().map(|(finding, more)| (&*finding.summary, *more)).collect::<Vec<_>>(),
            [(race, 1), ("other", 0)]
        );
        let mut verdict = Verdict::without_checks("all_reduce/push:f32,sum:w=2:n=8", Status::Fail, "");
        verdict.findings = findings.into();
        let text = verdict.explained("validate", Some("also in 3 cases"), None);
        assert!(text.contains(&format!("  races: {race} (and 1 alike)\n  races: other\n  also in 3 cases\n")), "{text}");
    }
}
