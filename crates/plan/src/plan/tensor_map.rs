//! Tensor maps: how memory is described to kernels that copy by TMA. A shape, a box and a swizzle over a region, with no address in it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{OfRank, Region};
use crate::collective::DType;

/// A tensor over a region, and the box of it that one copy moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMap {
    /// The memory.
    pub region: Region,
    /// Whose memory that is in; this rank's own where it is none's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_rank: Option<u32>,
    /// Type of the elements.
    pub dtype: DType,
    /// Elements along each dimension, the contiguous one first: 1 to 5 dimensions. Of interleaved channels the first has pixels, and the last but one slices
    /// of channels.
    pub extents: Vec<u64>,
    /// Bytes between neighbours along each dimension but the first; none where elements lie one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strides: Vec<u64>,
    /// Elements of a box along each dimension, 1 to 256.
    pub tile: Vec<u32>,
    /// Of how many elements of a box one is copied, along each dimension, 1 to 8; none where all are. Of the first it counts for nothing, unless channels
    /// are interleaved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub element_strides: Vec<u32>,
    /// Bytes by which channels are interleaved: 0, 16 or 32.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interleave: u32,
    /// Bytes of a row of a box in shared memory, over which its 16-byte chunks are swizzled: 32, 64 or 128; 0 where they are not.
    pub swizzle: u32,
    /// What is loaded from outside the tensor.
    #[serde(default, skip_serializing_if = "Outside::is_zeros")]
    pub outside: Outside,
}

/// What copies load from outside a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outside {
    /// Zeros.
    #[default]
    Zeros,
    /// NaNs, of floating-point types.
    Nans,
}

impl Outside {
    fn is_zeros(&self) -> bool {
        *self == Outside::Zeros
    }
}

fn is_zero(bytes: &u32) -> bool {
    *bytes == 0
}

impl TensorMap {
    /// A map of this rank's memory, of elements that lie one after the other and are all copied.
    pub fn packed(region: Region, dtype: DType, extents: Vec<u64>, tile: Vec<u32>, swizzle: u32) -> TensorMap {
        let (strides, element_strides) = (Vec::new(), Vec::new());
        TensorMap { region, of_rank: None, dtype, extents, strides, tile, element_strides, interleave: 0, swizzle, outside: Outside::Zeros }
    }

    /// Bytes between neighbours along each dimension but the first.
    pub fn byte_strides(&self) -> Vec<u64> {
        if !self.strides.is_empty() {
            return self.strides.clone();
        }
        let along = self.extents.iter().scan(self.unit(), |bytes, &extent| {
            *bytes = bytes.saturating_mul(extent);
            Some(*bytes)
        });
        along.take(self.extents.len().saturating_sub(1)).collect()
    }

    /// Bytes between neighbours along the first dimension: of interleaved channels a pixel's, whatever the type.
    pub fn unit(&self) -> u64 {
        if self.interleave > 0 { self.interleave.into() } else { self.dtype.size() }
    }

    /// Of how many elements of a box one is copied, along each dimension.
    pub fn all_element_strides(&self) -> Vec<u32> {
        if self.element_strides.is_empty() { vec![1; self.tile.len()] } else { self.element_strides.clone() }
    }

    /// Bytes from the first element to the end of the last.
    pub fn bytes(&self) -> Option<u64> {
        let row = self.extents.first()?.checked_mul(self.unit())?;
        let along = self.extents.iter().skip(1).zip(self.byte_strides());
        along
            .map(|(&extent, stride)| extent.checked_sub(1)?.checked_mul(stride))
            .try_fold(row, |bytes, further| bytes.checked_add(further?))
    }

