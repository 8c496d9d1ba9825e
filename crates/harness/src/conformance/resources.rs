//! What a process holds of the system: a soak says whether that is more at its end than at its beginning.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use passmuster_plan::machine::Machine;
use serde::{Deserialize, Serialize};

/// What a process holds when nothing runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Which process.
    pub process: u32,
    /// Open file descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
    /// Mappings of shared memory: of files under /dev/shm, and of memfds.
    pub shared_memory: u64,
    /// Bytes of its devices' memory in use, by whomever; absent where the machine has no devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<u64>,
    /// Bytes of its memory that are resident. An allocator keeps what was freed: this says how much, and is no measure of a leak.
    pub resident_bytes: u64,
}

/// A thread that was joined may still be listed for a moment: how often, and how far apart, it is looked for.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

const SHARED_MEMORY: &str = "/dev/shm";

impl Resources {
    /// What this process holds now, with a machine on which nothing runs.
    ///
    /// # Errors
    /// Where /proc cannot be read.
    pub fn now(machine: &dyn Machine) -> io::Result<Resources> {
        let count = |folder: &str| Ok::<_, io::Error>(fs::read_dir(folder)?.count() as u64);
        let mut threads = count("/proc/self/task")?;
        for _ in 1..LOOKS {
            thread::sleep(BETWEEN_LOOKS);
            threads = threads.min(count("/proc/self/task")?);
        }
        let maps = fs::read_to_string("/proc/self/maps")?;
        let is_shared = |line: &&str| line.contains(SHARED_MEMORY) || line.contains("/memfd:");
        let pages = fs::read_to_string("/proc/self/statm")?;
        let resident: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        Ok(Resources {
            process: std::process::id(),
            // Without the one by which they are counted.
            descriptors: count("/proc/self/fd")? - 1,
            threads,
            shared_memory: maps.lines().filter(is_shared).count() as u64,
            device_bytes: machine.device_bytes(),
            resident_bytes: resident * rustix::param::page_size() as u64,
        })
    }

    /// What is held more than `before`, a line each.
    pub fn more_than(&self, before: &Resources) -> Vec<String> {
        let held = |of: &Resources| {
            [
                ("file descriptors", of.descriptors),
                ("threads", of.threads),
                ("mappings of shared memory", of.shared_memory),
                ("bytes of device memory in use by all processes", of.device_bytes.unwrap_or(0)),
            ]
        };
        let both = held(before).into_iter().zip(held(self));
        both.filter(|((_, before), (_, now))| now > before)
            .map(|((what, before), (_, now))| format!("{now} {what}, {before} before"))
            .collect()
    }
}

/// Shared memory of this user that is there and that no process has mapped, but what was known before.
pub fn left_behind(known: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let own = rustix::process::getuid().as_raw();
    let objects = fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten();
    let of_user = objects.filter(|entry| entry.metadata().is_ok_and(|data| data.is_file() && data.uid() == own)).map(|entry| entry.path());
    let new: BTreeSet<PathBuf> = of_user.filter(|path| !known.contains(path)).collect();
    if new.is_empty() {
        return new;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let maps: Vec<String> = processes.filter_map(|process| fs::read_to_string(process.path().join("maps")).ok()).collect();
    new.into_iter().filter(|path| path.exists() && !maps.iter().any(|maps| maps.contains(&*shown(path)))).collect()
}

fn shown(path: &Path) -> std::borrow::Cow<'_, str> {
    path.to_string_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::{Emulator, EmulatorOptions};

    /// If this fails, what a process holds more is not told, or what it gave back is.
    #[test]
    fn what_is_held_more_is_told() {
        let machine = Emulator::new(EmulatorOptions::default());
        let before = Resources::now(&machine).unwrap();
        assert!(before.descriptors > 0 && before.threads > 0 && before.device_bytes.is_none());
        let more = Resources { descriptors: before.descriptors + 2, threads: before.threads - 1, ..before };
        assert_eq!(more.more_than(&before), [format!("{} file descriptors, {} before", before.descriptors + 2, before.descriptors)]);
        assert_eq!(before.more_than(&more), [format!("{} threads, {} before", before.threads, before.threads - 1)]);
    }
}
