//! Traces of runs as Chrome's trace events, which <https://ui.perfetto.dev> and chrome://tracing show: one process a rank, one row for what a
//! machine tells apart. (Trace Event Format, Google, 2016: complete events `X` and metadata `M`.)

use std::collections::BTreeMap;

use serde::Serialize;

/// Events in the order in which they were added. Times are microseconds.
#[derive(Clone, Debug, Default)]
pub struct Events {
    events: Vec<Event>,
}

/// An event as the format has it.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Event {
    Complete { name: String, ph: &'static str, pid: usize, tid: u64, ts: f64, dur: f64, args: BTreeMap<&'static str, String> },
    Metadata { name: &'static str, ph: &'static str, pid: usize, tid: u64, args: BTreeMap<&'static str, String> },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    trace_events: &'a [Event],
    display_time_unit: &'static str,
}

impl Events {
    /// Names a rank.
    pub fn name_rank(&mut self, rank: usize) {
        self.metadata("process_name", rank, 0, format!("rank {rank}"));
    }

    /// Names a row of a rank. Rows are shown in the order of their numbers.
    pub fn name_row(&mut self, rank: usize, row: u64, title: String) {
        self.metadata("thread_name", rank, row, title);
    }

    /// What a row did from `begin` to `end`; `at` is where, if that is known.
    pub fn span(&mut self, (rank, row): (usize, u64), name: &str, (begin, end): (f64, f64), at: &str) {
        let args = if at.is_empty() { BTreeMap::new() } else { [("at", at.to_owned())].into() };
        self.events.push(Event::Complete { name: name.to_owned(), ph: "X", pid: rank, tid: row, ts: begin, dur: end - begin, args });
    }

    fn metadata(&mut self, name: &'static str, pid: usize, tid: u64, value: String) {
        self.events.push(Event::Metadata { name, ph: "M", pid, tid, args: [("name", value)].into() });
    }

    /// The JSON document.
    ///
    /// # Errors
    /// Those of `serde_json`, which plain numbers and texts do not have.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&File { trace_events: &self.events, display_time_unit: "ns" })
    }
}
