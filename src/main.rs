//! The command. `passmuster --help` teaches it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// The emulator's race check makes and drops small clocks all the time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    passmuster::cli::main(passmuster::registry())
}
