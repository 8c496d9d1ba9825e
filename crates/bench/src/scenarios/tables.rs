//! Tables of products with collectives: a line for each contender, with what it is compared with.

use crate::{
    Estimate, Fsdp, How, Launching, MatmulWorkload, Rendezvous, Scenario, Section, Side, Summary, Table, Timing, size,
    tables::{time_of, with_noise},
};
use passmuster_kernels::all_gather_matmul::{Control, Fused};
use passmuster_plan::algorithms::TensorParallel;

impl Section<'_> {
    /// The tables of one way of launching; none where nothing was timed in it.
    pub(crate) fn of_products(&self, of: &MatmulWorkload, launching: Launching) -> Vec<Table> {
        let timed =
            |size: &u64| self.contenders.iter().any(|name| self.at(*size, name).is_some_and(|timing| launching.of(timing).is_some()));
        if !self.sizes().any(|size| timed(&size)) {
            return Vec::new();
        }
        match of.scenario {
            Scenario::AllGatherMatmul | Scenario::MatmulReduceScatter => {
                std::iter::once(self.parallel(of, launching)).chain(self.explained(launching)).collect()
            }
            Scenario::Overlap => vec![self.overlapping(launching)],
        }
    }

    /// Time, over the best of the peers, over the product alone, and rate.
    fn parallel(&self, of: &MatmulWorkload, launching: Launching) -> Table {
        let mut rows = Vec::new();
        for size in self.sizes() {
            // PyTorch's is a contender like others.
            let nccl = self
                .contenders
                .iter()
                .filter(|name| name.split('+').any(|part| part.starts_with("nccl_")))
                .filter_map(|name| self.at(size, name));
            let nccl = nccl.filter_map(|timing| Some((timing, launching.of(timing)?)));
            let peer = nccl.min_by(|a, b| a.1.median.total_cmp(&b.1.median));
            let floor = self.at(size, "cublas_lt").and_then(|timing| Some((timing, launching.of(timing)?)));
            for timing in self.contenders.iter().filter_map(|name| self.at(size, name)) {
                let times = launching.of(timing).map(|times| (timing, times));
                let ahead = times.zip(peer).filter(|(ours, _)| ours.0.side() != Side::Part).map(|(ours, peer)| ratio(peer, ours));
                let over = times.zip(floor).map(|(ours, floor)| ratio(ours, floor));
                // What copies alone is not counted by products.
                let rate = times.filter(|(timing, times)| times.median > 0.0 && timing.contender != Control::CopiesAlone.name());
                rows.push(vec![
                    timing.contender.clone(),
                    size.to_string(),
                    time_of(timing, launching),
                    ahead.unwrap_or_else(nothing),
                    over.unwrap_or_else(nothing),
                    rate.map_or_else(nothing, |(_, times)| format!("{:.0}", MatmulWorkload { m: size, ..*of }.teraflops(times.median))),
                ]);
            }
        }
        let header = ["contender", "M", "us", "ahead of cuBLASLt + NCCL's best", "over cuBLASLt alone", "TFLOP/s"];
        self.titled(format!("microseconds a call, {}", launching.name()), &header, rows)
    }

    /// What lies between the plain product and the fused one, step by step; none where nobody asked for the controls.
    fn explained(&self, launching: Launching) -> Option<Table> {
        let [set, elsewhere, alone] = Control::ALL.map(Control::name);
        if !Control::ALL.iter().any(|control| self.contenders.contains(&control.name())) {
            return None;
        }
        let (plain, fused) = ("matmul", Fused::COPY_ENGINE.name());
        let row = |size| {
            let cell = |name: &str| self.at(size, name).map_or_else(nothing, |timing| time_of(timing, launching));
            let step = |from: &str, to: &str| {
                let [Some(from), Some(to)] = [from, to].map(|name| self.at(size, name)) else { return nothing() };
                let times = launching.of(from).zip(launching.of(to));
                if times.is_some() && !(from.is_judged() && to.is_judged()) {
                    return "not judged".into();
                }
                times.and_then(|(from, to)| longer_by(from, to)).map_or_else(nothing, difference)
            };
            let steps = [(plain, set), (set, elsewhere), (elsewhere, fused), (plain, fused)].map(|(from, to)| step(from, to));
            [size.to_string(), cell(plain)].into_iter().chain(steps).chain([cell(fused), cell(alone)]).collect()
        };
        let header =
            ["M", "plain product", "order and flags", "copies beside it", "waiting for parts", "all three", "fused", "copies alone"];
        Some(self.titled(
            format!("microseconds from the plain product to the fused one, {}", launching.name()),
            &header,
            self.sizes().map(row).collect(),
        ))
    }

    /// Each alone, one after the other, at once, and how far that is from the longer of the two.
    fn overlapping(&self, launching: Launching) -> Table {
        let mut rows = Vec::new();
        for bytes in self.sizes() {
            let cell = |name: &str| self.at(bytes, name).map_or_else(nothing, |timing| time_of(timing, launching));
            for timing in self.contenders.iter().filter_map(|name| self.at(bytes, name)) {
                let Some(name) = timing.contender.strip_prefix("overlap/") else { continue };
                let gather = name.split('@').next().unwrap_or_default();
                let [alone, sequential] = [How::Gather, How::Sequential].map(|how| format!("{}/{gather}", how.name()));
                let parts = [self.at(bytes, &alone), self.at(bytes, How::Matmul.name())];
                let ideal = match parts {
                    [Some(gather), Some(product)] => launching.of(gather).zip(launching.of(product)).and_then(|(a, b)| longer(a, b)),
                    _ => None,
                };
                let judged = timing.is_judged() && parts.into_iter().flatten().all(Timing::is_judged);
                let both = ideal.as_ref().zip(launching.of(timing));
                let distance = both.and_then(|(ideal, at_once)| ideal.speed_up_over(at_once).filter(|_| judged && ideal.median > 0.0));
                let inside = timing.products.as_ref().filter(|_| launching == Launching::Eager);
                let held = self.at(bytes, &alone).and_then(|timing| timing.held);
                let yes = |held: bool| if held { "yes" } else { "no" };
                rows.push(vec![
                    name.to_owned(),
                    size(bytes),
                    cell(&alone),
                    cell(How::Matmul.name()),
                    cell(&sequential),
                    time_of(timing, launching),
                    inside.map_or_else(nothing, |times| format!("{:.1}", times.median)),
                    ideal.as_ref().map_or_else(nothing, |ideal| format!("{:.1}", ideal.median)),
                    distance.map_or_else(nothing, percent),
                    held.map_or_else(nothing, |held| format!("{} / {}", held.in_place.map_or("-", yes), yes(held.out_of_place))),
                ]);
            }
        }
        let header = [
            "gather",
            "of each rank",
            "gather alone",
            "matmul alone",
            "sequential",
            "at once",
            "matmul inside",
            "ideal",
            "over ideal",
            "done while all SMs are held, in / out of place",
        ];
        self.titled(format!("microseconds, {}", launching.name()), &header, rows)
    }

    /// Steps with communication between the products and beside them, and how often ranks met for all that was timed.
    pub(crate) fn of_steps(&self, launching: Launching) -> Option<Table> {
        let times = |size, name: &str| self.at(size, name).and_then(|timing| Some((timing, launching.of(timing)?)));
        self.sizes().any(|size| self.contenders.iter().any(|name| times(size, name).is_some())).then(|| {
            let mut rows = Vec::new();
            for size in self.sizes() {
                let cell = |name: &str| self.at(size, name).map_or_else(nothing, |timing| time_of(timing, launching));
                let peer = self.best(size, Side::Peer, launching);
                for timing in self.contenders.iter().filter_map(|name| self.at(size, name)) {
                    let Some(name) = timing.contender.strip_prefix("overlap/") else { continue };
                    let sequential = format!("sequential/{name}");
                    let overlapped = times(size, &timing.contender);
                    let over =
                        |other: Option<(&Timing, &Summary)>| other.zip(overlapped).map_or_else(nothing, |(other, own)| ratio(other, own));
                    let inside = timing.products.as_ref().filter(|_| launching == Launching::Eager);
                    let met = timing.rendezvous.map(|Rendezvous { met, steps }| format!("{met} / {steps}"));
                    rows.push(vec![
                        name.to_owned(),
                        size.to_string(),
                        cell(&Fsdp::PRODUCTS.name()),
                        cell(&sequential),
                        time_of(timing, launching),
                        inside.map_or_else(nothing, |times| format!("{:.1}", times.median)),
                        over(times(size, &sequential)),
                        over(peer),
                        met.unwrap_or_else(nothing),
                    ]);
                }
            }
            let header = [
                "communication",
                "M",
                "products alone",
                "sequential",
                "overlapped",
                "products inside",
                "over sequential",
                "over NCCL's best",
                "rendezvous / steps",
            ];
            self.titled(format!("microseconds a step, {}", launching.name()), &header, rows)
        })
    }

    /// What hosts that wait for each batch take, and those that wait at the end: a line for each.
    pub(crate) fn of_pipelines(&self, launching: Launching) -> Option<Table> {
        let times = |size, name: &str| self.at(size, name).and_then(|timing| Some((timing, launching.of(timing)?)));
        self.sizes().any(|size| self.contenders.iter().any(|name| times(size, name).is_some())).then(|| {
            let mut rows = Vec::new();
            for bytes in self.sizes() {
                for timing in self.contenders.iter().filter_map(|name| self.at(bytes, name)) {
                    let blocking = timing.contender.split_once('/').filter(|(order, _)| *order != "blocking");
                    let blocking = blocking.map(|(_, name)| format!("blocking/{name}"));
                    let over = blocking.and_then(|name| times(bytes, &name)).zip(times(bytes, &timing.contender));
                    let waits = timing.waits.as_ref();
                    rows.push(vec![
                        timing.contender.clone(),
                        size(bytes),
                        time_of(timing, launching),
                        over.map_or_else(nothing, |(other, own)| ratio(other, own)),
                        waits.map_or_else(nothing, |waits| with_noise(&waits.blocked)),
                        waits.map_or_else(nothing, |waits| format!("{} of {}", waits.not_there, waits.looked)),
                    ]);
                }
            }
            let header = ["contender", "of each rank", "us", "over blocking", "host blocked, us", "not there when looked for"];
            self.titled(format!("microseconds for all batches, {}", launching.name()), &header, rows)
        })
    }

    fn titled(&self, what: String, header: &[&str], rows: Vec<Vec<String>>) -> Table {
        let header = header.iter().map(|&name| name.to_owned()).collect();
        Table { title: format!("{}: {what}", self.name()), header, left: 1, rows }
    }
}

