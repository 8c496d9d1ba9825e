//! Pre-multiplied sums: every rank multiplies its input by its factor, then an algorithm sums the products. See kernels/premul_sum/products.cu.
//!
//! To the algorithm, it is a sum out of place. In place it is so too, for products lie apart: a rank that gets no result keeps its input. Only algorithms
//! that [multiply](Algorithm::fuses_premul) what they load are left the whole call.

use std::sync::Arc;

use passmuster_plan::algorithms::{
    Algorithm, Target,
    kit::{PACK, THREADS, entry},
};
use passmuster_plan::{
    collective::{Collective, DType, ReduceOp},
    contract::Contract,
    device::DeviceModel,
    modules::{Calls, Module},
    plan::{Arg, BufferSpec, Call, Launch, Op, Plan, Region, Role},
};

/// An algorithm that sums products.
struct PremulSum(Arc<dyn Algorithm>);

/// The most blocks that multiply: as many as H200's SMs hold at once. Fewer, each thread with one pack under way, do not keep its memory busy.
const BLOCKS: u64 = 4 * DeviceModel::MEASURED.sms as u64;

/// The kernel that multiplies.
pub(crate) const MODULE: Module = module!("premul_sum/products").of_calls(Calls::BeforeSums);

/// The algorithm as it does calls with this operator: of pre-multiplied sums it gets the products, where it cannot multiply itself. NCCL can, and
/// kernels from elsewhere do as they say.
pub fn with_premul(algorithm: &Arc<dyn Algorithm>, op: ReduceOp) -> Arc<dyn Algorithm> {
    let has = algorithm.collective().operators().contains(&ReduceOp::PremulSum);
    if op != ReduceOp::PremulSum || !has || algorithm.is_peer() || algorithm.is_foreign() {
        return algorithm.clone();
    }
    algorithm.of_products().unwrap_or_else(|| of_products(algorithm.clone()))
}

/// An algorithm that gets the products.
pub(crate) fn of_products(algorithm: Arc<dyn Algorithm>) -> Arc<dyn Algorithm> {
    Arc::new(PremulSum(algorithm))
}

impl PremulSum {
    /// Where a rank keeps its products: at the same distance from a pack's start as the input is.
    fn products(&self, call: &Call) -> Region {
        Region::new(format!("{}.products", self.name()), call.input.offset % 16, call.bytes())
    }

    /// What the algorithm is to do when all have multiplied.
    fn sum(&self, call: &Call) -> Call {
        call.of_products(self.products(call))
    }
}

impl Algorithm for PremulSum {
    fn collective(&self) -> Collective {
        self.0.collective()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn contract(&self, call: &Call) -> Contract {
        self.0.contract(&self.sum(call))
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        self.0.supports(&self.sum(call))
    }

    fn workspace(&self, dtype: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        let mut buffers = self.0.workspace(dtype, world, bytes);
        buffers.push(BufferSpec::new(format!("{}.products", self.name()), bytes.saturating_add(16), Role::Data));
        buffers
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        if self.0.fuses_premul(call) {
            return self.0.plan(call, target);
        }
        let mut plan = self.0.plan(&self.sum(call), target);
        for (rank, ops) in (0..).zip(&mut plan.ranks) {
            ops.insert(0, multiply(&call.input_of(rank), self.products(call), call, rank));
        }
        Plan { name: format!("{} of products", plan.name), ..plan }
    }

    /// It is given them already.
    fn of_products(&self) -> Option<Arc<dyn Algorithm>> {
        Some(of_products(self.0.clone()))
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        self.0.link_bytes(&self.sum(call))
    }

    fn spans_nodes(&self) -> bool {
        self.0.spans_nodes()
    }

    fn uses_multicast(&self) -> bool {
        self.0.uses_multicast()
    }

    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        self.0.environment()
    }
}

