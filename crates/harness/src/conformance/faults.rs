//! Cases with an injected fault: what is right is that the run names it. What became of each rank is [data](Blamed), and nothing here reads messages.

use super::{Case, Fault, Field, Status, Verdict};
use passmuster_plan::{
    algorithms::Registry,
    machine::{Blamed, How},
    plan::Departure,
};

/// The kernel that accesses an illegal address.
const ILLEGAL_ADDRESS: &str = "illegal_address";

/// The signals of [`Departure::Killed`] and [`Departure::Stopped`].
const SIGKILL: i32 = 9;
const SIGSTOP: i32 = 19;

/// One way in which a run may name a fault.
struct Way {
    status: Status,
    /// All of these must hold.
    must: Vec<Must>,
}

/// What a run must say of ranks: for people, and as a test of what it says.
struct Must {
    text: String,
    holds: Holds,
}

type Holds = Box<dyn Fn(&[Blamed]) -> bool>;

impl Must {
    fn new(text: impl Into<String>, holds: impl Fn(&[Blamed]) -> bool + 'static) -> Must {
        Must { text: text.into(), holds: Box::new(holds) }
    }

    /// That `rank` is blamed for this; without a rank, that anybody is.
    fn blame(rank: impl Into<Option<u32>>, text: &str, is: impl Fn(&How) -> bool + 'static) -> Must {
        let rank = rank.into().map(|rank| rank as usize);
        let whose = rank.map_or("a rank".to_owned(), |rank| format!("rank {rank}"));
        Must::new(format!("{whose} {text}"), move |blamed| {
            blamed.iter().any(|blamed| rank.is_none_or(|rank| blamed.rank == Some(rank)) && is(&blamed.how))
        })
    }

    fn awaited(rank: impl Into<Option<u32>>) -> Must {
        Must::blame(rank, "was waited for", |how| *how == How::Awaited)
    }

    fn absent(rank: u32) -> Must {
        Must::blame(rank, "had left", |how| *how == How::Absent)
    }

    /// That this rank, and no other, did not finish.
    fn alone_unfinished(rank: u32) -> Must {
        Must::new(format!("rank {rank} alone did not finish"), move |blamed| {
            let unfinished: Vec<_> = blamed.iter().filter(|blamed| blamed.how == How::Unfinished).map(|blamed| blamed.rank).collect();
            unfinished == [Some(rank as usize)]
        })
    }

    /// That the process of this rank ended so, and that every other rank reports it.
    fn lost(rank: u32, text: &str, lost: How) -> Vec<Must> {
        vec![Must::blame(rank, text, move |how| *how == lost), Must::blame(None, "reports the same", |how| *how == How::Agrees)]
    }
}

