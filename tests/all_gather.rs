//! All-gather: every rank gets all inputs, one after the other.
//!
//! These tests run PTX on the emulator. `cargo xtask test-gpu all_gather` holds the same algorithms against NCCL on GPUs.

mod common;

use passmuster::collective::{Collective, ReduceOp};
use proptest::{prelude::*, sample::select};

use common::{algorithms, inputs, run};

const ALL_GATHER: Collective = Collective::AllGather;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_rank_gets_all_inputs(inputs in inputs(|_| 1), algorithm in select(algorithms(ALL_GATHER))) {
        let outputs = run(ALL_GATHER, &algorithm, ReduceOp::Copy, inputs.count, &inputs.of);
        let all = inputs.of.concat();
        prop_assert_eq!(outputs, vec![all; inputs.of.len()]);
    }
}
