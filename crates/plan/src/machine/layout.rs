//! Where the buffers of a group lie, the same on every rank, with canaries around them.

use std::collections::BTreeSet;

use super::{GUARD, MOST_GROUP_BYTES};
use crate::plan::{BufferSpec, Region};

/// Buffers start at multiples of this.
const ALIGNMENT: u64 = 512;

/// The buffers of a group in their order, as distances from the group's first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    buffers: Vec<(BufferSpec, u64)>,
    bytes: u64,
}

/// Why buffers cannot be laid out, or do not have a region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Two buffers have one name.
    #[error("the group has two buffers called `{buffer}`")]
    Twice {
        /// The name.
        buffer: String,
    },
    /// No device has so much memory.
    #[error("buffer `{buffer}` of {bytes} bytes is larger than any device")]
    TooLarge {
        /// The buffer.
        buffer: String,
        /// Its size.
        bytes: u64,
    },
    /// No buffer has the region's name.
    #[error("region {region} names no buffer of the group, which has {}", known.join(", "))]
    NoBuffer {
        /// The region.
        region: Region,
        /// The buffers that there are.
        known: Vec<String>,
    },
    /// The buffer ends before the region.
    #[error("region {region} ends past its buffer of {bytes} bytes")]
    PastEnd {
        /// The region.
        region: Region,
        /// The size of the buffer.
        bytes: u64,
    },
}

impl From<LayoutError> for String {
    fn from(error: LayoutError) -> String {
        error.to_string()
    }
}

impl Layout {
    /// Lays buffers out one behind the other, each with [`GUARD`] bytes or more that belong to no buffer on either side.
    ///
    /// # Errors
    /// Names a buffer that is there twice, or too large for any device.
    pub fn of(specs: &[BufferSpec]) -> Result<Layout, LayoutError> {
        let mut names = BTreeSet::new();
        let mut buffers = Vec::new();
        let mut end = 0u64;
        for spec in specs {
            if !names.insert(spec.name.as_str()) {
                return Err(LayoutError::Twice { buffer: spec.name.clone() });
            }
            let offset = (end + GUARD).next_multiple_of(ALIGNMENT);
            let stop = offset.checked_add(spec.bytes).filter(|&stop| stop <= MOST_GROUP_BYTES);
            end = stop.ok_or_else(|| LayoutError::TooLarge { buffer: spec.name.clone(), bytes: spec.bytes })? + GUARD;
            buffers.push((spec.clone(), offset));
        }
        Ok(Layout { buffers, bytes: end.max(GUARD) })
    }

    /// Bytes from the group's first to its last, guards included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The buffers and where they start.
    pub fn buffers(&self) -> impl Iterator<Item = (&BufferSpec, u64)> {
        self.buffers.iter().map(|(spec, offset)| (spec, *offset))
    }

    /// Distance of a region's first byte from the group's.
    ///
    /// # Errors
    /// When there is no such buffer, or it ends before the region does.
    pub fn find(&self, region: &Region) -> Result<u64, LayoutError> {
        let Some((spec, offset)) = self.buffers.iter().find(|(spec, _)| spec.name == region.buffer) else {
            let known = self.buffers.iter().map(|(spec, _)| spec.name.clone()).collect();
            return Err(LayoutError::NoBuffer { region: region.clone(), known });
        };
        match region.offset.checked_add(region.bytes) {
            Some(end) if end <= spec.bytes => Ok(offset + region.offset),
            _ => Err(LayoutError::PastEnd { region: region.clone(), bytes: spec.bytes }),
        }
    }

    /// Whether peers may not address a buffer.
    pub fn is_local(&self, buffer: &str) -> bool {
        self.buffers.iter().any(|(spec, _)| spec.name == buffer && spec.local)
    }

    /// The stretches that belong to no buffer: start and length.
    pub fn gaps(&self) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut from = 0;
        for (spec, offset) in self.buffers() {
            gaps.push((from, offset - from));
            from = offset + spec.bytes;
        }
        gaps.push((from, self.bytes - from));
        gaps
    }

    /// The buffer beside a byte of a gap, and the byte's distance from that buffer's start: within [`GUARD`] bytes behind a buffer it is
    /// that one's, else it is the next one's, and the distance negative.
    pub fn beside(&self, position: u64) -> Option<(&str, i64)> {
        let distance = |offset: u64| position as i64 - offset as i64;
        let behind = self.buffers().filter(|(spec, offset)| offset + spec.bytes <= position).last();
        let before = self.buffers().find(|&(_, offset)| offset > position);
        match (behind, before) {
            (Some((spec, offset)), next) if position < offset + spec.bytes + GUARD || next.is_none() => {
                Some((&spec.name, distance(offset)))
            }
            (_, Some((spec, offset))) => Some((&spec.name, distance(offset))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Role;

    fn layout() -> Layout {
        Layout::of(&[BufferSpec::new("a", 100, Role::Data), BufferSpec::new("b", 0, Role::State), BufferSpec::new("c", 512, Role::Data)])
            .unwrap()
    }

    #[test]
    fn every_buffer_is_aligned_between_guards_of_its_own() {
        let layout = layout();
        let offsets: Vec<u64> = layout.buffers().map(|(_, offset)| offset).collect();
        assert_eq!(offsets, [512, 2048, 3072]);
        assert!(offsets.iter().all(|offset| offset % ALIGNMENT == 0));
        let buffers: Vec<(u64, u64)> = layout.buffers().map(|(spec, offset)| (offset, offset + spec.bytes)).collect();
        for pair in buffers.windows(2) {
            assert!(pair[1].0 - pair[0].1 >= 2 * GUARD, "{pair:?}");
        }
        assert_eq!(layout.bytes(), 3072 + 512 + GUARD);
        let total: u64 = layout.gaps().iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(total, layout.bytes() - 612, "gaps are all that is no buffer");
    }

    #[test]
    fn bytes_beside_a_buffer_are_reported_from_its_start() {
        let layout = layout();
        assert_eq!(layout.beside(0), Some(("a", -512)));
        assert_eq!(layout.beside(511), Some(("a", -1)));
        assert_eq!(layout.beside(612), Some(("a", 100)));
        assert_eq!(layout.beside(612 + GUARD), Some(("b", 612 + 512 - 2048)));
        assert_eq!(layout.beside(3072 + 512 + 511), Some(("c", 1023)));
        assert_eq!(Layout::of(&[]).unwrap().beside(3), None);
    }

    #[test]
    fn regions_are_found_and_refused_by_name_and_range() {
        let layout = layout();
        assert_eq!(layout.find(&Region::new("a", 60, 40)), Ok(572));
        assert_eq!(layout.find(&Region::new("a", 60, 41)).unwrap_err().to_string(), "region a[60..101] ends past its buffer of 100 bytes");
        assert!(layout.find(&Region::new("a", u64::MAX, 2)).is_err());
        assert_eq!(
            layout.find(&Region::new("x", 0, 1)).unwrap_err().to_string(),
            "region x[0..1] names no buffer of the group, which has a, b, c"
        );
        let twice = [BufferSpec::new("a", 1, Role::Data), BufferSpec::new("a", 1, Role::Data)];
        assert_eq!(Layout::of(&twice).unwrap_err().to_string(), "the group has two buffers called `a`");
        assert!(Layout::of(&[BufferSpec::new("a", u64::MAX, Role::Data)]).is_err());
    }
}