/// How a run may name a fault; any one will do.
fn ways(registry: &Registry, case: &Case, fault: Fault) -> Vec<Way> {
    let way = |status, must| Way { status, must };
    match fault {
        // Other people's kernels do not say for whom they wait. Some trap where they have waited long enough, and on GPUs those whose waits are bounded do.
        Fault::Absent(rank) if is_foreign(registry, case) => vec![
            way(Status::Hang, vec![Must::absent(rank), Must::blame(None, "did not finish", |how| *how == How::Unfinished)]),
            way(Status::Crash, vec![Must::absent(rank), Must::blame(None, "trapped", |how| *how == How::Trapped)]),
        ],
        Fault::Absent(rank) => vec![way(Status::Hang, vec![Must::awaited(rank)])],
        Fault::IllegalAddress(rank) => {
            let own = |how: &How| matches!(how, How::IllegalAddress { kernel: Some(kernel) } if kernel == ILLEGAL_ADDRESS);
            // GPUs do not say which kernel it was, and the GPUs of a process take each other down.
            let of_any = |how: &How| *how == How::IllegalAddress { kernel: None };
            let text = "accessed an illegal address";
            vec![way(Status::Crash, vec![Must::blame(rank, text, own)]), way(Status::Crash, vec![Must::blame(None, text, of_any)])]
        }
        Fault::Killed => {
            let killed = Blamed::process(How::Killed { signal: SIGKILL });
            vec![way(Status::Crash, vec![Must::new("the process was killed", move |blamed| blamed.contains(&killed))])]
        }
        // On GPUs the rank's process goes on without its thread, and the others' kernels wait for it.
        Fault::Departs { rank, how: Departure::Stalled, .. } => vec![
            way(Status::Crash, Must::lost(rank, "did not come in time", How::Late)),
            way(Status::Hang, vec![Must::awaited(rank)]),
            way(Status::Hang, vec![Must::alone_unfinished(rank)]),
            way(Status::Inconclusive, vec![Must::alone_unfinished(rank)]),
        ],
        Fault::Departs { rank, how, .. } => vec![way(Status::Crash, departed(rank, how))],
        Fault::LostAtStart(rank) => vec![way(Status::Crash, departed(rank, Departure::Exited))],
        Fault::Garbage(rank) => vec![way(Status::Crash, Must::lost(rank, "sent what is no frame", How::Garbage))],
        Fault::Capped(rank) => {
            vec![way(Status::NotSupported, vec![Must::blame(rank, "could not share its memory", |how| *how == How::Unshared)])]
        }
        Fault::Other { rank, field } => {
            // Another order may differ in anything.
            let named = (field != Field::Order).then(|| format!("{} of call ", field.name()));
            let is = move |how: &How| match how {
                How::Differs { field } => named.as_ref().is_none_or(|named| field.starts_with(named)),
                _ => false,
            };
            vec![way(Status::InfraError, vec![Must::blame(rank, &format!("has another {}", field.name()), is)])]
        }
        Fault::PortInUse => {
            let in_use = Blamed::process(How::AddressInUse);
            vec![way(Status::InfraError, vec![Must::new("the address was in use", move |blamed| blamed.contains(&in_use))])]
        }
        // What an aborted run has left may do no harm.
        Fault::Poisoned => vec![way(Status::Hang, vec![Must::awaited(None)]), way(Status::Pass, Vec::new())],
    }
}

/// What a run says of a rank whose process ends so.
fn departed(rank: u32, how: Departure) -> Vec<Must> {
    match how {
        Departure::Idle => Must::lost(rank, "had left", How::Absent),
        Departure::Killed => Must::lost(rank, "was killed by SIGKILL", How::Killed { signal: SIGKILL }),
        Departure::Stopped => Must::lost(rank, "was stopped by SIGSTOP", How::Stopped { signal: SIGSTOP }),
        Departure::Exited => Must::lost(rank, "exited with status 0", How::Exited { status: 0 }),
        Departure::Panicked => Must::lost(rank, "panicked", How::Panicked),
        Departure::Stalled => Must::lost(rank, "did not come in time", How::Late),
    }
}

/// The verdict of a case with an injected fault, by what its run came to: a pass if the run named the fault. A run that could not be made, or was given up, keeps its
/// verdict unless that is what names the fault. A verdict that has been through this comes back as it is, as does that of a case without a fault.
pub fn named(registry: &Registry, case: &Case, verdict: Verdict) -> Verdict {
    let Some(fault) = case.fault().filter(|_| verdict.came_to.is_none()) else { return verdict };
    let ways = ways(registry, case, fault);
    let dissent = fault.is_of_processes() && verdict.blamed.iter().any(|blamed| matches!(blamed.how, How::Silent | How::Disagrees));
    let holds = |way: &Way| verdict.status == way.status && way.must.iter().all(|must| (must.holds)(&verdict.blamed));
    let was_named = !dissent && ways.iter().any(holds);
    if !was_named && matches!(verdict.status, Status::NotSupported | Status::NotRun | Status::Inconclusive) {
        return verdict;
    }
    let reason = match (was_named, verdict.status) {
        (true, Status::Pass) => format!("{fault}: the results are right in spite of it"),
        (true, status) => format!("named as {status}: {}", verdict.reason),
        (false, status) => {
            let Way { status: expected, must } = &ways[0];
            let must: Vec<&str> = must.iter().map(|must| &*must.text).collect();
            format!(
                "the fault {fault} was to be a {expected} that says that {}, but was a {status}: {}",
                must.join(" and "),
                verdict.reason
            )
        }
    };
    Verdict { status: if was_named { Status::Pass } else { Status::Fail }, came_to: Some(verdict.status), reason, ..verdict }
}

