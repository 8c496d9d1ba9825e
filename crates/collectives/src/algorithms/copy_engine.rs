//! What algorithms have in common whose data is moved by copy engines: one copy to each peer between two [meetings](Meeting) of ranks.
//!
//! # Meetings by streams
//! Words that streams write and wait for, so that no SM waits or copies. A call has several meetings, each with a row of words on every rank,
//! one for each peer, all 0 at rest. In a meeting rank r writes 1 to word r of every peer p ([`announce`]); then it waits until its own word p
//! is 1 and sets it back to 0, for every p ([`gather`]). All values are constants, so a captured call replays.
//!
//! # Why words can be used again
//! Word r of a row on rank p is set by r alone and set back by p alone. When r sets it in the next call, r has gathered the meeting before
//! that one, for which p wrote its word after it had set back the row of the last call: p's stream is in order, and there are two meetings a
//! call or more. So no word is set before it was set back, and no wait takes the word of another call. With a single
//! meeting a call, r could set the word again before p has set it back, and p would wait for ever.
//!
//! # What they order
//! The write of a word comes when all that its stream did before can be seen, and what follows a wait sees all that came before the write.

use crate::{
    algorithms::{Protocol, Target, launch, plan_name, slot, sync_argument, synchronisation},
    kernels::{Module, OwnEntries, module},
    plan::{BufferSpec, Call, MAX_WORLD, Op, Plan, Region, Role},
};

/// How ranks meet before their copies and behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// By words that their streams write and wait for: no SM is used, and 8 to 9 us go by.
    Streams,
    /// By a kernel of one block, in less: for ranks that have an SM to spare.
    Kernels,
}

/// The kernel of [`Meeting::Kernels`].
pub(super) static BARRIER: Module = module!("all_gather/copy_engine_barrier", checked, wide).with_entries(OwnEntries::Untyped);

/// Threads of its block: one for each rank at least.
const BARRIER_THREADS: u32 = 128;

impl Meeting {
    /// Name of the algorithm that meets so.
    pub(super) fn algorithm(self) -> &'static str {
        match self {
            Meeting::Streams => "copy_engine",
            Meeting::Kernels => "copy_engine_barrier",
        }
    }

    /// How ranks know that each other's data is there.
    pub(super) fn protocol(self) -> Protocol {
        match self {
            Meeting::Streams => Protocol::StreamWords,
            Meeting::Kernels => Protocol::CopyBarriers,
        }
    }

    /// The buffers of an [`exchange`] among so many ranks.
    pub(super) fn workspace(self, world: u32) -> Vec<BufferSpec> {
        match self {
            Meeting::Streams => vec![words_of_exchange(self.algorithm(), world)],
            Meeting::Kernels => synchronisation(self.algorithm(), world),
        }
    }
}

/// A launch of the kernel of [`Meeting::Kernels`].
fn barrier(call: &Call, target: &Target, rank: u32) -> Op {
    let args = vec![sync_argument(Meeting::Kernels.algorithm(), rank, call.world())];
    launch(&BARRIER, call, target, (1, BARRIER_THREADS), args)
}

/// Bytes of a row.
const ROW: u64 = MAX_WORLD as u64 * 4;

/// Bytes of the rows of an [`exchange`]. For ranks that kernels could not address, so many each, there are as many more rows behind them.
const ROWS: u64 = 2 * ROW;

/// The words of an algorithm that has so many meetings in a call.
pub(super) fn words(algorithm: &str, meetings: u64) -> BufferSpec {
    BufferSpec::new(format!("{algorithm}.words"), meetings * ROW, Role::Signals)
}

/// The word that `peer` writes in a meeting.
fn word(algorithm: &str, meeting: u64, peer: u32) -> Region {
    let (beyond, peer) = (u64::from(peer) / MAX_WORLD as u64, u64::from(peer) % MAX_WORLD as u64);
    Region::new(format!("{algorithm}.words"), beyond * ROWS + meeting * ROW + peer * 4, 4)
}

/// Part `rank` of a region of `world` equal ones.
pub(super) fn part(of: &Region, rank: u32, world: u32) -> Region {
    slot(of, rank, of.bytes / u64::from(world))
}

/// Meetings of [`exchange`].
const READY: u64 = 0;
const DONE: u64 = 1;

/// Words of [`exchange`] among so many ranks.
pub(super) fn words_of_exchange(algorithm: &str, world: u32) -> BufferSpec {
    words(algorithm, u64::from(world).div_ceil(MAX_WORLD as u64) * ROWS / ROW)
}

/// From so many bytes on, a rank's own part is copied beside the peers' parts: two copies of one stream come one after the other, though the links have
/// no part in this one. Smaller calls are not what copy engines are for, and need no second stream: of ranks that share a GPU, those with kernels that
/// wait and a side stream in a graph have hung (docs/performance/sharing.md).
const BESIDE: u64 = 64 << 10;

/// The side stream that a rank's own part is copied on; of [`Meeting::Kernels`], that of the peers' parts.
const SIDE: usize = 1;

