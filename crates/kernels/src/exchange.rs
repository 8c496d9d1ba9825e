//! `copy_engine` and `copy_engine_barrier` of the collectives that copy: copy engines bring every rank its parts, between two meetings of ranks.

use crate::copy_engine::{announce, gather, peers, words_of_exchange};
use passmuster_plan::{
    algorithms::{
        Algorithm, Protocol, Target,
        kit::{launch, plan_name, sync_argument, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::{Module, OwnEntries},
    plan::{BufferSpec, Call, Op, Plan, Region},
};

/// One copy from each rank to each peer that gets something of it; out of place, one at home as well.
///
/// - ready: peer's stream, in order -> our wait. Its output may be written.
/// - done: our copies, then our word or epoch -> peer's wait. Its output holds our part.
pub struct Exchange {
    collective: Collective,
    meeting: Meeting,
    part: Part,
    /// Bytes over the links of the rank that sends or gets the most.
    link_bytes: fn(&Call) -> u64,
}

/// Where what one rank sends another lies in the sender's memory, and where it goes in the receiver's; nothing where there is none.
type Part = fn(&Call, sender: u32, receiver: u32) -> Option<(Region, Region)>;

/// How ranks meet before their copies and behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meeting {
    /// By words that their streams write and wait for: no SM is used, but where a driver copies a rank's own part with one, and 8 to 9 us go by.
    Streams,
    /// By a kernel of one block, for ranks that have an SM to spare. With large copies, which then have a side stream, a call takes less than by streams
    /// from 16 MiB on (two H100).
    Kernels,
}

impl Exchange {
    /// One whose ranks meet by their streams.
    pub(super) const fn new(collective: Collective, part: Part, link_bytes: fn(&Call) -> u64) -> Exchange {
        Exchange { collective, meeting: Meeting::Streams, part, link_bytes }
    }

    /// The same between kernels in which ranks meet.
    pub(super) const fn between_barriers(self) -> Exchange {
        Exchange { meeting: Meeting::Kernels, ..self }
    }
}

/// The kernel of [`Meeting::Kernels`].
static BARRIER: Module = module!("all_gather/copy_engine_barrier", sites).with_entries(OwnEntries::Untyped);

/// Threads of its block: one for each rank at least.
const BARRIER_THREADS: u32 = 128;

/// Meetings of a call by streams.
const READY: u64 = 0;
const DONE: u64 = 1;

/// From this many bytes on, a rank's own part is copied beside the peers' parts: two copies of one stream come one after the other, though the links have
/// no part in this one. Smaller calls are not what copy engines are for, and need no second stream: of ranks that share a GPU, those with kernels that
/// wait and a side stream in a graph have hung (docs/performance/sharing.md).
const BESIDE: u64 = 64 << 10;

/// The side stream that a rank's own part is copied on; of [`Meeting::Kernels`], that of the peers' parts.
const SIDE: usize = 1;

impl Algorithm for Exchange {
    fn collective(&self) -> Collective {
        self.collective
    }

    fn name(&self) -> &'static str {
        match self.meeting {
            Meeting::Streams => "copy_engine",
            Meeting::Kernels => "copy_engine_barrier",
        }
    }

    fn protocol(&self) -> Protocol {
        match self.meeting {
            Meeting::Streams => Protocol::StreamWords,
            Meeting::Kernels => Protocol::CopyBarriers,
        }
    }

    fn modules(&self) -> Vec<&'static Module> {
        match (self.meeting, self.collective) {
            // That of all the others.
            (Meeting::Kernels, Collective::AllGather) => vec![&BARRIER],
            _ => Vec::new(),
        }
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::COPIED
    }

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, world: u32, _: u64) -> Vec<BufferSpec> {
        match self.meeting {
            Meeting::Streams => vec![words_of_exchange(self.name(), world)],
            Meeting::Kernels => synchronisation(self.name()),
        }
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some((self.link_bytes)(call))
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let (name, world) = (self.name(), call.world());
        Plan::per_rank(plan_name(name, call), world, |rank| {
            let copy = |receiver: u32, to_rank| (self.part)(call, rank, receiver).map(|(from, to)| Op::Copy { from, to, to_rank });
            let own = if call.in_place() { None } else { copy(rank, None) };
            let to_peers: Vec<Op> = peers(rank, world).filter_map(|peer| copy(peer, Some(peer))).collect();
            let is_large = call.slot_bytes() >= BESIDE;
            let mut ops = Vec::new();
            match self.meeting {
                Meeting::Streams => {
                    let (after, join) = match own {
                        Some(own) if is_large && world > 1 => {
                            ops.push(Op::Fork { stream: SIDE, ops: vec![own] });
                            (None, Some(Op::Join { stream: SIDE }))
                        }
                        own => (own, None),
                    };
                    ops.extend(announce(name, READY, rank, world).chain(gather(name, READY, rank, world)));
                    ops.extend(to_peers);
                    ops.extend(announce(name, DONE, rank, world));
                    // While the peers' last copies are under way.
                    ops.extend(after);
                    ops.extend(gather(name, DONE, rank, world));
                    ops.extend(join);
                }
                Meeting::Kernels => {
                    let barrier = || launch(&BARRIER, call, target, (1, BARRIER_THREADS), vec![sync_argument(name, rank, world)]);
                    let is_beside = is_large && !to_peers.is_empty();
                    ops.push(barrier());
                    // On the stream of the kernels, copies between two H200 moved 361 GB/s where those of ranks that meet by streams moved 389.
                    ops.extend(if is_beside { vec![Op::Fork { stream: SIDE, ops: to_peers }] } else { to_peers });
                    ops.extend(own);
                    ops.extend(is_beside.then_some(Op::Join { stream: SIDE }));
                    ops.push(barrier());
                }
            }
            ops
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use passmuster_plan::{
        algorithms::Registry,
        collective::{Collective, DType, ReduceOp, Shape},
    };

    /// If this fails, large parts are copied one after the other, or small ones pay for a side stream.
    #[rstest]
    fn a_rank_s_own_part_is_copied_beside_the_others_from_a_size_on(#[values("copy_engine", "copy_engine_barrier")] algorithm: &str) {
        for (count, beside) in [(BESIDE / 4 - 1, 0), (BESIDE / 4, 1)] {
            let (call, _) = Call::standalone(Shape::new(Collective::AllGather, 3, count), DType::F32, ReduceOp::Copy).unwrap();
            let plan = Registry::new(crate::catalogue()).find(Collective::AllGather, algorithm).unwrap().plan(&call, &Target::default());
            for rank in 0..3 {
                let count = |is: fn(&Op) -> bool| plan.operations(rank).filter(|op| is(op)).count();
                assert_eq!(count(|op| matches!(op, Op::Copy { .. })), 3);
                assert_eq!([count(|op| matches!(op, Op::Fork { .. })), count(|op| matches!(op, Op::Join { .. }))], [beside; 2]);
            }
        }
    }

    /// Met on GPUs: training steps whose gathers are on side streams were refused, for own parts were forked from there.
    #[test]
    fn an_exchange_beside_something_else_does_not_fork() {
        let (call, _) = Call::standalone(Shape::new(Collective::AllGather, 3, BESIDE), DType::F32, ReduceOp::Copy).unwrap();
        let plan = Registry::new(crate::catalogue()).find(Collective::AllGather, "copy_engine").unwrap().plan(&call, &Target::default());
        let beside = Op::beside(2, &plan.ranks[0]);
        let copies = |ops: &mut dyn Iterator<Item = &Op>| ops.filter(|op| matches!(op, Op::Copy { .. })).count();
        assert_eq!(copies(&mut beside.forked().iter()), copies(&mut plan.operations(0)));
        assert!(!beside.forked().iter().any(|op| matches!(op, Op::Fork { .. } | Op::Join { .. })));
    }
}
