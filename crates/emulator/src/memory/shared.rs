//! Bytes that several processes map, and any of them writes at any time.
//!
//! A [`Segment`] is a memfd, mapped. Its maker gives the descriptor to others, which map it too. An allocation may have its bytes in one, in place
//! of bytes of its own; addresses and rights are this memory's as ever.
//!
//! No reference to such bytes is ever made but to atomics: all accesses are atomic operations, through raw pointers. Rust's model knows the threads of one
//! program, and a segment is used by one thread at a time here, so what others do is for the processor's model: aligned accesses of 1, 2, 4, 8 and 16 bytes are not torn
//! and coherent, loads acquire, stores release. That is at least what PTX says of strong and of weak ones, for any scope. Longer ones and stretches are several of these, in ascending order.
//!
//! Which bytes were ever written stands in the segment, too, behind the bytes of each allocation: a process learns what others have written. The note
//! comes before the bytes, so nobody who sees the bytes misses it.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering},
};

use portable_atomic::AtomicU128;
use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::{MapFlags, ProtFlags},
};

use super::{AccessError, Address, Allocation, GlobalAddr, Init, Kind, Memory, Owner, Taken, written::parts};

/// What parts of a segment start at multiples of: no two allocations share a line of the processor's cache.
const ALIGNMENT: u64 = 128;

/// The most bytes of a segment: far more than any emulated group has, and less than a mistake asks for.
pub const MOST_SEGMENT_BYTES: u64 = 1 << 40;

/// A stretch of memory that other processes may map, too. All zero at first.
#[derive(Debug)]
pub struct Segment {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to nobody else in this process, and is not tied to a thread.
unsafe impl Send for Segment {}

impl Segment {
    /// Makes a segment of `bytes` bytes, and the descriptor by which others map it. Nobody can make it smaller.
    ///
    /// # Errors
    /// Of the system, where it has no descriptor left; `InvalidInput` for more bytes than [`MOST_SEGMENT_BYTES`]; `Unsupported` on a processor that has no
    /// accesses of 16 bytes.
    pub fn create(bytes: u64) -> io::Result<(Segment, OwnedFd)> {
        if bytes > MOST_SEGMENT_BYTES {
            let why = format!("a shared segment of {bytes} bytes: {MOST_SEGMENT_BYTES} are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let file = rustix::fs::memfd_create("passmuster", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Zero bytes cannot be mapped. No memory is taken before it is written: asking for it here may end other processes where there is too little.
        rustix::fs::ftruncate(&file, bytes.max(1))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Segment::map(&file, bytes)?, file))
    }

