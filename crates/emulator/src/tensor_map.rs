//! Tensor maps: 128 bytes that describe memory to a copy of a box, and which bytes of a tensor a box is (PTX ISA 5.5).
//!
//! The driver's bytes are not documented, so these are our own. A program that reads them sees ours. A copy of them is a map too. A map that anything
//! but `tensormap.replace` has changed is recognised as no map any more: the last word follows from the others.
//!
//! # How it is read
//! | of | read as |
//! |---|---|
//! | a box | tiles: `boxDim` elements along each dimension from the coordinates on, of which every `elementStrides`-th is copied; the first dimension has no such stride |
//! | its bytes in shared memory | one after the other, the first dimension first, without room between rows; rows shorter than the swizzle as far apart as that (H200) |
//! | swizzles | of the address in shared memory, wherever a box starts: bits 4 to 6 change by bits 7 to 9 (128), 4 and 5 by 7 and 8 (64), 4 by 7 (32) |
//! | what lies outside the tensor, below zero or beyond its extents | element by element, loaded as zeros or as NaNs, and counted in bytes as all else; not stored, but what completes 16 bytes of a row is (H200) |
//! | elements of tf32 | loads round them to the nearest; subnormals stay, also those of `tf32.ftz` and `f32.ftz` (H200) |
//! | 128 bytes of zeros | a map of nothing yet, which `tensormap.replace` may make one of |
//! | interleaved channels | along the first dimension pixels, each a slice of channels of 16 or 32 bytes, whatever the type; the last but one has the slices, of which a box is one whatever it says; rows have no swizzle's length (H200) |

use std::ops::Range;

use crate::numerics::f32_to_tf32;

/// The most dimensions of a tensor.
pub const MOST_DIMENSIONS: usize = 5;

/// Bytes of a map.
pub const BYTES: usize = 128;

/// Bytes that swizzles move together.
const CHUNK: u64 = 16;

/// What the first four bytes of a map are.
const TAG: u32 = u32::from_le_bytes(*b"tmap");

/// What no tensor map has, or no copy by one. Sizes are in bytes, but for those of elements.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Fields are what the message names.
pub enum TensorMapError {
    /// A number that stands for nothing.
    #[error("{value}: there are 0 to {last}")]
    Choice { value: u64, last: usize },
    /// Dimensions of the tensor.
    #[error("{dimensions} dimensions: expected {least} to {MOST_DIMENSIONS}")]
    Dimensions { dimensions: usize, least: usize },
    /// Where the tensor is.
    #[error("a tensor at address {address:#x}: expected a multiple of {aligned}")]
    Address { address: u64, aligned: u64 },
    /// Elements along a dimension of the tensor.
    #[error("an extent of {0}: expected 1 to 2^32")]
    Extent(u64),
    /// From an element to the next along a dimension.
    #[error("a stride of {stride} bytes: expected a multiple of {aligned} below 2^40")]
    Stride { stride: u64, aligned: u64 },
    /// Elements along a dimension of a box.
    #[error("a box of {0} elements along a dimension: expected 1 to 256")]
    Box(u32),
    /// Of how many elements one is copied.
    #[error("an element stride of {0}: expected 1 to 8")]
    ElementStride(u32),
    /// A row of a box.
    #[error("rows of {0} bytes: expected a multiple of {CHUNK}")]
    Row(u64),
    /// A row that is longer than its swizzle.
    #[error("rows of {row} bytes swizzled over {span}: expected {span} at most")]
    SwizzledRow { row: u64, span: u64 },
    /// The swizzle of channels that are interleaved by 32 bytes.
    #[error("channels interleaved by 32 bytes: expected a swizzle of 32")]
    InterleavedSwizzle,
    /// NaNs where the type has none.
    #[error("NaNs outside of a tensor of {0:?}: expected a floating-point type")]
    Nans(ElementType),
    /// A box that is stored before the tensor.
    #[error("a box that is stored at {at} along dimension {dimension}: only loads start before the tensor")]
    StoredBefore { at: i32, dimension: usize },
    /// Where a box starts.
    #[error("a box at {at} along the first dimension, which is {bytes} bytes: expected a multiple of {CHUNK}")]
    Place { at: i32, bytes: i64 },
}

