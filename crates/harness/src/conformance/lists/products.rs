//! What the lists have of products of matrices.

use super::{
    super::{Fault, Numbers, ProductCase, Skew},
    keyed,
};
use passmuster_plan::{
    algorithms::{Registry, TensorParallelFusion},
    collective::{DType, Layout, Product},
};

/// Rows of a rank's part, columns and depth: less than a tile, no multiple of one, several; less depth than the kernels' ring has stages, no multiple of a
/// stage, more than the ring holds.
const SHAPES: [(u64, u64, u64); 6] = [(1, 8, 8), (8, 64, 72), (200, 256, 200), (300, 520, 64), (513, 208, 136), (129, 264, 520)];

/// What `pull` brings in several slices of its depth, and in several groups of rows of tiles.
const PULLED: [(u64, u64, u64); 2] = [(4, 8, 1032), (2100, 8, 8)];

fn product((rows, columns, depth): (u64, u64, u64), dtype: DType, layout: Layout) -> Product {
    Product { dtype, rows, columns, depth, layout }
}

/// Both types and layouts.
const FORMS: [(DType, Layout); 4] =
    [(DType::BF16, Layout::Nk), (DType::F16, Layout::Kn), (DType::BF16, Layout::Kn), (DType::F16, Layout::Nk)];

fn algorithms(registry: &Registry, half: TensorParallelFusion) -> impl Iterator<Item = &'static str> {
    registry.products(half).map(|algorithm| algorithm.name())
}

/// Every algorithm on two and four ranks, with less than a tile and with several.
pub(super) fn smoke(registry: &Registry, seed: u64) -> Vec<ProductCase> {
    let cases = |half: TensorParallelFusion, algorithm| {
        let case =
            move |shape, world| ProductCase { seed, ..ProductCase::new(half, algorithm, product(shape, DType::BF16, Layout::Nk), world) };
        [(1, 2), (2, 2), (2, 4)].map(|(shape, world)| case(SHAPES[shape], world))
    };
    TensorParallelFusion::ALL
        .into_iter()
        .flat_map(|half| algorithms(registry, half).flat_map(move |algorithm| cases(half, algorithm)))
        .collect()
}

/// Every algorithm at every shape and world size, with integers and with fractions; types and layouts, tiles, a late rank and a second group take turns.
pub(super) fn merge(registry: &Registry, seed: u64) -> Vec<ProductCase> {
    let mut cases = Vec::new();
    for half in TensorParallelFusion::ALL {
        for algorithm in registry.products(half) {
            let (algorithm, tiles) = (algorithm.name(), algorithm.tiles());
            for (row, shape) in SHAPES.into_iter().enumerate() {
                // What more of large parts among many ranks would show, fewer ranks do: the reference takes the host long.
                let worlds = if row < 3 { &[1, 2, 3, 4, 8][..] } else { &[1, 2, 3, 4] };
                for (turn, &world) in worlds.iter().enumerate() {
                    let (dtype, layout) = FORMS[(row + turn) % FORMS.len()];
                    let mut case = ProductCase::new(half, algorithm, product(shape, dtype, layout), world);
                    let mut choice = keyed(&case, seed);
                    case.inputs = Numbers::ALL[(row / FORMS.len() + turn + choice.draw() as usize) % Numbers::ALL.len()];
                    case.seed = seed.wrapping_add(choice.draw() % 0xffff);
                    case.tile = (!tiles.is_empty() && choice.one_in(2)).then(|| choice.of(&tiles));
                    let rank = (choice.draw() % u64::from(world)) as u32;
                    case.skew = choice.one_in(2).then_some(Skew { rank, microseconds: 2000, site: None });
                    case.groups = if choice.one_in(4) { 2 } else { 1 };
                    cases.push(case);
                }
            }
        }
    }
    for (turn, (shape, world)) in PULLED.into_iter().flat_map(|shape| [2, 3].map(|world| (shape, world))).enumerate() {
        let (dtype, layout) = FORMS[turn];
        let skew = Some(Skew { rank: world - 1, microseconds: 2000, site: None });
        let case = ProductCase::new(TensorParallelFusion::Gather, "pull", product(shape, dtype, layout), world);
        cases.push(ProductCase { inputs: Numbers::ALL[turn % Numbers::ALL.len()], seed, skew, ..case });
    }
    cases
}

/// A rank that stays away from a kernel that waits for it, and the same call without.
pub(super) fn faults() -> Vec<ProductCase> {
    let case = ProductCase::new(TensorParallelFusion::Gather, "pull", product(SHAPES[2], DType::BF16, Layout::Nk), 3);
    vec![ProductCase { fault: Some(Fault::Absent(1)), ..case.clone() }, case]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;

    #[test]
    fn every_algorithm_meets_what_may_go_wrong() {
        let cases = merge(&REGISTRY, 0);
        assert_eq!(cases.len(), 12 * (3 * 5 + 3 * 4) + 4);
        for half in TensorParallelFusion::ALL {
            for algorithm in algorithms(&REGISTRY, half) {
                let of = |is: &dyn Fn(&ProductCase) -> bool| cases.iter().any(|c| c.half == half && c.algorithm == algorithm && is(c));
                for numbers in Numbers::ALL {
                    assert!(of(&|c| c.inputs == numbers && c.world > 1), "{half}/{algorithm} {numbers}");
                }
                for (dtype, layout) in FORMS {
                    assert!(
                        of(&|c| (c.product.dtype, c.product.layout) == (dtype, layout) && c.world > 1),
                        "{half}/{algorithm} {dtype} {layout}"
                    );
                }
                assert!(of(&|c| c.skew.is_some_and(|skew| skew.rank > 0)) && of(&|c| c.groups == 2 && c.world > 1), "{half}/{algorithm}");
                assert!(of(&|c| c.groups == 2 && c.skew.is_some()), "{half}/{algorithm}");
            }
        }
        let tiles = |columns| cases.iter().any(|case| case.tile == Some(columns) && case.world > 1);
        assert!([256, 224, 208, 192, 128].into_iter().all(tiles));
    }

    #[test]
    fn ids_read_back() {
        for case in merge(&REGISTRY, 3).into_iter().chain(smoke(&REGISTRY, 0)).chain(faults()) {
            assert_eq!(case.to_string().parse::<ProductCase>().as_ref(), Ok(&case));
        }
    }
}
