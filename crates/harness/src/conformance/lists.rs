//! Lists of cases: what `smoke`, `merge` and `faults` stand for.

mod all_to_all_v;
mod by_copy_engine;
mod chosen;
mod far;
mod foreign;
mod nodes;
mod others;
mod over_multicast;
mod premul_sum;
mod products;
pub(crate) mod sequences;
mod tasks;
mod types;
mod unregistered;
mod worlds;

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
    sync::Arc,
};

use super::{
    case::Case,
    collective_case::{CallSpec, CollectiveCase, Fault, Field, Graph, Item, Moment, Skew},
    inputs::InputClass,
    products::ProductCase,
    scenario::supports,
    shrink::boundary_counts,
    tasks::TaskCase,
};
use passmuster_emulator::choice::Choice;
use passmuster_plan::{
    algorithms::{Algorithm, Foreign, Protocol, Registry, TaskAlgorithm},
    collective::{Collective, DType, ReduceOp, Shape},
    machine::Site,
    modules::{Module, MutantCases, fnv1a64},
    plan::{Call, MAX_WORLD},
};
use sequences::Sequences;

/// A named list of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

    /// Its cases of collectives, of the algorithms of a registry: the same for the same seed. Seed 0 is what records are made with.
    pub fn cases(self, registry: &Registry, seed: u64) -> Vec<CollectiveCase> {
        self.cases_from(Source::all(registry), seed)
    }

    fn cases_from(self, from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
        let mut cases = match self {
            List::Smoke => each_once(smoke(from, seed)),
            List::Merge => each_once(merge(from, seed)),
            List::Faults => faults(from),
        };
        // Some algorithms are named, and not in every registry.
        cases.retain(|case| case.check_known(from.registry).is_ok());
        cases
    }

    /// Its cases of products of matrices.
    pub fn products(self, registry: &Registry, seed: u64) -> Vec<ProductCase> {
        let mut cases = match self {
            List::Smoke => products::smoke(registry, seed),
            List::Merge => products::merge(registry, seed),
            List::Faults => products::faults(),
        };
        cases.retain(|case| case.check_known(registry).is_ok());
        cases
    }

    /// Its cases of an algorithm of a task, which must be [in the registry](Registry::with_task).
    pub fn tasks(self, algorithm: &dyn TaskAlgorithm, seed: u64) -> Vec<TaskCase> {
        match self {
            List::Smoke => tasks::smoke(algorithm, seed),
            List::Merge => tasks::merge(algorithm, seed),
            List::Faults => tasks::faults(algorithm, seed),
        }
    }

    /// Its cases of every kind, but for algorithms of collectives from elsewhere.
    pub fn all_cases(self, registry: &Registry, seed: u64) -> Vec<Case> {
        let collectives = self.cases(registry, seed).into_iter().map(Case::from);
        let products = self.products(registry, seed).into_iter().map(Case::from);
        let tasks = registry.tasks().iter().flat_map(|algorithm| self.tasks(&**algorithm, seed)).map(Case::from);
        collectives.chain(products).chain(tasks).collect()
    }

    /// The cases of a kernel from elsewhere, which must be [in the registry](Registry::with_foreign): what its specification names, and within
    /// that what the list looks for. Smoke has at most 60 cases or so, merge some hundreds, faults ten at most.
    pub fn cases_of(self, registry: &Registry, foreign: &Foreign, seed: u64) -> Vec<CollectiveCase> {
        let from = Source::all(registry);
        match self {
            List::Smoke => foreign::smoke(from, foreign, seed),
            List::Merge => foreign::merge(from, foreign, seed),
            List::Faults => foreign::faults(from, foreign, seed),
        }
    }
}

/// What cases are made of: the algorithms of a registry, and element types.
#[derive(Clone, Copy)]
pub(crate) struct Source<'r> {
    pub registry: &'r Registry,
    /// The types that lists go through. Those that a case names itself are not among them.
    dtypes: &'r [DType],
}

impl<'r> Source<'r> {
    /// All that a registry has, of every type.
    pub(crate) fn all(registry: &'r Registry) -> Source<'r> {
        Source { registry, dtypes: &DType::ALL }
    }

    /// The types that lists go through.
    fn dtypes(self) -> impl Iterator<Item = DType> + Clone + use<'r> {
        self.dtypes.iter().copied()
    }

