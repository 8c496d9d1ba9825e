//! Meetings of ranks by words that their streams write and wait for: what algorithms have in common whose data is moved by copy engines, so
//! that no SM waits or copies.
//!
//! A call has several meetings, each with a row of words on every rank, one for each peer, all 0 at rest. In a meeting rank r
//! writes 1 to word r of every peer p ([`announce`]); then it waits until its own word p is 1 and sets it back to 0, for every p
//! ([`gather`]). All values are constants, so a captured call replays.
//!
//! # Why words can be used again
//! Word r of a row on rank p is set by r alone and set back by p alone. When r sets it in the next call, r has gathered the meeting before
//! that one, for which p wrote its word after it had set back the row of the last call: p's stream is in order, and there are two meetings a
//! call or more. So no word is set before it was set back, and no wait takes the word of another call. With a single
//! meeting a call, r could set the word again before p has set it back, and p would wait for ever.
//!
//! # What they order
//! The write of a word comes when all that its stream did before can be seen, and what follows a wait sees all that came before the write.

use passmuster_plan::{
    algorithms::kit::slot,
    plan::{BufferSpec, MAX_WORLD, Op, Plan, Region, Role},
};

/// Bytes of a row.
const ROW: u64 = MAX_WORLD as u64 * 4;

/// Bytes of the rows of an [`Exchange`](super::Exchange). Each further `MAX_WORLD` ranks, which kernels could not address, have as many behind them.
const ROWS: u64 = 2 * ROW;

/// The words of an algorithm that has `meetings` meetings in a call.
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

/// Words of two meetings among `world` ranks: of an [`Exchange`](super::Exchange), and of other algorithms with two.
pub(super) fn words_of_exchange(algorithm: &str, world: u32) -> BufferSpec {
    words(algorithm, u64::from(world).div_ceil(MAX_WORLD as u64) * ROWS / ROW)
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