    /// Maps a segment of `bytes` bytes that another process has made.
    ///
    /// # Errors
    /// Of the system; `InvalidData` for what is smaller or may become so; `Unsupported` as of [`Segment::create`].
    pub fn map(file: impl AsFd, bytes: u64) -> io::Result<Segment> {
        if !AtomicU128::is_lock_free() {
            let why = "memory shared between processes needs a processor with compare-and-exchange of 16 bytes";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let bytes = bytes.max(1);
        let found = rustix::fs::fstat(&file)?.st_size;
        if u64::try_from(found).is_ok_and(|found| found < bytes) || found < 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a shared segment of {found} bytes: expected at least {bytes}"),
            ));
        }
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a shared segment that can become smaller while it is mapped"));
        }
        let bytes = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: a new mapping at a place that the system chooses touches nothing that is there. The file has as many bytes and keeps them.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("a mapping at null"))?;
        Ok(Segment { start, bytes })
    }

    /// The bytes that an allocation of `bytes` bytes takes, with what is known of them. The next allocation may start behind them.
    pub fn span(bytes: u64) -> u64 {
        notes(bytes) + bytes.div_ceil(64).saturating_mul(8).next_multiple_of(ALIGNMENT)
    }

    /// Where an access of `N` bytes goes.
    ///
    /// # Panics
    /// Where it is not aligned to `N`, or not within the segment.
    #[inline(always)]
    fn at<const N: usize>(&self, offset: u64) -> *mut u8 {
        assert!(offset.is_multiple_of(N as u64) && offset <= self.bytes as u64 && N as u64 <= self.bytes as u64 - offset);
        // SAFETY: it lies within the mapping.
        unsafe { self.start.as_ptr().add(offset as usize) }
    }

    /// Reads `N` bytes (1, 2, 4, 8 or 16 at once, 32 as two of 16). This acquires what came before their stores.
    ///
    /// # Panics
    /// Where they are not aligned to `N`, or not within the segment.
    pub fn load<const N: usize>(&self, offset: u64) -> [u8; N] {
        const { assert!(N.is_power_of_two() && N <= 32) };
        let mut value = [0; N];
        if N == 32 {
            let halves = [self.load::<16>(offset), self.load::<16>(offset + 16)];
            value.copy_from_slice(halves.as_flattened());
            return value;
        }
        let at = self.at::<N>(offset);
        macro_rules! load {
            ($atomic:ty) => {{
                // SAFETY: there are as many bytes, aligned so, for as long as the segment is there; all accesses to them are atomic.
                let there = unsafe { <$atomic>::from_ptr(at.cast()) };
                value.copy_from_slice(&there.load(Ordering::Acquire).to_le_bytes());
            }};
        }
        match N {
            1 => load!(AtomicU8),
            2 => load!(AtomicU16),
            4 => load!(AtomicU32),
            8 => load!(AtomicU64),
            _ => load!(AtomicU128),
        }
        value
    }

    /// Writes `N` bytes as [`Segment::load`] reads them, and releases what came before.
    ///
    /// # Panics
    /// As [`Segment::load`].
    pub fn store<const N: usize>(&self, offset: u64, value: [u8; N]) {
        const { assert!(N.is_power_of_two() && N <= 32) };
        if N == 32 {
            let (low, high) = value.split_at(16);
            self.store::<16>(offset, of_slice(low));
            return self.store::<16>(offset + 16, of_slice(high));
        }
        let at = self.at::<N>(offset);
        macro_rules! store {
            ($atomic:ty, $integer:ty) => {{
                // SAFETY: as for loads.
                let there = unsafe { <$atomic>::from_ptr(at.cast()) };
                there.store(<$integer>::from_le_bytes(of_slice(&value)), Ordering::Release);
            }};
        }
        match N {
            1 => store!(AtomicU8, u8),
            2 => store!(AtomicU16, u16),
            4 => store!(AtomicU32, u32),
            8 => store!(AtomicU64, u64),
            _ => store!(AtomicU128, u128),
        }
    }

    /// Writes `N` bytes, up to 16, if others are there still: compare and exchange. Whether it did.
    ///
    /// # Panics
    /// As [`Segment::load`].
    pub fn replace<const N: usize>(&self, offset: u64, old: [u8; N], new: [u8; N]) -> bool {
        const { assert!(N.is_power_of_two() && N <= 16) };
        let at = self.at::<N>(offset);
        macro_rules! replace {
            ($atomic:ty, $integer:ty) => {{
                // SAFETY: as for loads.
                let there = unsafe { <$atomic>::from_ptr(at.cast()) };
                let (old, new) = (<$integer>::from_le_bytes(of_slice(&old)), <$integer>::from_le_bytes(of_slice(&new)));
                there.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
            }};
        }
        match N {
            1 => replace!(AtomicU8, u8),
            2 => replace!(AtomicU16, u16),
            4 => replace!(AtomicU32, u32),
            8 => replace!(AtomicU64, u64),
            _ => replace!(AtomicU128, u128),
        }
    }

    /// Reads a stretch, eight bytes at once where they are aligned.
    ///
    /// # Panics
    /// Where it is not within the segment.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        in_steps(offset, into.len(), |at, step, from| match step {
            8 => into[at..at + 8].copy_from_slice(&self.load::<8>(from)),
            4 => into[at..at + 4].copy_from_slice(&self.load::<4>(from)),
            2 => into[at..at + 2].copy_from_slice(&self.load::<2>(from)),
            _ => into[at] = self.load::<1>(from)[0],
        });
    }

    /// Writes a stretch likewise: an aligned word of up to eight bytes at once.
    ///
    /// # Panics
    /// Where it is not within the segment.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        in_steps(offset, bytes.len(), |at, step, to| match step {
            8 => self.store::<8>(to, of_slice(&bytes[at..])),
            4 => self.store::<4>(to, of_slice(&bytes[at..])),
            2 => self.store::<2>(to, of_slice(&bytes[at..])),
            _ => self.store::<1>(to, [bytes[at]]),
        });
    }

    /// Changes bits of the eight-byte word at an offset, if they are not so already: those of a mask become one, or zero.
    fn put_bits(&self, offset: u64, mask: u64, ones: bool) {
        // SAFETY: as for loads.
        let word = unsafe { AtomicU64::from_ptr(self.at::<8>(offset).cast()) };
        let now = word.load(Ordering::Acquire);
        if ones && now & mask != mask {
            word.fetch_or(mask, Ordering::AcqRel);
        } else if !ones && now & mask != 0 {
            word.fetch_and(!mask, Ordering::AcqRel);
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping but this.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// The first `N` bytes of a slice that has them.
fn of_slice<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| bytes[at])
}

