//! The hub: where the ranks' sockets end. It makes exchanges of what ranks give, carries messages between ranks and the coordinator, and is the first to know
//! that a rank is lost. It runs on a thread of its own, in the process that coordinates.
//!
//! An exchange has begun when its first contribution comes. It fails where a rank comes to another one, has left, is lost, or has not come in the time that
//! the others gave it. All ranks learn what fails, and it stays the job's one failure: the first reason is the one that all report.

use std::{
    collections::VecDeque,
    io,
    net::TcpListener,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener,
    },
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
    net::SendFlags,
};

use crate::{
    BootstrapError, Loss,
    frame::{Bytes32, Decoder, Frame, VERSION},
    placement::Folder,
    secret::{Claim, Secret, Side, random},
    socket::{self, Received, timespec},
};

/// How often the hub says that it is there.
pub(crate) const BEAT: Duration = Duration::from_secs(1);

/// How long a connection may take to say who it is.
const PROOF_LIMIT: Duration = Duration::from_secs(5);

/// Connections that have not said who they are, besides as many as there are ranks. Beyond that the oldest is closed.
const MOST_STRANGERS: usize = 64;

/// How long the system may take to say how a rank's process ended whose connection is closed.
const FATE_LIMIT: Duration = Duration::from_millis(500);

/// How often that is asked.
const FATE_LOOK: Duration = Duration::from_millis(10);

/// How long a hub that ends waits for ranks to take their last words.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a rank may take nothing of what it is sent.
const TAKES_NOTHING: Duration = Duration::from_secs(20);

/// Says how a rank's process has ended, or that it is stopped; none where it runs, or nothing is known.
pub type Fate = Box<dyn FnMut(usize) -> Option<Gone> + Send>;

/// Why nothing will come of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// As data.
    pub how: Loss,
    /// For people.
    pub reason: String,
}

/// What a hub is for.
pub struct HubOptions {
    /// How many ranks there are.
    pub world: usize,
    /// How long they have to come.
    pub start_limit: Duration,
    /// Whether the job goes on without ranks that are lost: [`Event::Lost`] is all that becomes of it then, and exchanges that need them fail.
    pub goes_on: bool,
    /// How ranks' processes end, if this process learns it.
    pub fate: Fate,
}

/// Where ranks come to a hub from elsewhere. They are closed once all ranks have come and said something: nobody is let in any more.
#[derive(Debug)]
pub struct Doors {
    /// Where they come first.
    pub tcp: TcpListener,
    /// Where those of this host come over to.
    pub unix: Option<SideDoor>,
    /// This host.
    pub host: String,
    /// What they must prove to know.
    pub secret: Secret,
}

/// A Unix socket that ranks come over to. Its folder goes with it.
#[derive(Debug)]
pub struct SideDoor {
    /// The socket.
    pub listener: UnixListener,
    /// Its path.
    pub path: String,
    /// Its folder.
    pub folder: Folder,
}

/// What a hub tells the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A rank has a message.
    Mail {
        /// Its rank.
        rank: usize,
        /// The message.
        bytes: Vec<u8>,
    },
    /// A rank has left in good order.
    Left {
        /// Its rank.
        rank: usize,
    },
    /// A rank is lost.
    Lost {
        /// Its rank.
        rank: usize,
        /// How.
        reason: String,
    },
    /// The job has failed.
    Failed(BootstrapError),
    /// A connection was refused.
    Refused {
        /// Why, and whose it was.
        reason: String,
    },
}

enum Command {
    Mail { rank: usize, bytes: Vec<u8> },
    Fail(BootstrapError),
    Stop,
}

/// The coordinator's side of a hub. When it is dropped, the ranks' connections are closed.
#[derive(Debug)]
pub struct Hub {
    commands: Sender<Command>,
    wake: OwnedFd,
    events: Receiver<Event>,
    thread: Option<JoinHandle<()>>,
    world: usize,
}

impl Hub {
    /// A hub of ranks that come through doors.
    ///
    /// # Errors
    /// Where the system has no descriptors or threads left.
    pub fn of_doors(options: HubOptions, doors: Doors) -> Result<Hub, BootstrapError> {
        let members = (0..options.world).map(|_| Member::Absent).collect();
        Hub::start(options, Some(doors), members, Vec::new())
    }

