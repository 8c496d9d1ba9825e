//! What instructions start and what is done later, by turns of its own: copies, bulk copies, stores that an mbarrier counts.
//!
//! A flight goes in pieces, in an order of its own: all of its source may be read before anything is written, or piece by piece. So a thread that uses a
//! destination or overwrites a source too early finds it half done. Some go at once, all of their bytes counted together, as a GPU does it most of the
//! time. Flights have turns as warps have, so a schedule may let any of them wait.

use std::collections::{BTreeMap, VecDeque};

use super::{
    access::{Combiner, combined},
    block::Member,
    fault::{ExecError, Fault, FaultSite},
    mbarrier::Mbarriers,
    tensor::PartOfBox,
};
use crate::{
    choice::Choice,
    memory::{Address, Memory, Taken},
    races::{FlightId, Races},
};
use passmuster_ptx::{AtomicOp, Type};

/// What a flight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlightKind {
    /// `cp.async` of a warp: read at once, and written at once.
    Copies,
    /// A bulk copy, which may write some bytes of each 16 only.
    Bulk { mask: u16 },
    /// `st.async`.
    Store,
}

/// A stretch that is copied.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Generic address of the source, and how many bytes of it are read; the others are zero. Nothing is read where the bytes are there.
    pub(super) from: u64,
    pub(super) read: u32,
    pub(super) to: u64,
    pub(super) bytes: u32,
    pub(super) taken: Option<Taken>,
    /// Where its bytes are counted.
    pub(super) mbarrier: Option<u64>,
    /// What it is to the race check.
    pub(super) race: Option<FlightId>,
    /// Where it is some rows of a box, these, in place of one stretch.
    pub(super) part: Option<Box<PartOfBox>>,
}

/// A flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) kind: FlightKind,
    pub(super) rank: usize,
    pub(super) member: Member,
    /// Slot of the block, and where it was started.
    pub(super) slot: usize,
    pub(super) site: FaultSite,
    /// A number that no other flight of the launch has.
    pub(super) serial: u64,
    /// Threads of the block that wait for it in groups.
    pub(super) threads: Vec<u32>,
    pub(super) reduction: Option<(AtomicOp, Type)>,
    /// In the order in which they go.
    pub(super) pieces: Vec<Piece>,
    pub(super) read: usize,
    pub(super) written: usize,
    pub(super) course: Course,
}

/// How a flight goes, which the ISA leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Each piece is written before the next is read.
    Pieces,
    /// Piece by piece, all of them read before the first is written.
    ReadsFirst,
    /// All of them are read, and then all are written.
    AtOnce,
}

impl Flight {
    fn is_done(&self) -> bool {
        self.written == self.pieces.len()
    }

    fn is_read(&self) -> bool {
        self.read == self.pieces.len()
    }

    /// Whether it has still to read or to write what is within `bytes` bytes from an address on.
    fn needs(&self, from: u64, bytes: u64) -> bool {
        let within = |address: u64| (from..from + bytes).contains(&address);
        let reads = |piece: &Piece| match &piece.part {
            Some(part) => part.reads.iter().any(|stretch| within(stretch.at)),
            None => within(piece.from),
        };
        let writes = |piece: &Piece| match &piece.part {
            Some(part) => part.writes.iter().any(|stretch| within(stretch.at)),
            None => within(piece.to),
        };
        self.pieces[self.read..].iter().any(|piece| piece.taken.is_none() && reads(piece))
            || self.pieces[self.written..].iter().any(|piece| writes(piece) || piece.mbarrier.is_some_and(within))
    }
}

/// What a thread has started, as its groups see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    pub(super) serial: u64,
    pub(super) race: Option<FlightId>,
    pub(super) read: bool,
    pub(super) done: bool,
}

/// Groups of one thread: of bulk copies, or of copies.
#[derive(Debug, Default)]
pub(super) struct Groups {
    open: Vec<Started>,
    committed: VecDeque<Vec<Started>>,
}

impl Groups {
    pub(super) fn add(&mut self, started: Started) {
        self.open.push(started);
    }

