//! The order in which an algorithm adds the ranks' elements, recovered from probes: FPRev (Xie, Gao and Xue, arXiv 2411.00442) applied to
//! ranks.
//!
//! In one call, rank i holds a large M, rank j holds -M and all others a small unit. What is added to either before the two meet is lost
//! by rounding, so the sum tells how many ranks lie outside the smallest subtree that holds both. One call for each pair of ranks gives
//! all of these sizes, and there is one tree that has them. It is found for each element by itself: chunks of a ring start at different
//! ranks.

use std::{collections::BTreeMap, fmt, ops::Range, sync::Arc, time::Duration};

use half::{bf16, f16};

use passmuster_plan::{
    algorithms::{Algorithm, Target},
    collective::{DType, Element as _, ReduceOp, Shape},
    contract::Order,
    machine::{Machine, MachineError},
    plan::{Call, Script, Step},
    with_element,
};

/// A summation: which ranks' elements are added to which.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tree {
    /// The element of one rank.
    Rank(u32),
    /// A sum of two, or of more that are added as one.
    Sum(Vec<Tree>),
}

/// What probes tell of one element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Revealed {
    /// The order.
    Tree(Tree),
    /// Nothing was lost: sums are wider than the probes, so that their order cannot be seen in results.
    Exact,
    /// No tree gives these results: the order changed from call to call, or the kernel does not add.
    NoTree,
}

/// What holds for a range of one rank's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Elements of the output.
    pub elements: Range<u64>,
    /// Their order.
    pub revealed: Revealed,
}

/// What [`reveal`] finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// What the algorithm's contract says.
    pub promised: Order,
    /// For each rank that gets a result, runs of elements of its output, ascending.
    pub ranks: Vec<(u32, Vec<Run>)>,
}

/// M and the unit of a type, if its sums round and can count the ranks. A unit times the ranks must be lost beside M, in the type and in f32.
fn probe(dtype: DType) -> Option<(f64, f64)> {
    match dtype {
        DType::F32 | DType::BF16 => Some((f64::from(1u32 << 30), 1.0)),
        DType::F16 => Some((f64::from(1u32 << 15), 1.0 / f64::from(1u32 << 14))),
        DType::F64 => Some(((1u64 << 60) as f64, 1.0)),
        // Sums of e4m3 in f32 are exact as integers' are, and e5m2 counts no more than eight units.
        _ => None,
    }
}

fn encode(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        _ => unreachable!("no probe of {dtype}"),
    }
}

/// Pairs of ranks, in the order in which they are probed.
fn pairs(world: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..world).flat_map(move |i| (i + 1..world).map(move |j| (i, j)))
}

/// The tree, or what stands for it, from the number of ranks in the smallest subtree that holds each of [`pairs`].
fn tree_of(world: u32, sizes: &[u32]) -> Revealed {
    if world > 2 && sizes.iter().all(|&size| size == 2) {
        return Revealed::Exact;
    }
    let sizes: BTreeMap<(u32, u32), u32> = pairs(world).zip(sizes.iter().copied()).collect();
    let ranks: Vec<u32> = (0..world).collect();
    subtree(&ranks, &sizes).map_or(Revealed::NoTree, Revealed::Tree)
}

/// The tree over these ranks, ascending.
fn subtree(ranks: &[u32], sizes: &BTreeMap<(u32, u32), u32>) -> Option<Tree> {
    if let [rank] = ranks {
        return Some(Tree::Rank(*rank));
    }
    let size = |i: u32, j: u32| sizes[&(i.min(j), i.max(j))];
    // Two ranks are in one branch where they meet before all do.
    let mut branches: Vec<Vec<u32>> = Vec::new();
    for &rank in ranks {
        match branches.iter_mut().find(|branch| (size(branch[0], rank) as usize) < ranks.len()) {
            Some(branch) => branch.push(rank),
            None => branches.push(vec![rank]),
        }
    }
    let apart = |a: &Vec<u32>, b: &Vec<u32>| a.iter().all(|&i| b.iter().all(|&j| size(i, j) as usize == ranks.len()));
    let is_tree = branches.len() > 1 && branches.iter().enumerate().all(|(at, a)| branches[at + 1..].iter().all(|b| apart(a, b)));
    if !is_tree {
        return None;
    }
    branches.iter().map(|branch| subtree(branch, sizes)).collect::<Option<Vec<_>>>().map(Tree::Sum)
}

