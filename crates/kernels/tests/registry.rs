//! Algorithms of a registry that has ours.

use rstest::rstest;

use passmuster_kernels::{all_reduce::ONE_SHOT, catalogue};
use passmuster_plan::{
    algorithms::{Algorithm, Registry, Target},
    collective::{Collective, DType, ReduceOp, Shape},
    contract::Contract,
    modules::{Module, OwnEntries},
    plan::{BufferSpec, Call, MAX_RANKS, Plan},
};

fn own() -> Registry {
    Registry::new(catalogue())
}

/// An algorithm of a name, with modules.
struct Named(&'static str, &'static [Module]);

impl Algorithm for Named {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn name(&self) -> &'static str {
        self.0
    }

    fn modules(&self) -> Vec<&'static Module> {
        self.1.iter().collect()
    }

    fn contract(&self, call: &Call) -> Contract {
        ONE_SHOT.contract(call)
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        ONE_SHOT.check_supported(call)
    }

    fn workspace(&self, dtype: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        ONE_SHOT.workspace(dtype, world, bytes)
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        ONE_SHOT.plan(call, target)
    }
}

/// If this fails, a case id may stand for two algorithms, or for none.
#[rstest]
#[case::built_in(Named("two_shot", &[]), "there are two algorithms `two_shot` of all_reduce")]
#[case::by_name(Named("auto", &[]), "there are two algorithms `auto` of all_reduce")]
#[case::timed(Named("nccl_symmetric", &[]), "there are two algorithms `nccl_symmetric` of all_reduce")]
#[case::spelling(Named("Two-Shot", &[]), "algorithm `Two-Shot` of all_reduce: a name has small letters, digits and underscores only")]
#[case::empty(Named("", &[]), "algorithm `` of all_reduce: a name has small letters, digits and underscores only")]
fn names_that_ids_cannot_tell_apart_are_refused(#[case] algorithm: Named, #[case] refused: &str) {
    assert_eq!(own().algorithm(algorithm).check().unwrap_err().to_string(), refused);
}

const TAKEN: Named = Named("mine", &[Module::new("all_reduce/two_shot", ".visible .entry k(")]);
const NO_PTX: Named = Named("mine", &[Module::new("all_reduce/mine", "")]);
const MINE: Named = Named("mine", &[Module::new("all_reduce/mine", ".visible .entry k(")]);

/// If this fails, a launch may run another kernel than the one that it names.
#[rstest]
#[case::taken(TAKEN, "there are two kernel modules `all_reduce/two_shot`")]
#[case::no_ptx(NO_PTX, "kernel module `all_reduce/mine` has no entry point: is it PTX?")]
fn modules_that_cannot_be_launched_are_refused(#[case] algorithm: Named, #[case] refused: &str) {
    assert_eq!(own().algorithm(algorithm).check().unwrap_err().to_string(), refused);
}

#[test]
fn what_is_added_stands_behind_what_is_built_in() {
    let registry = own().algorithm(MINE);
    assert_eq!(registry.check(), Ok(()));
    assert_eq!(registry.added().iter().map(|algorithm| algorithm.name()).collect::<Vec<_>>(), ["mine"]);
    assert_eq!(registry.modules().last().map(|module| module.name), Some("all_reduce/mine"));
}

/// If this fails, what one part of a process adds is found by another, or not by the part that added it.
#[test]
fn registries_of_one_process_know_nothing_of_each_other() {
    let (with_mine, without) = (own().algorithm(MINE), own());
    assert_eq!(with_mine.find(Collective::AllReduce, "mine").map(|algorithm| algorithm.name().to_owned()), Ok("mine".into()));
    let refused = without.find(Collective::AllReduce, "mine").map(drop).unwrap_err().to_string();
    assert!(refused.starts_with("unknown algorithm `mine` of all_reduce: expected one of one_shot, two_shot, "), "{refused}");
    assert!(with_mine.module("all_reduce/mine").is_some() && without.module("all_reduce/mine").is_none());
    let entry = |registry: &Registry| registry.library().ptx("all_reduce/mine").is_ok();
    assert_eq!([&with_mine, &without].map(entry), [true, false]);
}

/// If this fails, a group of an NVLink domain is refused an algorithm whose kernels have room for it, or a kernel without room is launched.
#[test]
fn groups_are_as_large_as_kernels_have_room_for() {
    let call = |collective: Collective, world| {
        Call::standalone(Shape::new(collective, world, 8), DType::BF16, collective.operators()[0]).map(|(call, _)| call)
    };
    let most = MAX_RANKS as u32;
    for algorithm in own().algorithms() {
        let (collective, name) = (algorithm.collective(), algorithm.name());
        assert_eq!(algorithm.supports(&call(collective, most).unwrap()), Ok(()), "{collective}/{name}");
    }
    let error = call(Collective::AllGather, most + 1).unwrap_err();
    assert_eq!(error.to_string(), "world size 73 is not supported: a group has 1 to 72 ranks");
}

#[test]
fn common_reductions_keep_their_entries() {
    let registry = own();
    let entry = |name, dtype, op| passmuster_plan::algorithms::kit::entry(registry.module(name).unwrap(), dtype, op);
    assert_eq!(entry("all_reduce/two_shot", DType::BF16, ReduceOp::Avg), "all_reduce_two_shot_bf16_sum");
    assert_eq!(entry("all_reduce/two_shot", DType::BF16, ReduceOp::Prod), "all_reduce_two_shot_any");
    assert_eq!(entry("all_reduce/two_shot", DType::F64, ReduceOp::Min), "all_reduce_two_shot_f64_min");
    assert_eq!(entry("all_reduce/push", DType::BF16, ReduceOp::Avg), "all_reduce_push_bf16_sum");
    assert_eq!(entry("all_reduce/push", DType::F64, ReduceOp::Sum), "all_reduce_push_any");
    assert_eq!(entry("all_reduce/push", DType::BF16, ReduceOp::Min), "all_reduce_push_any");
    assert_eq!(entry("reduce_scatter/ll", DType::E4M3, ReduceOp::Sum), "reduce_scatter_ll_any");
    assert_eq!(entry("all_gather/copy_engine_barrier", DType::E4M3, ReduceOp::Copy), "all_gather_copy_engine_barrier");
    assert_eq!(entry("all_gather/push", DType::E4M3, ReduceOp::Copy), "all_gather_push_b8");
}

/// If this fails, mutants of a product are made of an entry that its module does not have.
#[test]
fn entries_that_mutants_of_products_are_made_of_are_there() {
    let registry = own();
    let products = registry.modules().iter().filter(|module| matches!(module.own_entries, OwnEntries::Product(_)));
    let entries: Vec<String> = products.map(|module| passmuster_plan::algorithms::kit::entry(module, DType::BF16, ReduceOp::Sum)).collect();
    assert_eq!(entries, ["all_gather_matmul_fused_bf16_nk_128x2", "matmul_reduce_scatter_fused_bf16_nk_128x2"]);
    for (module, entry) in ["all_gather_matmul/fused", "matmul_reduce_scatter/fused"].into_iter().zip(&entries) {
        let ptx = registry.module(module).unwrap().ptx;
        assert!(passmuster_plan::modules::entries(ptx).any(|known| known == entry), "{entry}");
    }
}
