//! `unregistered`: inputs and outputs in any device memory, for callers whose buffers peers cannot address.
//!
//! What peers read or write is copied into symmetric memory before the collective and out of it after. Which that is, the plan of the wrapped
//! algorithm says: a pull needs its input staged, a push its output, and one that sends lines which carry their flag needs neither, as its kernels
//! take them from where they are. A copy and the call are ordered by the stream, and the call's own meetings of ranks keep a peer from the
//! staged bytes of a call that has not ended.

use std::sync::Arc;

use crate::premul_sum::with_premul;
use passmuster_plan::algorithms::{Algorithm, Target, kit::PACK};
use passmuster_plan::{
    collective::{Collective, DType, ReduceOp, Shape},
    contract::Contract,
    plan::{BufferSpec, Call, Op, Plan, RankCall, Region, Role},
};

/// Another algorithm between a copy in and a copy out.
pub struct Unregistered {
    of: Arc<dyn Algorithm>,
}

/// The name.
pub const NAME: &str = "unregistered";

impl Unregistered {
    /// Around an algorithm.
    pub fn new(of: Arc<dyn Algorithm>) -> Unregistered {
        Unregistered { of }
    }
}

/// Where an argument is staged: at the same distance from `base`, the start of what is staged with it.
fn staged(name: &str, region: &Region, base: u64) -> Region {
    Region::new(format!("{NAME}.{name}"), base % PACK + (region.offset - base), region.bytes)
}

/// The call on staged regions, of which there are those of the buffers that `reaches` names.
fn staged_call(call: &Call, reaches: impl Fn(&Region) -> bool) -> Call {
    let base = |region: &Region| if call.in_place() { call.input.offset.min(call.output.offset) } else { region.offset };
    let name = if call.in_place() { ["output"; 2] } else { ["input", "output"] };
    let moved = |name, region: Region| if reaches(&region) { staged(name, &region, base(&region)) } else { region };
    let of_rank = |rank| {
        let RankCall { input, output, .. } = call.of_rank(rank);
        RankCall { input: moved(name[0], input), output: moved(name[1], output), ..call.of_rank(rank) }
    };
    let calls: Vec<RankCall> = (0..call.world()).map(of_rank).collect();
    let buffers = [&calls[0].input, &calls[0].output].map(|region| BufferSpec::new(region.buffer.clone(), u64::MAX, Role::Data));
    Call::validate(&calls, &buffers).expect("a call that was agreed on, elsewhere")
}

