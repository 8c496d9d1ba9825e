//! `report --merge`: one record of the parts of a list.

use std::{path::PathBuf, process::ExitCode};

use passmuster_harness::conformance::report::merge;

use super::{status::exit_status, waivers::apply_waivers};
use crate::{result_file::ResultFile, resume};

/// Puts records together, and writes what comes of it.
///
/// # Errors
/// A record that cannot be read, records that do not go together, a file that cannot be written.
pub(crate) fn merged(paths: &[PathBuf], file: &ResultFile) -> anyhow::Result<ExitCode> {
    let read = |path: &PathBuf| Ok((path.display().to_string(), resume::read(path)?));
    let mut record = merge(paths.iter().map(read).collect::<anyhow::Result<_>>()?).map_err(anyhow::Error::msg)?;
    // Only a whole list can tell that a waiver is stale.
    let day = record.date.chars().take(10).collect::<String>();
    apply_waivers(&mut record, None, &day);
    file.write(&record.to_json())?;
    println!("{}", record.summary);
    Ok(exit_status(&record.summary))
}
