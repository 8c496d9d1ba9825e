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

use crate::words::UnknownName;

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

use Slots::{EachRank, One};

/// The collectives. Beside its lines here, one has what each element is made of in shape.rs.
macro_rules! collectives {
    ($($(#[$doc:meta])* $variant:ident = $facts:expr;)*) => {
        /// An operation that the ranks of a group perform together.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Collective {
            $($(#[$doc])* $variant,)*
        }

        /// The facts of each, in the order of [`Collective::ALL`].
        const FACTS: &[Facts] = &[$($facts),*];

        impl Collective {
            /// Every collective, in the order of reports.
            pub const ALL: [Collective; FACTS.len()] = [$(Collective::$variant),*];
        }
    };
}

collectives! {
    /// Every rank gets the element-wise reduction of all ranks' inputs. Input and output: `count` elements each.
    AllReduce = Facts {
        name: "all_reduce", reduces: true, slots: (One, One), root: false, same_for_all: true, in_place: true,
        in_nccl: "AllReduce", bus: |world| 2.0 * (world - 1.0) / world,
        input: "n elements",
        output: "n: the reduction of all inputs",
    };
    /// Every rank gets all ranks' inputs, one after the other. Input: `count` elements; output: world x `count`, in which slot r, elements
    /// r x `count` and on, is rank r's input.
    AllGather = Facts {
        name: "all_gather", reduces: false, slots: (One, EachRank), root: false, same_for_all: true, in_place: true,
        in_nccl: "AllGather", bus: |world| (world - 1.0) / world,
        input: "n elements",
        output: "w x n: slot k, elements k x n and on, is rank k's input",
    };
    /// Rank r gets the element-wise reduction of slot r of all ranks' inputs. Input: world x `count` elements, one slot a rank; output:
    /// `count`.
    ReduceScatter = Facts {
        name: "reduce_scatter", reduces: true, slots: (EachRank, One), root: false, same_for_all: false, in_place: true,
        in_nccl: "ReduceScatter", bus: |world| (world - 1.0) / world,
        input: "w x n elements",
        output: "n: the reduction of slot r of all inputs",
    };
    /// Rank r gets slot r of all ranks' inputs, one after the other. Input: world x `count` elements, one slot a rank; output: the same, in
    /// which slot k is slot r of rank k's input. With [`Counts`], in place of slots there are packed parts of up to `count` elements, and what
    /// they leave of the output stays. A call may not be in place, nor may NCCL's: each slot of the output would take the place of one that has still to go
    /// elsewhere.
    AllToAll = Facts {
        name: "all_to_all", reduces: false, slots: (EachRank, EachRank), root: false, same_for_all: false, in_place: false,
        in_nccl: "SendRecv", bus: |world| (world - 1.0) / world,
        input: "w x n elements",
        output: "w x n: slot k is slot r of rank k's input; with `counts` (all-to-all-v), parts one after the other",
    };
    /// Every rank gets the root's input. Input and output: `count` elements each; what the other ranks pass as input is not looked at.
    Broadcast = Facts {
        name: "broadcast", reduces: false, slots: (One, One), root: true, same_for_all: true, in_place: true,
        in_nccl: "Broadcast", bus: |_| 1.0,
        input: "n elements; what ranks other than the root pass is not looked at",
        output: "n: the root's input",
    };
    /// The root gets the element-wise reduction of all ranks' inputs; what lies in the other ranks' outputs stays. Input and output: `count`
    /// elements each.
    Reduce = Facts {
        name: "reduce", reduces: true, slots: (One, One), root: true, same_for_all: false, in_place: true,
        in_nccl: "Reduce", bus: |_| 1.0,
        input: "n elements",
        output: "n: at the root the reduction of all inputs; at the others what was there before",
    };
}

/// What there is to know of a collective, but for what each element is made of.
struct Facts {
    name: &'static str,
    reduces: bool,
    /// Of each rank's input and output.
    slots: (Slots, Slots),
    root: bool,
    same_for_all: bool,
    in_place: bool,
    in_nccl: &'static str,
    /// Busbw over algbw of nccl-tests, by the number of ranks.
    bus: fn(f64) -> f64,
    input: &'static str,
    output: &'static str,
}

/// How many slots a buffer has.
#[derive(Clone, Copy)]
enum Slots {
    One,
    EachRank,
}

impl Collective {
    const fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// The name in case ids, paths and reports.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// What each rank puts in and what rank r gets, of n elements among w ranks, for people.
    pub const fn described(self) -> (&'static str, &'static str) {
        (self.facts().input, self.facts().output)
    }

    /// The operators that its calls may have: those that reduce, or the copy alone.
    pub const fn operators(self) -> &'static [ReduceOp] {
        if self.facts().reduces { &ReduceOp::ALL } else { &[ReduceOp::Copy] }
    }

    /// Those of them that kernels specialise: [`ReduceOp::COMMON`] of those that reduce.
    pub const fn common_operators(self) -> &'static [ReduceOp] {
        if self.facts().reduces { &ReduceOp::COMMON } else { self.operators() }
    }

    /// Slots of each rank's input and of each rank's output among `world` ranks: 1, or one for each rank.
    pub const fn slots(self, world: u32) -> (u64, u64) {
        const fn number(slots: Slots, world: u32) -> u64 {
            match slots {
                Slots::One => 1,
                Slots::EachRank => world as u64,
            }
        }
        let (input, output) = self.facts().slots;
        (number(input, world), number(output, world))
    }

    /// Whether all ranks' outputs are the same elements.
    pub const fn gives_all_ranks_the_same(self) -> bool {
        self.facts().same_for_all
    }

    /// Whether one rank, the root, has a role of its own.
    pub const fn has_root(self) -> bool {
        self.facts().root
    }

    /// Whether a call may be in place.
    pub const fn has_in_place(self) -> bool {
        self.facts().in_place
    }

    /// What NCCL calls it in its log.
    pub const fn in_nccl(self) -> &'static str {
        self.facts().in_nccl
    }

    /// Of the bytes of the larger of input and output, how many cross the slowest link among `world` ranks: nccl-tests' busbw over its algbw.
    pub fn bus_factor(self, world: u32) -> f64 {
        (self.facts().bus)(f64::from(world))
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Collective {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Collective, UnknownName> {
        dtype::from_name(&Collective::ALL, name, "collective", |c| c.name())
    }
}
