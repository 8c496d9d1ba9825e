//! What each collective means: element types, reductions and exact results.
//!
//! This layer imports nothing of passmuster's but itself. It knows neither kernels nor machines.

mod dtype;
mod reduction;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

pub(crate) use dtype::from_name;
pub use dtype::{DType, Element};
pub use reduction::{
    Bounded, ReduceOp, Roundings, bounded, largest, reduce_bytes, reduce_in_order, reduce_per_hop, smallest_subnormal, unit_roundoff,
};

/// An operation that the ranks of a group perform together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank gets the element-wise reduction of all ranks' inputs. Input and output: `count` elements each.
    AllReduce,
}

impl Collective {
    /// Every collective, in the order of reports.
    pub const ALL: [Collective; 1] = [Collective::AllReduce];

    /// The name in case ids, paths and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
        }
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
