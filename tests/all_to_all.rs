//! All-to-all: slot s of rank r becomes slot r of rank s.
//!
//! These tests run PTX on the emulator. `cargo xtask test-gpu all_to_all` holds the same algorithms against NCCL on GPUs.

mod common;

use passmuster::collective::{Collective, ReduceOp};
use proptest::{prelude::*, sample::select};

use common::{algorithms, inputs, run};

const ALL_TO_ALL: Collective = Collective::AllToAll;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn slots_change_places(inputs in inputs(|world| world), algorithm in select(algorithms(ALL_TO_ALL))) {
        let outputs = run(ALL_TO_ALL, &algorithm, ReduceOp::Copy, inputs.count, &inputs.of);
        let slot = |of: &[f32], number: usize| of[number * inputs.count..][..inputs.count].to_vec();
        for (rank, output) in outputs.iter().enumerate() {
            let sent: Vec<f32> = inputs.of.iter().flat_map(|input| slot(input, rank)).collect();
            prop_assert_eq!(output, &sent);
        }
    }
}
