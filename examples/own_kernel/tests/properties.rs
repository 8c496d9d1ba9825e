//! Whatever call there is, and whatever comes before it, is right. What fails shrinks to the smallest case that does.

use std::{collections::BTreeSet, time::Duration};

use passmuster::{algorithms::Algorithm, collective::Collective};
use passmuster::{
    cargo_test::judge,
    conformance::{
        CollectiveCase,
        runner::{self, Settings},
    },
    emulator::{Emulator, EmulatorOptions},
    strategies,
};
use proptest::prelude::*;

fn calls() -> impl Strategy<Value = CollectiveCase> {
    strategies::cases(&own_kernel::registry(), Collective::AllReduce, "mine", 1..=8)
}

fn sequences() -> impl Strategy<Value = CollectiveCase> {
    strategies::sequences(&own_kernel::registry(), Collective::AllReduce, "mine")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn any_call_is_right(case in calls()) {
        prop_assert_eq!(judge(&own_kernel::registry(), &case.into()), Ok(()));
    }

    #[test]
    fn any_sequence_is_right(case in sequences()) {
        prop_assert_eq!(judge(&own_kernel::registry(), &case.into()), Ok(()));
    }
}

/// If this fails, the kernel rests on more about the hardware than it says, or says more than it needs.
#[test]
fn kernel_rests_on_what_it_declares() {
    let registry = own_kernel::registry();
    let mut needed = BTreeSet::new();
    for id in ["all_reduce/mine:bf16,sum:w=4:n=1040", "all_reduce/mine:f32,sum:w=3:calls=[mine.40+mine.9.in_place]x3"] {
        let settings = Settings { registry: &registry, deadline: Duration::from_secs(60), shared_pads: false, progress: &|_| {} };
        let verdict = runner::judge(&id.parse::<CollectiveCase>().unwrap(), &mut Emulator::new(EmulatorOptions::of(&registry)), &settings);
        assert!(!verdict.status.is_finding(), "{verdict:?}");
        needed.extend(verdict.waived.into_iter().map(|waived| waived.assumption));
    }
    let declared: BTreeSet<String> = own_kernel::Mine.assumes().into_iter().map(|(name, _)| name).collect();
    assert_eq!(needed, declared);
}