    pub(super) fn commit(&mut self) {
        self.committed.push_back(std::mem::take(&mut self.open));
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Started> {
        self.committed.iter_mut().flatten().chain(&mut self.open)
    }

    /// All that nobody has waited for.
    pub(super) fn unwaited(&mut self) -> Vec<Started> {
        self.all().map(|started| *started).collect()
    }

    /// Whether all but the last `but` groups are done or, if `reads`, have read.
    pub(super) fn are_done(&self, but: usize, reads: bool) -> bool {
        let waited = self.committed.len().saturating_sub(but);
        self.committed.iter().take(waited).flatten().all(|started| started.done || reads && started.read)
    }

    /// What was waited for: all but the last `but` groups. Unless the wait was only for `reads`, they are forgotten.
    pub(super) fn waited(&mut self, but: usize, reads: bool) -> Vec<FlightId> {
        let waited = self.committed.len().saturating_sub(but);
        let ids = self.committed.iter().take(waited).flatten().filter_map(|started| started.race).collect();
        if !reads {
            self.committed.drain(..waited);
        }
        ids
    }
}

/// An arrival that waits for copies of its thread.
#[derive(Debug)]
struct Arrival {
    slot: usize,
    site: FaultSite,
    serials: Vec<u64>,
    flights: Vec<FlightId>,
    address: u64,
}

/// What goes on beside the warps of a launch.
#[derive(Debug)]
pub(super) struct Beside {
    flights: Vec<Option<Flight>>,
    /// Numbers that no flight has any more.
    free: Vec<usize>,
    under_way: usize,
    serials: u64,
    /// What follows from the schedule alone of how flights go.
    choice: Choice,
    /// Numbers of flights that were started since this was last asked.
    started: Vec<usize>,
    /// By slot of the block and thread.
    pub(super) bulk: BTreeMap<(usize, u32), Groups>,
    pub(super) copies: BTreeMap<(usize, u32), Groups>,
    arrivals: Vec<Arrival>,
    pub(super) mbarriers: Mbarriers,
}

/// What a flight or an arrival that waited has come to.
type Outcome = Result<(), ExecError>;

impl Beside {
    /// Nothing as yet; how flights will go follows from a seed.
    pub(super) fn new(seed: u64) -> Beside {
        Beside {
            flights: Vec::new(),
            free: Vec::new(),
            under_way: 0,
            serials: 0,
            choice: Choice::of_seed(seed),
            started: Vec::new(),
            bulk: BTreeMap::new(),
            copies: BTreeMap::new(),
            arrivals: Vec::new(),
            mbarriers: Mbarriers::default(),
        }
    }

    /// A number for the next flight.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    /// How the next one goes, and its pieces in their order: forwards, backwards, or from the middle on.
    pub(super) fn course(&mut self, mut pieces: Vec<Piece>) -> (Course, Vec<Piece>) {
        match self.choice.below(3) {
            0 => {}
            1 => pieces.reverse(),
            _ => {
                let middle = pieces.len() / 2;
                pieces.rotate_left(middle);
            }
        }
        let course = [Course::Pieces, Course::ReadsFirst, Course::AtOnce][self.choice.below(3)];
        (course, pieces)
    }

    pub(super) fn start(&mut self, flight: Flight) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        self.flights[number] = Some(flight);
        self.under_way += 1;
        self.started.push(number);
    }

