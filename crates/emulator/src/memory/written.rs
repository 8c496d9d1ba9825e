//! Which bytes of an allocation were ever written.

use std::collections::HashMap;

use super::SPARSE_BYTES;

/// The parts of the 64-bit words that the bits of `bytes` bytes from `offset` on lie in: word and mask.
pub(super) fn parts(offset: u64, bytes: u64) -> impl Iterator<Item = (usize, u64)> {
    let end = if bytes == 0 { offset / 64 * 64 } else { offset + bytes };
    (offset / 64..end.div_ceil(64)).map(move |word| {
        let from = offset.saturating_sub(word * 64);
        let to = (end - word * 64).min(64);
        (word as usize, (u64::MAX >> (64 - (to - from))) << from)
    })
}

/// Words of an allocation's start that are there from the beginning.
const NEAR: usize = (SPARSE_BYTES / 64) as usize;

/// One bit a byte.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// The first [`NEAR`].
    near: Vec<u64>,
    /// Those behind that are not `rest`: large allocations are for few bytes far in them.
    far: HashMap<usize, u64>,
    rest: u64,
}

impl Written {
    /// For `bytes` bytes, none of them written, or all.
    pub(super) fn new(bytes: u64, all: bool) -> Written {
        let rest = if all { u64::MAX } else { 0 };
        let words = usize::try_from(bytes.div_ceil(64)).unwrap_or(usize::MAX);
        Written { near: vec![rest; words.min(NEAR)], far: HashMap::new(), rest }
    }

    #[inline(always)]
    fn word(&self, word: usize) -> u64 {
        match self.near.get(word) {
            Some(&bits) => bits,
            None => self.far.get(&word).copied().unwrap_or(self.rest),
        }
    }

    #[inline(always)]
    fn word_mut(&mut self, word: usize) -> &mut u64 {
        match self.near.get_mut(word) {
            Some(bits) => bits,
            None => self.far.entry(word).or_insert(self.rest),
        }
    }

    /// Whether all of `N` bytes at a multiple of `N`, a power of two up to 64, were written.
    #[inline(always)]
    pub(super) fn has<const N: usize>(&self, offset: u64) -> bool {
        let mask = u64::MAX >> (64 - N) << (offset % 64);
        self.word((offset / 64) as usize) & mask == mask
    }

    /// Notes `N` bytes at a multiple of `N`, a power of two up to 64, as written.
    #[inline(always)]
    pub(super) fn set<const N: usize>(&mut self, offset: u64) {
        *self.word_mut((offset / 64) as usize) |= u64::MAX >> (64 - N) << (offset % 64);
    }

    /// Notes any bytes as written.
    pub(super) fn set_all(&mut self, offset: u64, bytes: u64) {
        parts(offset, bytes).for_each(|(word, mask)| *self.word_mut(word) |= mask);
    }

    /// Notes whether one byte was written.
    pub(super) fn put(&mut self, offset: u64, written: bool) {
        let bit = 1 << (offset % 64);
        let word = self.word_mut((offset / 64) as usize);
        *word = if written { *word | bit } else { *word & !bit };
    }

    /// Whether one byte was written.
    pub(super) fn get(&self, offset: u64) -> bool {
        self.word((offset / 64) as usize) >> (offset % 64) & 1 == 1
    }

    /// The first of these bytes that was never written.
    pub(super) fn first_missing(&self, offset: u64, bytes: u64) -> Option<u64> {
        parts(offset, bytes).find_map(|(word, mask)| {
            let missing = !self.word(word) & mask;
            (missing != 0).then(|| word as u64 * 64 + u64::from(missing.trailing_zeros()))
        })
    }
}
