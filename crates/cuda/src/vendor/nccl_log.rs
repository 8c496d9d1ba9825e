//! What NCCL chose: read from its own log, so that a mode that was asked for is known to be the one that ran.
//!
//! With `NCCL_DEBUG_SUBSYS=TUNING` NCCL writes a line for each call that one of its legacy algorithms does, such as
//! `AllReduce: 4 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}` (seen with 2.28.9), and none of that form for its symmetric kernels.
//!
//! It reads its variables once in a process, so they are set before ([`prepare`]), beside what the user has set: `TUNING` is added to the subjects, and the
//! level is raised to `INFO`. Where the user names a file, that is the one which is read. Otherwise NCCL writes to one of ours, and what the user asked
//! for is repeated on standard output, where it would have been.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write},
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
    process,
    sync::{Mutex, OnceLock, PoisonError},
};

use passmuster_plan::collective::Collective;

const LEVEL: &str = "NCCL_DEBUG";
const SUBJECTS: &str = "NCCL_DEBUG_SUBSYS";
const FILE: &str = "NCCL_DEBUG_FILE";

/// The subject of the lines that tell of choices.
const TUNING: &str = "TUNING";

/// What NCCL writes of where only a level is set (src/debug.cc of 2.28).
const SUBJECTS_BY_DEFAULT: &str = "INIT,BOOTSTRAP,ENV";

/// How much NCCL writes: what it calls a level, and so the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Nothing,
    Version,
    Warn,
    Info,
    Abort,
    Trace,
}

impl Level {
    /// As NCCL reads it; what it does not know is nothing.
    fn of(text: &OsStr) -> Level {
        let named =
            [("VERSION", Level::Version), ("WARN", Level::Warn), ("INFO", Level::Info), ("ABORT", Level::Abort), ("TRACE", Level::Trace)];
        named.into_iter().find(|(name, _)| text.eq_ignore_ascii_case(name)).map_or(Level::Nothing, |(_, level)| level)
    }

    /// Of a line of the log; of one that goes on with what came before it, none.
    fn of_line(line: &str) -> Option<Level> {
        let marks = [("NCCL WARN ", Level::Warn), ("NCCL INFO ", Level::Info), ("NCCL TRACE ", Level::Trace), ("NCCL CALL ", Level::Trace)];
        let marked = marks.into_iter().find(|(mark, _)| line.contains(mark)).map(|(_, level)| level);
        marked.or_else(|| line.starts_with("NCCL version").then_some(Level::Version))
    }
}

/// Where NCCL writes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    path: PathBuf,
    /// Lines up to this level are repeated on standard output.
    repeated: Level,
    /// Whether nobody else reads it: then it goes as soon as it is open.
    ours: bool,
}

