//! The side of the process that starts a worker.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::{Serialize, de::DeserializeOwned};

use super::{FAREWELL, PREFIX, REAP, live};

/// Lines of a worker's other output that are kept for its report.
const LOG_LINES: usize = 200;

/// Bytes of one such line that are kept: a kernel that prints without end must not fill this process's memory.
const LOG_LINE_BYTES: u64 = 1 << 20;

/// Bytes of an answer, which may be longer than a line of log: it has times of every operation of every rank.
const ANSWER_BYTES: u64 = 256 << 20;

/// How long the last words of a worker that has ended may be on their way.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How often the end of a worker is looked for: something that it started may hold its output open.
const LOOK: Duration = Duration::from_millis(100);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The worker said something that it must not say.
    Nonsense(String),
    /// Time was up.
    Timeout,
    /// The worker has ended, or its output has.
    Death,
}

/// A worker that gives answers `A`. It leads its own process group, and dies with this value.
#[derive(Debug)]
pub struct Process<A> {
    child: Child,
    status: Option<ExitStatus>,
    /// `None` once it has been asked to go.
    input: Option<ChildStdin>,
    events: Receiver<Event<A>>,
    log: VecDeque<String>,
    /// Whether more may come on standard output.
    output_open: bool,
    /// Whether more may come on standard error.
    errors_open: bool,
}

/// What comes from a worker.
enum Event<A> {
    Answer(A),
    Log(String),
    Nonsense(String),
    /// Standard output or standard error has ended.
    Closed(Stream),
}

#[derive(Clone, Copy, PartialEq)]
enum Stream {
    Output,
    Error,
}

impl<A: DeserializeOwned + Send + 'static> Process<A> {
    /// Starts a worker. Its standard error is log too where the command has it piped.
    ///
    /// # Errors
    /// Where it cannot be started, or after [`kill_all`](super::kill_all).
    pub fn start(command: &mut Command) -> io::Result<Process<A>> {
        let mut child = live::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let (sender, events) = mpsc::channel();
        read(child.stdout.take().expect("its output is piped"), Stream::Output, sender.clone());
        let errors = child.stderr.take().map(|errors| read(errors, Stream::Error, sender));
        let (input, errors_open) = (child.stdin.take(), errors.is_some());
        Ok(Process { child, status: None, input, events, log: VecDeque::new(), output_open: true, errors_open })
    }
}

impl<A> Process<A> {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it.
    ///
    /// # Errors
    /// Where it has closed its input, as the dead have: [`Process::next`] says how it ended.
    pub fn ask(&mut self, request: &impl Serialize) -> io::Result<()> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let mut line = serde_json::to_string(request).expect("a request is plain data");
        line.push('\n');
        input.write_all(line.as_bytes())
    }

    /// The next answer. Log lines on the way are kept.
    ///
    /// # Errors
    /// Why there is none by the deadline.
    pub fn next(&mut self, mut deadline: Instant) -> Result<A, End> {
        while self.output_open {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left.min(LOOK)) {
                Ok(Event::Answer(answer)) => return Ok(answer),
                Ok(Event::Nonsense(reason)) => return Err(End::Nonsense(reason)),
                Ok(event) => self.keep(event),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {
                    if self.ended().is_some() {
                        deadline = deadline.min(Instant::now() + LAST_WORDS);
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.ended().is_some() => break,
                Err(RecvTimeoutError::Timeout) => return Err(End::Timeout),
            }
        }
        Err(End::Death)
    }

    /// Forgets answers that came too late, and marks in the log that something begins.
    pub fn begin(&mut self, mark: String) {
        while let Ok(event) = self.events.try_recv() {
            self.keep(event);
        }
        self.keep(Event::Log(mark));
    }

    fn keep(&mut self, event: Event<A>) {
        match event {
            Event::Log(line) => {
                if self.log.len() == LOG_LINES {
                    self.log.pop_front();
                }
                self.log.push_back(line);
            }
            Event::Closed(Stream::Output) => self.output_open = false,
            Event::Closed(Stream::Error) => self.errors_open = false,
            // It comes too late.
            Event::Answer(_) | Event::Nonsense(_) => {}
        }
    }

    /// Takes the last words of a worker that has ended.
    fn drain_log(&mut self) {
        let deadline = Instant::now() + LAST_WORDS;
        while self.output_open || self.errors_open {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => self.keep(event),
                Err(_) => return,
            }
        }
    }

    /// Its last lines of output that were no answers.
    pub fn log(&self) -> &VecDeque<String> {
        &self.log
    }

    /// Its status, if it has ended. What it started and left behind is killed.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() && self.is_zombie() {
            self.kill_group();
            self.status = live::reap(&mut self.child).ok().flatten();
        }
        self.status
    }

    /// Its status after [`End::Death`], with its last words in the log. `None` where it has closed its output but does not end.
    pub fn after_death(&mut self) -> Option<ExitStatus> {
        let status = self.wait(REAP);
        self.drain_log();
        status
    }

    /// Tells it to go, and waits for that. Whether it is gone after [`FAREWELL`].
    pub fn farewell(&mut self) -> bool {
        drop(self.input.take());
        self.wait(FAREWELL).is_some()
    }

    /// Kills it and what it started. Whether it is gone after [`REAP`].
    pub fn kill(&mut self) -> bool {
        if self.ended().is_none() {
            self.kill_group();
        }
        self.wait(REAP).is_some()
    }

    /// Whether it has ended. It is not reaped, so that its number, which is its group's, belongs to nobody else yet.
    fn is_zombie(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.group().is_some_and(|id| waitid(WaitId::Pid(id), options).is_ok_and(|status| status.is_some()))
    }

    /// Only for a process that is not reaped.
    fn kill_group(&self) {
        if let Some(group) = self.group() {
            // It fails where nobody is left in the group, which is as well.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    fn group(&self) -> Option<Pid> {
        live::group(&self.child)
    }

    /// Its status, if it ends within `limit`.
    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_micros(200);
        while self.ended().is_none() && Instant::now() < deadline {
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        self.status
    }
}

impl<A> Drop for Process<A> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads a stream to its end on a thread of its own.
fn read<A: DeserializeOwned + Send + 'static>(stream: impl Read + Send + 'static, which: Stream, sender: Sender<Event<A>>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.by_ref().take(LOG_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let is_cut = |line: &[u8]| line.len() as u64 == LOG_LINE_BYTES && !line.ends_with(b"\n");
            if is_cut(&line) && which == Stream::Output && line.windows(PREFIX.len()).any(|at| at == PREFIX.as_bytes()) {
                // What fails here fails again at the next line.
                let _ = reader.by_ref().take(ANSWER_BYTES).read_until(b'\n', &mut line);
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            // A library may have printed the beginning of a line of its own.
            let event = match text.find(PREFIX).filter(|_| which == Stream::Output) {
                None => Event::Log(text.to_owned()),
                Some(at) => {
                    if at > 0 && sender.send(Event::Log(text[..at].to_owned())).is_err() {
                        return;
                    }
                    match serde_json::from_str(&text[at + PREFIX.len()..]) {
                        Ok(answer) => Event::Answer(answer),
                        Err(error) => Event::Nonsense(format!("the worker's answer is not understood: {error}: {text}")),
                    }
                }
            };
            if sender.send(event).is_err() {
                return;
            }
        }
        // The receiver may be gone, and with it who would care.
        let _ = sender.send(Event::Closed(which));
    });
}
