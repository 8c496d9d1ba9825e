//! What goes over the sockets: frames of bounded size, each with its length before it. Little-endian throughout.
//!
//! A [`Decoder`] takes bytes as they come from a peer. It never holds more than one frame's limit beyond what it was given. Before the peer has
//! proven that it knows the secret, that limit is [`MOST_BEFORE_PROOF`].

use crate::{BootstrapError, Loss};

/// What a conversation starts with: the name of the protocol.
const MAGIC: [u8; 10] = *b"passmuster";

/// The version of what is said here. Both sides must have the same.
pub const VERSION: u16 = 2;

/// The most bytes that a rank gives in one exchange, or in one message.
pub const MOST_BYTES: usize = 64 << 20;

/// The most bytes of a frame before its sender has proven that it knows the secret.
pub const MOST_BEFORE_PROOF: usize = 256;

/// The most bytes of a name or a reason; what is longer is cut when it is sent, and refused when it comes.
pub const MOST_TEXT: usize = 4096;

/// The most file descriptors that a rank gives in one exchange: what Linux takes with one message.
pub const MOST_DESCRIPTORS: usize = 253;

/// The most ranks of a job.
pub const MOST_RANKS: usize = 4096;

/// The most bytes of a frame: an exchange's name and bytes, and what is said of them.
const MOST_FRAME: usize = MOST_BYTES + MOST_TEXT + 64;

/// 32 bytes: a nonce or a proof.
pub type Bytes32 = [u8; 32];

/// One thing that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The hub's first words to each peer that connects.
    Challenge {
        /// Its version.
        version: u16,
        /// What the peer's proof must be of.
        nonce: Bytes32,
    },
    /// A rank's answer: who it is, and its proof.
    Introduction {
        /// Its version.
        version: u16,
        /// Its rank.
        rank: u32,
        /// How many ranks it thinks there are.
        world: u32,
        /// What the hub's proof must be of.
        nonce: Bytes32,
        /// That it knows the secret.
        proof: Bytes32,
    },
    /// The hub takes a rank in.
    Welcome {
        /// That it knows the secret, too.
        proof: Bytes32,
        /// The host that it runs on.
        host: String,
        /// A Unix socket on that host to come over to; empty where there is none.
        socket: String,
    },
    /// The hub does not take a rank in.
    Refused {
        /// Why.
        reason: String,
    },
    /// What a rank gives to an exchange.
    Contribution {
        /// The exchange's number, counted from 0.
        sequence: u64,
        /// The exchange's name.
        what: String,
        /// Milliseconds that the others have.
        limit_ms: u64,
        /// File descriptors that come with it.
        descriptors: u16,
        /// What all are to have.
        bytes: Vec<u8>,
    },
    /// What one rank gave, for each rank.
    Part {
        /// The exchange's number.
        sequence: u64,
        /// Whose it is.
        rank: u32,
        /// File descriptors that come with it.
        descriptors: u16,
        /// What it gave.
        bytes: Vec<u8>,
    },
    /// A rank gives up.
    GaveUp {
        /// Whether it panicked.
        how: Loss,
        /// Why.
        reason: String,
    },
    /// The job has failed, and this is the first reason.
    Failed(BootstrapError),
    /// A message between a rank and the coordinator.
    Mail(Vec<u8>),
    /// The hub is there.
    Alive,
    /// A rank leaves in good order.
    Goodbye,
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length that is not allowed.
    #[error("{count} {what}: at most {most}")]
    TooLong {
        /// Of what, and in what.
        what: &'static str,
        /// The length.
        count: u64,
        /// What is allowed.
        most: usize,
    },
    /// A frame that ends too early or too late, or that does not say what it must.
    #[error("no frame: {0}")]
    Malformed(&'static str),
}

impl Frame {
    /// File descriptors that come with it.
    pub fn descriptors(&self) -> usize {
        match self {
            Frame::Contribution { descriptors, .. } | Frame::Part { descriptors, .. } => usize::from(*descriptors),
            _ => 0,
        }
    }

