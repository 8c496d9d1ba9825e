//! Traces of timed calls, from the times of the devices' events.

use std::collections::BTreeSet;

use super::{Span, Workload};
use passmuster_plan::machine::trace::Events;

/// Microseconds between one call and the next: calls were made one at a time, and are shown one after the other.
const GAP: f64 = 10.0;

/// One call of each contender, operation by operation, for <https://ui.perfetto.dev>: one process a rank, one row a stream. Each call begins
/// where its ranks had met; they leave a meeting up to about a microsecond apart, and what a rank took to note the time is between its operations.
///
/// # Errors
/// Those of `serde_json`, which plain numbers and texts do not have.
pub fn trace(calls: &[(&str, Workload, Vec<Vec<Span>>)]) -> serde_json::Result<String> {
    let mut events = Events::default();
    let world = calls.iter().map(|(_, _, ranks)| ranks.len()).max().unwrap_or(0);
    for rank in 0..world {
        events.name_rank(rank);
        let streams: BTreeSet<usize> = calls.iter().filter_map(|(_, _, ranks)| ranks.get(rank)).flatten().map(|span| span.stream).collect();
        streams.into_iter().for_each(|stream| events.name_row(rank, stream as u64, format!("stream {stream}")));
    }
    let mut now = 0.0;
    for (contender, workload, ranks) in calls {
        let end = ranks.iter().flatten().map(|span| span.end).fold(0.0, f64::max);
        let of = format!("{}/{contender} w={} {}", workload.kind(), workload.world(), workload.size_name());
        for (rank, spans) in ranks.iter().enumerate() {
            spans.iter().for_each(|span| events.span((rank, span.stream as u64), &span.name, (now + span.begin, now + span.end), &of));
        }
        now += end + GAP;
    }
    events.json()
}