/// A call in which ranks bring each rank one part; out of place themselves, too. `part(sender, receiver)` is where it lies at the sender, and
/// where it goes at the receiver; nothing where there is none.
///
/// - ready: peer's stream, in order -> our wait. Its output may be written.
/// - done: our copies, our word -> peer's wait. Its output holds our part.
pub(super) fn exchange(meeting: Meeting, call: &Call, target: &Target, part: impl Fn(u32, u32) -> Option<(Region, Region)>) -> Plan {
    let world = call.world();
    let algorithm = meeting.algorithm();
    Plan::per_rank(plan_name(algorithm, call), world, |rank| {
        let copy = |receiver: u32, to_rank| part(rank, receiver).map(|(from, to)| Op::Copy { from, to, to_rank });
        let own = if call.in_place() { None } else { copy(rank, None) };
        let to_peers = peers(rank, world).filter_map(|peer| copy(peer, Some(peer)));
        match meeting {
            Meeting::Streams => {
                let mut ops = Vec::new();
                let (after, join) = match own {
                    Some(own) if call.slot_bytes() >= BESIDE && world > 1 => {
                        ops.push(Op::Fork { stream: SIDE, ops: vec![own] });
                        (None, Some(Op::Join { stream: SIDE }))
                    }
                    own => (own, None),
                };
                ops.extend(announce(algorithm, READY, rank, world).chain(gather(algorithm, READY, rank, world)));
                ops.extend(to_peers);
                ops.extend(announce(algorithm, DONE, rank, world));
                // While the peers' last copies are under way.
                ops.extend(after);
                ops.extend(gather(algorithm, DONE, rank, world));
                ops.extend(join);
                ops
            }
            Meeting::Kernels => {
                let mut ops = vec![barrier(call, target, rank)];
                let to_peers: Vec<Op> = to_peers.collect();
                let is_beside = call.slot_bytes() >= BESIDE && !to_peers.is_empty();
                // On the stream of the kernels, copies between two H200 moved 361 GB/s where those of a stream without kernels moved 389.
                ops.extend(if is_beside { vec![Op::Fork { stream: SIDE, ops: to_peers }] } else { to_peers });
                ops.extend(own);
                ops.extend(is_beside.then_some(Op::Join { stream: SIDE }));
                ops.push(barrier(call, target, rank));
                ops
            }
        }
    })
}

/// The peers of a rank from the next one on: ranks that go through them at once never go to one rank together.
pub(super) fn peers(rank: u32, world: u32) -> impl Iterator<Item = u32> {
    (1..world).map(move |distance| (rank + distance) % world)
}

/// Tells a peer that the rank has come to a meeting.
pub(super) fn tell(algorithm: &str, meeting: u64, rank: u32, peer: u32) -> Op {
    Op::WriteValue { to: word(algorithm, meeting, rank), value: 1, to_rank: Some(peer) }
}

/// Waits until a peer has come to a meeting, and sets its word back.
pub(super) fn hear(algorithm: &str, meeting: u64, peer: u32) -> [Op; 2] {
    [Op::WaitValue { at: word(algorithm, meeting, peer), value: 1 }, set_back(algorithm, meeting, peer)]
}

/// Sets a peer's word of a meeting back, which has come.
pub(super) fn set_back(algorithm: &str, meeting: u64, peer: u32) -> Op {
    Op::WriteValue { to: word(algorithm, meeting, peer), value: 0, to_rank: None }
}

/// All words of a meeting: one a rank.
pub(super) fn words_of(algorithm: &str, meeting: u64) -> Region {
    Region { bytes: ROW, ..word(algorithm, meeting, 0) }
}

/// Tells all peers that the rank has come to a meeting.
pub(super) fn announce(algorithm: &str, meeting: u64, rank: u32, world: u32) -> impl Iterator<Item = Op> {
    peers(rank, world).map(move |peer| tell(algorithm, meeting, rank, peer))
}

/// Waits until all peers have come to a meeting, and sets their words back.
pub(super) fn gather(algorithm: &str, meeting: u64, rank: u32, world: u32) -> impl Iterator<Item = Op> {
    let waits = peers(rank, world).map(move |peer| Op::WaitValue { at: word(algorithm, meeting, peer), value: 1 });
    waits.chain(peers(rank, world).map(move |peer| set_back(algorithm, meeting, peer)))
}

/// Name of the gate, and of its words.
const GATE: &str = "gate";

/// A plan that holds every rank's stream until all have come to it, on the device and without an SM, and the buffer that it needs.
/// Ranks leave it together but for the time that a word takes between them, about a microsecond. It can be enqueued and captured any number
/// of times.
pub fn gate(world: u32) -> (BufferSpec, Plan) {
    let plan = Plan::per_rank(GATE, world, |rank| {
        let meet = |meeting| announce(GATE, meeting, rank, world).chain(gather(GATE, meeting, rank, world));
        (0..2).flat_map(meet).collect()
    });
    (words(GATE, 2), plan)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{
        algorithms::{self, Target},
        collective::{Collective, DType, ReduceOp, Shape},
    };

    /// If this fails, large parts are copied one after the other, or small ones pay for a side stream.
    #[rstest]
    fn a_rank_s_own_part_is_copied_beside_the_others_from_a_size_on(#[values("copy_engine", "copy_engine_barrier")] algorithm: &str) {
        for (count, beside) in [(BESIDE / 4 - 1, 0), (BESIDE / 4, 1)] {
            let (call, _) = Call::standalone(Shape::new(Collective::AllGather, 3, count), DType::F32, ReduceOp::Copy).unwrap();
            let plan = algorithms::find(Collective::AllGather, algorithm).unwrap().plan(&call, &Target::default());
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
        let plan = algorithms::find(Collective::AllGather, "copy_engine").unwrap().plan(&call, &Target::default());
        let beside = Op::beside(2, &plan.ranks[0]);
        let copies = |ops: &mut dyn Iterator<Item = &Op>| ops.filter(|op| matches!(op, Op::Copy { .. })).count();
        assert_eq!(copies(&mut beside.forked().iter()), copies(&mut plan.operations(0)));
        assert!(!beside.forked().iter().any(|op| matches!(op, Op::Fork { .. } | Op::Join { .. })));
    }
}