    /// The bytes to send.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(vec![0; 4]);
        match self {
            Frame::Challenge { version, nonce } => {
                out.tag(0).raw(&MAGIC).raw(&version.to_le_bytes()).raw(nonce);
            }
            Frame::Introduction { version, rank, world, nonce, proof } => {
                out.tag(1).raw(&MAGIC).raw(&version.to_le_bytes()).raw(&rank.to_le_bytes()).raw(&world.to_le_bytes()).raw(nonce).raw(proof);
            }
            Frame::Welcome { proof, host, socket } => _ = out.tag(2).raw(proof).text(host).text(socket),
            Frame::Refused { reason } => _ = out.tag(3).text(reason),
            Frame::Contribution { sequence, what, limit_ms, descriptors, bytes } => {
                out.tag(4).raw(&sequence.to_le_bytes()).text(what).raw(&limit_ms.to_le_bytes()).raw(&descriptors.to_le_bytes()).raw(bytes);
            }
            Frame::Part { sequence, rank, descriptors, bytes } => {
                out.tag(5).raw(&sequence.to_le_bytes()).raw(&rank.to_le_bytes()).raw(&descriptors.to_le_bytes()).raw(bytes);
            }
            Frame::GaveUp { how, reason } => _ = out.tag(6).loss(*how).text(reason),
            Frame::Failed(error) => _ = out.tag(7).error(error),
            Frame::Mail(bytes) => _ = out.tag(8).raw(bytes),
            Frame::Alive => _ = out.tag(9),
            Frame::Goodbye => _ = out.tag(10),
        }
        let mut bytes = out.0;
        let length = u32::try_from(bytes.len() - 4).expect("a frame is shorter than 4 GiB");
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// What the bytes behind the length say.
    ///
    /// # Errors
    /// Why they are no frame.
    pub fn decode(bytes: &[u8]) -> Result<Frame, FrameError> {
        let mut from = Reader(bytes);
        let frame = match from.u8()? {
            0 => {
                from.magic()?;
                Frame::Challenge { version: from.u16()?, nonce: from.array()? }
            }
            1 => {
                from.magic()?;
                Frame::Introduction {
                    version: from.u16()?,
                    rank: from.u32()?,
                    world: from.u32()?,
                    nonce: from.array()?,
                    proof: from.array()?,
                }
            }
            2 => Frame::Welcome { proof: from.array()?, host: from.text()?, socket: from.text()? },
            3 => Frame::Refused { reason: from.text()? },
            4 => Frame::Contribution {
                sequence: from.u64()?,
                what: from.text()?,
                limit_ms: from.u64()?,
                descriptors: from.descriptors()?,
                bytes: from.rest()?,
            },
            5 => Frame::Part { sequence: from.u64()?, rank: from.u32()?, descriptors: from.descriptors()?, bytes: from.rest()? },
            6 => Frame::GaveUp { how: from.loss()?, reason: from.text()? },
            7 => Frame::Failed(from.error()?),
            8 => Frame::Mail(from.rest()?),
            9 => Frame::Alive,
            10 => Frame::Goodbye,
            _ => return Err(FrameError::Malformed("it is of no known kind")),
        };
        if from.0.is_empty() { Ok(frame) } else { Err(FrameError::Malformed("it goes on after its end")) }
    }
}

/// Makes frames of bytes that come in pieces.
#[derive(Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// The most bytes of a frame.
    most: usize,
}

impl Decoder {
    /// Of a stranger's bytes: frames are small until [`Decoder::trust`].
    pub fn of_stranger() -> Decoder {
        Decoder { bytes: Vec::new(), most: MOST_BEFORE_PROOF }
    }

    /// Of the bytes of somebody who has proven to know the secret.
    pub fn of_member() -> Decoder {
        Decoder { bytes: Vec::new(), most: MOST_FRAME }
    }

    /// From here on, frames may be as long as members' are.
    pub fn trust(&mut self) {
        self.most = MOST_FRAME;
    }