/// What is set for NCCL's log, and where it then is. `user` tells the variables that are set.
fn arranged(user: impl Fn(&str) -> Option<OsString>, own_file: &Path, host: &str, pid: u32) -> (Vec<(&'static str, OsString)>, Target) {
    let asked = user(LEVEL).map_or(Level::Nothing, |level| Level::of(&level));
    let subjects = match (asked >= Level::Info, user(SUBJECTS)) {
        // What is below INFO is of all subjects.
        (false, _) => TUNING.into(),
        (true, None) => format!("{SUBJECTS_BY_DEFAULT},{TUNING}").into(),
        (true, Some(subjects)) => with_tuning(&subjects),
    };
    let mut variables = vec![(SUBJECTS, subjects)];
    if asked < Level::Info {
        variables.push((LEVEL, "INFO".into()));
    }
    // NCCL opens no file for its version alone.
    let target = match user(FILE).filter(|_| asked > Level::Version) {
        Some(pattern) => Target { path: expanded(&pattern, host, pid), repeated: Level::Nothing, ours: false },
        None => {
            let escaped = own_file.as_os_str().as_bytes().split(|&byte| byte == b'%').collect::<Vec<_>>().join(&b"%%"[..]);
            variables.push((FILE, OsStr::from_bytes(&escaped).to_owned()));
            Target { path: own_file.to_owned(), repeated: asked, ours: asked == Level::Nothing }
        }
    };
    (variables, target)
}

/// The user's subjects and that of choices. A list that starts with `^` says what is left out.
fn with_tuning(subjects: &OsStr) -> OsString {
    let Some(text) = subjects.to_str() else { return TUNING.into() };
    let is_tuning = |subject: &&str| subject.eq_ignore_ascii_case(TUNING);
    match text.strip_prefix('^') {
        Some(left_out) => {
            let others: Vec<&str> = left_out.split(',').filter(|subject| !subject.is_empty() && !is_tuning(subject)).collect();
            if others.is_empty() { "ALL".into() } else { format!("^{}", others.join(",")).into() }
        }
        None if text.split(',').any(|subject| is_tuning(&subject) || subject.eq_ignore_ascii_case("ALL")) => text.into(),
        None if text.is_empty() => TUNING.into(),
        None => format!("{text},{TUNING}").into(),
    }
}

/// The file that NCCL makes of a pattern: `%h` is the host's name up to its first dot, `%p` the process, `%%` a percent sign.
fn expanded(pattern: &OsStr, host: &str, pid: u32) -> PathBuf {
    let mut path = Vec::new();
    let mut bytes = pattern.as_bytes().iter();
    while let Some(&byte) = bytes.next() {
        match (byte, if byte == b'%' { bytes.next() } else { None }) {
            (b'%', Some(b'%')) => path.push(b'%'),
            (b'%', Some(b'h')) => path.extend(host.split('.').next().unwrap_or_default().bytes()),
            (b'%', Some(b'p')) => path.extend(pid.to_string().bytes()),
            (b'%', Some(&other)) => path.extend([b'%', other]),
            (byte, _) => path.push(byte),
        }
    }
    OsStr::from_bytes(&path).into()
}

/// The log of this process's NCCL, of which there is one.
static LOG: OnceLock<Mutex<Log>> = OnceLock::new();

/// What is to be set for the log to be readable; none where that was said before. Before NCCL is loaded.
pub(crate) fn prepare() -> Option<Vec<(&'static str, OsString)>> {
    let mut variables = None;
    LOG.get_or_init(|| {
        let own_file = env::temp_dir().join(format!("passmuster-nccl.{}", process::id()));
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let (wanted, target) = arranged(|name| env::var_os(name), &own_file, host.trim(), process::id());
        if target.repeated > Level::Nothing {
            eprintln!("NCCL writes its log to {}; what {LEVEL} asks for is repeated on standard output", own_file.display());
        }
        variables = Some(wanted);
        Mutex::new(Log { target, file: None, repeated: 0, level: Level::Nothing })
    });
    variables
}

/// A log that is being written.
#[derive(Debug)]
struct Log {
    target: Target,
    /// Once NCCL has created it.
    file: Option<File>,
    /// Bytes that were looked at for what is to be repeated.
    repeated: u64,
    /// Of the line before those.
    level: Level,
}

impl Log {
    /// Whole lines from a byte on.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn lines_from(&mut self, start: u64) -> Result<String, String> {
        let path = self.target.path.display();
        let unreadable = |why: &dyn std::fmt::Display| format!("NCCL's log {path} cannot be read: {why}");
        let file = match &self.file {
            Some(file) => file,
            None => {
                let is_file = fs::metadata(&self.target.path).map_err(|error| unreadable(&error))?.is_file();
                if !is_file {
                    // To open a pipe would wait for its writer.
                    return Err(unreadable(&"it is no regular file"));
                }
                let file = File::open(&self.target.path).map_err(|error| unreadable(&error))?;
                if self.target.ours {
                    // Nothing is left, however the process ends.
                    let _ = fs::remove_file(&self.target.path);
                }
                self.file.insert(file)
            }
        };
        let end = file.metadata().map_err(|error| unreadable(&error))?.len();
        let mut text = vec![0; end.saturating_sub(start) as usize];
        file.read_exact_at(&mut text, start).map_err(|error| unreadable(&error))?;
        text.truncate(text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1));
        // As long as it was, so that places in it are those of the file.
        Ok(text.into_iter().map(|byte| if byte.is_ascii() { char::from(byte) } else { '?' }).collect())
    }

    /// Repeats what the user wants to see of what came since it was last done. Its reader may have gone, which is no reason to stop.
    fn repeat(&mut self, to: &mut impl Write) {
        if self.target.repeated == Level::Nothing {
            return;
        }
        let Ok(text) = self.lines_from(self.repeated) else { return };
        self.repeated += text.len() as u64;
        for line in text.lines() {
            self.level = Level::of_line(line).unwrap_or(self.level);
            if self.level <= self.target.repeated {
                let _ = writeln!(to, "{line}");
            }
        }
    }
}

