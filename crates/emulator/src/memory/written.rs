//! Which bytes of an allocation were ever written.

/// The parts of the 64-bit words that the bits of `bytes` bytes from `offset` on lie in: word and mask.
pub(super) fn parts(offset: u64, bytes: u64) -> impl Iterator<Item = (usize, u64)> {
    let end = if bytes == 0 { offset / 64 * 64 } else { offset + bytes };
    (offset / 64..end.div_ceil(64)).map(move |word| {
        let from = offset.saturating_sub(word * 64);
        let to = (end - word * 64).min(64);
        (word as usize, (u64::MAX >> (64 - (to - from))) << from)
    })
}

/// One bit a byte.
#[derive(Clone, Debug)]
pub(super) struct Written {
    words: Vec<u64>,
}

impl Written {
    /// For `bytes` bytes, none of them written, or all.
    pub(super) fn new(bytes: u64, all: bool) -> Written {
        Written { words: vec![if all { u64::MAX } else { 0 }; bytes.div_ceil(64) as usize] }
    }

    /// Whether all of `N` bytes at a multiple of `N`, a power of two up to 64, were written.
    #[inline(always)]
    pub(super) fn has<const N: usize>(&self, offset: u64) -> bool {
        let mask = u64::MAX >> (64 - N) << (offset % 64);
        self.words[(offset / 64) as usize] & mask == mask
    }

    /// Notes `N` bytes at a multiple of `N`, a power of two up to 64, as written.
    #[inline(always)]
    pub(super) fn set<const N: usize>(&mut self, offset: u64) {
        self.words[(offset / 64) as usize] |= u64::MAX >> (64 - N) << (offset % 64);
    }

    /// Notes any bytes as written.
    pub(super) fn set_all(&mut self, offset: u64, bytes: u64) {
        parts(offset, bytes).for_each(|(word, mask)| self.words[word] |= mask);
    }

    /// Notes whether one byte was written.
    pub(super) fn put(&mut self, offset: u64, written: bool) {
        let bit = 1 << (offset % 64);
        let word = &mut self.words[(offset / 64) as usize];
        *word = if written { *word | bit } else { *word & !bit };
    }

    /// Whether one byte was written.
    pub(super) fn get(&self, offset: u64) -> bool {
        self.words[(offset / 64) as usize] >> (offset % 64) & 1 == 1
    }

    /// The first of these bytes that was never written.
    pub(super) fn first_missing(&self, offset: u64, bytes: u64) -> Option<u64> {
        parts(offset, bytes).find_map(|(word, mask)| {
            let missing = !self.words[word] & mask;
            (missing != 0).then(|| word as u64 * 64 + u64::from(missing.trailing_zeros()))
        })
    }
}
