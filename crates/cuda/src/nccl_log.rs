//! What NCCL chose: read from its own log, so that a mode that was asked for is known to be the one that ran.
//!
//! With `NCCL_DEBUG_SUBSYS=TUNING` NCCL writes a line for each call that one of its legacy algorithms does, such as
//! `AllReduce: 4 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}` (seen with 2.28.9), and none of that form for its symmetric kernels.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
    process,
};

use passmuster_collectives::collective::Collective;

/// Where NCCL writes, and how much of it was read.
#[derive(Debug)]
pub(super) struct NcclLog {
    path: PathBuf,
    read: u64,
}

impl NcclLog {
    /// Has NCCL write its choices to a file, unless the user has set up its log otherwise. Before NCCL is loaded.
    pub(super) fn set_up() -> Option<NcclLog> {
        let path = env::temp_dir().join(format!("passmuster-nccl.{}", process::id()));
        let variables = [("NCCL_DEBUG", "INFO".into()), ("NCCL_DEBUG_SUBSYS", "TUNING".into()), ("NCCL_DEBUG_FILE", path.clone())];
        if variables.iter().any(|(name, _)| env::var_os(name).is_some()) {
            return None;
        }
        for (name, value) in variables {
            // SAFETY: called where the machine is opened, which asks for no other thread that uses the environment.
            unsafe { env::set_var(name, value) };
        }
        Some(NcclLog { path, read: 0 })
    }

    /// The lines since the last look. A log that cannot be read has none.
    fn fresh(&mut self) -> String {
        let mut text = Vec::new();
        let read = fs::File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.read))?;
            file.read_to_end(&mut text)
        });
        self.read += read.unwrap_or(0) as u64;
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Passes over what was written so far.
    pub(super) fn skip(&mut self) {
        self.fresh();
    }

    /// The first choice since the last look that is not the one asked for, as NCCL wrote it.
    pub(super) fn other_choice(&mut self, windowed: &BTreeSet<Collective>) -> Option<String> {
        let algorithm = env::var("NCCL_ALGO").ok();
        other_choice(&self.fresh(), windowed, algorithm.as_deref()).map(str::to_owned)
    }
}

impl Drop for NcclLog {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The first line that tells of another choice than a symmetric kernel for collectives with windows, or the legacy algorithm asked for.
fn other_choice<'a>(log: &'a str, windowed: &BTreeSet<Collective>, algorithm: Option<&str>) -> Option<&'a str> {
    log.lines().filter_map(|line| line.split_once("NCCL INFO ").map(|(_, said)| said)).find(|said| {
        let chosen = said.split_once("-> Algo ").and_then(|(_, rest)| rest.split_whitespace().next());
        let has_windows = || said.split_once(':').is_some_and(|(function, _)| windowed.iter().any(|of| nccl_name(*of) == function));
        chosen.is_some_and(|chosen| has_windows() || algorithm.is_some_and(|asked| !asked.eq_ignore_ascii_case(chosen)))
    })
}

/// What NCCL calls a collective in its log.
fn nccl_name(collective: Collective) -> &'static str {
    match collective {
        Collective::AllReduce => "AllReduce",
        Collective::AllGather => "AllGather",
        Collective::ReduceScatter => "ReduceScatter",
        Collective::Broadcast => "Broadcast",
        Collective::Reduce => "Reduce",
        Collective::AllToAll => "SendRecv",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const LOG: &str = "host:1:2 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n\
        host:1:2 [0] NCCL INFO AllReduce: 2080 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n";

    #[rstest]
    #[case::as_asked(&[], Some("Ring"), false)]
    #[case::tree_asked(&[], Some("Tree"), true)]
    #[case::symmetric_asked(&[Collective::AllReduce], None, true)]
    #[case::symmetric_asked_of_another(&[Collective::AllGather], None, false)]
    #[case::nothing_asked(&[], None, false)]
    fn a_choice_that_was_not_asked_for_is_told(#[case] windowed: &[Collective], #[case] algorithm: Option<&str>, #[case] other: bool) {
        let found = other_choice(LOG, &windowed.iter().copied().collect(), algorithm);
        assert_eq!(found.is_some(), other, "{found:?}");
        assert!(found.is_none_or(|line| line.starts_with("AllReduce: 2080 Bytes -> Algo RING")));
    }
}
