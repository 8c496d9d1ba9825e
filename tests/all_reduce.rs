//! All-reduce: every rank gets the sum of all ranks' inputs.
//!
//! These tests run PTX on the emulator. `cargo xtask test-gpu all_reduce` holds the same algorithms against NCCL on GPUs.

mod common;

use approx::assert_abs_diff_eq;
use passmuster::{
    algorithms::Target,
    collective::{Collective, DType, ReduceOp, Shape},
    plan::Call,
};
use proptest::{prelude::*, sample::select};
use rstest::rstest;

use common::{REGISTRY, algorithms, inputs, run, sum};

const ALL_REDUCE: Collective = Collective::AllReduce;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_rank_gets_the_sum(inputs in inputs(|_| 1), algorithm in select(algorithms(ALL_REDUCE))) {
        let outputs = run(ALL_REDUCE, &algorithm, ReduceOp::Sum, inputs.count, &inputs.of);
        for (i, &got) in outputs.iter().flat_map(|output| output.iter().enumerate()) {
            let (exact, bound) = sum(inputs.of.iter().map(|input| input[i]));
            assert_abs_diff_eq!(f64::from(got), exact, epsilon = bound);
        }
    }
}

#[rstest]
fn small_integers_add_exactly(#[values(1, 2, 3, 8)] world: usize) {
    let inputs: Vec<Vec<f32>> = (0..world).map(|rank| (0..37).map(|i| (100 * rank + i) as f32).collect()).collect();
    let expected: Vec<f32> = (0..37).map(|i| inputs.iter().map(|input| input[i]).sum()).collect();
    for algorithm in algorithms(ALL_REDUCE) {
        assert_eq!(run(ALL_REDUCE, &algorithm, ReduceOp::Sum, 37, &inputs), vec![expected.clone(); world], "{algorithm}");
    }
}

#[rstest]
fn the_largest_element_wins(#[values("one_shot", "two_shot")] algorithm: &str) {
    let inputs = [vec![1.0, -2.0, 5.0], vec![3.0, -4.0, 0.5], vec![2.0, -3.0, 0.25]];
    assert_eq!(run(ALL_REDUCE, algorithm, ReduceOp::Max, 3, &inputs), vec![vec![3.0, -2.0, 5.0]; 3]);
}

/// A plan is data: it can be printed and compared.
#[test]
fn a_plan_says_what_each_rank_does() {
    let (call, _) = Call::standalone(Shape::new(ALL_REDUCE, 2, 1040), DType::BF16, ReduceOp::Sum).unwrap();
    insta::assert_snapshot!(REGISTRY.find(ALL_REDUCE, "two_shot").unwrap().plan(&call, &Target::default()));
}
