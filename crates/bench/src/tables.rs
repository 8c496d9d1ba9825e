//! Tables of timings: a line for each size, a column for each contender, and last how our best stands to NCCL's best.

use std::collections::{BTreeMap, BTreeSet};

use super::{Estimate, IN_PROCESSES, Side, Standing, Summary, Timing, Workload};
use passmuster_harness::conformance::{Status, report::table};
use passmuster_plan::machine::MachineInfo;

/// How the calls of a table were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launching {
    /// In a captured graph.
    Graph,
    /// By the host, one by one.
    Eager,
}

impl Launching {
    /// Both, in the order of reports.
    pub const ALL: [Launching; 2] = [Launching::Graph, Launching::Eager];

    /// The times of calls that were made in this way.
    pub fn of(self, timing: &Timing) -> Option<&Summary> {
        match self {
            Launching::Graph => timing.microseconds.as_ref(),
            Launching::Eager => timing.eager.as_ref(),
        }
    }

    /// For titles.
    pub const fn name(self) -> &'static str {
        match self {
            Launching::Graph => "in a graph",
            Launching::Eager => "eager",
        }
    }
}

/// A table, to be written as text or Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it shows, in which unit.
    pub title: String,
    /// Names of the columns.
    pub header: Vec<String>,
    /// How many columns, from the first on, are flush left.
    pub left: usize,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Columns with aligned edges, the title above.
    pub fn aligned(&self) -> String {
        let header: Vec<&str> = self.header.iter().map(String::as_str).collect();
        format!("{}\n{}\n", self.title, table::aligned(&header, self.left, &self.rows))
    }

    /// A Markdown table, the title above.
    pub fn markdown(&self) -> String {
        let line =
            |cells: &[String]| format!("| {} |\n", cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | "));
        let edge = |at: usize| if at < self.left { "---" } else { "---:" }.to_owned();
        let edges: Vec<String> = (0..self.header.len()).map(edge).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}\n\n{}{}{rows}", self.title, line(&self.header), line(&edges))
    }
}

/// The timings of one world size, and what goes with them. Borrowed from a record.
pub struct Section<'a> {
    /// What all of them have in common; its size is 0.
    pub workload: Workload,
    /// Names of the contenders in the order in which they come.
    pub contenders: Vec<&'a str>,
    /// By size and contender.
    cells: BTreeMap<u64, BTreeMap<&'a str, &'a Timing>>,
}

/// Timings by what they have in common but for size and contender, in the order of collectives and world sizes.
pub fn sections(timings: &[Timing]) -> Vec<Section<'_>> {
    let of = |timing: &Timing| timing.workload.with_size(0);
    let keys: BTreeSet<Workload> = timings.iter().map(of).collect();
    let section = |workload| {
        let mut section = Section { workload, contenders: Vec::new(), cells: BTreeMap::new() };
        for timing in timings.iter().filter(|timing| of(timing) == workload) {
            if !section.contenders.contains(&timing.contender.as_str()) {
                section.contenders.push(&timing.contender);
            }
            section.cells.entry(timing.workload.size()).or_default().insert(&timing.contender, timing);
        }
        section
    };
    keys.into_iter().map(section).collect()
}

impl<'a> Section<'a> {
    /// `all_reduce bf16 sum, w=8`.
    pub fn name(&self) -> String {
        self.workload.title()
    }

