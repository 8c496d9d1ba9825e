//! Matrix products on tensor cores. See kernels/matmul/matmul.cuh.
//!
//! tests/matmul.rs holds them on GPUs against exact products, and the lists of the harness on the emulator.
//!
//! Times at the heads of the kernels were taken beside torch.mm with scripts that are not in this repository; those of `bench all_gather_matmul` are in
//! fixtures/records/.

mod tile;

pub use tile::Tile;

use passmuster_plan::{
    collective::{DType, Layout, Product},
    plan::{Arg, BufferSpec, Launch, MAX_RANKS, MAX_WORLD, MatmulCall, Op, Operands, Region, Role, TensorMap},
};

#[cfg(doc)]
use passmuster_plan::algorithms::TensorParallel;
use passmuster_plan::algorithms::{TensorParallelFusion, kit::synchronisation_with};

/// Whether the kernels can do it among `world` ranks.
///
/// # Errors
/// The argument, its value and what is allowed.
pub fn supports(product: &Product, world: u32) -> Result<(), String> {
    let Product { dtype, rows, columns, depth, .. } = *product;
    if ![DType::BF16, DType::F16].contains(&dtype) {
        return Err(format!("dtype {dtype}: products have bf16 and f16"));
    }
    // Coordinates of TMA are signed words; numbers of tiles and of what is pulled are words, too.
    let most = 1 << 24;
    for (argument, value) in [("rows", rows), ("columns", columns), ("depth", depth)] {
        if value == 0 || value > most {
            return Err(format!("{argument} = {value}: 1 to {most}"));
        }
    }
    for (argument, value) in [("columns", columns), ("depth", depth)] {
        if !value.is_multiple_of(8) {
            return Err(format!("{argument} = {value}: rows of {} bytes, TMA needs a multiple of 16", value * dtype.size()));
        }
    }
    let most = 1u64 << 40;
    for (matrix, elements) in [("gathered A", u64::from(world) * product.a()), ("B", product.b()), ("C", product.c(world))] {
        if elements > most {
            return Err(format!("{matrix} of {elements} elements: at most {most}"));
        }
    }
    if world == 0 || world as usize > MAX_WORLD {
        return Err(format!("world size {world}: 1 to {MAX_WORLD}"));
    }
    Ok(())
}

/// What a rank does for C = A x B, in `blocks` blocks, as many as the device has SMs, with the tiles that suit it best.
pub fn multiply(product: &Product, operands: &Operands, blocks: u32) -> Op {
    multiply_with(product, operands, Tile::best(product, 1, blocks), blocks)
}

/// The same with tiles of this shape.
pub fn multiply_with(product: &Product, operands: &Operands, tile: Tile, blocks: u32) -> Op {
    let mut args = vec![Arg::TensorMap(map_of_a(product, &operands.a, 1))];
    let c = Arg::TensorMap(map_of_c(product, &operands.c, tile, 1));
    args.extend(other_args(product, &operands.b, c, tile, 1, 0));
    Op::Launch(Launch {
        module: "matmul/matmul".into(),
        entry: entry_of(product, "matmul", tile),
        grid: tile.grid(product, 1, blocks).into(),
        block: THREADS.into(),
        cluster: None,
        dynamic_shared: tile.shared_bytes(),
        waits_for_peers: false,
        programmatic: false,
        registers: None,
        variables: Vec::new(),
        args,
    })
}

/// What one rank does to multiply by the plain kernel with tiles of another width: see [`TensorParallel::plain`].
pub(crate) fn plain(product: &Product, operands: &Operands, other_than: Option<u32>, blocks: u32) -> Op {
    let tile = if other_than == Some(Tile::NARROWEST.columns) { Tile::ALL[0] } else { Tile::NARROWEST };
    multiply_with(product, operands, tile, blocks)
}

/// A plan's name for reports.
pub(crate) fn plan_name(of: TensorParallelFusion, name: &str, product: &Product, world: u32) -> String {
    let Product { dtype, rows, columns, depth, .. } = product;
    format!("{of}/{name} {dtype} w={world} {rows}x{columns}x{depth}")
}

/// The library's workspace, for `products` products at a time.
pub(crate) fn library_workspace(name: &str, products: u64) -> BufferSpec {
    BufferSpec { local: true, ..BufferSpec::new(format!("{name}.library"), products * MatmulCall::WORKSPACE, Role::Data) }
}

