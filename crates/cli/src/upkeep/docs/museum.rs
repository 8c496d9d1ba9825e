//! What museum/README.md and README.md say of the museum, from its records on the emulator and on GPUs.

use std::{collections::BTreeMap, fmt::Write};

use anyhow::ensure;
use passmuster_harness::emulator::Interleaving;

use super::committed::Committed;
use crate::museum::{self, Outcome};

const ON_THE_EMULATOR: &str = "emulator-museum";

/// The museum on GPUs, and what came into it later.
const ON_GPUS: [&str; 2] = ["h100x2-museum", "h100x2-museum-7c308bfe"];

/// Outcomes by their entries.
type ByEntry = BTreeMap<String, Outcome>;

/// The outcomes of the record on the emulator, and those on GPUs by entry.
fn recorded(committed: &Committed) -> anyhow::Result<(Vec<Outcome>, ByEntry)> {
    let mut gpus = ByEntry::new();
    for name in ON_GPUS {
        gpus.extend(committed.record::<Outcome>(name)?.cases.into_iter().map(|outcome| (outcome.entry.clone(), outcome)));
    }
    Ok((committed.record::<Outcome>(ON_THE_EMULATOR)?.cases, gpus))
}

/// A row for each entry: the bug, where it was reported, what it is found as, how fast, and what GPUs say.
pub(super) fn table(committed: &Committed) -> anyhow::Result<String> {
    let (emulated, gpus) = recorded(committed)?;
    let entries = museum::entries(committed.root())?;
    let recorded = emulated.iter().map(|outcome| &*outcome.entry);
    ensure!(recorded.eq(entries.keys().map(String::as_str)), "{ON_THE_EMULATOR}.json has not the entries that there are");
    let mut text = String::from("| bug | reported | found as | seconds | schedule | GPUs find |\n|---|---|---|---|---|---|\n");
    for (outcome, (name, entry)) in emulated.iter().zip(&entries) {
        ensure!(outcome.kernels == museum::kernels(committed.root(), name)?, "{ON_THE_EMULATOR}.json is of other kernels of {name}");
        let links: Vec<String> = entry.source.iter().map(|link| format!("[{}]({link})", reference(link))).collect();
        let Some(found) = &outcome.found else { anyhow::bail!("{ON_THE_EMULATOR}.json: {name} was not found") };
        let of_gpus = gpus.get(name);
        let then = if of_gpus.is_some_and(|of| of.kernels != outcome.kernels) { " (of an earlier kernel)" } else { "" };
        writeln!(
            text,
            "| [{name}]({name}/): {} | {}: {} | {} | {:.2} | {} | {}{then} |",
            entry.title,
            entry.project,
            links.join(", "),
            found.found_as.name(),
            found.seconds,
            found.schedule.as_deref().unwrap_or_default(),
            museum::on_gpus(of_gpus)
        )?;
    }
    let under = |schedules: usize| {
        let tried: Vec<String> = (0..schedules).map(|n| Interleaving::nth(0, n).to_string()).collect();
        let by = |outcome: &&Outcome| outcome.found.as_ref().and_then(|found| found.schedule.as_ref()).is_some_and(|by| tried.contains(by));
        emulated.iter().filter(by).count()
    };
    writeln!(text, "\nUnder the first schedule {} of them are found, under three {}, under four {}.", under(1), under(3), under(4))?;
    Ok(text)
}

/// The last line of that table.
pub(super) fn last_line(committed: &Committed) -> anyhow::Result<String> {
    let (emulated, gpus) = recorded(committed)?;
    Ok(format!("{}.\n", museum::score(&emulated, Some(&gpus))))
}

/// The number of an issue or a pull request: the last part of its address.
fn reference(link: &str) -> &str {
    link.trim_end_matches('/').rsplit('/').next().unwrap_or(link)
}
