//! Tables that repeat the code.

use std::{fmt::Write, sync::Arc};

use anyhow::Context;
use passmuster_plan::{algorithms::Algorithm, collective::Collective};

use super::committed::Committed;
use crate::EXIT_STATUSES;

/// The algorithms by collective.
pub(super) fn table_of_algorithms(committed: &Committed) -> anyhow::Result<String> {
    let mut text = String::from("| collective | algorithms | only on the emulator (NVLink multicast) | peers |\n|---|---|---|---|\n");
    for collective in Collective::ALL {
        let named = |keep: &dyn Fn(&&Arc<dyn Algorithm>) -> bool| {
            let of = committed.registry.of(collective).filter(keep);
            of.map(|algorithm| format!("`{}`", algorithm.name())).collect::<Vec<_>>().join(", ")
        };
        let ours = named(&|algorithm| !algorithm.is_peer() && !algorithm.uses_multicast());
        let multicast = named(&|algorithm| algorithm.uses_multicast());
        writeln!(text, "| {} | {ours} | {multicast} | {} |", collective.name(), named(&|algorithm| algorithm.is_peer()))?;
    }
    Ok(text)
}

/// The collectives: what goes in, what comes out, with which operators.
pub(super) fn table_of_collectives(_: &Committed) -> anyhow::Result<String> {
    let mut text = String::from("| collective | input | output of rank r | operators |\n|---|---|---|---|\n");
    for collective in Collective::ALL {
        let (input, output) = collective.described();
        let operators: Vec<String> = collective.operators().iter().map(|op| format!("`{op}`")).collect();
        writeln!(text, "| `{collective}` | {input} | {output} | {} |", operators.join(", "))?;
    }
    Ok(text)
}

/// The exit statuses that `--help` has.
pub(super) fn table_of_exit_statuses(_: &Committed) -> anyhow::Result<String> {
    let mut text = String::from("| status | means |\n|---|---|\n");
    for line in EXIT_STATUSES.lines().skip(1) {
        let (status, means) = line.trim().split_once(' ').with_context(|| format!("no exit status: `{line}`"))?;
        // A bar would end the cell, also within code.
        writeln!(text, "| {status} | {} |", means.trim().replace('|', "\\|"))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn tables_of_the_code_have_what_it_has() {
        let committed = Committed::new(Path::new(""));
        let algorithms = table_of_algorithms(&committed).unwrap();
        assert!(algorithms.contains("| all_reduce | `one_shot`, `two_shot`"), "{algorithms}");
        let statuses = table_of_exit_statuses(&committed).unwrap();
        assert_eq!(statuses.lines().count(), 2 + 8, "{statuses}");
        assert!(statuses.contains("| 0 | all passed |\n| 1 | a finding"), "{statuses}");
    }
}
