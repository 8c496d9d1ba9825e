//! What each collective means: element types, reductions and exact results.
//!
//! This layer imports nothing of passmuster's but itself. It knows neither kernels nor machines.

mod counts;
mod cuda;
mod dtype;
mod element;
mod product;
mod reduction;
mod shape;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

pub use counts::Counts;
pub use cuda::header;
pub use dtype::{DType, Drawn, from_name};
pub use element::{E4M3, E5M2, Element};
pub use product::{Layout, Product};
pub use reduction::{
    Bounded, ReduceOp, Roundings, bounded, largest, largest_bits, multiplied, premultiply, reduce_in_order, reduce_per_hop,
    smallest_subnormal, unit_roundoff,
};
pub use shape::{Destination, Shape, Sources};

/// An operation that the ranks of a group perform together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank gets the element-wise reduction of all ranks' inputs. Input and output: `count` elements each.
    AllReduce,
    /// Every rank gets all ranks' inputs, one after the other. Input: `count` elements; output: world x `count`, in which slot r, elements
    /// r x `count` and on, is rank r's input.
    AllGather,
    /// Rank r gets the element-wise reduction of slot r of all ranks' inputs. Input: world x `count` elements, one slot a rank; output:
    /// `count`.
    ReduceScatter,
    /// Rank r gets slot r of all ranks' inputs, one after the other. Input: world x `count` elements, one slot a rank; output: the same, in
    /// which slot k is slot r of rank k's input. With [`Counts`], in place of slots there are packed parts of up to `count` elements, and what
    /// they leave of the output stays.
    AllToAll,
    /// Every rank gets the root's input. Input and output: `count` elements each; what the other ranks pass as input is not looked at.
    Broadcast,
    /// The root gets the element-wise reduction of all ranks' inputs; what lies in the other ranks' outputs stays. Input and output: `count`
    /// elements each.
    Reduce,
}

impl Collective {
    /// Every collective, in the order of reports.
    pub const ALL: [Collective; 6] = [
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllToAll,
        Collective::Broadcast,
        Collective::Reduce,
    ];

    /// The name in case ids, paths and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::AllGather => "all_gather",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllToAll => "all_to_all",
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
        }
    }

    /// The operators that its calls may have: those that reduce, or the copy alone.
    pub const fn operators(self) -> &'static [ReduceOp] {
        match self {
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce => &ReduceOp::ALL,
            Collective::AllGather | Collective::AllToAll | Collective::Broadcast => &[ReduceOp::Copy],
        }
    }

    /// Those of them that kernels specialise: [`ReduceOp::COMMON`] of those that reduce.
    pub const fn common_operators(self) -> &'static [ReduceOp] {
        match self {
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce => &ReduceOp::COMMON,
            Collective::AllGather | Collective::AllToAll | Collective::Broadcast => self.operators(),
        }
    }

    /// Whether all ranks' outputs are the same elements.
    pub const fn gives_all_ranks_the_same(self) -> bool {
        match self {
            Collective::AllReduce | Collective::AllGather | Collective::Broadcast => true,
            Collective::ReduceScatter | Collective::AllToAll | Collective::Reduce => false,
        }
    }

    /// Whether one rank, the root, has a role of its own.
    pub const fn has_root(self) -> bool {
        matches!(self, Collective::Broadcast | Collective::Reduce)
    }

    /// Whether a call may be in place. An all-to-all may not, nor may NCCL's: each slot of the output would take the place of one that has
    /// still to go elsewhere.
    pub const fn has_in_place(self) -> bool {
        !matches!(self, Collective::AllToAll)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Collective {
    type Err = String;
    fn from_str(name: &str) -> Result<Collective, String> {
        dtype::from_name(&Collective::ALL, name, "collective", |c| c.name())
    }
}
