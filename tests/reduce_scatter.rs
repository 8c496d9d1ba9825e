//! Reduce-scatter: each rank gets its slice of the sum.
//!
//! These tests run PTX on the emulator. `cargo xtask test-gpu reduce_scatter` holds the same algorithms against NCCL on GPUs.

mod common;

use approx::assert_abs_diff_eq;
use passmuster::collective::{Collective, ReduceOp};
use proptest::{prelude::*, sample::select};

use common::{algorithms, inputs, run, sum};

const REDUCE_SCATTER: Collective = Collective::ReduceScatter;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn each_rank_gets_its_slice_of_the_sum(inputs in inputs(|world| world), algorithm in select(algorithms(REDUCE_SCATTER))) {
        let outputs = run(REDUCE_SCATTER, &algorithm, ReduceOp::Sum, inputs.count, &inputs.of);
        for (rank, output) in outputs.iter().enumerate() {
            for (i, &got) in output.iter().enumerate() {
                let (exact, bound) = sum(inputs.of.iter().map(|input| input[rank * inputs.count + i]));
                assert_abs_diff_eq!(f64::from(got), exact, epsilon = bound);
            }
        }
    }
}
