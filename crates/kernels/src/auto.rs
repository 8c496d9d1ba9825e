//! `auto`: of the algorithms of a collective, the one that was the fastest at a call's size where somebody measured.

use std::sync::{Arc, LazyLock};

use crate::premul_sum::of_products;
use crate::tuning::Tuning;
use passmuster_plan::{
    algorithms::{Algorithm, Target, kit::PACK},
    collective::{Collective, DType, ReduceOp, Roundings, Shape},
    contract::Contract,
    plan::{BufferSpec, Call, Plan},
};

/// The algorithm that the tuning table names for a call's collective, world size and bytes.
pub struct Auto {
    collective: Collective,
    /// What it chooses from, all of the collective.
    from: Vec<Arc<dyn Algorithm>>,
    /// Whether it is for pre-multiplied sums, which may be done by an algorithm that no row names.
    premultiplied: bool,
}

/// Bytes of the larger of input and output from which on a pre-multiplied sum is done by an algorithm that [multiplies](Algorithm::fuses_premul): it takes
/// its time for a sum, the others theirs and a pass over memory. Microseconds of 16 MiB of bf16, two H200: all_reduce 54, by one_shot 66; reduce_scatter 35,
/// by pull 41; reduce 57, by pull 62. With 4 MiB they are behind (24 and 20, 21 and 14, 23 and 19).
const MULTIPLIED_FROM: u64 = 16 << 20;

/// The name.
pub const NAME: &str = "auto";

/// The table that is chosen by: of H100 and H200, which have the same multiprocessors and links. `cargo xtask tune` writes it, and each row says where it was measured.
static TABLE: LazyLock<Tuning> =
    LazyLock::new(|| serde_json::from_str(include_str!("../fixtures/tuning/hopper.json")).expect("a test reads it"));

/// What `auto` does with a call, and why.
pub struct Choice {
    /// The algorithm.
    pub algorithm: Arc<dyn Algorithm>,
    /// Which measurement says so, for people.
    pub reason: String,
}

impl Auto {
    /// `auto` of a collective, which chooses from these algorithms.
    pub fn new(collective: Collective, from: Vec<Arc<dyn Algorithm>>) -> Auto {
        let of_collective = from.into_iter().filter(|algorithm| algorithm.collective() == collective).collect();
        Auto { collective, from: of_collective, premultiplied: false }
    }

    /// The table that is chosen by.
    pub fn table() -> &'static Tuning {
        &TABLE
    }

    /// The algorithms that it may choose among `world` ranks.
    fn algorithms(&self, world: u32) -> Vec<&Arc<dyn Algorithm>> {
        let mut all: Vec<_> = of_table(self.collective).into_iter().filter_map(|name| self.find(name)).collect();
        if self.premultiplied {
            let one_pack = Shape::new(self.collective, world, PACK);
            let (call, _) = Call::standalone(one_pack, DType::BF16, ReduceOp::PremulSum).expect("a pack a slot fits");
            all.extend(self.multiplying(&call));
        }
        all
    }

    fn find(&self, name: &str) -> Option<&Arc<dyn Algorithm>> {
        self.from.iter().find(|algorithm| algorithm.name() == name)
    }

    /// The algorithm that does a pre-multiplied sum without a pass over memory and rounds sums once, if there is one.
    fn multiplying(&self, call: &Call) -> Option<&Arc<dyn Algorithm>> {
        let mut multiplying = self.from.iter().filter(|algorithm| algorithm.supports(call).is_ok() && algorithm.fuses_premul(call));
        multiplying.find(|algorithm| algorithm.contract(call).roundings == Roundings::Once)
    }

    /// What `auto` does with a call.
    ///
    /// # Errors
    /// Where no algorithm of the table does such a call, or the collective has no table.
    pub fn choose(&self, call: &Call) -> Result<Choice, String> {
        let (collective, world) = (call.collective, call.world());
        let row = TABLE.row(collective, world).ok_or_else(|| format!("{collective} is in no tuning table"))?;
        let bytes = call.shape().larger() * call.dtype.size();
        if let Some(algorithm) = (bytes >= MULTIPLIED_FROM).then(|| self.multiplying(call)).flatten() {
            let reason = format!("{bytes} bytes: {} multiplies what it loads", algorithm.name());
            return Ok(Choice { algorithm: algorithm.clone(), reason });
        }
        let at = row.step_of(bytes);
        // What does not do the call, or not well, gives way to the algorithms of larger calls, which are the more general, and then to those of other worlds.
        let order = (at..row.steps.len()).chain((0..at).rev()).map(|index| &*row.steps[index].algorithm);
        let of_others = of_table(collective).into_iter().filter(|name| row.steps.iter().all(|step| step.algorithm != *name));
        let mut refusals = Vec::new();
        for name in order.chain(of_others) {
            let algorithm = self.find(name).ok_or_else(|| format!("there is no algorithm `{name}` of {collective} to choose"))?;
            let defer_reason = |()| algorithm.defer_reason(call).map_or(Ok(()), |why| Err(why.to_owned()));
            match algorithm.supports(call).and_then(defer_reason) {
                Ok(()) => {
                    let why = if refusals.is_empty() { String::new() } else { format!("; {}", refusals.join("; ")) };
                    return Ok(Choice { algorithm: algorithm.clone(), reason: format!("{}{why}", row.reason(bytes, world)) });
                }
                Err(refusal) => refusals.push(refusal),
            }
        }
        Err(refusals.join("; "))
    }
}

