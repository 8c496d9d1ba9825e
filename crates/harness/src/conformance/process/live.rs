//! Worker processes that are alive. Each leads a process group of its own, so that a kill reaches what it started and a Ctrl-C at the
//! terminal does not. Code that ends this process by a signal must therefore end them with [`kill_all`].

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::process::{Pid, Signal, kill_process_group};

struct Live {
    groups: Vec<Pid>,
    /// None is started any more.
    ending: bool,
}

static LIVE: Mutex<Live> = Mutex::new(Live { groups: Vec::new(), ending: false });

fn live() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process in a group of its own.
///
/// # Errors
/// Where it cannot be started, or after [`kill_all`].
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut live = live();
    if live.ending {
        return Err(io::Error::other("this process is about to end"));
    }
    let child = command.process_group(0).spawn()?;
    live.groups.extend(group(&child));
    Ok(child)
}

/// The status of a process that was started here, if it has ended. Its number may then be another's.
///
/// # Errors
/// Where the system does not tell.
pub(super) fn reap(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let mut live = live();
    let status = child.try_wait()?;
    if status.is_some() {
        let group = group(child);
        live.groups.retain(|known| Some(*known) != group);
    }
    Ok(status)
}

/// Kills all workers that this process has started and that are not yet reaped, with what they started. No more are.
pub fn kill_all() {
    let mut live = live();
    live.ending = true;
    for &group in &live.groups {
        // It fails where nobody is left in the group, which is as well.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The process group that a process leads.
pub(super) fn group(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}
