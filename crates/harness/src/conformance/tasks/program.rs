//! A reference that is a program: one process for many calls, spoken to on descriptors 3 and 4.
//!
//! A question is a line of JSON on descriptor 3, and behind it the elements of the inputs in its order, as little-endian f64. The answer is the same on descriptor
//! 4. docs/reference/tasks.md has both.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use passmuster_plan::task::{Computed, Reference, ReferenceCall, ReferenceError, Tensor};
use serde::{Deserialize, Serialize};

/// How long a program may take for one call.
const LIMIT: Duration = Duration::from_secs(60);

/// The most bytes of an answer.
const MOST_BYTES: u64 = 1 << 30;

/// Lines of what a program printed that an error repeats, and characters of each.
const LAST_LINES: usize = 5;
const MOST_OF_LINE: usize = 300;

/// Gives the program descriptors 3 and 4 for questions and answers, what it prints to the terminal's error stream, and limits: seconds of processor time, KiB of
/// memory and blocks of files.
const SHELL: &str = r#"ulimit -t 3600; ulimit -v 33554432; ulimit -f 131072; exec "$@" 3<&0 4>&1 1>&2 </dev/null"#;

/// A program that computes a task's outputs.
pub struct Program {
    line: Vec<String>,
    folder: PathBuf,
    limit: Duration,
    running: Mutex<Option<Running>>,
}

/// Why a program cannot be a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot start `{line}`: {why}")]
pub struct ProgramError {
    /// The program and its arguments.
    pub line: String,
    /// The reason.
    pub why: String,
}

struct Running {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<Result<Answer, String>>,
    printed: Arc<Mutex<Vec<String>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // What has ended already cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Serialize)]
struct Question<'c> {
    task: &'c str,
    dtype: &'c str,
    world: u32,
    /// For each parameter, its value on each rank.
    parameters: Vec<(&'c str, Vec<u64>)>,
    inputs: Vec<Named<'c>>,
    outputs: Vec<Named<'c>>,
}

#[derive(Serialize)]
struct Named<'c> {
    name: &'c str,
    rank: u32,
    dtype: &'c str,
    shape: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    outputs: Vec<Given>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    name: String,
    rank: u32,
    elements: u64,
    #[serde(default)]
    magnitudes: bool,
}

type Answer = Vec<(String, u32, Computed)>;

impl Program {
    /// A program and its arguments, which runs in a folder.
    ///
    /// # Errors
    /// Where the line is empty, or there is no such folder.
    pub fn new(line: &[String], folder: &Path) -> Result<Program, ProgramError> {
        let problem = |why: String| ProgramError { line: line.join(" "), why };
        if line.is_empty() {
            return Err(problem("no program".into()));
        }
        let folder = folder.canonicalize().map_err(|error| problem(format!("{}: {error}", folder.display())))?;
        Ok(Program { line: line.to_vec(), folder, limit: LIMIT, running: Mutex::default() })
    }

    /// The same, which may take so long for one call.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Program {
        Program { limit, ..self }
    }

    fn start(&self) -> Result<Running, String> {
        let mut command = without_network();
        let shell = ["sh", "-c", SHELL, "sh"].map(str::to_owned);
        let mut words = command.drain(..).chain(shell).chain(self.line.iter().cloned());
        let program = words.next().unwrap_or_default();
        let mut child = Command::new(program)
            .args(words)
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("it cannot be started: {error}"))?;
        let (Some(questions), Some(answers), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
            return Err("it has no pipes".into());
        };
        let (send, receive) = mpsc::channel();
        thread::spawn(move || {
            let mut answers = BufReader::new(answers);
            loop {
                let answer = answer(&mut answers);
                let ended = answer.is_err();
                if send.send(answer).is_err() || ended {
                    return;
                }
            }
        });
        let printed = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&printed);
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == LAST_LINES {
                    kept.remove(0);
                }
                kept.push(line.chars().filter(|c| !c.is_control()).take(MOST_OF_LINE).collect());
            }
        });
        Ok(Running { child, questions, answers: receive, printed })
    }

    fn ask(&self, running: &mut Running, call: &ReferenceCall<'_>) -> Result<Answer, String> {
        let (header, body) = question(call);
        // A program that has ended says more in what it printed.
        let _ =
            running.questions.write_all(&header).and_then(|()| running.questions.write_all(&body)).and_then(|()| running.questions.flush());
        let answer = match running.answers.recv_timeout(self.limit) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(format!("no answer within {} s", self.limit.as_secs_f64())),
            Err(RecvTimeoutError::Disconnected) => Err("it has ended".into()),
        };
        answer.map_err(|why| {
            // What it prints last may still be on the way.
            thread::sleep(Duration::from_millis(50));
            let printed = running.printed.lock().unwrap_or_else(PoisonError::into_inner);
            if printed.is_empty() { why } else { format!("{why}; its last lines:\n  {}", printed.join("\n  ")) }
        })
    }
}