    /// Those of them that kernels specialise.
    fn common_dtypes(self) -> impl Iterator<Item = DType> + Clone + use<'r> {
        self.dtypes().filter(|dtype| DType::COMMON.contains(dtype))
    }

    /// The algorithms of a collective that are under test, which are those that are not somebody else's.
    pub(crate) fn under_test(self, collective: Collective) -> impl Iterator<Item = &'r dyn Algorithm> {
        self.registry.of(collective).map(|algorithm| &**algorithm).filter(|algorithm| !algorithm.is_peer())
    }

    /// The algorithms under test that every machine can run, for they use no multicast addresses, and whose kernels synchronise.
    pub(crate) fn contenders(self, collective: Collective) -> Vec<&'r str> {
        self.under_test(collective).filter(|a| !a.uses_multicast() && !a.protocol().is_by_copy_engine()).map(|a| a.name()).collect()
    }

    /// The algorithms under test whose data copy engines move.
    fn contenders_by_copy_engine(self, collective: Collective) -> Vec<&'r str> {
        self.under_test(collective).filter(|a| a.protocol().is_by_copy_engine()).map(|a| a.name()).collect()
    }

    /// One of the peers that do such a call; none if there is none.
    fn peer(self, collective: Collective, dtype: DType, op: ReduceOp, choice: &mut Choice) -> Option<String> {
        one_by_name(&self.peers(collective, dtype, op), choice)
    }

    /// The algorithms under test that use multicast addresses.
    fn contenders_over_multicast(self, collective: Collective) -> Vec<&'r str> {
        self.under_test(collective).filter(|a| a.uses_multicast()).map(|a| a.name()).collect()
    }

    /// The algorithm of a collective that is another by turns.
    fn chooser(self, collective: Collective) -> Option<&'r str> {
        self.registry.apart(collective).find(|a| !a.switches().is_empty()).map(|a| a.name())
    }

    /// The algorithm of a collective that takes memory which peers cannot address.
    fn staging(self, collective: Collective) -> Option<&'r str> {
        self.registry.apart(collective).find(|a| a.accepts_unregistered()).map(|a| a.name())
    }

    /// The algorithm of a collective among ranks on several nodes.
    fn spanning(self, collective: Collective) -> Option<&'r str> {
        self.registry.apart(collective).find(|a| a.spans_nodes()).map(|a| a.name())
    }

    /// The peers that do such a call.
    fn peers(self, collective: Collective, dtype: DType, op: ReduceOp) -> Vec<&'r str> {
        let call = sample(collective, dtype, op);
        self.registry.of(collective).filter(|a| a.is_peer() && a.supports(&call).is_ok()).map(|a| a.name()).collect()
    }

    /// Whether the algorithm of a case does its call.
    fn supports(self, case: &CollectiveCase) -> Result<(), String> {
        supports(self.registry, case)
    }

    /// Up to how many elements of all ranks together a case of these algorithms is modest.
    fn modest_elements<'n>(self, collective: Collective, algorithms: impl IntoIterator<Item = &'n str>) -> u64 {
        let sends_packs = |name| self.registry.find(collective, name).is_ok_and(|of| of.protocol() == Protocol::Packs);
        if algorithms.into_iter().any(sends_packs) { POLLED_ELEMENTS } else { MODEST_ELEMENTS }
    }

    /// Whether ranks poll all the data of every peer: of those, large calls differ from modest ones in time only.
    fn polls_data(self, algorithm: &str) -> bool {
        self.all_reduce(algorithm).protocol().polls_data()
    }

    /// The all-reduce of this name.
    fn all_reduce(self, algorithm: &str) -> Arc<dyn Algorithm> {
        self.registry.find(Collective::AllReduce, algorithm).expect("a contender")
    }
}

/// A call of one element a slot on two ranks: what algorithms are asked whether they do a type and an operator.
fn sample(collective: Collective, dtype: DType, op: ReduceOp) -> Call {
    Call::standalone(Shape::new(collective, 2, 1), dtype, op).expect("one element fits").0
}

/// What is drawn for a case of which its collective, algorithm, type, operator, world, inputs and count are known. All of it comes from these, the seed and the
/// case's `role` in a list, and nothing from other cases: an algorithm, a type or a case more changes none of those that were there.
fn draws(role: impl Display, case: &CollectiveCase, seed: u64) -> Choice {
    let CollectiveCase { collective, algorithm, dtype, op, world, inputs, count, .. } = case;
    keyed(format_args!("{role}: {collective}/{algorithm} {dtype} {op} w={world} {inputs} n={count}"), seed)
}

/// The choices of a key: where keys differ, they have nothing to do with each other.
fn keyed(key: impl Display, seed: u64) -> Choice {
    Choice::of_seed(fnv1a64(format!("{seed} {key}").as_bytes()))
}

/// Where an algorithm begins in what others of its kind go through by turns.
fn turn_of(collective: Collective, algorithm: &str) -> usize {
    keyed(format_args!("turn: {collective}/{algorithm}"), 0).draw() as usize >> 8
}

/// One of some names; none if there is none. A name more takes its share of the choices, and changes no other (rendezvous hashing: Thaler and Ravishankar,
/// IEEE/ACM Transactions on Networking 6(1), 1998).
fn one_by_name(names: &[&str], choice: &mut Choice) -> Option<String> {
    let drawn = choice.draw();
    let weight = |name: &&&str| Choice::of_seed(drawn ^ fnv1a64(name.as_bytes())).draw();
    names.iter().max_by_key(weight).map(|&name| name.to_owned())
}

fn smoke(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for algorithm in from.contenders(Collective::AllReduce) {
        for dtype in [DType::BF16, DType::F32] {
            for world in [1, 2, 3, 4, 8] {
                for inputs in InputClass::ALL {
                    let new = CollectiveCase::new(Collective::AllReduce, algorithm, dtype, ReduceOp::Sum, world, 0);
                    let mut case = CollectiveCase { inputs, seed, ..new };
                    let mut choice = draws("smoke", &case, seed);
                    case.count = choice.of(&moderate_counts(from, algorithm, dtype, world));
                    vary(from, &mut case, &mut choice);
                    cases.push(case);
                }
            }
        }
    }
    cases.extend(sequences::sequences(from, Collective::AllReduce, Sequences { one_in: 8, largest: 2, ..Sequences::of("smoke") }, seed));
    cases.extend(over_multicast::smoke(from, seed));
    cases.extend(others::smoke(from, seed));
    cases.extend(unregistered::smoke(from, seed));
    cases.extend(by_copy_engine::algorithms(from).flat_map(|of| by_copy_engine::smoke(from, of, seed)));
    cases.extend(types::smoke(from, seed));
    cases.extend(premul_sum::smoke(from, seed));
    cases.extend(all_to_all_v::smoke(from, seed));
    cases.extend(worlds::smoke(seed));
    cases.extend(nodes::smoke(from, seed));
    cases
}

fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for algorithm in from.contenders(Collective::AllReduce) {
        for dtype in from.common_dtypes() {
            for op in ReduceOp::COMMON {
                for world in 1..=8 {
                    for inputs in InputClass::ALL {
                        let new = CollectiveCase::new(Collective::AllReduce, algorithm, dtype, op, world, 0);
                        let new = CollectiveCase { inputs, ..new };
                        for peered in with_and_without_peer(from, &new, seed) {
                            let mut case = new.clone();
                            let mut choice = draws(if peered { "merge with peer" } else { "merge" }, &case, seed);
                            case.count = choice.of(&moderate_counts(from, algorithm, dtype, world));
                            case.seed = seed.wrapping_add(choice.draw() % 0xffff);
                            case.peer = if peered { from.peer(Collective::AllReduce, dtype, op, &mut choice) } else { None };
                            vary(from, &mut case, &mut choice);
                            cases.push(case);
                        }
                    }
                }
            }
        }
        for world in 1..=8 {
            for dtype in [DType::BF16, DType::F32] {
                let polls = from.polls_data(algorithm);
                let most = if polls { from.modest_elements(Collective::AllReduce, [algorithm]) } else { SWEPT_ELEMENTS };
                let counts = modest_counts(Collective::AllReduce, dtype, world, most);
                let last = counts.len().saturating_sub(ALIGNED);
                for (number, count) in counts.into_iter().enumerate() {
                    let mut case = CollectiveCase::new(Collective::AllReduce, algorithm, dtype, ReduceOp::Sum, world, count);
                    // Probes show the order of addition, which may be another where slices are cut differently.
                    case.inputs = if number % 2 == 1 { InputClass::Probe } else { InputClass::Natural };
                    case.offset = if number < last { draws("edges", &case, seed).of(&[0, 0, 1]) } else { 0 };
                    case.seed = seed;
                    cases.push(case);
                }
            }
            // Of those who poll lines, what does large calls at all takes the emulator ten times as long.
            let large = if from.polls_data(algorithm) { Vec::new() } else { large_counts(world) };
            for count in large {
                let mut case = CollectiveCase::new(Collective::AllReduce, algorithm, DType::BF16, ReduceOp::Sum, world, count);
                case.inputs = InputClass::Natural;
                case.seed = seed;
                let mut choice = draws("large", &case, seed);
                case.peer = if world > 1 { from.peer(Collective::AllReduce, DType::BF16, ReduceOp::Sum, &mut choice) } else { None };
                cases.extend(supported(from, case));
            }
        }
        // More than 2^31 elements: 32-bit indices would wrap.
        let mut huge = CollectiveCase::new(Collective::AllReduce, algorithm, DType::BF16, ReduceOp::Sum, 2, (1 << 31) + 9);
        huge.seed = seed;
        cases.extend(supported(from, huge));
    }
    cases.extend(sequences::sequences(from, Collective::AllReduce, Sequences { of_each: 3, ..Sequences::of("merge") }, seed));
    for algorithm in from.contenders(Collective::AllReduce) {
        for dtype in from.common_dtypes() {
            for (turn, op) in ReduceOp::COMMON.into_iter().enumerate() {
                let inputs = InputClass::ALL[turn % InputClass::ALL.len()];
                cases.push(modest(from, "kinds", (Collective::AllReduce, algorithm), (dtype, op), LARGEST_WORLD, inputs, seed).0);
            }
        }
        for inputs in InputClass::ALL {
            let of = (Collective::AllReduce, algorithm);
            cases.push(modest(from, "classes", of, (DType::BF16, ReduceOp::Sum), LARGEST_WORLD, inputs, seed).0);
        }
    }
    cases.extend(over_multicast::merge(from, Collective::AllReduce, seed));
    cases.extend(others::merge(from, seed));
    cases.extend(over_multicast::others(from).flat_map(|of| over_multicast::merge(from, of, seed)));
    cases.extend(by_copy_engine::algorithms(from).flat_map(|of| by_copy_engine::merge(from, of, seed)));
    cases.extend(chosen::merge(from, seed));
    cases.extend(unregistered::merge(from, seed));
    cases.extend(types::merge(from, seed));
    cases.extend(premul_sum::merge(from, seed));
    cases.extend(all_to_all_v::merge(from, seed));
    thin_out(from, &mut cases, seed);
    cases.extend(beside_nccls_choice(from, seed));
    cases.extend(worlds::merge(from, seed));
    cases.extend(far::merge(from, seed));
    cases.extend(nodes::merge(from, seed));
    cases
}

