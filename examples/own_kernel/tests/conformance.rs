//! Each case of the smoke list as a test.

use std::process::ExitCode;

use passmuster::{cargo_test, conformance::List};

fn main() -> ExitCode {
    cargo_test::conformance(own_kernel::registry(), List::Smoke)
}
