//! What the lists have of kernels from elsewhere.

use super::{
    super::{
        collective_case::{CallSpec, CollectiveCase, Fault, Graph, Item, Skew},
        inputs::InputClass,
        scenario::standard_shot,
        shrink::boundary_counts,
    },
    Choice, Source, draws, far, vary,
};
use passmuster_plan::{
    algorithms::{Algorithm, Foreign},
    collective::Collective,
};

/// The most cases, what a list has but once not counted.
const SMOKE: usize = 56;
const MERGE: usize = 600;

/// Elements of all ranks together, of the larger of input and output, in a case of a collective whose ranks have a slot each.
const MOST_OF_SLOTS: u64 = 120_000;

/// Elements of a call that is large.
const LARGE: u64 = 1 << 20;

/// Bytes of a slot of such a call, where the emulator affords it: packs are more than 65,536, so that indices of 16 bits wrap.
const LARGE_SLOT: u64 = 16 * ((1 << 16) + (1 << 8));

/// Elements of all ranks together that the emulator affords.
const AFFORDED: u64 = 1 << 22;

/// Elements of a call of which more than eight blocks are busy.
const BUSY: u64 = 1 << 17;

/// Blocks that may wait where many are to: more than a warp has lanes, and as many as kernels are ever laid out for. Flags for fewer are there to be overrun.
const MANY_BLOCKS: [u32; 2] = [33, 128];

/// Elements of a call of which several blocks are busy, and which does not take long.
const SEVERAL_BLOCKS: u64 = 1 << 13;

/// Calls from one with several blocks to the next: a flag that counts this far and begins again has the value then that it had before.
const PERIODS: [u32; 4] = [63, 64, 255, 256];

/// Elements of a call with special inputs: each of them meets each on two ranks.
const SPECIAL: u64 = 2048;

/// Elements of a call that a fault strikes.
const FAULTY: u64 = 5000;

/// The most calls from a state that is about to wrap.
const MOST_STARTED: u32 = 512;

/// More than a time limit that somebody thought generous, in microseconds.
const LATE: u32 = 10_000;

/// What fits in a minute on two cores.
pub(super) fn smoke(from: Source<'_>, foreign: &Foreign, seed: u64) -> Vec<CollectiveCase> {
    cases(from, foreign, &[false], SMOKE, seed)
}

/// The same with peers, more of each, and a call whose bytes are beyond 4 GiB, which GPUs alone have the time for.
pub(super) fn merge(from: Source<'_>, foreign: &Foreign, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = cases(from, foreign, &[false, true], MERGE, seed);
    cases.extend(once(from, foreign, seed, Once::HUGE));
    cases
}

/// Faults at the smallest and the largest world of several ranks, each followed by the same case without it, which must pass next.
pub(super) fn faults(from: Source<'_>, foreign: &Foreign, seed: u64) -> Vec<CollectiveCase> {
    let worlds = || foreign.worlds().iter().copied().filter(|&world| world > 1);
    let (Some(least), Some(most)) = (worlds().min(), worlds().max()) else { return Vec::new() };
    // Of a broadcast nobody need wait but for the root, and of a reduce nobody but the root.
    let awaited = |world: u32| if foreign.collective() == Collective::Broadcast { 0 } else { world - 1 };
    let planted = [
        (least, Fault::Absent(awaited(least))),
        (most, Fault::Absent(awaited(most))),
        (least, Fault::IllegalAddress(0)),
        (most, Fault::IllegalAddress(most / 2)),
        (least, Fault::Killed),
    ];
    let case = |(world, fault)| Some(CollectiveCase { fault: Some(fault), ..modest(from, foreign, world, FAULTY, seed)? });
    let mut cases: Vec<CollectiveCase> = planted.into_iter().filter_map(case).collect();
    cases.dedup();
    cases.into_iter().flat_map(|case| [case.clone(), CollectiveCase { fault: None, ..case }]).collect()
}

