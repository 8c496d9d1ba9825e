//! The exit status of a run of cases, by what became of them.

use passmuster_harness::conformance::Status;

use crate::{CANNOT_RUN, FINDING, INCONCLUSIVE, USAGE};

/// A finding comes first, then what the harness or the machine failed in, then what did not come to its end. A run of which nothing passed could not run.
pub(crate) fn status(has: impl Fn(Status) -> bool) -> u8 {
    if Status::ALL.into_iter().any(|status| status.is_finding() && has(status)) {
        FINDING
    } else if has(Status::InfraError) {
        USAGE
    } else if has(Status::Inconclusive) {
        INCONCLUSIVE
    } else if has(Status::Pass) || has(Status::Waived) {
        0
    } else {
        CANNOT_RUN
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// If this fails, a script takes a run for a success that was not judged to its end, or for a finding what is none.
    #[rstest]
    #[case::passed(&[Status::Pass], 0)]
    #[case::waived(&[Status::Waived], 0)]
    #[case::some_refused(&[Status::Pass, Status::NotSupported, Status::NotRun], 0)]
    #[case::finding(&[Status::Pass, Status::Fail, Status::InfraError, Status::Inconclusive], 1)]
    #[case::hang(&[Status::Hang], 1)]
    #[case::crash(&[Status::Crash, Status::Pass], 1)]
    #[case::stale_waiver(&[Status::UnexpectedPass, Status::Pass], 1)]
    #[case::infrastructure(&[Status::Pass, Status::InfraError, Status::Inconclusive], 2)]
    #[case::all_refused(&[Status::NotSupported], 3)]
    #[case::none_run(&[Status::NotRun, Status::NotSupported], 3)]
    #[case::nothing(&[], 3)]
    #[case::inconclusive(&[Status::Inconclusive], 4)]
    #[case::one_inconclusive(&[Status::Pass, Status::Inconclusive, Status::Waived], 4)]
    #[case::inconclusive_or_refused(&[Status::NotSupported, Status::Inconclusive], 4)]
    fn worst_status_decides(#[case] statuses: &[Status], #[case] expected: u8) {
        assert_eq!(status(|status| statuses.contains(&status)), expected);
    }
}
