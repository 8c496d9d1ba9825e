//! `all_reduce/one_shot_lamport`: every rank pushes its input to all in Lamport packs. See kernels/all_reduce/one_shot_lamport.cu.

use crate::{
    algorithms::{
        Algorithm, Protocol, Target,
        lamport::{self, Start},
        plan_name, reduction,
    },
    collective::{Collective, DType},
    contract::Contract,
    kernels::{Module, OwnEntries, module},
    plan::{Arg, BufferSpec, Call, Plan},
};

/// Push everything to all, reduce in rank order what the peers have pushed: one trip, no barrier and no flag, (world - 1) x bytes into each rank.
pub struct OneShotLamport(Start);

const NAME: &str = "one_shot_lamport";
static MODULE: Module = module!("all_reduce/one_shot_lamport", checked, wide).with_entries(OwnEntries::Sums);

impl OneShotLamport {
    /// As it ships.
    pub const DEPENDENT: OneShotLamport = OneShotLamport(Start::Dependent);

    /// The same without dependent launches.
    pub const SERIAL: OneShotLamport = OneShotLamport(Start::Serial);
}

impl Algorithm for OneShotLamport {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn name(&self) -> &'static str {
        match self.0 {
            Start::Dependent => NAME,
            Start::Serial => "one_shot_lamport_serial",
        }
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE]
    }

    fn protocol(&self) -> Protocol {
        Protocol::Packs
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::ORDERED
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        lamport::fits(NAME, "inputs", call.bytes(), call.world())
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        lamport::buffers(NAME, world, bytes)
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(u64::from(call.world() - 1) * call.bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let buffers = lamport::buffers(NAME, call.world(), call.bytes());
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let mut args = vec![
                Arg::Address(call.input.clone()),
                Arg::Address(call.output.clone()),
                Arg::U32(call.count as u32),
                reduction(&MODULE, call),
            ];
            args.extend(lamport::arguments(&buffers, rank, call.world()));
            vec![lamport::launch_of(&MODULE, call, target, self.0, call.bytes(), args)]
        })
    }
}
