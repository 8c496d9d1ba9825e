//! `hierarchical`: collectives of ranks on several nodes, by our kernels within a node and by NCCL between nodes.
//!
//! Ranks of one index, one of each node, have a communicator of their own: what leaves a node leaves it once, shared out over all of its ranks.
//!
//! | collective | within each node, by `auto` | across nodes, by NCCL |
//! |---|---|---|
//! | all_reduce | first a reduce-scatter, last an all-gather | an all-reduce of the rank's slice, between the two |
//! | all_gather | an all-gather for each node | first, an all-gather of the ranks' inputs |
//! | reduce_scatter | a reduce-scatter for each node | last, a reduce-scatter of these results |
//! | all_to_all | an all-to-all for each node | last, an all-to-all of what these have brought together |
//!
//! A sum is rounded to the element type once within its node, and by NCCL as NCCL does: [`Order::ByNode`].

use std::sync::Arc;

use passmuster_plan::algorithms::{Algorithm, Target, kit::plan_name};
use passmuster_plan::{
    collective::{Collective, DType, ReduceOp, Roundings, Shape},
    contract::{Contract, Order},
    plan::{BufferSpec, Call, CallError, Fill, MAX_RANKS, NcclCall, Op, Plan, RankCall, Region, Role},
};

/// A collective of two levels.
pub struct Hierarchical {
    collective: Collective,
    /// What does a collective within a node: one for each that goes on there.
    within: Vec<Arc<dyn Algorithm>>,
}

/// The name.
pub const NAME: &str = "hierarchical";

/// What a rank does, one after the other.
enum Step {
    /// Copies its own memory.
    Copy { from: Region, to: Region },
    /// A call among the ranks of its node.
    Within(Call),
    /// A call of `count` elements a slot among the ranks of its index on all nodes.
    Across { collective: Collective, count: u64, input: Region, output: Region },
}

impl Hierarchical {
    /// The collectives that it does.
    pub const COLLECTIVES: [Collective; 4] =
        [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll];

    /// `hierarchical` of one of them, which has these algorithms do what goes on within a node.
    pub fn new(collective: Collective, within: Vec<Arc<dyn Algorithm>>) -> Hierarchical {
        Hierarchical { collective, within }
    }

