//! Cases of a list as tests.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use passmuster_plan::algorithms::Registry;

use super::judge;
use crate::conformance::{CollectiveCase, List};

/// Runs the cases that a list has of the algorithms that a registry adds, on the emulator, under one schedule. Each is a test with the case's id as its name.
/// Arguments are those of Rust's own test runner.
///
/// Exit status: 0 if all passed, 101 if one did not, 2 if the registry cannot be used or the list has no case of them.
///
/// A `tests/conformance.rs` that says `harness = false` in Cargo.toml has this for a `main`:
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use passmuster_harness::{cargo_test, algorithms::Registry, conformance::List};
///
/// fn main() -> ExitCode {
///     // With .algorithm(...).
///     cargo_test::conformance(passmuster_harness::registry(passmuster_kernels::catalogue()), List::Smoke)
/// }
/// ```
///
/// `cargo test --test conformance -- w=3` runs those with `w=3` in their ids; cargo-nextest lists, filters and runs them, too.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;

    /// If this fails, a list that says nothing of an algorithm passes.
    #[test]
    fn no_case_is_an_error() {
        assert!(tests(&REGISTRY, List::Smoke).is_err_and(|error| error.contains("no case of an algorithm that the registry adds")));
    }
}
