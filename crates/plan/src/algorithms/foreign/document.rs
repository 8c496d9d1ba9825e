//! The TOML of a specification as written: every key there is, none of them understood yet. docs/reference/specification.md describes it.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use toml::Spanned;

use crate::{
    collective::{Collective, DType, ReduceOp, Roundings},
    contract::{Contract, Order},
    plan::Outside,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) name: Spanned<String>,
    pub(super) collective: Option<Spanned<Collective>>,
    pub(super) task: Option<Spanned<Task>>,
    pub(super) entry: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) entries: BTreeMap<String, Spanned<String>>,
    pub(super) module: Option<Spanned<String>>,
    pub(super) dtypes: Spanned<Vec<DType>>,
    pub(super) ops: Option<Spanned<Vec<ReduceOp>>>,
    pub(super) worlds: Spanned<Vec<u32>>,
    pub(super) call: Option<Spanned<OfCall>>,
    #[serde(default)]
    pub(super) launch: Launch,
    #[serde(default, rename = "step")]
    pub(super) steps: Vec<Spanned<Step>>,
    #[serde(default)]
    pub(super) contract: Promises,
    #[serde(default, rename = "buffer")]
    pub(super) buffers: Vec<Spanned<Buffer>>,
    #[serde(default, rename = "argument")]
    pub(super) arguments: Vec<Spanned<Argument>>,
    #[serde(default, rename = "variable")]
    pub(super) variables: Vec<Spanned<Variable>>,
}

/// What ranks do together, declared by the author of the kernel.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Task {
    pub(super) name: Spanned<String>,
    /// The name of a built-in one, or a program and its arguments.
    pub(super) reference: Spanned<Scalar>,
    #[serde(default, rename = "parameter")]
    pub(super) parameters: Vec<Spanned<Parameter>>,
    #[serde(default, rename = "tensor")]
    pub(super) tensors: Vec<Spanned<TaskTensor>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) values: Vec<u64>,
    #[serde(default)]
    pub(super) per_rank: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskTensor {
    pub(super) name: Spanned<String>,
    pub(super) shape: Vec<Spanned<Scalar>>,
    pub(super) role: Spanned<String>,
    pub(super) dtype: Option<DType>,
    pub(super) contents: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) same_on_all_ranks: bool,
    pub(super) contract: Option<Spanned<OutputContract>>,
}

/// What an output may be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutputContract {
    pub(super) kind: Spanned<String>,
    pub(super) roundings: Option<u32>,
    pub(super) operations: Option<Spanned<Scalar>>,
    pub(super) accumulator: Option<DType>,
    pub(super) relative: Option<f64>,
    pub(super) absolute: Option<f64>,
    pub(super) reason: Option<String>,
}

/// A variable of the module that the host sets after it has loaded the module.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variable {
    pub(super) name: Spanned<String>,
    pub(super) value: Vec<Spanned<Argument>>,
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
    pub(super) when: Option<Spanned<Scalar>>,
    #[serde(default)]
    pub(super) destroys_input: bool,
    pub(super) counts: Option<Spanned<bool>>,
    pub(super) readable_behind: Option<Spanned<u64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Launch {
    pub(super) module: Option<Spanned<String>>,
    pub(super) entry: Option<Spanned<String>>,
    pub(super) grid: Option<Spanned<Scalar>>,
    pub(super) block: Option<Spanned<Scalar>>,
    pub(super) cluster: Option<Spanned<Scalar>>,
    pub(super) dynamic_shared: Option<Spanned<Scalar>>,
    pub(super) waits_for_peers: Option<bool>,
    pub(super) programmatic: Option<bool>,
    pub(super) registers: Option<Spanned<u32>>,
    /// Of a step; those of the specification's own launch are `[[argument]]`.
    pub(super) arguments: Option<Vec<Spanned<Argument>>>,
}

