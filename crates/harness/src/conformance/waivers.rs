//! Waivers: known findings that are somebody else's to fix, each with a reason, an owner and a day on which it ends.
//!
//! Ours stand in fixtures/waivers.toml; `--waivers FILE` takes others. A finding that a waiver covers makes its case [`Status::Waived`] rather than a failure; a
//! waiver whose cases all pass is stale, and says so as [`Status::UnexpectedPass`].

use std::borrow::BorrowMut;

use jiff::civil::Date;
use serde::Deserialize;

use super::{CaseId, Finding, Query, Status, Verdict};
use passmuster_plan::machine::MachineInfo;

/// The waivers that this build carries.
const WAIVERS: &str = include_str!("../../fixtures/waivers.toml");

/// A known finding.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiver {
    /// What reports call it.
    pub name: String,
    /// Which cases have it.
    pub query: String,
    /// Which properties fail.
    pub properties: Vec<String>,
    /// Versions of NCCL that have it; without any, it is no matter of NCCL.
    #[serde(default)]
    pub nccl: Vec<String>,
    /// What is wrong, and where it was reported.
    pub reason: String,
    /// Who watches over it.
    pub owner: String,
    /// The last day on which it holds: YYYY-MM-DD.
    pub expires: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    waiver: Vec<Waiver>,
}

impl Waiver {
    /// Whether it holds on a machine on a day (YYYY-MM-DD). The last day is one on which it does.
    pub fn holds(&self, machine: &MachineInfo, today: &str) -> bool {
        (self.nccl.is_empty() || self.nccl.contains(&machine.nccl)) && *today <= *self.expires
    }

    /// Whether all that is wrong with a case is known: it has findings, and each is of a property that the waiver names.
    fn covers(&self, verdict: &Verdict) -> bool {
        let is_known = |finding: &Finding| self.properties.contains(&finding.property);
        verdict.status == Status::Fail && !verdict.findings.is_empty() && verdict.findings.iter().all(is_known)
    }
}

/// Reads waivers; `path` is where they stand, for errors.
///
/// # Errors
/// What is wrong with the text, with a query in it or with a day, and where.
pub fn parse(path: &str, text: &str) -> Result<Vec<Waiver>, String> {
    let file: File = toml::from_str(text).map_err(|error| format!("{path}: {error}"))?;
    for Waiver { name, query, expires, .. } in &file.waiver {
        Query::new(query).map_err(|error| format!("{path}: waiver `{name}`: {error}"))?;
        if expires.parse::<Date>().is_err() || expires.len() != 10 {
            return Err(format!("{path}: waiver `{name}`: expires = `{expires}` is no day: expected YYYY-MM-DD"));
        }
    }
    Ok(file.waiver)
}

/// Every waiver that this build carries, in force or not.
pub fn built_in() -> Vec<Waiver> {
    parse("fixtures/waivers.toml", WAIVERS).expect("a test reads them")
}

