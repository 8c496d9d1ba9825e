//! The worker's side.

use std::{
    io::{self, BufRead, Write},
    process,
    sync::mpsc,
    thread,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{FAREWELL, PREFIX};

/// The requests that come on standard input, until it ends. They are read on a thread of its own, which notices the end even while a machine hangs. It
/// ends this process if that is still there [`FAREWELL`] later, so that it does not outlive the one that asked.
///
/// What is no request ends the process with exit code 2.
pub fn requests<R: DeserializeOwned + Send + 'static>() -> mpsc::Receiver<R> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            match serde_json::from_str(&line) {
                Ok(request) => {
                    if sender.send(request).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    eprintln!("the worker was asked what it does not understand: {error}: {line}");
                    process::exit(2);
                }
            }
        }
        drop(sender);
        thread::sleep(FAREWELL);
        end_now();
    });
    receiver
}

/// Says an answer on standard output.
///
/// # Errors
/// Where nobody is there any more to hear it.
pub fn say(answer: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_string(answer).expect("an answer is plain data");
    let mut out = io::stdout().lock();
    writeln!(out, "{PREFIX}{json}")?;
    out.flush()
}

/// Ends the process, and its process group where it leads one, without running anything: exit handlers of a wedged driver hang too.
fn end_now() {
    use rustix::process::{Signal, getpgrp, getpid, kill_process, kill_process_group};
    let own = getpid();
    let killed = if getpgrp() == own { kill_process_group(own, Signal::KILL) } else { kill_process(own, Signal::KILL) };
    killed.expect("a process may kill itself");
}
