//! `all_to_all/lamport`: every rank pushes each peer its slot in Lamport packs. See kernels/all_to_all/lamport.cu.

use crate::{
    algorithms::{
        Algorithm, Protocol, Target,
        lamport::{self, Start},
        plan_name,
    },
    collective::{Collective, DType},
    contract::Contract,
    kernels::{Module, module},
    plan::{Arg, BufferSpec, Call, Plan},
};

/// Push the slots to their ranks, store what the peers have pushed: one trip, no barrier and no flag, (world - 1) slots into each rank.
pub struct Lamport(Start);

const NAME: &str = "lamport";
static MODULE: Module = module!("all_to_all/lamport", checked, wide);

impl Lamport {
    /// As it ships.
    pub const DEPENDENT: Lamport = Lamport(Start::Dependent);

    /// The same without dependent launches.
    pub const SERIAL: Lamport = Lamport(Start::Serial);
}

impl Algorithm for Lamport {
    fn collective(&self) -> Collective {
        Collective::AllToAll
    }

    fn name(&self) -> &'static str {
        match self.0 {
            Start::Dependent => NAME,
            Start::Serial => "lamport_serial",
        }
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE]
    }

    fn protocol(&self) -> Protocol {
        Protocol::Packs
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::COPIED
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        if call.counts().is_some() {
            return Err(format!("{NAME} takes slots of one length, not a count for each pair of ranks"));
        }
        lamport::fits(NAME, "slots", call.slot_bytes(), call.world())
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        lamport::buffers(NAME, world, bytes / u64::from(world))
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(u64::from(call.world() - 1) * call.slot_bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let buffers = lamport::buffers(NAME, call.world(), call.slot_bytes());
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let mut args = vec![Arg::Address(call.input.clone()), Arg::Address(call.output.clone()), Arg::U32(call.count as u32)];
            args.extend(lamport::arguments(&buffers, rank, call.world()));
            vec![lamport::launch_of(&MODULE, call, target, self.0, call.slot_bytes(), args)]
        })
    }
}
