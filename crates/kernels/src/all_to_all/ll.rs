//! `all_to_all/ll`: every rank pushes each peer its slot in LL lines. See kernels/all_to_all/ll.cu, and ll_v.cu for all-to-all-v.

use crate::{all_to_all::bytes_for_each, lines};
use passmuster_plan::{
    algorithms::{
        Algorithm, Protocol, Target,
        kit::{launch, plan_name, sync_argument_of},
    },
    collective::{Collective, Counts, DType},
    contract::Contract,
    modules::{Calls, Module},
    plan::{Arg, BufferSpec, Call, Plan},
};

/// Push the slots to their ranks, store what the peers have pushed: one trip and no barrier, 2 x (world - 1) slots into each rank, or as many of
/// the longest part of any two.
pub struct Ll;

const NAME: &str = "ll";
static MODULE: Module = module!("all_to_all/ll", sites);
/// The kernel of all-to-all-v.
static MODULE_V: Module = module!("all_to_all/ll_v", sites).of_calls(Calls::AllToAllV);

/// The largest slot or part in bytes. Flags double what crosses the link, so it is no use long before that.
const MAX_SLOT: u64 = 256 << 10;

impl Algorithm for Ll {
    fn collective(&self) -> Collective {
        Collective::AllToAll
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE, &MODULE_V]
    }

    fn protocol(&self) -> Protocol {
        Protocol::Lines
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::COPIED
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        lines::fits(NAME, if call.counts().is_some() { "parts" } else { "slots" }, longest(call), MAX_SLOT)
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        lines::buffers(NAME, world, (bytes / u64::from(world)).min(MAX_SLOT))
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(2 * u64::from(call.world() - 1) * longest(call))
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let bytes = longest(call);
        let (grid, block) = lines::grid(bytes, target.waiting_blocks);
        let buffers = lines::buffers(NAME, call.world(), bytes);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let sync = sync_argument_of(&buffers, rank, call.world());
            let mut args = vec![Arg::Address(call.input.clone()), Arg::Address(call.output.clone())];
            let module = match call.counts() {
                Some(counts) => {
                    args.extend([Arg::U32(bytes.div_ceil(lines::PAYLOAD) as u32), sync]);
                    args.extend(parts(counts, call, rank));
                    &MODULE_V
                }
                None => {
                    args.extend([Arg::U32(call.count as u32), sync]);
                    &MODULE
                }
            };
            vec![launch(module, call, target, (grid, block), args)]
        })
    }
}

/// Bytes of a slot, or of the longest part of any two ranks: all ranks have the lines of that, as lines want it.
fn longest(call: &Call) -> u64 {
    call.counts().map_or(call.slot_bytes(), |counts| counts.longest() * call.dtype.size())
}

/// The `Parts` structs of kernels/all_to_all/ll_v.cu: what a rank sends, and what it gets.
fn parts(counts: &Counts, call: &Call, rank: u32) -> [Arg; 2] {
    let sent = [bytes_for_each(call, |peer| counts.of(rank, peer)), bytes_for_each(call, |peer| counts.sent_at(rank, peer))];
    let received = [bytes_for_each(call, |peer| counts.of(peer, rank)), bytes_for_each(call, |peer| counts.received_at(peer, rank))];
    [sent, received].map(|fields| Arg::Struct(fields.concat()))
}
