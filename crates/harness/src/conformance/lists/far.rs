//! What the lists have of offsets that 32 bits do not count. Memory that nobody touches costs nothing, so these calls are as small as others.

use super::{
    super::{
        collective_case::{CallSpec, CollectiveCase, Item},
        inputs::InputClass,
        scenario::standard_shot,
    },
    Source,
};
use passmuster_plan::{
    algorithms::Foreign,
    collective::{Collective, DType},
};

/// Bytes of a slot. A far call reaches up to its end. In 32 bits this is zero: a kernel that works out in 32 bits where a rank's part starts, or the
/// other half of a buffer, gets the place of another part.
const FAR: u64 = 1 << 32;

/// The same for what counts elements in 31 bits. Only with several ranks is a part that far.
const LESS_FAR: u64 = 1 << 31;

/// Elements of a call.
pub(super) const COUNT: u64 = 1040;

/// Every algorithm that does calls as large.
pub(super) fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let of = |collective: Collective| from.under_test(collective).map(move |algorithm| (collective, algorithm.name()));
    let case = |(collective, algorithm): (Collective, &str)| {
        let mut case = CollectiveCase::new(collective, algorithm, DType::BF16, collective.operators()[0], 2, COUNT);
        case.inputs = InputClass::Natural;
        case.seed = seed;
        calls(from, case, FAR)
    };
    Collective::ALL.into_iter().flat_map(of).filter_map(case).collect()
}

/// A kernel from elsewhere, if it does calls as large. `modest` gives a small case for a number of ranks.
pub(super) fn of_foreign(from: Source<'_>, foreign: &Foreign, modest: impl Fn(u32) -> Option<CollectiveCase>) -> Option<CollectiveCase> {
    let worlds = || foreign.worlds().iter().copied().filter(|&world| world > 1);
    [(FAR, worlds().min()?), (LESS_FAR, worlds().max()?)].into_iter().find_map(|(bytes, world)| calls(from, modest(world)?, bytes))
}

/// The call of a case at the end of slots of `bytes` bytes, in turns with the same call at the start. The workspace is made for calls of a whole slot.
fn calls(from: Source<'_>, mut case: CollectiveCase, bytes: u64) -> Option<CollectiveCase> {
    let most = bytes / case.dtype.size();
    let near = standard_shot(&case);
    let far = CallSpec { offset: case.shape(1).input() * (most - case.count), ..near.clone() };
    let as_large = CollectiveCase { count: most, ..case.clone() };
    let there = CollectiveCase { offset: far.offset, ..case.clone() };
    from.supports(&as_large).and_then(|()| from.supports(&there)).ok()?;
    case.calls = [far.clone(), near, far].map(Item::Eager).into();
    (case.count, case.in_place) = (0, false);
    Some(case)
}
