//! Stores that other ranks do not see yet.
//!
//! Weak and relaxed stores are ordered for other ranks by nothing but a release at system scope or the end of the kernel. Where stores are delayed, other ranks
//! see the bytes from before until one of these orders the store, so that a kernel which forgets it computes wrong numbers. A correct kernel never
//! notices: what is shown to be ordered here is at least all that PTX orders.
//!
//! - The ranks' own stores are seen by themselves at once, in whatever block.
//! - A release (store, atomic or fence) at system scope publishes what its thread stored, what its warp stored, and what its block stored before the
//!   last barrier that was completed.
//! - A release at a smaller scope, arrivals at mbarriers and at barriers of a cluster among them, lets the next release to the system on that rank
//!   publish the same.
//! - Of relaxed stores one in four is late, as weak ones are, so that they are seen in other orders than they were made in. Other strong stores and atomics
//!   are seen at once, with what is at their address.
//! - Nothing is delayed past the end of its kernel, nor when all that is left waits.

use std::collections::{BTreeMap, HashMap};

use super::{AccessError, Address, GlobalAddr, LaneError, Memory, WARP};
use crate::choice::Choice;

/// Who stores: a thread, and how many barriers its block has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Author {
    /// The rank.
    pub rank: usize,
    /// A number of the launch that no other launch has.
    pub launch: u64,
    /// Linear index of the block.
    pub block: u32,
    /// Warp of the block.
    pub warp: u32,
    /// Barriers that the block has completed.
    pub barriers: u32,
}

/// Whom a release is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Threads of the rank.
    Rank,
    /// All ranks.
    System,
}

/// Bytes of a cell.
const CELL: u64 = 16;

/// A cell: index of the allocation, and offset in cells.
type Cell = (usize, u64);

/// One of how many relaxed stores is late.
const RELAXED: usize = 4;

/// Stores that others do not see yet.
#[derive(Clone, Debug)]
pub(super) struct Late {
    /// Which relaxed stores are late.
    choice: Choice,
    /// For each cell, from the oldest store to the newest.
    cells: HashMap<Cell, Vec<Pending>>,
    /// The cells of each launch's blocks that have such stores; a cell may be there more than once.
    of_blocks: BTreeMap<(u64, u32), Vec<Cell>>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    author: Author,
    /// Whether a release at a smaller scope has ordered it for its rank.
    on_rank: bool,
    /// The bytes that it overwrote, of which `mask` tells.
    old: [u8; CELL as usize],
    mask: u16,
}

impl Late {
    fn remember(&mut self, cell: Cell, pending: Pending) {
        self.cells.entry(cell).or_default().push(pending);
        let Author { launch, block, .. } = pending.author;
        self.of_blocks.entry((launch, block)).or_default().push(cell);
    }

    /// What `rank` sees where memory holds `value` at `offset` of an allocation.
    fn seen_by<const N: usize>(&self, allocation: usize, offset: u64, rank: usize, value: &mut [u8; N]) {
        let Some(pending) = self.cells.get(&(allocation, offset / CELL)) else { return };
        let first = (offset % CELL) as usize;
        for (at, byte) in value.iter_mut().enumerate() {
            for store in pending.iter().rev().filter(|store| store.mask >> (first + at) & 1 == 1) {
                if store.author.rank == rank {
                    break;
                }
                *byte = store.old[first + at];
            }
        }
    }

    /// Shows everybody what `shown` says of a block's stores; what is left may be marked by it.
    fn show(&mut self, block: (u64, u32), mut shown: impl FnMut(&mut Pending) -> bool) {
        let Some(keys) = self.of_blocks.remove(&block) else { return };
        let mut left = Vec::new();
        for cell in keys {
            let Some(pending) = self.cells.get_mut(&cell) else { continue };
            let of_block = |store: &Pending| (store.author.launch, store.author.block) == block;
            // What everybody sees hides what was stored there before.
            let mut hidden = 0;
            for store in pending.iter_mut().rev() {
                store.mask &= !hidden;
                if of_block(store) && shown(store) {
                    hidden |= std::mem::take(&mut store.mask);
                }
            }
            pending.retain(|store| store.mask != 0);
            if pending.iter().any(of_block) {
                left.push(cell);
            } else if pending.is_empty() {
                self.cells.remove(&cell);
            }
        }
        if !left.is_empty() {
            self.of_blocks.insert(block, left);
        }
    }
}

