//! What docs/emulator/races.md says of the order of kernels towards other ranks: what GPUs showed.

use std::fmt::Write;

use anyhow::ensure;
use passmuster_harness::ledger::orders::{OrderRow, ROWS};

use super::committed::Committed;

/// The record of GPUs.
const RECORD: &str = "h200x4-orders";

/// A row for each kind of order and each number of ranks.
pub(super) fn table(committed: &Committed) -> anyhow::Result<String> {
    let record = committed.record::<OrderRow>(RECORD)?;
    let mut text = String::from("| what orders the words | assumption | ranks | words read | late words |\n|---|---|---|---|---|\n");
    for row in &record.cases {
        let known = ROWS.iter().any(|known| (known.name, known.assumption) == (&*row.row, row.assumption.as_deref()));
        ensure!(known, "`{}` is no row of `ledger --orders` any more: measure again", row.row);
        let assumption = row.assumption.as_ref().map_or_else(|| "none".into(), |assumption| format!("`{assumption}`"));
        writeln!(text, "| {} | {assumption} | {} | {:.1e} | {} |", row.row, row.world, row.reads as f64, row.stale)?;
    }
    writeln!(text, "\nOn {}.", record.machine.gpu)?;
    Ok(text)
}