/// All-reduces beside whichever of its symmetric kernels NCCL takes: every type that these add, at sizes for which it may take another.
fn beside_nccls_choice(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    const PEER: &str = "nccl_symmetric";
    let Ok(peer) = from.registry.find(Collective::AllReduce, PEER) else { return Vec::new() };
    let mut cases = Vec::new();
    for dtype in from.dtypes().filter(|&dtype| peer.check_supported(&sample(Collective::AllReduce, dtype, ReduceOp::Sum)).is_ok()) {
        for world in [2, 3, 4, 8] {
            // The last is more than the emulator takes.
            for (turn, count) in [33, 1040, (4 << 20) + 3].into_iter().enumerate() {
                let mut case = CollectiveCase::new(Collective::AllReduce, "two_shot", dtype, ReduceOp::Sum, world, count);
                case.inputs = [InputClass::Probe, InputClass::Natural, InputClass::Natural][turn];
                case.peer = Some(PEER.to_owned());
                case.seed = seed;
                cases.push(case);
            }
        }
    }
    cases
}

/// Counts of which blocks have several tiles. The emulator takes most of a minute for a million elements on each of four ranks, so there are
/// fewer where it would run them; beyond that it refuses, and they are for GPUs.
fn large_counts(world: u32) -> Vec<u64> {
    match world {
        1 => vec![1 << 20, (4 << 20) + 3],
        2 | 3 => vec![(1 << 18) + 1, (4 << 20) + 3],
        4 => vec![(4 << 20) + 3],
        _ => vec![1 << 20, (4 << 20) + 3],
    }
}

/// A case with a peer and one without: where the machine has no peer for a world size, the kernel is tested all the same. One of the two
/// where ranks poll lines, which takes the emulator long, and where kernels go tile by tile, which takes it as long as two_shot twice.
fn with_and_without_peer(from: Source<'_>, case: &CollectiveCase, seed: u64) -> Vec<bool> {
    let by_tiles = |module: &Module| module.mutants.several.1 > MutantCases::DEFAULT.several.1;
    let takes_long = from.polls_data(&case.algorithm) || from.all_reduce(&case.algorithm).modules().into_iter().any(by_tiles);
    if takes_long { vec![draws("peered", case, seed).one_in(2)] } else { vec![false, true] }
}

/// Leaves one in five of the cases that are neither modest nor one of the few large ones, for the emulator has no time for more; and the last of each
/// combination in any event.
fn thin_out(from: Source<'_>, cases: &mut Vec<CollectiveCase>, seed: u64) {
    let combination = |case: &CollectiveCase| (case.collective, case.algorithm.clone(), case.dtype, case.op, case.world, case.inputs);
    let elements = |case: &CollectiveCase| Shape::new(case.collective, case.world, case.count).larger() * u64::from(case.world);
    let mut left = HashMap::new();
    cases.iter().filter(|case| case.calls.is_empty()).for_each(|case| *left.entry(combination(case)).or_insert(0) += 1);
    cases.retain(|case| {
        if !case.calls.is_empty() {
            return true;
        }
        let is_chosen = from.chooser(case.collective) == Some(&case.algorithm);
        let is_middling = (MODEST_ELEMENTS + 1..=TILED_ELEMENTS).contains(&elements(case)) && !is_chosen;
        let left = left.get_mut(&combination(case)).expect("it was counted");
        let goes = is_middling && *left > 1 && !keyed(format_args!("thin out: {case}"), seed).one_in(5);
        *left -= u32::from(goes);
        !goes
    });
}

/// The case, where its algorithm does such a call.
fn supported(from: Source<'_>, case: CollectiveCase) -> Option<CollectiveCase> {
    from.supports(&case).is_ok().then_some(case)
}

/// The largest world of the sweeps over types, operators and inputs: what the builds for GPUs of one host have room for. [`worlds`] has those beyond.
const LARGEST_WORLD: u32 = MAX_WORLD as u32;

/// Elements of all ranks together, of the larger of input and output, up to which a case is modest.
const MODEST_ELEMENTS: u64 = 32_000;

/// The same where every rank polls the packs of all others, which takes the emulator four times as long.
const POLLED_ELEMENTS: u64 = 8_000;

/// How many of the largest counts of a sweep start at a pack: more packs than blocks have threads are under way there, and only of packs.
const ALIGNED: usize = 2;

/// The same for a sweep over all boundary counts.
const SWEPT_ELEMENTS: u64 = 120_000;

/// The same for a sweep on few world sizes.
const TILED_ELEMENTS: u64 = 250_000;

/// Elements of all ranks together up to which a case is moderate: above it, one takes the emulator seconds.
const MODERATE_ELEMENTS: u64 = 60_000;

/// Boundary counts of an all-reduce of which all ranks together have a moderate number of elements.
fn moderate_counts(from: Source<'_>, algorithm: &str, dtype: DType, world: u32) -> Vec<u64> {
    let polls = from.polls_data(algorithm);
    let most = if polls { from.modest_elements(Collective::AllReduce, [algorithm]) } else { MODERATE_ELEMENTS };
    modest_counts(Collective::AllReduce, dtype, world, most)
}

/// Boundary counts of a collective with which all ranks together have at most `most` elements.
fn modest_counts(collective: Collective, dtype: DType, world: u32, most: u64) -> Vec<u64> {
    let mut counts = boundary_counts(dtype, world.into());
    counts.retain(|&count| Shape::new(collective, world, count).larger() * u64::from(world) <= most);
    counts
}

