//! What is said of a soak.

use std::fmt::Write;

use passmuster_harness::conformance::{
    Status, Verdict,
    report::{Record, table},
    soak::{Round, Token},
};

use super::Soaked;
use crate::progress::taken;

/// A round and its parts, for `--list`.
pub(super) fn round(round: &Round) -> String {
    let mut text = format!("{round}\n");
    for (number, part) in round.parts.iter().enumerate() {
        let runs: Vec<String> =
            round.runs.iter().enumerate().filter(|(_, parts)| parts.contains(&number)).map(|(run, _)| run.to_string()).collect();
        let _ = writeln!(text, "  part {number}, scripts {}, streams {:?}: {}", runs.join(" and "), part.streams, part.case);
    }
    text
}

/// What was run, and what was found. `command` is what is typed before `--replay`; `alone` what became of the sequence that failed where it ran by itself.
pub(super) fn soaked(record: &Record<Soaked>, command: &str, alone: Option<&str>) -> String {
    let [soaked] = &record.cases[..] else { return String::new() };
    let mut text = String::new();
    let rows: Vec<Vec<String>> =
        soaked.of_algorithm.iter().map(|(name, calls)| vec![name.clone(), calls.calls.to_string(), size(calls.bytes)]).collect();
    let _ = writeln!(text, "{}", table::aligned(&["algorithm", "calls", "bytes"], 1, &rows));
    if let Some(verdict) = &soaked.verdict {
        text += &found(verdict, command, alone);
        // The emulator has nothing from round to round that one could need.
        if verdict.status.is_finding() && record.machine.kind == "cuda" && soaked.from < number_of(verdict) {
            let _ = writeln!(
                text,
                "  if it takes what came before: {command} --seed {} --from {} --rounds {} --worlds {} --bytes {}\n",
                soaked.seed,
                soaked.from,
                number_of(verdict) - soaked.from + 1,
                soaked.worlds.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
                soaked.most_bytes
            );
        }
    }
    for leak in &soaked.leaks {
        let _ = writeln!(text, "LEAK {leak}");
    }
    let of = |status| record.summary.by_status.get(&status).copied().unwrap_or(0);
    let mut ended = vec![match (record.summary.has_findings(), soaked.leaks.is_empty()) {
        (true, _) => "it diverged".to_owned(),
        (false, false) => "no divergence, but something leaks".into(),
        (false, true) => "no divergence".into(),
    }];
    for status in [Status::NotSupported, Status::Inconclusive, Status::InfraError] {
        ended.extend((of(status) > 0).then(|| format!("{} rounds {status}", of(status))));
    }
    let Soaked { rounds, groups, all, seed, from, .. } = soaked;
    let _ = writeln!(
        text,
        "seed {seed}, rounds {from} to {}: {rounds} rounds, {groups} groups, {} calls, {} in {}: {}",
        from + rounds.saturating_sub(1),
        all.calls,
        size(all.bytes),
        taken(record.seconds.unwrap_or_default()),
        ended.join("; ")
    );
    text
}

/// The number of the round of a verdict.
fn number_of(verdict: &Verdict) -> u64 {
    verdict.case.parse::<Token>().map_or(0, |token| token.number)
}

/// What was found in a round, with the line that runs it again.
fn found(verdict: &Verdict, command: &str, alone: Option<&str>) -> String {
    let mut text = format!("{} {}\n", verdict.status.name().to_uppercase(), verdict.case);
    let _ = writeln!(text, "  {}", verdict.reason);
    for finding in verdict.findings.iter().take(3) {
        if let Some(case) = &finding.case {
            let _ = writeln!(text, "  in         {case}");
        }
        let call = finding.call.map(|call| format!(" call {call}")).unwrap_or_default();
        let place = finding.place.map(|place| format!(", first at {place}")).unwrap_or_default();
        let _ = writeln!(text, "  {}{call}{place}: {}", finding.property, finding.summary);
        for line in finding.details.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    if verdict.findings.len() > 3 {
        let _ = writeln!(text, "  and {} more findings", verdict.findings.len() - 3);
    }
    if let Some(alone) = alone {
        let _ = writeln!(text, "  alone      {alone}");
    }
    if verdict.status != Status::NotSupported {
        let _ = writeln!(text, "  repro      {command} --replay '{}'", verdict.case);
    }
    text
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() / 10).min(UNITS.len() as u32 - 1);
    match unit {
        0 => format!("{bytes} B"),
        unit => format!(
            "{:.1} {}",
            bytes as f64 / f64::from(1u32 << (10 * unit.min(3))) / if unit > 3 { 1024.0 } else { 1.0 },
            UNITS[unit as usize]
        ),
    }
}
