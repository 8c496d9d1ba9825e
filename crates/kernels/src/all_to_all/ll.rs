//! `all_to_all/ll`: every rank pushes each peer its slot in LL lines. See kernels/all_to_all/ll.cu, and ll_v.cu for all-to-all-v.

use crate::{Lines, all_to_all::bytes_for_each};
use passmuster_plan::{
    collective::{Collective, Counts},
    modules::{Calls, Module},
    plan::{Arg, Call},
};

static MODULE: Module = module!("all_to_all/ll", sites);
/// The kernel of all-to-all-v.
static MODULE_V: Module = module!("all_to_all/ll_v", sites).of_calls(Calls::AllToAllV);

/// The largest slot or part in bytes.
const MAX_SLOT: u64 = 256 << 10;

/// Push the slots to their ranks, store what the peers have pushed: one trip and no barrier, 2 x (world - 1) slots into each rank, or as many of
/// the longest part of any two.
pub const LL: Lines = Lines::new(Collective::AllToAll, "ll", &MODULE, MAX_SLOT).with_parts((&MODULE_V, parts));

/// The `Parts` structs of kernels/all_to_all/ll_v.cu: what a rank sends, and what it gets.
fn parts(call: &Call, counts: &Counts, rank: u32) -> [Arg; 2] {
    let sent = [bytes_for_each(call, |peer| counts.of(rank, peer)), bytes_for_each(call, |peer| counts.sent_at(rank, peer))];
    let received = [bytes_for_each(call, |peer| counts.of(peer, rank)), bytes_for_each(call, |peer| counts.received_at(peer, rank))];
    [sent, received].map(|fields| Arg::Struct(fields.concat()))
}