/// Whether a case is of a kernel from elsewhere.
fn is_foreign(registry: &Registry, case: &Case) -> bool {
    match case {
        Case::Collective(case) => registry.find(case.collective, &case.algorithm).is_ok_and(|algorithm| algorithm.is_foreign()),
        Case::Product(_) => false,
        Case::Task(case) => case.algorithm(registry).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use passmuster_plan::algorithms::Foreign;
    use rstest::rstest;

    use super::*;
    use crate::REGISTRY;

    fn judged(case: &str, status: Status, blamed: &[Blamed]) -> Verdict {
        judged_among(&REGISTRY, case, status, blamed)
    }

    fn judged_among(registry: &Registry, case: &str, status: Status, blamed: &[Blamed]) -> Verdict {
        let case: Case = case.parse().unwrap();
        // Prose says nothing here.
        let raw = Verdict { blamed: blamed.to_vec(), ..Verdict::without_checks(case.to_string(), status, "waited for rank 1 , signal 9") };
        named(registry, &case, raw)
    }

    fn is(rank: usize, how: How) -> Blamed {
        Blamed::new(rank, how)
    }

    /// If this fails, a report that leaves open which rank did not come is taken for one that names it, or the other way round.
    #[rstest]
    #[case::ours("one_shot", Status::Hang, &[is(1, How::Awaited)], true)]
    #[case::ours_by_the_script("one_shot", Status::Hang, &[is(1, How::Absent), is(0, How::Unfinished)], false)]
    #[case::theirs("theirs", Status::Hang, &[is(1, How::Absent), is(0, How::Unfinished)], true)]
    #[case::another("theirs", Status::Hang, &[is(0, How::Absent), is(1, How::Unfinished)], false)]
    #[case::nobody("theirs", Status::Hang, &[is(0, How::Unfinished)], false)]
    #[case::traps("theirs", Status::Crash, &[is(0, How::Trapped), is(1, How::Absent)], true)]
    #[case::something_else("theirs", Status::Crash, &[is(0, How::IllegalAddress { kernel: None }), is(1, How::Absent)], false)]
    #[case::no_hang("theirs", Status::Pass, &[], false)]
    fn absent_rank_must_be_blamed(#[case] algorithm: &str, #[case] status: Status, #[case] blamed: &[Blamed], #[case] passes: bool) {
        const THEIRS: &str = r#"
            name = "theirs"
            collective = "all_reduce"
            entry = "theirs"
            dtypes = ["f32"]
            ops = ["sum"]
            worlds = [2]
            launch = { grid = 1, block = 32 }
        "#;
        let registry = REGISTRY.clone().with_foreign([Foreign::read(THEIRS, None).unwrap()]).unwrap();
        let verdict = judged_among(&registry, &format!("all_reduce/{algorithm}:f32,sum:w=2:n=9:fault=absent@r1"), status, blamed);
        assert_eq!(verdict.status, if passes { Status::Pass } else { Status::Fail }, "{}", verdict.reason);
        assert_eq!(verdict.came_to, Some(status));
    }

    const KILLED: How = How::Killed { signal: 9 };

    fn differs(field: &str) -> How {
        How::Differs { field: field.into() }
    }

    /// If this fails, a fault that some rank did not hear of passes, or one that was told as another.
    #[rstest]
    #[case::told("killed@r1", Status::Crash, &[is(1, KILLED), is(0, How::Agrees), is(2, How::Agrees)], true)]
    #[case::another_rank("killed@r1", Status::Crash, &[is(0, KILLED), is(2, How::Agrees)], false)]
    #[case::otherwise("exited@r1", Status::Crash, &[is(1, KILLED), is(0, How::Agrees)], false)]
    #[case::other_signal("killed@r1", Status::Crash, &[is(1, How::Killed { signal: 11 }), is(0, How::Agrees)], false)]
    #[case::silent("killed@r1", Status::Crash, &[is(1, KILLED), is(0, How::Agrees), is(2, How::Silent)], false)]
    #[case::dissent("killed@r1", Status::Crash, &[is(1, KILLED), is(0, How::Agrees), is(2, How::Disagrees)], false)]
    #[case::told_by_nobody("killed@r1", Status::Crash, &[is(1, KILLED)], false)]
    #[case::no_crash("killed@r1", Status::Pass, &[], false)]
    #[case::stopped("stopped@r1", Status::Crash, &[is(1, How::Stopped { signal: 19 }), is(0, How::Agrees)], true)]
    #[case::panicked("panicked@r1", Status::Crash, &[is(1, How::Panicked), is(0, How::Agrees)], true)]
    #[case::at_start("lost_at_start@r1", Status::Crash, &[is(1, How::Exited { status: 0 }), is(0, How::Agrees)], true)]
    #[case::garbage("garbage@r1", Status::Crash, &[is(1, How::Garbage), is(0, How::Agrees)], true)]
    #[case::stalled("stalled@r1", Status::Crash, &[is(1, How::Late), is(0, How::Agrees)], true)]
    #[case::stalled_on_gpus("stalled@r1", Status::Hang, &[is(1, How::Awaited)], true)]
    #[case::stalled_alone("stalled@r1", Status::Inconclusive, &[is(1, How::Unfinished)], true)]
    #[case::stalled_otherwise("stalled@r1", Status::Hang, &[is(0, How::Unfinished)], false)]
    #[case::stalled_with_others("stalled@r1", Status::Hang, &[is(0, How::Unfinished), is(1, How::Unfinished)], false)]
    #[case::capped("capped@r1", Status::NotSupported, &[is(1, How::Unshared)], true)]
    #[case::order("other_order@r1", Status::InfraError, &[is(1, differs("count of call 0"))], true)]
    #[case::count("other_count@r1", Status::InfraError, &[is(1, differs("count of call 0"))], true)]
    #[case::other_field("other_count@r1", Status::InfraError, &[is(1, differs("op of call 0"))], false)]
    #[case::order_of_some("other_order@r1", Status::InfraError, &[], false)]
    #[case::port("port_in_use", Status::InfraError, &[Blamed::process(How::AddressInUse)], true)]
    #[case::other_port("port_in_use", Status::InfraError, &[], false)]
    #[case::killed("killed", Status::Crash, &[Blamed::process(KILLED)], true)]
    #[case::segfault("killed", Status::Crash, &[Blamed::process(How::Killed { signal: 11 })], false)]
    #[case::address("illegal_address@r1", Status::Crash, &[is(1, How::IllegalAddress { kernel: Some("illegal_address".into()) })], true)]
    #[case::address_on_gpus("illegal_address@r1", Status::Crash, &[is(0, How::IllegalAddress { kernel: None })], true)]
    #[case::own_address("illegal_address@r1", Status::Crash, &[is(1, How::IllegalAddress { kernel: Some("one_shot".into()) })], false)]
    #[case::harmless("poisoned", Status::Pass, &[], true)]
    #[case::poisoned("poisoned", Status::Hang, &[is(2, How::Awaited)], true)]
    #[case::wrong("poisoned", Status::Fail, &[], false)]
    fn fault_must_be_named(#[case] fault: &str, #[case] status: Status, #[case] blamed: &[Blamed], #[case] passes: bool) {
        let case = format!("all_reduce/one_shot:f32,sum:w=3:n=9:fault={fault}");
        let verdict = judged(&case, status, blamed);
        assert_eq!(verdict.status, if passes { Status::Pass } else { Status::Fail }, "{}", verdict.reason);
        // What could not be run has neither named it nor missed it.
        assert_eq!(judged(&case, Status::NotSupported, &[]).status, Status::NotSupported);
        assert_eq!(judged(&case, Status::NotRun, &[]).status, Status::NotRun);
    }

    /// If this fails, a verdict changes with the number of those that look at it: worker, supervisor, command.
    #[test]
    fn naming_twice_changes_nothing() {
        let verdict = judged("all_reduce/one_shot:f32,sum:w=2:n=9:fault=absent@r1", Status::Hang, &[is(1, How::Awaited)]);
        assert_eq!(named(&REGISTRY, &verdict.case.parse().unwrap(), verdict.clone()), verdict);
        assert!(verdict.voids_device(), "a device that hung is not used again, though the hang was asked for");
        let of_no_fault = Verdict::without_checks("all_reduce/one_shot:f32,sum:w=2:n=9", Status::Hang, "");
        assert_eq!(named(&REGISTRY, &of_no_fault.case.parse().unwrap(), of_no_fault.clone()), of_no_fault);
    }
}