    /// Sizes, ascending.
    pub fn sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.cells.keys().copied()
    }

    /// A contender at a size.
    pub fn at(&self, bytes: u64, contender: &str) -> Option<&'a Timing> {
        self.cells.get(&bytes)?.get(contender).copied()
    }

    /// The fastest of one side at a size.
    pub fn best(&self, size: u64, side: Side, launching: Launching) -> Option<(&'a Timing, &'a Summary)> {
        let of_side = self.cells.get(&size)?.values().filter(|timing| timing.side() == side);
        let timed = of_side.filter_map(|&timing| Some((timing, launching.of(timing)?)));
        timed.min_by(|a, b| a.1.median.total_cmp(&b.1.median))
    }

    /// Times of every contender, and our best over NCCL's best. `hidden` is the row length in elements where sizes are rows of tokens.
    pub fn times(&self, launching: Launching, hidden: Option<u64>) -> Option<Table> {
        let any = self.cells.values().flat_map(BTreeMap::values).any(|timing| launching.of(timing).is_some());
        any.then(|| {
            let cell = |timing: &Timing| time_of(timing, launching);
            let mut table = self.table(format!("microseconds a call, {}", launching.name()), hidden, cell);
            table.header.push("best of ours".into());
            for (row, bytes) in table.rows.iter_mut().zip(self.sizes()) {
                row.push(self.standing(bytes, launching));
            }
            table
        })
    }

    /// All tables of the section.
    pub fn tables(&self, machine: &MachineInfo, hidden: Option<u64>) -> Vec<Table> {
        let of_launching = |launching| match self.workload {
            Workload::Collective(_) => self.times(launching, hidden).into_iter().collect(),
            Workload::Matmul(of) => self.of_products(&of, launching),
            Workload::Fsdp(_) => self.of_steps(launching).into_iter().collect(),
            Workload::Pipeline(_) => self.of_pipelines(launching).into_iter().collect(),
        };
        let mut tables: Vec<Table> = Launching::ALL.into_iter().flat_map(of_launching).collect();
        if let Workload::Collective(_) = self.workload {
            tables.extend(Launching::ALL.into_iter().filter_map(|launching| self.processes_over_threads(launching, hidden)));
            tables.push(self.bandwidths(hidden));
            tables.extend(self.wire(machine, hidden));
        }
        tables
    }

    /// How many times as long calls take with ranks in processes of their own as with ranks in threads, of algorithms that were timed in both ways: compared round
    /// by round, and last the largest of each. `None` where there is nothing to compare. As with speed-ups, both must have been judged in the same run.
    pub fn processes_over_threads(&self, launching: Launching, hidden: Option<u64>) -> Option<Table> {
        let contenders: Vec<&str> = self.contenders.iter().copied().filter(|name| name.ends_with(IN_PROCESSES)).collect();
        let ratio = |timing: &Timing| {
            let threads = self.at(timing.workload.size(), timing.contender.strip_suffix(IN_PROCESSES)?)?;
            let ratio = launching.of(threads)?.speed_up_over(launching.of(timing)?)?;
            // Times of 0, as the emulator has them, have no ratio.
            (threads.is_judged() && timing.is_judged() && ratio.value.is_finite() && ratio.value > 0.0).then_some(ratio)
        };
        let largest = |name: &&str| {
            let ratios = self.sizes().filter_map(|size| Some(ratio(self.at(size, name)?)?.value));
            ratios.max_by(f64::total_cmp)
        };
        let largest: Vec<Option<f64>> = contenders.iter().map(largest).collect();
        largest.iter().any(Option::is_some).then(|| {
            let cell = |timing: &Timing| ratio(timing).map_or_else(|| "-".into(), |ratio| times(&ratio));
            let what = format!("time with ranks in processes over that in threads, {}", launching.name());
            let mut table = self.table_of(&contenders, what, hidden, cell);
            table.header.iter_mut().for_each(|name| name.truncate(name.trim_end_matches(IN_PROCESSES).len()));
            let label = hidden.map(|_| String::new()).into_iter().chain(["largest".to_owned()]);
            let cells = largest.iter().map(|ratio| ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}")));
            table.rows.push(label.chain(cells).collect());
            table
        })
    }

    /// Bandwidths of every contender as nccl-tests defines them, in a graph.
    pub fn bandwidths(&self, hidden: Option<u64>) -> Table {
        let cell = |timing: &Timing| timing.algbw_busbw.map_or_else(|| "-".into(), |(alg, bus)| format!("{alg:.1} / {bus:.1}"));
        self.table("algbw / busbw, GB/s, in a graph".into(), hidden, cell)
    }

    /// What crosses the links, of contenders that say, in a graph.
    pub fn wire(&self, machine: &MachineInfo, hidden: Option<u64>) -> Option<Table> {
        let limit = link_limit(machine);
        let cell = |timing: &Timing| match (&timing.wire, &limit) {
            (Some(wire), Some(limit)) => format!("{:.1} ({:.1} %)", wire.gbps, 100.0 * wire.gbps / limit.gbps),
            (Some(wire), None) => format!("{:.1}", wire.gbps),
            (None, _) => "-".into(),
        };
        let of = limit.as_ref().map(|limit| format!(" (of {})", limit.name())).unwrap_or_default();
        let any = self.cells.values().flat_map(BTreeMap::values).any(|timing| timing.wire.is_some());
        any.then(|| self.table(format!("GB/s over the busiest link, flags included, in a graph{of}"), hidden, cell))
    }

    /// A size in bytes as rows of `hidden` elements: `(4, 8192)`; `None` where it is no whole number of them.
    pub(super) fn tokens(&self, bytes: u64, hidden: u64) -> Option<String> {
        let row = hidden * self.workload.dtype().size();
        bytes.is_multiple_of(row).then(|| format!("({}, {hidden})", bytes / row))
    }

    fn table(&self, what: String, hidden: Option<u64>, cell: impl Fn(&Timing) -> String) -> Table {
        self.table_of(&self.contenders, what, hidden, cell)
    }

    /// With columns for some contenders.
    fn table_of(&self, contenders: &[&str], what: String, hidden: Option<u64>, cell: impl Fn(&Timing) -> String) -> Table {
        let first = hidden.map(|hidden| format!("(tokens, {hidden})"));
        let labels = first.into_iter().chain([self.workload.unit().to_owned()]);
        let row = |(&bytes, cells): (&u64, &BTreeMap<&str, &Timing>)| {
            let shape = hidden.map(|hidden| self.tokens(bytes, hidden).unwrap_or_else(|| "-".into()));
            let of = |name: &&str| cells.get(name).map_or_else(|| "-".into(), |timing| cell(timing));
            shape.into_iter().chain([self.workload.with_size(bytes).size_name()]).chain(contenders.iter().map(of)).collect()
        };
        Table {
            title: format!("{}: {what}", self.name()),
            left: 1,
            header: labels.chain(contenders.iter().map(|&name| name.to_owned())).collect(),
            rows: self.cells.iter().map(row).collect(),
        }
    }

    /// How our best stands to NCCL's best. A speed-up stands there only where both were judged in the same run.
    fn standing(&self, bytes: u64, launching: Launching) -> String {
        let Standing { ours, peer, ahead, .. } = Standing::of(self, bytes, launching);
        match (ours, peer, ahead) {
            (None, _, _) => "-".into(),
            (Some((ours, _)), None, _) => ours.contender.clone(),
            (Some((ours, _)), Some(_), None) => format!("{} (not judged)", ours.contender),
            (Some((ours, _)), Some((peer, _)), Some(ahead)) => {
                let noise = ahead.interval.map(|(low, high)| format!(" [{low:.2}, {high:.2}]")).unwrap_or_default();
                format!("{} {:.2}x{noise} over {}", ours.contender, ahead.value, peer.contender)
            }
        }
    }
}