/// Whether NCCL did what it was made to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Nothing in its log says otherwise.
    AsAsked,
    /// It says, in these words, that it took another.
    Other(String),
    /// It is not known, for this reason.
    Unchecked(String),
}

/// What one machine has read of the log. Machines of one process share it, and those that call NCCL at once cannot tell their choices apart.
#[derive(Debug)]
pub(crate) struct NcclLog {
    read: u64,
}

impl NcclLog {
    /// From what comes next on.
    pub(crate) fn new() -> NcclLog {
        let mut log = NcclLog { read: 0 };
        log.skip();
        log
    }

    /// The lines since the last look.
    fn fresh(&mut self) -> Result<String, String> {
        let log = LOG.get().ok_or("cuda::prepare_process was not called before NCCL was loaded")?;
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.repeat(&mut io::stdout());
        let text = log.lines_from(self.read)?;
        self.read += text.len() as u64;
        Ok(text)
    }

    /// Passes over what was written so far.
    pub(crate) fn skip(&mut self) {
        // A log that cannot be read is reported when somebody asks about it.
        let _ = self.fresh();
    }

    /// Whether the choices since the last look are those that were asked for: symmetric kernels for collectives with windows, else the legacy algorithm that
    /// the environment names. Communicators were joined before, so that the log has begun.
    pub(crate) fn path(&mut self, windowed: &BTreeSet<Collective>) -> Choice {
        let asked = env::var("NCCL_ALGO").ok();
        if windowed.is_empty() && asked.is_none() {
            return Choice::AsAsked;
        }
        match self.fresh() {
            Err(why) => Choice::Unchecked(why),
            Ok(_) if self.read == 0 => Choice::Unchecked("NCCL's log is empty".into()),
            Ok(text) => other_choice(&text, windowed, asked.as_deref()).map_or(Choice::AsAsked, |line| Choice::Other(line.to_owned())),
        }
    }

    /// Why it is known already that nothing can be checked.
    pub(crate) fn unchecked(&self) -> Option<&'static str> {
        LOG.get().is_none().then_some("cuda::prepare_process was not called before NCCL was loaded")
    }
}

impl Drop for NcclLog {
    /// Repeats the last of it.
    fn drop(&mut self) {
        self.skip();
    }
}

