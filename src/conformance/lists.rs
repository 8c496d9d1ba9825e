//! Lists of cases: what `smoke`, `merge` and `faults` stand for.

use super::{
    case::{Case, Fault, Graph, Skew},
    generate,
    inputs::{InputClass, mix},
};
use crate::{
    algorithms,
    collective::{Collective, DType, ReduceOp},
    machine::Site,
    plan::{BufferSpec, Call, RankCall, Region, Role},
};

/// A named list of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Under a minute: bf16 and f32 sums at five world sizes, every input class, a few sequences.
    Smoke,
    /// What must pass before a kernel is merged: every algorithm, dtype, operator, world size and input class, the sizes at which
    /// kernels go wrong, every peer, sequences of calls.
    Merge,
    /// Faults that the harness injects and must name.
    Faults,
}

impl List {
    /// Every list.
    pub const ALL: [List; 3] = [List::Smoke, List::Merge, List::Faults];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            List::Smoke => "smoke",
            List::Merge => "merge",
            List::Faults => "faults",
        }
    }

    /// Its cases, the same for the same seed. Seed 0 is what records are made with.
    pub fn cases(self, seed: u64) -> Vec<Case> {
        match self {
            List::Smoke => smoke(seed),
            List::Merge => merge(seed),
            List::Faults => faults(),
        }
    }
}

/// The algorithms under test: those that are not somebody else's.
pub(super) fn contenders() -> Vec<&'static str> {
    algorithms::all().iter().filter(|a| !a.is_peer()).map(|a| a.name()).collect()
}

/// The peers that do such a call.
fn peers(dtype: DType, op: ReduceOp) -> Vec<&'static str> {
    let bytes = dtype.size();
    let region = |name: &str| Region::new(name, 0, bytes);
    let call = RankCall { collective: Collective::AllReduce, dtype, op, count: 1, input: region("input"), output: region("output") };
    let buffers = ["input", "output"].map(|name| BufferSpec::new(name, bytes, Role::Data));
    let call = Call::agree(&[call.clone(), call], &buffers).expect("one element fits");
    algorithms::all().iter().filter(|a| a.is_peer() && a.supports(&call).is_ok()).map(|a| a.name()).collect()
}

/// Counts at which kernels go wrong: around packs, blocks of packs, slices of the world, and nothing at all.
pub(super) fn boundary_counts(dtype: DType, world: u64) -> Vec<u64> {
    let pack = 16 / dtype.size();
    let tile = 512 * pack;
    let mut counts = vec![0, 1, 2, 3, world - 1, world, world + 1];
    for edge in [pack, pack * world, tile, tile * world] {
        counts.extend([edge - 1, edge, edge + 1]);
    }
    counts.extend([1040, 3 * tile + 5, 2 * tile * world + pack + 1]);
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// A deterministic choice: the same list on every machine.
pub(crate) struct Choice(pub(crate) u64);

impl Choice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.next() % all.len() as u64) as usize]
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

fn smoke(seed: u64) -> Vec<Case> {
    let mut choice = Choice(seed);
    let mut cases = Vec::new();
    for algorithm in contenders() {
        for dtype in [DType::BF16, DType::F32] {
            for world in [1, 2, 3, 4, 8] {
                for inputs in InputClass::ALL {
                    let mut case = Case::new(Collective::AllReduce, algorithm, dtype, ReduceOp::Sum, world, 0);
                    case.count = choice.of(&boundary_counts(dtype, world.into()));
                    case.inputs = inputs;
                    case.seed = seed;
                    vary(&mut case, &mut choice);
                    cases.push(case);
                }
            }
        }
    }
    cases.extend(generate::sequences(16, seed));
    cases
}