impl From<TensorMapError> for String {
    fn from(error: TensorMapError) -> String {
        error.to_string()
    }
}

/// Types of elements, by the driver's numbers (`CUtensorMapDataType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Their names are the driver's.
pub enum ElementType {
    #[default]
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    F16,
    F32,
    F64,
    Bf16,
    F32Ftz,
    Tf32,
    Tf32Ftz,
}

impl ElementType {
    /// All of them, in the order of the driver's numbers.
    pub const ALL: [ElementType; 13] = {
        use ElementType::*;
        [U8, U16, U32, S32, U64, S64, F16, F32, F64, Bf16, F32Ftz, Tf32, Tf32Ftz]
    };

    /// All of them, in the order of the numbers of `tensormap.replace` (PTX ISA 9.7.9.28).
    const BY_REPLACE: [ElementType; 13] = {
        use ElementType::*;
        [U8, U16, U32, S32, U64, S64, F16, F32, F32Ftz, F64, Bf16, Tf32, Tf32Ftz]
    };

    /// Bytes.
    pub fn bytes(self) -> u64 {
        use ElementType::*;
        match self {
            U8 => 1,
            U16 | F16 | Bf16 => 2,
            U32 | S32 | F32 | F32Ftz | Tf32 | Tf32Ftz => 4,
            U64 | S64 | F64 => 8,
        }
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        use ElementType::*;
        matches!(self, F16 | F32 | F64 | Bf16 | F32Ftz | Tf32 | Tf32Ftz)
    }

    /// Makes of elements in memory what a load of them leaves in shared memory: those of tf32 are rounded (H200), all others as they are.
    pub(crate) fn load(self, elements: &mut [u8]) {
        if matches!(self, ElementType::Tf32 | ElementType::Tf32Ftz) {
            for element in elements.as_chunks_mut().0 {
                *element = f32_to_tf32(u32::from_le_bytes(*element)).to_le_bytes();
            }
        }
    }
}

/// How the chunks of 16 bytes of a box lie in shared memory, by the driver's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Swizzle {
    #[default]
    None,
    B32,
    B64,
    B128,
}

impl Swizzle {
    /// All of them, in the order of the driver's numbers and of those of `tensormap.replace`.
    pub const ALL: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

    /// Bytes of the longest row of a box.
    pub fn span(self) -> Option<u64> {
        match self {
            Swizzle::None => None,
            Swizzle::B32 => Some(32),
            Swizzle::B64 => Some(64),
            Swizzle::B128 => Some(128),
        }
    }

    /// Where what belongs at an address of shared memory is.
    pub fn applied(self, address: u64) -> u64 {
        address ^ (address >> 3 & (self.span().unwrap_or(CHUNK) - CHUNK))
    }
}

/// How channels are interleaved, by the driver's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Interleave {
    #[default]
    None,
    B16,
    B32,
}

impl Interleave {
    /// All of them, in the order of the driver's numbers and of those of `tensormap.replace`.
    pub const ALL: [Interleave; 3] = [Interleave::None, Interleave::B16, Interleave::B32];
}

/// A field that `tensormap.replace` replaces, of a dimension where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Their names are those of the map's own.
pub enum Field {
    Address,
    Dimensions,
    BoxExtent(usize),
    Extent(usize),
    Stride(usize),
    ElementStride(usize),
    Element,
    Interleave,
    Swizzle,
    Fill,
}

/// A tensor map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TensorMap {
    /// Type of the elements.
    pub element: ElementType,
    /// How many dimensions there are, 1 to 5. What arrays have beyond them counts for nothing.
    pub dimensions: usize,
    /// Address of the first element.
    pub address: u64,
    /// Elements along each dimension, the contiguous one first.
    pub extents: [u64; MOST_DIMENSIONS],
    /// Bytes between neighbours along each dimension but the first.
    pub strides: [u64; MOST_DIMENSIONS - 1],
    /// Elements of a box along each dimension.
    pub box_extents: [u32; MOST_DIMENSIONS],
    /// Of how many elements of a box one is copied, along each dimension.
    pub element_strides: [u32; MOST_DIMENSIONS],
    /// How channels are interleaved.
    pub interleave: Interleave,
    /// How boxes are swizzled.
    pub swizzle: Swizzle,
    /// Whether NaNs are loaded from outside the tensor, not zeros.
    pub fills_with_nans: bool,
}

