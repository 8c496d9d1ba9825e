//! Collectives whose ranks have the switch reduce and copy, by multimem instructions (PTX ISA 9.7.9.14): what these do, and what can be promised of it. Each
//! kernel has a page of its own.

use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{PACK, THREADS, blocks_for, launch, plan_name, slot, staging, sync_argument, synchronisation},
    },
    collective::{Collective, DType, ReduceOp, Roundings},
    contract::{Contract, Order},
    modules::Module,
    plan::{Arg, BufferSpec, Call, Op, Plan, Role},
};

/// A collective by the switch: one trip between two barriers.
pub struct Multimem {
    collective: Collective,
    name: &'static str,
    module: &'static Module,
    switch: Switch,
}

/// What the switch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    /// It reduces what a rank loads. The rank stores it at home.
    Reduces,
    /// It writes what a rank stores to all. The rank loads it at home.
    Copies,
    /// Both: a rank loads its slice reduced, and stores it to all.
    ReducesAndCopies,
}

impl Multimem {
    /// With a kernel of its own.
    pub(super) const fn new(collective: Collective, name: &'static str, module: &'static Module, switch: Switch) -> Multimem {
        Multimem { collective, name, module, switch }
    }

    /// Another algorithm with the kernel of this one.
    pub(super) const fn reused_for(self, collective: Collective, name: &'static str) -> Multimem {
        Multimem { collective, name, ..self }
    }

    /// Whether results in place would overwrite what peers still read: they read a copy instead. Of a slice or slot, the rank that stores it is the only
    /// one to read it.
    fn stages_in_place(&self) -> bool {
        self.collective == Collective::AllReduce && self.switch == Switch::Reduces
    }
}

impl Algorithm for Multimem {
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
        match self.switch {
            // Every rank computes each element for itself: sums may differ from rank to rank.
            Switch::Reduces => contract(call),
            Switch::Copies => Contract::COPIED,
            // One rank computes each element and all get it.
            Switch::ReducesAndCopies => Contract { equal_across_ranks: true, ..contract(call) },
        }
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        has_ranks(call)?;
        if self.switch == Switch::Copies { Ok(()) } else { reduces(call) }
    }

    fn workspace(&self, _: DType, _: u32, bytes: u64) -> Vec<BufferSpec> {
        let staging = self.stages_in_place().then(|| BufferSpec::new(format!("{}.staging", self.name), bytes + PACK, Role::Data));
        synchronisation(self.name).into_iter().chain(staging).collect()
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let (world, stages) = (call.world(), call.in_place() && self.stages_in_place());
        let packs = call.slot_bytes().div_ceil(PACK);
        let packs = if self.switch == Switch::ReducesAndCopies { packs.div_ceil(u64::from(world)) } else { packs };
        let grid = blocks_for(packs, target.waiting_blocks);
        Plan::per_rank(plan_name(self.name, call), world, |rank| {
            let input = match self.collective {
                _ if stages => staging(self.name, &call.input),
                Collective::ReduceScatter => slot(&call.input, rank, call.slot_bytes()),
                _ => call.input_of(rank),
            };
            let output = call.output_of(rank);
            let copy = stages.then(|| Op::Copy { from: call.input.clone(), to: input.clone(), to_rank: None });
            // What goes by the switch has addresses of the peers too: of elements that are no whole packs.
            let (from, to, of_peers) = match self.switch {
                Switch::Reduces => (Arg::Multicast(input.clone()), Arg::Address(output), vec![input]),
                Switch::Copies => (Arg::Address(input), Arg::Multicast(output.clone()), vec![output]),
                Switch::ReducesAndCopies => (Arg::Multicast(input.clone()), Arg::Multicast(output.clone()), vec![input, output]),
            };
            let mut args = vec![from, to, Arg::U64(call.count)];
            args.extend(self.collective.has_root().then_some(Arg::U32(call.root)));
            args.push(sync_argument(self.name, rank, world));
            args.extend(of_peers.into_iter().map(Arg::Peers));
            copy.into_iter().chain([launch(self.module, call, target, (grid, THREADS), args)]).collect()
        })
    }

    fn uses_multicast(&self) -> bool {
        true
    }
}

/// What multimem instructions promise about the numbers of a call.
///
/// PTX leaves order and rounding of sums to the hardware (PTX ISA 9.7.9.14), and nothing says that two accesses to the same data agree: NCCL
/// has seen sums change with the history of multicast allocations (NCCL issue 1497). So sums are promised to be rounded once, to a
/// neighbour, and no two calls to be equal. Minima and maxima are the same in every order. What becomes of NaN, of the sign of zero and of
/// subnormals is not said.
fn contract(call: &Call) -> Contract {
    let exact = !call.op.adds();
    Contract {
        order: Order::Any,
        roundings: Roundings::OnceToNeighbour,
        equal_across_ranks: exact,
        equal_run_to_run: exact,
        graph_equals_eager: exact,
        in_place_equals_out_of_place: exact,
        special_values: false,
    }
}

/// Whether there are ranks for a switch to be between. A multicast object of one device would do, but there is nothing for it to do.
///
/// # Errors
/// The reason why not, for people.
fn has_ranks(call: &Call) -> Result<(), String> {
    if call.world() == 1 { Err("multimem is for 2 ranks or more".into()) } else { Ok(()) }
}

/// Whether multimem instructions reduce as a call says. An average would be rounded twice: the switch returns the sum in the type of the
/// elements.
///
/// # Errors
/// The reason why not, for people.
fn reduces(call: &Call) -> Result<(), String> {
    match (call.dtype, call.op) {
        (_, ReduceOp::Avg) => Err("the average of sums that multimem has rounded to the element type would be rounded twice".into()),
        (_, ReduceOp::Prod) => Err("multimem has no products".into()),
        (DType::F32, ReduceOp::Sum) | (DType::F16 | DType::BF16, _) => Ok(()),
        (DType::E4M3 | DType::E5M2, op) => Err(format!("multimem {op} of {} needs sm_100a; these kernels are for sm_90", call.dtype)),
        (dtype, op) => Err(format!("multimem does sums of f32, and sums, minima and maxima of f16 and bf16, not {op} of {dtype}")),
    }
}
