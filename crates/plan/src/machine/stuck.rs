//! Stuck reports: what a wait that gave up leaves behind.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::plan::{MAX_RANKS, first_of_node};

/// Byte offset of the first entry of a stuck report; entries of 16 bytes follow, one for each (block, peer).
pub const STUCK_ENTRIES: usize = 64;

/// The words of an entry, in order, as C++ declares them, and what they are: `StuckEntry` of kernels/common/abi.cuh.
pub(crate) const STUCK_FIELDS: [(&str, &str); 4] = [
    ("u32 site", "0: this wait was never given up"),
    ("u32 want", ""),
    ("u32 saw", ""),
    ("u32 ranks", "this rank in the low half, the group's size in the high half"),
];

/// Where a kernel synchronises. The discriminants index a group's stall times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Site {
    /// The kernel's first instruction.
    Enter = 1,
    /// The start barrier; stalls come after it, before the work.
    Start = 2,
    /// The end barrier; stalls come before it, after the work.
    End = 3,
    /// After the end barrier.
    Leave = 4,
}

impl Site {
    /// Every site.
    pub const ALL: [Site; 4] = [Site::Enter, Site::Start, Site::End, Site::Leave];

    /// The name in case ids and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Site::Enter => "enter",
            Site::Start => "start",
            Site::End => "end",
            Site::Leave => "leave",
        }
    }
}

/// A wait that gave up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// Buffer that the report was in, which names the algorithm: `two_shot.stuck`.
    pub report: String,
    /// The rank that waited.
    pub rank: usize,
    /// The rank it waited for.
    pub peer: usize,
    /// The block that waited.
    pub block: usize,
    /// Where.
    pub site: Site,
    /// The epoch it waited for.
    pub want: u32,
    /// The epoch it saw last.
    pub saw: u32,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = self.report.split('.').next().unwrap_or_default();
        write!(
            f,
            "rank {} block {} of {algorithm} waited for rank {} at its {} barrier: wanted epoch {}, saw {}",
            self.rank,
            self.block,
            self.peer,
            self.site.name(),
            self.want,
            self.saw
        )
    }
}

/// Reads what rank `rank` of a group left in the report `name`. Entries that no wait wrote are passed over.
pub fn decode_stuck_report(name: &str, rank: usize, (world, nodes): (usize, usize), bytes: &[u8]) -> Vec<Stuck> {
    // Kernels know the ranks of their node.
    let first = first_of_node(rank, world, nodes);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    if bytes.len() < STUCK_ENTRIES || word(0) == 0 {
        return Vec::new();
    }
    (0..(bytes.len() - STUCK_ENTRIES) / 16)
        .filter_map(|entry| {
            let at = STUCK_ENTRIES + 16 * entry;
            let [site, want, saw, _] = std::array::from_fn(|field| word(at + 4 * field));
            let site = Site::ALL.into_iter().find(|&of| of as u32 == site)?;
            Some(Stuck { report: name.into(), rank, peer: first + entry % MAX_RANKS, block: entry / MAX_RANKS, site, want, saw })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_what_a_kernel_wrote() {
        for group in [(8, 1), (16, 1), (17, 1), (72, 1), (32, 2)] {
            let mut bytes = vec![0; STUCK_ENTRIES + 16 * 2 * MAX_RANKS];
            assert_eq!(decode_stuck_report("two_shot.stuck", 3, group, &bytes), []);
            bytes[0] = 1;
            let at = STUCK_ENTRIES + 16 * (MAX_RANKS + 5);
            for (i, value) in [3u32, 18, 17, 0].into_iter().enumerate() {
                bytes[at + 4 * i..at + 4 * i + 4].copy_from_slice(&value.to_le_bytes());
            }
            let stuck = decode_stuck_report("two_shot.stuck", 3, group, &bytes);
            assert_eq!(stuck.len(), 1);
            assert_eq!(stuck[0].to_string(), "rank 3 block 1 of two_shot waited for rank 5 at its end barrier: wanted epoch 18, saw 17");
        }
    }
}