/// Goes through `bytes` bytes from an offset on in aligned steps of up to eight: how far it has come, the length of the step, and where that is.
fn in_steps(offset: u64, bytes: usize, mut step: impl FnMut(usize, usize, u64)) {
    let mut done = 0;
    while done < bytes {
        let at = offset + done as u64;
        let aligned = 1 << at.trailing_zeros().min(3);
        let fits = 1 << (bytes - done).ilog2().min(3);
        let length = usize::min(aligned, fits);
        step(done, length, at);
        done += length;
    }
}

/// Where what is known of an allocation's bytes starts, from the start of the bytes.
fn notes(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT)
}

/// A segment that a memory has taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentId(usize);

/// Where an allocation's bytes are that others may write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    segment: SegmentId,
    /// Of the first byte.
    offset: u64,
    /// Whether it is known which bytes were written.
    tracks: bool,
}

/// The bytes of an allocation that are in a segment.
struct Stretch<'m> {
    segment: &'m Segment,
    offset: u64,
    /// Where it stands which bytes were written, if that is known.
    notes: Option<u64>,
}

impl Stretch<'_> {
    /// The first of these bytes that was never written.
    fn first_missing(&self, offset: u64, bytes: u64) -> Option<u64> {
        let notes = self.notes?;
        parts(offset, bytes).find_map(|(word, mask)| {
            let missing = !u64::from_le_bytes(self.segment.load(notes + 8 * word as u64)) & mask;
            (missing != 0).then(|| word as u64 * 64 + u64::from(missing.trailing_zeros()))
        })
    }

    fn note(&self, offset: u64, bytes: u64, written: bool) {
        let Some(notes) = self.notes else { return };
        parts(offset, bytes).for_each(|(word, mask)| self.segment.put_bits(notes + 8 * word as u64, mask, written));
    }

    /// Fills and notes nothing.
    fn fill(&self, offset: u64, bytes: u64, byte: u8) {
        // No more than so much is there twice.
        let part = vec![byte; bytes.min(1 << 16) as usize];
        for from in (0..bytes).step_by(1 << 16) {
            self.segment.write(self.offset + offset + from, &part[..(bytes - from).min(1 << 16) as usize]);
        }
    }
}

impl Memory {
    /// Takes a segment in: allocations may have their bytes there.
    pub fn take_in(&mut self, segment: Segment) -> SegmentId {
        self.segments.push(segment);
        SegmentId(self.segments.len() - 1)
    }

    /// As [`Memory::allocate`], with the bytes in a segment that others map: [`Segment::span`] bytes of it, from an offset on.
    ///
    /// # Panics
    /// As [`Memory::allocate`], and for an offset that is no multiple of 128 or where the segment has too few bytes.
    pub fn share(&mut self, owner: Owner, bytes: u64, init: Init, (segment, offset): (SegmentId, u64)) -> Address {
        let address = self.import(owner, bytes, init, (segment, offset));
        let stretch = Stretch { segment: &self.segments[segment.0], offset, notes: Some(offset + notes(bytes)) };
        // A segment is all zero at first, and so are its notes.
        let byte = init.byte(bytes);
        if byte != 0 {
            stretch.fill(0, bytes, byte);
        }
        if init != Init::Uninitialised {
            stretch.note(0, bytes, true);
        }
        address
    }

    /// The same of an allocation that another process shares, and fills: as it says there, `init`.
    ///
    /// # Panics
    /// As [`Memory::share`].
    pub fn import(&mut self, owner: Owner, bytes: u64, init: Init, (segment, offset): (SegmentId, u64)) -> Address {
        let there = self.segments[segment.0].bytes as u64;
        let fits = offset.checked_add(Segment::span(bytes)).is_some_and(|end| end <= there);
        assert!(fits && offset.is_multiple_of(ALIGNMENT), "rank {} {}: {bytes} bytes at {offset} of {there}", owner.rank, owner.name);
        let address = self.push(owner, bytes, Kind::Unicast, Vec::new(), None);
        let shared = Shared { segment, offset, tracks: init == Init::Uninitialised };
        self.allocations.last_mut().expect("one was just made").shared = Some(Box::new(shared));
        address
    }

