//! Reduce: the root gets the sum of all ranks' inputs.
//!
//! These tests run PTX on the emulator. `cargo xtask test-gpu reduce` holds the same algorithms against NCCL on GPUs.

mod common;

use approx::assert_abs_diff_eq;
use passmuster::collective::{Collective, ReduceOp};
use proptest::{prelude::*, sample::select};

use common::{algorithms, inputs, run, sum};

const REDUCE: Collective = Collective::Reduce;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_root_gets_the_sum(inputs in inputs(|_| 1), algorithm in select(algorithms(REDUCE))) {
        let outputs = run(REDUCE, &algorithm, ReduceOp::Sum, inputs.count, &inputs.of);
        for (i, &got) in outputs[0].iter().enumerate() {
            let (exact, bound) = sum(inputs.of.iter().map(|input| input[i]));
            assert_abs_diff_eq!(f64::from(got), exact, epsilon = bound);
        }
    }
}
