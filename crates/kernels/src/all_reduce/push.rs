//! `all_reduce/push`: every rank stores its parts of the others' slices at them, which reduce them and push the results. See kernels/all_reduce/push.cuh.

use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{self, PACK, Ranks, THREADS, blocks_for, launch, plan_name, reduction, sync_argument, synchronisation},
    },
    collective::{Collective, DType, ReduceOp},
    contract::Contract,
    modules::{Calls, Module, MutantCases, OwnEntries},
    plan::{Arg, BufferSpec, Call, Op, Plan, Region, Role},
};

/// Two shots of stores alone: twice (world - 1) / world x bytes over each link, tile by tile, and as much scratch memory as the input takes.
pub struct Push;

const NAME: &str = "push";
static MODULE: Module = module!("all_reduce/push", sites).with_entries(OwnEntries::Sums).with_mutants(MutantCases {
    several: (2, 48_000),
    also: &["reduce/push:bf16,sum:w=3:calls=push.40000.root1+push.40:seed=6"],
    ..MutantCases::DEFAULT
});

/// The same kernel with senders that multiply.
static MULTIPLYING: Module = module!("premul_sum/push", sites).of_calls(Calls::PremulSum).with_mutants(MutantCases {
    several: (2, 24_000),
    also: &["reduce/push:bf16,premul_sum:w=3:calls=push.40000.root1+push.40:seed=6"],
    ..MutantCases::DEFAULT
});

impl Algorithm for Push {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE, &MULTIPLYING]
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::ORDERED
    }

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        workspace(bytes, world, world)
    }

    fn fuses_premul(&self, call: &Call) -> bool {
        fuses_premul(call)
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(2 * u64::from(call.world() - 1) * call.bytes() / u64::from(call.world()))
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let world = call.world();
        Plan::per_rank(plan_name(NAME, call), world, |rank| {
            let slices = Slices {
                count: call.count,
                owners: Ranks { first: 0, count: world },
                receivers: Ranks { first: rank, count: world },
                origin: 0,
            };
            vec![launched(call, target, rank, slices)]
        })
    }
}

/// What the kernel needs for inputs of `bytes` bytes in slices of `owners` owners: slots of one slice for each rank.
pub(crate) fn workspace(bytes: u64, world: u32, owners: u32) -> Vec<BufferSpec> {
    let mut buffers = synchronisation(NAME);
    let slots = slice_packs(bytes, owners).saturating_mul(PACK * u64::from(world));
    buffers.push(BufferSpec::new(format!("{NAME}.slots"), slots, Role::Data));
    buffers
}

/// Whether the kernel multiplies what this call has it send: in pre-multiplied sums, of the types that have an entry, and of whole packs.
pub(crate) fn fuses_premul(call: &Call) -> bool {
    let has_entry = has_own_entry(call.dtype) || matches!(call.dtype, DType::E4M3 | DType::E5M2);
    call.op == ReduceOp::PremulSum && has_entry && in_packs(call)
}

/// Whether the kernel has an entry of its own for sums of a type. That for all others has fewer packs under way.
pub(crate) fn has_own_entry(dtype: DType) -> bool {
    kit::has_own_entry(&MODULE, dtype, ReduceOp::Sum)
}

/// Whether inputs and outputs of all ranks, and the slots of such as have them, are packs.
pub(crate) fn in_packs(call: &Call) -> bool {
    let begins = |rank| [call.input_of(rank).offset, call.output_of(rank).offset].iter().all(|at| at.is_multiple_of(PACK));
    call.slot_bytes().is_multiple_of(PACK) && (0..call.world()).all(begins)
}

/// Packs of the longest slice.
fn slice_packs(bytes: u64, owners: u32) -> u64 {
    bytes.div_ceil(PACK).div_ceil(owners.into())
}

/// What the kernel does with slices.
#[derive(Clone, Copy)]
pub(crate) struct Slices {
    /// Elements of all of them.
    pub(crate) count: u64,
    /// Who reduces them, one each.
    pub(crate) owners: Ranks,
    /// Who gets the sum of the slice that this rank owns.
    pub(crate) receivers: Ranks,
    /// Bytes of the sum that the output does not begin with.
    pub(crate) origin: u64,
}

/// What a rank launches.
pub(crate) fn launched(call: &Call, target: &Target, rank: u32, slices: Slices) -> Op {
    let slice = slice_packs(slices.count * call.dtype.size(), slices.owners.count);
    // Senders that multiply know their own input alone. Addresses of peers come last.
    let (module, own, of_peers, how) = match call.of_rank(rank).factor {
        Some(factor) => (&MULTIPLYING, Some(Arg::Address(call.input_of(rank))), None, Arg::U64(factor)),
        None => (&MODULE, None, Some(Arg::Peers(call.input.clone())), reduction(&MODULE, call)),
    };
    let mut args: Vec<Arg> = own.into_iter().collect();
    args.extend([
        Arg::U64(slices.count),
        how,
        Arg::U64(slices.origin),
        slices.owners.argument(),
        slices.receivers.argument(),
        sync_argument(NAME, rank, call.world()),
    ]);
    args.extend(of_peers);
    args.extend([
        Arg::Peers(call.output_of(rank)),
        Arg::Peers(Region::new(format!("{NAME}.slots"), 0, slice * PACK * u64::from(call.world()))),
    ]);
    // Half of a block's threads send, the others reduce.
    launch(module, call, target, (blocks_for(2 * slice, target.waiting_blocks), THREADS), args)
}