    /// Whether TMA can address it, wherever a buffer starts: at a multiple of 256 bytes at least.
    ///
    /// # Errors
    /// What it cannot, and what it could.
    pub fn check(&self) -> Result<(), TensorMapError> {
        let TensorMap { region, extents, strides, tile, element_strides, .. } = self;
        let refuse = |why| Err(TensorMapError { region: region.clone(), why });
        if !(1..=5).contains(&extents.len()) || tile.len() != extents.len() {
            return refuse(MapFault::Dimensions { extents: extents.len(), tile: tile.len() });
        }
        if !strides.is_empty() && strides.len() != extents.len() - 1 {
            return refuse(MapFault::Strides { strides: strides.len(), extents: extents.len() });
        }
        if !element_strides.is_empty() && element_strides.len() != extents.len() {
            return refuse(MapFault::ElementStrides { strides: element_strides.len(), extents: extents.len() });
        }
        self.check_limits(region.offset).or_else(|limit| refuse(limit.into()))?;
        match self.bytes() {
            Some(bytes) if bytes == region.bytes || !strides.is_empty() && bytes < region.bytes => Ok(()),
            Some(bytes) if !strides.is_empty() => refuse(MapFault::PastEnd { end: bytes, bytes: region.bytes }),
            _ => refuse(MapFault::Bytes { extents: extents.clone(), dtype: self.dtype, bytes: region.bytes }),
        }
    }

    /// Whether the driver makes such a map of memory at an address (`cuTensorMapEncodeTiled`); lists have the lengths that they must have.
    ///
    /// # Errors
    /// What is beyond its limits, and what they are.
    pub fn check_limits(&self, address: u64) -> Result<(), MapLimit> {
        let TensorMap { dtype, extents, tile, interleave, swizzle, .. } = self;
        if ![0, 16, 32].contains(interleave) || ![0, 32, 64, 128].contains(swizzle) {
            return Err(MapLimit::Arrangement { interleave: *interleave, swizzle: *swizzle });
        }
        if *interleave > 0 && extents.len() < 3 {
            return Err(MapLimit::InterleavedDimensions(extents.len()));
        }
        let aligned = if *interleave == 32 { 32 } else { 16 };
        if !address.is_multiple_of(aligned) {
            return Err(MapLimit::Address { address, aligned });
        }
        if let Some(&extent) = extents.iter().find(|&&extent| extent == 0 || extent > 1 << 32) {
            return Err(MapLimit::Extent(extent));
        }
        if let Some(stride) = self.byte_strides().into_iter().find(|stride| !stride.is_multiple_of(aligned) || *stride >= 1 << 40) {
            return Err(MapLimit::Stride { stride, aligned });
        }
        if let Some(&side) = tile.iter().find(|side| !(1..=256).contains(*side)) {
            return Err(MapLimit::Box(side));
        }
        let strided = self.all_element_strides();
        if let Some(&stride) = strided.iter().skip(usize::from(*interleave == 0)).find(|stride| !(1..=8).contains(*stride)) {
            return Err(MapLimit::ElementStride(stride));
        }
        let row = u64::from(tile[0]) * dtype.size();
        if !row.is_multiple_of(16) {
            return Err(MapLimit::Row(row));
        }
        if *interleave == 0 && *swizzle > 0 && row > u64::from(*swizzle) {
            return Err(MapLimit::SwizzledRow { row, swizzle: *swizzle });
        }
        if *interleave == 32 && *swizzle != 32 {
            return Err(MapLimit::InterleavedSwizzle(*swizzle));
        }
        if self.outside == Outside::Nans && !(dtype.is_float() && dtype.size() > 1) {
            return Err(MapLimit::Nans(*dtype));
        }
        Ok(())
    }
}

/// Why TMA cannot address a [`TensorMap`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tensor map of {region}: {why}")]
pub struct TensorMapError {
    /// The memory that it is of.
    pub region: Region,
    /// Why.
    pub why: MapFault,
}

impl From<TensorMapError> for String {
    fn from(error: TensorMapError) -> String {
        error.to_string()
    }
}