/// The words that start a program without a network, where this machine lets a user do that.
fn without_network() -> Vec<String> {
    let words = ["unshare", "--map-root-user", "--net"];
    let can = Command::new(words[0]).args(&words[1..]).arg("true").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if can.is_ok_and(|status| status.success()) { words.map(str::to_owned).to_vec() } else { Vec::new() }
}

/// The line of JSON, and the bytes behind it.
fn question(call: &ReferenceCall<'_>) -> (Vec<u8>, Vec<u8>) {
    let of = call.call;
    let (mut inputs, mut body) = (Vec::new(), Vec::new());
    let named = |tensor: &'_ Tensor, rank: u32, shape: &[u64]| (tensor.name.clone(), of.dtype_of(tensor).name(), rank, shape.to_vec());
    for (tensor, of_ranks) in of.task.tensors().iter().filter(|tensor| tensor.role.is_input()).zip(call.inputs) {
        for (rank, array) in (0..).zip(of_ranks) {
            inputs.push(named(tensor, rank, &array.shape));
            body.extend(array.values.iter().flat_map(|value| value.to_le_bytes()));
        }
    }
    let of_ranks = |(at, tensor)| (0..of.world()).map(move |rank| named(tensor, rank, of.shape(at, rank)));
    let outputs: Vec<_> = of.task.tensors().iter().enumerate().filter(|(_, tensor)| tensor.role.is_output()).flat_map(of_ranks).collect();
    fn written<'a>(all: &'a [(String, &'static str, u32, Vec<u64>)]) -> Vec<Named<'a>> {
        all.iter().map(|(name, dtype, rank, shape)| Named { name, rank: *rank, dtype, shape: shape.clone() }).collect()
    }
    let parameters = of.task.parameters().iter().enumerate();
    let question = Question {
        task: of.task.name(),
        dtype: of.dtype.name(),
        world: of.world(),
        parameters: parameters
            .map(|(at, parameter)| (&*parameter.name, (0..of.world()).map(|rank| of.parameters(rank)[at]).collect()))
            .collect(),
        inputs: written(&inputs),
        outputs: written(&outputs),
    };
    let mut header = serde_json::to_vec(&question).expect("a question is plain data");
    header.push(b'\n');
    (header, body)
}

/// Reads one answer.
///
/// # Errors
/// What is wrong with it, or that there is no more.
fn answer(from: &mut impl BufRead) -> Result<Answer, String> {
    let mut line = Vec::new();
    let failed = |error: std::io::Error| format!("its answer cannot be read: {error}");
    from.take(1 << 20).read_until(b'\n', &mut line).map_err(failed)?;
    if line.is_empty() {
        return Err("it ended without an answer".into());
    }
    let header: Header = serde_json::from_slice(&line).map_err(|error| {
        let text: String = String::from_utf8_lossy(&line).trim().chars().take(80).collect();
        format!("its answer starts with `{text}`, which is no header of an answer: {error}")
    })?;
    if let Some(error) = header.error {
        return Err(format!("it says: {error}"));
    }
    let mut numbers = |count: u64| -> Result<Vec<f64>, String> {
        let bytes = count.checked_mul(8).filter(|&bytes| bytes <= MOST_BYTES).ok_or_else(|| format!("an answer of {count} elements"))?;
        let mut all = vec![0; bytes as usize];
        from.read_exact(&mut all).map_err(failed)?;
        Ok(all.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes"))).collect())
    };
    let one = |Given { name, rank, elements, magnitudes }| {
        let values = numbers(elements)?;
        let magnitudes = magnitudes.then(|| numbers(elements)).transpose()?;
        Ok((name, rank, Computed { values, magnitudes }))
    };
    header.outputs.into_iter().map(one).collect()
}

impl Reference for Program {
    fn outputs(&self, call: &ReferenceCall<'_>) -> Result<Vec<Vec<Computed>>, ReferenceError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match running.take().map_or_else(|| self.start(), Ok) {
            Ok(mut process) => {
                let answer = self.ask(&mut process, call);
                if answer.is_ok() {
                    *running = Some(process);
                }
                answer
            }
            Err(why) => Err(why),
        };
        let mut answer = answer.map_err(ReferenceError)?;
        let of_rank = |tensor: &Tensor, rank: u32, answer: &mut Answer| {
            let at = answer.iter().position(|(name, of, _)| *name == tensor.name && *of == rank);
            at.map(|at| answer.swap_remove(at).2).ok_or_else(|| ReferenceError(format!("it gives no {} of rank {rank}", tensor.name)))
        };
        let outputs = call.call.task.tensors().iter().filter(|tensor| tensor.role.is_output());
        outputs.map(|tensor| (0..call.call.world()).map(|rank| of_rank(tensor, rank, &mut answer)).collect()).collect()
    }

    fn describe(&self) -> String {
        self.line.join(" ")
    }
}
