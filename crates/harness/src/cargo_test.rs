//! Conformance under `cargo test`, for crates that bring algorithms: each case is a test with the case's id as its name.
//!
//! A `tests/conformance.rs` that says `harness = false` in Cargo.toml has this for a `main`:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use passmuster_harness::{cargo_test, algorithms::Registry, conformance::List};
//!
//! fn main() -> ExitCode {
//!     // With .algorithm(...).
//!     cargo_test::conformance(passmuster_harness::registry(passmuster_kernels::catalogue()), List::Smoke)
//! }
//! ```
//!
//! `cargo test --test conformance -- w=3` runs those with `w=3` in their ids; cargo-nextest lists, filters and runs them, too.

use std::{process::ExitCode, time::Duration};

use libtest_mimic::{Arguments, Failed, Trial};
use passmuster_plan::algorithms::Registry;

use crate::{
    conformance::{Case, CollectiveCase, List, Status, runner::Settings},
    emulator::{Emulator, EmulatorOptions},
};

/// How long a case may run before it is inconclusive. The machine may be loaded: it is no measure of a kernel.
const DEADLINE: Duration = Duration::from_secs(600);

/// Runs the cases that a list has of the algorithms that it adds, on the emulator, under one schedule. Arguments are those of
/// Rust's own test runner.
///
/// Exit status: 0 where all passed, 101 where one did not, 2 where the registry cannot be used or the list has no case of them.
pub fn conformance(registry: Registry, list: List) -> ExitCode {
    match registry.check().map_err(|error| error.to_string()).and_then(|()| tests(&registry, list)) {
        Ok(tests) => libtest_mimic::run(&Arguments::from_args(), tests).exit_code(),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn tests(registry: &Registry, list: List) -> Result<Vec<Trial>, String> {
    let is_added =
        |case: &CollectiveCase| registry.added().iter().any(|a| (a.collective(), a.name()) == (case.collective, &*case.algorithm));
    let tests: Vec<Trial> = list.cases(registry, 0).into_iter().filter(is_added).map(|case| test(registry.clone(), case)).collect();
    if tests.is_empty() {
        return Err(format!("the list {} has no case of an algorithm that the registry adds", list.name()));
    }
    Ok(tests)
}

fn test(registry: Registry, case: CollectiveCase) -> Trial {
    Trial::test(case.to_string(), move || judge(&registry, &case.into()).map_err(Failed::from))
}

/// Judges a case on the emulator, under one schedule: for tests of one's own, as with the cases of [`strategies`](crate::strategies).
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

    /// If this fails, a list that says nothing of an algorithm passes.
    #[test]
    fn no_case_is_an_error() {
        assert!(tests(&REGISTRY, List::Smoke).is_err_and(|error| error.contains("no case of an algorithm that the registry adds")));
    }
}
