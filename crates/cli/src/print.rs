//! How commands print: the macros below take the place of the standard ones in this crate, so that there is one way.
//!
//! A reader may go before the end (`... | head`). Then nothing is said about it and what else a command does, such as writing its record, is done; the
//! exit status is that of coreutils, whom SIGPIPE ends: 141, which is 128 + 13. A command that has something worse to tell keeps its own. Output that
//! cannot be written for another reason (a full disk) is an error, once, with exit status 2.
//!
//! Much of what is printed comes from files: names in PTX and specifications, reasons in records. Here, on the way out, every control character is made visible,
//! so that no file moves a cursor, changes a title or hides a line; and where GitHub reads along, no line is a command to it but [those of ours](command).

use std::{
    borrow::Cow,
    env, fmt,
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
    () => { $crate::print::out(std::format_args!("\n")) };
    ($($text:tt)*) => { $crate::print::out(std::format_args!("{}\n", std::format_args!($($text)*))) };
}
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::print::aside(std::format_args!($($text)*)) };
}

/// Writes to standard output.
pub(crate) fn out(text: fmt::Arguments<'_>) {
    if is_read() && FAILED.get().is_none() {
        note(io::stdout().lock().write_all(harmless(&text.to_string()).as_bytes()));
    }
}

/// Writes to standard output what may style itself: nothing that comes from a file.
pub(crate) fn styled(text: impl fmt::Display) {
    if is_read() && FAILED.get().is_none() {
        note(write!(io::stdout().lock(), "{text}"));
    }
}

/// Writes a command to GitHub, whose data is [escaped](crate::conform) as that takes it.
pub(crate) fn command(line: &str) {
    if is_read() && FAILED.get().is_none() {
        note(writeln!(io::stdout().lock(), "{}", visible(&line.replace('\n', " "))));
    }
}

/// Text as a terminal and GitHub's log show it.
fn harmless(text: &str) -> Cow<'_, str> {
    let visible = visible(text);
    if is_read_by_github() { Cow::Owned(no_command(&visible)) } else { visible }
}

/// Whether GitHub Actions reads what is printed.
pub(crate) fn is_read_by_github() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| env::var_os("GITHUB_ACTIONS").is_some())
}

/// The text with every control character but tabs and ends of lines made visible, and every one that turns the direction of what follows.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hidden(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// The text with no line that the runner of GitHub Actions takes for a command: those begin with `::`, whatever space is before, or have `##[` anywhere.
fn no_command(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace("##[", "##\\[");
        let (space, rest) = line.split_at(line.len() - line.trim_start().len());
        if rest.starts_with("::") { format!("{space}\\{rest}") } else { line }
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Writes a line to standard error. Where nobody reads that, there is nobody to tell.
pub(crate) fn aside(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{}", harmless(&text.to_string()));
}

/// Whether somebody still reads standard output. Check it in code that prints without end.
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// If this fails, a name in a file moves the cursor of a terminal that shows a report, or hides what stands before it.
    #[rstest]
    #[case::plain("rank 0: \"a\"\t1\nµs — ü", "rank 0: \"a\"\t1\nµs — ü")]
    #[case::escape("k\x1b[2Jx", "k\\u{1b}[2Jx")]
    #[case::title("\x1b]0;t\x07", "\\u{1b}]0;t\\u{7}")]
    #[case::carriage_return("fail\rpass", "fail\\rpass")]
    #[case::c1("a\u{9b}31m", "a\\u{9b}31m")]
    #[case::direction("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}")]
    #[case::nul_and_delete("\0\x7f", "\\u{0}\\u{7f}")]
    fn control_characters_are_shown(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(visible(text), shown);
    }

    /// If this fails, a file can annotate a commit, mask a word or stop commands in somebody's CI.
    #[rstest]
    #[case("::error::x", "\\::error::x")]
    #[case("a\n \t::set-output name=x::y\nb", "a\n \t\\::set-output name=x::y\nb")]
    #[case("std::vec a::b", "std::vec a::b")]
    #[case("x ##[error]y", "x ##\\[error]y")]
    fn lines_are_no_commands(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(no_command(text), shown);
    }
}