/// The launch by which a rank multiplies its input.
fn multiply(input: &Region, products: Region, call: &Call, rank: u32) -> Op {
    let factor = call.of_rank(rank).factor.expect("a call that all ranks agree on has their factors");
    Op::Launch(Launch {
        module: MODULE.name.into(),
        entry: entry(&MODULE, call.dtype, call.op),
        grid: (input.bytes.div_ceil(PACK * u64::from(THREADS)).clamp(1, BLOCKS) as u32).into(),
        block: THREADS.into(),
        cluster: None,
        dynamic_shared: 0,
        waits_for_peers: false,
        programmatic: false,
        registers: None,
        variables: Vec::new(),
        args: vec![Arg::Address(input.clone()), Arg::Address(products), Arg::U64(call.shape().input()), Arg::U64(factor)],
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use passmuster_plan::{algorithms::Registry, collective::Shape};

    /// If this fails, a call that could be multiplied on its way takes a pass over memory more, or one is whose kernel there is not.
    #[rstest]
    #[case::packs(Collective::AllReduce, "push", DType::BF16, 64, &["premul_sum/push"])]
    #[case::of_each_slot(Collective::ReduceScatter, "push", DType::F32, 4, &["premul_sum/push"])]
    #[case::to_a_root(Collective::Reduce, "push", DType::F16, 8, &["premul_sum/push"])]
    #[case::any_elements_of_any_type(Collective::Reduce, "chain", DType::I8, 7, &["premul_sum/chain"])]
    #[case::half_a_pack(Collective::AllReduce, "push", DType::BF16, 68, &[MODULE.name, "all_reduce/push"])]
    #[case::slots_that_are_none(Collective::ReduceScatter, "push", DType::F32, 6, &[MODULE.name, "all_reduce/one_shot"])]
    #[case::of_8_bits(Collective::AllReduce, "push", DType::E4M3, 64, &["premul_sum/push"])]
    #[case::no_entry(Collective::AllReduce, "push", DType::I32, 64, &[MODULE.name, "all_reduce/push"])]
    #[case::auto_of_much(Collective::Reduce, "auto", DType::BF16, 8 << 20, &["premul_sum/push"])]
    #[case::auto_of_less(Collective::Reduce, "auto", DType::BF16, 4 << 20, &[MODULE.name, "all_reduce/one_shot"])]
    #[case::auto_of_much_without_entry(Collective::AllReduce, "auto", DType::I32, 32 << 20, &[MODULE.name, "all_reduce/push"])]
    #[case::unregistered_needs_no_copy_in(Collective::AllReduce, "unregistered", DType::BF16, 8 << 20, &["premul_sum/push", "copy"])]
    fn what_a_rank_does(
        #[case] collective: Collective,
        #[case] algorithm: &str,
        #[case] dtype: DType,
        #[case] count: u64,
        #[case] expected: &[&str],
    ) {
        let (call, _) = Call::standalone(Shape::new(collective, 2, count), dtype, ReduceOp::PremulSum).unwrap();
        let registry = Registry::new(crate::catalogue());
        let algorithm = registry.find_for(collective, algorithm, ReduceOp::PremulSum).unwrap();
        let mut plan = algorithm.plan(&call, &Target::default());
        let done = |op: &Op| match op {
            Op::Launch(launch) => launch.module.to_string(),
            Op::Copy { .. } => "copy".to_owned(),
            other => panic!("{other}"),
        };
        assert_eq!(plan.ranks[0].iter().map(done).collect::<Vec<_>>(), expected, "{plan}");
        let again = registry.for_operator(&algorithm, ReduceOp::PremulSum).plan(&call, &Target::default());
        assert_eq!(again.to_string(), plan.to_string(), "it multiplies twice");
        let mut known: Vec<String> = algorithm.workspace(dtype, 2, call.bytes()).into_iter().map(|buffer| buffer.name).collect();
        known.extend(["input".to_owned(), "output".to_owned()]);
        assert!(plan.regions_mut().all(|region| known.contains(&region.buffer)), "{plan}");
    }
}