    /// A hub of ranks that have their sockets already, in rank order.
    ///
    /// # Errors
    /// As [`Hub::of_doors`].
    pub fn of_sockets(options: HubOptions, sockets: Vec<OwnedFd>) -> Result<Hub, BootstrapError> {
        let connections: Vec<Connection> =
            sockets.into_iter().enumerate().map(|(rank, socket)| Connection::of_member(socket, rank)).collect();
        let members = (0..options.world).map(|rank| if rank < connections.len() { Member::Here } else { Member::Absent }).collect();
        Hub::start(options, None, members, connections)
    }

    fn start(options: HubOptions, doors: Option<Doors>, members: Vec<Member>, connections: Vec<Connection>) -> Result<Hub, BootstrapError> {
        let failed = |error: io::Error| BootstrapError::SetUp(format!("cannot start a hub of {} ranks: {error}", members.len()));
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
        let own_wake = wake.try_clone().map_err(failed)?;
        for door in doors.iter() {
            door.tcp.set_nonblocking(true).map_err(failed)?;
            door.unix.iter().try_for_each(|side| side.listener.set_nonblocking(true)).map_err(failed)?;
        }
        let (commands, to_do) = mpsc::channel();
        let (told, events) = mpsc::channel();
        let world = options.world;
        let running = Running {
            start: Instant::now(),
            options,
            doors,
            settled: vec![false; members.len()],
            stood_still: vec![false; members.len()],
            members,
            connections,
            exchange: None,
            sequence: 0,
            failure: None,
            commands: to_do,
            wake: own_wake,
            events: told,
            beat: Instant::now(),
            quiet_doors: None,
        };
        let thread = thread::Builder::new().name("hub".into()).spawn(move || running.run());
        let thread = thread.map_err(|error| BootstrapError::SetUp(format!("cannot start a hub: {error}")))?;
        Ok(Hub { commands, wake, events, thread: Some(thread), world })
    }

    /// How many ranks there are.
    pub fn world(&self) -> usize {
        self.world
    }

    /// Sends a rank a message. One that is lost does not get it.
    pub fn send(&self, rank: usize, bytes: Vec<u8>) {
        self.tell(Command::Mail { rank, bytes });
    }

    /// Ends the job: all ranks learn why, unless they have heard of another failure before.
    pub fn fail(&self, error: BootstrapError) {
        self.tell(Command::Fail(error));
    }