/// A as `parts` matrices below each other.
pub(crate) fn map_of_a(product: &Product, region: &Region, parts: u32) -> TensorMap {
    let extents = vec![product.depth, product.rows, u64::from(parts)];
    TensorMap::packed(region.clone(), product.dtype, extents, vec![DEPTH, Tile::ROWS, 1], 128)
}

/// C in the same way.
pub(crate) fn map_of_c(product: &Product, region: &Region, tile: Tile, parts: u32) -> TensorMap {
    let Product { dtype, rows, columns, .. } = *product;
    let (extents, box_columns) = (vec![columns, rows, u64::from(parts)], tile.box_columns());
    TensorMap::packed(region.clone(), dtype, extents, vec![box_columns, 64, 1], 2 * box_columns)
}

/// What kernels take after A: B, C, the raster and the number of stages of a tile.
pub(crate) fn other_args(product: &Product, b: &Region, c: Arg, tile: Tile, world: u32, first: u32) -> Vec<Arg> {
    let Product { dtype, columns, depth, layout, .. } = *product;
    let (b_extents, b_tile) = match layout {
        Layout::Nk => (vec![depth, columns], vec![DEPTH, tile.columns / tile.cluster]),
        Layout::Kn => (vec![columns, depth], vec![64, DEPTH / tile.cluster]),
    };
    let b = TensorMap::packed(b.clone(), dtype, b_extents, b_tile, 128);
    let (rows, columns) = tile.counts(product);
    let group = GROUP / tile.cluster;
    let raster = [world, first, rows as u32, columns as u32, group].map(Arg::U32).to_vec();
    vec![Arg::TensorMap(b), c, Arg::Struct(raster), Arg::U32(depth.div_ceil(u64::from(DEPTH)) as u32)]
}

pub(crate) fn entry_of(product: &Product, module: &str, tile: Tile) -> String {
    format!("{module}_{}_{}_{}x{}", product.dtype, product.layout, tile.columns, tile.cluster)
}

/// Buffers of an algorithm whose blocks, one per SM, wait for peers: signal pads, epochs, stuck report and stall times.
pub(crate) fn synchronisation(name: &str, blocks: u32) -> Vec<BufferSpec> {
    let blocks = u64::from(blocks);
    let mut buffers = synchronisation_with(name, blocks * MAX_RANKS as u64 * 4, blocks * 4);
    buffers
        .iter_mut()
        .filter(|buffer| buffer.role == Role::StuckReport)
        .for_each(|report| report.bytes = 64 + blocks * MAX_RANKS as u64 * 16);
    buffers
}

/// Threads of a block: `MATMUL_THREADS` of kernels/matmul/matmul.cuh.
pub(crate) const THREADS: u32 = 384;
/// Terms of a sum that a stage holds: `Tile::K` there.
const DEPTH: u32 = 64;
/// Rows of tiles that are gone through together, so that what runs at a time finds A and B in the L2.
const GROUP: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn product(rows: u64, columns: u64, depth: u64) -> Product {
        Product { dtype: DType::BF16, rows, columns, depth, layout: Layout::Nk }
    }

    #[rstest]
    #[case(product(0, 8, 8), "rows = 0: 1 to 16777216")]
    #[case(product(1, 12, 8), "columns = 12: rows of 24 bytes, TMA needs a multiple of 16")]
    #[case(product(1, 8, 4), "depth = 4: rows of 8 bytes, TMA needs a multiple of 16")]
    #[case(product(1 << 20, 1 << 20, 8), "C of 2199023255552 elements: at most 1099511627776")]
    #[case(Product { dtype: DType::F32, ..product(1, 8, 8) }, "dtype f32: products have bf16 and f16")]
    fn what_cannot_be_addressed_is_refused(#[case] product: Product, #[case] why: &str) {
        assert_eq!(supports(&product, 2), Err(why.into()));
    }

    #[test]
    fn a_launch_speaks_of_regions() {
        let product = Product { layout: Layout::Kn, ..product(300, 1000, 520) };
        let region = |name: &str, elements: u64| Region::new(name, 0, 2 * elements);
        let operands = Operands { a: region("a", product.a()), b: region("b", product.b()), c: region("c", product.c(1)) };
        insta::assert_snapshot!(multiply(&product, &operands, 132));
    }
}