    /// The collectives that go on within a node.
    fn within(&self) -> &'static [Collective] {
        match self.collective {
            Collective::AllReduce => &[Collective::ReduceScatter, Collective::AllGather],
            Collective::AllGather => &[Collective::AllGather],
            Collective::ReduceScatter => &[Collective::ReduceScatter],
            Collective::AllToAll => &[Collective::AllToAll],
            _ => &[],
        }
    }

    /// What a rank does for a call. Calls within nodes are the same on all of them.
    ///
    /// # Errors
    /// Of calls within a node: their counts are no larger than this call's, rounded up to its ranks.
    fn steps(&self, call: &Call, rank: u32) -> Result<Vec<Step>, CallError> {
        let (nodes, of_node) = (call.nodes(), call.world() / call.nodes());
        let (count, size) = (call.count, call.dtype.size());
        let own = |name: &str, elements: u64| Region::new(format!("{NAME}.{name}"), 0, elements * size);
        // `number` slots of a region, from slot `first` on.
        let slots = |of: &Region, first: u32, number: u32| {
            Region::new(of.buffer.clone(), of.offset + u64::from(first) * count * size, u64::from(number) * count * size)
        };
        let within = |collective, count, input, output| {
            let op = if collective == Collective::AllGather { ReduceOp::Copy } else { call.op };
            Call::on_regions(Shape::new(collective, of_node, count), call.dtype, op, input, output).map(Step::Within)
        };
        let across = |count, input, output| Step::Across { collective: self.collective, count, input, output };
        let each_node = |step: &dyn Fn(u32) -> Result<Step, CallError>| (0..nodes).map(step).collect::<Result<Vec<Step>, CallError>>();
        let (input, output) = (call.input_of(rank), call.output_of(rank));
        Ok(match self.collective {
            Collective::AllReduce => {
                let (reduce_scatter, all_gather) = (Collective::ReduceScatter, Collective::AllGather);
                let slice = count.div_ceil(of_node.into());
                let padded = slice * u64::from(of_node);
                let sliced = own("slice", slice);
                // Slices of one size, where the elements have none: with what lies behind the last of them.
                let (from, to) =
                    if padded == count { (input.clone(), output.clone()) } else { (own("input", padded), own("output", padded)) };
                let part = |of: &Region| Region { bytes: count * size, ..of.clone() };
                let mut steps = Vec::new();
                if padded != count {
                    steps.push(Step::Copy { from: input, to: part(&from) });
                }
                steps.push(within(reduce_scatter, slice, from, sliced.clone())?);
                steps.push(across(slice, sliced.clone(), sliced.clone()));
                steps.push(within(all_gather, slice, sliced, to.clone())?);
                if padded != count {
                    steps.push(Step::Copy { from: part(&to), to: output });
                }
                steps
            }
            Collective::AllGather => {
                let gathered = own("gathered", u64::from(nodes) * count);
                let gather =
                    |node| within(Collective::AllGather, count, slots(&gathered, node, 1), slots(&output, node * of_node, of_node));
                let mut steps = vec![across(count, input, gathered.clone())];
                steps.extend(each_node(&gather)?);
                steps
            }
            Collective::ReduceScatter => {
                let reduced = own("reduced", u64::from(nodes) * count);
                let scatter =
                    |node| within(Collective::ReduceScatter, count, slots(&input, node * of_node, of_node), slots(&reduced, node, 1));
                let mut steps = each_node(&scatter)?;
                steps.push(across(count, reduced, output));
                steps
            }
            Collective::AllToAll => {
                let sorted = own("sorted", u64::from(call.world()) * count);
                let to_node = |of: &Region, node| slots(of, node * of_node, of_node);
                let sort = |node| within(Collective::AllToAll, count, to_node(&input, node), to_node(&sorted, node));
                let mut steps = each_node(&sort)?;
                steps.push(across(count * u64::from(of_node), sorted, output));
                steps
            }
            _ => unreachable!("it does four collectives"),
        })
    }

    /// What does a collective within a node.
    fn auto(&self, collective: Collective) -> &dyn Algorithm {
        &**self.within.iter().find(|auto| auto.collective() == collective).expect("there is one of every collective")
    }

    /// The plan of a call within a node, whose buffers have names of their own: two collectives may give theirs the same.
    fn plan_within(&self, call: &Call, target: &Target) -> Plan {
        let auto = self.auto(call.collective);
        let mut plan = auto.plan(call, target);
        let workspace = auto.workspace(call.dtype, call.world(), call.bytes());
        for region in plan.regions_mut().filter(|region| workspace.iter().any(|buffer| buffer.name == region.buffer)) {
            region.buffer = name_within(call.collective, &region.buffer);
        }
        plan
    }
}

fn name_within(collective: Collective, buffer: &str) -> String {
    format!("{NAME}.{collective}.{buffer}")
}

