//! How long a run took, and by which clock.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How long a run took, by the clock of its machine.
///
/// ```
/// use passmuster_plan::machine::Elapsed;
///
/// assert_eq!(Elapsed::WallMs(300).to_string(), "300 ms");
/// assert_eq!(Elapsed::EmulatedNs(1998).to_string(), "1.998 us of emulated time");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Elapsed {
    /// Milliseconds of wall time: GPUs.
    WallMs(u64),
    /// Nanoseconds of emulated time, which orders events and measures nothing.
    EmulatedNs(u64),
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = match *self {
            Elapsed::WallMs(ms) => return write!(f, "{ms} ms"),
            Elapsed::EmulatedNs(ns) => ns,
        };
        let (number, unit) = match ns {
            0..1_000 => (ns.to_string(), "ns"),
            1_000..1_000_000 => (thousandths(ns), "us"),
            _ => (thousandths(ns / 1_000), "ms"),
        };
        write!(f, "{number} {unit} of emulated time")
    }
}

/// A thousandth of a number, without zeros at its end.
fn thousandths(number: u64) -> String {
    let text = format!("{}.{:03}", number / 1_000, number % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a hang on the emulator is again one "after 0 ms", or the time of a GPU has a wrong clock.
    #[test]
    fn each_clock_has_its_units() {
        let text = |ns| Elapsed::EmulatedNs(ns).to_string();
        assert_eq!(
            [0, 999, 1_000, 1_998, 999_999, 1_500_000, 2_000_000_123].map(text),
            ["0 ns", "999 ns", "1 us", "1.998 us", "999.999 us", "1.5 ms", "2000 ms"].map(|text| format!("{text} of emulated time"))
        );
        assert_eq!(Elapsed::WallMs(0).to_string(), "0 ms");
    }

    /// If this fails, who reads a hang's JSON cannot tell emulated time from wall time.
    #[test]
    fn json_names_the_clock() {
        let json = |after: Elapsed| serde_json::to_string(&after).unwrap();
        assert_eq!([json(Elapsed::WallMs(3)), json(Elapsed::EmulatedNs(5))], [r#"{"wall_ms":3}"#, r#"{"emulated_ns":5}"#]);
    }
}
