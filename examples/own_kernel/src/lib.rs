//! `all_reduce/mine`: every rank pulls every rank's input, element by element. See kernels/mine.cu.

#![forbid(unsafe_code)]

use passmuster::{
    algorithms::{
        Algorithm, Registry, Target,
        kit::{THREADS, blocks_for, launch, plan_name, reduction, staging, sync_argument, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::Module,
    plan::{Arg, BufferSpec, Call, Op, Plan, Role},
};

/// passmuster's algorithms, and ours.
pub fn registry() -> Registry {
    passmuster::registry().algorithm(Mine)
}

/// Copy the input aside, then pull everything, one element a thread.
pub struct Mine;

const NAME: &str = "mine";
static MODULE: Module = Module::new("all_reduce/mine", include_str!("../kernels/mine.ptx")).with_sites();

impl Algorithm for Mine {
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

    /// Its barriers are relaxed. The verdict prints these reasons; `--profile ptx` reports what they waive as races.
    fn assumes(&self) -> Vec<(String, String)> {
        let boundary = "a peer that is at the start barrier has launched, so the copy to its staging buffer is done";
        let retired = "a peer that is at the end barrier has read all that it reads";
        [("boundary", boundary), ("retired", retired)].map(|(name, why)| (name.to_owned(), why.to_owned())).to_vec()
    }

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, _: u32, bytes: u64) -> Vec<BufferSpec> {
        let mut buffers = synchronisation(NAME);
        buffers.push(BufferSpec::new(format!("{NAME}.staging"), bytes + 16, Role::Data));
        buffers
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        // In place, results would overwrite what peers still read: every rank reads copies.
        let copy = staging(NAME, &call.input);
        let grid = blocks_for(call.count, target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Address(call.output.clone()),
                Arg::U64(call.count),
                reduction(&MODULE, call),
                sync_argument(NAME, rank, call.world()),
                Arg::Peers(copy.clone()),
            ];
            let launch = launch(&MODULE, call, target, (grid, THREADS), args);
            vec![Op::Copy { from: call.input.clone(), to: copy.clone(), to_rank: None }, launch]
        })
    }
}
