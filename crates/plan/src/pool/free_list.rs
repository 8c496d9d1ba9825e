//! Which bytes of a range are free. It knows no memory: a pool uses the same offsets on every rank.

use std::collections::BTreeMap;

/// Pieces start at multiples of this, and are multiples of it long.
pub(super) const ALIGNMENT: u64 = 512;

/// A range from 0 on, of which pieces are taken and given back in any order. The first piece that is large enough is taken, so that the same
/// requests give the same offsets; neighbours that are free are one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FreeList {
    /// What is free: start and length. No two touch.
    free: BTreeMap<u64, u64>,
    /// What is taken: start and length.
    taken: BTreeMap<u64, u64>,
}

impl FreeList {
    /// All of `bytes` bytes, a multiple of [`ALIGNMENT`], is free.
    pub(super) fn new(bytes: u64) -> FreeList {
        FreeList { free: (bytes > 0).then_some((0, bytes)).into_iter().collect(), taken: BTreeMap::new() }
    }

    /// Takes `bytes` bytes, rounded up to a multiple of [`ALIGNMENT`] and at least one of it, and returns where they start; `None` where no piece is
    /// large enough.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let (start, length) = self.free.iter().map(|(&start, &length)| (start, length)).find(|&(_, length)| length >= bytes)?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        self.taken.insert(start, bytes);
        Some(start)
    }

    /// Gives back the piece that starts there; whether there is one.
    pub(super) fn give_back(&mut self, start: u64) -> bool {
        let Some(length) = self.taken.remove(&start) else { return false };
        let behind = self.free.remove(&(start + length)).unwrap_or(0);
        let before = self.free.range(..start).next_back().map(|(&at, &bytes)| (at, bytes)).filter(|(at, bytes)| at + bytes == start);
        match before {
            Some((at, bytes)) => self.free.insert(at, bytes + length + behind),
            None => self.free.insert(start, length + behind),
        };
        true
    }

    /// The taken piece in which `bytes` bytes from `start` on lie: its start and length.
    pub(super) fn around(&self, start: u64, bytes: u64) -> Option<(u64, u64)> {
        let (&at, &length) = self.taken.range(..=start).next_back()?;
        start.checked_add(bytes).filter(|&end| end <= at + length).map(|_| (at, length))
    }

    /// The pieces that are taken: start and length.
    pub(super) fn taken(&self) -> impl Iterator<Item = (u64, u64)> {
        self.taken.iter().map(|(&start, &length)| (start, length))
    }

    /// Bytes that are free, all together and in the largest piece.
    pub(super) fn free(&self) -> (u64, u64) {
        (self.free.values().sum(), self.free.values().copied().max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 64 * ALIGNMENT;

    #[test]
    fn freed_neighbours_become_one_piece() {
        let mut list = FreeList::new(3 * ALIGNMENT);
        let starts: Vec<u64> = (0..3).map(|_| list.take(1).unwrap()).collect();
        assert_eq!((starts, list.take(0)), (vec![0, 512, 1024], None));
        for (start, free) in [(0, (512, 512)), (1024, (1024, 512)), (512, (1536, 1536))] {
            assert!(list.give_back(start) && !list.give_back(start));
            assert_eq!(list.free(), free);
        }
        assert_eq!(list.take(1025), Some(0));
        assert_eq!(list, FreeList { free: BTreeMap::new(), taken: [(0, 1536)].into() });
        assert_eq!(FreeList::new(0).take(0), None);
        assert_eq!(FreeList::new(512).take(u64::MAX), None);
    }

    #[test]
    fn a_range_is_found_in_its_piece_alone() {
        let mut list = FreeList::new(4 * ALIGNMENT);
        let (first, second) = (list.take(600).unwrap(), list.take(512).unwrap());
        assert_eq!(list.around(first + 100, 924), Some((0, 1024)));
        assert_eq!((list.around(first, 1025), list.around(second, 0), list.around(1536, 1)), (None, Some((1024, 512)), None));
        assert_eq!(list.around(8, u64::MAX), None);
    }

    proptest! {
        /// Two pieces that share a byte, a hole that nobody finds again, or offsets that differ from rank to rank.
        #[test]
        fn pieces_are_apart_and_no_byte_is_lost(requests in prop::collection::vec((any::<bool>(), 0..20 * ALIGNMENT, any::<prop::sample::Index>()), 0..200)) {
            let (mut list, mut of_another_rank) = (FreeList::new(BYTES), FreeList::new(BYTES));
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (takes, bytes, which) in requests {
                if takes {
                    let length = bytes.max(1).next_multiple_of(ALIGNMENT);
                    // The first gap between the live pieces that is large enough, from the definition.
                    let mut sorted = live.clone();
                    sorted.sort_unstable();
                    let ends = std::iter::once(0).chain(sorted.iter().map(|(start, length)| start + length));
                    let starts = sorted.iter().map(|(start, _)| *start).chain([BYTES]);
                    let expected = ends.zip(starts).find(|(end, start)| start - end >= length).map(|(end, _)| end);
                    let start = list.take(bytes);
                    prop_assert_eq!(start, expected);
                    prop_assert_eq!(start, of_another_rank.take(bytes));
                    live.extend(start.map(|start| (start, length)));
                } else if !live.is_empty() {
                    let (start, _) = live.swap_remove(which.index(live.len()));
                    prop_assert!(list.give_back(start) && of_another_rank.give_back(start));
                }
                prop_assert_eq!(list.free().0 + live.iter().map(|(_, length)| length).sum::<u64>(), BYTES);
                prop_assert_eq!(list.taken().count(), live.len());
            }
            live.iter().for_each(|(start, _)| assert!(list.give_back(*start)));
            prop_assert_eq!(list, FreeList::new(BYTES));
        }
    }
}
