//! `all_reduce/one_shot`: every rank pulls every rank's input. See kernels/all_reduce/one_shot.cu.

use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{THREADS, blocks_for, launch, plan_name, reduction, staging, sync_argument, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::Module,
    plan::{Arg, BufferSpec, Call, Op, Plan, Role},
};

/// Pull everything, reduce in rank order: one trip, (world - 1) x bytes into each rank.
pub struct OneShot;

const NAME: &str = "one_shot";
pub(crate) static MODULE: Module = module!("all_reduce/one_shot", sites);

impl Algorithm for OneShot {
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

    fn workspace(&self, _: DType, _: u32, bytes: u64) -> Vec<BufferSpec> {
        let mut buffers = synchronisation(NAME);
        buffers.push(BufferSpec::new(format!("{NAME}.staging"), bytes + 16, Role::Data));
        buffers
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(u64::from(call.world() - 1) * call.bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        // In place, results would overwrite what peers still read: they read a copy instead.
        let input = if call.in_place() { staging(NAME, &call.input) } else { call.input.clone() };
        let grid = blocks_for(call.bytes().div_ceil(16), target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Address(call.output.clone()),
                Arg::U64(call.count),
                reduction(&MODULE, call),
                sync_argument(NAME, rank, call.world()),
                Arg::Peers(input.clone()),
            ];
            let launch = launch(&MODULE, call, target, (grid, THREADS), args);
            if call.in_place() {
                vec![Op::Copy { from: call.input.clone(), to: input.clone(), to_rank: None }, launch]
            } else {
                vec![launch]
            }
        })
    }
}