/// The first line that tells of another choice than a symmetric kernel for collectives with windows, or the legacy algorithm asked for.
fn other_choice<'a>(log: &'a str, windowed: &BTreeSet<Collective>, algorithm: Option<&str>) -> Option<&'a str> {
    log.lines().filter_map(|line| line.split_once("NCCL INFO ").map(|(_, said)| said)).find(|said| {
        let chosen = said.split_once("-> Algo ").and_then(|(_, rest)| rest.split_whitespace().next());
        let has_windows = || said.split_once(':').is_some_and(|(function, _)| windowed.iter().any(|of| of.in_nccl() == function));
        chosen.is_some_and(|chosen| has_windows() || algorithm.is_some_and(|asked| !asked.eq_ignore_ascii_case(chosen)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::io::Write;

    const LOG: &str = "host:1:2 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n\
        host:1:2 [0] NCCL INFO AllReduce: 2080 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n";

    #[rstest]
    #[case::as_asked(&[], Some("Ring"), false)]
    #[case::tree_asked(&[], Some("Tree"), true)]
    #[case::symmetric_asked(&[Collective::AllReduce], None, true)]
    #[case::symmetric_asked_of_another(&[Collective::AllGather], None, false)]
    #[case::nothing_asked(&[], None, false)]
    fn a_choice_that_was_not_asked_for_is_told(#[case] windowed: &[Collective], #[case] algorithm: Option<&str>, #[case] other: bool) {
        let found = other_choice(LOG, &windowed.iter().copied().collect(), algorithm);
        assert_eq!(found.is_some(), other, "{found:?}");
        assert!(found.is_none_or(|line| line.starts_with("AllReduce: 2080 Bytes -> Algo RING")));
    }

    const OWN: &str = "/tmp/own.7";
    const OURS: Target = Target { path: PathBuf::new(), repeated: Level::Nothing, ours: true };

    /// If this fails, a user's NCCL_DEBUG turns the check off, or takes from the user what it was set for.
    #[rstest]
    #[case::nothing([None, None, None], [Some("INFO"), Some("TUNING"), Some(OWN)], (OWN, Level::Nothing, true))]
    #[case::level([Some("INFO"), None, None], [None, Some("INIT,BOOTSTRAP,ENV,TUNING"), Some(OWN)], (OWN, Level::Info, false))]
    #[case::trace([Some("trace"), None, None], [None, Some("INIT,BOOTSTRAP,ENV,TUNING"), Some(OWN)], (OWN, Level::Trace, false))]
    #[case::warnings([Some("WARN"), None, None], [Some("INFO"), Some("TUNING"), Some(OWN)], (OWN, Level::Warn, false))]
    #[case::version([Some("VERSION"), None, Some("/a")], [Some("INFO"), Some("TUNING"), Some(OWN)], (OWN, Level::Version, false))]
    #[case::unknown([Some("verbose"), None, None], [Some("INFO"), Some("TUNING"), Some(OWN)], (OWN, Level::Nothing, true))]
    #[case::subjects([Some("INFO"), Some("COLL,NET"), None], [None, Some("COLL,NET,TUNING"), Some(OWN)], (OWN, Level::Info, false))]
    #[case::subjects_alone([None, Some("COLL"), None], [Some("INFO"), Some("TUNING"), Some(OWN)], (OWN, Level::Nothing, true))]
    #[case::file([Some("INFO"), None, Some("/a/%h.%p.log")], [None, Some("INIT,BOOTSTRAP,ENV,TUNING"), None], ("/a/node.7.log", Level::Nothing, false))]
    #[case::warnings_to_a_file([Some("WARN"), Some("NET"), Some("/a")], [Some("INFO"), Some("TUNING"), None], ("/a", Level::Nothing, false))]
    #[case::file_without_a_level([None, None, Some("/a")], [Some("INFO"), Some("TUNING"), Some(OWN)], (OWN, Level::Nothing, true))]
    fn the_check_runs_beside_what_the_user_has_set(
        #[case] user: [Option<&str>; 3],
        #[case] set: [Option<&str>; 3],
        #[case] (path, repeated, ours): (&str, Level, bool),
    ) {
        let names = [LEVEL, SUBJECTS, FILE];
        let of_user = |name: &str| user[names.iter().position(|known| *known == name)?].map(OsString::from);
        let (variables, target) = arranged(of_user, OWN.as_ref(), "node.example.org", 7);
        let expected: BTreeSet<_> = names.into_iter().zip(set).filter_map(|(name, value)| Some((name, OsString::from(value?)))).collect();
        assert_eq!(variables.into_iter().collect::<BTreeSet<_>>(), expected);
        assert_eq!(target, Target { path: path.into(), repeated, ours });
    }

    #[rstest]
    #[case("COLL", "COLL,TUNING")]
    #[case("coll,tuning", "coll,tuning")]
    #[case("ALL", "ALL")]
    #[case("^COLL", "^COLL")]
    #[case("^COLL,TUNING,NET", "^COLL,NET")]
    #[case("^TUNING", "ALL")]
    #[case("", "TUNING")]
    fn choices_are_among_the_subjects(#[case] users: &str, #[case] set: &str) {
        assert_eq!(with_tuning(OsStr::new(users)), set);
    }

    #[rstest]
    #[case("/a/b", "/a/b")]
    #[case("%h%p%%h", "node7%h")]
    #[case("/a/%x%", "/a/%x%")]
    fn files_are_those_that_nccl_makes_of_a_pattern(#[case] pattern: &str, #[case] path: &str) {
        assert_eq!(expanded(OsStr::new(pattern), "node.example.org", 7), PathBuf::from(path));
        let (variables, target) = arranged(|_| None, "/t%p/own".as_ref(), "node", 7);
        assert_eq!(variables.last().unwrap(), &(FILE, OsString::from("/t%%p/own")));
        assert_eq!(expanded(&variables.last().unwrap().1, "node", 7), target.path);
    }

    fn temporary(name: &str) -> PathBuf {
        env::temp_dir().join(format!("passmuster-nccl-log-{}-{name}", process::id()))
    }

    /// If this fails, half a line is read as a whole one, a line is read twice or never, or our own file stays when the process is gone.
    #[test]
    fn whole_lines_are_read_once_and_our_file_goes() {
        let path = temporary("lines");
        let mut log = super::Log { target: Target { path: path.clone(), ..OURS }, file: None, repeated: 0, level: Level::Nothing };
        let why = log.lines_from(0).unwrap_err();
        assert!(why.starts_with(&format!("NCCL's log {} cannot be read: ", path.display())), "{why}");
        let mut written = File::create(&path).unwrap();
        written.write_all("one\ntw\u{f6}\nhal".as_bytes()).unwrap();
        let first = log.lines_from(0).unwrap();
        assert_eq!(first, "one\ntw??\n");
        assert!(!path.exists());
        written.write_all(b"f\n").unwrap();
        assert_eq!(log.lines_from(first.len() as u64).unwrap(), "half\n");
        assert_eq!(log.lines_from(first.len() as u64 + 5).unwrap(), "");
    }

    /// If this fails, a rank's call panics because nobody reads standard output any more.
    #[test]
    fn what_is_repeated_may_have_no_reader() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let target = Target { path: temporary("repeated"), repeated: Level::Info, ..OURS };
        let mut written = File::create(&target.path).unwrap();
        let mut log = super::Log { target, file: None, repeated: 0, level: Level::Nothing };
        written.write_all(b"NCCL INFO one\n").unwrap();
        log.repeat(&mut Gone);
        written.write_all(b"NCCL INFO two\n").unwrap();
        let mut shown = Vec::new();
        log.repeat(&mut shown);
        assert_eq!(shown, b"NCCL INFO two\n");
    }

    #[test]
    fn what_is_no_file_cannot_be_read() {
        let mut log = super::Log { target: Target { path: "/dev/null".into(), ..OURS }, file: None, repeated: 0, level: Level::Nothing };
        assert_eq!(log.lines_from(0), Err("NCCL's log /dev/null cannot be read: it is no regular file".into()));
    }

    #[rstest]
    #[case("host:1:2 [0] NCCL INFO AllReduce: 4 Bytes -> Algo RING", Some(Level::Info))]
    #[case("[2025-01-01 00:00:00] host:1:2 [0] enqueue.cc:1 (f) NCCL WARN no", Some(Level::Warn))]
    #[case("NCCL version 2.28.9+cuda13.0", Some(Level::Version))]
    #[case("  Algorithm | Tree | Ring", None)]
    fn lines_have_the_level_that_they_name(#[case] line: &str, #[case] level: Option<Level>) {
        assert_eq!(Level::of_line(line), level);
    }

    /// The process of these tests was not prepared, and no NCCL is in it.
    #[test]
    fn where_nothing_was_prepared_a_path_that_was_asked_for_is_unchecked() {
        let mut log = NcclLog::new();
        let reason = "cuda::prepare_process was not called before NCCL was loaded";
        assert_eq!(log.unchecked(), Some(reason));
        assert_eq!(log.path(&[Collective::AllGather].into()), Choice::Unchecked(reason.into()));
        assert_eq!(log.path(&BTreeSet::new()), Choice::AsAsked);
    }
}
