//! What a run has found so far: kept beside its record every minute, and when a signal ends it.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use passmuster_bootstrap::own;
use passmuster_harness::conformance::{
    process,
    report::{Partial, Record, RecordCase},
};
use serde::Serialize;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
    low_level,
};

use crate::{
    USAGE,
    result_file::{ResultFile, let_go, waits_for_reader},
};

/// What the file of what was found so far has behind its name.
const SUFFIX: &str = ".partial";

/// Seconds from one writing to the next.
pub(crate) const EVERY: u64 = 60;

/// What a run has found so far.
pub(crate) struct Journal<C> {
    state: Mutex<State<C>>,
    every: Duration,
    /// The record of some cases, as far as it can be known before the end.
    record: Box<dyn Fn(Vec<C>) -> Record<C> + Send + Sync>,
}

struct State<C> {
    /// In the order of the run; none where a case is not yet judged.
    cases: Vec<Option<C>>,
    /// Where they are kept.
    file: Option<ResultFile>,
    written: Instant,
    /// Whether the record itself is being written, or has been.
    ended: bool,
    /// Whether it was said that nothing can be written.
    warned: bool,
}

/// Where what was found so far is kept, of a record that goes to `json`. No such file of another run may be there.
///
/// # Errors
/// Where one is, unless it is the one that is gone on with.
pub(crate) fn kept_in(json: &ResultFile, resumed: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let Some(path) = json.beside(SUFFIX) else { return Ok(None) };
    let resumed = resumed.and_then(|resumed| resumed.canonicalize().ok());
    if path.exists() && resumed != path.canonicalize().ok() {
        bail!(
            "{} is there, of a run that was interrupted: go on with it (--resume, where the command has it), or remove it",
            path.display()
        );
    }
    Ok(Some(path))
}

impl<C: Clone + RecordCase + Serialize + Send + 'static> Journal<C> {
    /// A journal of a run that has found `cases` already. From now on SIGINT and SIGTERM end the process, with what was found by then kept.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub(crate) fn open(
        file: Option<PathBuf>,
        every: Duration,
        cases: Vec<Option<C>>,
        record: impl Fn(Vec<C>) -> Record<C> + Send + Sync + 'static,
    ) -> anyhow::Result<Arc<Journal<C>>> {
        let file = ResultFile::asked(file.as_deref())?;
        let state = State { cases, file, written: Instant::now(), ended: false, warned: false };
        let journal = Arc::new(Journal { state: Mutex::new(state), every, record: Box::new(record) });
        let waiting = Arc::clone(&journal);
        on_signal(move |signal| waiting.interrupted(signal))?;
        Ok(journal)
    }

    /// Enters what was found of a case.
    pub(crate) fn put(&self, index: usize, case: C) {
        let mut state = self.lock();
        if state.ended {
            return;
        }
        state.cases[index] = Some(case);
        if state.written.elapsed() < self.every {
            return;
        }
        let kept = self.keep(&state, "not yet ended");
        state.written = Instant::now();
        // A terminal that takes nothing must not hold up a signal, which waits for the lock.
        let warned = kept.is_err() && std::mem::replace(&mut state.warned, true);
        drop(state);
        if let Err(error) = kept
            && !warned
        {
            eprintln!("{error:#}");
        }
    }

    /// What was found so far.
    pub(crate) fn judged(&self) -> Vec<C> {
        self.lock().cases.iter().flatten().cloned().collect()
    }

    /// Ends the run with `write`, which writes the record: a signal waits for it. What was kept before is removed then, unless it failed.
    ///
    /// # Errors
    /// Those of `write`.
    pub(crate) fn end(&self, write: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut state = self.lock();
        state.ended = true;
        write()?;
        if let Some(file) = state.file.take() {
            let _ = fs::remove_file(file.path());
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, state: &State<C>, why: &str) -> anyhow::Result<()> {
        let Some(file) = &state.file else { return Ok(()) };
        let judged: Vec<C> = state.cases.iter().flatten().cloned().collect();
        let partial = Partial { judged: judged.len(), of: state.cases.len(), why: why.into() };
        file.write(&Record { partial: Some(partial), ..(self.record)(judged) }.to_json())
    }

    /// Keeps what was found, takes the children along, and ends the process.
    fn interrupted(&self, signal: i32) -> ! {
        let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
        // Held to the end: what is found from now on is of children that are dying.
        let state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(state)) => break state.into_inner(),
                Err(TryLockError::WouldBlock) if waits_for_reader() => {
                    kill_all();
                    say(format!("{name}: the record is not written: nobody reads the pipe that it was to go to"));
                    let_go();
                    low_level::exit(128 + signal)
                }
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(20)),
            }
        };
        let mut code = 128 + signal;
        if state.ended {
            kill_all();
        } else {
            let (judged, of) = (state.cases.iter().flatten().count(), state.cases.len());
            let said = match (self.keep(&state, name), &state.file) {
                (Ok(()), Some(file)) => format!("kept in {}", file.path().display()),
                (Ok(()), None) => "nothing is kept without --json".into(),
                (Err(error), _) => {
                    code = USAGE.into();
                    format!("{error:#}")
                }
            };
            kill_all();
            say(format!("{name}: {judged} of {of} cases judged; {said}"));
        }
        let_go();
        low_level::exit(code)
    }
}

