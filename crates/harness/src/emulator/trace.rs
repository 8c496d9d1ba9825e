//! Traces: what ranks, streams, blocks and warps did in a run, as `machine::trace` writes it down.
//!
//! One process a rank, one row a stream with its operations, one row a block with its time from start to end, and one row a warp that waited, with its
//! waits at barriers and on words of memory. Times are emulated: they order, they do not measure.

use std::collections::BTreeMap;

use super::{
    execution::{WarpPosition, WarpState},
    memory::{Address, Memory},
};
use passmuster_plan::machine::trace::Events;

/// A row: rank, stream, and there a block and a warp of it, or neither.
type Row = (usize, usize, Option<(u32, Option<u32>)>);

/// Rows of a stream at most, in the numbers that rows have.
const ROWS_OF_A_STREAM: u64 = 1 << 32;

/// What happened in a run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    events: Vec<Event>,
    /// What goes on: since when, and what it is.
    open: BTreeMap<Row, Open>,
    rows: BTreeMap<Row, ()>,
}

#[derive(Clone, Debug)]
struct Open {
    since: f64,
    name: String,
    details: String,
}

#[derive(Clone, Debug)]
struct Event {
    row: Row,
    open: Open,
    until: f64,
}

impl Trace {
    /// An operation of a stream starts. Times are microseconds.
    pub(super) fn begin(&mut self, rank: usize, stream: usize, name: &str, now: f64) {
        self.enter((rank, stream, None), name.into(), String::new(), now);
    }

    /// The operation of a stream is done, and with it all blocks of a kernel.
    pub(super) fn end(&mut self, rank: usize, stream: usize, now: f64) {
        let rows: Vec<Row> = self.open.keys().copied().filter(|row| (row.0, row.1) == (rank, stream)).collect();
        rows.into_iter().for_each(|row| self.leave(row, now));
    }

    /// Where all warps of the kernel on a stream stand after a turn.
    pub(super) fn sample(&mut self, rank: usize, stream: usize, standing: &[WarpPosition], memory: &Memory, now: f64) {
        let mut waits = BTreeMap::new();
        let mut blocks = BTreeMap::new();
        for at in standing {
            blocks.insert((rank, stream, Some((at.block, None))), ());
            let name = match at.what {
                WarpState::Barrier { id } => format!("barrier {id}"),
                WarpState::Polling { address } => format!("waits for {}", memory.describe(Address(address))),
                WarpState::Lanes | WarpState::Running => continue,
            };
            // Of several groups of lanes, the one that polls: the others wait for it.
            let row = (rank, stream, Some((at.block, Some(at.warp))));
            let polls = matches!(at.what, WarpState::Polling { .. });
            if polls || !waits.contains_key(&row) {
                waits.insert(row, (name, format!("lanes {:#010x}, PTX {}", at.lanes, at.at)));
            }
        }
        let over = |row: &&Row| {
            (row.0, row.1) == (rank, stream)
                && match row.2 {
                    None => false,
                    Some((_, None)) => !blocks.contains_key(*row),
                    Some(_) => waits.get(*row).is_none_or(|(name, _)| *name != self.open[*row].name),
                }
        };
        let ended: Vec<Row> = self.open.keys().filter(over).copied().collect();
        ended.into_iter().for_each(|row| self.leave(row, now));
        for row in blocks.into_keys() {
            self.enter(row, format!("block {}", row.2.map_or(0, |(block, _)| block)), String::new(), now);
        }
        waits.into_iter().for_each(|(row, (name, details))| self.enter(row, name, details, now));
    }

    /// The run is over: so is all that still went on.
    pub(super) fn finish(&mut self, now: f64) {
        let rows: Vec<Row> = self.open.keys().copied().collect();
        rows.into_iter().for_each(|row| self.leave(row, now));
    }

    fn enter(&mut self, row: Row, name: String, details: String, now: f64) {
        self.rows.entry(row).or_default();
        self.open.entry(row).or_insert(Open { since: now, name, details });
    }

    fn leave(&mut self, row: Row, now: f64) {
        if let Some(open) = self.open.remove(&row) {
            self.events.push(Event { row, open, until: now });
        }
    }

    /// The trace as a JSON document for <https://ui.perfetto.dev>.
    ///
    /// # Errors
    /// Those of `serde_json`, which plain numbers and texts do not have.
    pub fn json(&self) -> serde_json::Result<String> {
        let mut events = Events::default();
        let ranks: BTreeMap<usize, ()> = self.rows.keys().map(|row| (row.0, ())).collect();
        ranks.into_keys().for_each(|rank| events.name_rank(rank));
        self.rows.keys().for_each(|&row| events.name_row(row.0, number(row), title(row)));
        for Event { row, open, until } in &self.events {
            events.span((row.0, number(*row)), &open.name, (open.since, *until), &open.details);
        }
        events.json()
    }
}

/// The number of a row in its process: rows are shown in the order of their numbers.
fn number((_, stream, within): Row) -> u64 {
    let within = within.map_or(0, |(block, warp)| 1 + u64::from(block) * 64 + warp.map_or(0, |warp| 1 + u64::from(warp)));
    stream as u64 * ROWS_OF_A_STREAM + within
}

fn title((_, stream, within): Row) -> String {
    match within {
        None => format!("stream {stream}"),
        Some((block, None)) => format!("stream {stream} block {block}"),
        Some((block, Some(warp))) => format!("stream {stream} block {block} warp {warp}"),
    }
}
