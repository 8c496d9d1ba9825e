//! `all_reduce/two_shot`: every rank reduces its slice and pushes it to all. See kernels/all_reduce/two_shot.cu.

use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{PACK, Ranks, THREADS, grid, launch, plan_name, reduction, sync_argument, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::Module,
    plan::{Arg, BufferSpec, Call, Op, Plan},
};

/// Pull the own slice from all, reduce it in rank order, push it to all: twice (world - 1) / world x bytes over each link.
pub struct TwoShot;

const NAME: &str = "two_shot";
static MODULE: Module = module!("all_reduce/two_shot", sites);

impl Algorithm for TwoShot {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE]
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::ORDERED
    }

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
        synchronisation(NAME)
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(2 * u64::from(call.world() - 1) * call.bytes() / u64::from(call.world()))
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let all = Ranks { first: 0, count: call.world() };
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| vec![launched(call, target, rank, all, all)])
    }
}

/// What a rank launches: owners reduce a slice each, receivers get all sums.
pub(crate) fn launched(call: &Call, target: &Target, rank: u32, owners: Ranks, receivers: Ranks) -> Op {
    let packs = call.bytes().div_ceil(PACK).div_ceil(owners.count.into());
    let args = vec![
        Arg::U64(call.count),
        reduction(&MODULE, call),
        owners.argument(),
        receivers.argument(),
        sync_argument(NAME, rank, call.world()),
        Arg::Peers(call.input.clone()),
        Arg::Peers(call.output.clone()),
    ];
    launch(&MODULE, call, target, grid(packs, target.waiting_blocks, THREADS), args)
}
