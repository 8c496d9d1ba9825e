//! What the plan is, and that it is one for whatever call there is.

use passmuster::{
    algorithms::{Algorithm, Target},
    collective::{Collective, DType, ReduceOp, Shape},
    plan::{Call, Launch, Op, Plan},
};
use proptest::prelude::*;
use rstest::rstest;

fn call(world: u32, count: u64, dtype: DType) -> Call {
    Call::standalone(Shape::new(Collective::AllReduce, world, count), dtype, ReduceOp::Sum).unwrap().0
}

fn launches(plan: &Plan) -> impl Iterator<Item = &Launch> {
    plan.ranks.iter().flatten().filter_map(|op| match op {
        Op::Launch(launch) => Some(launch),
        _ => None,
    })
}

#[test]
fn the_plan_is_the_one_that_was_reviewed() {
    insta::assert_snapshot!(own_kernel::Mine.plan(&call(2, 40, DType::BF16), &Target::default()));
}

#[rstest]
fn types_have_kernels_of_their_own(#[values(DType::F32, DType::F16, DType::BF16)] dtype: DType) {
    let library = own_kernel::registry().library();
    for launch in launches(&own_kernel::Mine.plan(&call(2, 40, dtype), &Target::default())) {
        assert_eq!(library.check(launch), Ok(()));
    }
}

proptest! {
    #[test]
    fn every_block_may_wait(world in 1..=16_u32, count in 0..1_000_000_u64, waiting_blocks in 1..=128_u32) {
        let plan = own_kernel::Mine.plan(&call(world, count, DType::F32), &Target { waiting_blocks, ..Target::default() });
        for launch in launches(&plan) {
            let blocks = launch.grid.total();
            prop_assert!((1..=u64::from(waiting_blocks)).contains(&blocks), "{blocks} blocks");
        }
    }
}
