//! Who wrote a place last: for reports of hangs.

use super::{Races, finding::Side, shadow::PAGE};
use crate::memory::GlobalAddr;

/// Who wrote some bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    /// The rank.
    pub rank: usize,
    /// Its stream, and the number of the operation on that, from 0.
    pub operation: (usize, u32),
    /// The line: of the source if the PTX tells, else of the PTX; of what is no kernel, what it is.
    pub at: String,
}

impl Races {
    /// Who wrote bytes last since the run began, each once. These are several where one came after the other without knowing of it: atomics that count, and races.
    /// `None` if that is not known any more.
    pub fn writers(&self, place: GlobalAddr, bytes: u64) -> Option<Vec<Writer>> {
        if self.ended {
            return None;
        }
        let mut writers = Vec::new();
        let mut from = place.offset;
        while from < place.offset + bytes {
            let start = from / PAGE * PAGE;
            let to = (start + PAGE).min(place.offset + bytes);
            let (first, end) = ((from - start) as u16, (to - start) as u16);
            if let Some(page) = self.shadow.touched(place.allocation.index(), from) {
                let last = page.writes.iter().filter(|record| !record.outdated && record.from < end && first < record.to);
                writers.extend(last.map(|record| {
                    let (threads, _) = record.threads_at(first.max(record.from));
                    let thread = threads.into_iter().next().unwrap_or(record.thread);
                    let operation = self.operation_of(record.actor);
                    let side = Side { actor: record.actor, thread, point: record.point, mode: record.mode };
                    Writer { rank: operation.rank, operation: (operation.stream, operation.place.index), at: self.line(&side) }
                }));
            }
            from = to;
        }
        writers.sort();
        writers.dedup();
        Some(writers)
    }
}
