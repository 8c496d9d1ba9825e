//! Waivers: known findings that are somebody else's to mend, each with a reason, an owner and a day on which it ends.
//!
//! They stand in fixtures/waivers.toml. A finding that a waiver covers makes its case [`Status::Waived`] rather than a failure; a
//! waiver whose cases all pass is stale, and says so as [`Status::UnexpectedPass`].

use std::borrow::BorrowMut;

use serde::Deserialize;

use super::{CaseId, Query, Status, Verdict};
use passmuster_collectives::machine::MachineInfo;

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
    /// Versions of NCCL that have it.
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

/// Reads waivers.
///
/// # Errors
/// What is wrong with the text or with a query in it, and where.
pub fn parse(text: &str) -> Result<Vec<Waiver>, String> {
    let file: File = toml::from_str(text).map_err(|error| format!("fixtures/waivers.toml: {error}"))?;
    for waiver in &file.waiver {
        Query::new(&waiver.query).map_err(|error| format!("fixtures/waivers.toml: waiver `{}`: {error}", waiver.name))?;
    }
    Ok(file.waiver)
}

/// Every waiver that this build carries, in force or not.
pub fn all() -> Vec<Waiver> {
    parse(WAIVERS).unwrap_or_default()
}

/// The waivers that hold on a machine on a day (YYYY-MM-DD).
///
/// # Errors
/// As [`parse`].
pub fn in_force(machine: &MachineInfo, today: &str) -> Result<Vec<Waiver>, String> {
    let holds = |waiver: &Waiver| waiver.nccl.contains(&machine.nccl) && *today <= *waiver.expires;
    Ok(parse(WAIVERS)?.into_iter().filter(holds).collect())
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
            let all_known = verdict.findings.iter().all(|finding| waiver.properties.contains(&finding.property));
            if verdict.status == Status::Fail && all_known {
                verdict.status = Status::Waived;
                verdict.reason = format!("{}: {}", waiver.name, verdict.reason);
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
    use crate::conformance::{CollectiveCase, Finding};

    fn verdict(case: &CollectiveCase, property: Option<&str>) -> Verdict {
        let mut verdict = Verdict::without_checks(case.to_string(), Status::Pass, "");
        if let Some(property) = property {
            verdict.status = Status::Fail;
            verdict.findings.push(Finding {
                property: property.into(),
                call: None,
                summary: String::new(),
                details: String::new(),
                ..Finding::default()
            });
        }
        verdict
    }

    fn judged(properties: [Option<&str>; 3], whole: bool) -> Vec<Status> {
        let waivers = parse(
            "[[waiver]]\nname = 'peer-off-by-one'\nquery = '*:*,*:peer=nccl_ring:off=1'\nproperties = ['peer_reference']\nnccl = ['2.28.9']\n\
             reason = 'r'\nowner = 'o'\nexpires = '2027-01-01'",
        )
        .unwrap();
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

    #[test]
    fn waivers_end_and_belong_to_versions() {
        let machine = |nccl: &str| MachineInfo { nccl: nccl.into(), ..MachineInfo::default() };
        let all = parse(WAIVERS).unwrap();
        assert!(all.iter().all(|waiver| waiver.expires.len() == 10 && !waiver.reason.is_empty()));
        assert_eq!(in_force(&machine("2.28.9"), "2026-11-21").unwrap(), all);
        assert_eq!(in_force(&machine("2.28.9"), "2099-01-01").unwrap(), []);
        assert_eq!(in_force(&machine(""), "2026-11-21").unwrap(), []);
    }

    #[test]
    fn unreadable_waivers_say_where() {
        let error = parse("[[waiver]]\nname = 3").unwrap_err();
        assert!(error.starts_with("fixtures/waivers.toml: ") && error.contains("line 2"), "{error}");
    }
}
