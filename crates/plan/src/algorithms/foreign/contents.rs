//! What a buffer of a specification starts with: one value throughout, values one by one, or the bytes of a file.

use super::argument::Quantity;
use crate::{
    expression::{Values, Word},
    plan::Fill,
};

/// The largest buffer whose contents differ from word to word or from rank to rank, in bytes: each is made on the host.
const MOST_MADE: u64 = 64 << 20;

/// What a buffer starts with.
pub(super) enum Contents {
    Plain(Fill),
    /// The same expression for every word.
    Each(Bits, Quantity),
    /// These words, then zeros.
    Listed(Bits, Vec<Quantity>),
    /// These bytes, then zeros.
    Bytes(Vec<u8>),
}

/// What a word is made of.
#[derive(Clone, Copy)]
pub(super) enum Bits {
    /// This many bytes of an integer.
    Integer(usize),
    /// A 32-bit float with an integer's value.
    Float,
}

impl Bits {
    fn bytes(self) -> usize {
        match self {
            Bits::Integer(bytes) => bytes,
            Bits::Float => 4,
        }
    }

    fn word(self, quantity: &Quantity, values: &Values<'_>) -> Result<Vec<u8>, String> {
        Ok(match self {
            Bits::Integer(bytes) => {
                let value = quantity.within(&quantity.what, values, 0, u64::MAX >> (64 - 8 * bytes))?;
                value.to_le_bytes()[..bytes].to_vec()
            }
            Bits::Float => (quantity.value(values)? as f32).to_le_bytes().to_vec(),
        })
    }
}

impl Contents {
    /// What a buffer of `bytes` bytes is filled with for calls of which `values` are.
    ///
    /// # Errors
    /// A word without a value or of too many bits; more words or bytes than the buffer has; contents that are too large to be made.
    pub(super) fn fill(&self, values: &Values<'_>, bytes: u64) -> Result<Fill, String> {
        let world = values.of(Word::World);
        let fits = |needed: usize| if needed as u64 <= bytes { Ok(()) } else { Err(format!("{needed} bytes to start with in {bytes}")) };
        match self {
            Contents::Plain(fill) => Ok(fill.clone()),
            Contents::Bytes(start) => {
                fits(start.len())?;
                Ok(Fill::OfRanks(vec![start.clone(); world as usize]))
            }
            Contents::Listed(bits, words) => {
                fits(bits.bytes().saturating_mul(words.len()))?;
                let of_rank = |rank| {
                    let values = values.with(Word::Rank, rank);
                    let words = words.iter().zip(0..).map(|(word, index)| bits.word(word, &values.with(Word::Index, index)));
                    words.collect::<Result<Vec<_>, _>>().map(|words| words.concat())
                };
                (0..world).map(of_rank).collect::<Result<_, _>>().map(Fill::OfRanks)
            }
            Contents::Each(bits, word) if !word.expression.mentions(Word::Rank) && !word.expression.mentions(Word::Index) => {
                bits.word(word, values).map(Fill::Repeated)
            }
            Contents::Each(..) if bytes > MOST_MADE => {
                Err(format!("{bytes} bytes whose words differ: at most {MOST_MADE} are made one by one"))
            }
            Contents::Each(bits, word) => {
                let of_rank = |rank| {
                    let values = values.with(Word::Rank, rank);
                    let words = (0..bytes / bits.bytes() as u64).map(|index| bits.word(word, &values.with(Word::Index, index)));
                    words.collect::<Result<Vec<_>, _>>().map(|words| words.concat())
                };
                (0..world).map(of_rank).collect::<Result<_, _>>().map(Fill::OfRanks)
            }
        }
    }
}