/// A case of a boundary count that is small for all ranks together, and the draws of what else it may have.
fn modest(
    from: Source<'_>,
    role: &str,
    (collective, algorithm): (Collective, &str),
    (dtype, op): (DType, ReduceOp),
    world: u32,
    inputs: InputClass,
    seed: u64,
) -> (CollectiveCase, Choice) {
    let mut case = CollectiveCase { inputs, ..CollectiveCase::new(collective, algorithm, dtype, op, world, 0) };
    let mut choice = draws(role, &case, seed);
    case.count = choice.of(&modest_counts(collective, dtype, world, from.modest_elements(collective, [algorithm])));
    case.seed = seed.wrapping_add(choice.draw() % 0xffff);
    vary(from, &mut case, &mut choice);
    (case, choice)
}

/// Root, placement, graph shape and skew, for a case that has the rest.
fn vary(from: Source<'_>, case: &mut CollectiveCase, choice: &mut Choice) {
    // Where streams meet, a rank can be late on its host alone.
    let synchronises = !from.registry.find(case.collective, &case.algorithm).is_ok_and(|of| of.protocol() == Protocol::StreamWords);
    case.root = root(case, choice);
    case.in_place = choice.one_in(3) && case.collective.has_in_place();
    case.offset = choice.of(&[0, 0, 0, 1, 3, 8]);
    case.graph = choice.of(&[Graph::default(), Graph { calls: 2, replays: 3 }, Graph { calls: 3, replays: 2 }]);
    if case.world > 1 && choice.one_in(6) {
        case.skew = Some(Skew {
            rank: choice.draw() as u32 % case.world,
            microseconds: choice.of(&[20, 100, 500]),
            site: choice.of(&[None, Some(Site::Enter), Some(Site::End), Some(Site::Leave)]).filter(|_| synchronises),
        });
    }
}

/// Any rank where the collective has a root.
fn root(case: &CollectiveCase, choice: &mut Choice) -> u32 {
    if case.collective.has_root() { choice.draw() as u32 % case.world } else { 0 }
}

/// Where one choice among few is drawn more than once, it may be the same.
fn each_once(mut cases: Vec<CollectiveCase>) -> Vec<CollectiveCase> {
    let mut ids = HashSet::new();
    cases.retain(|case| ids.insert(case.to_string()));
    cases
}

fn faults(from: Source<'_>) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for algorithm in from.contenders(Collective::AllReduce) {
        for (world, fault) in
            [(2, Fault::Absent(1)), (4, Fault::Absent(3)), (2, Fault::IllegalAddress(0)), (4, Fault::IllegalAddress(2)), (2, Fault::Killed)]
        {
            let mut case = CollectiveCase::new(Collective::AllReduce, algorithm, DType::BF16, ReduceOp::Sum, world, 5000);
            case.fault = Some(fault);
            cases.push(case.clone());
            // The same case without the fault must pass next, on fresh processes.
            case.fault = None;
            cases.push(case);
        }
    }
    cases.extend(faults_of_processes().flat_map(|case| [case.clone(), CollectiveCase { fault: None, ..case }]));
    cases
}