fn nothing() -> String {
    "-".into()
}

/// The longer of the two in each round.
fn longer(a: &Summary, b: &Summary) -> Option<Summary> {
    let rounds: Vec<Vec<f64>> = a.rounds.iter().zip(&b.rounds).map(|(a, b)| vec![a.max(*b)]).collect();
    Summary::of(&rounds)
}

/// By how much the second took longer than the first, round by round.
fn longer_by(from: &Summary, to: &Summary) -> Option<Estimate> {
    let rounds: Vec<Vec<f64>> = from.rounds.iter().zip(&to.rounds).map(|(from, to)| vec![to - from]).collect();
    Summary::of(&rounds).map(|differences| differences.estimate())
}

/// Microseconds more or less, with their noise.
fn difference(Estimate { value, interval }: Estimate) -> String {
    let noise = interval.map(|(low, high)| format!(" ±{:.2}", (high - value).max(value - low))).unwrap_or_default();
    format!("{value:+.2}{noise}")
}

/// How many times as long the first took as the second. Of what was not judged in the same run it is not said.
fn ratio((long, theirs): (&Timing, &Summary), (short, ours): (&Timing, &Summary)) -> String {
    if !(long.is_judged() && short.is_judged()) {
        return "not judged".into();
    }
    // The emulator's library calls take no time.
    if ours.median == 0.0 || theirs.median == 0.0 {
        return nothing();
    }
    let Estimate { value, interval } =
        ours.speed_up_over(theirs).unwrap_or(Estimate { value: theirs.median / ours.median, interval: None });
    let noise = interval.map(|(low, high)| format!(" [{low:.2}, {high:.2}]")).unwrap_or_default();
    format!("{value:.2}x{noise}")
}

/// By how much a ratio is above 1.
fn percent(ratio: Estimate) -> String {
    let of = |ratio: f64| format!("{:+.1} %", 100.0 * (ratio - 1.0));
    let noise = ratio.interval.map(|(low, high)| format!(" [{}, {}]", of(low), of(high))).unwrap_or_default();
    format!("{}{noise}", of(ratio.value))
}
