//! What kernels and plans must agree on, as C++.

use passmuster_plan::abi::{enumeration, header as of_plans};

use crate::{Holders, all_gather_matmul, lamport, lines, matmul::Tile, reduce};

/// The text of kernels/common/abi.cuh: what all kernels share with plans, and what some of ours do.
pub fn header() -> String {
    let tiles = Tile::ALL
        .iter()
        .rev()
        .map(|Tile { columns, cluster }| format!("E(NAME##_{columns}x{cluster}, T, {columns}, {cluster}, B_ALONG_N)"));
    [
        of_plans(),
        enumeration(
            "Bytes of data in a line that carries its flag; lines or packs of a tile, one a lane; tiles of a chunk of Lamport packs.",
            "",
            &[("LINE_BYTES", lines::PAYLOAD), ("TILE", lines::TILE), ("CHUNK", lamport::CHUNK)],
        ),
        enumeration(
            "reduce/chain: threads of a block that take packs, and of the warp that tells the next rank.",
            "",
            &[("WORKERS", reduce::WORKERS.into()), ("WARP", reduce::WARP.into())],
        ),
        enumeration("all_gather_matmul/fused: bytes of a slice of a row of A.", "", &[("SLICE_BYTES", all_gather_matmul::SLICE_BYTES)]),
        enumeration(
            "conformance/hold: how a block came to go.",
            "Outcome",
            &[("TOLD", Holders::TOLD.into()), ("GAVE_UP", Holders::GAVE_UP.into())],
        ),
        format!(
            "\n// Tiles of products: E for each, with columns and blocks of a cluster.\n#define TILES(E, NAME, T, B_ALONG_N) \\\n    {}\n",
            tiles.collect::<Vec<_>>().join(" \\\n    ")
        ),
    ]
    .concat()
}
