//! Sizes and durations as people type them, the same in every command.

use std::time::Duration;

/// Bytes: `65536`, `64K`, `64KiB`, `1G`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let shift = match unit.strip_suffix("iB").unwrap_or(unit) {
        "" if unit.is_empty() => Some(0),
        "K" | "k" => Some(10),
        "M" | "m" => Some(20),
        "G" | "g" => Some(30),
        "T" | "t" => Some(40),
        _ => None,
    };
    let bytes = number.parse::<u64>().ok().zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("`{text}` is no size: expected bytes, as in 4096, 64K, 16M or 1G"))
}

/// A duration, in seconds where it has no unit: `30`, `30s`, `500ms`, `2min`, `0.5h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let seconds = match unit {
        "ms" => Some(1e-3),
        "" | "s" => Some(1.0),
        "min" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let duration = number.parse::<f64>().ok().zip(seconds).and_then(|(number, unit)| Duration::try_from_secs_f64(number * unit).ok());
    duration.ok_or_else(|| format!("`{text}` is no duration: expected seconds, as in 30, or with a unit, as in 500ms, 30s or 2min"))
}

/// A duration that is not zero.
pub(crate) fn duration_above_zero(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|duration| {
        if duration.is_zero() { Err(format!("`{text}` is no time at all: expected more than 0")) } else { Ok(duration) }
    })
}

/// A duration that has a unit, where a plain number might be taken for seconds or for milliseconds.
pub(crate) fn duration_with_unit(text: &str) -> Result<Duration, String> {
    match split(text) {
        (number, "") if !number.is_empty() => Err(format!("`{text}` has no unit: expected {text}ms or {text}s")),
        _ => duration(text),
    }
}

/// A number and what follows it.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["0", "4096", "64K", "64KiB", "16m", "1G", "2T"].map(|text| size(text).unwrap());
        assert_eq!(sizes, [0, 4096, 65536, 65536, 16 << 20, 1 << 30, 2 << 40]);
        for text in ["", "K", "1KB", "1.5G", "-1", "99999999999T", "iB", "1iB"] {
            assert!(size(text).unwrap_err().starts_with(&format!("`{text}` is no size: expected bytes")));
        }
    }

    #[test]
    fn durations_are_seconds_unless_they_say_otherwise() {
        let durations = ["30", "30s", "500ms", "2min", "0.5h", "0"].map(|text| duration(text).unwrap().as_millis());
        assert_eq!(durations, [30_000, 30_000, 500, 120_000, 1_800_000, 0]);
        for text in ["", "s", "1m", "-1", "1e400s", "3 s", "1.2.3"] {
            assert!(duration(text).unwrap_err().starts_with(&format!("`{text}` is no duration: expected seconds")));
        }
        assert_eq!(duration_with_unit("2000").unwrap_err(), "`2000` has no unit: expected 2000ms or 2000s");
        assert_eq!(duration_with_unit("300ms"), Ok(Duration::from_millis(300)));
    }
}
