//! The launcher of our own: a command starts a process for each rank, with one end of a pair of Unix sockets as its standard input, and looks after it. The pair
//! has no name, so nobody else can come.

use std::{
    env,
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt, process::ExitStatusExt},
    },
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::{
    BootstrapError, Loss,
    frame::Decoder,
    hub::{Gone, Hub, HubOptions},
    rank::Rank,
    socket::Received,
};

/// Environment variables of a rank that was started here: its rank, and how many there are.
pub const RANK: &str = "PASSMUSTER_RANK";
/// As [`RANK`].
pub const WORLD_SIZE: &str = "PASSMUSTER_WORLD_SIZE";

/// How long a process that was killed may take to be gone.
const REAP: Duration = Duration::from_secs(10);

/// Ranks' processes, and the hub that they come to. When this is dropped, the processes that are left are killed and reaped, with what they have started.
#[derive(Debug)]
pub struct Launched {
    children: Arc<Mutex<Vec<Started>>>,
    hub: Option<Hub>,
}

#[derive(Debug)]
struct Started {
    child: Child,
    status: Option<ExitStatus>,
}

/// Process groups of all that were started here and are not reaped.
static LIVE: Mutex<Live> = Mutex::new(Live { groups: Vec::new(), ending: false });

struct Live {
    groups: Vec<Pid>,
    /// None is started any more.
    ending: bool,
}

impl Launched {
    /// Starts `command(rank)` for each rank. With `goes_on` the job goes on without those that are lost.
    ///
    /// # Errors
    /// Which rank cannot be started. Those that were started by then are killed.
    pub fn start(world: usize, goes_on: bool, mut command: impl FnMut(usize) -> Command) -> Result<Launched, BootstrapError> {
        let children = Arc::new(Mutex::new(Vec::new()));
        let mut launched = Launched { children: Arc::clone(&children), hub: None };
        let mut sockets: Vec<OwnedFd> = Vec::new();
        for rank in 0..world {
            let failed = |error: io::Error| BootstrapError::SetUp(format!("rank {rank} of {world} cannot be started: {error}"));
            let (own, its) = UnixStream::pair().map_err(failed)?;
            let mut command = command(rank);
            command.stdin(OwnedFd::from(its)).env(RANK, rank.to_string()).env(WORLD_SIZE, world.to_string()).process_group(0);
            let started = start(&mut command).map_err(failed)?;
            lock(&children).push(started);
            sockets.push(own.into());
        }
        // They have come already.
        let fate = Box::new(move |rank: usize| lock(&children).get_mut(rank).and_then(Started::fate));
        launched.hub = Some(Hub::of_sockets(HubOptions { world, start_limit: Duration::ZERO, goes_on, fate }, sockets)?);
        Ok(launched)
    }

    /// The hub.
    pub fn hub(&self) -> &Hub {
        self.hub.as_ref().expect("it is there until the end")
    }

    /// Process ids, in rank order.
    pub fn ids(&self) -> Vec<u32> {
        lock(&self.children).iter().map(|started| started.child.id()).collect()
    }

    /// Waits until all have ended, or for `limit`; then kills those that are left. Returns how each ended, for people, in rank order.
    pub fn finish(mut self, limit: Duration) -> Vec<String> {
        self.wait(limit);
        self.kill();
        lock(&self.children)
            .iter()
            .map(|started| started.status.map_or("is not gone".into(), |status| ending(status.code(), status.signal()).reason))
            .collect()
    }

