//! A rank's side: exchanges with the other ranks, and messages to and from the coordinator, over one socket to the hub.

use std::{
    collections::VecDeque,
    fs, io,
    net::{TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    net::sockopt::{Timeout, set_socket_timeout},
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use crate::{
    Bootstrap, BootstrapError, Loss,
    frame::{Decoder, Frame, MOST_BYTES, MOST_DESCRIPTORS, VERSION},
    secret::{Claim, Secret, Side, random},
    socket::{Received, expect_frame, send_frame, wait_readable},
};

/// For how long the other ranks are waited for in an exchange, unless [`Bootstrap::set_limit`] says otherwise.
pub const LIMIT: Duration = Duration::from_secs(60);

/// How much later than its limit a rank gives an exchange up whose hub says nothing of it.
const GRACE: Duration = Duration::from_secs(1);

/// How long the hub may say nothing, not even that it is there, while somebody waits for it.
const SILENCE: Duration = Duration::from_secs(10);

/// How long somebody who waits keeps the socket from others.
const TURN: Duration = Duration::from_millis(20);

/// How long one connection may take to be made.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long a process may stay after its hub has gone.
const FAREWELL: Duration = Duration::from_secs(2);

/// One of a job's ranks. Clones are the same rank: one may be the machine's, another take messages. When the last is dropped, the rank leaves in good order,
/// or where that is by a panic, gives up.
#[derive(Clone)]
pub struct Rank(Arc<Shared>);

struct Shared {
    rank: usize,
    world: usize,
    /// The rank whose process has the hub, where it is a rank's.
    hub: Option<usize>,
    socket: OwnedFd,
    /// Whether that is a Unix socket, which carries descriptors.
    is_local: bool,
    /// Held while a frame is sent.
    sending: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    received: Received,
    /// The number of the next exchange.
    sequence: u64,
    limit: Duration,
    /// What has come of the exchange that goes on.
    parts: Vec<Part>,
    mail: VecDeque<Vec<u8>>,
    descriptors_go_by: Option<&'static str>,
    failure: Option<BootstrapError>,
    /// When the hub was last heard.
    heard: Instant,
}

/// What one rank gave to an exchange.
type Part = (usize, Vec<u8>, Vec<OwnedFd>);

impl Rank {
    pub(crate) fn new(
        (rank, world): (usize, usize),
        hub: Option<usize>,
        (socket, is_local): (OwnedFd, bool),
        received: Received,
    ) -> Result<Rank, BootstrapError> {
        let set_up = |error: rustix::io::Errno| BootstrapError::SetUp(format!("rank {rank}: its socket cannot be set up: {error}"));
        set_socket_timeout(&socket, Timeout::Send, Some(LIMIT)).map_err(set_up)?;
        let state = State {
            received,
            sequence: 0,
            limit: LIMIT,
            parts: Vec::new(),
            mail: VecDeque::new(),
            descriptors_go_by: None,
            failure: None,
            heard: Instant::now(),
        };
        Ok(Rank(Arc::new(Shared { rank, world, hub, socket, is_local, sending: Mutex::new(()), state: Mutex::new(state) })))
    }

    /// Goes to a hub, at HOST:PORT, until `limit`. Where it is on this host, over a Unix socket then. The hub's process is rank 0's.
    ///
    /// # Errors
    /// Why it is not there, or does not take this rank in.
    pub fn connect(address: &str, rank: usize, world: usize, secret: &Secret, host: &str, limit: Duration) -> Result<Rank, BootstrapError> {
        let deadline = Instant::now() + limit;
        let stream = loop {
            let tried = address.to_socket_addrs().and_then(|mut addresses| {
                let address = addresses.next().ok_or_else(|| io::Error::other("it has no address"))?;
                TcpStream::connect_timeout(&address, deadline.saturating_duration_since(Instant::now()).clamp(TURN, HANDSHAKE))
            });
            match tried {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => {
                    let reason = format!("it is not at {address} after {:.1} s: {error}", limit.as_secs_f64());
                    return Err(BootstrapError::Lost { rank: 0, world, what: "bootstrap".into(), how: Loss::Late, reason });
                }
                Err(_) => thread::sleep(TURN),
            }
        };
        // Small frames must not wait for each other. Where it fails they do.
        let _ = stream.set_nodelay(true);
        let refused = |why: String| BootstrapError::SetUp(format!("rank {rank} of {world} is not taken in at {address}: {why}"));
        let until = deadline.max(Instant::now() + HANDSHAKE);
        let stream = OwnedFd::from(stream);
        let (received, its_host, path) = introduce(&stream, rank, world, secret, until).map_err(refused)?;
        if its_host == host
            && !path.is_empty()
            && let Ok(over) = UnixStream::connect(&path).map(OwnedFd::from)
        {
            let (received, ..) = introduce(&over, rank, world, secret, until).map_err(refused)?;
            return Rank::new((rank, world), Some(0), (over, true), received);
        }
        Rank::new((rank, world), Some(0), (stream, false), received)
    }

    /// Sends the coordinator a message.
    ///
    /// # Errors
    /// Where the hub is gone, or does not take it.
    pub fn send(&self, bytes: Vec<u8>) -> Result<(), BootstrapError> {
        if bytes.len() > MOST_BYTES {
            return Err(BootstrapError::SetUp(format!("rank {}: a message of {} bytes: at most {MOST_BYTES}", self.0.rank, bytes.len())));
        }
        self.0.say(&Frame::Mail(bytes), &[], "a message")
    }

    /// Sends the hub bytes that are no message, as a process whose memory is broken may. It is for judging what becomes of that.
    pub fn send_garbage(&self) {
        let sending = self.0.sending.lock().unwrap_or_else(PoisonError::into_inner);
        // If nobody takes these bytes, nobody gets wrong ones.
        let _ = rustix::io::write(&self.0.socket, &[0xff; 64]);
        drop(sending);
    }

    /// The coordinator's next message, for however long it takes.
    ///
    /// # Errors
    /// Where the job has failed, or the hub is gone.
    pub fn receive(&self) -> Result<Vec<u8>, BootstrapError> {
        self.0.wait_for("messages", None, |state| state.mail.pop_front())
    }

    /// Ends this process a moment after its hub goes away: the process that started it is gone, and nobody would hear of it.
    pub fn end_with_hub(&self) {
        let socket = self.0.socket.try_clone();
        thread::spawn(move || {
            let Ok(socket) = socket else { return };
            loop {
                let mut fds = [PollFd::new(&socket, PollFlags::RDHUP)];
                // What comes when nobody listens is read by others.
                if poll(&mut fds, None).is_ok() && fds[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
                    break;
                }
            }
            thread::sleep(FAREWELL);
            // Exit handlers of a wedged driver hang, too.
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }

    /// An exchange with descriptors over the socket.
    fn exchange(&self, what: &str, bytes: &[u8], descriptors: &[OwnedFd]) -> Result<Vec<Part>, BootstrapError> {
        let Shared { rank, world, .. } = *self.0;
        if bytes.len() > MOST_BYTES || descriptors.len() > MOST_DESCRIPTORS {
            let given = format!("{} bytes and {} descriptors", bytes.len(), descriptors.len());
            let reason = format!("rank {rank} gives {given} to {what}: at most {MOST_BYTES} and {MOST_DESCRIPTORS}");
            self.give_up_for(&reason);
            return Err(BootstrapError::SetUp(reason));
        }
        let (sequence, limit) = {
            let mut state = self.state();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            state.sequence += 1;
            (state.sequence - 1, state.limit)
        };
        let given = Frame::Contribution {
            sequence,
            what: what.to_owned(),
            limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            descriptors: descriptors.len() as u16,
            bytes: bytes.to_vec(),
        };
        self.0.say(&given, descriptors, what)?;
        let mut parts =
            self.0.wait_for(what, Some(limit), |state| (state.parts.len() == world).then(|| std::mem::take(&mut state.parts)))?;
        parts.sort_by_key(|(rank, ..)| *rank);
        Ok(parts)
    }

    /// The hub says who was first: that is the reason which this rank reports from now on, too.
    fn give_up_for(&self, reason: &str) {
        // A hub that does not hear of it sees the connection's end.
        let _ = self.0.say(&Frame::GaveUp { how: Loss::GaveUp, reason: reason.to_owned() }, &[], "its end");
        let deadline = Instant::now() + GRACE;
        loop {
            let mut state = self.state();
            if state.failure.is_some() {
                return;
            }
            if !state.take_soon(&self.0).unwrap_or(false) || Instant::now() > deadline {
                let own = BootstrapError::GaveUp { rank: self.0.rank, how: Loss::GaveUp, reason: reason.to_owned() };
                state.failure.get_or_insert(own);
                return;
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hub is gone, or does not answer.
    fn hub_lost(&self, what: &str, reason: &str) -> BootstrapError {
        match self.hub {
            Some(rank) => {
                BootstrapError::Lost { rank, world: self.world, what: what.to_owned(), how: Loss::Disconnected, reason: reason.to_owned() }
            }
            None => BootstrapError::SetUp(format!("rank {}: its parent process: {reason}, in {what}", self.rank)),
        }
    }

    fn say(&self, frame: &Frame, descriptors: &[OwnedFd], what: &str) -> Result<(), BootstrapError> {
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let said = send_frame(self.socket.as_fd(), frame, descriptors);
        drop(sending);
        said.map_err(|error| {
            // Its last words say more.
            let mut state = self.state();
            let has_more = || wait_readable(self.socket.as_fd(), Duration::ZERO).unwrap_or(false);
            while state.failure.is_none() && has_more() && state.take(self).unwrap_or(false) {}
            state.failure.get_or_insert_with(|| self.hub_lost(what, &format!("it takes nothing: {error}"))).clone()
        })
    }

    /// Waits for something that comes from the hub.
    fn wait_for<T>(&self, what: &str, limit: Option<Duration>, mut find: impl FnMut(&mut State) -> Option<T>) -> Result<T, BootstrapError> {
        let began = Instant::now();
        self.state().heard = began;
        loop {
            let mut state = self.state();
            if let Some(found) = find(&mut state) {
                return Ok(found);
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let lost = ending_of(state.take_soon(self)).or_else(|| {
                let silent = state.heard.elapsed();
                let late = limit.filter(|&limit| began.elapsed() > limit.saturating_add(GRACE));
                late.map(|limit| format!("it said nothing of it in {:.1} s", limit.as_secs_f64()))
                    .or_else(|| (silent > SILENCE).then(|| format!("nothing came for {:.1} s", silent.as_secs_f64())))
            });
            if let Some(reason) = lost
                && find(&mut state).is_none()
            {
                return Err(state.failure.get_or_insert_with(|| self.hub_lost(what, &reason)).clone());
            }
        }
    }
}

/// How the connection ended, by what taking from it says.
fn ending_of(taken: Result<bool, String>) -> Option<String> {
    match taken {
        Ok(true) => None,
        Ok(false) => Some("its connection was closed".to_owned()),
        Err(reason) => Some(reason),
    }
}

impl State {
    /// Takes what comes within a turn. Whether more may come.
    fn take_soon(&mut self, shared: &Shared) -> Result<bool, String> {
        if !wait_readable(shared.socket.as_fd(), TURN).map_err(|error| error.to_string())? {
            return Ok(true);
        }
        self.take(shared)
    }

    /// Takes what is there.
    fn take(&mut self, shared: &Shared) -> Result<bool, String> {
        let more = self.received.take(shared.socket.as_fd()).map_err(|error| format!("its connection broke: {error}"))?;
        while let Some((frame, descriptors)) = self.received.next().map_err(|why| format!("it sent what is no frame: {why}"))? {
            self.heard = Instant::now();
            match frame {
                Frame::Part { sequence, rank, bytes, .. } => {
                    let (rank, known) = (rank as usize, self.parts.iter().any(|(known, ..)| *known == rank as usize));
                    if sequence.wrapping_add(1) != self.sequence || rank >= shared.world || known {
                        return Err(format!("it sent what rank {rank} gave to exchange {sequence}, which is not awaited"));
                    }
                    self.parts.push((rank, bytes, descriptors));
                }
                Frame::Mail(bytes) => self.mail.push_back(bytes),
                Frame::Failed(error) => _ = self.failure.get_or_insert(error),
                Frame::Alive => {}
                _ => return Err("it said what only a rank says".into()),
            }
        }
        Ok(more)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let last = if thread::panicking() { Frame::GaveUp { how: Loss::Panicked, reason: "it panicked".into() } } else { Frame::Goodbye };
        // A hub that is gone needs no farewell.
        let _ = send_frame(self.socket.as_fd(), &last, &[]);
    }
}

impl Bootstrap for Rank {
    fn rank(&self) -> usize {
        self.0.rank
    }

    fn world(&self) -> usize {
        self.0.world
    }

    fn all_gather(&mut self, what: &str, own: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        Ok(self.exchange(what, own, &[])?.into_iter().map(|(_, bytes, _)| bytes).collect())
    }

    fn all_gather_descriptors(&mut self, what: &str, own: &[OwnedFd]) -> Result<Vec<Vec<OwnedFd>>, BootstrapError> {
        let places = self.exchange(what, &Place::here(self.0.is_local, own).encode(), &[])?;
        let places: Vec<Place> = places.iter().map(|(_, bytes, _)| Place::decode(bytes)).collect();
        let differs = |of: fn(&Place) -> String| places.iter().position(|place| of(place) != of(&places[0]));
        if let Some(rank) = differs(|place| place.descriptors.len().to_string()) {
            let counts = [rank, 0].map(|rank| places[rank].descriptors.len());
            return Err(self.refuse(format!("rank {rank} gave {} descriptors to {what}, rank 0 gave {}", counts[0], counts[1])));
        }
        if let Some(rank) = differs(|place| place.host.clone()) {
            return Err(self.refuse(format!("{what}: rank {rank} is not on the host of rank 0, and descriptors do not leave a host")));
        }
        let over_sockets = places.iter().all(|place| place.is_local);
        self.state().descriptors_go_by = Some(if over_sockets { "SCM_RIGHTS" } else { "pidfd_getfd" });
        if over_sockets {
            return Ok(self.exchange(what, &[], own)?.into_iter().map(|(_, _, descriptors)| descriptors).collect());
        }
        // No Unix socket reaches them all: each rank takes them from the others' processes, if it may look into those.
        let taken = places.iter().enumerate().map(|(rank, place)| {
            place
                .take()
                .map_err(|error| BootstrapError::SetUp(format!("{what}: descriptors of rank {rank} cannot be taken by pidfd: {error}")))
        });
        let taken: Result<Vec<Vec<OwnedFd>>, BootstrapError> = taken.collect();
        if let Err(error) = &taken {
            return Err(self.refuse(error.to_string()));
        }
        // Nobody closes its own before all have them.
        self.barrier(what)?;
        taken
    }

    fn descriptors_go_by(&self) -> Option<&'static str> {
        self.state().descriptors_go_by
    }

    fn set_limit(&mut self, limit: Duration) -> Duration {
        std::mem::replace(&mut self.state().limit, limit)
    }

    fn failure(&mut self) -> Option<BootstrapError> {
        let mut state = self.state();
        if state.failure.is_none()
            && let Some(reason) = ending_of(state.take(&self.0))
        {
            state.failure.get_or_insert_with(|| self.0.hub_lost("what it was at", &reason));
        }
        state.failure.clone()
    }

    fn give_up(&mut self, reason: &str) {
        self.give_up_for(reason);
    }
}

impl Rank {
    /// Gives up for something that all ranks see.
    fn refuse(&self, reason: String) -> BootstrapError {
        self.give_up_for(&reason);
        BootstrapError::SetUp(reason)
    }
}

/// Where a rank's descriptors are.
struct Place {
    is_local: bool,
    /// The host and its numbers of processes.
    host: String,
    process: u32,
    descriptors: Vec<u32>,
}

impl Place {
    fn here(is_local: bool, own: &[OwnedFd]) -> Place {
        use std::os::fd::AsRawFd;
        let host = format!("{} {}", host(), fs::read_link("/proc/self/ns/pid").unwrap_or_default().display());
        Place { is_local, host, process: process::id(), descriptors: own.iter().map(|descriptor| descriptor.as_raw_fd() as u32).collect() }
    }

    fn encode(&self) -> Vec<u8> {
        let numbers =
            [u32::from(self.is_local), self.process, self.descriptors.len() as u32].into_iter().chain(self.descriptors.iter().copied());
        numbers.flat_map(u32::to_le_bytes).chain(self.host.bytes()).collect()
    }

    /// What is no place is one that nobody else is at.
    fn decode(bytes: &[u8]) -> Place {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| words.get(at).map_or(0, |word| u32::from_le_bytes(*word));
        let count = (word(2) as usize).min(words.len().saturating_sub(3));
        Place {
            is_local: word(0) == 1,
            process: word(1),
            descriptors: (0..count).map(|at| word(3 + at)).collect(),
            host: String::from_utf8_lossy(bytes.get(4 * (3 + count)..).unwrap_or_default()).into_owned(),
        }
    }

    fn take(&self) -> io::Result<Vec<OwnedFd>> {
        let process = i32::try_from(self.process).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no process"))?;
        let process = pidfd_open(process, PidfdFlags::empty())?;
        let take = |&number: &u32| Ok(pidfd_getfd(&process, number as i32, PidfdGetfdFlags::empty())?);
        self.descriptors.iter().map(take).collect()
    }
}

/// This host's id, until it reboots. Containers on it have the same id, but may see other sockets.
pub(crate) fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// Says to a hub who this is. What more has come, the hub's host, and its Unix socket there.
fn introduce(
    socket: &OwnedFd,
    rank: usize,
    world: usize,
    secret: &Secret,
    deadline: Instant,
) -> Result<(Received, String, String), String> {
    let mut received = Received::new(Decoder::of_stranger());
    let Frame::Challenge { version, nonce: hub } = expect_frame(socket.as_fd(), &mut received, deadline)? else {
        return Err("who is there is no hub of passmuster".into());
    };
    if version != VERSION {
        return Err(format!("the hub has version {version}, here is {VERSION}"));
    }
    let claim = Claim { rank: rank as u32, world: world as u32, hub, nonce: random().map_err(|error| error.to_string())? };
    let Claim { rank, world, nonce, .. } = claim;
    let introduction = Frame::Introduction { version: VERSION, rank, world, nonce, proof: secret.prove(Side::Rank, &claim) };
    send_frame(socket.as_fd(), &introduction, &[]).map_err(|error| error.to_string())?;
    match expect_frame(socket.as_fd(), &mut received, deadline)? {
        Frame::Welcome { proof, host, socket } if secret.proves(Side::Hub, &claim, &proof) => {
            received.decoder.trust();
            Ok((received, host, socket))
        }
        Frame::Welcome { .. } => Err("the hub does not know the secret".into()),
        Frame::Refused { reason } => Err(reason),
        _ => Err("the hub says what it must not".into()),
    }
}
