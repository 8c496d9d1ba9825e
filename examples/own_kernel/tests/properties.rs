//! Whatever call there is, and whatever comes before it, is right. What fails shrinks to the smallest case that does.

use passmuster::{cargo_test::judge, conformance::CollectiveCase, strategies};
use passmuster_collectives::collective::Collective;
use proptest::prelude::*;

fn calls() -> impl Strategy<Value = CollectiveCase> {
    own_kernel::registry().install().ok();
    strategies::cases(Collective::AllReduce, "mine", 1..=8)
}

fn sequences() -> impl Strategy<Value = CollectiveCase> {
    own_kernel::registry().install().ok();
    strategies::sequences(Collective::AllReduce, "mine")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn any_call_is_right(case in calls()) {
        prop_assert_eq!(judge(&case.into()), Ok(()));
    }

    #[test]
    fn any_sequence_is_right(case in sequences()) {
        prop_assert_eq!(judge(&case.into()), Ok(()));
    }
}
