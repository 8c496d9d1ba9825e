//! How a rank's process ends in the middle of a script.

use std::{process, thread, time::Duration};

use rustix::process::{Signal, getpid, kill_process};

use crate::plan::Departure;

/// Ends what this process does, as a script has it. It does not return, but for a process that goes on after it was stopped: that does nothing more.
///
/// # Panics
/// Where that is how.
pub fn depart(how: Departure) -> ! {
    let signal = |signal| kill_process(getpid(), signal).expect("a process may signal itself");
    match how {
        Departure::Killed => signal(Signal::KILL),
        Departure::Stopped => signal(Signal::STOP),
        Departure::Exited => process::exit(0),
        Departure::Panicked => panic!("the script has this rank panic"),
        Departure::Idle | Departure::Stalled => {}
    }
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
