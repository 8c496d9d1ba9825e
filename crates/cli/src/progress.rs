//! How far a run is, and how long it takes.

use std::{io::IsTerminal, thread, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// After how long a run whose progress is no bar on a terminal says how far it is.
const NOW_AND_THEN: Duration = Duration::from_secs(30);

/// How far a run of so many is: a bar on a terminal, elsewhere a line now and then on standard error.
pub(crate) fn progress_bar(items: usize) -> ProgressBar {
    let on_terminal = std::io::stderr().is_terminal();
    let bar = if on_terminal {
        ProgressBar::new(items as u64)
    } else {
        ProgressBar::with_draw_target(Some(items as u64), ProgressDrawTarget::hidden())
    };
    bar.set_style(ProgressStyle::with_template("{elapsed_precise} {bar:40} {pos}/{len} {eta} left {msg}").expect("a valid template"));
    if !on_terminal {
        // Ends with the bar.
        let bar = bar.downgrade();
        thread::spawn(move || {
            loop {
                thread::sleep(NOW_AND_THEN);
                let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) else { break };
                eprintln!("{}", how_far(bar.position(), items as u64, bar.elapsed().as_secs_f64()));
            }
        });
    }
    bar
}

/// How far a run is after so many seconds.
fn how_far(done: u64, of: u64, seconds: f64) -> String {
    let left =
        if done == 0 { String::new() } else { format!(", about {} left", rounded(seconds / done as f64 * (of - done.min(of)) as f64)) };
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
        assert_eq!(how_far(120, 360, 60.0), "120 of 360 after 60 s, about 2 min left");
        assert_eq!(how_far(0, 360, 30.0), "0 of 360 after 30 s");
    }
}