/// All tables of some timings, as the terminal has them.
pub fn tables(timings: &[Timing], machine: &MachineInfo, hidden: Option<u64>) -> Vec<Table> {
    sections(timings).iter().flat_map(|section| section.tables(machine, hidden)).collect()
}

/// A time of one way of launching, or why there is none.
pub(super) fn time_of(timing: &Timing, launching: Launching) -> String {
    launching.of(timing).map_or_else(|| no_time(timing), |times| time(timing, times))
}

/// A time with its noise: the farther end of the interval.
fn time(timing: &Timing, times: &Summary) -> String {
    format!("{}{}", with_noise(times), if timing.status.is_finding() { format!(" {}", no_time(timing)) } else { String::new() })
}

/// A figure, and the farther end of its interval.
pub(super) fn with_noise(times: &Summary) -> String {
    let Estimate { value, interval } = times.estimate();
    let noise = interval.map(|(low, high)| format!(" ±{:.2}", (high - value).max(value - low))).unwrap_or_default();
    format!("{value:.2}{noise}")
}

/// A ratio of times, and where it lies with 95 % confidence.
fn times(ratio: &Estimate) -> String {
    let noise = ratio.interval.map(|(low, high)| format!(" [{low:.3}, {high:.3}]")).unwrap_or_default();
    format!("{:.3}{noise}", ratio.value)
}

/// Why there is no time, in a word.
fn no_time(timing: &Timing) -> String {
    match timing.status {
        Status::Pass | Status::NotSupported => "-".into(),
        status if status.is_finding() => status.name().to_uppercase(),
        status => status.name().into(),
    }
}

/// `64 KiB`, where it is a whole number of them.
pub fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    fits.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

/// What the links of one GPU can carry in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkLimit {
    /// GB/s.
    pub gbps: f64,
    /// Who says so.
    pub source: &'static str,
}

impl LinkLimit {
    /// `478 GB/s as the driver tells`.
    pub fn name(&self) -> String {
        format!("{:.0} GB/s {}", self.gbps, self.source)
    }
}

/// The limit that the machine tells, else that of the data sheet of its GPUs.
pub fn link_limit(machine: &MachineInfo) -> Option<LinkLimit> {
    let told = machine.link_gbps.map(|gbps| LinkLimit { gbps, source: "as the driver tells" });
    // NVLink 4: 900 GB/s in both directions together.
    let hopper = ["H100", "H200", "H800", "H20"].iter().any(|name| machine.gpu.split_whitespace().any(|word| word == *name));
    told.or_else(|| hopper.then_some(LinkLimit { gbps: 450.0, source: "by the data sheet" }))
}
