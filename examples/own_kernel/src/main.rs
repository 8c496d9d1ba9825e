//! Every command of passmuster, with our algorithm: `cargo run --release -- validate all_reduce/mine`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    passmuster::cli::main(own_kernel::registry())
}
