//! The binary: see the library's `main`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use mimalloc::MiMalloc;
use passmuster_collectives::algorithms::Registry;

/// The emulator's race check makes and drops small clocks all the time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    passmuster_cli::main(Registry::built_in())
}