    /// Windows that were given out so far.
    pub fn windows(&self) -> usize {
        self.allocations.len()
    }

    /// Leaves windows out up to this many, so that the next one is the same in processes that have made other allocations of their own. Where there are as
    /// many already, nothing is done.
    pub fn leave_out_windows(&mut self, windows: usize) {
        while self.allocations.len() < windows {
            self.push(Owner::new(0, 0, "nothing"), 0, Kind::Freed, Vec::new(), None);
        }
    }

    /// Orders what this thread did in segments before what it does there next, for every process: sequentially consistent. Without segments nothing is done.
    pub fn fence(&self) {
        if !self.segments.is_empty() {
            std::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// Where the bytes of an allocation are that has none of its own.
    ///
    /// # Panics
    /// When it was freed.
    fn stretch(&self, place: GlobalAddr) -> Stretch<'_> {
        let Allocation { shared, size, owner, .. } = &self.allocations[place.allocation.index()];
        let Some(shared) = shared else {
            panic!("rank {} {}{:+}: not there, of {size} bytes", owner.rank, owner.name, place.offset);
        };
        let Shared { segment, offset, tracks } = **shared;
        Stretch { segment: &self.segments[segment.0], offset, notes: tracks.then(|| offset + notes(*size)) }
    }

    /// The first of these bytes that was never written.
    #[cold]
    pub(super) fn first_missing_shared(&self, place: GlobalAddr, bytes: u64) -> Option<u64> {
        self.stretch(place).first_missing(place.offset, bytes)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn load_shared<const N: usize>(&self, place: GlobalAddr) -> Result<[u8; N], AccessError> {
        let stretch = self.stretch(place);
        let value = stretch.segment.load(stretch.offset + place.offset);
        if stretch.first_missing(place.offset, N as u64).is_some() {
            return Err(self.uninitialised(place, N as u64));
        }
        Ok(value)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn peek_shared<const N: usize>(&self, place: GlobalAddr) -> [u8; N] {
        let stretch = self.stretch(place);
        stretch.segment.load(stretch.offset + place.offset)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn put_shared<const N: usize>(&self, place: GlobalAddr, value: [u8; N]) {
        let stretch = self.stretch(place);
        stretch.note(place.offset, N as u64, true);
        stretch.segment.store(stretch.offset + place.offset, value);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn replace_shared<const N: usize>(&self, place: GlobalAddr, old: [u8; N], new: [u8; N]) -> bool {
        let stretch = self.stretch(place);
        stretch.note(place.offset, N as u64, true);
        stretch.segment.replace(stretch.offset + place.offset, old, new)
    }

    /// Reads a stretch, written or not.
    #[cold]
    pub(super) fn read_shared(&self, place: GlobalAddr, bytes: u64) -> Vec<u8> {
        let stretch = self.stretch(place);
        let mut read = vec![0; bytes as usize];
        stretch.segment.read(stretch.offset + place.offset, &mut read);
        read
    }

    #[cold]
    pub(super) fn write_shared(&self, place: GlobalAddr, bytes: &[u8]) {
        let stretch = self.stretch(place);
        stretch.note(place.offset, bytes.len() as u64, true);
        stretch.segment.write(stretch.offset + place.offset, bytes);
    }

    #[cold]
    pub(super) fn fill_shared(&self, place: GlobalAddr, bytes: u64, byte: u8) {
        let stretch = self.stretch(place);
        stretch.note(place.offset, bytes, true);
        stretch.fill(place.offset, bytes, byte);
    }

    /// As [`Memory::take`].
    #[cold]
    pub(super) fn take_shared(&self, place: GlobalAddr, bytes: u64) -> Taken {
        let values = self.read_shared(place, bytes);
        let stretch = self.stretch(place);
        let is_missing = |byte: &u64| stretch.first_missing(place.offset + byte, 1).is_some();
        let missing = match stretch.first_missing(place.offset, bytes) {
            Some(_) => (0..bytes).filter(is_missing).collect(),
            None => Vec::new(),
        };
        Taken { bytes: values, missing }
    }

    /// As [`Memory::give`]. All bytes are noted as written while they are: who races with it may miss that some never were.
    #[cold]
    pub(super) fn give_shared(&self, place: GlobalAddr, taken: &Taken) {
        self.write_shared(place, &taken.bytes);
        let stretch = self.stretch(place);
        taken.missing.iter().for_each(|byte| stretch.note(place.offset + byte, 1, false));
    }

    /// As [`Memory::track_written`].
    pub(super) fn track_shared(&mut self, place: GlobalAddr, track: bool) {
        let allocation = &mut self.allocations[place.allocation.index()];
        let size = allocation.size;
        if let Some(shared) = &mut allocation.shared {
            let starts = track && !shared.tracks;
            shared.tracks = track;
            if starts {
                self.stretch(place).note(0, size, true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, thread};

    use super::*;

    /// Two memories, as two processes would have them: `bytes` bytes of rank 0's words, which both ranks may access.
    fn two(bytes: u64, init: Init) -> [(Memory, Address); 2] {
        let (own, file) = Segment::create(Segment::span(bytes)).unwrap();
        let peers = Segment::map(&file, Segment::span(bytes)).unwrap();
        let (mut memory, mut peer) = (Memory::new(), Memory::new());
        let (segment, of_peer) = (memory.take_in(own), peer.take_in(peers));
        let at = memory.share(Owner::new(0, 0, "words"), bytes, init, (segment, 0));
        assert_eq!(peer.import(Owner::new(0, 0, "words"), bytes, init, (of_peer, 0)), at);
        [&mut memory, &mut peer].into_iter().for_each(|memory| memory.map(at, 1, true).unwrap());
        [(memory, at), (peer, at)]
    }

    /// Both do the same at once: `work` gets which of them it is, 0 or 1.
    fn at_once(pair: [(Memory, Address); 2], work: impl Fn(usize, &mut Memory, Address) + Sync) -> (Memory, Address) {
        let [(mut memory, at), (mut peer, _)] = pair;
        let gate = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                gate.wait();
                work(1, &mut peer, at);
            });
            gate.wait();
            work(0, &mut memory, at);
        });
        (memory, at)
    }

    /// Adds one to each of two words of `N / 2` bytes, as often as it says, at once for both.
    fn count<const N: usize>(memory: &mut Memory, rank: usize, at: Address, times: u32) {
        let place = memory.resolve_aligned(at, N as u64, rank).unwrap();
        for _ in 0..times {
            while {
                let old: [u8; N] = memory.load_at(place, rank).unwrap();
                let (low, high) = old.split_at(N / 2);
                assert_eq!(low, high, "torn");
                let mut new = old;
                for half in new.chunks_exact_mut(N / 2) {
                    for byte in half {
                        *byte = byte.wrapping_add(1);
                        if *byte != 0 {
                            break;
                        }
                    }
                }
                !memory.replace(place, old, new)
            } {}
        }
    }

    /// If this fails, atomics of two processes lose one another's, or an access of up to 16 bytes is torn.
    #[test]
    fn atomics_of_all_widths_count_what_both_do() {
        let times = 100_000_u32;
        let (memory, at) = at_once(two(64, Init::Zero), |rank, memory, at| {
            count::<16>(memory, rank, at, times);
            count::<8>(memory, rank, at.plus(16), times);
            count::<4>(memory, rank, at.plus(24), times);
            count::<2>(memory, rank, at.plus(28), times);
        });

        let low = |from: u64, bytes: u64| memory.read(at.plus(from), bytes, 0).unwrap().into_owned();
        let all = (2 * times).to_le_bytes();
        assert_eq!(low(0, 4), all);
        assert_eq!(low(8, 4), all);
        assert_eq!(low(16, 4), all);
        assert_eq!(low(24, 2), all[..2]);
        assert_eq!(low(28, 1), all[..1]);
    }

    /// One stores `N` bytes that are alike over and over, the other looks whether they are, until the last.
    fn alike<const N: usize>(memory: &mut Memory, rank: usize, at: Address) {
        const LAST: u8 = u8::MAX;
        let place = memory.resolve_aligned(at, N as u64, rank).unwrap();
        if rank == 0 {
            (0..300_000_u32).for_each(|round| memory.put(place, [(round % 255) as u8; N]));
            return memory.put(place, [LAST; N]);
        }
        while {
            let seen: [u8; N] = memory.peek(place);
            assert_eq!(seen, [seen[0]; N], "torn");
            seen[0] != LAST
        } {}
    }

    /// If this fails, a peer sees half of a store, or half of what is there.
    #[test]
    fn loads_and_stores_are_not_torn() {
        at_once(two(64, Init::Zero), |rank, memory, at| {
            alike::<16>(memory, rank, at);
            alike::<8>(memory, rank, at.plus(16));
            alike::<4>(memory, rank, at.plus(24));
            alike::<2>(memory, rank, at.plus(28));
        });
    }

    /// If this fails, an atomic overwrites what another process has written since it looked.
    #[test]
    fn what_is_there_no_more_is_not_replaced() {
        let [(mut memory, at), (mut peer, _)] = two(16, Init::Uninitialised);
        let place = memory.resolve_aligned(at, 8, 0).unwrap();
        let old = memory.peek(place);
        assert!(memory.replace(place, old, [1; 8]));
        assert!(peer.replace(place, [1; 8], [2; 8]));
        assert!(!memory.replace(place, [1; 8], [3; 8]));
        assert_eq!(memory.load::<8>(at, 0), Ok([2; 8]));
    }

    /// If this fails, who sees a flag does not see what was stored before it, or takes it for bytes that were never written.
    #[test]
    fn a_flag_is_seen_after_what_it_publishes() {
        at_once(two(4096, Init::Uninitialised), |rank, memory, at| {
            for round in 1..=2000_u32 {
                let (own, peers) = (at.plus(2048 * rank as u64), at.plus(2048 * (1 - rank) as u64));
                memory.write(own.plus(8), rank, &[round as u8; 1001]).unwrap();
                memory.store(own, rank, round.to_le_bytes()).unwrap();
                let flag = memory.resolve_aligned(peers, 4, rank).unwrap();
                while u32::from_le_bytes(memory.peek(flag)).wrapping_sub(round) > 1 {
                    thread::yield_now();
                }
                let seen = memory.read(peers.plus(8), 1001, rank).unwrap();
                assert!(seen.iter().all(|&byte| byte == round as u8), "round {round}: {seen:?}");
                // They go on when both have looked.
                memory.store(own.plus(2040), rank, round.to_le_bytes()).unwrap();
                let looked = memory.resolve_aligned(peers.plus(2040), 4, rank).unwrap();
                while u32::from_le_bytes(memory.peek(looked)).wrapping_sub(round) > 1 {
                    thread::yield_now();
                }
            }
        });
    }

    /// If this fails, what a peer has stored counts as never written, or what nobody has stored as written.
    #[test]
    fn what_was_written_is_known_to_all() {
        let [(mut memory, at), (mut peer, _)] = two(300, Init::Uninitialised);
        let missing = |first, offset, bytes| AccessError::Uninitialised { buffer: "words".into(), rank: 0, offset, bytes, first };
        assert_eq!(memory.load::<4>(at, 0), Err(missing(0, 0, 4)));
        assert_eq!(*memory.peek_all(at, 2, 0).unwrap(), [super::super::CANARY; 2]);
        peer.store(at.plus(4), 1, [1; 4]).unwrap();
        peer.write(at.plus(61), 1, &[2; 9]).unwrap();
        assert_eq!(memory.load::<4>(at.plus(4), 0), Ok([1; 4]));
        assert_eq!(memory.load::<8>(at, 0), Err(missing(0, 0, 8)));
        assert_eq!(*memory.read(at.plus(61), 9, 0).unwrap(), [2; 9]);
        assert_eq!(memory.read(at.plus(61), 10, 0), Err(missing(70, 61, 10)));
        // Copies take along what is not known.
        memory.copy(at.plus(60), at.plus(200), 16, 0).unwrap();
        assert_eq!(peer.read(at.plus(200), 16, 1), Err(missing(200, 200, 16)));
        assert_eq!(*peer.read(at.plus(201), 9, 1).unwrap(), [2; 9]);
        peer.fill(at, 300, 1, 3).unwrap();
        assert_eq!(*memory.read(at, 300, 0).unwrap(), [3; 300]);
        memory.track_written(at, false).unwrap();
        peer.track_written(at, false).unwrap();
        peer.track_written(at, true).unwrap();
        assert!(peer.read(at, 300, 1).is_ok());
    }

    #[test]
    fn bits_become_what_they_should_whatever_they_were() {
        let (segment, _) = Segment::create(64).unwrap();
        let word = || u64::from_le_bytes(segment.load(8));
        segment.put_bits(8, 0b0010, true);
        segment.put_bits(8, 0b0110, true);
        assert_eq!(word(), 0b0110);
        segment.put_bits(8, 0b1100, false);
        assert_eq!(word(), 0b0010);
    }

    #[test]
    fn a_warp_and_stretches_reach_the_same_bytes() {
        let [(mut memory, at), (mut peer, _)] = two(1024, Init::Zero);
        let addresses = std::array::from_fn(|lane| at.plus(lane as u64 * 32).0);
        let values: [[u8; 32]; 32] = std::array::from_fn(|lane| std::array::from_fn(|byte| (lane * 7 + byte) as u8));
        memory.store_warp(&addresses, u32::MAX, 0, &values).unwrap();
        let mut seen = [[0; 32]; 32];
        peer.load_warp(&addresses, u32::MAX, 1, &mut seen).unwrap();
        assert_eq!(seen, values);
        let all: Vec<u8> = values.concat();
        for (from, to) in [(0, 0), (1, 1), (3, 20), (5, 6), (7, 1024), (8, 8), (500, 523)] {
            assert_eq!(*peer.read(at.plus(from), to - from, 1).unwrap(), all[from as usize..to as usize]);
        }
        peer.write(at.plus(3), 1, &all[100..200]).unwrap();
        assert_eq!(*memory.read(at.plus(3), 100, 0).unwrap(), all[100..200]);
        assert_eq!(*memory.read(at, 3, 0).unwrap(), all[..3]);
        assert_eq!(*memory.read(at.plus(103), 900, 0).unwrap(), all[103..1003]);
    }

    /// If this fails, rights of a rank's own memory do not hold where it is shared, or memory that was freed is there.
    #[test]
    fn rights_and_bounds_are_as_of_memory_of_ones_own() {
        let [(mut memory, at), (peer, _)] = two(64, Init::Canary);
        assert_eq!(memory.load::<1>(at, 0), Ok([super::super::CANARY]));
        assert!(matches!(memory.load::<4>(at, 2), Err(AccessError::NotMappedOnRank { accessing: 2, .. })));
        assert!(matches!(memory.load::<8>(at.plus(4), 0), Err(AccessError::Misaligned { .. })));
        assert!(matches!(memory.load::<4>(at.plus(64), 0), Err(AccessError::OutOfBounds { size: 64, .. })));
        memory.free(at).unwrap();
        assert!(matches!(memory.load::<4>(at, 0), Err(AccessError::UseAfterFree { .. })));
        assert!(peer.load::<4>(at, 0).is_ok(), "only here");
    }

    #[test]
    fn windows_that_are_left_out_are_never_used() {
        let mut memory = Memory::new();
        memory.leave_out_windows(3);
        memory.leave_out_windows(2);
        assert_eq!(memory.windows(), 3);
        let address = memory.allocate(Owner::new(0, 0, "input"), 4, Init::Zero);
        let mut other = Memory::new();
        (0..3).for_each(|_| assert_ne!(other.allocate(Owner::new(1, 0, "own"), 8, Init::Zero), address));
        assert_eq!(other.allocate(Owner::new(0, 0, "input"), 4, Init::Zero), address);
        assert!(memory.load::<1>(Address(address.0 - (1 << 36)), 0).is_err());
    }

    /// If this fails, a peer can end this process by a signal: with a file that is smaller than it says, or becomes so.
    #[test]
    fn files_that_are_not_what_they_should_be_are_refused() {
        let (_, small) = Segment::create(4096).unwrap();
        let error = Segment::map(&small, 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "a shared segment of 4096 bytes: expected at least 1048576");
        let shrinks = rustix::fs::memfd_create("shrinks", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&shrinks, 4096).unwrap();
        assert!(Segment::map(&shrinks, 4096).unwrap_err().to_string().contains("can become smaller"));
        assert!(Segment::map(std::fs::File::open("/dev/null").unwrap(), 4096).is_err());
        assert!(rustix::fs::ftruncate(&small, 100).is_err(), "nobody makes it smaller");
        let error = Segment::create(MOST_SEGMENT_BYTES + 1).unwrap_err();
        assert_eq!(error.to_string(), "a shared segment of 1099511627777 bytes: 1099511627776 are allowed");
    }
}