    /// What happens next, if anything does by the deadline.
    pub fn next(&self, deadline: Instant) -> Option<Event> {
        match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Event::Failed(BootstrapError::SetUp("the hub's thread has ended".into()))),
        }
    }

    fn tell(&self, command: Command) {
        // A hub that has ended has nobody to tell either.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is known of a rank.
#[derive(Debug)]
enum Member {
    /// It has not come yet.
    Absent,
    Here,
    /// Its connection is closed, and it is not yet known how its process ended.
    Closed {
        since: Instant,
        gone: Gone,
    },
    Left,
    Lost(Gone),
}

impl Member {
    /// Why nothing will come of it, as far as that is known.
    fn gone(&self) -> Option<Gone> {
        match self {
            Member::Left => Some(Gone { how: Loss::Left, reason: "it had left".into() }),
            Member::Lost(gone) => Some(gone.clone()),
            Member::Absent | Member::Here | Member::Closed { .. } => None,
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
enum Peer {
    /// Nobody knows yet. It must prove itself by this nonce.
    Stranger {
        nonce: Bytes32,
        since: Instant,
        over_tcp: bool,
    },
    Rank(usize),
}

struct Connection {
    socket: OwnedFd,
    peer: Peer,
    /// Where it comes from, for people.
    from: String,
    received: Received,
    /// What it has not taken yet: bytes, from where on, and the descriptors at their head.
    unsent: VecDeque<(Vec<u8>, usize, Vec<OwnedFd>)>,
    /// When it last took something, or had nothing to take.
    took: Instant,
    /// It is closed once it has taken everything.
    closing: bool,
    /// It is to be forgotten.
    dead: bool,
}

impl Connection {
    fn new(socket: OwnedFd, peer: Peer, from: String, decoder: Decoder) -> Connection {
        let received = Received::new(decoder);
        Connection { socket, peer, from, received, unsent: VecDeque::new(), took: Instant::now(), closing: false, dead: false }
    }

    fn of_member(socket: OwnedFd, rank: usize) -> Connection {
        Connection::new(socket, Peer::Rank(rank), format!("rank {rank}"), Decoder::of_member())
    }

    fn queue(&mut self, frame: &Frame, descriptors: Vec<OwnedFd>) {
        if self.unsent.is_empty() {
            self.took = Instant::now();
        }
        self.unsent.push_back((frame.encode(), 0, descriptors));
    }

    /// Sends what the other side takes now.
    fn flush(&mut self) -> io::Result<()> {
        while let Some((bytes, at, descriptors)) = self.unsent.front_mut() {
            match socket::send(self.socket.as_fd(), &bytes[*at..], descriptors, SendFlags::DONTWAIT) {
                Ok(count) => {
                    *at += count;
                    descriptors.clear();
                    self.took = Instant::now();
                    if *at == bytes.len() {
                        self.unsent.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// An exchange that is not complete.
struct Exchange {
    what: String,
    /// Who came first.
    first: usize,
    began: Instant,
    limit: Duration,
    given: Vec<Option<(Vec<u8>, Vec<OwnedFd>)>>,
}

struct Running {
    start: Instant,
    options: HubOptions,
    doors: Option<Doors>,
    members: Vec<Member>,
    /// Which ranks have said something since they came, and will not come over to another socket.
    settled: Vec<bool>,
    /// Which ranks' processes were stopped, or had ended, when that was looked for last.
    stood_still: Vec<bool>,
    connections: Vec<Connection>,
    exchange: Option<Exchange>,
    /// The number of the exchange that is not complete, or of the next one.
    sequence: u64,
    failure: Option<BootstrapError>,
    commands: Receiver<Command>,
    wake: OwnedFd,
    events: Sender<Event>,
    /// When the hub last said that it is there.
    beat: Instant,
    /// Until when nobody is let in, since the system could not.
    quiet_doors: Option<Instant>,
}

impl Running {
    fn run(mut self) {
        loop {
            self.wait();
            let mut stop = false;
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Mail { rank, bytes } => self.to(rank, &Frame::Mail(bytes)),
                    Command::Fail(error) => self.fail(error),
                    Command::Stop => stop = true,
                }
            }
            self.let_in();
            self.take();
            self.thin_out();
            self.look_at_the_clock();
            self.flush();
            if stop {
                return self.end();
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self) {
        let now = Instant::now();
        let mut until = self.beat + BEAT;
        let exchange = self.exchange.as_ref().map(|exchange| exchange.began + exchange.limit);
        let start = self.is_starting().then(|| self.start + self.options.start_limit);
        let fates = self.members.iter().any(|member| matches!(member, Member::Closed { .. })).then(|| now + FATE_LOOK);
        for time in [exchange, start, fates, self.quiet_doors].into_iter().flatten() {
            until = until.min(time);
        }
        let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
        if self.quiet_doors.is_none() {
            for door in self.doors.iter() {
                fds.push(PollFd::new(&door.tcp, PollFlags::IN));
                fds.extend(door.unix.iter().map(|side| PollFd::new(&side.listener, PollFlags::IN)));
            }
        }
        for connection in &self.connections {
            let out = if connection.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(&connection.socket, PollFlags::IN | out));
        }
        // What goes wrong here is an interruption, or shows again where a socket is read.
        let _ = poll(&mut fds, Some(&timespec(until.saturating_duration_since(now))));
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    /// Accepts the connections that wait at the doors.
    fn let_in(&mut self) {
        if self.quiet_doors.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.quiet_doors = None;
        let Some(doors) = &self.doors else { return };
        let mut arrived: Vec<(OwnedFd, String, bool)> = Vec::new();
        loop {
            match doors.tcp.accept() {
                Ok((stream, address)) => {
                    // Small frames must not wait for each other. Where it fails they do.
                    let _ = stream.set_nodelay(true);
                    arrived.push((stream.into(), address.to_string(), true));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.quiet_doors = Some(Instant::now() + Duration::from_millis(100));
                    break;
                }
            }
        }
        while let Some(Ok((stream, _))) = doors.unix.as_ref().map(|side| side.listener.accept()) {
            arrived.push((stream.into(), "this host".into(), false));
        }
        for (socket, from, over_tcp) in arrived {
            let Ok(nonce) = random() else { continue };
            let peer = Peer::Stranger { nonce, since: Instant::now(), over_tcp };
            let mut connection = Connection::new(socket, peer, from, Decoder::of_stranger());
            connection.queue(&Frame::Challenge { version: VERSION, nonce }, Vec::new());
            self.connections.push(connection);
        }
    }

    /// Closes the connections that have waited longest to say who they are, where there are many.
    fn thin_out(&mut self) {
        let is_stranger = |connection: &Connection| matches!(connection.peer, Peer::Stranger { .. });
        let strangers: Vec<usize> = (0..self.connections.len()).filter(|&index| is_stranger(&self.connections[index])).collect();
        let most = MOST_STRANGERS + self.options.world;
        for &index in strangers.iter().take(strangers.len().saturating_sub(most)) {
            self.closed(index, format!("{} connections do not say who they are", strangers.len()));
        }
    }

    /// Takes what has come from everybody.
    fn take(&mut self) {
        for index in 0..self.connections.len() {
            while !self.connections[index].dead && !self.connections[index].closing {
                let connection = &mut self.connections[index];
                let more = match is_readable(connection.socket.as_fd()) {
                    false => break,
                    true => connection.received.take(connection.socket.as_fd()),
                };
                self.hear(index);
                match more {
                    Ok(true) => {}
                    Ok(false) => self.closed(index, "its connection was closed".into()),
                    Err(error) => self.closed(index, format!("its connection broke: {error}")),
                }
            }
        }
        self.connections.retain(|connection| !connection.dead);
    }

    /// Does what the frames say that have come from a connection.
    fn hear(&mut self, index: usize) {
        while !self.connections[index].dead && !self.connections[index].closing {
            match self.connections[index].received.next() {
                Ok(None) => return,
                Ok(Some((frame, descriptors))) => match self.connections[index].peer {
                    Peer::Stranger { nonce, over_tcp, .. } => self.meet(index, nonce, over_tcp, frame),
                    Peer::Rank(rank) => self.of_rank(index, rank, frame, descriptors),
                },
                Err(why) => {
                    let gone = Gone { how: Loss::Garbage, reason: format!("it sent what is no frame: {why}") };
                    let peer = &self.connections[index].peer;
                    if let &Peer::Rank(rank) = peer
                        && matches!(self.members[rank], Member::Here)
                    {
                        // How its process ends for that is no reason.
                        self.connections[index].dead = true;
                        self.lost(rank, gone);
                    } else {
                        self.gone(index, gone);
                    }
                }
            }
        }
    }

    /// A connection has ended, for this reason.
    fn closed(&mut self, index: usize, reason: String) {
        self.gone(index, Gone { how: Loss::Disconnected, reason });
    }

    fn gone(&mut self, index: usize, gone: Gone) {
        let connection = &mut self.connections[index];
        if connection.dead {
            return;
        }
        connection.dead = true;
        match connection.peer {
            Peer::Stranger { .. } => {
                let reason = format!("{}: {}", connection.from, gone.reason);
                self.tell(Event::Refused { reason });
            }
            Peer::Rank(rank) => {
                if matches!(self.members[rank], Member::Here) {
                    self.members[rank] = Member::Closed { since: Instant::now(), gone };
                }
            }
        }
    }

    /// Somebody says who it is.
    fn meet(&mut self, index: usize, nonce: Bytes32, over_tcp: bool, frame: Frame) {
        let Some(doors) = &self.doors else { return };
        let whole = self.options.world;
        let met = match frame {
            Frame::Introduction { version, .. } if version != VERSION => Err(format!("version {version}, here is {VERSION}")),
            Frame::Introduction { rank, world, nonce: own, proof, .. } => {
                let claim = Claim { rank, world, hub: nonce, nonce: own };
                let at = rank as usize;
                if !doors.secret.proves(Side::Rank, &claim, &proof) {
                    Err("it does not know the secret".into())
                } else if world as usize != whole || at >= whole {
                    Err(format!("rank {rank} of {world}: here are {whole} ranks"))
                } else if let Some(gone) = self.members[at].gone() {
                    Err(format!("rank {rank} of {world}: {}", gone.reason))
                } else if matches!(self.members[at], Member::Here | Member::Closed { .. }) && over_tcp {
                    Err(format!("rank {rank} of {world} is here already"))
                } else {
                    let (host, socket) = (doors.host.clone(), doors.unix.as_ref().map(|side| side.path.clone()).unwrap_or_default());
                    Ok((at, Frame::Welcome { proof: doors.secret.prove(Side::Hub, &claim), host, socket }))
                }
            }
            _ => Err("it did not say who it is".to_owned()),
        };
        match met {
            Ok((rank, welcome)) => {
                // Who comes over to another socket has nothing more to say at the first one.
                let is_of_rank = |connection: &&mut Connection| matches!(connection.peer, Peer::Rank(other) if other == rank);
                self.connections.iter_mut().filter(is_of_rank).for_each(|connection| connection.dead = true);
                let connection = &mut self.connections[index];
                connection.peer = Peer::Rank(rank);
                connection.received.decoder.trust();
                connection.queue(&welcome, Vec::new());
                if let Some(failure) = &self.failure {
                    connection.queue(&Frame::Failed(failure.clone()), Vec::new());
                }
                self.members[rank] = Member::Here;
            }
            Err(reason) => {
                let connection = &mut self.connections[index];
                connection.queue(&Frame::Refused { reason: reason.clone() }, Vec::new());
                connection.closing = true;
                let reason = format!("{}: {reason}", connection.from);
                self.tell(Event::Refused { reason });
            }
        }
    }

    /// A rank says something.
    fn of_rank(&mut self, index: usize, rank: usize, frame: Frame, descriptors: Vec<OwnedFd>) {
        self.settled[rank] = true;
        if self.doors.is_some() && self.settled.iter().all(|&settled| settled) {
            self.doors = None;
            self.connections
                .iter_mut()
                .filter(|connection| matches!(connection.peer, Peer::Stranger { .. }))
                .for_each(|stranger| stranger.dead = true);
        }
        match frame {
            Frame::Contribution { sequence, what, limit_ms, bytes, .. } => {
                self.contribute(rank, sequence, what, Duration::from_millis(limit_ms), (bytes, descriptors));
            }
            Frame::Mail(bytes) => self.tell(Event::Mail { rank, bytes }),
            Frame::GaveUp { how, reason } if self.options.goes_on => {
                self.connections[index].dead = true;
                self.lost(rank, Gone { how, reason: format!("it gave up: {reason}") });
            }
            Frame::GaveUp { how, reason } => self.fail(BootstrapError::GaveUp { rank, how, reason }),
            Frame::Goodbye => {
                self.connections[index].dead = true;
                self.members[rank] = Member::Left;
                self.tell(Event::Left { rank });
                self.check_exchange();
            }
            _ => self.closed(index, "it said what only a hub says".into()),
        }
    }

    fn contribute(&mut self, rank: usize, sequence: u64, what: String, limit: Duration, given: (Vec<u8>, Vec<OwnedFd>)) {
        if self.failure.is_some() {
            return;
        }
        let world = self.options.world;
        let exchange = self.exchange.get_or_insert_with(|| Exchange {
            what: what.clone(),
            first: rank,
            began: Instant::now(),
            limit,
            given: (0..world).map(|_| None).collect(),
        });
        let lost = |reason: String| {
            let (what, how) = (exchange.what.clone(), Loss::Disconnected);
            BootstrapError::Lost { rank, world, what, how, reason }
        };
        if sequence != self.sequence || what != exchange.what {
            let (first, other, number) = (exchange.first, exchange.what.clone(), self.sequence);
            let error = lost(format!("it came to exchange {sequence}, `{what}`, where rank {first} came to exchange {number}, `{other}`"));
            return self.fail(error);
        }
        if exchange.given[rank].is_some() {
            let error = lost("it gave to one exchange twice".into());
            return self.fail(error);
        }
        exchange.limit = exchange.limit.max(limit);
        exchange.given[rank] = Some(given);
        self.check_exchange();
    }

    /// Completes the exchange if all are there, and fails it if somebody will not come.
    fn check_exchange(&mut self) {
        let Some(exchange) = &self.exchange else { return };
        let world = self.options.world;
        let missing = (0..world).find(|&rank| exchange.given[rank].is_none() && self.members[rank].gone().is_some());
        if let Some(rank) = missing {
            let Gone { how, reason } = self.members[rank].gone().expect("that is why it was found");
            return self.fail(BootstrapError::Lost { rank, world, what: exchange.what.clone(), how, reason });
        }
        if exchange.given.iter().any(Option::is_none) {
            return;
        }
        let given: Vec<(Vec<u8>, Vec<OwnedFd>)> = self.exchange.take().into_iter().flat_map(|all| all.given).flatten().collect();
        let sequence = self.sequence;
        self.sequence += 1;
        for (rank, (bytes, descriptors)) in given.into_iter().enumerate() {
            let part = Frame::Part { sequence, rank: rank as u32, descriptors: descriptors.len() as u16, bytes };
            for connection in &mut self.connections {
                if connection.dead || !matches!(connection.peer, Peer::Rank(_)) {
                    continue;
                }
                match descriptors.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<OwnedFd>>>() {
                    Ok(copies) => connection.queue(&part, copies),
                    Err(error) => {
                        let reason = format!("descriptors cannot be handed on: {error}");
                        return self.fail(BootstrapError::SetUp(reason));
                    }
                }
            }
        }
    }

    /// Whether ranks are still to come, and may.
    fn is_starting(&self) -> bool {
        self.failure.is_none() && self.members.iter().any(|member| matches!(member, Member::Absent))
    }

    /// What is due.
    fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        for index in 0..self.connections.len() {
            let Connection { peer, took, unsent, .. } = &self.connections[index];
            match peer {
                Peer::Stranger { since, .. } if now > *since + PROOF_LIMIT => {
                    self.closed(index, format!("it did not say who it is in {} s", PROOF_LIMIT.as_secs()));
                }
                Peer::Rank(_) if !unsent.is_empty() && now > *took + TAKES_NOTHING => {
                    self.closed(index, format!("it took nothing for {} s", TAKES_NOTHING.as_secs()));
                }
                _ => {}
            }
        }
        for rank in 0..self.members.len() {
            if let Member::Closed { since, gone } = &self.members[rank] {
                let (over, gone) = (now > *since + FATE_LIMIT, gone.clone());
                if let Some(gone) = (self.options.fate)(rank).or(over.then_some(gone)) {
                    self.lost(rank, gone);
                }
            }
        }
        if self.is_starting() && now > self.start + self.options.start_limit {
            let absent: Vec<usize> = (0..self.members.len()).filter(|&rank| matches!(self.members[rank], Member::Absent)).collect();
            let limit = self.options.start_limit.as_secs_f64();
            for (at, &rank) in absent.iter().enumerate() {
                let reason = format!("it did not come in {limit:.1} s{}", nor(&absent[at + 1..]));
                self.lost(rank, Gone { how: Loss::Late, reason });
            }
        }
        if let Some(exchange) = &self.exchange
            && now > exchange.began + exchange.limit
            && self.failure.is_none()
        {
            let missing: Vec<usize> = (0..self.members.len()).filter(|&rank| exchange.given[rank].is_none()).collect();
            let (limit, what) = (exchange.limit.as_secs_f64(), exchange.what.clone());
            // One that is stopped is why others did not come.
            let (rank, how, fate) = missing
                .iter()
                .find_map(|&rank| Some((rank, (self.options.fate)(rank)?)))
                .map_or((missing[0], Loss::Late, String::new()), |(rank, Gone { how, reason })| (rank, how, format!("{reason}; ")));
            let others: Vec<usize> = missing.into_iter().filter(|&other| other != rank).collect();
            let reason = format!("{fate}it did not come in {limit:.1} s{}", nor(&others));
            self.fail(BootstrapError::Lost { rank, world: self.options.world, what, how, reason });
        }
        if now > self.beat + BEAT {
            self.beat = now;
            self.look_for_stopped(now);
            for connection in &mut self.connections {
                if matches!(connection.peer, Peer::Rank(_)) && connection.unsent.is_empty() {
                    connection.queue(&Frame::Alive, Vec::new());
                }
            }
        }
    }

    /// A rank whose process will do nothing need not be awaited longer: not in an exchange, and where that is seen twice in a row, not in what ranks do between
    /// exchanges, of which the hub knows nothing.
    fn look_for_stopped(&mut self, now: Instant) {
        let looks_between = !self.options.goes_on;
        let awaits = |exchange: &&Exchange| now > exchange.began + BEAT;
        let mut seen = None;
        for rank in 0..self.members.len() {
            let is_awaited = self.exchange.as_ref().filter(awaits).is_some_and(|exchange| exchange.given[rank].is_none());
            let is_looked_at = is_awaited || looks_between && matches!(self.members[rank], Member::Here);
            if !is_looked_at {
                self.stood_still[rank] = false;
                continue;
            }
            let fate = (self.options.fate)(rank);
            let was_seen = std::mem::replace(&mut self.stood_still[rank], fate.is_some());
            seen = seen.or(fate.filter(|_| is_awaited || was_seen).map(|gone| (rank, gone)));
        }
        if let Some((rank, Gone { how, reason })) = seen {
            let what = self.exchange.as_ref().map_or("no exchange".to_owned(), |exchange| exchange.what.clone());
            self.fail(BootstrapError::Lost { rank, world: self.options.world, what, how, reason });
        }
    }

    fn lost(&mut self, rank: usize, gone: Gone) {
        self.members[rank] = Member::Lost(gone.clone());
        let Gone { how, reason } = gone;
        self.tell(Event::Lost { rank, reason: reason.clone() });
        if !self.options.goes_on {
            let what = self.exchange.as_ref().map_or("no exchange".to_owned(), |exchange| exchange.what.clone());
            self.fail(BootstrapError::Lost { rank, world: self.options.world, what, how, reason });
        } else {
            self.check_exchange();
        }
    }

    /// The job has failed. The first reason stays.
    fn fail(&mut self, error: BootstrapError) {
        if self.failure.is_some() {
            return;
        }
        self.exchange = None;
        for connection in self.connections.iter_mut().filter(|connection| matches!(connection.peer, Peer::Rank(_))) {
            connection.queue(&Frame::Failed(error.clone()), Vec::new());
        }
        self.failure = Some(error.clone());
        self.tell(Event::Failed(error));
    }

    fn to(&mut self, rank: usize, frame: &Frame) {
        let is_of_rank = |connection: &&mut Connection| matches!(connection.peer, Peer::Rank(other) if other == rank);
        if let Some(connection) = self.connections.iter_mut().find(|connection| is_of_rank(connection) && !connection.dead) {
            connection.queue(frame, Vec::new());
        }
    }

    fn flush(&mut self) {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if let Err(error) = connection.flush() {
                self.closed(index, format!("its connection broke: {error}"));
            } else if connection.closing && connection.unsent.is_empty() {
                connection.dead = true;
            }
        }
        self.connections.retain(|connection| !connection.dead);
    }

    fn tell(&self, event: Event) {
        // A coordinator that does not listen any more has said so by dropping the hub.
        let _ = self.events.send(event);
    }

    /// Has the ranks take what they have not taken yet, but not for ever.
    fn end(mut self) {
        let deadline = Instant::now() + LAST_WORDS;
        while self.connections.iter().any(|connection| !connection.unsent.is_empty()) && Instant::now() < deadline {
            self.flush();
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn nor(others: &[usize]) -> String {
    if others.is_empty() { String::new() } else { format!("; nor did ranks {others:?}") }
}

/// Whether a socket has something, its end or an error among it.
fn is_readable(socket: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&timespec(Duration::ZERO))) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}