fn merge(seed: u64) -> Vec<Case> {
    let mut choice = Choice(seed);
    let mut cases = Vec::new();
    for algorithm in contenders() {
        for dtype in DType::ALL {
            for op in ReduceOp::ALL {
                for world in 1..=8 {
                    for inputs in InputClass::ALL {
                        // One with a peer, one without: where the machine has no peer for a world size, the kernel is tested all the same.
                        for peer in [false, true] {
                            let mut case = Case::new(Collective::AllReduce, algorithm, dtype, op, world, 0);
                            case.count = choice.of(&boundary_counts(dtype, world.into()));
                            case.inputs = inputs;
                            case.seed = seed.wrapping_add(choice.next() % 0xffff);
                            case.peer = peer.then(|| choice.of(&peers(dtype, op)).to_owned());
                            vary(&mut case, &mut choice);
                            cases.push(case);
                        }
                    }
                }
            }
        }
        for world in 1..=8 {
            for dtype in [DType::BF16, DType::F32] {
                for count in boundary_counts(dtype, world.into()) {
                    let mut case = Case::new(Collective::AllReduce, algorithm, dtype, ReduceOp::Sum, world, count);
                    case.inputs = InputClass::Natural;
                    case.offset = choice.of(&[0, 0, 1]);
                    case.seed = seed;
                    cases.push(case);
                }
            }
            for count in [1 << 20, (4 << 20) + 3] {
                let mut case = Case::new(Collective::AllReduce, algorithm, DType::BF16, ReduceOp::Sum, world, count);
                case.inputs = InputClass::Natural;
                case.seed = seed;
                case.peer = (world > 1).then(|| choice.of(&peers(DType::BF16, ReduceOp::Sum)).to_owned());
                cases.push(case);
            }
        }
        // More than 2^31 elements: 32-bit indices would wrap.
        let mut huge = Case::new(Collective::AllReduce, algorithm, DType::BF16, ReduceOp::Sum, 2, (1 << 31) + 9);
        huge.seed = seed;
        cases.push(huge);
    }
    cases.extend(generate::sequences(600, seed));
    cases
}

/// Placement, graph shape and skew, for a case that has the rest.
fn vary(case: &mut Case, choice: &mut Choice) {
    case.in_place = choice.one_in(3);
    case.offset = choice.of(&[0, 0, 0, 1, 3, 8]);
    case.graph = choice.of(&[Graph::default(), Graph { calls: 2, replays: 3 }, Graph { calls: 3, replays: 2 }]);
    if case.world > 1 && choice.one_in(6) {
        case.skew = Some(Skew {
            rank: choice.next() as u32 % case.world,
            microseconds: choice.of(&[20, 100, 500]),
            site: choice.of(&[None, Some(Site::Enter), Some(Site::End), Some(Site::Leave)]),
        });
    }
}

fn faults() -> Vec<Case> {
    let mut cases = Vec::new();
    for algorithm in contenders() {
        for (world, fault) in
            [(2, Fault::Absent(1)), (4, Fault::Absent(3)), (2, Fault::IllegalAddress(0)), (4, Fault::IllegalAddress(2)), (2, Fault::Killed)]
        {
            let mut case = Case::new(Collective::AllReduce, algorithm, DType::BF16, ReduceOp::Sum, world, 5000);
            case.fault = Some(fault);
            cases.push(case.clone());
            // The same case without the fault must pass next, on fresh processes.
            case.fault = None;
            cases.push(case);
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_of_a_list_are_unique_and_read_back() {
        for list in [List::Smoke, List::Merge] {
            let cases = list.cases(0);
            let ids: HashSet<String> = cases.iter().map(Case::to_string).collect();
            assert!(ids.len() * 100 > cases.len() * 98, "{}: {} ids of {} cases", list.name(), ids.len(), cases.len());
            for case in &cases {
                assert_eq!(case.to_string().parse::<Case>().as_ref(), Ok(case));
            }
        }
    }

    #[test]
    fn merge_covers_the_product_that_it_promises() {
        let cases = List::Merge.cases(0);
        assert!(cases.len() >= 3000, "{}", cases.len());
        let mut seen = HashSet::new();
        for case in &cases {
            seen.insert((case.algorithm.clone(), case.dtype, case.op, case.world, case.inputs));
        }
        for algorithm in ["one_shot", "two_shot"] {
            for dtype in DType::ALL {
                for op in ReduceOp::ALL {
                    for world in 1..=8 {
                        for inputs in InputClass::ALL {
                            assert!(
                                seen.contains(&(algorithm.into(), dtype, op, world, inputs)),
                                "{algorithm} {dtype} {op} {world} {inputs}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn lists_depend_on_nothing_but_the_seed() {
        assert_eq!(List::Smoke.cases(7), List::Smoke.cases(7));
        assert_ne!(List::Smoke.cases(7), List::Smoke.cases(8));
    }
}