    /// Waits until all have ended, or for `limit`.
    fn wait(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_micros(200);
        loop {
            let left = lock(&self.children).iter_mut().filter_map(|started| started.reap().is_none().then_some(())).count();
            if left == 0 || Instant::now() > deadline {
                return;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    fn kill(&mut self) {
        for started in lock(&self.children).iter_mut().filter(|started| started.status.is_none()) {
            started.kill();
        }
        self.wait(REAP);
    }
}

impl AsRef<Hub> for Launched {
    fn as_ref(&self) -> &Hub {
        self.hub()
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.kill();
        drop(self.hub.take());
    }
}

impl Started {
    /// How it has ended, or that it is stopped, for people. It is not reaped: its number is nobody else's yet.
    fn fate(&mut self) -> Option<Gone> {
        if let Some(status) = self.status {
            return Some(ending(status.code(), status.signal()));
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.group()?), options).ok().flatten()?;
        if let Some(signal) = status.stopping_signal() {
            return Some(Gone { how: Loss::Stopped { signal }, reason: format!("it is stopped by {}", named(signal)) });
        }
        Some(ending(status.exit_status(), status.terminating_signal()))
    }

    fn reap(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            let mut live = live();
            self.status = self.child.try_wait().ok().flatten();
            if self.status.is_some() {
                let group = self.group();
                live.groups.retain(|known| Some(*known) != group);
            }
        }
        self.status
    }

    /// Only of one that is not reaped.
    fn kill(&mut self) {
        if let Some(group) = self.group() {
            // It fails where nobody is left in the group, which is as well.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    fn group(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

/// Kills all that were started here, for a process that is about to end. None is started any more.
pub fn kill_all() {
    let mut live = live();
    live.ending = true;
    for &group in &live.groups {
        // As above.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn start(command: &mut Command) -> io::Result<Started> {
    let mut live = live();
    if live.ending {
        return Err(io::Error::other("this process is about to end"));
    }
    let started = Started { child: command.spawn()?, status: None };
    live.groups.extend(started.group());
    Ok(started)
}

fn live() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ending(code: Option<i32>, signal: Option<i32>) -> Gone {
    let gone = |how, reason| Gone { how, reason };
    match (code, signal) {
        (Some(status), _) => gone(Loss::Exited { status }, format!("its process exited with status {status}")),
        (None, Some(signal)) => gone(Loss::Killed { signal }, format!("its process was killed by {}", named(signal))),
        (None, None) => gone(Loss::Disconnected, "its process ended in a way the system does not tell".into()),
    }
}

fn named(signal: i32) -> String {
    // Its name for debugging is "Signal::KILL", with the quotes, and one is spelled out.
    let of = |named: Signal| format!("{named:?}").rsplit("::").next().unwrap_or_default().trim_end_matches('"').replace("ABORT", "ABRT");
    let name = Signal::from_named_raw(signal).map(|named| format!(" (SIG{})", of(named))).unwrap_or_default();
    format!("signal {signal}{name}")
}

/// Whether this process is a rank that was started here.
pub fn is_rank() -> bool {
    env::var_os(RANK).is_some()
}

/// This process as the rank that it was started as. Its standard input is the socket, and is `/dev/null` afterwards. It ends soon after its parent.
///
/// # Errors
/// Where it was not started as one.
pub fn join() -> Result<Rank, BootstrapError> {
    let number = |name: &str| {
        let value =
            env::var(name).map_err(|_| BootstrapError::SetUp(format!("{name} is not set: this process was not started as a rank")))?;
        value.parse::<usize>().map_err(|_| BootstrapError::SetUp(format!("{name} = {value}: a number is wanted")))
    };
    let (rank, world) = (number(RANK)?, number(WORLD_SIZE)?);
    if rank >= world {
        return Err(BootstrapError::SetUp(format!("{RANK} = {rank}: {WORLD_SIZE} is {world}")));
    }
    let taken = || -> io::Result<OwnedFd> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        rustix::net::sockopt::socket_domain(&socket)?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        Ok(socket)
    };
    let socket = taken().map_err(|error| BootstrapError::SetUp(format!("rank {rank} of {world}: standard input is no socket: {error}")))?;
    let joined = Rank::new((rank, world), None, (socket, true), Received::new(Decoder::of_member()))?;
    joined.end_with_hub();
    Ok(joined)
}
