//! Elements of buffers, where they come from, and numbers for people: what the comparison and the diagnosis both read.

use super::inputs::RankPayload;
use passmuster_plan::collective::{Element, Shape, Sources};

/// A number with all its digits, with an exponent where it would be long without.
pub(super) fn number(value: f64) -> String {
    let small_or_large = value != 0.0 && value.is_finite() && !(1e-4..1e9).contains(&value.abs());
    if small_or_large { format!("{value:e}") } else { format!("{value}") }
}

/// Four significant digits where there are more.
pub(super) fn short(value: f64) -> String {
    let exact = number(value);
    if exact.len() <= 6 {
        exact
    } else if (1e-2..1e6).contains(&value) {
        format!("{value:.prec$}", prec = (3 - value.log10().floor() as i32).max(0) as usize)
    } else {
        format!("{value:.2e}")
    }
}

/// What element `index` of `rank`'s output is made of, one element for each rank that it comes from.
pub(super) fn contribute<T: Element>(shape: &Shape, ranks: &[RankPayload], rank: u32, index: u64, to: &mut Vec<T>) {
    let Sources { ranks: from, index } = shape.sources(rank, index);
    to.extend(from.map(|from| ranks[from as usize].element::<T>(index)));
}

/// Element `index` of a buffer.
pub(super) fn read<T: Element>(bytes: &[u8], index: u64) -> T {
    let at = index as usize * size_of::<T>();
    T::from_bytes(&bytes[at..at + size_of::<T>()])
}

/// Elements of a rank's slice where `total` are cut into one slice a rank.
pub(super) fn slice_of(total: u64, world: u64) -> u64 {
    total.div_ceil(world).max(1)
}
