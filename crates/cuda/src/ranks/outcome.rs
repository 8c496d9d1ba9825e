//! How a run ended on ranks in processes of their own: what became of each rank's part, and what all of them then say.

use super::fault::how_of;
use passmuster_plan::machine::{Blamed, Elapsed, How, MachineError, Stuck};
use serde::{Deserialize, Serialize};

/// What became of one rank's part of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) ending: Ending,
    pub(crate) after_ms: u64,
    /// Waits of its kernels that gave up.
    pub(crate) stuck: Vec<Stuck>,
    /// Where it stands, in lines.
    pub(crate) standing: Vec<String>,
}

/// How one rank's part of a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ending {
    /// At its end.
    Done,
    /// At its end, and NCCL had taken another path than was asked for.
    OtherPath(String),
    /// A call failed.
    Failed {
        /// Which.
        what: String,
        /// The library's name for the error.
        code: String,
    },
    /// A library does not do a call, and what was enqueued is done.
    Refused {
        /// Which.
        what: String,
        /// What it said.
        code: String,
    },
    /// Not by the deadline.
    Late {
        /// Whether its device had work left.
        on_devices: bool,
    },
    /// It stopped because another one did.
    Abandoned {
        /// Whether its device has no work left.
        at_rest: bool,
    },
}

/// An error that all ranks share, with where this one stood.
pub(super) fn with_standing(error: MachineError, own: &Outcome) -> MachineError {
    match (error, own.standing.first()) {
        (MachineError::Fault { ranks, what, code, blamed }, Some(standing)) => {
            MachineError::Fault { ranks, what, code: format!("{code}; {standing}"), blamed }
        }
        (error, _) => error,
    }
}

/// The error of a run, by what became of each rank's part of it: the same on all ranks. What failed comes before waits that gave up for it, and those before
/// time that was up.
pub(crate) fn merged(outcomes: &[Outcome]) -> Option<MachineError> {
    let endings = || outcomes.iter().map(|outcome| &outcome.ending).enumerate();
    let is_over = |ending: &Ending| matches!(ending, Ending::Done | Ending::OtherPath(_));
    let unfinished: Vec<usize> = endings().filter(|(_, ending)| !is_over(ending)).map(|(rank, _)| rank).collect();
    let after_ms = outcomes.iter().map(|outcome| outcome.after_ms).max().unwrap_or(0);
    let stuck: Vec<Stuck> = outcomes.iter().flat_map(|outcome| outcome.stuck.clone()).collect();
    let standing: Vec<String> = outcomes.iter().flat_map(|outcome| outcome.standing.clone()).collect();

    let failed = |(rank, ending): (usize, &Ending)| match ending {
        Ending::Failed { what, code } => Some((rank, what.clone(), code.clone())),
        _ => None,
    };
    if let Some((_, what, code)) = endings().find_map(failed) {
        let ranks = endings().filter_map(failed).map(|(rank, ..)| rank).collect();
        let blamed = endings().filter_map(failed).map(|(rank, _, code)| Blamed::new(rank, how_of(&code))).collect();
        return Some(MachineError::Fault { ranks, what, code, blamed });
    }
    let refused = endings().find_map(|(rank, ending)| match ending {
        Ending::Refused { what, code } => Some((rank, what, code)),
        _ => None,
    });
    if let Some((rank, what, code)) = refused {
        let at_rest = |ending: &Ending| matches!(ending, Ending::Refused { .. } | Ending::Abandoned { at_rest: true }) || is_over(ending);
        return Some(match endings().all(|(_, ending)| at_rest(ending)) {
            true => MachineError::NotSupported { reason: format!("{what} refused: {code}") },
            false => MachineError::fault(rank, what, code),
        });
    }
    let late_on_devices = endings().any(|(_, ending)| *ending == Ending::Late { on_devices: true });
    if !stuck.is_empty() || late_on_devices {
        return Some(MachineError::Hang {
            after: Elapsed::WallMs(after_ms),
            cause: String::new(),
            stuck,
            unfinished: unfinished.into(),
            standing,
            blamed: Box::default(),
        });
    }
    if !unfinished.is_empty() {
        return Some(not_seen_at_work(&unfinished, after_ms, &standing));
    }
    endings().find_map(|(_, ending)| match ending {
        Ending::OtherPath(line) => Some(MachineError::NotSupported { reason: other_path(line) }),
        _ => None,
    })
}

/// What is said where hosts did not get to the end, and nothing was seen of devices.
pub(crate) fn not_seen_at_work(unfinished: &[usize], after_ms: u64, standing: &[String]) -> MachineError {
    let held = if standing.is_empty() { String::new() } else { format!(": {}", standing.join("; ")) };
    let reason = format!(
        "the hosts of ranks {unfinished:?} did not get to the end in {after_ms} ms, and no device was seen to have work left{held}"
    );
    MachineError::Inconclusive { reason, blamed: unfinished.iter().map(|&rank| Blamed::new(rank, How::Unfinished)).collect() }
}

/// What is said where NCCL did something else than it was made to.
pub(crate) fn other_path(line: &str) -> String {
    format!("NCCL did not take the path that was asked for: {line}")
}

#[cfg(test)]
mod tests {
    use passmuster_plan::machine::Site;

    use super::*;

    fn of(ending: Ending) -> Outcome {
        Outcome { ending, after_ms: 3, stuck: Vec::new(), standing: Vec::new() }
    }

    fn told(outcomes: &[Outcome]) -> String {
        merged(outcomes).map_or_else(|| "ok".into(), |error| error.to_string())
    }

    /// If this fails, ranks report what an error has left behind in place of the error, or time that was up as a hang.
    #[test]
    fn what_went_wrong_first_is_what_all_ranks_report() {
        let done = || of(Ending::Done);
        let failed = || of(Ending::Failed { what: "cuStreamQuery".into(), code: "CUDA_ERROR_ILLEGAL_ADDRESS".into() });
        let refused = || of(Ending::Refused { what: "ncclAllReduce".into(), code: "no algorithm available for function".into() });
        let late = |on_devices| of(Ending::Late { on_devices });
        let abandoned = |at_rest| of(Ending::Abandoned { at_rest });
        let mut gave_up = done();
        gave_up.stuck.push(Stuck { report: "one_shot.stuck".into(), rank: 0, peer: 1, block: 2, site: Site::Start, want: 3, saw: 2 });

        assert_eq!(told(&[done(), done()]), "ok");
        assert_eq!(told(&[gave_up.clone(), failed()]), "ranks [1]: cuStreamQuery failed: CUDA_ERROR_ILLEGAL_ADDRESS");
        assert!(told(&[gave_up, late(true)]).starts_with("hang after 3 ms: ranks [1] did not finish; 1 waits gave up, for ranks [1]; "));
        assert_eq!(told(&[refused(), abandoned(true)]), "not supported: ncclAllReduce refused: no algorithm available for function");
        assert_eq!(told(&[refused(), abandoned(false)]), "ranks [0]: ncclAllReduce failed: no algorithm available for function");
        assert_eq!(told(&[late(false), late(true)]), "hang after 3 ms: ranks [0, 1] did not finish");
        assert!(told(&[done(), late(false)]).starts_with("inconclusive: the hosts of ranks [1] did not get to the end in 3 ms, "));
        assert_eq!(
            told(&[done(), of(Ending::OtherPath("AllReduce: RING".into()))]),
            "not supported: NCCL did not take the path that was asked for: AllReduce: RING"
        );
    }
}
