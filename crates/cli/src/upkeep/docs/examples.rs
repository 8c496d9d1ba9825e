//! What docs/tutorial-foreign-kernel.md says of the mutants of its examples.

use std::{collections::BTreeMap, fmt::Write, fs, path::PathBuf};

use anyhow::ensure;
use passmuster_harness::conformance::mutants;
use passmuster_plan::library::Library;
use serde_json::Value;

use super::committed::{Committed, cases};
use crate::{foreign::ForeignArgs, worker::MachineKind};

/// Of one run with all of the examples.
const RECORD: &str = "emulator-mutants-foreign";

/// A row for each example: how many mutants were made by rule and caught, and of what kind those are that were missed.
///
/// # Errors
/// There is no record of the mutants that would be made now.
pub(super) fn mutants(committed: &Committed) -> anyhow::Result<String> {
    let record = committed.value(RECORD)?;
    let folder = committed.root().join("examples/foreign");
    let mut specs: Vec<PathBuf> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path().join("spec.toml"))).collect::<anyhow::Result<_>>()?;
    specs.retain(|spec| spec.is_file());
    specs.sort();
    let mut text = String::from("| kernel | collective | mutants | caught | missed |\n|---|---|---|---|---|\n");
    for spec in specs {
        let mut library = Library::default();
        let specified = ForeignArgs::default().accept(&spec, &mut library, MachineKind::Emulator)?.specified;
        let name = specified.name();
        let judged: Vec<&Value> = cases(&record).filter(|case| string(case, "mutant").starts_with(&format!("{name}/"))).collect();
        let made = mutants::of_launches(name, &specified.samples(), &library);
        ensure!(
            made.iter().map(|mutant| &*mutant.name).eq(judged.iter().map(|case| string(case, "mutant"))),
            "{RECORD}.json has other mutants of {name} than are made now: `cargo xtask mutants --spec` with all of examples/foreign makes it again"
        );
        let mutated = library.hashes(&made.iter().map(|mutant| mutant.module.to_string()).collect());
        ensure!(
            mutated.iter().all(|(module, hash)| record["source"]["modules"][module] == *hash),
            "{RECORD}.json is of another {name}: `cargo xtask mutants --spec` with all of examples/foreign makes it again"
        );
        let mut of_kind: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for case in &judged {
            let (missed, all) = of_kind.entry(string(case, "defect")).or_default();
            (*missed, *all) = (*missed + usize::from(case["caught"] != true), *all + 1);
        }
        let missed: Vec<String> = of_kind
            .iter()
            .filter(|(_, (missed, _))| *missed > 0)
            .map(|(kind, (missed, all))| format!("{missed} of {all} {kind}"))
            .collect();
        let caught = judged.iter().filter(|case| case["caught"] == true).count();
        let does = specified.does();
        let collective = does.split('/').next().unwrap_or_default();
        writeln!(text, "| `{name}` | {collective} | {} | {caught} | {} |", judged.len(), missed.join(", "))?;
    }
    Ok(text)
}

/// What a case has of this name.
fn string<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_default()
}
