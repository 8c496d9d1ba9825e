//! Mismatches and differences for people: aligned columns, indented by two.

use std::fmt;

use super::{Difference, ElementPos, Mismatch, Sample, short};

impl fmt::Display for ElementPos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner.map(|owner| format!(", owner rank {owner}")).unwrap_or_default();
        write!(f, "i={} (byte {}, pack {} lane {}{owner})", self.index, self.byte, self.pack, self.lane)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agree = if self.ranks.len() < 2 {
            ""
        } else if self.ranks_agree {
            " (all ranks agree)"
        } else {
            " (ranks differ)"
        };
        let ranks = if self.ranks.len() == 1 { "rank" } else { "ranks" };
        writeln!(f, "  {} of {} elements wrong on {ranks} {}{agree}", self.wrong, self.total, spans(&self.ranks))?;
        writeln!(f, "  judged      {}", self.judged)?;
        writeln!(f, "  first wrong {}", self.first)?;
        writeln!(f, "  last wrong  {}{}", self.last, self.extent())?;
        table(f, &self.sample_rows())?;
        for (i, diagnosis) in self.diagnosis.iter().enumerate() {
            writeln!(f, "  {:<11} {diagnosis}", if i == 0 { "diagnosis" } else { "or" })?;
        }
        if self.diagnosis.is_empty() {
            writeln!(f, "  diagnosis   none of the known causes")?;
        }
        if !self.ruled_out.is_empty() {
            writeln!(f, "  ruled out   {}", self.ruled_out.join(", "))?;
        }
        Ok(())
    }
}

impl Mismatch {
    /// One line: how much is wrong, and the best explanation.
    pub fn summary(&self) -> String {
        let cause = self.diagnosis.first().map(|diagnosis| format!(": {diagnosis}")).unwrap_or_default();
        let ranks = if self.ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{} of {} elements wrong on {ranks} {}{cause}", self.wrong, self.total, spans(&self.ranks))
    }

    /// What the first and the last wrong element have in common.
    fn extent(&self) -> String {
        let contiguous = self.last.index - self.first.index + 1 == self.wrong && self.wrong > 1;
        let place = if self.first.index == self.last.index {
            return String::new();
        } else if self.first.pack == self.last.pack {
            format!("all in pack {}", self.first.pack)
        } else if let (Some(owner), true) = (self.first.owner, self.first.owner == self.last.owner) {
            format!("all in rank {owner}'s slice")
        } else if contiguous {
            return "   contiguous".into();
        } else {
            return String::new();
        };
        format!("   {place}{}", if contiguous { ", contiguous" } else { "" })
    }

    fn sample_rows(&self) -> Vec<Vec<String>> {
        let last = self.samples.first().map_or(0, |sample| sample.inputs.len().saturating_sub(1));
        let copied = self.samples.iter().any(|sample| sample.from > 0);
        let inputs = match last {
            0 if copied => "input".into(),
            0 => "input r0".into(),
            _ => format!("inputs r0..r{last}"),
        };
        let header = ["i", "rank", "expected", "", "got", "", "err", "err/bound"].map(str::to_owned);
        let mut rows = vec![header.into_iter().chain([inputs]).collect()];
        rows.extend(self.samples.iter().map(|sample| sample_row(sample, copied)));
        rows
    }
}

/// A row of the table. Where elements are `copied`, it says whose.
fn sample_row(sample: &Sample, copied: bool) -> Vec<String> {
    let whose = if copied { format!("r{}: ", sample.from) } else { String::new() };
    let error = match (sample.error, sample.ulps) {
        (Some(error), Some(ulps)) => format!("{} ({} ulp)", short(error), short(ulps)),
        _ => "-".into(),
    };
    let ratio = match sample.error {
        Some(error) if sample.bound > 0.0 => short(error / sample.bound),
        _ if sample.bound > 0.0 => "-".into(),
        _ => "∞ (exact)".into(),
    };
    vec![
        sample.index.to_string(),
        sample.rank.to_string(),
        sample.expected.bits.clone(),
        sample.expected.value.clone(),
        sample.got.bits.clone(),
        sample.got.value.clone(),
        error,
        ratio,
        whose + &sample.inputs.join(" "),
    ]
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = if self.ranks.is_empty() { String::new() } else { format!(" on ranks {} from rank 0", spans(&self.ranks)) };
        writeln!(f, "  {} of {} elements differ{ranks}; required: {}", self.wrong, self.total, self.relation)?;
        writeln!(f, "  first       {}", self.first)?;
        writeln!(f, "  last        {}", self.last)?;
        let mut rows = vec![["i", "expected", "", "got", ""].map(str::to_owned).to_vec()];
        rows.extend(
            self.samples.iter().map(|(index, want, got)| {
                vec![index.to_string(), want.bits.clone(), want.value.clone(), got.bits.clone(), got.value.clone()]
            }),
        );
        table(f, &rows)
    }
}

/// `0-2,5` for 0, 1, 2, 5.
fn spans(ranks: &[u32]) -> String {
    ranks
        .chunk_by(|a, b| a + 1 == *b)
        .map(|span| if span.len() == 1 { span[0].to_string() } else { format!("{}-{}", span[0], span[span.len() - 1]) })
        .collect::<Vec<_>>()
        .join(",")
}

/// Rows as columns two spaces apart, the last one ragged.
fn table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(f, "  {}", line.join("  ").trim_end())?;
    }
    Ok(())
}
