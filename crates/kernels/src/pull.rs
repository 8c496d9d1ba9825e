//! Collectives whose ranks load from their peers what they need, between two barriers. Each kernel has a page of its own: what it publishes, and to whom.

use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{PACK, THREADS, blocks_for, launch, plan_name, reduction, slot, staging, sync_argument, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::Module,
    plan::{Arg, BufferSpec, Call, Op, Plan, Region, Role},
};

/// A collective of loads: every rank that gets a result loads what it is made of, and stores the result at home. One trip between two barriers.
pub struct Pull {
    collective: Collective,
    name: &'static str,
    module: &'static Module,
}

impl Pull {
    /// With a kernel of its own.
    pub(super) const fn new(collective: Collective, name: &'static str, module: &'static Module) -> Pull {
        Pull { collective, name, module }
    }

    /// Another algorithm with the kernel of this one.
    pub(super) const fn reused_for(self, collective: Collective, name: &'static str) -> Pull {
        Pull { collective, name, module: self.module }
    }

    /// What a rank launches to pull from the peers' `input`.
    pub(super) fn launched(&self, call: &Call, target: &Target, rank: u32, input: &Region) -> Op {
        let count = if call.shape().receivers().contains(&rank) { call.count } else { 0 };
        let pulled = match self.collective {
            Collective::ReduceScatter => slot(input, rank, call.slot_bytes()),
            _ => Region { bytes: count * call.dtype.size(), ..input.clone() },
        };
        let args = vec![
            Arg::Address(call.output_of(rank)),
            Arg::U64(count),
            if call.op.reduces() { reduction(self.module, call) } else { Arg::U32(call.root) },
            sync_argument(self.name, rank, call.world()),
            Arg::Peers(pulled),
        ];
        // Blocks meet their like: ranks that get nothing have as many.
        let grid = blocks_for(call.slot_bytes().div_ceil(PACK), target.waiting_blocks);
        launch(self.module, call, target, (grid, THREADS), args)
    }

    /// Whether results in place would overwrite what peers still read: they read a copy instead. In other collectives, no peer reads the part of an input
    /// that the output takes the place of.
    fn stages_in_place(&self) -> bool {
        self.collective == Collective::AllReduce
    }
}

impl Algorithm for Pull {
    fn collective(&self) -> Collective {
        self.collective
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn modules(&self) -> Vec<&'static Module> {
        crate::brought(self.module, self.collective, self.name)
    }

    fn contract(&self, call: &Call) -> Contract {
        if call.op.reduces() { Contract::ORDERED } else { Contract::COPIED }
    }

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, _: u32, bytes: u64) -> Vec<BufferSpec> {
        let staging = self.stages_in_place().then(|| BufferSpec::new(format!("{}.staging", self.name), bytes + PACK, Role::Data));
        synchronisation(self.name).into_iter().chain(staging).collect()
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(u64::from(call.world() - 1) * call.slot_bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let stages = call.in_place() && self.stages_in_place();
        let input = if stages { staging(self.name, &call.input) } else { call.input.clone() };
        Plan::per_rank(plan_name(self.name, call), call.world(), |rank| {
            let copy = stages.then(|| Op::Copy { from: call.input.clone(), to: input.clone(), to_rank: None });
            copy.into_iter().chain([self.launched(call, target, rank, &input)]).collect()
        })
    }
}
