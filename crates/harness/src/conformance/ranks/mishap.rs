//! What befalls one rank's process in cases of faults, besides what the script itself has.

use std::{io, sync::Arc};

use passmuster_plan::{algorithms::Registry, collective::DType, plan::Script};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::conformance::{CollectiveCase, Field, Item, runner};

/// What befalls a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mishap {
    /// It may make no file and no shared memory of more than `bytes` bytes, as if /dev/shm or a container's memory were full.
    Capped {
        /// How many.
        bytes: u64,
    },
    /// It says what is no message in place of running anything next.
    Garbage,
}

/// Caps what this process may share.
///
/// # Errors
/// What the system does not allow.
pub(super) fn cap(bytes: u64) -> Result<(), String> {
    let failed = |error: io::Error| format!("memory cannot be capped: {error}");
    // Beyond the limit the system call then fails, and the process does not end.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).map_err(failed)?;
    setrlimit(Resource::Fsize, Rlimit { current: Some(bytes), maximum: Some(bytes) }).map_err(|error| failed(error.into()))
}

/// The script of a case whose call is another in one field.
///
/// # Errors
/// Where there is no such call.
pub fn another_call(registry: &Registry, case: &CollectiveCase, field: Field, waiting_blocks: u32) -> Result<Script, String> {
    let mut others: Vec<CollectiveCase> = Vec::new();
    let mut other = |change: &dyn Fn(&mut CollectiveCase)| {
        let mut other = CollectiveCase { fault: None, ..case.clone() };
        change(&mut other);
        others.extend((other != CollectiveCase { fault: None, ..case.clone() }).then_some(other));
    };
    match field {
        Field::Count => other(&|case| {
            case.count += u64::from(case.calls.is_empty());
            case.calls.iter_mut().flat_map(Item::shots_mut).for_each(|shot| shot.count += 1);
        }),
        Field::DType => DType::ALL.into_iter().for_each(|dtype| other(&|case| case.dtype = dtype)),
        Field::Op => case.collective.operators().iter().for_each(|&op| other(&|case| case.op = op)),
        Field::Root if !case.collective.has_root() => return Err(format!("{} has no root", case.collective)),
        Field::Root => other(&|case| case.root = (case.root + 1) % case.world),
        Field::Order => other(&|case| case.calls.reverse()),
    }
    let mut scripts = others.iter().filter_map(|other| runner::prepared(registry, other, waiting_blocks).ok());
    scripts.next().map(|(_, script)| script).ok_or_else(|| format!("there is no call of another {}", field.name()))
}