impl Memory {
    /// Delays weak stores from now on, and relaxed ones that a seed says, or shows all that were delayed and stops it.
    pub fn delay_stores(&mut self, seed: Option<u64>) {
        self.late = seed.map(|seed| Late { choice: Choice::of_seed(seed), cells: HashMap::new(), of_blocks: BTreeMap::new() });
    }

    /// Whether a relaxed store that comes now is late.
    pub fn delays_relaxed_store(&mut self) -> bool {
        self.late.as_mut().is_some_and(|late| late.choice.below(RELAXED) == 0)
    }

    /// Whether stores are delayed.
    #[inline(always)]
    pub fn delays_stores(&self) -> bool {
        self.late.is_some()
    }

    /// As [`Memory::store_warp`], for stores that are delayed.
    ///
    /// # Errors
    /// As [`Memory::store_warp`].
    pub fn store_warp_late<const N: usize>(
        &mut self,
        addresses: &[u64; WARP],
        lanes: u32,
        author: Author,
        values: &[[u8; N]; WARP],
    ) -> Result<(), LaneError> {
        for lane in (0..WARP).filter(|lane| lanes >> lane & 1 == 1) {
            let failed = |error| LaneError { lane, error };
            let address = Address(addresses[lane]);
            let place = self.resolve_aligned(address, N as u64, author.rank).map_err(failed)?;
            self.put_late(place, author, values[lane]);
        }
        Ok(())
    }

    /// As [`Memory::put`], for a store that is delayed where stores are.
    pub fn put_late<const N: usize>(&mut self, place: GlobalAddr, author: Author, value: [u8; N]) {
        let before: [u8; N] = self.peek(place);
        if let Some(late) = &mut self.late {
            let first = (place.offset % CELL) as usize;
            let mut old = [0; CELL as usize];
            old[first..first + N].copy_from_slice(&before);
            let mask = (((1_u32 << N) - 1) << first) as u16;
            late.remember((place.allocation.index(), place.offset / CELL), Pending { author, on_rank: false, old, mask });
        }
        self.put(place, value);
    }

    /// A release by a thread: publishes what it orders, `to` whom it says.
    pub fn publish(&mut self, by: Author, to: Reach) {
        let Some(late) = &mut self.late else { return };
        let ordered = |store: &Pending| store.author.warp == by.warp || store.author.barriers < by.barriers || store.on_rank;
        match to {
            Reach::Rank => late.show((by.launch, by.block), |store| {
                store.on_rank |= ordered(store);
                false
            }),
            Reach::System => {
                late.show((by.launch, by.block), |store| ordered(store));
                // What other blocks have released to this rank may have been acquired by this thread.
                let others: Vec<(u64, u32)> = late.of_blocks.keys().copied().collect();
                others.into_iter().for_each(|block| late.show(block, |store| store.on_rank && store.author.rank == by.rank));
            }
        }
    }

    /// Shows everybody what a launch has stored.
    pub fn publish_launch(&mut self, launch: u64) {
        let Some(late) = &mut self.late else { return };
        let blocks: Vec<(u64, u32)> = late.of_blocks.range((launch, 0)..=(launch, u32::MAX)).map(|(&block, _)| block).collect();
        blocks.into_iter().for_each(|block| late.show(block, |_| true));
    }

    /// Shows everybody all stores. Returns whether there were any that somebody did not see.
    pub fn publish_all(&mut self) -> bool {
        let Some(late) = &mut self.late else { return false };
        let some = !late.cells.is_empty();
        late.cells.clear();
        late.of_blocks.clear();
        some
    }

    /// Shows everybody what is stored in the cell of an address: a strong store or an atomic is about to access it.
    ///
    /// # Errors
    /// As [`Memory::resolve`].
    pub fn publish_at(&mut self, address: Address, rank: usize) -> Result<(), AccessError> {
        let place = self.resolve(address, 1, rank)?;
        self.publish_place(place);
        Ok(())
    }

    /// The same for the cell of a place.
    pub fn publish_place(&mut self, place: GlobalAddr) {
        if let Some(late) = &mut self.late {
            late.cells.remove(&(place.allocation.index(), place.offset / CELL));
        }
    }

    /// What `rank` sees of a value that memory holds.
    #[inline(always)]
    pub(super) fn seen<const N: usize>(&self, place: GlobalAddr, rank: usize, mut value: [u8; N]) -> [u8; N] {
        if let Some(late) = &self.late {
            late.seen_by(place.allocation.index(), place.offset, rank, &mut value);
        }
        value
    }