/// What is wrong with a tensor map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapFault {
    /// The tensor has too many dimensions, or others than its box.
    #[error("{extents} extents and a box of {tile}: 1 to 5, as many of each")]
    Dimensions {
        /// Dimensions of the tensor.
        extents: usize,
        /// Dimensions of a box.
        tile: usize,
    },
    /// Dimensions have no stride.
    #[error("{strides} strides of {extents} extents: one for each but the first, or none")]
    Strides {
        /// Strides.
        strides: usize,
        /// Dimensions of the tensor.
        extents: usize,
    },
    /// Dimensions have no element stride.
    #[error("{strides} element strides of {extents} extents: one for each, or none")]
    ElementStrides {
        /// Element strides.
        strides: usize,
        /// Dimensions of the tensor.
        extents: usize,
    },
    /// The driver makes no such map.
    #[error(transparent)]
    Limit(#[from] MapLimit),
    /// The tensor ends past its region.
    #[error("its last element ends at byte {end}, the region has {bytes}")]
    PastEnd {
        /// Where it ends, in bytes.
        end: u64,
        /// Bytes of the region.
        bytes: u64,
    },
    /// A packed tensor is not its region.
    #[error("{extents:?} elements of {dtype} are not {bytes} bytes")]
    Bytes {
        /// Elements along each dimension.
        extents: Vec<u64>,
        /// Their type.
        dtype: DType,
        /// Bytes of the region.
        bytes: u64,
    },
}

/// What the driver makes no map of (`cuTensorMapEncodeTiled`). Sizes are in bytes, but for those of elements.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Fields are what the message names.
pub enum MapLimit {
    /// Channels are interleaved, or boxes swizzled, in no known way.
    #[error("channels interleaved by {interleave} bytes and a swizzle of {swizzle}: 0, 16 or 32, and 0, 32, 64 or 128")]
    Arrangement { interleave: u32, swizzle: u32 },
    /// Interleaved channels of few dimensions.
    #[error("interleaved channels of {0} dimensions: TMA has them of 3 to 5")]
    InterleavedDimensions(usize),
    /// Where the tensor starts.
    #[error("it starts at byte {address}, TMA needs a multiple of {aligned}")]
    Address { address: u64, aligned: u64 },
    /// Elements along a dimension of the tensor.
    #[error("an extent of {0}: TMA has 1 to 2^32")]
    Extent(u64),
    /// From an element to the next along a dimension.
    #[error("a stride of {stride} bytes: TMA needs a multiple of {aligned} below 2^40")]
    Stride { stride: u64, aligned: u64 },
    /// Elements along a dimension of a box.
    #[error("a box of {0} elements along a dimension: TMA has 1 to 256")]
    Box(u32),
    /// Of how many elements one is copied.
    #[error("an element stride of {0}: TMA has 1 to 8")]
    ElementStride(u32),
    /// A row of a box.
    #[error("rows of {0} bytes: TMA needs a multiple of 16")]
    Row(u64),
    /// A row that is longer than its swizzle.
    #[error("rows of {row} bytes swizzled over {swizzle}: a multiple of 16 up to a swizzle of 32, 64 or 128")]
    SwizzledRow { row: u64, swizzle: u32 },
    /// The swizzle of channels that are interleaved by 32 bytes.
    #[error("channels interleaved by 32 bytes and a swizzle of {0}: TMA needs one of 32")]
    InterleavedSwizzle(u32),
    /// NaNs where the type has none.
    #[error("NaNs outside a tensor of {0}: TMA has them of floating-point types of 16 bits and more")]
    Nans(DType),
}

impl From<MapLimit> for String {
    fn from(error: MapLimit) -> String {
        error.to_string()
    }
}

/// A map at a limit of what the driver makes, the address that it is of, and whether the driver makes it.
#[doc(hidden)]
pub struct Edge {
    /// What is at a limit.
    pub what: &'static str,
    pub map: TensorMap,
    pub address: u64,
    pub is_made: bool,
}