/// The algorithms that are the choice of some world size, each once.
fn of_table(collective: Collective) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for step in TABLE.rows.iter().filter(|row| row.collective == collective).flat_map(|row| &row.steps) {
        if !names.contains(&&*step.algorithm) {
            names.push(&step.algorithm);
        }
    }
    names
}

impl Algorithm for Auto {
    fn collective(&self) -> Collective {
        self.collective
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn contract(&self, call: &Call) -> Contract {
        self.choose(call).map_or(Contract::ORDERED, |choice| choice.algorithm.contract(call))
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        self.choose(call).map(|_| ())
    }

    fn fuses_premul(&self, call: &Call) -> bool {
        self.choose(call).is_ok_and(|choice| choice.algorithm.fuses_premul(call))
    }

    fn of_products(&self) -> Option<Arc<dyn Algorithm>> {
        Some(of_products(Arc::new(Auto { collective: self.collective, from: self.from.clone(), premultiplied: true })))
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        self.choose(call).ok()?.algorithm.link_bytes(call)
    }

    fn switches(&self) -> Vec<(u32, u64)> {
        let rows = TABLE.rows.iter().filter(|row| row.collective == self.collective);
        rows.flat_map(|row| row.thresholds().map(|bytes| (row.world, bytes))).collect()
    }

    /// What all algorithms need that may be chosen: which is depends on the call.
    fn workspace(&self, dtype: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        let mut buffers: Vec<BufferSpec> = Vec::new();
        for buffer in self.algorithms(world).iter().flat_map(|algorithm| algorithm.workspace(dtype, world, bytes)) {
            if buffers.iter().all(|known| known.name != buffer.name) {
                buffers.push(buffer);
            }
        }
        buffers
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let choice = self.choose(call).expect("a call that is supported");
        let plan = choice.algorithm.plan(call, target);
        Plan { name: format!("{NAME}: {}", plan.name), ..plan }
    }
}

/// Bytes of the larger of input and output at which the choice changes, for a world size: the last at which each step holds.
pub fn thresholds(collective: Collective, world: u32) -> Vec<u64> {
    TABLE.row(collective, world).map_or_else(Vec::new, |row| row.thresholds().collect())
}

/// A bf16 call whose larger side, input or output, has at most `bytes` bytes: what [`choose`] is asked about if there is no call yet.
///
/// # Errors
/// As [`Call::uniform`].
pub fn sample_call(collective: Collective, world: u32, bytes: u64) -> Result<Call, String> {
    let dtype = DType::BF16;
    let per_slot = Shape::new(collective, world, 1).larger() * dtype.size();
    let shape = Shape::new(collective, world, bytes / per_slot);
    Call::standalone(shape, dtype, collective.operators()[0]).map(|(call, _)| call).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use passmuster_plan::algorithms::Registry;
    use passmuster_plan::collective::Roundings;

    fn auto(collective: Collective) -> Auto {
        Auto::new(collective, Registry::new(crate::catalogue()).algorithms().to_vec())
    }

    /// If this fails, the table names an algorithm for sizes that it does not do, and `auto` would quietly take another.
    #[test]
    fn every_step_s_algorithm_does_the_step_s_largest_call() {
        for row in &Auto::table().rows {
            for step in &row.steps {
                let call = sample_call(row.collective, row.world, step.up_to.unwrap_or(1 << 30)).unwrap();
                let choice = auto(row.collective).choose(&call).unwrap();
                assert_eq!(choice.algorithm.name(), step.algorithm, "{} w={}: {}", row.collective, row.world, choice.reason);
            }
        }
    }

    /// If this fails, reducers that have one pack of each rank under way are what all wait for.
    #[test]
    fn what_gives_way_is_not_chosen() {
        let shape = Shape::new(Collective::ReduceScatter, 2, 1 << 28);
        let chosen = |dtype| auto(shape.collective).choose(&Call::standalone(shape.clone(), dtype, ReduceOp::Sum).unwrap().0).unwrap();
        assert_eq!(chosen(DType::F32).algorithm.name(), "push");
        let of_bytes = chosen(DType::E4M3);
        assert_eq!(of_bytes.algorithm.name(), "pull");
        assert!(of_bytes.reason.contains("; the kernel of push has no entry of its own for the type"), "{}", of_bytes.reason);
    }

    /// If this fails, some calls of the collective have no algorithm: the table's largest step is for everything.
    #[test]
    fn every_call_has_an_algorithm() {
        for auto in Collective::ALL.map(auto) {
            for world in 1..=16 {
                for bytes in [0, 1, 1 << 10, 1 << 20, 1 << 30] {
                    let call = sample_call(auto.collective(), world, bytes).unwrap();
                    let choice = auto.choose(&call).unwrap_or_else(|reason| panic!("{} w={world} {bytes}: {reason}", auto.collective()));
                    assert!(!choice.algorithm.is_peer() && !choice.algorithm.uses_multicast(), "{}", choice.algorithm.name());
                    assert_eq!(choice.algorithm.contract(&call).roundings, Roundings::Once, "{}", choice.algorithm.name());
                    assert!(choice.reason.contains("bytes"), "{}", choice.reason);
                }
            }
        }
    }
}
