//! Timings as queries have them, for manifests.

use passmuster_bench::{Timing, Workload};
use passmuster_harness::conformance::CaseId;

/// What was timed, as queries have it: `all_reduce/push:bf16,sum:w=2`; of what is no collective the scenario stands first, and there is no operator.
pub(crate) struct Timed<'t>(pub(crate) &'t Timing);

impl CaseId for Timed<'_> {
    fn head(&self) -> [&str; 4] {
        let Timed(Timing { contender, workload, .. }) = self;
        let op = if let Workload::Collective(of) = workload { of.op.name() } else { "" };
        [workload.subject(), contender, workload.dtype().name(), op]
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        vec![("w", self.0.workload.world().to_string())]
    }

    fn default_of(&self, _: &str) -> &'static str {
        ""
    }
}