/// Maps at the limits of what the driver makes. Tests check with them what refuses maps, here, on the emulator and on GPUs.
#[doc(hidden)]
pub fn edges() -> Vec<Edge> {
    const ADDRESS: u64 = 1 << 30;
    type Change = fn(&mut TensorMap);
    let base = TensorMap::packed(Region::new("a", 0, 864), DType::BF16, vec![72, 3, 2], vec![64, 128, 1], 128);
    let flat = TensorMap { extents: vec![72], tile: vec![64], ..base.clone() };
    let plain = TensorMap { swizzle: 0, ..base.clone() };
    let mut edges = Vec::new();
    let mut add = |what, map: &TensorMap, address, change: Change, is_made| {
        let mut map = map.clone();
        change(&mut map);
        edges.push(Edge { what, map, address, is_made });
    };
    let five = TensorMap { extents: vec![72, 3, 2, 2, 2], tile: vec![64, 2, 1, 1, 2], ..base.clone() };
    for (what, map) in [("one dimension", &flat), ("three dimensions", &base), ("five dimensions", &five)] {
        add(what, map, ADDRESS, |_| {}, true);
    }
    add("an address at 16", &base, ADDRESS + 16, |_| {}, true);
    add("an address at 8", &base, ADDRESS + 8, |_| {}, false);
    add("an extent of 0", &base, ADDRESS, |map| map.extents[2] = 0, false);
    add("an extent of 1", &base, ADDRESS, |map| map.extents[2] = 1, true);
    add("an extent of 2^32", &base, ADDRESS, |map| map.extents[2] = 1 << 32, true);
    add("an extent of 2^32 + 1", &base, ADDRESS, |map| map.extents[2] = (1 << 32) + 1, false);
    add("a stride that is no multiple of 16", &base, ADDRESS, |map| map.strides = vec![152, 480], false);
    add("a stride below 2^40", &base, ADDRESS, |map| map.strides = vec![144, (1 << 40) - 16], true);
    add("a stride of 2^40", &base, ADDRESS, |map| map.strides = vec![144, 1 << 40], false);
    add("a stride of 0", &base, ADDRESS, |map| map.strides = vec![0, 432], true);
    add("rows that overlap", &base, ADDRESS, |map| map.strides = vec![16, 32], true);
    add("strides that descend", &base, ADDRESS, |map| map.strides = vec![432, 144], true);
    add("strides that are no multiples of each other", &base, ADDRESS, |map| map.strides = vec![144, 448], true);
    add("a box of 256", &base, ADDRESS, |map| map.tile[1] = 256, true);
    add("a box of 257", &base, ADDRESS, |map| map.tile[1] = 257, false);
    add("a box of nothing", &base, ADDRESS, |map| map.tile[1] = 0, false);
    add("a box of 2 MiB", &plain, ADDRESS, |map| map.tile = vec![64, 128, 128], true);
    add("a row of 512 bytes", &plain, ADDRESS, |map| map.tile[0] = 256, true);
    add("a row of 2048 bytes", &plain, ADDRESS, |map| (map.dtype, map.tile[0]) = (DType::F64, 256), true);
    add("a row of 8 bytes", &plain, ADDRESS, |map| map.tile[0] = 4, false);
    add("a row of 24 bytes", &plain, ADDRESS, |map| map.tile[0] = 12, false);
    add("element strides of 8", &base, ADDRESS, |map| map.element_strides = vec![1, 8, 8], true);
    add("an element stride of 9", &base, ADDRESS, |map| map.element_strides = vec![1, 9, 1], false);
    add("an element stride of 0", &base, ADDRESS, |map| map.element_strides = vec![1, 1, 0], false);
    add("a first element stride of 2", &base, ADDRESS, |map| map.element_strides = vec![2, 1, 1], true);
    add("a first element stride of 9", &base, ADDRESS, |map| map.element_strides = vec![9, 1, 1], true);
    add("a first element stride of 0", &base, ADDRESS, |map| map.element_strides = vec![0, 1, 1], true);
    add("rows of 64 bytes swizzled over 128", &base, ADDRESS, |map| map.tile[0] = 32, true);
    add("rows of 96 bytes swizzled over 128", &base, ADDRESS, |map| map.tile[0] = 48, true);
    add("rows of 144 bytes swizzled over 128", &base, ADDRESS, |map| map.tile[0] = 72, false);
    add("rows of 128 bytes swizzled over 64", &base, ADDRESS, |map| map.swizzle = 64, false);
    add("rows of 64 bytes swizzled over 64", &base, ADDRESS, |map| (map.swizzle, map.tile[0]) = (64, 32), true);
    add("rows of 64 bytes swizzled over 32", &base, ADDRESS, |map| (map.swizzle, map.tile[0]) = (32, 32), false);
    add("rows of 32 bytes swizzled over 32", &base, ADDRESS, |map| (map.swizzle, map.tile[0]) = (32, 16), true);
    for dtype in DType::ALL {
        let map = TensorMap { dtype, strides: vec![1024, 4096], tile: vec![(64 / dtype.size()) as u32, 2, 1], ..plain.clone() };
        add("a type", &map, ADDRESS, |_| {}, true);
        let floats = dtype.is_float() && dtype.size() > 1;
        add("a type and NaNs", &map, ADDRESS, |map| map.outside = Outside::Nans, floats);
    }
    add("channels of 16 bytes", &plain, ADDRESS, |map| map.interleave = 16, true);
    add("channels of 16 bytes, swizzled", &base, ADDRESS, |map| (map.interleave, map.tile[0]) = (16, 8), true);
    add("channels of 16 bytes, a row of 8", &plain, ADDRESS, |map| (map.interleave, map.tile[0]) = (16, 4), false);
    add(
        "channels of 16 bytes, rows of 64 bytes swizzled over 32",
        &base,
        ADDRESS,
        |map| (map.interleave, map.swizzle, map.tile[0]) = (16, 32, 32),
        true,
    );
    add("channels of 16 bytes, one dimension", &flat, ADDRESS, |map| (map.interleave, map.swizzle) = (16, 0), false);
    let of_32 = TensorMap { interleave: 32, swizzle: 32, strides: vec![160, 480], tile: vec![16, 8, 1], ..base };
    add("channels of 32 bytes", &of_32, ADDRESS, |_| {}, true);
    add("channels of 32 bytes, a row of 16", &of_32, ADDRESS, |map| map.tile[0] = 8, true);
    add("channels of 32 bytes, a row of 2", &of_32, ADDRESS, |map| map.tile[0] = 1, false);
    add("channels of 32 bytes at 16", &of_32, ADDRESS + 16, |_| {}, false);
    add("channels of 32 bytes, a stride that is no multiple of 32", &of_32, ADDRESS, |map| map.strides[0] = 144, false);
    add("channels of 32 bytes, not swizzled", &of_32, ADDRESS, |map| map.swizzle = 0, false);
    add("channels of 32 bytes, swizzled over 128", &of_32, ADDRESS, |map| map.swizzle = 128, false);
    edges
}

