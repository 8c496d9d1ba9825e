//! How commands print: the macros below take the place of the standard ones in this crate, so that there is one way.
//!
//! A reader may go before the end (`... | head`). Then nothing is said about it and what else a command does, such as writing its record, is done; the
//! exit status is that of coreutils, whom SIGPIPE ends: 141, which is 128 + 13. A command that has something worse to tell keeps its own. Output that
//! cannot be written for another reason (a full disk) is an error, once, with exit status 2.

use std::{
    fmt,
    io::{self, ErrorKind, Write},
    process::ExitCode,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::USAGE;

/// Exit status where the reader of standard output went before the end.
const BROKEN_PIPE: u8 = 128 + 13;

/// Whether the reader has gone.
static GONE: AtomicBool = AtomicBool::new(false);
/// What else standard output failed with, the first time.
static FAILED: OnceLock<String> = OnceLock::new();

macro_rules! print {
    ($($text:tt)*) => { $crate::print::out(std::format_args!($($text)*)) };
}
macro_rules! println {
    ($($text:tt)*) => { $crate::print::out(std::format_args!("{}\n", std::format_args!($($text)*))) };
}
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::print::aside(std::format_args!($($text)*)) };
}

/// Writes to standard output.
pub(crate) fn out(text: fmt::Arguments<'_>) {
    if is_read() && FAILED.get().is_none() {
        note(io::stdout().lock().write_fmt(text));
    }
}

/// Writes a line to standard error. Where nobody reads that, there is nobody to tell.
pub(crate) fn aside(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Whether somebody still reads standard output: whoever prints without end looks.
pub(crate) fn is_read() -> bool {
    !GONE.load(Ordering::Relaxed)
}

fn note(written: io::Result<()>) {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => GONE.store(true, Ordering::Relaxed),
        Err(error) => drop(FAILED.set(error.to_string())),
        Ok(()) => {}
    }
}

/// The exit status of a command that came to `status`, when all is printed.
pub(crate) fn finish(status: ExitCode) -> ExitCode {
    note(io::stdout().lock().flush());
    if let Some(error) = FAILED.get() {
        eprintln!("error: cannot write to standard output: {error}");
    }
    match (status == ExitCode::SUCCESS, FAILED.get(), is_read()) {
        (true, Some(_), _) => ExitCode::from(USAGE),
        (true, None, false) => ExitCode::from(BROKEN_PIPE),
        _ => status,
    }
}
