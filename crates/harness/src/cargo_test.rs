//! Conformance under `cargo test`, for crates that bring algorithms.
//!
//! [`judge`] judges one case, in a test of yours. With the feature `cargo-test`, `conformance` makes a test of each case of a list.

#[cfg(any(test, feature = "cargo-test"))]
mod trials;

use std::time::Duration;

use passmuster_plan::algorithms::Registry;

use crate::{
    conformance::{Case, Status, runner::Settings},
    emulator::{Emulator, EmulatorOptions},
};

#[cfg(any(test, feature = "cargo-test"))]
pub use trials::conformance;

/// How long a case may run before it is inconclusive. The machine may be loaded: it is no measure of a kernel.
const DEADLINE: Duration = Duration::from_secs(600);

/// Judges a case on the emulator, under one schedule: for tests of one's own, as with the cases of `strategies` (feature `proptest`).
///
/// # Errors
/// What is wrong with it, for people, with the command that repeats it. What could not be judged has not passed.
pub fn judge(registry: &Registry, case: &Case) -> Result<(), String> {
    let settings = Settings { registry, deadline: DEADLINE, shared_pads: false, progress: &|_| {} };
    let verdict = case.judge(&mut Emulator::new(EmulatorOptions::of(registry)), &settings);
    match verdict.status {
        Status::Pass => Ok(()),
        _ => Err(verdict.explained("cargo run --release -- validate", None, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;

    /// If this fails, a case that was not judged, or not to its end, is a test that passes.
    #[test]
    fn only_a_pass_passes() {
        let judged = |id: &str| judge(&REGISTRY, &id.parse().unwrap());
        assert_eq!(judged("all_reduce/two_shot:bf16,sum:w=2:n=40"), Ok(()));
        let refused = judged("all_reduce/two_shot:bf16,sum:w=2:n=40:fault=killed").unwrap_err();
        assert!(
            refused.starts_with("NOT_SUPPORTED all_reduce/two_shot") && refused.contains("cargo run --release -- validate --replay"),
            "{refused}"
        );
    }

    /// If this fails, the same case passes here and fails in the command, or the other way round: both ask whether the fault was named.
    #[test]
    fn named_faults_pass() {
        for fault in ["absent@r1", "illegal_address@r1", "poisoned"] {
            let id = format!("all_reduce/two_shot:bf16,sum:w=2:n=40:fault={fault}");
            assert_eq!(judge(&REGISTRY, &id.parse().unwrap()), Ok(()), "{fault}");
        }
    }
}