/// The order of every element of every rank's output, from one call of `count` elements a slot for each pair of ranks.
///
/// # Errors
/// `NotSupported` for a collective, type or call that has no order to reveal; otherwise as [`Machine::run`].
pub fn reveal(
    machine: &mut dyn Machine,
    algorithm: &dyn Algorithm,
    (dtype, world, count): (DType, u32, u64),
    deadline: Duration,
) -> Result<Orders, MachineError> {
    let collective = algorithm.collective();
    let refused = |reason: String| MachineError::NotSupported { reason };
    if !collective.operators().contains(&ReduceOp::Sum) {
        return Err(refused(format!("{collective} adds nothing")));
    }
    let why_not = if dtype == DType::E5M2 { "cannot count the ranks" } else { "are exact in any order" };
    let (large, unit) = probe(dtype).ok_or_else(|| refused(format!("sums of {dtype} {why_not}")))?;
    let shape = Shape::new(collective, world, count);
    let (call, buffers) =
        Call::standalone(shape.clone(), dtype, ReduceOp::Sum).map_err(|error| MachineError::Invalid { reason: error.to_string() })?;
    let mut buffers = buffers.to_vec();
    buffers.extend(algorithm.workspace(dtype, world, call.bytes()));
    algorithm.supports(&call).map_err(refused)?;

    machine.close_groups();
    let target = Target { waiting_blocks: machine.waiting_blocks(world as usize, 1), ..Target::default() };
    algorithm.check_target(&call, &target).map_err(refused)?;
    let group = machine.open_group(world as usize, &buffers)?;
    let script = Script { steps: vec![Step::Enqueue { group, stream: 0, plan: Arc::new(algorithm.plan(&call, &target)) }] };
    // For each rank that gets a result, for each of its elements, one for each pair.
    let mut sizes: Vec<(u32, Vec<Vec<u32>>)> = shape.receivers().map(|rank| (rank, vec![Vec::new(); shape.output() as usize])).collect();
    for (i, j) in pairs(world) {
        for rank in 0..world {
            let value = if rank == i {
                large
            } else if rank == j {
                -large
            } else {
                unit
            };
            machine.write(group, rank as usize, &call.input, &encode(dtype, value).repeat(shape.input() as usize))?;
        }
        machine.run(&script, deadline)?;
        for (rank, of_rank) in &mut sizes {
            let bytes = machine.read(group, *rank as usize, &call.output)?;
            for (sizes, element) in of_rank.iter_mut().zip(bytes.chunks_exact(dtype.size() as usize)) {
                let outside = with_element!(dtype, T => T::from_bytes(element).to_f64()) / unit;
                // Anything else than a number of ranks stands for no tree: no subtree has no rank.
                let is_number = (0.0..=f64::from(world - 2)).contains(&outside) && outside.fract() == 0.0;
                sizes.push(if is_number { world - outside as u32 } else { 0 });
            }
        }
    }
    let ranks = sizes.iter().map(|(rank, of_rank)| (*rank, runs(world, of_rank))).collect();
    Ok(Orders { promised: algorithm.contract(&call).order, ranks })
}

/// Elements side by side of one order as one run.
fn runs(world: u32, sizes: &[Vec<u32>]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut of_last: Option<&Vec<u32>> = None;
    for (element, sizes) in sizes.iter().enumerate() {
        let element = element as u64;
        match runs.last_mut() {
            Some(run) if of_last == Some(sizes) => run.elements.end = element + 1,
            _ => runs.push(Run { elements: element..element + 1, revealed: tree_of(world, sizes) }),
        }
        of_last = Some(sizes);
    }
    runs
}

impl Tree {
    /// `((r0 + r1) + r2) + ...` from `first` on, going round.
    fn in_turn(world: u32, first: u32) -> Tree {
        Tree::in_order((0..world).map(|step| (first + step) % world))
    }

    /// These ranks, of which there is one at least, added one after the other.
    fn in_order(ranks: impl Iterator<Item = u32>) -> Tree {
        ranks.map(Tree::Rank).reduce(|sum, rank| Tree::Sum(vec![sum, rank])).expect("there are ranks").sorted()
    }

    /// Whether a sum is this one, or part of it.
    fn has(&self, part: &Tree) -> bool {
        self == part || matches!(self, Tree::Sum(terms) if terms.iter().any(|term| term.has(part)))
    }

