//! Processes that meet at a hub: the least bootstrap that a test of ranks in processes of their own needs.
//!
//! The hub is in the process of the test. Each rank's standard input is a socket to it. An exchange is a message from every rank, with descriptors or without, and an answer to
//! every rank with all of them. Whoever's socket closes is lost, and all others are told.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use passmuster_bootstrap::{Bootstrap, BootstrapError};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::{Deserialize, Serialize};

/// How long the hub waits for the others once a rank has come.
const EXCHANGE: Duration = Duration::from_secs(20);

/// Descriptors of one message at most: one a rank.
const MOST_DESCRIPTORS: usize = 64;

#[derive(Clone, Serialize, Deserialize)]
enum Message {
    /// A rank's part of an exchange, or one rank's part of the answer.
    Part { what: String, bytes: Vec<u8> },
    /// A rank gives up.
    GiveUp { rank: usize, reason: String },
    /// A rank is lost.
    Lost { rank: usize, world: usize, what: String, reason: String },
}

/// Sends a message; its descriptors go with the first byte.
fn send(socket: &UnixStream, message: &Message, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let header = [(bytes.len() as u32).to_le_bytes(), (descriptors.len() as u32).to_le_bytes()].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&header)], &mut ancillary, SendFlags::NOSIGNAL)?;
    assert_eq!(sent, header.len());
    let mut socket = socket;
    socket.write_all(&bytes)
}

fn receive(socket: &UnixStream) -> io::Result<(Message, Vec<OwnedFd>)> {
    let mut header = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut header)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    let mut socket = socket;
    socket.read_exact(&mut header[got.bytes..])?;
    let mut bytes = vec![0; u32::from_le_bytes(header[..4].try_into().unwrap()) as usize];
    socket.read_exact(&mut bytes)?;
    assert_eq!(descriptors.len(), u32::from_le_bytes(header[4..].try_into().unwrap()) as usize);
    Ok((serde_json::from_slice(&bytes)?, descriptors))
}

/// A rank's way to the others.
pub(crate) struct Spoke {
    socket: UnixStream,
    rank: usize,
    world: usize,
}

impl Spoke {
    /// That of this process, whose standard input is the socket.
    pub(crate) fn of_standard_input(rank: usize, world: usize) -> Spoke {
        // SAFETY: nothing else in the process uses it.
        let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) });
        Spoke { socket, rank, world }
    }

    fn exchange(&mut self, what: &str, bytes: &[u8], own: &[OwnedFd]) -> Result<Vec<(Vec<u8>, Vec<OwnedFd>)>, BootstrapError> {
        let broken = |error: io::Error| BootstrapError::SetUp(format!("the hub is gone: {error}"));
        let descriptors: Vec<BorrowedFd<'_>> = own.iter().map(AsFd::as_fd).collect();
        let sent = send(&self.socket, &Message::Part { what: what.into(), bytes: bytes.to_vec() }, &descriptors);
        let mut all = Vec::new();
        while all.len() < self.world {
            match receive(&self.socket).map_err(broken)? {
                (Message::Part { bytes, .. }, descriptors) => all.push((bytes, descriptors)),
                (Message::GiveUp { rank, reason }, _) => return Err(BootstrapError::GaveUp { rank, reason }),
                (Message::Lost { rank, world, what, reason }, _) => return Err(BootstrapError::Lost { rank, world, what, reason }),
            }
        }
        sent.map_err(broken)?;
        Ok(all)
    }
}

impl Bootstrap for Spoke {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn all_gather(&mut self, what: &str, own: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        Ok(self.exchange(what, own, &[])?.into_iter().map(|(bytes, _)| bytes).collect())
    }

    fn all_gather_descriptors(&mut self, what: &str, own: &[OwnedFd]) -> Result<Vec<Vec<OwnedFd>>, BootstrapError> {
        Ok(self.exchange(what, &[], own)?.into_iter().map(|(_, descriptors)| descriptors).collect())
    }

    fn give_up(&mut self, reason: &str) {
        let _ = send(&self.socket, &Message::GiveUp { rank: self.rank, reason: reason.into() }, &[]);
    }
}

/// Serves exchanges until every rank has closed its socket. All must name the same.
pub(crate) fn serve(sockets: Vec<UnixStream>) {
    let world = sockets.len();
    let (sender, receiver) = mpsc::channel();
    let mut left = world;
    thread::scope(|scope| {
        for (rank, socket) in sockets.iter().enumerate() {
            let sender = sender.clone();
            scope.spawn(move || {
                loop {
                    let came = receive(socket).ok();
                    let closed = came.is_none();
                    if sender.send((rank, came)).is_err() || closed {
                        return;
                    }
                }
            });
        }
        let mut waiting: BTreeMap<usize, (String, Vec<u8>, Vec<OwnedFd>)> = BTreeMap::new();
        let mut until: Option<Instant> = None;
        let tell = |message: Message, but: usize| {
            sockets.iter().enumerate().filter(|(rank, _)| *rank != but).for_each(|(_, socket)| drop(send(socket, &message, &[])));
        };
        while left > 0 {
            let patience = until.map_or(Duration::from_secs(3600), |until| until.saturating_duration_since(Instant::now()));
            let what = |waiting: &BTreeMap<usize, (String, Vec<u8>, Vec<OwnedFd>)>| {
                waiting.values().next().map_or_else(|| "nothing yet".to_owned(), |(what, ..)| what.clone())
            };
            match receiver.recv_timeout(patience) {
                Ok((rank, Some((Message::Part { what, bytes }, descriptors)))) => {
                    drop(waiting.insert(rank, (what, bytes, descriptors)));
                    until.get_or_insert_with(|| Instant::now() + EXCHANGE);
                }
                Ok((rank, Some((Message::GiveUp { reason, .. }, _)))) => tell(Message::GiveUp { rank, reason }, rank),
                Ok((rank, None)) => {
                    left -= 1;
                    let reason = "its connection has closed".into();
                    tell(Message::Lost { rank, world, what: what(&waiting), reason }, rank);
                }
                Ok((_, Some((Message::Lost { .. }, _)))) => unreachable!("ranks lose nobody"),
                Err(_) => {
                    let rank = (0..world).find(|rank| !waiting.contains_key(rank)).expect("somebody is missing");
                    let reason = format!("nothing came for {} s", EXCHANGE.as_secs());
                    tell(Message::Lost { rank, world, what: what(&waiting), reason }, rank);
                    until = None;
                }
            }
            if waiting.len() == world {
                let all = std::mem::take(&mut waiting);
                until = None;
                let names: Vec<&String> = all.values().map(|(what, ..)| what).collect();
                assert!(names.iter().all(|name| *name == names[0]), "ranks are in different exchanges: {names:?}");
                for socket in &sockets {
                    for (what, bytes, descriptors) in all.values() {
                        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
                        let _ = send(socket, &Message::Part { what: what.clone(), bytes: bytes.clone() }, &descriptors);
                    }
                }
            }
        }
    });
}
