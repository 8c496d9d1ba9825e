//! How much memory the emulator may take: what people allow it, or less where the machine has less.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use passmuster_harness::emulator::EmulatorOptions;
use rustix::process::{Resource, getrlimit};

/// The least that is left to the emulator.
const LEAST: u64 = 64 << 20;

/// What the emulator has for buffers where nobody says, if that is less than usual: a power of two, so that it is the same again tomorrow.
pub(crate) fn lowered() -> Option<u64> {
    static LOWERED: OnceLock<Option<u64>> = OnceLock::new();
    *LOWERED.get_or_init(|| {
        let usual = EmulatorOptions::default().memory_budget;
        let free = available()?;
        let budget = budget(free, usual);
        if budget == usual {
            return None;
        }
        eprintln!(
            "the emulator takes at most {} MiB for buffers, not {}: {} MiB are free here (--memory, where the command has it, says otherwise)",
            budget >> 20,
            usual >> 20,
            free >> 20
        );
        Some(budget)
    })
}

/// The largest power of two that fits, up to what is usual.
fn budget(free: u64, usual: u64) -> u64 {
    if free >= usual { usual } else { (1 << free.max(LEAST).ilog2()).min(usual) }
}

/// Bytes that this process can still take: of the machine, of the groups that it is in, of its own limit. None where the system does not say.
fn available() -> Option<u64> {
    let of_machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_meminfo(&text));
    let of_groups = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| of_cgroups(&text, Path::new("/sys/fs/cgroup")));
    let of_process = getrlimit(Resource::As).current;
    [of_machine, of_groups, of_process].into_iter().flatten().min()
}

fn of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What the tightest of the groups leaves that /proc/self/cgroup names, of either version.
fn of_cgroups(text: &str, root: &Path) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let (root, limit, usage) = match controllers {
            "" => (root.to_owned(), "memory.max", "memory.current"),
            of if of.split(',').any(|controller| controller == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        let mut folder: PathBuf = root.join(path.trim_start_matches('/'));
        // In a container the path may be the host's, of which only the root is mounted.
        while folder.starts_with(&root) {
            let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
            if let (Some(limit), Some(usage)) = (number(limit), number(usage)) {
                let free = limit.saturating_sub(usage.saturating_sub(reclaimable(&folder)));
                least = Some(least.map_or(free, |least| least.min(free)));
            }
            if !folder.pop() {
                break;
            }
        }
    }
    least
}

/// Bytes of files that a group has in memory, which the system takes back.
fn reclaimable(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let of = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok()).unwrap_or_default()
    };
    of("active_file").saturating_add(of("inactive_file"))
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn budgets_are_powers_of_two() {
        let gib = 1 << 30;
        assert_eq!(budget(100 * gib, 8 * gib), 8 * gib);
        assert_eq!(budget(8 * gib - 1, 8 * gib), 4 * gib);
        assert_eq!(budget(3 * gib, 8 * gib), 2 * gib);
        assert_eq!(budget(0, 8 * gib), LEAST);
    }

    #[test]
    fn free_memory_is_read() {
        assert_eq!(of_meminfo("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(of_meminfo("MemTotal: 9 kB\n"), None);
        assert!(available().is_some_and(|free| free > 0));
    }

    /// If this fails, a container that may take 2 GiB is killed for the host's 64.
    #[test]
    fn tightest_group_counts() {
        let root = env::temp_dir().join(format!("passmuster-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("memory.max", "max\n");
        write("memory.current", "5\n");
        write("a/memory.max", "1000\n");
        write("a/memory.current", "700\n");
        write("a/memory.stat", "anon 1\nactive_file 100\ninactive_file 50\n");
        write("a/b/memory.max", "5000\n");
        write("a/b/memory.current", "100\n");
        write("memory/x/memory.limit_in_bytes", "300\n");
        write("memory/x/memory.usage_in_bytes", "1\n");
        let free = |text: &str| of_cgroups(text, &root);
        assert_eq!((free("0::/a/b\n"), free("0::/\n"), free("0::/not/mounted\n")), (Some(450), None, None));
        assert_eq!((free("4:cpu,memory:/x\n0::/a\n"), free("4:cpu:/x\n")), (Some(299), None));
        fs::remove_dir_all(root).unwrap();
    }
}
