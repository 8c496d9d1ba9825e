//! Tensor maps: how kernels that copy by TMA are told of memory. A shape, a box and a swizzle over a region, with no address in it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{OfRank, Region};
use crate::collective::DType;

/// A tensor over a region, whose elements lie one after the other, and the box of it that one copy moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMap {
    /// The memory.
    pub region: Region,
    /// Whose memory that is in; this rank's own where it is none's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_rank: Option<u32>,
    /// Type of the elements.
    pub dtype: DType,
    /// Elements along each dimension, the contiguous one first: 1 to 5 dimensions.
    pub extents: Vec<u64>,
    /// Elements of a box along each dimension, 1 to 256.
    pub tile: Vec<u32>,
    /// Bytes of a row of a box in shared memory, over which its 16-byte chunks are swizzled: 32, 64 or 128.
    pub swizzle: u32,
}

impl TensorMap {
    /// Bytes between neighbours along each dimension but the first.
    pub fn strides(&self) -> Vec<u64> {
        let size = self.dtype.size();
        let along = self.extents.iter().scan(size, |bytes, &extent| {
            *bytes = bytes.saturating_mul(extent);
            Some(*bytes)
        });
        along.take(self.extents.len().saturating_sub(1)).collect()
    }

    /// Whether TMA can address it, wherever a buffer starts: at a multiple of 16 bytes at least.
    ///
    /// # Errors
    /// What it cannot, and what it could.
    pub fn check(&self) -> Result<(), String> {
        let TensorMap { region, dtype, extents, tile, swizzle, .. } = self;
        let refuse = |why: String| Err(format!("tensor map of {region}: {why}"));
        if !(1..=5).contains(&extents.len()) || tile.len() != extents.len() {
            return refuse(format!("{} extents and a box of {}: 1 to 5, as many of each", extents.len(), tile.len()));
        }
        if let Some(extent) = extents.iter().find(|&&extent| extent == 0 || extent > 1 << 32) {
            return refuse(format!("an extent of {extent}: TMA has 1 to 2^32"));
        }
        let bytes = extents.iter().try_fold(dtype.size(), |bytes, &extent| bytes.checked_mul(extent));
        if bytes != Some(region.bytes) {
            return refuse(format!("{extents:?} elements of {dtype} are not {} bytes", region.bytes));
        }
        if !region.offset.is_multiple_of(16) {
            return refuse(format!("it starts at byte {}, TMA needs a multiple of 16", region.offset));
        }
        if let Some(stride) = self.strides().into_iter().find(|stride| !stride.is_multiple_of(16) || *stride >= 1 << 40) {
            return refuse(format!("a stride of {stride} bytes: TMA needs a multiple of 16 below 2^40"));
        }
        if let Some(side) = tile.iter().find(|side| !(1..=256).contains(*side)) {
            return refuse(format!("a box of {side} elements along a dimension: TMA has 1 to 256"));
        }
        let row = u64::from(tile[0]) * dtype.size();
        if ![32, 64, 128].contains(swizzle) || row > u64::from(*swizzle) || !row.is_multiple_of(16) {
            return refuse(format!("rows of {row} bytes swizzled over {swizzle}: a multiple of 16 up to a swizzle of 32, 64 or 128"));
        }
        Ok(())
    }
}

impl fmt::Display for TensorMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |sides: Vec<String>| sides.join("x");
        let extents = list(self.extents.iter().map(u64::to_string).collect());
        let tile = list(self.tile.iter().map(u32::to_string).collect());
        let of_rank = OfRank(self.of_rank);
        write!(f, "tensor {extents} {} of {}{of_rank} in boxes of {tile} swizzled {}", self.dtype, self.region, self.swizzle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Two matrices of 3 rows of 72 elements.
    fn map() -> TensorMap {
        let (extents, tile) = (vec![72, 3, 2], vec![64, 128, 1]);
        TensorMap { region: Region::new("a", 16, 864), of_rank: None, dtype: DType::BF16, extents, tile, swizzle: 128 }
    }

    #[test]
    fn a_map_says_what_it_is() {
        assert_eq!(map().check(), Ok(()));
        assert_eq!(map().strides(), [144, 432]);
        assert_eq!(map().to_string(), "tensor 72x3x2 bf16 of a[16..880] in boxes of 64x128x1 swizzled 128");
        assert!(TensorMap { of_rank: Some(3), ..map() }.to_string().contains("bf16 of a[16..880] of rank 3 in boxes"));
    }

    #[rstest]
    #[case::empty(|m: &mut TensorMap| m.extents[1] = 0, "an extent of 0: TMA has 1 to 2^32")]
    #[case::bytes(|m: &mut TensorMap| m.extents[1] = 4, "[72, 4, 2] elements of bf16 are not 864 bytes")]
    #[case::overflow(|m: &mut TensorMap| m.extents = vec![1 << 32; 3], "[4294967296, 4294967296, 4294967296] elements of bf16 are not 864 bytes")]
    #[case::start(|m: &mut TensorMap| m.region.offset = 8, "it starts at byte 8, TMA needs a multiple of 16")]
    #[case::stride(|m: &mut TensorMap| m.extents = vec![36, 6, 2], "a stride of 72 bytes: TMA needs a multiple of 16 below 2^40")]
    #[case::dimensions(|m: &mut TensorMap| m.tile = vec![64], "3 extents and a box of 1: 1 to 5, as many of each")]
    #[case::side(|m: &mut TensorMap| m.tile[1] = 257, "a box of 257 elements along a dimension: TMA has 1 to 256")]
    #[case::row(|m: &mut TensorMap| m.swizzle = 64, "rows of 128 bytes swizzled over 64: a multiple of 16 up to a swizzle of 32, 64 or 128")]
    fn what_tma_cannot_address_is_refused(#[case] change: fn(&mut TensorMap), #[case] why: &str) {
        let mut map = map();
        change(&mut map);
        assert!(map.check().unwrap_err().ends_with(why), "{}", map.check().unwrap_err());
    }
}