impl Algorithm for Hierarchical {
    fn collective(&self) -> Collective {
        self.collective
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn spans_nodes(&self) -> bool {
        true
    }

    fn contract(&self, call: &Call) -> Contract {
        if !call.op.reduces() {
            return Contract::COPIED;
        }
        Contract {
            order: Order::ByNode(call.nodes()),
            roundings: Roundings::PerHop,
            equal_across_ranks: true,
            equal_run_to_run: true,
            graph_equals_eager: false,
            in_place_equals_out_of_place: false,
            special_values: false,
        }
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        if call.nodes() == 1 {
            return Err(format!("{NAME} is for ranks on several nodes, this call's are on one"));
        }
        if call.op == ReduceOp::Avg && !call.dtype.is_float() {
            return Err("averages of integers would be truncated within each node, and again between nodes".into());
        }
        if call.op == ReduceOp::PremulSum {
            return Err(format!("{NAME} sums products: it does not make them"));
        }
        if call.counts().is_some() {
            return Err(format!("{NAME} has parts of one size"));
        }
        let steps = self.steps(call, 0).map_err(|error| error.to_string())?;
        let mut within = steps.iter().filter_map(|step| if let Step::Within(call) = step { Some(call) } else { None });
        within.try_for_each(|call| self.auto(call.collective).supports(call))
    }

    /// What the most demanding way to place `world` ranks on nodes takes.
    fn workspace(&self, dtype: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        let slot = bytes / self.collective.slots(world).0;
        // An all-reduce's slices may be longer than it by what is left of the last one.
        let padded = bytes + MAX_RANKS as u64 * dtype.size();
        let own: &[(&str, u64)] = match self.collective {
            Collective::AllReduce => &[("input", padded), ("output", padded), ("slice", padded)],
            Collective::AllGather => &[("gathered", slot * u64::from(world))],
            Collective::ReduceScatter => &[("reduced", slot * u64::from(world))],
            _ => &[("sorted", bytes)],
        };
        // What lies behind the elements of an all-reduce is reduced with them: it is something.
        let of = |&(name, bytes): &(&str, u64)| BufferSpec {
            fill: Fill::Byte(0),
            ..BufferSpec::new(format!("{NAME}.{name}"), bytes, Role::Data)
        };
        let mut buffers: Vec<BufferSpec> = own.iter().map(of).collect();
        for of_node in (1..world).filter(|&of_node| world.is_multiple_of(of_node)) {
            for &collective in self.within() {
                let bytes = if self.collective == Collective::AllReduce { padded } else { slot * collective.slots(of_node).0 };
                for buffer in self.auto(collective).workspace(dtype, of_node, bytes) {
                    let buffer = BufferSpec { name: name_within(collective, &buffer.name), ..buffer };
                    match buffers.iter_mut().find(|known| known.name == buffer.name) {
                        Some(known) if known.bytes >= buffer.bytes => {}
                        Some(known) => *known = buffer,
                        None => buffers.push(buffer),
                    }
                }
            }
        }
        buffers
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let of_node = call.world() / call.nodes();
        let steps = |rank| self.steps(call, rank).expect("a call that is supported");
        let within = |step: Step| if let Step::Within(call) = step { Some(self.plan_within(&call, target)) } else { None };
        let plans: Vec<Plan> = steps(0).into_iter().filter_map(within).collect();
        let (dtype, op) = (call.dtype, call.op);
        let ops = |rank: u32| {
            let mut plans = plans.iter();
            let of_step = |step| match step {
                Step::Copy { from, to } => vec![Op::Copy { from, to, to_rank: None }],
                Step::Within(_) => plans.next().expect("every rank has the same steps").ranks[(rank % of_node) as usize].clone(),
                Step::Across { collective, count, input, output } => {
                    let call = RankCall { collective, dtype, op, count, root: 0, factor: None, parts: None, input, output };
                    vec![Op::Nccl(NcclCall { call, windows: false, across_nodes: true })]
                }
            };
            steps(rank).into_iter().flat_map(of_step).collect()
        };
        Plan { nodes: call.nodes(), ..Plan::per_rank(plan_name(NAME, call), call.world(), ops) }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use passmuster_plan::algorithms::Registry;

    fn hierarchical(collective: Collective) -> Arc<dyn Algorithm> {
        Registry::new(crate::catalogue()).find(collective, NAME).unwrap()
    }

    fn call(collective: Collective, nodes: u32, count: u64) -> Call {
        let shape = Shape::new(collective, 4, count);
        let (call, _) = Call::standalone(shape, DType::BF16, collective.operators()[0]).unwrap();
        call.on_nodes(nodes).unwrap()
    }

    /// The copies and calls of the library that rank 3 makes, in order; what comes between is within its node.
    fn steps(collective: Collective, nodes: u32, count: u64) -> Vec<String> {
        let hierarchical = hierarchical(collective);
        let plan = hierarchical.plan(&call(collective, nodes, count), &Target::default());
        assert_eq!(plan.nodes, nodes);
        let named = |op: &Op| match op {
            Op::Nccl(_) | Op::Copy { to_rank: None, .. } => op.to_string(),
            _ => "within".to_owned(),
        };
        let mut steps: Vec<String> = plan.ranks[3].iter().map(named).collect();
        steps.dedup();
        steps
    }

    /// If this fails, more leaves a node than has to, or results lie where other ranks' belong.
    #[rstest]
    #[case::slices(Collective::AllReduce, 8, &[
        "within",
        "nccl all_reduce bf16 sum 4 hierarchical.slice[0..8] -> hierarchical.slice[0..8], across nodes",
        "within",
    ])]
    #[case::slices_with_a_rest(Collective::AllReduce, 7, &[
        "copy input[0..14] -> hierarchical.input[0..14]",
        "within",
        "nccl all_reduce bf16 sum 4 hierarchical.slice[0..8] -> hierarchical.slice[0..8], across nodes",
        "within",
        "copy hierarchical.output[0..14] -> output[0..14]",
    ])]
    #[case::inputs(Collective::AllGather, 8, &[
        "nccl all_gather bf16 copy 8 input[0..16] -> hierarchical.gathered[0..32], across nodes",
        "within",
    ])]
    #[case::results(Collective::ReduceScatter, 8, &[
        "within",
        "nccl reduce_scatter bf16 sum 8 hierarchical.reduced[0..32] -> output[0..16], across nodes",
    ])]
    #[case::parts_of_a_node(Collective::AllToAll, 8, &[
        "within",
        "nccl all_to_all bf16 copy 16 hierarchical.sorted[0..64] -> output[0..64], across nodes",
    ])]
    fn what_goes_between_nodes(#[case] collective: Collective, #[case] count: u64, #[case] expected: &[&str]) {
        assert_eq!(steps(collective, 2, count), expected);
    }

    /// If this fails, a plan names memory that its group does not have, or a rank that is not on the node.
    #[rstest]
    fn plans_keep_to_what_there_is(
        #[values(0, 1, 2, 3)] which: usize,
        #[values(2, 4)] nodes: u32,
        #[values(0, 1, 1000, 100_000)] count: u64,
    ) {
        let collective = Hierarchical::COLLECTIVES[which];
        let (call, hierarchical) = (call(collective, nodes, count), hierarchical(collective));
        hierarchical.supports(&call).unwrap();
        let mut buffers = hierarchical.workspace(call.dtype, call.world(), call.bytes());
        buffers.extend(["input", "output"].map(|name| BufferSpec::new(name, 8 * count, Role::Data)));
        let mut plan = hierarchical.plan(&call, &Target::default());
        for region in plan.regions_mut() {
            let of = buffers.iter().find(|buffer| buffer.name == region.buffer);
            assert!(of.is_some_and(|buffer| region.offset + region.bytes <= buffer.bytes), "{region}: {of:?}");
        }
    }

    #[test]
    fn what_it_does_not_do_it_says() {
        let refusal = |call: Call| hierarchical(call.collective).supports(&call).unwrap_err();
        let on_one = call(Collective::AllReduce, 1, 8);
        assert_eq!(refusal(on_one.clone()), "hierarchical is for ranks on several nodes, this call's are on one");
        let average = Call::standalone(Shape::new(Collective::AllReduce, 4, 8), DType::I32, ReduceOp::Avg).unwrap().0;
        let refused = refusal(average.on_nodes(2).unwrap());
        assert_eq!(refused, "averages of integers would be truncated within each node, and again between nodes");
        assert_eq!(on_one.on_nodes(3).unwrap_err().to_string(), "3 nodes of 4 ranks: the group has as many ranks on each node");
        let two_shot = Registry::new(crate::catalogue()).find(Collective::AllReduce, "two_shot").unwrap();
        let refused = two_shot.supports(&call(Collective::AllReduce, 2, 8)).unwrap_err();
        assert_eq!(refused, "ranks of two_shot reach each other's memory, this call's are on 2 nodes");
    }
}