impl fmt::Display for TensorMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T: ToString>(sides: &[T]) -> String {
            sides.iter().map(T::to_string).collect::<Vec<_>>().join("x")
        }
        let of_rank = OfRank(self.of_rank);
        write!(f, "tensor {} {} of {}{of_rank}", list(&self.extents), self.dtype, self.region)?;
        if !self.strides.is_empty() {
            write!(f, " at strides of {} bytes", list(&self.strides))?;
        }
        write!(f, " in boxes of {}", list(&self.tile))?;
        if !self.element_strides.is_empty() {
            write!(f, " by {}", list(&self.element_strides))?;
        }
        if self.interleave > 0 {
            write!(f, " interleaved {}", self.interleave)?;
        }
        write!(f, " swizzled {}", self.swizzle)?;
        if self.outside == Outside::Nans { f.write_str(" in NaNs") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Two matrices of 3 rows of 72 elements.
    fn map() -> TensorMap {
        TensorMap::packed(Region::new("a", 16, 864), DType::BF16, vec![72, 3, 2], vec![64, 128, 1], 128)
    }

    #[test]
    fn a_map_says_what_it_is() {
        assert_eq!(map().check(), Ok(()));
        assert_eq!(map().byte_strides(), [144, 432]);
        assert_eq!(map().to_string(), "tensor 72x3x2 bf16 of a[16..880] in boxes of 64x128x1 swizzled 128");
        let (strides, element_strides) = (vec![160, 480], vec![1, 2, 1]);
        let other = TensorMap { strides, element_strides, interleave: 16, swizzle: 0, outside: Outside::Nans, ..map() };
        assert_eq!(
            other.to_string(),
            "tensor 72x3x2 bf16 of a[16..880] at strides of 160x480 bytes in boxes of 64x128x1 by 1x2x1 interleaved 16 swizzled 0 in NaNs"
        );
        assert_eq!((map().bytes(), other.bytes()), (Some(864), Some(1952)));
        assert!(TensorMap { of_rank: Some(3), ..map() }.to_string().contains("bf16 of a[16..880] of rank 3 in boxes"));
    }

    #[test]
    fn edges_are_refused_or_not() {
        for Edge { what, map, address, is_made } in edges() {
            assert_eq!(map.check_limits(address).is_ok(), is_made, "{what}: {map}: {:?}", map.check_limits(address));
        }
    }

    #[rstest]
    #[case::empty(|m: &mut TensorMap| m.extents[1] = 0, "an extent of 0: TMA has 1 to 2^32")]
    #[case::bytes(|m: &mut TensorMap| m.extents[1] = 4, "[72, 4, 2] elements of bf16 are not 864 bytes")]
    #[case::overflow(|m: &mut TensorMap| m.extents = vec![1 << 32; 3], "a stride of 18446744073709551615 bytes: TMA needs a multiple of 16 below 2^40")]
    #[case::start(|m: &mut TensorMap| m.region.offset = 8, "it starts at byte 8, TMA needs a multiple of 16")]
    #[case::stride(|m: &mut TensorMap| m.extents = vec![36, 6, 2], "a stride of 72 bytes: TMA needs a multiple of 16 below 2^40")]
    #[case::dimensions(|m: &mut TensorMap| m.tile = vec![64], "3 extents and a box of 1: 1 to 5, as many of each")]
    #[case::side(|m: &mut TensorMap| m.tile[1] = 257, "a box of 257 elements along a dimension: TMA has 1 to 256")]
    #[case::strides(|m: &mut TensorMap| m.strides = vec![160], "1 strides of 3 extents: one for each but the first, or none")]
    #[case::beyond(|m: &mut TensorMap| m.strides = vec![160, 480], "its last element ends at byte 944, the region has 864")]
    #[case::element_strides(|m: &mut TensorMap| m.element_strides = vec![1, 9, 1], "an element stride of 9: TMA has 1 to 8")]
    #[case::fill(|m: &mut TensorMap| (m.outside, m.dtype, m.swizzle) = (Outside::Nans, DType::I32, 0), "NaNs outside a tensor of i32: TMA has them of floating-point types of 16 bits and more")]
    #[case::row(|m: &mut TensorMap| m.swizzle = 64, "rows of 128 bytes swizzled over 64: a multiple of 16 up to a swizzle of 32, 64 or 128")]
    fn what_tma_cannot_address_is_refused(#[case] change: fn(&mut TensorMap), #[case] why: &str) {
        let mut map = map();
        change(&mut map);
        let error = map.check().unwrap_err().to_string();
        assert!(error.ends_with(why), "{error}");
    }
}