    /// Terms in the order of their least ranks: addition commutes.
    fn sorted(self) -> Tree {
        match self {
            Tree::Rank(_) => self,
            Tree::Sum(terms) => {
                let mut terms: Vec<Tree> = terms.into_iter().map(Tree::sorted).collect();
                terms.sort_by_key(Tree::least);
                Tree::Sum(terms)
            }
        }
    }

    fn least(&self) -> u32 {
        match self {
            Tree::Rank(rank) => *rank,
            Tree::Sum(terms) => terms.iter().map(Tree::least).min().unwrap_or(u32::MAX),
        }
    }
}

impl Revealed {
    /// Whether this is what a contract's order allows.
    pub fn keeps(&self, order: Order, world: u32) -> bool {
        match (self, order) {
            (Revealed::NoTree, _) => false,
            (Revealed::Exact, Order::Any) => true,
            (Revealed::Exact, _) => false,
            (Revealed::Tree(tree), Order::RankAscending) => *tree == Tree::in_turn(world, 0),
            (Revealed::Tree(tree), Order::AnyRotation) => (0..world).any(|first| *tree == Tree::in_turn(world, first)),
            (Revealed::Tree(tree), Order::ByNode(nodes)) => {
                let of_node = world / nodes;
                (0..nodes).all(|node| tree.has(&Tree::in_order(node * of_node..(node + 1) * of_node)))
            }
            (Revealed::Tree(_), Order::Any) => true,
            (Revealed::Tree(_), Order::Copied) => false,
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Rank(rank) => write!(f, "r{rank}"),
            Tree::Sum(terms) => {
                // The longest term first: a chain then reads in the order in which it is added.
                let mut terms: Vec<&Tree> = terms.iter().collect();
                terms.sort_by_key(|term| std::cmp::Reverse(matches!(term, Tree::Sum(_))));
                for (at, term) in terms.iter().enumerate() {
                    let plus = if at == 0 { "" } else { " + " };
                    match term {
                        Tree::Rank(_) => write!(f, "{plus}{term}")?,
                        Tree::Sum(_) => write!(f, "{plus}({term})")?,
                    }
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Revealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Revealed::Tree(tree) => tree.fmt(f),
            Revealed::Exact => f.write_str("nothing is lost: sums are wider than the probes"),
            Revealed::NoTree => f.write_str("no tree gives these results"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;
    use passmuster_plan::collective::Collective;
    use proptest::prelude::*;
    use rstest::rstest;

    /// What the probes of a pair give on f32 sums by this tree, and the sizes that [`reveal`] makes of them.
    fn sizes_of(world: u32, tree: &Tree) -> Vec<u32> {
        fn sum(tree: &Tree, values: &[f32]) -> f32 {
            match tree {
                Tree::Rank(rank) => values[*rank as usize],
                Tree::Sum(terms) => terms.iter().map(|term| sum(term, values)).reduce(|a, b| a + b).unwrap_or(0.0),
            }
        }
        let (large, unit) = probe(DType::F32).unwrap();
        let of_pair = |(i, j)| {
            let value = |rank| if rank == i { large } else if rank == j { -large } else { unit } as f32;
            let values: Vec<f32> = (0..world).map(value).collect();
            world - sum(tree, &values) as u32
        };
        pairs(world).map(of_pair).collect()
    }

    /// A binary tree over ranks in a random order.
    fn trees() -> impl Strategy<Value = (u32, Tree)> {
        (1u32..=16).prop_flat_map(|world| {
            let ranks = Just((0..world).map(Tree::Rank).collect::<Vec<_>>()).prop_shuffle();
            (ranks, proptest::collection::vec(any::<prop::sample::Index>(), world as usize - 1)).prop_map(move |(mut terms, joins)| {
                for join in joins {
                    let a = terms.swap_remove(join.index(terms.len()));
                    let b = terms.pop().expect("one join fewer than ranks");
                    terms.push(Tree::Sum(vec![a, b]));
                }
                (world, terms.pop().expect("one is left").sorted())
            })
        })
    }

    proptest! {
        /// If this fails, a tree that is printed need not be the one that adds.
        #[test]
        fn probes_tell_every_tree((world, tree) in trees()) {
            prop_assert_eq!(tree_of(world, &sizes_of(world, &tree)), Revealed::Tree(tree));
        }
    }

    #[rstest]
    #[case::one(1, &[], "r0")]
    #[case::ascending(4, &[2, 3, 4, 3, 4, 4], "((r0 + r1) + r2) + r3")]
    #[case::pairs(4, &[2, 4, 4, 4, 4, 2], "(r0 + r1) + (r2 + r3)")]
    #[case::at_once(3, &[3, 3, 3], "r0 + r1 + r2")]
    #[case::exact(3, &[2, 2, 2], "nothing is lost: sums are wider than the probes")]
    #[case::no_tree(3, &[2, 2, 3], "no tree gives these results")]
    #[case::no_number(2, &[0], "no tree gives these results")]
    fn trees_read_as_sums(#[case] world: u32, #[case] sizes: &[u32], #[case] expected: &str) {
        assert_eq!(tree_of(world, sizes).to_string(), expected);
    }

    #[test]
    fn rotations_are_told_from_other_trees() {
        let revealed = |tree| Revealed::Tree(tree);
        assert!(revealed(Tree::in_turn(4, 0)).keeps(Order::RankAscending, 4));
        assert!(!revealed(Tree::in_turn(4, 2)).keeps(Order::RankAscending, 4));
        assert!(revealed(Tree::in_turn(4, 2)).keeps(Order::AnyRotation, 4));
        assert!(!Revealed::NoTree.keeps(Order::Any, 4));
    }

    #[test]
    fn nodes_are_added_each_by_itself() {
        let tree = |text: &[&[u32]]| text.iter().map(|ranks| Tree::in_order(ranks.iter().copied())).reduce(|a, b| Tree::Sum(vec![a, b]));
        let keeps = |text: &[&[u32]]| Revealed::Tree(tree(text).unwrap().sorted()).keeps(Order::ByNode(2), 6);
        assert!(keeps(&[&[0, 1, 2], &[3, 4, 5]]) && keeps(&[&[3, 4, 5], &[0, 1, 2]]));
        assert!(!keeps(&[&[0, 2, 1], &[3, 4, 5]]) && !keeps(&[&[0, 1, 2, 3, 4, 5]]) && !keeps(&[&[0, 1, 3], &[2, 4, 5]]));
    }

    /// The kernels' PTX adds in the order that their contracts promise, for every element of a call with packs and edges: of ascending ranks, but for
    /// the chain, which begins behind its root.
    #[rstest]
    fn kernels_add_in_the_order_that_they_promise(#[values(DType::BF16, DType::F16, DType::F64)] dtype: DType) {
        let mut machine = crate::emulator::Emulator::new(crate::emulator::EmulatorOptions::of(&REGISTRY));
        let adds = |algorithm: &&Arc<dyn Algorithm>| algorithm.collective().operators()[0].reduces();
        let under_test = REGISTRY.algorithms().iter().filter(|algorithm| !algorithm.is_peer() && !algorithm.uses_multicast());
        let all: Vec<_> = under_test.filter(adds).collect();
        assert!(all.len() >= 12, "{}", all.len());
        for algorithm in all {
            let name = algorithm.name();
            let revealed = reveal(&mut machine, &**algorithm, (dtype, 4, 37), Duration::from_secs(20)).unwrap();
            let (promised, order) = match name {
                "chain" => (Order::AnyRotation, "((r1 + r2) + r3) + r0"),
                _ => (Order::RankAscending, "((r0 + r1) + r2) + r3"),
            };
            assert_eq!(revealed.promised, promised, "{name}");
            for (_, of_rank) in revealed.ranks {
                let [run] = &of_rank[..] else { panic!("one order of {name}: {of_rank:?}") };
                assert_eq!((run.elements.clone(), run.revealed.to_string()), (0..37, order.to_owned()), "{name}");
            }
        }
    }

    #[test]
    fn what_has_no_order_is_refused() {
        let mut machine = crate::emulator::Emulator::new(crate::emulator::EmulatorOptions::of(&REGISTRY));
        let mut refusal = |collective, name, dtype| {
            let algorithm = REGISTRY.find(collective, name).unwrap();
            reveal(&mut machine, &*algorithm, (dtype, 2, 8), Duration::from_secs(1)).unwrap_err().to_string()
        };
        assert_eq!(refusal(Collective::AllReduce, "one_shot", DType::I32), "not supported: sums of i32 are exact in any order");
        assert_eq!(refusal(Collective::AllGather, "push", DType::F32), "not supported: all_gather adds nothing");
    }
}