/// Kills all processes that were started here.
fn kill_all() {
    process::kill_all();
    own::kill_all();
}

/// Has SIGINT and SIGTERM end the process and its children.
///
/// # Errors
/// Where the system refuses.
pub(crate) fn end_with_children() -> anyhow::Result<()> {
    on_signal(|signal| {
        kill_all();
        let_go();
        low_level::exit(128 + signal)
    })
}

/// The same, unless it was said what is to end it: files that are locked are to be let go of.
///
/// # Errors
/// As [`end_with_children`].
pub(crate) fn end_unless_told() -> anyhow::Result<()> {
    let is_told = END.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    if is_told || IS_ENDING.load(Ordering::Acquire) { Ok(()) } else { end_with_children() }
}

/// What is called with a signal's number.
type End = Box<dyn FnOnce(i32) + Send>;

/// Whether a signal is ending the process.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Leaves the process's end to the signal that is about to end it, if one is: what a command makes of children that were killed says nothing, and neither does its status.
pub(crate) fn yield_to_signal() {
    while IS_ENDING.load(Ordering::Acquire) {
        thread::park();
    }
}

/// What the first SIGINT or SIGTERM does.
static END: Mutex<Option<End>> = Mutex::new(None);

/// Calls `end` with the first SIGINT or SIGTERM, in place of what was to be called before. What comes while it works changes nothing: it may be writing,
/// and is done in a moment.
fn on_signal(end: impl FnOnce(i32) + Send + 'static) -> anyhow::Result<()> {
    static WAITING: Once = Once::new();
    *END.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(end));
    let mut waiting = Ok(());
    WAITING.call_once(|| {
        waiting = Signals::new([SIGINT, SIGTERM]).map(|mut signals| {
            thread::spawn(move || {
                for signal in signals.forever() {
                    let end = END.lock().unwrap_or_else(PoisonError::into_inner).take();
                    IS_ENDING.fetch_or(end.is_some(), Ordering::AcqRel);
                    end.into_iter().for_each(|end| end(signal));
                }
            });
        });
    });
    waiting.context("cannot wait for signals")
}

/// Writes a line to standard error. Gives up after half a second if nobody reads it.
fn say(line: String) {
    let (said, done) = mpsc::channel();
    thread::spawn(move || {
        let _ = writeln!(io::stderr(), "\n{line}");
        let _ = said.send(());
    });
    let _ = done.recv_timeout(Duration::from_millis(500));
}