/// Counts of `boundary_counts` that are multiples of `multiple`, or next to those that are not.
fn multiples(counts: Vec<u64>, multiple: u64) -> Vec<u64> {
    let mut counts: Vec<u64> = counts.into_iter().flat_map(|count| [count / multiple, count.div_ceil(multiple)]).collect();
    counts.iter_mut().for_each(|count| *count = count.saturating_mul(multiple));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Every combination that a specification names with every input class, and sequences of calls, evenly thinned out to `most`; and what is looked for once, or far.
/// Where no call can be made, as with an expression that has no value for a world, there is one case for each type and world, whose verdict says why.
fn cases(from: Source<'_>, foreign: &Foreign, peered: &[bool], most: usize, seed: u64) -> Vec<CollectiveCase> {
    let (mut cases, mut sequences) = (Vec::new(), Vec::new());
    let mut impossible: Vec<CollectiveCase> = Vec::new();
    for (&dtype, &op) in foreign.dtypes().iter().flat_map(|dtype| foreign.ops().iter().map(move |op| (dtype, op))) {
        for &world in foreign.worlds() {
            let multiple = foreign.count_multiple(dtype, world).unwrap_or(1);
            let mut case = CollectiveCase::new(foreign.collective(), foreign.name(), dtype, op, world, 0);
            case.seed = seed;
            case.counts = foreign.takes_counts().then_some(seed);
            let mut counts = supported_counts(from, &case, multiples(boundary_counts(dtype, world.into()), multiple));
            // Calls of no elements judge nothing: where no size of the list is allowed, the least one that is stands in for all.
            if counts.iter().all(|&count| count == 0) {
                let least = foreign.least_count(dtype, world).unwrap_or(1040);
                let least = supported_size(from, &case, least).then_some(least);
                if least.is_none_or(|least| case.shape(least).larger().saturating_mul(world.into()) > AFFORDED) {
                    if foreign.has_kernel(dtype, op) && !impossible.iter().any(|known| (known.dtype, known.world) == (dtype, world)) {
                        let count = least.or_else(|| 1040_u64.checked_next_multiple_of(multiple)).unwrap_or(multiple);
                        impossible.push(CollectiveCase { count, ..case });
                    }
                    continue;
                }
                counts = least.into_iter().collect();
            }
            for (inputs, &peered) in InputClass::ALL.into_iter().flat_map(|inputs| peered.iter().map(move |peer| (inputs, peer))) {
                let mut case = CollectiveCase { inputs, ..case.clone() };
                let mut choice = draws(if peered { "with peer" } else { "alone" }, &case, seed);
                case.count = choice.of(&counts);
                case.peer = if peered && world > 1 { from.peer(foreign.collective(), dtype, op, &mut choice) } else { None };
                vary(from, &mut case, &mut choice);
                case.counts = case.counts.map(|_| choice.draw() % (1 << 16));
                if foreign.numbers_calls() {
                    case.graph = Graph { replays: 0, ..Graph::default() };
                }
                // Only kernels that use our headers can be late inside.
                case.skew = case.skew.map(|skew| Skew { site: None, ..skew });
                cases.push(as_supported(from, case));
            }
            case.in_place = from.supports(&CollectiveCase { count: counts[0], ..case.clone() }).is_err();
            sequences.push(sequence(&case, &counts, foreign.numbers_calls(), &mut draws("in turn", &case, seed)));
        }
    }
    let thinned = |cases: Vec<CollectiveCase>, most: usize| {
        let every = cases.len().div_ceil(most).max(1);
        cases.into_iter().step_by(every).collect::<Vec<_>>()
    };
    let mut all = thinned(cases, most);
    all.extend(thinned(sequences, most.div_ceil(16)));
    all.extend(impossible);
    all.extend(Once::ALL.into_iter().filter_map(|what| once(from, foreign, seed, what)));
    all.extend(far::of_foreign(from, foreign, |world| modest(from, foreign, world, far::COUNT, seed)));
    all
}

/// Those that a call can be made of, in place or not.
fn supported_counts(from: Source<'_>, case: &CollectiveCase, counts: Vec<u64>) -> Vec<u64> {
    let larger = |count: u64| case.shape(count).larger().saturating_mul(case.world.into());
    let is_modest = |&count: &u64| larger(1) == u64::from(case.world) || larger(count) <= MOST_OF_SLOTS;
    counts.into_iter().filter(is_modest).filter(|&count| supported_size(from, case, count)).collect()
}

/// Whether a call of a size can be made, in place or not.
fn supported_size(from: Source<'_>, case: &CollectiveCase, count: u64) -> bool {
    [false, true].iter().any(|&in_place| from.supports(&CollectiveCase { count, in_place, ..case.clone() }).is_ok())
}

/// What is looked for once, with the first type and operator at the smallest world of several ranks: bugs that no small call shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Once {
    /// Elements at most.
    count: u64,
    kind: OnceKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnceKind {
    /// A single call, with as many blocks as the machine says.
    Call,
    /// Two calls on this many blocks.
    Busy(u32),
    /// Hundreds of small calls, and a larger one after each of [`PERIODS`].
    Often,
    /// Every special value on each rank.
    Special,
    /// A rank that is very late.
    Late,
    /// Calls from the state that the specification names, if it names one: as if many calls had left it.
    Started,
}

impl Once {
    const ALL: [Once; 7] = [
        Once { count: LARGE, kind: OnceKind::Call },
        Once { count: BUSY, kind: OnceKind::Busy(MANY_BLOCKS[0]) },
        Once { count: BUSY, kind: OnceKind::Busy(MANY_BLOCKS[1]) },
        Once { count: SPECIAL, kind: OnceKind::Special },
        Once { count: 40, kind: OnceKind::Often },
        Once { count: 1040, kind: OnceKind::Late },
        Once { count: 40, kind: OnceKind::Started },
    ];

    /// Bytes that 32 bits do not count.
    const HUGE: Once = Once { count: (1 << 31) + (1 << 12), kind: OnceKind::Call };
}

/// A case of a few calls with the first type and operator, if the specification allows one. The larger of input and output has about `count` elements.
fn modest(from: Source<'_>, foreign: &Foreign, world: u32, count: u64, seed: u64) -> Option<CollectiveCase> {
    let combinations = foreign.dtypes().iter().flat_map(|&dtype| foreign.ops().iter().map(move |&op| (dtype, op)));
    let (dtype, op) = combinations.into_iter().find(|&(dtype, op)| foreign.has_kernel(dtype, op))?;
    let mut case = CollectiveCase::new(foreign.collective(), foreign.name(), dtype, op, world, 0);
    case.seed = seed;
    case.inputs = InputClass::Natural;
    case.counts = foreign.takes_counts().then_some(seed);
    let slots = case.shape(1).larger();
    let multiple = foreign.count_multiple(dtype, world)?;
    case.count = (count / slots / multiple).max(1).checked_mul(multiple)?;
    case.in_place = from.supports(&case).is_err();
    if foreign.numbers_calls() {
        case.graph.replays = 0;
    }
    from.supports(&case).ok().map(|()| case)
}

/// The case, where the specification allows one.
fn once(from: Source<'_>, foreign: &Foreign, seed: u64, Once { count, kind }: Once) -> Option<CollectiveCase> {
    let world = foreign.worlds().iter().copied().filter(|&world| world > 1).min()?;
    let mut case = modest(from, foreign, world, count, seed)?;
    if (kind, count) == (OnceKind::Call, LARGE) {
        let slots = LARGE_SLOT / case.dtype.size() * case.shape(1).larger();
        let larger = modest(from, foreign, world, slots.max(count), seed).filter(|larger| larger.elements() <= AFFORDED);
        case = larger.unwrap_or(case);
    }
    let shot = standard_shot(&case);
    let eager = Item::Eager(shot.clone());
    let in_a_row = |pairs: u32| match foreign.numbers_calls() {
        true => vec![eager.clone(); 2 * pairs as usize + 1],
        false => vec![eager.clone(), Item::Graph { calls: vec![shot.clone(), shot.clone()], replays: pairs }],
    };
    match kind {
        OnceKind::Call => case.calls = vec![eager.clone()],
        OnceKind::Busy(blocks) => {
            case.blocks = Some(blocks);
            case.calls = vec![eager.clone(), eager.clone()];
        }
        OnceKind::Often => {
            let larger = Item::Eager(standard_shot(&modest(from, foreign, world, SEVERAL_BLOCKS, seed)?));
            case.calls = vec![larger.clone()];
            for period in PERIODS {
                match foreign.numbers_calls() {
                    true => case.calls.extend(vec![eager.clone(); period as usize - 1]),
                    false => {
                        case.calls.push(Item::Graph { calls: vec![shot.clone(), shot.clone()], replays: (period - 1) / 2 });
                        case.calls.extend((period % 2 == 0).then(|| eager.clone()));
                    }
                }
                case.calls.push(larger.clone());
            }
        }
        OnceKind::Special => case.inputs = InputClass::Special,
        OnceKind::Late => case.skew = Some(Skew { rank: world - 1, microseconds: LATE, site: None }),
        OnceKind::Started => {
            case.start = foreign.start()?;
            // On to where a count wraps, as a number with a sign or without one.
            let calls = case.start.wrapping_neg().min(0x8000_0000_u32.wrapping_sub(case.start));
            case.calls = in_a_row(calls.min(MOST_STARTED) / 2 + 2);
        }
    }
    if !case.calls.is_empty() {
        (case.count, case.in_place) = (0, false);
    }
    Some(case)
}

/// The case, with placement that the specification allows.
fn as_supported(from: Source<'_>, case: CollectiveCase) -> CollectiveCase {
    let placements = [(case.offset, case.in_place), (case.offset, !case.in_place), (8, case.in_place), (0, case.in_place)];
    let placed = placements.into_iter().map(|(offset, in_place)| CollectiveCase { offset, in_place, ..case.clone() });
    placed.into_iter().find(|case| from.supports(case).is_ok()).unwrap_or(CollectiveCase { offset: 0, in_place: !case.in_place, ..case })
}

/// Eager calls, and where they may be captured a graph, whose counts, and so grids, change from call to call, on two groups.
fn sequence(case: &CollectiveCase, counts: &[u64], numbers_calls: bool, choice: &mut Choice) -> CollectiveCase {
    let mut shot = |group| CallSpec {
        algorithm: case.algorithm.clone(),
        count: choice.of(counts),
        root: super::root(case, choice),
        offset: 0,
        in_place: case.in_place,
        group,
    };
    let graph = Item::Graph { calls: vec![shot(0), shot(0)], replays: 3 };
    let mut calls = vec![Item::Eager(shot(0)), Item::Eager(shot(0)), graph, Item::Eager(shot(1)), Item::Eager(shot(0))];
    if numbers_calls {
        calls.retain(|item| matches!(item, Item::Eager(_)));
    }
    CollectiveCase { calls, in_place: false, ..case.clone() }
}