    /// Takes bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, once it is whole.
    ///
    /// # Errors
    /// Why there is none and never will be.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(length) = self.bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length)) else { return Ok(None) };
        if length as usize > self.most {
            return Err(FrameError::TooLong { what: "bytes of a frame", count: length.into(), most: self.most });
        }
        let end = 4 + length as usize;
        if self.bytes.len() < end {
            return Ok(None);
        }
        let frame = Frame::decode(&self.bytes[4..end])?;
        self.bytes.drain(..end);
        Ok(Some(frame))
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn tag(&mut self, tag: u8) -> &mut Writer {
        self.raw(&[tag])
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Writer {
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Writer {
        let end = (0..=text.len().min(MOST_TEXT)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        let text = &text[..end];
        self.raw(&(text.len() as u16).to_le_bytes()).raw(text.as_bytes())
    }

    fn error(&mut self, error: &BootstrapError) -> &mut Writer {
        match error {
            BootstrapError::Lost { rank, world, what, how, reason } => {
                self.tag(0).raw(&(*rank as u32).to_le_bytes()).raw(&(*world as u32).to_le_bytes()).text(what).loss(*how).text(reason)
            }
            BootstrapError::GaveUp { rank, how, reason } => self.tag(1).raw(&(*rank as u32).to_le_bytes()).loss(*how).text(reason),
            BootstrapError::SetUp(reason) => self.tag(2).text(reason),
            BootstrapError::InUse(reason) => self.tag(3).text(reason),
        }
    }

    /// A kind, and the number of a signal or a status if it has one.
    fn loss(&mut self, how: Loss) -> &mut Writer {
        match how {
            Loss::Killed { signal } => self.tag(0).raw(&signal.to_le_bytes()),
            Loss::Stopped { signal } => self.tag(1).raw(&signal.to_le_bytes()),
            Loss::Exited { status } => self.tag(2).raw(&status.to_le_bytes()),
            Loss::Late => self.tag(3),
            Loss::Garbage => self.tag(4),
            Loss::Left => self.tag(5),
            Loss::GaveUp => self.tag(6),
            Loss::Panicked => self.tag(7),
            Loss::Disconnected => self.tag(8),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(FrameError::Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        Ok(self.take(N)?.try_into().expect("as many were taken"))
    }

    fn u8(&mut self) -> Result<u8, FrameError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Result<i32, FrameError> {
        self.array().map(i32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_le_bytes)
    }

    fn magic(&mut self) -> Result<(), FrameError> {
        if self.array()? == MAGIC { Ok(()) } else { Err(FrameError::Malformed("it is of another protocol")) }
    }

    fn descriptors(&mut self) -> Result<u16, FrameError> {
        let count = self.u16()?;
        let most = MOST_DESCRIPTORS;
        if usize::from(count) > most {
            Err(FrameError::TooLong { what: "descriptors of a frame", count: count.into(), most })
        } else {
            Ok(count)
        }
    }

    fn text(&mut self) -> Result<String, FrameError> {
        let length = usize::from(self.u16()?);
        if length > MOST_TEXT {
            return Err(FrameError::TooLong { what: "bytes of a text", count: length as u64, most: MOST_TEXT });
        }
        str::from_utf8(self.take(length)?).map(str::to_owned).map_err(|_| FrameError::Malformed("a text is not UTF-8"))
    }

    fn rest(&mut self) -> Result<Vec<u8>, FrameError> {
        if self.0.len() > MOST_BYTES {
            return Err(FrameError::TooLong { what: "bytes of a message", count: self.0.len() as u64, most: MOST_BYTES });
        }
        Ok(std::mem::take(&mut self.0).to_vec())
    }

    fn error(&mut self) -> Result<BootstrapError, FrameError> {
        Ok(match self.u8()? {
            0 => {
                let (rank, world) = (self.u32()? as usize, self.u32()? as usize);
                BootstrapError::Lost { rank, world, what: self.text()?, how: self.loss()?, reason: self.text()? }
            }
            1 => BootstrapError::GaveUp { rank: self.u32()? as usize, how: self.loss()?, reason: self.text()? },
            2 => BootstrapError::SetUp(self.text()?),
            3 => BootstrapError::InUse(self.text()?),
            _ => return Err(FrameError::Malformed("an error is of no known kind")),
        })
    }

    fn loss(&mut self) -> Result<Loss, FrameError> {
        Ok(match self.u8()? {
            0 => Loss::Killed { signal: self.i32()? },
            1 => Loss::Stopped { signal: self.i32()? },
            2 => Loss::Exited { status: self.i32()? },
            3 => Loss::Late,
            4 => Loss::Garbage,
            5 => Loss::Left,
            6 => Loss::GaveUp,
            7 => Loss::Panicked,
            8 => Loss::Disconnected,
            _ => return Err(FrameError::Malformed("a loss is of no known kind")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One frame of each kind.
    pub(crate) fn one_of_each() -> Vec<Frame> {
        let lost = BootstrapError::Lost {
            rank: 2,
            world: 4,
            what: "open".into(),
            how: Loss::Killed { signal: 9 },
            reason: "killed by signal 9".into(),
        };
        vec![
            Frame::Challenge { version: VERSION, nonce: [1; 32] },
            Frame::Introduction { version: VERSION, rank: 3, world: 4, nonce: [2; 32], proof: [3; 32] },
            Frame::Welcome { proof: [4; 32], host: "h".into(), socket: "/tmp/s".into() },
            Frame::Refused { reason: "world".into() },
            Frame::Contribution { sequence: 5, what: "open".into(), limit_ms: 9, descriptors: 2, bytes: vec![1, 2, 3] },
            Frame::Part { sequence: 5, rank: 1, descriptors: 0, bytes: Vec::new() },
            Frame::GaveUp { how: Loss::Panicked, reason: "ä".into() },
            Frame::Failed(lost),
            Frame::Failed(BootstrapError::GaveUp { rank: 1, how: Loss::GaveUp, reason: "no".into() }),
            Frame::Failed(BootstrapError::SetUp("port".into())),
            Frame::Mail(vec![7; 9]),
            Frame::Alive,
            Frame::Goodbye,
        ]
    }

    /// If this fails, ranks do not understand each other, or only where a frame comes in one piece.
    #[test]
    fn frames_come_back_as_they_were_sent_in_pieces_of_any_size() {
        for piece in [1, 2, 7, 4096] {
            let mut decoder = Decoder::of_member();
            let bytes: Vec<u8> = one_of_each().iter().flat_map(Frame::encode).collect();
            let mut frames = Vec::new();
            for part in bytes.chunks(piece) {
                decoder.push(part);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, one_of_each());
        }
    }

    /// If this fails, a frame that lost its end is taken for a whole one, or one with something behind it for one without. Those that end with bytes of any
    /// number are frames of fewer.
    #[test]
    fn what_is_cut_or_goes_on_is_no_frame() {
        for frame in one_of_each() {
            let bytes = &frame.encode()[4..];
            let has_rest = matches!(frame, Frame::Contribution { .. } | Frame::Part { .. } | Frame::Mail(_));
            for end in 0..bytes.len() {
                assert!(has_rest || Frame::decode(&bytes[..end]).is_err(), "{frame:?} of {end} bytes");
            }
            assert!(has_rest || Frame::decode(&[bytes, &[0]].concat()).is_err(), "{frame:?} with one more");
        }
    }

    /// If this fails, somebody who has proven nothing can have this process keep what it likes.
    #[test]
    fn a_stranger_says_little() {
        let mut decoder = Decoder::of_stranger();
        decoder.push(&257u32.to_le_bytes());
        assert_eq!(decoder.next_frame().unwrap_err().to_string(), "257 bytes of a frame: at most 256");
        let mut decoder = Decoder::of_stranger();
        decoder.push(&257u32.to_le_bytes());
        decoder.trust();
        assert_eq!(decoder.next_frame(), Ok(None));
        decoder.push(&[9; 257]);
        assert_eq!(decoder.next_frame(), Err(FrameError::Malformed("it goes on after its end")));
    }

    /// If this fails, what a rank must say in an exchange is more than the others take.
    #[test]
    fn the_longest_contribution_is_a_frame() {
        let what = "w".repeat(MOST_TEXT + 9);
        let frame = Frame::Contribution { sequence: u64::MAX, what, limit_ms: u64::MAX, descriptors: 253, bytes: vec![0; MOST_BYTES] };
        let mut decoder = Decoder::of_member();
        decoder.push(&frame.encode());
        let Ok(Some(Frame::Contribution { what, bytes, .. })) = decoder.next_frame() else { panic!("no contribution") };
        assert_eq!((what.len(), bytes.len()), (MOST_TEXT, MOST_BYTES));
    }
}