/// What may befall ranks that are processes: everything at two ranks; at four, what ends a rank's process only in the middle of a call.
fn faults_of_processes() -> impl Iterator<Item = CollectiveCase> {
    let of_world = |world: u32| {
        let is_told = move |fault: &Fault| {
            let is_brief = !matches!(fault, Fault::Departs { when, .. } if *when != Moment::Call);
            (fault.is_of_processes() || *fault == Fault::Poisoned) && (world == 2 || is_brief)
        };
        Fault::all(world - 1).into_iter().filter(is_told).map(move |fault| (world, fault))
    };
    [2, 4].into_iter().flat_map(of_world).map(|(world, fault)| {
        let (collective, algorithm, op) = match fault {
            Fault::Other { field: Field::Root, .. } => (Collective::Broadcast, "push", ReduceOp::Copy),
            _ => (Collective::AllReduce, if world == 2 { "one_shot" } else { "two_shot" }, ReduceOp::Sum),
        };
        let mut case = CollectiveCase::new(collective, algorithm, DType::BF16, op, world, 500);
        if matches!(fault, Fault::Other { field: Field::Order, .. }) {
            let call = |algorithm: &str, count| {
                Item::Eager(CallSpec { algorithm: algorithm.into(), count, root: 0, offset: 0, in_place: false, group: 0 })
            };
            (case.count, case.calls) = (0, vec![call("one_shot", 40), call("two_shot", 33)]);
        }
        CollectiveCase { fault: Some(fault), ..case }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;
    use passmuster_kernels::{auto, hierarchical, unregistered};
    use passmuster_plan::algorithms::Catalogue;

    #[test]
    fn ids_of_a_list_are_unique_and_read_back() {
        for list in [List::Smoke, List::Merge] {
            let cases = list.cases(&REGISTRY, 0);
            let ids: HashSet<String> = cases.iter().map(CollectiveCase::to_string).collect();
            assert_eq!(ids.len(), cases.len(), "{}: a case is there twice", list.name());
            for case in &cases {
                assert_eq!(Case::resolve(&case.to_string(), &REGISTRY), Ok(case.clone().into()));
            }
        }
    }

    /// If this fails, nobody sees whether a machine is of use after a fault.
    #[test]
    fn the_case_of_a_fault_follows_it_without_the_fault() {
        for pair in List::Faults.cases(&REGISTRY, 0).chunks(2) {
            assert_eq!((pair[0].fault.is_some(), &CollectiveCase { fault: None, ..pair[0].clone() }), (true, &pair[1]));
        }
    }

    /// If this fails, NCCL's own choice on windows is timed and never judged.
    #[test]
    fn merge_has_all_reduces_beside_what_nccl_chooses() {
        let cases = List::Merge.cases(&REGISTRY, 0);
        let of = |dtype| cases.iter().filter(move |case| case.dtype == dtype && case.peer.as_deref() == Some("nccl_symmetric"));
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::E4M3, DType::E5M2] {
            assert_eq!(of(dtype).map(|case| case.world).collect::<HashSet<_>>(), [2, 3, 4, 8].into(), "{dtype}");
            assert!(of(dtype).all(|case| case.environment(&REGISTRY).get("NCCL_WIN_ENABLE") == Some(&"1")));
        }
        assert_eq!(of(DType::F64).count() + of(DType::I32).count(), 0);
    }

    #[test]
    fn merge_covers_the_product_that_it_promises() {
        let cases = List::Merge.cases(&REGISTRY, 0);
        assert!(cases.len() >= 3000, "{}", cases.len());
        let mut seen = HashSet::new();
        for case in &cases {
            seen.insert((case.algorithm.clone(), case.dtype, case.op, case.world, case.inputs));
        }
        let any = |is: &dyn Fn(&CollectiveCase) -> bool| cases.iter().any(|case| case.collective == Collective::AllReduce && is(case));
        for algorithm in ["one_shot", "two_shot", "one_shot_push", "two_shot_push"] {
            for world in 1..=8 {
                for peered in [false, true] {
                    assert!(any(&|c| (&*c.algorithm, c.world, c.peer.is_some()) == (algorithm, world, peered)), "{algorithm} {world}");
                }
            }
        }
        // Blocks have several tiles, on GPUs at every world size, and where the emulator runs it.
        for algorithm in ["one_shot", "two_shot"] {
            let large =
                |world: u32, most: u64| any(&|c| (&*c.algorithm, c.world) == (algorithm, world) && (1 << 18..most).contains(&c.count));
            assert!((1..=8).all(|world| large(world, u64::MAX)) && [2, 3].into_iter().all(|world| large(world, 1 << 20)), "{algorithm}");
        }
        for algorithm in ["one_shot", "two_shot", "one_shot_push", "two_shot_push"] {
            for dtype in DType::COMMON {
                for op in ReduceOp::COMMON {
                    for world in 1..=8 {
                        for inputs in InputClass::ALL {
                            assert!(
                                seen.contains(&(algorithm.into(), dtype, op, world, inputs)),
                                "{algorithm} {dtype} {op} {world} {inputs}"
                            );
                        }
                    }
                    assert!(
                        seen.iter().any(|case| (&*case.0, case.1, case.2, case.3) == (algorithm, dtype, op, 16)),
                        "{algorithm} {dtype} {op}"
                    );
                }
            }
        }
        let of_multimem = [
            (DType::F32, ReduceOp::Sum),
            (DType::F16, ReduceOp::Sum),
            (DType::F16, ReduceOp::Min),
            (DType::F16, ReduceOp::Max),
            (DType::BF16, ReduceOp::Sum),
            (DType::BF16, ReduceOp::Min),
            (DType::BF16, ReduceOp::Max),
        ];
        for algorithm in ["multimem", "multimem_one_shot"] {
            for (dtype, op) in of_multimem {
                for world in [2, 3, 4, 6, 8, 16] {
                    for inputs in InputClass::ALL {
                        assert!(seen.contains(&(algorithm.into(), dtype, op, world, inputs)), "{algorithm} {dtype} {op} {world} {inputs}");
                    }
                }
            }
        }
    }

    #[test]
    fn merge_covers_the_other_collectives_over_multicast() {
        let cases = List::Merge.cases(&REGISTRY, 0);
        for collective in over_multicast::others(Source::all(&REGISTRY)) {
            let any = |is: &dyn Fn(&CollectiveCase) -> bool| {
                cases.iter().any(|c| (c.collective, &*c.algorithm) == (collective, "multimem") && is(c))
            };
            for world in [2, 3, 4, 6, 8, 16] {
                for inputs in InputClass::ALL {
                    assert!(any(&|c| (c.world, c.inputs) == (world, inputs)), "{collective} {world} {inputs}");
                }
            }
            let reduces = collective.operators()[0].reduces();
            let dtypes = if reduces { vec![DType::F32, DType::F16, DType::BF16] } else { DType::COMMON.to_vec() };
            assert!(dtypes.into_iter().all(|dtype| any(&|c| c.dtype == dtype)), "{collective}");
            assert!(any(&|c| c.in_place) && any(&|c| c.graph.replays > 0) && any(&|c| c.skew.is_some()), "{collective}");
        }
    }

    fn by_copy_engine(case: &CollectiveCase) -> bool {
        let of_collective = Source::all(&REGISTRY).contenders_by_copy_engine(case.collective);
        of_collective.iter().any(|of| case.algorithm == *of || case.shots().any(|shot| shot.algorithm == *of))
    }

    #[test]
    fn merge_covers_copy_engines() {
        let cases = List::Merge.cases(&REGISTRY, 0);
        let all: Vec<&CollectiveCase> = cases.iter().filter(|case| by_copy_engine(case) && case.counts.is_none()).collect();
        assert!((800..=1200).contains(&all.len()), "{}", all.len());
        for (collective, _) in by_copy_engine::algorithms(Source::all(&REGISTRY)) {
            let any = |is: &dyn Fn(&CollectiveCase) -> bool| all.iter().any(|case| case.collective == collective && is(case));
            for world in (1..=8).chain([16]) {
                for dtype in DType::COMMON {
                    assert!(any(&|c| (c.dtype, c.world) == (dtype, world)), "{collective} {dtype} {world}");
                }
                assert!(any(&|c| c.world == world && c.graph.replays > 0), "{world}");
                // Among sixteen, whether one of so few cases is in place is chance.
                if world <= 8 {
                    assert_eq!(any(&|c| c.world == world && c.in_place), collective.has_in_place(), "{collective} {world}");
                }
            }
            for inputs in InputClass::ALL {
                assert!(
                    collective.common_operators().iter().all(|&op| any(&|c| (c.op, c.inputs) == (op, inputs))),
                    "{collective} {inputs}"
                );
            }
            assert!(any(&|c| c.peer.is_some()) && any(&|c| c.skew.is_some()) && any(&|c| c.groups() > 1) && any(&|c| c.count > 1 << 29));
        }
    }

    #[test]
    fn merge_covers_the_other_collectives() {
        let cases = List::Merge.cases(&REGISTRY, 0);
        for (collective, algorithm) in others::algorithms(Source::all(&REGISTRY)) {
            let own: Vec<&CollectiveCase> =
                cases.iter().filter(|case| (case.collective, &*case.algorithm) == (collective, algorithm)).collect();
            assert!((250..700).contains(&own.len()), "{}", own.len());
            let any = |is: &dyn Fn(&CollectiveCase) -> bool| own.iter().any(|case| is(case));
            for dtype in DType::COMMON {
                for inputs in InputClass::ALL {
                    for world in (1..=8).chain([16]) {
                        assert!(any(&|c| (c.dtype, c.inputs, c.world) == (dtype, inputs, world)), "{algorithm} {dtype} {inputs} {world}");
                    }
                    for &op in collective.common_operators() {
                        assert!(any(&|c| (c.dtype, c.inputs, c.op) == (dtype, inputs, op)), "{algorithm} {dtype} {inputs} {op}");
                    }
                }
            }
            assert_eq!(any(&|c| c.in_place && c.peer.is_some()), collective.has_in_place(), "{collective}");
            for world in (1..=8).chain([16]).filter(|_| collective.has_root()) {
                assert!((0..world).all(|root| any(&|c| (c.world, c.root) == (world, root))), "{collective} {world}");
            }
            assert!(any(&|c| c.peer.is_some()) && any(&|c| c.skew.is_some()), "{collective}");
            let of_collective = |is: &dyn Fn(&CollectiveCase) -> bool| cases.iter().any(|c| c.collective == collective && is(c));
            assert_eq!(of_collective(&|c| c.shots().any(|shot| shot.root > 0)), collective.has_root(), "{collective}");
            assert!(of_collective(&|c| c.calls.len() > 2), "{collective}");
        }
    }

    /// If this fails, nothing judges what `auto` does where its choice changes.
    #[test]
    fn merge_has_calls_on_both_sides_of_choices() {
        let (cases, from) = (List::Merge.cases(&REGISTRY, 0), Source::all(&REGISTRY));
        for collective in Collective::ALL {
            assert!((2..=8).any(|world| chosen::tried(from, collective, world).next().is_some()), "{collective}");
        }
        for collective in Collective::ALL {
            for world in [2, 4, 8] {
                let of = |case: &&CollectiveCase| (case.collective, &*case.algorithm, case.world) == (collective, auto::NAME, world);
                let calls: Vec<u64> = cases
                    .iter()
                    .filter(of)
                    .filter(|case| case.calls.is_empty())
                    .map(|case| Shape::new(collective, world, case.count).larger() * case.dtype.size())
                    .collect();
                let slot = Shape::new(collective, world, 1).larger() * 8;
                for threshold in chosen::tried(from, collective, world) {
                    assert!(
                        calls.iter().any(|&bytes| bytes <= threshold && bytes + slot > threshold),
                        "{collective} w={world} {threshold}"
                    );
                    assert!(
                        calls.iter().any(|&bytes| bytes > threshold && bytes <= threshold + slot),
                        "{collective} w={world} {threshold}"
                    );
                }
                assert!(cases.iter().filter(of).any(|case| case.calls.len() > 2), "{collective} w={world}");
            }
        }
    }

    /// If this fails, nothing shows that memory is staged where peers could not address it.
    #[test]
    fn every_collective_is_called_on_memory_of_any_kind() {
        for list in [List::Smoke, List::Merge] {
            let cases = list.cases(&REGISTRY, 0);
            for unregistered in Collective::ALL.map(|of| REGISTRY.find(of, unregistered::NAME).unwrap()) {
                let of = |case: &&CollectiveCase| (case.collective, &*case.algorithm) == (unregistered.collective(), unregistered.name());
                assert!(cases.iter().any(|case| of(&case) && case.world > 1 && case.count > 0), "{}", unregistered.collective());
                let is_merge = list == List::Merge;
                assert_eq!(cases.iter().filter(of).any(|case| case.peer.is_some()), is_merge, "{}", unregistered.collective());
                assert_eq!(cases.iter().filter(of).any(|case| case.calls.len() > 2), is_merge, "{}", unregistered.collective());
            }
        }
    }

    /// A sequence that a machine without multicast addresses cannot do would be lost there as a whole.
    #[test]
    fn multicast_is_kept_apart_from_what_every_machine_runs() {
        let cases = List::Merge.cases(&REGISTRY, 0);
        let uses = |case: &CollectiveCase| case.shots().any(|shot| shot.algorithm.starts_with("multimem"));
        let of_all_reduce = |case: &&CollectiveCase| {
            let apart = [auto::NAME, unregistered::NAME, hierarchical::NAME];
            let is_chosen = case.shots().any(|shot| apart.contains(&&*shot.algorithm));
            let is_of_it = case.collective == Collective::AllReduce && case.op != ReduceOp::PremulSum;
            is_of_it && !case.calls.is_empty() && case.world <= 8 && !by_copy_engine(case) && !is_chosen
        };
        let sequences: Vec<&CollectiveCase> = cases.iter().filter(of_all_reduce).collect();
        let is_listed_apart =
            |case: &CollectiveCase| case.shots().any(|shot| shot.algorithm.ends_with("_lamport") || shot.offset > 1 << 30);
        assert_eq!(sequences.iter().filter(|case| !uses(case) && !is_listed_apart(case)).count(), 375);
        assert!(sequences.iter().filter(|case| uses(case)).count() > 15);
        assert!(!List::Faults.cases(&REGISTRY, 0).iter().any(|case| case.algorithm.starts_with("multimem")));
    }

    /// If this fails, a list counts cases as not supported that nobody ever meant to run.
    #[test]
    fn what_an_algorithm_under_test_does_not_do_is_not_listed() {
        for list in [List::Smoke, List::Merge, List::Faults] {
            for case in list.cases(&REGISTRY, 0).iter().filter(|case| case.calls.is_empty()) {
                assert_eq!(supports(&REGISTRY, case), Ok(()), "{case}");
            }
        }
    }

    /// If this fails, a command without kernels of ours ends with a panic where it should say that nothing is selected.
    #[test]
    fn lists_of_no_algorithm_are_empty() {
        for catalogue in [Catalogue::default(), Catalogue::peers()] {
            let registry = crate::registry(catalogue);
            for list in List::ALL {
                assert_eq!(list.all_cases(&registry, 0), [], "{}", list.name());
            }
        }
    }

    /// If this fails, an algorithm of one's own is tested only beside ours and NCCL.
    #[test]
    fn lone_algorithm_has_cases() {
        let registry = crate::registry(Catalogue::default()).algorithm(passmuster_kernels::all_reduce::TwoShot);
        for list in List::ALL {
            let cases = list.all_cases(&registry, 0);
            assert!(!cases.is_empty() && cases.iter().all(|case| case.to_string().starts_with("all_reduce/two_shot:")), "{}", list.name());
        }
    }

    fn ids(cases: impl IntoIterator<Item = Case>) -> Vec<String> {
        cases.into_iter().map(|case| case.to_string()).collect()
    }

    /// What one has and the other has not.
    fn only_in(one: &[String], other: &[String]) -> Vec<String> {
        let other: HashSet<&String> = other.iter().collect();
        one.iter().filter(|id| !other.contains(id)).cloned().collect()
    }

    /// If this fails, a new algorithm changes cases that it has no part in, and with them the records of machines that are not at hand.
    #[test]
    fn an_algorithm_more_changes_no_other_case() {
        for name in ["one_shot", "push", "ll", "two_shot_lamport", "multimem", "copy_engine_barrier"] {
            let mut without = passmuster_kernels::catalogue();
            without.algorithms.retain(|algorithm| algorithm.name() != name);
            let without = crate::registry(without);
            for list in [List::Smoke, List::Merge] {
                let is_of_it = |case: &Case| match case {
                    Case::Collective(case) => case.algorithm == name || case.shots().any(|shot| shot.algorithm == name),
                    Case::Product(_) | Case::Task(_) => false,
                };
                let before = ids(list.all_cases(&without, 0));
                let after = list.all_cases(&REGISTRY, 0);
                let others = ids(after.iter().filter(|case| !is_of_it(case)).cloned());
                assert_eq!(only_in(&before, &others), [""; 0], "{}: gone with {name}", list.name());
                assert_eq!(only_in(&others, &before), [""; 0], "{}: come with {name}", list.name());
                assert!(others.len() < after.len() || list == List::Smoke, "{} has {name}", list.name());
            }
        }
    }

    /// If this fails, a new type does the same.
    #[test]
    fn a_type_more_changes_no_other_case() {
        for new in [DType::I32, DType::F64, DType::E4M3, DType::U64] {
            let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|&dtype| dtype != new).collect();
            for list in [List::Smoke, List::Merge] {
                let before = list.cases_from(Source { registry: &REGISTRY, dtypes: &dtypes }, 0);
                let after = list.cases(&REGISTRY, 0);
                let others = ids(after.iter().filter(|case| case.dtype != new).cloned().map(Case::from));
                let [before, after] = [before, after].map(|cases| ids(cases.into_iter().map(Case::from)));
                assert_eq!(only_in(&before, &after), [""; 0], "{}: gone with {new}", list.name());
                assert_eq!(only_in(&others, &before), [""; 0], "{}: come with {new}", list.name());
            }
        }
    }

    #[test]
    fn lists_depend_on_nothing_but_the_seed() {
        assert_eq!(List::Smoke.cases(&REGISTRY, 7), List::Smoke.cases(&REGISTRY, 7));
        assert_ne!(List::Smoke.cases(&REGISTRY, 7), List::Smoke.cases(&REGISTRY, 8));
    }
}
