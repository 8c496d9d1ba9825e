//! Sockets that carry frames, over TCP or between processes of one host, and file descriptors with them where they can.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg},
};

use crate::frame::{Decoder, Frame, MOST_DESCRIPTORS};

/// Bytes that are taken from a socket at once.
const PIECE: usize = 64 << 10;

/// Space for what Linux gives of descriptors with one message.
const ANCILLARY: usize = rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS));

/// Sends bytes, with descriptors at their head, as far as the socket takes them now. How many bytes it took: descriptors go with the first one.
///
/// # Errors
/// Whatever the system says, `WouldBlock` among it.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[OwnedFd], flags: SendFlags) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::Error::other(format!("{} descriptors: at most {MOST_DESCRIPTORS} at once", borrowed.len())));
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// What has come from a socket and is no whole frame yet, or not yet asked for.
pub(crate) struct Received {
    pub(crate) decoder: Decoder,
    descriptors: VecDeque<OwnedFd>,
}

impl Received {
    pub(crate) fn new(decoder: Decoder) -> Received {
        Received { decoder, descriptors: VecDeque::new() }
    }

    /// Takes what has come by now, without waiting, and not much more than a message. Whether more may come.
    ///
    /// # Errors
    /// Whatever the system says, and descriptors that nobody has announced.
    pub(crate) fn take(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let mut bytes = [0; PIECE];
        let mut space = [MaybeUninit::uninit(); ANCILLARY];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let count = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Ok(message) => message.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if self.descriptors.len() > 2 * MOST_DESCRIPTORS {
            return Err(io::Error::other("descriptors came that no frame has"));
        }
        self.decoder.push(&bytes[..count]);
        Ok(count > 0)
    }

    /// The next frame that is whole, with its descriptors.
    ///
    /// # Errors
    /// Why there will be none any more.
    pub(crate) fn next(&mut self) -> Result<Option<(Frame, Vec<OwnedFd>)>, String> {
        let Some(frame) = self.decoder.next_frame().map_err(|error| error.to_string())? else { return Ok(None) };
        let count = frame.descriptors();
        if count > self.descriptors.len() {
            return Err(format!("{count} descriptors were announced, {} came", self.descriptors.len()));
        }
        Ok(Some((frame, self.descriptors.drain(..count).collect())))
    }
}

/// Waits until there is something to read, or for `limit`. Whether there is.
///
/// # Errors
/// Whatever the system says.
pub(crate) fn wait_readable(socket: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    match poll(&mut fds, Some(&timespec(limit))) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn timespec(limit: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), tv_nsec: limit.subsec_nanos().into() }
}

/// The next frame of a conversation that has only begun.
///
/// # Errors
/// What the peer did instead.
pub(crate) fn expect_frame(socket: BorrowedFd<'_>, received: &mut Received, deadline: Instant) -> Result<Frame, String> {
    loop {
        if let Some((frame, _)) = received.next()? {
            return Ok(frame);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("it said nothing in time".into());
        }
        if wait_readable(socket, left).map_err(|error| error.to_string())? && !received.take(socket).map_err(|error| error.to_string())? {
            return Err("it closed the connection".into());
        }
    }
}

/// Sends a whole frame, and waits for that as long as the socket's own limit of sending.
///
/// # Errors
/// Whatever the system says.
pub(crate) fn send_frame(socket: BorrowedFd<'_>, frame: &Frame, mut descriptors: &[OwnedFd]) -> io::Result<()> {
    let bytes = frame.encode();
    let mut at = 0;
    while at < bytes.len() {
        at += send(socket, &bytes[at..], descriptors, SendFlags::empty())?;
        descriptors = &[];
    }
    Ok(())
}
