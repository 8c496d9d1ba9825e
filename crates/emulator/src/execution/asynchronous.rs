//! Instructions that start what is done later, those that wait for it, and those of mbarriers.

use passmuster_ptx::{
    Address, AtomicOp, BulkCompletion, Condition, MbarrierAccess, MbarrierWait, Operand, Register, Scope, Semantics, Space, Type,
};

use super::{
    executor::{Executor, place},
    fault::{ExecError, FaultSite},
    flight::{Course, Flight, FlightKind, Groups, Piece, Started},
    mbarrier::Mbarrier,
    registers::{LANES, Row, lanes_of, row_of},
};
use crate::{
    memory::{self, Memory, Taken},
    races::{At, FlightId, Proxy, Races},
};

/// The most pieces that a bulk copy goes in.
pub(super) const MOST_PIECES: u32 = 4;

/// Bytes of which bulk copies are made.
const GRAIN: u32 = 16;

/// A bulk copy, as its instruction says.
pub(super) struct Bulk {
    pub(super) to: Space,
    pub(super) from: Space,
    pub(super) reduction: Option<(AtomicOp, Type)>,
    pub(super) destination: Address,
    pub(super) source: Address,
    pub(super) bytes: Operand,
    pub(super) completion: BulkCompletion,
    pub(super) blocks: Option<Operand>,
    pub(super) mask: Option<Operand>,
}

pub(super) fn wrong(lane: usize, why: String) -> ExecError {
    ExecError::Asynchronous { lane: Some(lane as u32), why }
}

/// An error of one lane.
fn of_lane<T>(lane: usize, result: Result<T, ExecError>) -> Result<T, ExecError> {
    result.map_err(|error| match error {
        ExecError::Asynchronous { lane: None, why } => ExecError::Asynchronous { lane: Some(lane as u32), why },
        ExecError::Access(None, error) => ExecError::Access(Some(lane as u32), error),
        other => other,
    })
}

