//! Broadcast: every rank gets the root's input.
//!
//! These tests run PTX on the emulator. `cargo xtask test-gpu broadcast` holds the same algorithms against NCCL on GPUs.

mod common;

use passmuster::collective::{Collective, ReduceOp};
use proptest::{prelude::*, sample::select};

use common::{algorithms, inputs, run};

const BROADCAST: Collective = Collective::Broadcast;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_rank_gets_the_roots_input(inputs in inputs(|_| 1), algorithm in select(algorithms(BROADCAST))) {
        let outputs = run(BROADCAST, &algorithm, ReduceOp::Copy, inputs.count, &inputs.of);
        prop_assert_eq!(outputs, vec![inputs.of[0].clone(); inputs.of.len()]);
    }
}
