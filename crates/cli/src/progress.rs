//! How far a run is, and how long it takes.

use std::{
    io::IsTerminal,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use passmuster_harness::conformance::counted;

/// After how long a run whose progress is no bar on a terminal says how far it is.
const NOW_AND_THEN: Duration = Duration::from_secs(30);

/// How far a run of `items` items is that take about the same time: a bar on a terminal, elsewhere a line now and then on standard error.
pub(crate) fn progress_bar(items: usize) -> ProgressBar {
    let bar = bar(items as u64, "{elapsed_precise} {bar:40} {pos}/{len} {eta} left {msg}");
    now_and_then(&bar, move |bar| how_far((bar.position(), items as u64), share(bar), bar.elapsed().as_secs_f64()));
    bar
}

/// How far a run is whose items take different times: what is left is estimated from their costs, not from their number.
pub(crate) struct Progress<'c> {
    bar: ProgressBar,
    costs: &'c [f64],
    done: Arc<AtomicU64>,
    found: Arc<AtomicU64>,
}

/// How many findings there are so far, if any.
pub(crate) fn findings(number: usize) -> String {
    if number == 0 { String::new() } else { counted(number, "finding") }
}

impl<'c> Progress<'c> {
    /// Of items with these costs, in any unit.
    pub(crate) fn of(costs: &'c [f64]) -> Progress<'c> {
        let (all, items) = (costs.iter().sum::<f64>() * PARTS, costs.len() as u64);
        let [done, found] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let bar = bar(all.ceil().max(1.0) as u64, "{elapsed_precise} {bar:40} {msg} {eta} left");
        let known = [done.clone(), found.clone()];
        now_and_then(&bar, move |bar| {
            let [done, found] = [&known[0], &known[1]].map(|of| of.load(Ordering::Relaxed));
            let so_far = how_far((done, items), share(bar), bar.elapsed().as_secs_f64());
            if found > 0 { format!("{so_far}; {}", findings(found as usize)) } else { so_far }
        });
        bar.set_message(format!("0/{items}"));
        Progress { bar, costs, done, found }
    }

    /// One more is done.
    pub(crate) fn done(&self, index: usize) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let found = findings(self.found.load(Ordering::Relaxed) as usize);
        self.bar.set_message(format!("{done}/{} {found}", self.costs.len()).trim_end().to_owned());
        self.bar.inc((self.costs[index] * PARTS) as u64);
    }

    /// Has the bar out of the way of what is printed.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// One more has a finding.
    pub(crate) fn found(&self) {
        self.found.fetch_add(1, Ordering::Relaxed);
    }

    /// All are done.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Steps of a bar for a unit of what something takes.
const PARTS: f64 = 1000.0;

/// A bar of a form, which nobody sees where there is no terminal.
fn bar(length: u64, form: &str) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(length)
    } else {
        ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden())
    };
    bar.set_style(ProgressStyle::with_template(form).expect("a valid template"));
    bar
}

/// Which share of a bar is done.
fn share(bar: &ProgressBar) -> f64 {
    bar.position() as f64 / bar.length().unwrap_or(1).max(1) as f64
}

/// Where there is no terminal, says a line from time to time, as long as there is the bar.
fn now_and_then(bar: &ProgressBar, line: impl Fn(&ProgressBar) -> String + Send + 'static) {
    if std::io::stderr().is_terminal() {
        return;
    }
    let bar = bar.downgrade();
    thread::spawn(move || {
        loop {
            thread::sleep(NOW_AND_THEN);
            let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) else { break };
            eprintln!("{}", line(&bar));
        }
    });
}

/// How far a run is after `seconds` seconds, when a share of its work is done.
fn how_far((done, of): (u64, u64), share: f64, seconds: f64) -> String {
    let left = if share > 0.0 { format!(", about {} left", rounded(seconds / share * (1.0 - share).max(0.0))) } else { String::new() };
    format!("{done} of {of} after {}{left}", taken(seconds))
}

/// A time that was measured.
pub(crate) fn taken(seconds: f64) -> String {
    match seconds {
        ..9.95 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        _ => format!("{} min {:02} s", seconds as u64 / 60, seconds as u64 % 60),
    }
}

/// A time of which only the size is known.
pub(crate) fn rounded(seconds: f64) -> String {
    match seconds {
        ..95.0 => format!("{:.0} s", (seconds / 5.0).ceil() * 5.0),
        ..5400.0 => format!("{:.0} min", (seconds / 60.0).ceil()),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_long_as_they_are_known() {
        assert_eq!([12.0, 100.0, 7200.0].map(rounded), ["15 s", "2 min", "2.0 h"]);
        assert_eq!(how_far((120, 360), 0.25, 60.0), "120 of 360 after 60 s, about 3 min left");
        assert_eq!(how_far((0, 360), 0.0, 30.0), "0 of 360 after 30 s");
    }

    /// If this fails, a run whose last cases take longest says until then that it is about to end.
    #[test]
    fn what_is_left_goes_by_what_items_take() {
        let costs = [1.0, 1.0, 1.0, 0.0, 17.0];
        let progress = Progress::of(&costs);
        (0..4).for_each(|index| progress.done(index));
        assert_eq!((share(&progress.bar), progress.bar.message()), (0.15, "4/5".to_owned()));
        assert_eq!(how_far((4, 5), share(&progress.bar), 60.0), "4 of 5 after 60 s, about 6 min left");
        progress.done(4);
        assert_eq!(share(&progress.bar), 1.0);
    }
}