    /// Numbers of flights that were started since this was last asked, with the slot of their block.
    pub(super) fn take_started(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.started)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way == 0
    }

    /// An arrival of a thread at an mbarrier when these of its copies are done.
    pub(super) fn arrive_after(&mut self, slot: usize, site: FaultSite, copies: &[Started], address: u64) {
        let serials = copies.iter().filter(|copy| !copy.done).map(|copy| copy.serial).collect();
        let flights = copies.iter().filter_map(|copy| copy.race).collect();
        self.arrivals.push(Arrival { slot, site, serials, flights, address });
    }

    /// Lets a flight do something; whether it is done with it.
    pub(super) fn fly(&mut self, number: usize, memory: &mut Memory, races: Option<&mut Races>) -> Result<bool, Fault> {
        let Some(mut flight) = self.flights.get_mut(number).and_then(Option::take) else { return Ok(true) };
        let mut races = races;
        let went = self.step(&mut flight, memory, races.as_deref_mut());
        went.map_err(|error| error.at(flight.site.clone()))?;
        let (read, done) = (flight.is_read(), flight.is_done());
        for &thread in &flight.threads {
            let groups = if flight.kind == FlightKind::Copies { &mut self.copies } else { &mut self.bulk };
            let of_thread = groups.get_mut(&(flight.slot, thread)).into_iter().flat_map(Groups::all);
            of_thread.filter(|started| started.serial == flight.serial).for_each(|started| (started.read, started.done) = (read, done));
        }
        if !done {
            self.flights[number] = Some(flight);
            return Ok(false);
        }
        self.under_way -= 1;
        self.free.push(number);
        if let Some(races) = races.as_deref_mut() {
            flight.pieces.iter().filter_map(|piece| piece.race).for_each(|race| races.land(race));
        }
        if flight.kind == FlightKind::Copies {
            self.arrive(flight.serial, memory, races)?;
        }
        Ok(true)
    }

    /// Arrivals that have waited for a flight, and for nothing else any more.
    fn arrive(&mut self, serial: u64, memory: &mut Memory, mut races: Option<&mut Races>) -> Result<(), Fault> {
        let arrivals = std::mem::take(&mut self.arrivals);
        for mut arrival in arrivals {
            arrival.serials.retain(|&other| other != serial);
            if !arrival.serials.is_empty() {
                self.arrivals.push(arrival);
                continue;
            }
            let Arrival { site, flights, address, .. } = arrival;
            if let Some(races) = races.as_deref_mut() {
                flights.iter().for_each(|&flight| races.tell_of_flight(flight, address));
            }
            let came = self.mbarriers.change(memory, site.rank, address, |mbarrier| mbarrier.arrive(1, false));
            let complete = came.map_err(|error| error.at(site))?;
            if let (true, Some(races)) = (complete, races.as_deref_mut()) {
                races.complete_mbarrier(address);
            }
        }
        Ok(())
    }

    fn step(&mut self, flight: &mut Flight, memory: &mut Memory, mut races: Option<&mut Races>) -> Outcome {
        if flight.is_done() {
            return Ok(());
        }
        let reads = !flight.is_read() && (flight.course != Course::Pieces || flight.read == flight.written);
        let together = flight.course == Course::AtOnce;
        loop {
            match reads {
                true => {
                    read(flight, memory, races.as_deref_mut())?;
                    flight.read += 1;
                }
                false => {
                    self.write(flight, memory, races.as_deref_mut())?;
                    flight.written += 1;
                }
            }
            if !together || if reads { flight.is_read() } else { flight.is_done() } {
                return Ok(());
            }
        }
    }

    fn write(&mut self, flight: &mut Flight, memory: &mut Memory, mut races: Option<&mut Races>) -> Outcome {
        let Flight { rank, reduction, kind, course, .. } = *flight;
        let (before, [piece, after @ ..]) = flight.pieces.split_at(flight.written) else { return Ok(()) };
        let failed = |error| ExecError::Access(None, error);
        let Some(taken) = &piece.taken else { return Ok(()) };
        let mut put = |to: u64, taken: &Taken| -> Outcome {
            let bytes = taken.bytes.len() as u64;
            let at = memory.resolve(Address(to), bytes, rank).map_err(failed)?;
            if memory.delays_stores() {
                // Cells of the memory's late stores, from that of the first byte to that of the last.
                for cell in (to / 16 * 16..to + bytes).step_by(16) {
                    memory.publish_at(Address(cell.max(to)), rank).map_err(failed)?;
                }
            }
            let in_shared = flight.member.place(to).is_some();
            if let (Some(races), Some(race)) = (races.as_deref_mut(), piece.race) {
                races.fly(race, at, bytes, true, in_shared, reduction.map(|(_, ty)| ty.bytes()));
            }
            match (reduction, kind) {
                (Some(form), _) => {
                    let by = if in_shared { Combiner::Thread } else { Combiner::GlobalBulk };
                    reduce(memory, rank, to, &taken.bytes, form, by)?;
                }
                (None, FlightKind::Bulk { mask }) if mask != u16::MAX => {
                    for (offset, &byte) in (0_u64..).zip(&taken.bytes).filter(|(offset, _)| mask >> (offset % 16) & 1 == 1) {
                        memory.write(Address(to + offset), rank, &[byte]).map_err(failed)?;
                    }
                }
                (None, _) => memory.give(Address(to), taken, rank).map_err(failed)?,
            }
            Ok(())
        };
        match &piece.part {
            Some(part) => part.split(taken).try_for_each(|(stretch, taken)| put(stretch.at, &taken))?,
            None => put(piece.to, taken)?,
        }
        let Some(address) = piece.mbarrier else { return Ok(()) };
        let is_last = after.iter().all(|other| other.mbarrier != Some(address));
        if let (true, Some(races), Some(race)) = (is_last, races.as_deref_mut(), piece.race) {
            races.tell_of_flight(race, address);
        }
        let bytes: i64 = match course {
            Course::AtOnce if !is_last => return Ok(()),
            Course::AtOnce => {
                before.iter().chain([piece]).filter(|piece| piece.mbarrier == Some(address)).map(|piece| i64::from(piece.bytes)).sum()
            }
            Course::Pieces | Course::ReadsFirst => piece.bytes.into(),
        };
        let complete = self.mbarriers.change(memory, rank, address, |mbarrier| mbarrier.count_bytes(-bytes))?;
        if let (true, Some(races)) = (complete, races) {
            races.complete_mbarrier(address);
        }
        Ok(())
    }

    /// The block in a slot has ended, which has `bytes` bytes of shared memory at an address: what was still to be done there.
    pub(super) fn end_block(&mut self, slot: usize, shared: u64, bytes: u64) -> (Vec<u64>, Result<(), Fault>) {
        self.bulk.retain(|(of, _), _| *of != slot);
        self.copies.retain(|(of, _), _| *of != slot);
        self.arrivals.retain(|arrival| arrival.slot != slot);
        let gone = if shared == 0 { Vec::new() } else { self.mbarriers.forget(shared, bytes) };
        for flight in self.flights.iter_mut().filter(|_| shared != 0) {
            let Some(late) = flight.as_mut().filter(|flight| flight.needs(shared, bytes)) else { continue };
            if late.kind == FlightKind::Copies {
                // Nobody is left who could see them.
                (late.read, late.written) = (late.pieces.len(), late.pieces.len());
                continue;
            }
            let why = "the block whose shared memory it reads, writes or counts at ended before it was done".into();
            return (gone, Err(ExecError::Asynchronous { lane: None, why }.at(late.site.clone())));
        }
        (gone, Ok(()))
    }
}