/// Applies waivers to the verdicts of a run, in the order of its cases. Only a run of a `whole` list can tell that a waiver is stale: a
/// selection may have just those of its cases that pass.
pub fn apply(waivers: &[Waiver], cases: &[impl CaseId], verdicts: &mut [impl BorrowMut<Verdict>], whole: bool) {
    for waiver in waivers {
        let Ok(query) = Query::new(&waiver.query) else { continue };
        let mut covered: Vec<&mut Verdict> =
            cases.iter().zip(&mut *verdicts).filter(|(case, _)| query.matches(*case)).map(|(_, verdict)| verdict.borrow_mut()).collect();
        let mut seen = false;
        for verdict in &mut covered {
            if waiver.covers(verdict) {
                verdict.status = Status::Waived;
                verdict.reason = format!("{}: {}", waiver.name, verdict.reason);
                verdict.waiver = Some(waiver.name.clone());
            }
            seen |= verdict.status == Status::Waived;
        }
        if whole && !seen {
            for verdict in covered.into_iter().filter(|verdict| verdict.status == Status::Pass) {
                verdict.status = Status::UnexpectedPass;
                verdict.reason = format!("waiver {} is stale: none of its cases fails", waiver.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::CollectiveCase;
    use rstest::rstest;

    fn failed(case: &impl ToString, status: Status, properties: &[&str]) -> Verdict {
        let mut verdict = Verdict::without_checks(case.to_string(), status, "");
        verdict.reason = "wrong".into();
        verdict.findings = properties.iter().map(|&property| Finding { property: property.into(), ..Finding::default() }).collect();
        verdict
    }

    fn verdict(case: &CollectiveCase, property: Option<&str>) -> Verdict {
        match property {
            Some(property) => failed(case, Status::Fail, &[property]),
            None => failed(case, Status::Pass, &[]),
        }
    }

    const OFF_BY_ONE: &str = "[[waiver]]\nname = 'peer-off-by-one'\nquery = '*:*,*:peer=nccl_ring:off=1'\nproperties = ['peer_reference', 'equals_peer']\n\
         nccl = ['2.28.9']\nreason = 'r'\nowner = 'o'\nexpires = '2027-01-01'";

    fn judged(properties: [Option<&str>; 3], whole: bool) -> Vec<Status> {
        let waivers = parse("w.toml", OFF_BY_ONE).unwrap();
        let cases: Vec<CollectiveCase> = ["off=1:peer=nccl_ring", "off=1:peer=nccl_ring:seed=1", "peer=nccl_ring"]
            .iter()
            .map(|rest| format!("all_reduce/two_shot:bf16,sum:w=2:n=5:{rest}").parse().unwrap())
            .collect();
        let mut verdicts: Vec<Verdict> = cases.iter().zip(properties).map(|(case, property)| verdict(case, property)).collect();
        apply(&waivers, &cases, &mut verdicts, whole);
        verdicts.iter().map(|v| v.status).collect()
    }

    #[test]
    fn known_findings_are_waived_and_others_are_not() {
        use Status::{Fail, Pass, UnexpectedPass, Waived};
        assert_eq!(judged([Some("peer_reference"), None, None], true), [Waived, Pass, Pass]);
        assert_eq!(judged([Some("reference"), Some("peer_reference"), None], true), [Fail, Waived, Pass]);
        assert_eq!(judged([None, None, Some("peer_reference")], true), [UnexpectedPass, UnexpectedPass, Fail]);
        assert_eq!(judged([None, None, None], false), [Pass, Pass, Pass]);
    }

    /// If this fails, a new bug hides behind a known one, or a hang or a failure that says nothing behind a waiver for wrong results.
    #[rstest]
    #[case::known(Status::Fail, &["peer_reference"], Status::Waived)]
    #[case::both_known(Status::Fail, &["peer_reference", "equals_peer"], Status::Waived)]
    #[case::one_is_new(Status::Fail, &["peer_reference", "reference"], Status::Fail)]
    #[case::new_one_first(Status::Fail, &["races", "peer_reference"], Status::Fail)]
    #[case::without_findings(Status::Fail, &[], Status::Fail)]
    #[case::hang(Status::Hang, &["peer_reference"], Status::Hang)]
    #[case::crash(Status::Crash, &["peer_reference"], Status::Crash)]
    #[case::inconclusive(Status::Inconclusive, &[], Status::Inconclusive)]
    fn only_known_findings_are_waived(#[case] status: Status, #[case] properties: &[&str], #[case] expected: Status) {
        let case: CollectiveCase = "all_reduce/two_shot:bf16,sum:w=2:n=5:off=1:peer=nccl_ring".parse().unwrap();
        let mut verdicts = [failed(&case, status, properties)];
        apply(&parse("w.toml", OFF_BY_ONE).unwrap(), &[case], &mut verdicts, true);
        assert_eq!(verdicts[0].status, expected);
        assert_eq!(verdicts[0].reason, if expected == Status::Waived { "peer-off-by-one: wrong" } else { "wrong" });
        assert_eq!(verdicts[0].waiver.as_deref(), (expected == Status::Waived).then_some("peer-off-by-one"));
    }

    /// If this fails, a waiver ends a day early, goes on after its last day, or covers a version of NCCL in which the bug is fixed.
    #[test]
    fn waiver_holds_to_its_last_day() {
        let machine = |nccl: &str| MachineInfo { nccl: nccl.into(), ..MachineInfo::default() };
        let waiver = &parse("w.toml", OFF_BY_ONE).unwrap()[0];
        let days = ["2026-12-31", "2027-01-01", "2027-01-02", "2028-01-01"].map(|day| waiver.holds(&machine("2.28.9"), day));
        assert_eq!(days, [true, true, false, false]);
        assert!(!waiver.holds(&machine("2.29.7"), "2026-12-31") && !waiver.holds(&machine(""), "2026-12-31"));
        let of_any = Waiver { nccl: Vec::new(), ..waiver.clone() };
        assert!(of_any.holds(&machine(""), "2026-12-31") && !of_any.holds(&machine(""), "2027-01-02"));
    }

    #[test]
    fn ours_name_versions_and_reasons() {
        assert!(built_in().iter().all(|waiver| !waiver.nccl.is_empty() && !waiver.reason.is_empty() && !waiver.owner.is_empty()));
    }

    #[test]
    fn unreadable_waivers_say_where() {
        let error = parse("mine.toml", "[[waiver]]\nname = 3").unwrap_err();
        assert!(error.starts_with("mine.toml: ") && error.contains("line 2"), "{error}");
        let error = parse("mine.toml", &OFF_BY_ONE.replace("2027-01-01", "2027-13-01")).unwrap_err();
        assert_eq!(error, "mine.toml: waiver `peer-off-by-one`: expires = `2027-13-01` is no day: expected YYYY-MM-DD");
    }
}
