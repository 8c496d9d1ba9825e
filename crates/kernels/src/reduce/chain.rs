//! `reduce/chain`: each rank adds its input to what comes from the rank before it, and passes the sum on, to the root. See kernels/reduce/chain.cuh.

use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{PACK, THREADS, blocks_for, launch, plan_name, reduction, sync_argument, synchronisation},
    },
    collective::{Collective, DType, ReduceOp, Roundings},
    contract::{Contract, Order},
    modules::{Calls, Module, MutantCases, OwnEntries},
    plan::{Arg, BufferSpec, Call, Plan, Region, Role},
};

/// Add the own input to the sum of the ranks before and store it at the next one: bytes into each rank but the first and out of each but the root, tile by
/// tile, and as much scratch memory. A sum is rounded to the element type by each rank that it passes, as in NCCL's ring.
pub struct Chain;

const NAME: &str = "chain";

/// Threads of a block that take packs, and those of a warp: one tells the next rank.
pub(crate) const WORKERS: u32 = THREADS;
pub(crate) const WARP: u32 = 32;
const CHAIN_THREADS: u32 = WORKERS + WARP;

static MODULE: Module = module!("reduce/chain", sites)
    .with_entries(OwnEntries::Sums)
    .with_mutants(mutants(&["reduce/chain:bf16,sum:w=3:calls=[chain.12296+chain.12296.root1+chain.12296.root2]x4:seed=6"]));

/// The same kernel with ranks that multiply.
static MULTIPLYING: Module = module!("premul_sum/chain", sites)
    .of_calls(Calls::PremulSum)
    .with_mutants(mutants(&["reduce/chain:bf16,premul_sum:w=3:calls=[chain.12296+chain.12296.root1+chain.12296.root2]x4:seed=6"]));

/// Two tiles; and, often, calls in which the last of the emulator's blocks has one pack and is done before the others.
const fn mutants(also: &'static [&'static str]) -> MutantCases {
    MutantCases { several: (3, 61_440), also, ..MutantCases::DEFAULT }
}

impl Algorithm for Chain {
    fn collective(&self) -> Collective {
        Collective::Reduce
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE, &MULTIPLYING]
    }

    /// The rank behind the root begins.
    fn contract(&self, _: &Call) -> Contract {
        Contract { order: Order::AnyRotation, roundings: Roundings::PerHop, ..Contract::ORDERED }
    }

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, _: u32, bytes: u64) -> Vec<BufferSpec> {
        let mut buffers = synchronisation(NAME);
        buffers.push(BufferSpec::new(format!("{NAME}.slots"), bytes.next_multiple_of(PACK), Role::Data));
        buffers
    }

    fn fuses_premul(&self, call: &Call) -> bool {
        call.op == ReduceOp::PremulSum
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(if call.world() > 1 { call.bytes() } else { 0 })
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let packs = call.bytes().div_ceil(PACK);
        let grid = blocks_for(packs, target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let (module, how) = match call.of_rank(rank).factor {
                Some(factor) => (&MULTIPLYING, Arg::U64(factor)),
                None => (&MODULE, reduction(&MODULE, call)),
            };
            let args = vec![
                Arg::Address(call.input_of(rank)),
                Arg::Address(call.output_of(rank)),
                Arg::U64(call.count),
                how,
                Arg::U32(call.root),
                sync_argument(NAME, rank, call.world()),
                Arg::Peers(Region::new(format!("{NAME}.slots"), 0, packs * PACK)),
            ];
            vec![launch(module, call, target, (grid, CHAIN_THREADS), args)]
        })
    }
}