fn read(flight: &mut Flight, memory: &Memory, races: Option<&mut Races>) -> Outcome {
    let Flight { rank, .. } = *flight;
    let at = flight.read;
    let piece = &flight.pieces[at];
    if piece.taken.is_some() {
        return Ok(());
    }
    let failed = |error| ExecError::Access(None, error);
    if let Some(part) = &piece.part {
        let mut races = races;
        for stretch in &part.reads {
            let place = memory.resolve(Address(stretch.at), stretch.bytes, rank).map_err(failed)?;
            if let (Some(races), Some(race)) = (races.as_deref_mut(), piece.race) {
                races.fly(race, place, stretch.bytes, false, flight.member.place(stretch.at).is_some(), None);
            }
        }
        let taken = part.take(memory, rank)?;
        flight.pieces[at].taken = Some(taken);
        return Ok(());
    }
    let mut taken = Taken::default();
    if piece.read > 0 {
        let place = memory.resolve(Address(piece.from), piece.read.into(), rank).map_err(failed)?;
        if let (Some(races), Some(race)) = (races, piece.race) {
            races.fly(race, place, piece.read.into(), false, flight.member.place(piece.from).is_some(), None);
        }
        taken = memory.take(Address(piece.from), piece.read.into(), rank).map_err(failed)?;
    }
    taken.bytes.resize(piece.bytes as usize, 0);
    flight.pieces[at].taken = Some(taken);
    Ok(())
}

/// Reduces element by element.
fn reduce(memory: &mut Memory, rank: usize, to: u64, bytes: &[u8], form: (AtomicOp, Type), by: Combiner) -> Outcome {
    match form.1.bytes() {
        2 => reduce_elements::<2>(memory, rank, to, bytes, form, by),
        4 => reduce_elements::<4>(memory, rank, to, bytes, form, by),
        8 => reduce_elements::<8>(memory, rank, to, bytes, form, by),
        width => Err(ExecError::unsupported(format!("a reduction of elements of {width} bytes"))),
    }
}

fn reduce_elements<const N: usize>(
    memory: &mut Memory,
    rank: usize,
    to: u64,
    bytes: &[u8],
    (op, ty): (AtomicOp, Type),
    by: Combiner,
) -> Outcome {
    let failed = |error| ExecError::Access(None, error);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
    for (element, given) in (0_u64..).zip(bytes.chunks_exact(N)) {
        let place = memory.resolve_aligned(Address(to + element * N as u64), N as u64, rank).map_err(failed)?;
        loop {
            let held: [u8; N] = memory.load_at(place, rank).map_err(failed)?;
            let result = combined(op, ty, number(&held), number(given), by)?.to_le_bytes();
            if memory.replace(place, held, std::array::from_fn(|at| result[at])) {
                break;
            }
        }
    }
    Ok(())
}