/// A step of a call: exactly one of the kinds, and what goes with any of them.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) launch: Option<Spanned<Launch>>,
    pub(super) copy: Option<Spanned<CopyStep>>,
    pub(super) fill: Option<Spanned<FillStep>>,
    pub(super) write: Option<Spanned<WordStep>>,
    pub(super) wait: Option<Spanned<WordStep>>,
    pub(super) join: Option<Spanned<usize>>,
    pub(super) when: Option<Spanned<Scalar>>,
    pub(super) repeat: Option<Spanned<Scalar>>,
    pub(super) stream: Option<Spanned<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CopyStep {
    pub(super) from: Spanned<String>,
    pub(super) from_offset: Option<Spanned<Scalar>>,
    pub(super) to: Spanned<String>,
    pub(super) to_offset: Option<Spanned<Scalar>>,
    pub(super) bytes: Option<Spanned<Scalar>>,
    pub(super) to_rank: Option<Spanned<Scalar>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FillStep {
    pub(super) buffer: Spanned<String>,
    pub(super) offset: Option<Spanned<Scalar>>,
    pub(super) bytes: Option<Spanned<Scalar>>,
    pub(super) byte: Spanned<Scalar>,
}

/// A word that a stream writes, or waits for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WordStep {
    pub(super) buffer: Spanned<String>,
    pub(super) offset: Option<Spanned<Scalar>>,
    pub(super) value: Spanned<Scalar>,
    pub(super) to_rank: Option<Spanned<Scalar>>,
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
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Promises {
    pub(super) start: Option<Spanned<Scalar>>,
    order: Option<Spanned<Adding>>,
    roundings: Option<Spanned<Roundings>>,
    equal_across_ranks: Option<Spanned<bool>>,
    equal_run_to_run: Option<bool>,
    graph_equals_eager: Option<bool>,
    in_place_equals_out_of_place: Option<Spanned<bool>>,
    /// By default only of copies.
    special_values: Option<Spanned<bool>>,
    pub(super) assumes: BTreeMap<Spanned<String>, Spanned<String>>,
}

impl Promises {
    /// The contract of a collective that reduces, or of one that copies.
    pub(super) fn contract(&self, reduces: bool) -> Contract {
        let yes = |given: &Option<Spanned<bool>>, otherwise| given.as_ref().map_or(otherwise, |given| *given.get_ref());
        Contract {
            order: match self.order.as_ref().map(Spanned::get_ref) {
                _ if !reduces => Order::Copied,
                Some(Adding::RankAscending) => Order::RankAscending,
                Some(Adding::AnyRotation) => Order::AnyRotation,
                Some(Adding::Any) | None => Order::Any,
            },
            roundings: self.roundings.as_ref().map_or(Roundings::Once, |given| *given.get_ref()),
            equal_across_ranks: yes(&self.equal_across_ranks, true),
            equal_run_to_run: self.equal_run_to_run.unwrap_or(true),
            graph_equals_eager: self.graph_equals_eager.unwrap_or(true),
            in_place_equals_out_of_place: yes(&self.in_place_equals_out_of_place, true),
            special_values: yes(&self.special_values, !reduces),
        }
    }

    /// What of it is said of collectives alone: the key, and where it stands.
    pub(super) fn of_collectives(&self) -> Option<(&'static str, usize)> {
        fn at<T>(given: &Option<Spanned<T>>) -> Option<usize> {
            given.as_ref().map(|given| given.span().start)
        }
        let given = [
            ("order", at(&self.order)),
            ("roundings", at(&self.roundings)),
            ("equal_across_ranks", at(&self.equal_across_ranks)),
            ("in_place_equals_out_of_place", at(&self.in_place_equals_out_of_place)),
            ("special_values", at(&self.special_values)),
        ];
        given.into_iter().find_map(|(key, at)| Some((key, at?)))
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
    pub(super) fill: Option<Spanned<Contents>>,
}

/// What a buffer starts with.
pub(super) enum Contents {
    Plain(Scalar),
    Typed(Box<Typed>),
}

/// Values of one type, or bytes of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Typed {
    pub(super) u8: Option<Spanned<Scalar>>,
    pub(super) u16: Option<Spanned<Scalar>>,
    pub(super) u32: Option<Spanned<Scalar>>,
    pub(super) u64: Option<Spanned<Scalar>>,
    pub(super) i32: Option<Spanned<Scalar>>,
    pub(super) i64: Option<Spanned<Scalar>>,
    pub(super) f32: Option<Spanned<Scalar>>,
    pub(super) file: Option<Spanned<String>>,
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
    pub(super) u8: Option<Spanned<Scalar>>,
    pub(super) u16: Option<Spanned<Scalar>>,
    pub(super) u32: Option<Spanned<Scalar>>,
    pub(super) i32: Option<Spanned<Scalar>>,
    pub(super) u64: Option<Spanned<Scalar>>,
    pub(super) i64: Option<Spanned<Scalar>>,
    pub(super) f32: Option<Spanned<Scalar>>,
    pub(super) pointer: Option<Spanned<String>>,
    pub(super) peers: Option<Spanned<String>>,
    pub(super) peer_table: Option<Spanned<String>>,
    pub(super) multicast: Option<Spanned<String>>,
    pub(super) stride: Option<Spanned<String>>,
    pub(super) shift: Option<Spanned<u32>>,
    pub(super) bits: Option<Spanned<u32>>,
    pub(super) tensor_map: Option<Tensor>,
    #[serde(rename = "struct")]
    pub(super) fields: Option<Vec<Spanned<Argument>>>,
    pub(super) memory: Option<Vec<Spanned<Argument>>>,
    pub(super) offset: Option<Spanned<Scalar>>,
    pub(super) length: Option<Spanned<u32>>,
    pub(super) of_rank: Option<Spanned<Scalar>>,
    pub(super) repeat: Option<Spanned<Scalar>>,
}

/// A tensor map of a buffer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tensor {
    pub(super) buffer: Spanned<String>,
    pub(super) dtype: Option<DType>,
    pub(super) extents: Vec<Spanned<Scalar>>,
    #[serde(default)]
    pub(super) strides: Vec<Spanned<Scalar>>,
    #[serde(rename = "box")]
    pub(super) tile: Vec<Spanned<Scalar>>,
    #[serde(default)]
    pub(super) element_strides: Vec<Spanned<Scalar>>,
    #[serde(default)]
    pub(super) interleave: u32,
    #[serde(default)]
    pub(super) swizzle: u32,
    #[serde(default)]
    pub(super) outside: Outside,
}

/// A number, an expression or a word as text, or a list of them.
pub(super) enum Scalar {
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Scalar>>),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        deserializer.deserialize_any(AnyScalar)
    }
}

struct AnyScalar;

impl<'de> Visitor<'de> for AnyScalar {
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Scalar::List(items))
    }
}

impl<'de> Deserialize<'de> for Contents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Contents, D::Error> {
        struct AnyContents;
        impl<'de> Visitor<'de> for AnyContents {
            type Value = Contents;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"zero\", \"uninitialised\", a byte, or a table as in { u32 = 1 }")
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Contents, E> {
                AnyScalar.visit_i64(value).map(Contents::Plain)
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Contents, E> {
                AnyScalar.visit_str(value).map(Contents::Plain)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Contents, A::Error> {
                Typed::deserialize(MapAccessDeserializer::new(map)).map(|typed| Contents::Typed(Box::new(typed)))
            }
        }
        deserializer.deserialize_any(AnyContents)
    }
}
