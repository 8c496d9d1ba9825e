//! The TOML of a specification as written: every key there is, none of them understood yet. docs/reference/specification.md describes it.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use toml::Spanned;

use crate::{
    collective::{Collective, DType, ReduceOp, Roundings},
    contract::{Contract, Order},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) name: Spanned<String>,
    pub(super) collective: Collective,
    pub(super) entry: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) entries: BTreeMap<String, Spanned<String>>,
    pub(super) dtypes: Spanned<Vec<DType>>,
    pub(super) ops: Spanned<Vec<ReduceOp>>,
    pub(super) worlds: Spanned<Vec<u32>>,
    #[serde(default)]
    pub(super) call: OfCall,
    pub(super) launch: Launch,
    #[serde(default)]
    pub(super) contract: Promises,
    #[serde(default, rename = "buffer")]
    pub(super) buffers: Vec<Spanned<Buffer>>,
    #[serde(default, rename = "argument")]
    pub(super) arguments: Vec<Spanned<Argument>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfCall {
    pub(super) count_multiple_of: Option<Spanned<Scalar>>,
    pub(super) least_count: Option<Spanned<Scalar>>,
    pub(super) most_count: Option<Spanned<Scalar>>,
    pub(super) alignment: Option<Spanned<u64>>,
    #[serde(default)]
    pub(super) in_place: bool,
    pub(super) out_of_place: Option<bool>,
    pub(super) copy_input_to: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Launch {
    pub(super) grid: Spanned<Scalar>,
    pub(super) block: Spanned<Scalar>,
    pub(super) dynamic_shared: Option<Spanned<Scalar>>,
    pub(super) waits_for_peers: Option<bool>,
}

/// The orders of a collective that reduces, which no copy has.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Adding {
    RankAscending,
    AnyRotation,
    Any,
}

/// The contract; what is left out is as documented.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Promises {
    order: Adding,
    roundings: Roundings,
    equal_across_ranks: bool,
    equal_run_to_run: bool,
    graph_equals_eager: bool,
    in_place_equals_out_of_place: bool,
    special_values: bool,
}

impl Default for Promises {
    fn default() -> Promises {
        Promises {
            order: Adding::Any,
            roundings: Roundings::Once,
            equal_across_ranks: true,
            equal_run_to_run: true,
            graph_equals_eager: true,
            in_place_equals_out_of_place: true,
            special_values: false,
        }
    }
}

impl Promises {
    pub(super) fn contract(&self) -> Contract {
        Contract {
            order: match self.order {
                Adding::RankAscending => Order::RankAscending,
                Adding::AnyRotation => Order::AnyRotation,
                Adding::Any => Order::Any,
            },
            roundings: self.roundings,
            equal_across_ranks: self.equal_across_ranks,
            equal_run_to_run: self.equal_run_to_run,
            graph_equals_eager: self.graph_equals_eager,
            in_place_equals_out_of_place: self.in_place_equals_out_of_place,
            special_values: self.special_values,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Buffer {
    pub(super) name: Spanned<String>,
    pub(super) role: Purpose,
    #[serde(default)]
    pub(super) memory: Reach,
    pub(super) bytes: Spanned<Scalar>,
    pub(super) fill: Option<Spanned<Scalar>>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Purpose {
    Data,
    Scratch,
    Signals,
    State,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reach {
    #[default]
    Symmetric,
    Local,
}

/// An argument or a field of one: exactly one of the kinds, and what goes with it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Argument {
    pub(super) u32: Option<Spanned<Scalar>>,
    pub(super) i32: Option<Spanned<Scalar>>,
    pub(super) u64: Option<Spanned<Scalar>>,
    pub(super) i64: Option<Spanned<Scalar>>,
    pub(super) f32: Option<Spanned<Scalar>>,
    pub(super) pointer: Option<Spanned<String>>,
    pub(super) peers: Option<Spanned<String>>,
    pub(super) peer_table: Option<Spanned<String>>,
    pub(super) multicast: Option<Spanned<String>>,
    #[serde(rename = "struct")]
    pub(super) fields: Option<Vec<Spanned<Argument>>>,
    pub(super) offset: Option<Spanned<Scalar>>,
    pub(super) length: Option<Spanned<u32>>,
}

/// A number, or an expression or a word as text.
pub(super) enum Scalar {
    Integer(i64),
    Float(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct AnyScalar;
        impl Visitor<'_> for AnyScalar {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or an expression as a string")
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar::Integer(value))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar::Float(value))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(value.to_owned()))
            }
        }
        deserializer.deserialize_any(AnyScalar)
    }
}