    /// Reads a stretch of any length and alignment as `rank` sees it.
    ///
    /// # Errors
    /// As [`Memory::read`].
    pub fn read_seen(&self, address: Address, bytes: u64, rank: usize) -> Result<Vec<u8>, AccessError> {
        let mut seen = self.read(address, bytes, rank)?.into_owned();
        self.seen_stretch(self.resolve(address, bytes, rank)?, rank, &mut seen);
        Ok(seen)
    }

    /// What `rank` sees of a stretch that memory holds.
    pub(super) fn seen_stretch(&self, place: GlobalAddr, rank: usize, bytes: &mut [u8]) {
        let Some(late) = self.late.as_ref().filter(|late| !late.cells.is_empty()) else { return };
        for (at, byte) in (0..).zip(bytes) {
            let mut value = [*byte];
            late.seen_by(place.allocation.index(), place.offset + at, rank, &mut value);
            *byte = value[0];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Init, Owner},
        *,
    };

    const BY: Author = Author { rank: 0, launch: 1, block: 0, warp: 0, barriers: 0 };

    /// Four words of rank 0 that rank 1 may access, all 7.
    fn shared() -> (Memory, Address) {
        let mut memory = Memory::new();
        let at = memory.allocate(Owner::new(0, 0, "words"), 16, Init::Zero);
        memory.map(at, 1, true).unwrap();
        memory.write(at, 0, &[7; 16]).unwrap();
        memory.delay_stores(Some(1));
        (memory, at)
    }

    fn store(memory: &mut Memory, at: Address, author: Author, byte: u8) {
        memory.store_warp_late(&[at.0; WARP], 1, author, &[[byte; 4]; WARP]).unwrap();
    }

    fn seen(memory: &Memory, at: Address) -> [u8; 2] {
        [0, 1].map(|rank| memory.load::<4>(at, rank).unwrap()[0])
    }

    #[test]
    fn others_see_a_store_when_a_release_orders_it() {
        let (mut memory, at) = shared();
        store(&mut memory, at, BY, 1);
        assert_eq!(seen(&memory, at), [1, 7]);
        memory.publish(Author { warp: 1, ..BY }, Reach::System);
        assert_eq!(seen(&memory, at), [1, 7], "no barrier between the threads");
        memory.publish(Author { warp: 1, barriers: 1, ..BY }, Reach::System);
        assert_eq!(seen(&memory, at), [1, 1]);
    }

    #[test]
    fn a_release_to_the_rank_is_not_one_to_the_system() {
        let (mut memory, at) = shared();
        store(&mut memory, at, BY, 1);
        memory.publish(BY, Reach::Rank);
        assert_eq!(seen(&memory, at), [1, 7]);
        memory.publish(Author { block: 3, ..BY }, Reach::System);
        assert_eq!(seen(&memory, at), [1, 1], "another block of the rank may have acquired it");
    }

    #[test]
    fn stores_of_two_ranks_are_seen_by_each_in_its_own_way() {
        let (mut memory, at) = shared();
        let other = Author { rank: 1, launch: 2, ..BY };
        store(&mut memory, at, BY, 1);
        store(&mut memory, at, other, 2);
        assert_eq!(seen(&memory, at), [1, 2]);
        memory.publish_launch(2);
        assert_eq!(seen(&memory, at), [2, 2], "the newer store hides the older one");
        assert!(!memory.publish_all());
    }

    /// If this fails, no relaxed store is late, or nearly all are, and others see none before all ranks wait.
    #[test]
    fn one_in_four_relaxed_stores_is_late() {
        let (mut memory, _) = shared();
        let late = (0..4000).filter(|_| memory.delays_relaxed_store()).count();
        assert!((850..1150).contains(&late), "{late}");
        memory.delay_stores(None);
        assert!((0..40).all(|_| !memory.delays_relaxed_store()));
    }

    #[test]
    fn copies_and_strong_accesses_see_what_their_rank_sees() {
        let (mut memory, at) = shared();
        let own = memory.allocate(Owner::new(1, 0, "own"), 16, Init::Zero);
        store(&mut memory, at.plus(4), BY, 1);
        memory.copy(at, own, 16, 1).unwrap();
        assert_eq!(*memory.read(own, 16, 1).unwrap(), [7; 16]);
        memory.publish_at(at.plus(4), 0).unwrap();
        assert_eq!(seen(&memory, at.plus(4)), [1, 1]);
    }
}
