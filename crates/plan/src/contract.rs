//! What an algorithm promises about its numbers. The harness tests exactly that, never a hand-picked tolerance.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::collective::Roundings;

/// The numerical contract of one algorithm for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contract {
    /// In which order the ranks' elements are combined.
    pub order: Order,
    /// Where sums round.
    pub roundings: Roundings,
    /// Whether all ranks get the same bits, where they get the same elements at all.
    pub equal_across_ranks: bool,
    /// Whether the same call on the same inputs gives the same bits again: in another run, after other calls, at other addresses.
    pub equal_run_to_run: bool,
    /// Whether a captured and replayed call gives the bits of an eager one.
    pub graph_equals_eager: bool,
    /// Whether in-place and out-of-place calls give the same bits.
    pub in_place_equals_out_of_place: bool,
    /// Whether NaN, infinities, signed zeros, subnormals and overflow come out as the reference of the same order has them.
    /// NaN payloads are promised by copies only.
    pub special_values: bool,
}

/// The order in which the ranks' elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// `((r0 + r1) + r2) + ...` for every element.
    RankAscending,
    /// Starts at the rank that owns the element and goes round: any of the W rotations, constant over an owner's slice.
    AnyRotation,
    /// Ascending within each of this many nodes, as many ranks on each, rounded to the element type there; then the nodes' results in any order and any tree.
    ByNode(u32),
    /// Any order and any tree.
    Any,
    /// There is nothing to combine: each element is one rank's, bit by bit, payloads of NaN included.
    Copied,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::RankAscending => "ascending ranks",
            Order::AnyRotation => "any rotation of ascending ranks",
            Order::ByNode(nodes) => return write!(f, "ascending ranks within each of {nodes} nodes, these in any order"),
            Order::Any => "any order",
            Order::Copied => "copies",
        })
    }
}

impl Contract {
    /// Rank-ascending, accumulated wide, rounded once, equal in every respect: what our algorithms promise.
    pub const ORDERED: Contract = Contract {
        order: Order::RankAscending,
        roundings: Roundings::Once,
        equal_across_ranks: true,
        equal_run_to_run: true,
        graph_equals_eager: true,
        in_place_equals_out_of_place: true,
        special_values: true,
    };

    /// Every element is the right rank's element to the bit: what any collective that only moves data must do.
    pub const COPIED: Contract = Contract { order: Order::Copied, ..Contract::ORDERED };
}
