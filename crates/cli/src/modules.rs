//! The kernel modules that records rest on.

use std::collections::{BTreeMap, BTreeSet};

#[cfg(feature = "bench")]
use passmuster_bench::{Contender, Timing};
use passmuster_harness::conformance::{Case, Verdict, mutants, report::provenance};
#[cfg(feature = "bench")]
use passmuster_plan::modules::FOREIGN;
use passmuster_plan::{
    algorithms::{Registry, Target},
    library::Library,
};

/// The mutant that is no kernel.
pub(crate) const SHARED_PADS: &str = "sync_two_groups_on_one_pad";

/// The kernels that verdicts rest on, with their hashes, for their record.
pub(crate) fn modules_of(registry: &Registry, library: &Library, verdicts: &[Verdict]) -> BTreeMap<String, String> {
    library.hashes(&verdicts.iter().filter_map(|verdict| of_verdict(registry, verdict)).flatten().collect())
}

/// The kernels that timings rest on, with their hashes, for their record.
#[cfg(feature = "bench")]
pub(crate) fn modules_of_timings(registry: &Registry, timings: &[Timing]) -> BTreeMap<String, String> {
    registry.library().hashes(&timings.iter().filter_map(|timing| of_timing(registry, timing)).flatten().collect())
}

/// The kernels that a timing rests on. None if there is no such contender any more.
#[cfg(feature = "bench")]
pub(crate) fn of_timing(registry: &Registry, timing: &Timing) -> Option<BTreeSet<String>> {
    // Kernels from elsewhere are none of ours: the notes of a record have their hashes.
    if timing.microseconds.is_none() && timing.eager.is_none() || timing.contender.starts_with(FOREIGN) {
        return Some(BTreeSet::new());
    }
    Some(Contender::find(registry, &timing.workload, &timing.contender).ok()?.modules(&timing.workload))
}

/// The modules that were mutated, with the hashes of what they are unchanged, for their record.
pub(crate) fn modules_of_mutants<'n>(registry: &Registry, names: impl IntoIterator<Item = &'n str>) -> BTreeMap<String, String> {
    registry.library().hashes(&names.into_iter().filter_map(|name| of_mutant(registry, name)).collect())
}

/// Those of one verdict.
pub(crate) fn of_verdict(registry: &Registry, verdict: &Verdict) -> Option<BTreeSet<String>> {
    provenance::modules_of(registry, verdict, Target::default().waiting_blocks)
}

/// Those of a case; none where there is no such case.
pub(crate) fn of_case(registry: &Registry, id: &str) -> Option<BTreeSet<String>> {
    Some(Case::resolve(id, registry).ok()?.modules(registry, Target::default().waiting_blocks))
}

/// The module that a mutant is of; none where there is no such module, or where it is a mutant of plans.
pub(crate) fn of_mutant(registry: &Registry, name: &str) -> Option<String> {
    if let Some(mutant) = registry.mutants().iter().find(|mutant| mutant.name == name) {
        return Some(mutant.module.to_owned());
    }
    Some(mutants::module_of(registry, name)?.to_owned())
}