impl Executor<'_> {
    fn site(&self, lane: usize) -> FaultSite {
        let operation = &self.launch.program.module.functions[self.frame.function].code[self.pc];
        FaultSite { lane: Some(lane as u32), ..place(self.launch, self.block.index, self.warp_index, operation) }
    }

    fn thread(&self, lane: usize) -> u32 {
        (self.warp_index * LANES + lane) as u32
    }

    /// That the launch has clusters, without which what goes from block to block is an illegal instruction on hardware (H200), also to the block itself.
    fn needs_clusters(&self, lanes: u32) -> Result<(), ExecError> {
        if self.launch.is_explicit_cluster() {
            return Ok(());
        }
        let why = "it goes to the shared memory of the cluster, and neither the kernel nor its launch asks for clusters";
        Err(wrong(lanes.trailing_zeros() as usize, why.into()))
    }

    /// The operation that runs, the race check, and memory for it to look at.
    pub(super) fn watched(&mut self) -> Option<(At, &mut Races, &Memory)> {
        let at = self.at(self.block.actor?);
        Some((at, self.races.as_deref_mut()?, self.memory))
    }

    /// A lane starts something, as far as the race check is concerned.
    pub(super) fn begin_flight(&mut self, lane: usize, proxy: Proxy) -> Option<FlightId> {
        let (at, races, _) = self.watched()?;
        races.begin_flight(at, lane, proxy)
    }

    pub(super) fn take_off(&mut self, lane: usize, serial: u64, kind: FlightKind, (course, pieces): (Course, Vec<Piece>)) -> Flight {
        Flight {
            kind,
            rank: self.rank(),
            member: self.block.member.clone(),
            slot: self.slot,
            site: self.site(lane),
            serial,
            threads: Vec::new(),
            reduction: None,
            course,
            pieces,
            read: 0,
            written: 0,
        }
    }

    /// `cp.async`
    pub(super) fn copy_later(
        &mut self,
        lanes: u32,
        (destination, source, bytes): (Address, Address, u32),
        source_bytes: Option<Operand>,
        ignored: Option<Condition>,
    ) -> Result<(), ExecError> {
        let to = self.addresses(Space::Shared, destination, lanes, bytes)?;
        let from = self.addresses(Space::Global, source, lanes, bytes)?;
        let read = source_bytes.map_or([bytes; LANES], |operand| self.warp.registers.read::<u32>(operand));
        let ignored = ignored.map_or(0, |condition| self.warp.registers.condition(condition));
        let serial = self.beside.next_serial();
        let mut pieces = Vec::new();
        let mut threads = Vec::new();
        for lane in lanes_of(lanes) {
            let read = if ignored >> lane & 1 == 1 { 0 } else { read[lane] };
            if read > bytes {
                return Err(wrong(lane, format!("cp.async reads {read} bytes: at most {bytes}, as many as it writes")));
            }
            let (whole, rank) = (u64::from(bytes), self.rank());
            let resolved = self.memory.resolve_aligned(memory::Address(to[lane]), whole, rank).and_then(|_| {
                // What is read may be less than what the copy must be aligned to, or nothing.
                let source = memory::Address(from[lane]);
                match read {
                    0 => Ok(()),
                    _ if source.0.is_multiple_of(whole) => self.memory.resolve(source, read.into(), rank).map(drop),
                    _ => self.memory.resolve_aligned(source, whole, rank).map(drop),
                }
            });
            resolved.map_err(|error| ExecError::Access(Some(lane as u32), error))?;
            let race = self.begin_flight(lane, Proxy::Generic);
            let (slot, thread) = (self.slot, self.thread(lane));
            let started = Started { serial, race, read: false, done: false };
            self.beside.copies.entry((slot, thread)).or_default().add(started);
            threads.push(thread);
            pieces.push(Piece { from: from[lane], read, to: to[lane], bytes, taken: None, mbarrier: None, race, part: None });
        }
        let flight = self.take_off(lanes.trailing_zeros() as usize, serial, FlightKind::Copies, (Course::AtOnce, pieces));
        self.beside.start(Flight { threads, ..flight });
        Ok(())
    }

    /// `cp.async.bulk` and `cp.reduce.async.bulk`
    pub(super) fn copy_in_bulk(&mut self, lanes: u32, bulk: &Bulk) -> Result<(), ExecError> {
        if (bulk.to, bulk.from) == (Space::SharedCluster, Space::Shared) {
            self.needs_clusters(lanes)?;
        }
        let to = self.addresses(bulk.to, bulk.destination, lanes, GRAIN)?;
        let from = self.addresses(bulk.from, bulk.source, lanes, GRAIN)?;
        let bytes = self.warp.registers.read::<u32>(bulk.bytes);
        let mbarriers = match bulk.completion {
            BulkCompletion::Mbarrier(address) => Some(self.addresses(bulk.to, address, lanes, 8)?),
            BulkCompletion::Group => None,
        };
        let blocks = bulk.blocks.map(|operand| self.warp.registers.bits(operand));
        let masks = bulk.mask.map_or([u16::MAX; LANES], |operand| self.warp.registers.bits(operand).map(|mask| mask as u16));
        for lane in lanes_of(lanes) {
            let (bytes, rank) = (bytes[lane], self.rank());
            if bytes % GRAIN != 0 || from[lane] % u64::from(GRAIN) != 0 || to[lane] % u64::from(GRAIN) != 0 {
                let describe = |address: u64| self.memory.describe(memory::Address(address));
                let (from, to) = (describe(from[lane]), describe(to[lane]));
                return Err(wrong(
                    lane,
                    format!("a bulk copy of {bytes} bytes from {from} to {to}: all of them must be multiples of {GRAIN}"),
                ));
            }
            let destinations = self.in_blocks(lane, to[lane], mbarriers.map(|row| row[lane]), blocks.map(|row| row[lane]))?;
            for &(to, mbarrier) in &destinations {
                for address in [from[lane], to] {
                    let place = self.memory.resolve(memory::Address(address), bytes.into(), rank);
                    place.map_err(|error| ExecError::Access(Some(lane as u32), error))?;
                }
                if from[lane].abs_diff(to) < bytes.into() {
                    return Err(wrong(lane, "a bulk copy whose source and destination overlap".into()));
                }
                if let Some(address) = mbarrier {
                    self.hand_over(lane, address)?;
                }
            }
            if bytes == 0 || destinations.is_empty() {
                // Nothing moves, and nothing is counted.
                continue;
            }
            let race = self.begin_flight(lane, Proxy::Async);
            let serial = self.beside.next_serial();
            let mut pieces = Vec::new();
            let grains = bytes / GRAIN;
            for &(to, mbarrier) in &destinations {
                let count = grains.min(MOST_PIECES);
                for piece in 0..count {
                    let (start, end) = (grains * piece / count * GRAIN, grains * (piece + 1) / count * GRAIN);
                    let (from, to) = (from[lane] + u64::from(start), to + u64::from(start));
                    pieces.push(Piece { from, read: end - start, to, bytes: end - start, taken: None, mbarrier, race, part: None });
                }
            }
            let course = self.beside.course(pieces);
            let flight = self.take_off(lane, serial, FlightKind::Bulk { mask: masks[lane] }, course);
            let mut threads = Vec::new();
            if mbarriers.is_none() {
                threads.push(self.in_bulk_group(lane, Started { serial, race, read: false, done: false }));
            }
            self.beside.start(Flight { threads, reduction: bulk.reduction, ..flight });
        }
        Ok(())
    }

    /// Where what is for an address of shared memory goes, and where it is counted: there, or at the same places of all blocks of a mask.
    pub(super) fn in_blocks(
        &self,
        lane: usize,
        to: u64,
        mbarrier: Option<u64>,
        blocks: Option<u64>,
    ) -> Result<Vec<(u64, Option<u64>)>, ExecError> {
        let Some(blocks) = blocks else { return Ok(vec![(to, mbarrier)]) };
        let member = &self.block.member;
        let of_block = |block: u32, address: u64| -> Result<u64, ExecError> {
            let (_, offset) = member.place(address).ok_or_else(|| wrong(lane, "an address of no shared memory of the cluster".into()))?;
            let start = member.shared.get(block as usize).copied().filter(|&start| start != 0);
            let start = start.ok_or_else(|| wrong(lane, format!("block {block} of the cluster: it has {}", member.shared.len())))?;
            Ok(start + offset)
        };
        let blocks = (0..16).filter(|block| blocks >> block & 1 == 1);
        blocks.map(|block| Ok((of_block(block, to)?, mbarrier.map(|mbarrier| of_block(block, mbarrier)).transpose()?))).collect()
    }

    /// A lane starts what an mbarrier is to count.
    pub(super) fn hand_over(&mut self, lane: usize, address: u64) -> Result<(), ExecError> {
        of_lane(lane, self.beside.mbarriers.get(self.memory, self.rank(), address).map(drop))?;
        if let Some((at, races, memory)) = self.watched() {
            races.hand_over_mbarrier(memory, at, lane, address);
        }
        Ok(())
    }

    /// Adds what a lane has started to its open group; returns its thread.
    pub(super) fn in_bulk_group(&mut self, lane: usize, started: Started) -> u32 {
        let thread = self.thread(lane);
        self.beside.bulk.entry((self.slot, thread)).or_default().add(started);
        thread
    }

    /// `st.async` and `red.async`
    pub(super) fn store_later(
        &mut self,
        lanes: u32,
        (op, ty): (Option<AtomicOp>, Type),
        (space, address, mbarrier): (Space, Address, Address),
        values: &[Operand],
    ) -> Result<(), ExecError> {
        self.needs_clusters(lanes)?;
        let bytes = ty.bytes() * values.len() as u32;
        let to = self.addresses(space, address, lanes, bytes)?;
        let mbarriers = self.addresses(space, mbarrier, lanes, 8)?;
        let values = self.gather::<16>(ty, values);
        let rank = self.rank();
        for lane in lanes_of(lanes) {
            let place = self.memory.resolve_aligned(memory::Address(to[lane]), bytes.into(), rank);
            place.map_err(|error| ExecError::Access(Some(lane as u32), error))?;
            let here = |address| self.block.member.place(address).map(|(block, _)| block);
            if here(to[lane]).is_none() || here(to[lane]) != here(mbarriers[lane]) {
                return Err(wrong(lane, "a store and its mbarrier that are not in the shared memory of one block of the cluster".into()));
            }
            of_lane(lane, self.beside.mbarriers.get(self.memory, rank, mbarriers[lane]).map(drop))?;
            let race = self.begin_flight(lane, Proxy::Generic);
            let serial = self.beside.next_serial();
            let taken = Taken { bytes: values[lane][..bytes as usize].to_vec(), missing: Vec::new() };
            let piece =
                Piece { from: 0, read: 0, to: to[lane], bytes, taken: Some(taken), mbarrier: Some(mbarriers[lane]), race, part: None };
            let flight = self.take_off(lane, serial, FlightKind::Store, (Course::AtOnce, vec![piece]));
            self.beside.start(Flight { reduction: op.map(|op| (op, ty)), ..flight });
        }
        Ok(())
    }

    /// `st.bulk`
    pub(super) fn fill_in_bulk(&mut self, lanes: u32, space: Space, address: Address, bytes: Operand) -> Result<(), ExecError> {
        let addresses = self.addresses(space, address, lanes, 8)?;
        let bytes = self.warp.registers.read::<u64>(bytes);
        for lane in lanes_of(lanes) {
            if !bytes[lane].is_multiple_of(8) || !addresses[lane].is_multiple_of(8) || self.block.member.place(addresses[lane]).is_none() {
                let at = self.memory.describe(memory::Address(addresses[lane]));
                return Err(wrong(
                    lane,
                    format!("st.bulk of {} bytes at {at}: both must be multiples of 8, in shared memory", bytes[lane]),
                ));
            }
            // A store of 8 bytes after the other, to memory and to the race check alike.
            for offset in (0..bytes[lane]).step_by(8) {
                let to = memory::Address(addresses[lane].wrapping_add(offset));
                self.memory.store(to, self.launch.program.rank, [0; 8]).map_err(|error| ExecError::Access(Some(lane as u32), error))?;
                let weak = passmuster_ptx::Access { space, semantics: Semantics::Weak, scope: None, hints: Box::default() };
                let stores = crate::races::Effect::Store { agrees: false };
                self.touched(1 << lane, &weak, (Type::B64, 8, false), &[to.0; LANES], stores);
            }
        }
        Ok(())
    }

    /// Closes the open group of each lane.
    pub(super) fn commit_groups(&mut self, lanes: u32, bulk: bool) {
        for lane in lanes_of(lanes) {
            let key = (self.slot, self.thread(lane));
            let groups = if bulk { &mut self.beside.bulk } else { &mut self.beside.copies };
            groups.entry(key).or_default().commit();
        }
    }

    /// Whether lanes need not wait for groups any more: for all but the last `but`, or if that is `None`, for all they have started.
    pub(super) fn groups_are_done(&mut self, lanes: u32, bulk: bool, but: Option<u32>, reads: bool) -> bool {
        let slot = self.slot;
        let threads: Row<u32> = row_of(|lane| self.thread(lane));
        let groups = if bulk { &mut self.beside.bulk } else { &mut self.beside.copies };
        let but_so_many = but.unwrap_or(0) as usize;
        let done = |groups: &mut Groups| {
            if but.is_none() {
                groups.commit();
            }
            groups.are_done(but_so_many, reads)
        };
        if !lanes_of(lanes).all(|lane| groups.get_mut(&(slot, threads[lane])).is_none_or(done)) {
            return false;
        }
        for lane in lanes_of(lanes) {
            let groups = if bulk { &mut self.beside.bulk } else { &mut self.beside.copies };
            let Some(groups) = groups.get_mut(&(slot, threads[lane])) else { continue };
            let waited = groups.waited(but_so_many, reads);
            if let Some((at, races, _)) = self.watched() {
                races.learn_flights(at, lane, &waited, reads);
            }
        }
        true
    }

    /// `cp.async.mbarrier.arrive`
    pub(super) fn arrive_after_copies(&mut self, lanes: u32, space: Space, counted: bool, address: Address) -> Result<(), ExecError> {
        let addresses = self.addresses(space, address, lanes, 8)?;
        let rank = self.rank();
        for lane in lanes_of(lanes) {
            let (address, key) = (addresses[lane], (self.slot, self.thread(lane)));
            if !counted {
                let more = self.beside.mbarriers.change(self.memory, rank, address, Mbarrier::expect_arrival);
                of_lane(lane, more)?;
            }
            let copies = self.beside.copies.entry(key).or_default().unwaited();
            if copies.iter().all(|copy| copy.done) {
                if let Some(races) = self.races.as_deref_mut() {
                    copies.iter().filter_map(|copy| copy.race).for_each(|race| races.tell_of_flight(race, address));
                }
                self.arrive(1 << lane, address, (1, false, true), None)?;
            } else {
                of_lane(lane, self.beside.mbarriers.get(self.memory, rank, address).map(drop))?;
                let site = self.site(lane);
                self.beside.arrive_after(self.slot, site, &copies, address);
            }
        }
        Ok(())
    }

    /// `mbarrier.init`
    pub(super) fn init_mbarriers(&mut self, lanes: u32, space: Space, address: Address, count: Operand) -> Result<(), ExecError> {
        let addresses = self.addresses(space, address, lanes, 8)?;
        let counts = self.warp.registers.read::<u32>(count);
        let rank = self.rank();
        for lane in lanes_of(lanes) {
            of_lane(lane, self.own(addresses[lane]))?;
            of_lane(lane, self.beside.mbarriers.init(self.memory, rank, addresses[lane], counts[lane]))?;
            if let Some((at, races, memory)) = self.watched() {
                races.init_mbarrier(memory, at, lane, addresses[lane]);
            }
        }
        Ok(())
    }

    /// That an address is in the block's own shared memory.
    fn own(&self, address: u64) -> Result<(), ExecError> {
        match self.block.member.place(address) {
            Some((rank, _)) if rank == self.block.member.rank => Ok(()),
            _ => {
                let at = self.memory.describe(memory::Address(address));
                Err(ExecError::Asynchronous { lane: None, why: format!("{at} is not in the shared memory of the block") })
            }
        }
    }

    /// `mbarrier.inval`
    pub(super) fn invalidate_mbarriers(&mut self, lanes: u32, space: Space, address: Address) -> Result<(), ExecError> {
        let addresses = self.addresses(space, address, lanes, 8)?;
        let rank = self.rank();
        for lane in lanes_of(lanes) {
            of_lane(lane, self.beside.mbarriers.remove(self.memory, rank, addresses[lane]))?;
            if let Some((at, races, memory)) = self.watched() {
                races.tell_mbarrier(memory, at, 1 << lane, addresses[lane], None);
                races.forget_mbarrier(addresses[lane]);
            }
        }
        Ok(())
    }

    /// Lanes arrive `count` times each at one mbarrier, whose state before each arrival is returned; `completes` says that the phase may be complete by it.
    fn arrive(
        &mut self,
        lanes: u32,
        address: u64,
        (count, drops, completes): (u32, bool, bool),
        releases: Option<Scope>,
    ) -> Result<Row<u64>, ExecError> {
        let rank = self.rank();
        if let Some((at, races, memory)) = self.watched() {
            races.tell_mbarrier(memory, at, lanes, address, releases);
        }
        let mut states = [0; LANES];
        for lane in lanes_of(lanes) {
            let came = self.beside.mbarriers.change(self.memory, rank, address, |mbarrier| {
                states[lane] = mbarrier.state();
                mbarrier.arrive(count, drops)
            });
            self.complete(lane, address, of_lane(lane, came)?, completes)?;
        }
        Ok(states)
    }

    /// What follows where the phase of an mbarrier is complete.
    fn complete(&mut self, lane: usize, address: u64, complete: bool, may: bool) -> Result<(), ExecError> {
        if complete && !may {
            return Err(wrong(lane, "an arrival with .noComplete completes the phase of the mbarrier".into()));
        }
        if let (true, Some(races)) = (complete, self.races.as_deref_mut()) {
            races.complete_mbarrier(address);
        }
        Ok(())
    }

    /// `mbarrier.expect_tx` and `mbarrier.complete_tx`
    pub(super) fn count_bytes(
        &mut self,
        lanes: u32,
        space: Space,
        completes: bool,
        address: Address,
        bytes: Operand,
    ) -> Result<(), ExecError> {
        let addresses = self.addresses(space, address, lanes, 8)?;
        let bytes = self.warp.registers.read::<u32>(bytes);
        for lane in lanes_of(lanes) {
            let sign = if completes { -1 } else { 1 };
            self.count_of_lane(lane, addresses[lane], sign * i64::from(bytes[lane]))?;
        }
        Ok(())
    }

    fn count_of_lane(&mut self, lane: usize, address: u64, bytes: i64) -> Result<(), ExecError> {
        let rank = self.rank();
        if let Some((at, races, memory)) = self.watched() {
            races.tell_mbarrier(memory, at, 1 << lane, address, None);
        }
        let counted = self.beside.mbarriers.change(self.memory, rank, address, |mbarrier| mbarrier.count_bytes(bytes));
        self.complete(lane, address, of_lane(lane, counted)?, true)
    }

    /// `mbarrier.arrive` and `mbarrier.arrive_drop`
    pub(super) fn arrive_at_mbarriers(
        &mut self,
        lanes: u32,
        access: MbarrierAccess,
        (drops, completes): (bool, bool),
        state: Option<Register>,
        address: Address,
        (count, bytes): (Option<Operand>, Option<Operand>),
    ) -> Result<(), ExecError> {
        let addresses = self.addresses(access.space, address, lanes, 8)?;
        let counts = count.map_or([1; LANES], |count| self.warp.registers.read::<u32>(count));
        let expected = bytes.map(|bytes| self.warp.registers.read::<u32>(bytes));
        let releases = scope_of(access, Semantics::Release);
        self.release(access.semantics, releases);
        let mut states = [0; LANES];
        let mut rest = lanes;
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let same = lanes_of(rest).filter(|&lane| addresses[lane] == addresses[first] && counts[lane] == counts[first]);
            let same = same.fold(0, |bits, lane| bits | 1 << lane);
            rest &= !same;
            // What a lane expects besides is expected before it arrives.
            for lane in lanes_of(if expected.is_some() { same } else { 0 }) {
                let bytes = expected.map_or(0, |expected| expected[lane]);
                self.count_of_lane(lane, addresses[lane], bytes.into())?;
            }
            let before = self.arrive(same, addresses[first], (counts[first], drops, completes), releases)?;
            lanes_of(same).for_each(|lane| states[lane] = before[lane]);
        }
        if let Some(state) = state {
            self.warp.registers.write::<u64>(state, lanes, &states);
        }
        Ok(())
    }

    /// `mbarrier.test_wait` and `mbarrier.try_wait`. Returns whether lanes looked in vain again.
    pub(super) fn test_mbarriers(
        &mut self,
        lanes: u32,
        access: MbarrierAccess,
        complete: Register,
        address: Address,
        phase: MbarrierWait,
    ) -> Result<bool, ExecError> {
        let addresses = self.addresses(access.space, address, lanes, 8)?;
        let (MbarrierWait::State(operand) | MbarrierWait::Parity(operand)) = phase;
        let phases = self.warp.registers.bits(operand);
        let rank = self.rank();
        let mut passed = 0_u32;
        for lane in lanes_of(lanes) {
            of_lane(lane, self.own(addresses[lane]))?;
            let mbarrier = of_lane(lane, self.beside.mbarriers.get(self.memory, rank, addresses[lane]))?;
            let left = match phase {
                MbarrierWait::State(_) => mbarrier.has_left(phases[lane]).map_err(|why| wrong(lane, why))?,
                MbarrierWait::Parity(_) => mbarrier.has_left_parity(phases[lane] as u32),
            };
            passed |= u32::from(left) << lane;
        }
        let acquires = scope_of(access, Semantics::Acquire);
        if let Some((at, races, memory)) = self.watched() {
            let mut rest = lanes;
            while rest != 0 {
                let address = addresses[rest.trailing_zeros() as usize];
                let same = lanes_of(rest).filter(|&lane| addresses[lane] == address).fold(0, |bits, lane| bits | 1 << lane);
                rest &= !same;
                races.look_at_mbarrier(memory, at, same, address, passed & same, acquires);
            }
        }
        self.warp.registers.set_predicate(complete, lanes, passed);
        // A look in vain may be the only one: a thread that asks which phases have ended goes on.
        let vain = lanes & !passed;
        Ok(vain != 0 && self.polls(vain, &addresses, &phases.map(u64::to_le_bytes)))
    }

    /// `mbarrier.pending_count`
    pub(super) fn pending_count(&mut self, lanes: u32, count: Register, state: Operand) {
        let states = self.warp.registers.read::<u64>(state);
        self.warp.registers.write::<u32>(count, lanes, &states.map(Mbarrier::pending_of));
    }
}

/// How far an operation reaches that has these semantics; as far as the cluster where the PTX does not say.
fn scope_of(access: MbarrierAccess, semantics: Semantics) -> Option<Scope> {
    (access.semantics == semantics).then(|| access.scope.unwrap_or(Scope::Cluster))
}