/// Bytes of a box that follow each other both in the tensor and, but for swizzles, in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where in the box, in bytes.
    pub offset: u64,
    /// Address in the tensor; `None` outside it.
    pub address: Option<u64>,
    /// How many.
    pub bytes: u64,
}

impl TensorMap {
    /// The map's bytes.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&TAG.to_le_bytes());
        let layout = self.interleave as u8 | (self.swizzle as u8) << 4;
        put(&[self.element as u8, self.dimensions as u8, layout, u8::from(self.fills_with_nans)]);
        put(&self.address.to_le_bytes());
        self.strides.iter().for_each(|stride| put(&stride.to_le_bytes()));
        // An extent of 2^32 is written as 0.
        self.extents.iter().for_each(|&extent| put(&(extent as u32).to_le_bytes()));
        self.box_extents.iter().chain(&self.element_strides).for_each(|extent| put(&extent.to_le_bytes()));
        let sum = sum(&bytes);
        bytes[BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The map's bytes as words, as launches have them.
    pub fn to_words(&self) -> [u64; BYTES / 8] {
        let bytes = self.to_bytes();
        std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * word + byte])))
    }

    /// The map that bytes are.
    ///
    /// # Errors
    /// Why they are none.
    pub fn of_bytes(bytes: &[u8; BYTES]) -> Result<TensorMap, &'static str> {
        let mut rest = &bytes[..];
        let mut word = || {
            let (first, others) = rest.split_at(4);
            rest = others;
            first.iter().rev().fold(0_u32, |word, &byte| word << 8 | u32::from(byte))
        };
        if bytes.iter().all(|&byte| byte == 0) {
            return Err("all of its bytes are zero");
        }
        if word() != TAG {
            return Err("these are the bytes of something else");
        }
        if bytes[BYTES - 8..] != sum(bytes).to_le_bytes() {
            return Err("something else than tensormap.replace has written there, or all of it has not been copied");
        }
        let [element, dimensions, layout, fill] = word().to_le_bytes();
        let mut long = || u64::from(word()) | u64::from(word()) << 32;
        let (address, strides) = (long(), std::array::from_fn(|_| long()));
        let of_extent = |extent: u32| if extent == 0 { 1 << 32 } else { extent.into() };
        Ok(TensorMap {
            element: *ElementType::ALL.get(usize::from(element)).ok_or("its elements are of no type")?,
            dimensions: dimensions.into(),
            address,
            strides,
            extents: std::array::from_fn(|_| of_extent(word())),
            box_extents: std::array::from_fn(|_| word()),
            element_strides: std::array::from_fn(|_| word()),
            interleave: *Interleave::ALL.get(usize::from(layout & 15)).ok_or("its channels are interleaved in no known way")?,
            swizzle: *Swizzle::ALL.get(usize::from(layout >> 4)).ok_or("its boxes are swizzled in no known way")?,
            fills_with_nans: fill != 0,
        })
    }

    /// Replaces a field, as `tensormap.replace` does.
    ///
    /// # Errors
    /// A number that stands for nothing.
    pub fn replace(&mut self, field: Field, value: u64) -> Result<(), TensorMapError> {
        fn chosen<T: Copy>(all: &[T], value: u64) -> Result<T, TensorMapError> {
            let choice = usize::try_from(value).ok().and_then(|value| all.get(value));
            choice.copied().ok_or(TensorMapError::Choice { value, last: all.len() - 1 })
        }
        match field {
            Field::Address => self.address = value,
            Field::Dimensions => self.dimensions = chosen(&[1, 2, 3, 4, 5], value)?,
            Field::BoxExtent(dimension) => self.box_extents[dimension] = value as u32,
            Field::Extent(dimension) => self.extents[dimension] = value,
            // ptxas takes a fifth, which no tensor has.
            Field::Stride(dimension) => self.strides.iter_mut().skip(dimension).take(1).for_each(|stride| *stride = value),
            Field::ElementStride(dimension) => self.element_strides[dimension] = value as u32,
            Field::Element => self.element = chosen(&ElementType::BY_REPLACE, value)?,
            Field::Interleave => self.interleave = chosen(&Interleave::ALL, value)?,
            Field::Swizzle => self.swizzle = chosen(&Swizzle::ALL, value)?,
            Field::Fill => self.fills_with_nans = chosen(&[false, true], value)?,
        }
        Ok(())
    }

    /// Whether the driver makes such a map (`cuTensorMapEncodeTiled`).
    ///
    /// # Errors
    /// What is beyond its limits, and what they are.
    pub fn check(&self) -> Result<(), TensorMapError> {
        let &TensorMap { element, dimensions, address, interleave, swizzle, .. } = self;
        let least = if interleave == Interleave::None { 1 } else { 3 };
        if !(least..=MOST_DIMENSIONS).contains(&dimensions) {
            return Err(TensorMapError::Dimensions { dimensions, least });
        }
        let aligned = if interleave == Interleave::B32 { 32 } else { 16 };
        if !address.is_multiple_of(aligned) {
            return Err(TensorMapError::Address { address, aligned });
        }
        if let Some(&extent) = self.extents[..dimensions].iter().find(|extent| !(1..=1 << 32).contains(*extent)) {
            return Err(TensorMapError::Extent(extent));
        }
        if let Some(&stride) = self.strides[..dimensions - 1].iter().find(|stride| !stride.is_multiple_of(aligned) || **stride >= 1 << 40) {
            return Err(TensorMapError::Stride { stride, aligned });
        }
        if let Some(&extent) = self.box_extents[..dimensions].iter().find(|extent| !(1..=256).contains(*extent)) {
            return Err(TensorMapError::Box(extent));
        }
        let first = usize::from(interleave == Interleave::None);
        if let Some(&stride) = self.element_strides[first.min(dimensions)..dimensions].iter().find(|stride| !(1..=8).contains(*stride)) {
            return Err(TensorMapError::ElementStride(stride));
        }
        let row = u64::from(self.box_extents[0]) * element.bytes();
        match (interleave, swizzle.span()) {
            _ if !row.is_multiple_of(CHUNK) => return Err(TensorMapError::Row(row)),
            (Interleave::None, Some(span)) if row > span => {
                return Err(TensorMapError::SwizzledRow { row, span });
            }
            (Interleave::B32, span) if span != Some(32) => return Err(TensorMapError::InterleavedSwizzle),
            _ => {}
        }
        if self.fills_with_nans && !element.is_float() {
            return Err(TensorMapError::Nans(element));
        }
        Ok(())
    }

    /// Bytes that neighbours along the first dimension are apart.
    pub fn unit(&self) -> u64 {
        match self.interleave {
            Interleave::None => self.element.bytes(),
            Interleave::B16 => 16,
            Interleave::B32 => 32,
        }
    }

    /// Dimensions along which a box is made of rows: with interleaved channels all, and a row is one pixel's.
    fn of_rows(&self) -> Range<usize> {
        usize::from(self.interleave == Interleave::None)..self.dimensions
    }

    /// Bytes of a row of a box, which follow each other in the tensor.
    pub fn row_bytes(&self) -> u64 {
        match self.interleave {
            Interleave::None => u64::from(self.box_extents[0]) * self.unit(),
            Interleave::B16 | Interleave::B32 => self.unit(),
        }
    }

    /// Bytes between rows of a box in shared memory: a row that is shorter than the swizzle leaves the rest of its span as it was (H200), but for those of interleaved channels.
    pub fn pitch(&self) -> u64 {
        let span = self.swizzle.span().filter(|_| self.interleave == Interleave::None);
        self.row_bytes().max(span.unwrap_or(0))
    }

    /// Rows of a box along one of [`TensorMap::of_rows`].
    fn copied(&self, dimension: usize) -> u64 {
        if self.interleave != Interleave::None && dimension + 2 == self.dimensions {
            return 1;
        }
        self.box_extents[dimension].div_ceil(self.element_strides[dimension]).into()
    }

    /// Bytes of a box, all of which are counted.
    pub fn box_bytes(&self) -> u64 {
        self.of_rows().fold(self.row_bytes(), |bytes, dimension| bytes * self.copied(dimension))
    }

    /// What must divide the address of a box in shared memory.
    pub fn box_alignment(&self) -> u64 {
        if self.interleave == Interleave::B32 { 256 } else { 128 }
    }

    /// Whether hardware copies a box at these coordinates: what it starts with is at a multiple of 16 bytes in memory, also where that is outside the tensor,
    /// and what is stored does not start before the tensor. All else was an illegal instruction on H200.
    ///
    /// # Errors
    /// Where the box starts, and where it may.
    pub fn check_place(&self, coordinates: &[i32], loads: bool) -> Result<(), TensorMapError> {
        if let Some(dimension) = (0..self.dimensions).find(|&dimension| !loads && coordinates[dimension] < 0) {
            return Err(TensorMapError::StoredBefore { at: coordinates[dimension], dimension });
        }
        let bytes = i64::from(coordinates[0]) * self.unit() as i64;
        if bytes % CHUNK as i64 == 0 {
            return Ok(());
        }
        Err(TensorMapError::Place { at: coordinates[0], bytes })
    }

    /// The bytes of the box at these coordinates, one for each dimension, in their order. The map must be one that [`TensorMap::check`] lets through.
    pub fn runs(&self, coordinates: &[i32], loads: bool) -> Vec<Run> {
        let size = self.unit();
        let coordinate = |dimension: usize| i64::from(coordinates[dimension]);
        let within = |dimension: usize, at: i64| at >= 0 && (at as u64) < self.extents[dimension];
        // Elements of a row before the tensor, and up to where it ends; and where in the tensor its first is.
        let (elements, first, end, start) = match self.interleave {
            Interleave::None => {
                // Hardware clips a row that it stores to whole chunks.
                let width = if loads { self.extents[0] } else { (self.extents[0] * size).next_multiple_of(CHUNK) / size };
                let elements = u64::from(self.box_extents[0]);
                let first = (-coordinate(0)).clamp(0, elements as i64) as u64;
                (elements, first, (width as i64 - coordinate(0)).clamp(first as i64, elements as i64) as u64, coordinate(0) + first as i64)
            }
            Interleave::B16 | Interleave::B32 => (1, 0, 1, 0),
        };
        let row = self.row_bytes();
        let mut runs = Vec::new();
        for number in 0..self.box_bytes() / row {
            let offset = number * row;
            let (mut rest, mut address, mut inside) = (number, Some(self.address), first < end);
            for dimension in self.of_rows() {
                let along = rest % self.copied(dimension) * u64::from(self.element_strides[dimension]);
                rest /= self.copied(dimension);
                let at = coordinate(dimension) + along as i64;
                inside &= within(dimension, at);
                let stride = dimension.checked_sub(1).map_or(size, |before| self.strides[before]);
                address = address.filter(|_| inside).and_then(|address| address.checked_add((at as u64).checked_mul(stride)?));
            }
            let address = address.filter(|_| inside).map(|address| address.wrapping_add(start as u64 * size));
            let mut run = |from: u64, to: u64, address: Option<u64>| {
                if from < to {
                    runs.push(Run { offset: offset + from * size, address, bytes: (to - from) * size });
                }
            };
            match address {
                None => run(0, elements, None),
                Some(_) => {
                    run(0, first, None);
                    run(first, end, address);
                    run(end, elements, None);
                }
            }
        }
        runs
    }

    /// What is loaded in place of an element outside the tensor, in its low bytes: where it is NaNs, those that H200 loads.
    pub fn fill(&self) -> u64 {
        if self.fills_with_nans { 0x7ff7_7ff7_7ff7_7ff7 } else { 0 }
    }
}

/// What the last word of a map follows from.
fn sum(bytes: &[u8; BYTES]) -> u64 {
    let mix = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes[..BYTES - 8].iter().fold(0xcbf2_9ce4_8422_2325, mix)
}