impl Algorithm for Unregistered {
    fn collective(&self) -> Collective {
        self.of.collective()
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn contract(&self, call: &Call) -> Contract {
        self.of.contract(call)
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        self.of.supports(call)
    }

    /// What is staged of them is not the input, but what comes of it.
    fn of_products(&self) -> Option<Arc<dyn Algorithm>> {
        Some(Arc::new(Unregistered::new(with_premul(&self.of, ReduceOp::PremulSum))))
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        self.of.link_bytes(call)
    }

    fn accepts_unregistered(&self) -> bool {
        true
    }

    /// What the wrapped algorithm needs, and where its input and output are staged; a call in place is staged as one.
    fn workspace(&self, dtype: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        let (inputs, outputs) = Shape::new(self.collective(), world, 1).slots();
        let output = bytes.div_ceil(inputs) * inputs.max(outputs);
        let staging = [("input", bytes), ("output", output)];
        let staging = staging.map(|(name, bytes)| BufferSpec::new(format!("{NAME}.{name}"), bytes + PACK, Role::Data));
        self.of.workspace(dtype, world, bytes).into_iter().chain(staging).collect()
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let direct = self.of.plan(call, target);
        let reached = direct.reached_by_peers();
        let reaches = |region: &Region| reached.contains(region.buffer.as_str());
        let staged = staged_call(call, reaches);
        let mut plan = self.of.plan(&staged, target);
        plan.name = format!("{NAME}: {}", plan.name);
        if call.count == 0 {
            return plan;
        }
        let shape = call.shape();
        for (rank, ops) in (0..).zip(&mut plan.ranks) {
            let copied = |from: Region, to: Region| (from != to).then_some(Op::Copy { from, to, to_rank: None });
            let sends = shape.destination(rank, 0).is_some();
            let enter = sends.then(|| copied(call.input_of(rank), staged.input_of(rank))).flatten();
            // What no part reaches stays as it is.
            let received = |region| Region { bytes: shape.received(rank) * call.dtype.size(), ..region };
            let receives = shape.receivers().contains(&rank) && shape.received(rank) > 0;
            let leave = receives.then(|| copied(received(staged.output_of(rank)), received(call.output_of(rank)))).flatten();
            ops.splice(0..0, enter);
            ops.extend(leave);
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use passmuster_plan::algorithms::Registry;

    /// The copies of a rank between the caller's buffers and staged ones.
    fn copies(collective: Collective, world: u32, count: u64, rank: usize) -> Vec<String> {
        let (call, _) = Call::standalone(Shape::new(collective, world, count), DType::BF16, collective.operators()[0]).unwrap();
        let plan = Registry::new(crate::catalogue()).find(collective, NAME).unwrap().plan(&call, &Target::default());
        let of_callers = |region: &Region| ["input", "output"].contains(&&*region.buffer);
        assert!(plan.reached_by_peers().iter().all(|buffer| !["input", "output"].contains(buffer)), "{plan}");
        let copy = |op: &Op| match op {
            Op::Copy { from, to, to_rank: None } if of_callers(from) != of_callers(to) => Some(format!("{from} -> {to}")),
            _ => None,
        };
        plan.ranks[rank].iter().filter_map(copy).collect()
    }

    /// What more is copied costs time for nothing; what less, and a peer would need an address that there is not.
    #[rstest]
    #[case::lines_take_their_input_from_where_it_is(Collective::AllToAll, 64, &[])]
    #[case::a_push_stores_to_its_peers(Collective::AllGather, 1 << 21, &["unregistered.output[0..16777216] -> output[0..16777216]"])]
    #[case::a_pull_loads_from_its_peers(Collective::ReduceScatter, 1 << 21, &["input[0..16777216] -> unregistered.input[0..16777216]"])]
    fn what_peers_reach_is_staged(#[case] collective: Collective, #[case] count: u64, #[case] expected: &[&str]) {
        assert_eq!(copies(collective, 4, count, 1), expected);
    }

    #[test]
    fn a_pull_has_staged_what_it_loads_and_nothing_else() {
        let of = |collective| [0, 1].map(|rank| copies(collective, 2, 1 << 22, rank));
        let staged = vec!["input[0..8388608] -> unregistered.input[0..8388608]".to_owned()];
        assert_eq!(of(Collective::Broadcast), [staged.clone(), Vec::new()]);
        assert_eq!(of(Collective::Reduce), [staged.clone(), staged]);
    }

    /// In place, the parts that are not the rank's own are the caller's until the result arrives.
    #[test]
    fn a_call_in_place_is_staged_as_one() {
        let (world, bytes) = (4, 16);
        let buffers = [BufferSpec { local: true, ..BufferSpec::new("both", 4 * bytes + 2, Role::Data) }];
        let (input, output) = (Region::new("both", 2, bytes), Region::new("both", 2, 4 * bytes));
        let first = RankCall {
            collective: Collective::AllGather,
            dtype: DType::BF16,
            op: ReduceOp::Copy,
            count: 8,
            root: 0,
            factor: None,
            parts: None,
            input,
            output,
        };
        let call = Call::uniform(&first, world, &buffers).unwrap();
        let staged = staged_call(&call, |_| true);
        assert!(staged.in_place());
        assert_eq!(staged.input_of(3), Region::new("unregistered.output", 2 + 3 * bytes, bytes));
        assert_eq!(staged.output_of(3), Region::new("unregistered.output", 2, 4 * bytes));
    }
}
