//! The arguments of one collective call, and the agreement of all ranks on them.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{BufferSpec, MAX_RANKS, Region, Role};
use crate::{
    collective::{Collective, Counts, DType, Element, ReduceOp, Shape},
    with_element,
};

/// What one rank passes to a collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankCall {
    /// The operation.
    pub collective: Collective,
    /// Type of the elements.
    pub dtype: DType,
    /// How elements are combined; [`ReduceOp::Copy`] where the collective only moves them.
    pub op: ReduceOp,
    /// Elements of a slot, as [`Shape`] has it.
    pub count: u64,
    /// The root of a collective that has one; 0 otherwise.
    pub root: u32,
    /// The bits of the element that this rank's input is multiplied by, its own on every rank: of [`ReduceOp::PremulSum`], and of no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<u64>,
    /// Of an all-to-all, the elements of this rank's parts, where they are not `count` each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
    /// Where this rank's input is.
    pub input: Region,
    /// Where this rank's output goes. A call is in place if the smaller of the two is the rank's slot of the larger; of equal size, they
    /// are the same.
    pub output: Region,
}

/// What one rank sends and gets in an all-to-all of packed parts: elements, at most `count` each, zeros allowed. Regions have room for parts of
/// `count` elements; what is left behind the last part is not looked at in the input, and stays in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// To each rank, in rank order.
    pub sent: Vec<u64>,
    /// From each rank, in rank order.
    pub received: Vec<u64>,
}

impl RankCall {
    /// What it is about among `world` ranks, in elements, of which this rank's parts take some.
    pub fn shape(&self, world: u32) -> Shape {
        Shape::new(self.collective, world, self.count).with_root(self.root)
    }

    /// Whether operator, root, factor and parts are such as the collective has among `world` ranks, as far as one rank's arguments tell.
    ///
    /// # Errors
    /// The first that is not, with what was allowed.
    pub(crate) fn check(&self, rank: usize, world: usize) -> Result<(), CallError> {
        let RankCall { collective, dtype, op, count, root, factor, ref parts, .. } = *self;
        if !collective.operators().contains(&op) {
            let allowed: Vec<&str> = collective.operators().iter().map(|op| op.name()).collect();
            return Err(CallError::Operator { collective, op, allowed: allowed.join(", ") });
        }
        let roots = if collective.has_root() { world } else { 1 };
        if root as usize >= roots {
            let allowed = if collective.has_root() { format!("roots 0 to {}", roots - 1) } else { "no root, which is 0".into() };
            return Err(CallError::Root { rank, root, collective, world, allowed });
        }
        let size = dtype.size();
        if !factor.map_or(op != ReduceOp::PremulSum, |bits| op == ReduceOp::PremulSum && bits >> (8 * size - 1) <= 1) {
            let got = factor.map_or("none".into(), |bits| format!("{bits:#x}"));
            let allowed = if op == ReduceOp::PremulSum { format!("the bits of one element, {size} bytes") } else { "none".into() };
            return Err(CallError::Factor { rank, got, op, dtype, allowed });
        }
        let Some(Parts { sent, received }) = parts else { return Ok(()) };
        let refused = |got: String, allowed: String| Err(CallError::Parts { rank, got, allowed });
        if collective != Collective::AllToAll {
            return refused("some".into(), format!("{collective} has none"));
        }
        for (name, counts) in [("sent", sent), ("received", received)] {
            if counts.len() != world {
                return refused(format!("{} {name}", counts.len()), format!("one for each of {world} ranks"));
            }
            if let Some(peer) = counts.iter().position(|&elements| elements > count) {
                return refused(format!("{name}[{peer}] = {}", counts[peer]), format!("at most count = {count} elements each"));
            }
        }
        Ok(())
    }

    /// The same call as `rank` passes it, on its slot of the larger region if `own_slots` says so.
    fn of_rank(&self, rank: u32, own_slots: bool) -> RankCall {
        let mut call = self.clone();
        if own_slots {
            let distance = u64::from(rank).saturating_mul(self.count).saturating_mul(self.dtype.size());
            let slot = match self.input.bytes.cmp(&self.output.bytes) {
                Ordering::Less => &mut call.input,
                Ordering::Greater => &mut call.output,
                Ordering::Equal => return call,
            };
            slot.offset = slot.offset.saturating_add(distance);
        }
        call
    }
}

/// A call that all ranks agree on and that fits its buffers: what algorithms plan. It reads as what rank 0 passes; in place, the regions
/// of other ranks may lie elsewhere ([`Call::input_of`], [`Call::output_of`]).
///
/// Made by [`Call::validate`] only, so that code that holds one need not check again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    arguments: RankCall,
    world: u32,
    in_place: bool,
    /// Whether the smaller region of each rank is its slot of the larger one: in place, and where only the input was taken elsewhere.
    own_slots: bool,
    /// Each rank's factor, where the operator has them.
    factors: Vec<u64>,
    /// What each rank sends to each, in an all-to-all-v.
    counts: Option<Counts>,
    /// Nodes that the ranks are on.
    nodes: u32,
}

/// Why a call was refused. Nothing was enqueued on any rank.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No rank, or more than kernels can address.
    #[error("world size {world} is not supported: a group has 1 to {MAX_RANKS} ranks")]
    World {
        /// Ranks asked for.
        world: usize,
    },
    /// Ranks that are not as many on each node.
    #[error("{nodes} nodes of {world} ranks: the group has as many ranks on each node")]
    Nodes {
        /// Nodes asked for.
        nodes: u32,
        /// Ranks of the group.
        world: u32,
    },
    /// Two ranks passed different values.
    #[error("rank {rank} passed {argument} = {got}, rank 0 passed {expected}: all ranks must pass the same")]
    Mismatch {
        /// The first rank that differs from rank 0.
        rank: usize,
        /// Name of the argument.
        argument: &'static str,
        /// What that rank passed.
        got: String,
        /// What rank 0 passed.
        expected: String,
    },
    /// A rank's part of an in-place call is not its slot.
    #[error("rank {rank} passed {argument} = {got}: in place, its slot is {expected}")]
    Slot {
        /// The first rank of which that is so.
        rank: usize,
        /// Name of the argument.
        argument: &'static str,
        /// What that rank passed.
        got: Region,
        /// Its slot.
        expected: Region,
    },
    /// The root is no rank, or the collective has none.
    #[error("rank {rank} passed root = {root}: {collective} among {world} ranks has {allowed}")]
    Root {
        /// The first rank of which that is so.
        rank: usize,
        /// What it passed.
        root: u32,
        /// The operation.
        collective: Collective,
        /// Ranks of the group.
        world: usize,
        /// What it may be.
        allowed: String,
    },
    /// The collective has no call in place.
    #[error("input and output are both {region}: {collective} has no call in place, they must be apart")]
    InPlace {
        /// The operation.
        collective: Collective,
        /// What was passed as both.
        region: Region,
    },
    /// The collective has no such operator.
    #[error("op {op}: {collective} has {allowed}")]
    Operator {
        /// The operation.
        collective: Collective,
        /// What was passed.
        op: ReduceOp,
        /// The operators it has.
        allowed: String,
    },
    /// A factor that the operator does not have, or none where it has, or one that is no element.
    #[error("rank {rank} passed factor = {got}: {op} of {dtype} has {allowed}")]
    Factor {
        /// The first rank of which that is so.
        rank: usize,
        /// What it passed.
        got: String,
        /// How elements are combined.
        op: ReduceOp,
        /// Type of the elements.
        dtype: DType,
        /// What it may be.
        allowed: String,
    },
    /// Parts of a collective that has none, on some ranks only, not one a rank, or longer than `count`.
    #[error("rank {rank} passed parts = {got}: {allowed}")]
    Parts {
        /// The first rank of which that is so.
        rank: usize,
        /// What it passed.
        got: String,
        /// What it may be.
        allowed: String,
    },
    /// A rank expects another number of elements than it is sent.
    #[error("rank {receiver} passed received[{sender}] = {got}, rank {sender} passed sent[{receiver}] = {expected}: both must be the same")]
    Part {
        /// The rank that gets the part.
        receiver: usize,
        /// The rank that sends it.
        sender: usize,
        /// Elements that the receiver expects.
        got: u64,
        /// Elements that are sent.
        expected: u64,
    },
    /// `count` elements, or a slot of `count` for each rank, do not fit into 64 bits of bytes.
    #[error("count {count} x {size} bytes of {dtype} overflows 64 bits")]
    Overflow {
        /// Elements.
        count: u64,
        /// Their type.
        dtype: DType,
        /// Bytes of one.
        size: u64,
    },
    /// A region names no buffer of the group.
    #[error("{argument} names buffer `{buffer}`, the group has {known}")]
    UnknownBuffer {
        /// Name of the argument.
        argument: &'static str,
        /// The name it gave.
        buffer: String,
        /// The names there are.
        known: String,
    },
    /// A region is not as long as its elements.
    #[error("{argument} {region} has {bytes} bytes, {count} elements of {dtype} need {needed}")]
    Length {
        /// Name of the argument.
        argument: &'static str,
        /// What it gave.
        region: Region,
        /// Length of the region in bytes.
        bytes: u64,
        /// Elements.
        count: u64,
        /// Their type.
        dtype: DType,
        /// Bytes needed.
        needed: u64,
    },
    /// A region ends past its buffer.
    #[error("{argument} {region} ends past its buffer of {buffer_bytes} bytes")]
    OutOfRange {
        /// Name of the argument.
        argument: &'static str,
        /// What it gave.
        region: Region,
        /// Size of the buffer.
        buffer_bytes: u64,
    },
    /// A region does not start at an element.
    #[error("{argument} {region} starts at byte {offset}, {dtype} elements need a multiple of {size}", offset = region.offset)]
    Misaligned {
        /// Name of the argument.
        argument: &'static str,
        /// What it gave.
        region: Region,
        /// Type of the elements.
        dtype: DType,
        /// Alignment in bytes.
        size: u64,
    },
    /// Input and output share bytes without being the same.
    #[error("input {input} and output {output} overlap in part: they must be equal (in place) or apart")]
    Overlap {
        /// The input.
        input: Region,
        /// The output.
        output: Region,
    },
}

impl Call {
    /// Checks what every rank passed against rank 0 and against the group's buffers.
    ///
    /// # Errors
    /// The first disagreement, overflow, misalignment or range error, with rank, argument, value and what was allowed.
    pub fn validate(calls: &[RankCall], buffers: &[BufferSpec]) -> Result<Call, CallError> {
        let Some(first) = calls.first().filter(|_| calls.len() <= MAX_RANKS) else {
            return Err(CallError::World { world: calls.len() });
        };
        let RankCall { collective, dtype, op, count, root, .. } = *first;
        let shape = first.shape(calls.len() as u32);
        let in_place = is_in_place(first);
        for (rank, call) in calls.iter().enumerate() {
            let pairs: [(&'static str, String, String); 5] = [
                ("collective", call.collective.to_string(), collective.to_string()),
                ("dtype", call.dtype.to_string(), dtype.to_string()),
                ("op", call.op.to_string(), op.to_string()),
                ("count", call.count.to_string(), count.to_string()),
                ("root", call.root.to_string(), root.to_string()),
            ];
            if let Some((argument, got, expected)) = pairs.into_iter().find(|(_, got, expected)| got != expected) {
                return Err(CallError::Mismatch { rank, argument, got, expected });
            }
        }
        calls.iter().enumerate().try_for_each(|(rank, call)| call.check(rank, calls.len()))?;
        let counts = agreed_counts(calls)?;
        let size = dtype.size();
        let overflow = CallError::Overflow { count, dtype, size };
        if count.checked_mul(size).and_then(|bytes| bytes.checked_mul(shape.slots().0.max(shape.slots().1))).is_none() {
            return Err(overflow);
        }
        for (argument, region, elements) in [("input", &first.input, shape.input()), ("output", &first.output, shape.output())] {
            let needed = elements * size;
            let Some(buffer) = buffers.iter().find(|b| b.name == region.buffer) else {
                let known: Vec<&str> = buffers.iter().map(|b| b.name.as_str()).collect();
                return Err(CallError::UnknownBuffer { argument, buffer: region.buffer.clone(), known: known.join(", ") });
            };
            if region.bytes != needed {
                let count = elements;
                return Err(CallError::Length { argument, region: region.clone(), bytes: region.bytes, count, dtype, needed });
            }
            if region.offset.checked_add(needed).is_none_or(|end| end > buffer.bytes) {
                return Err(CallError::OutOfRange { argument, region: region.clone(), buffer_bytes: buffer.bytes });
            }
            if !region.offset.is_multiple_of(size) {
                return Err(CallError::Misaligned { argument, region: region.clone(), dtype, size });
            }
        }
        if in_place && !collective.has_in_place() {
            return Err(CallError::InPlace { collective, region: first.input.clone() });
        }
        if !in_place && first.input.overlaps(&first.output) {
            return Err(CallError::Overlap { input: first.input.clone(), output: first.output.clone() });
        }
        for (rank, call) in calls.iter().enumerate() {
            let expected = first.of_rank(rank as u32, in_place);
            for (argument, got, expected) in [("input", &call.input, expected.input), ("output", &call.output, expected.output)] {
                if *got == expected {
                    continue;
                }
                let got = got.clone();
                return Err(match in_place {
                    true => CallError::Slot { rank, argument, got, expected },
                    false => CallError::Mismatch { rank, argument, got: got.to_string(), expected: expected.to_string() },
                });
            }
        }
        let factors = calls.iter().filter_map(|call| call.factor).collect();
        Ok(Call { arguments: first.clone(), world: calls.len() as u32, in_place, own_slots: in_place, factors, counts, nodes: 1 })
    }

    /// The same call of ranks on several nodes, as many on each, in rank order.
    ///
    /// # Errors
    /// [`CallError::Nodes`].
    pub fn on_nodes(self, nodes: u32) -> Result<Call, CallError> {
        match nodes > 0 && self.world.is_multiple_of(nodes) {
            true => Ok(Call { nodes, ..self }),
            false => Err(CallError::Nodes { nodes, world: self.world }),
        }
    }

    /// The call that every rank of a group makes whose rank 0 passes `first`: in place, each rank passes its slot.
    ///
    /// # Errors
    /// As [`Call::validate`].
    pub fn uniform(first: &RankCall, world: u32, buffers: &[BufferSpec]) -> Result<Call, CallError> {
        let in_place = is_in_place(first);
        let calls: Vec<RankCall> = (0..world).map(|rank| first.of_rank(rank, in_place)).collect();
        Call::validate(&calls, buffers)
    }

    /// The same, each rank with a factor of its own, of which there is one for each rank.
    ///
    /// # Errors
    /// As [`Call::validate`].
    pub fn with_factors(first: &RankCall, factors: &[u64], buffers: &[BufferSpec]) -> Result<Call, CallError> {
        let in_place = is_in_place(first);
        let of_rank = |(rank, &factor)| RankCall { factor: Some(factor), ..first.of_rank(rank, in_place) };
        let calls: Vec<RankCall> = (0..).zip(factors).map(of_rank).collect();
        Call::validate(&calls, buffers)
    }

    /// The same, of an all-to-all with parts of these lengths.
    ///
    /// # Errors
    /// As [`Call::validate`].
    pub fn with_counts(first: &RankCall, world: u32, counts: &Counts, buffers: &[BufferSpec]) -> Result<Call, CallError> {
        let calls: Vec<RankCall> = (0..world).map(|rank| RankCall { parts: Some(parts(counts, rank)), ..first.clone() }).collect();
        Call::validate(&calls, buffers)
    }

    /// What is left of a [`ReduceOp::PremulSum`] when every rank has its products in the region `products`: to sum them, out of place.
    pub fn of_products(&self, products: Region) -> Call {
        assert_eq!((self.op, products.bytes), (ReduceOp::PremulSum, self.bytes()), "products take the inputs' place");
        let arguments = RankCall { op: ReduceOp::Sum, factor: None, input: products, ..self.arguments.clone() };
        let (in_place, factors, counts) = (false, Vec::new(), None);
        Call { arguments, world: self.world, in_place, own_slots: self.own_slots, factors, counts, nodes: self.nodes }
    }

    /// A call with root 0 of which every rank passes these regions, with factors of 1 where the operator has them. Their buffers reach as far as they do.
    ///
    /// # Errors
    /// As [`Call::validate`].
    pub fn on_regions(shape: Shape, dtype: DType, op: ReduceOp, input: Region, output: Region) -> Result<Call, CallError> {
        let end = |region: &Region| region.offset.saturating_add(region.bytes);
        let reach =
            |of: &Region| [&input, &output].into_iter().filter(|region| region.buffer == of.buffer).map(end).max().unwrap_or_default();
        let buffers = [&input, &output].map(|region| BufferSpec::new(region.buffer.clone(), reach(region), Role::Data));
        let factor = (op == ReduceOp::PremulSum).then(|| with_element!(dtype, T => T::narrow(T::from_i64(1)).bits()));
        let first = RankCall { collective: shape.collective, dtype, op, count: shape.count, root: 0, factor, parts: None, input, output };
        Call::uniform(&first, shape.world, &buffers)
    }

    /// A call out of place [on regions](Call::on_regions) of buffers `input` and `output` that hold these and nothing else; and these buffers.
    ///
    /// # Errors
    /// As [`Call::validate`].
    pub fn standalone(shape: Shape, dtype: DType, op: ReduceOp) -> Result<(Call, [BufferSpec; 2]), CallError> {
        let region = |name: &str, elements: u64| Region::new(name, 0, elements.saturating_mul(dtype.size()));
        let (input, output) = (region("input", shape.input()), region("output", shape.output()));
        let buffers = [&input, &output].map(|region| BufferSpec::new(region.buffer.clone(), region.bytes, Role::Data));
        Ok((Call::on_regions(shape, dtype, op, input, output)?, buffers))
    }

    /// Ranks of the group.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Nodes that they are on, as many on each, in rank order: ranks reach each other's memory within one.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// What it is about, in elements.
    pub fn shape(&self) -> Shape {
        self.arguments.shape(self.world).with_counts(self.counts.clone())
    }

    /// Bytes of each rank's input.
    pub fn bytes(&self) -> u64 {
        self.arguments.input.bytes
    }

    /// What each rank sends to each, in an all-to-all-v.
    pub fn counts(&self) -> Option<&Counts> {
        self.counts.as_ref()
    }

    /// Bytes of a slot: of `count` elements.
    pub fn slot_bytes(&self) -> u64 {
        self.count * self.dtype.size()
    }

    /// Whether the output takes the input's place: the smaller of the two is the rank's slot of the larger.
    pub fn in_place(&self) -> bool {
        self.in_place
    }

    /// What `rank` passes.
    pub fn of_rank(&self, rank: u32) -> RankCall {
        let factor = self.factors.get(rank as usize).copied();
        let parts = self.counts.as_ref().map(|counts| parts(counts, rank));
        RankCall { factor, parts, ..self.arguments.of_rank(rank, self.own_slots) }
    }

    /// Where `rank`'s input is.
    pub fn input_of(&self, rank: u32) -> Region {
        self.of_rank(rank).input
    }

    /// Where `rank`'s output goes.
    pub fn output_of(&self, rank: u32) -> Region {
        self.of_rank(rank).output
    }
}

/// What a rank passes of these.
fn parts(counts: &Counts, rank: u32) -> Parts {
    Parts { sent: counts.sent(rank).collect(), received: counts.received(rank).collect() }
}

/// The lengths of all parts, if there are any: what each rank sends is what the others expect of it. Each by itself was checked.
fn agreed_counts(calls: &[RankCall]) -> Result<Option<Counts>, CallError> {
    let world = calls.len();
    let Some(all) = calls.iter().map(|call| call.parts.as_ref()).collect::<Option<Vec<&Parts>>>() else {
        let Some(rank) = calls.iter().position(|call| call.parts.is_some() != calls[0].parts.is_some()) else { return Ok(None) };
        let got = if calls[rank].parts.is_some() { "some" } else { "none" };
        return Err(CallError::Parts { rank, got: got.into(), allowed: "all ranks pass them, or none does".into() });
    };
    for (receiver, sender) in (0..world).flat_map(|receiver| (0..world).map(move |sender| (receiver, sender))) {
        let (got, expected) = (all[receiver].received[sender], all[sender].sent[receiver]);
        if got != expected {
            return Err(CallError::Part { receiver, sender, got, expected });
        }
    }
    Ok(Some(Counts::new(world as u32, |sender, receiver| all[sender as usize].sent[receiver as usize])))
}

/// Whether rank 0 asks for a call in place: its slot is the first.
fn is_in_place(first: &RankCall) -> bool {
    first.input.buffer == first.output.buffer && first.input.offset == first.output.offset
}

impl std::ops::Deref for Call {
    type Target = RankCall;
    fn deref(&self) -> &RankCall {
        &self.arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn buffers() -> Vec<BufferSpec> {
        vec![BufferSpec::new("input", 64, Role::Data), BufferSpec::new("output", 64, Role::Data)]
    }

    fn call(count: u64, input: Region, output: Region) -> RankCall {
        RankCall {
            collective: Collective::AllReduce,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            count,
            root: 0,
            factor: None,
            parts: None,
            input,
            output,
        }
    }

    #[test]
    fn ranks_that_agree_make_a_call() {
        let one = call(16, Region::new("input", 0, 64), Region::new("output", 0, 64));
        let agreed = Call::validate(&[one.clone(), one], &buffers()).unwrap();
        assert_eq!((agreed.world(), agreed.bytes(), agreed.in_place()), (2, 64, false));
    }

    #[rstest]
    #[case::length(
        call(15, Region::new("input", 0, 64), Region::new("output", 0, 60)),
        "input input[0..64] has 64 bytes, 15 elements of f32 need 60"
    )]
    #[case::range(
        call(16, Region::new("input", 4, 64), Region::new("output", 0, 64)),
        "input input[4..68] ends past its buffer of 64 bytes"
    )]
    #[case::range_overflow(call(16, Region::new("input", u64::MAX - 3, 64), Region::new("output", 0, 64)), "input input[18446744073709551612..18446744073709551676] ends past its buffer of 64 bytes")]
    #[case::alignment(
        call(1, Region::new("input", 2, 4), Region::new("output", 0, 4)),
        "input input[2..6] starts at byte 2, f32 elements need a multiple of 4"
    )]
    #[case::buffer(
        call(1, Region::new("inptu", 0, 4), Region::new("output", 0, 4)),
        "input names buffer `inptu`, the group has input, output"
    )]
    #[case::overflow(call(1 << 62, Region::new("input", 0, 0), Region::new("output", 0, 0)), "count 4611686018427387904 x 4 bytes of f32 overflows 64 bits")]
    #[case::overlap(
        call(4, Region::new("input", 0, 16), Region::new("input", 8, 16)),
        "input input[0..16] and output input[8..24] overlap in part: they must be equal (in place) or apart"
    )]
    fn refusals_name_argument_value_and_limit(#[case] call: RankCall, #[case] message: &str) {
        assert_eq!(Call::validate(&[call], &buffers()).unwrap_err().to_string(), message);
    }

    /// What rank 0 passes for 4 elements a slot on a group of two, whose larger buffer has 8.
    fn slots(collective: Collective, input: (&str, u64), output: (&str, u64)) -> RankCall {
        let (to_slots, from_slots) = Shape::new(collective, 2, 4).slots();
        let input = Region::new(input.0, input.1, to_slots * 16);
        RankCall { collective, op: collective.operators()[0], ..call(4, input, Region::new(output.0, output.1, from_slots * 16)) }
    }

    #[test]
    fn in_place_is_the_rank_s_slot() {
        let gather = Call::uniform(&slots(Collective::AllGather, ("output", 8), ("output", 8)), 2, &buffers()).unwrap();
        assert!(gather.in_place());
        assert_eq!((gather.input_of(1), gather.output_of(1)), (Region::new("output", 24, 16), Region::new("output", 8, 32)));
        let scatter = Call::uniform(&slots(Collective::ReduceScatter, ("input", 8), ("input", 8)), 2, &buffers()).unwrap();
        assert_eq!((scatter.input_of(1), scatter.output_of(1)), (Region::new("input", 8, 32), Region::new("input", 24, 16)));
        let apart = Call::uniform(&slots(Collective::AllGather, ("input", 8), ("output", 8)), 2, &buffers()).unwrap();
        assert!(!apart.in_place());
        assert_eq!(apart.input_of(1), apart.input_of(0));
    }

    #[test]
    fn a_rank_that_passes_another_slot_is_named() {
        let one = slots(Collective::AllGather, ("output", 0), ("output", 0));
        let error = Call::validate(&[one.clone(), one], &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "rank 1 passed input = output[0..16]: in place, its slot is output[16..32]");
        let second = slots(Collective::AllGather, ("output", 16), ("output", 0));
        let error = Call::uniform(&second, 2, &buffers()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "input output[16..32] and output output[0..32] overlap in part: they must be equal (in place) or apart"
        );
    }

    #[test]
    fn lengths_and_operators_are_those_of_the_collective() {
        let gather = slots(Collective::AllGather, ("input", 0), ("output", 0));
        let short = RankCall { output: Region::new("output", 0, 16), ..gather.clone() };
        let error = Call::uniform(&short, 2, &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "output output[0..16] has 16 bytes, 8 elements of f32 need 32");
        let error = Call::uniform(&RankCall { op: ReduceOp::Sum, ..gather }, 2, &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "op sum: all_gather has copy");
        let copy = RankCall { op: ReduceOp::Copy, ..slots(Collective::ReduceScatter, ("input", 0), ("output", 0)) };
        let error = Call::uniform(&copy, 2, &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "op copy: reduce_scatter has sum, min, max, avg, prod, premul_sum");
    }

    #[test]
    fn an_all_to_all_is_not_done_in_place() {
        let call = slots(Collective::AllToAll, ("input", 0), ("output", 0));
        assert!(!Call::uniform(&call, 2, &buffers()).unwrap().in_place());
        let in_place = RankCall { output: call.input.clone(), ..call };
        let error = Call::uniform(&in_place, 2, &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "input and output are both input[0..32]: all_to_all has no call in place, they must be apart");
    }

    #[test]
    fn parts_are_what_the_other_side_says() {
        let call = slots(Collective::AllToAll, ("input", 0), ("output", 0));
        let counts = Counts::new(2, |sender, receiver| u64::from(3 * sender + receiver));
        let agreed = Call::with_counts(&call, 2, &counts, &buffers()).unwrap();
        assert_eq!((agreed.counts(), agreed.shape().received(1)), (Some(&counts), 5));
        let calls = [0, 1].map(|rank| agreed.of_rank(rank));
        assert_eq!(calls[1].parts, Some(Parts { sent: vec![3, 4], received: vec![1, 4] }));
        let refusal = |change: &dyn Fn(&mut [RankCall; 2])| {
            let mut calls = calls.clone();
            change(&mut calls);
            Call::validate(&calls, &buffers()).unwrap_err().to_string()
        };
        let parts = |call: &mut RankCall| call.parts.clone().unwrap();
        assert_eq!(
            refusal(&|calls| calls[1].parts = Some(Parts { received: vec![2, 4], ..parts(&mut calls[1]) })),
            "rank 1 passed received[0] = 2, rank 0 passed sent[1] = 1: both must be the same"
        );
        assert_eq!(
            refusal(&|calls| calls[1].parts = Some(Parts { sent: vec![5, 4], ..parts(&mut calls[1]) })),
            "rank 1 passed parts = sent[0] = 5: at most count = 4 elements each"
        );
        assert_eq!(
            refusal(&|calls| calls[0].parts = Some(Parts { sent: vec![0], ..parts(&mut calls[0]) })),
            "rank 0 passed parts = 1 sent: one for each of 2 ranks"
        );
        assert_eq!(refusal(&|calls| calls[1].parts = None), "rank 1 passed parts = none: all ranks pass them, or none does");
        let gather = slots(Collective::AllGather, ("input", 0), ("output", 0));
        let error = Call::with_counts(&gather, 2, &counts, &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "rank 0 passed parts = some: all_gather has none");
    }

    #[test]
    fn roots_are_ranks_of_collectives_that_have_one() {
        let broadcast = RankCall { root: 1, ..slots(Collective::Broadcast, ("input", 0), ("output", 0)) };
        assert_eq!(Call::uniform(&broadcast, 2, &buffers()).unwrap().root, 1);
        let other = RankCall { root: 0, ..broadcast.clone() };
        let error = Call::validate(&[broadcast.clone(), other], &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "rank 1 passed root = 0, rank 0 passed 1: all ranks must pass the same");
        let error = Call::uniform(&RankCall { root: 2, ..broadcast }, 2, &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "rank 0 passed root = 2: broadcast among 2 ranks has roots 0 to 1");
        let gather = RankCall { root: 1, ..slots(Collective::AllGather, ("input", 0), ("output", 0)) };
        let error = Call::uniform(&gather, 2, &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "rank 0 passed root = 1: all_gather among 2 ranks has no root, which is 0");
    }

    #[test]
    fn factors_are_elements_and_belong_to_one_operator() {
        let sum = RankCall { dtype: DType::BF16, ..call(4, Region::new("input", 0, 8), Region::new("output", 0, 8)) };
        let premultiplied = RankCall { op: ReduceOp::PremulSum, factor: Some(0x3f80), ..sum.clone() };
        let agreed = Call::with_factors(&premultiplied, &[0x3f80, 0xbf00], &buffers()).unwrap();
        assert_eq!([0, 1].map(|rank| agreed.of_rank(rank).factor), [Some(0x3f80), Some(0xbf00)]);
        let error = Call::with_factors(&premultiplied, &[0x3f80, 0x1_0000], &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "rank 1 passed factor = 0x10000: premul_sum of bf16 has the bits of one element, 2 bytes");
        let error = Call::uniform(&RankCall { factor: None, ..premultiplied }, 2, &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "rank 0 passed factor = none: premul_sum of bf16 has the bits of one element, 2 bytes");
        let error = Call::uniform(&RankCall { factor: Some(1), ..sum }, 2, &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "rank 0 passed factor = 0x1: sum of bf16 has none");
    }

    /// If this fails, the sum of products takes them from where the inputs are, or brings it to where another rank's belongs.
    #[test]
    fn the_sum_of_products_goes_where_the_call_says() {
        let scatter = slots(Collective::ReduceScatter, ("input", 8), ("input", 8));
        let scatter = RankCall { op: ReduceOp::PremulSum, factor: Some(0), ..scatter };
        let sum = Call::uniform(&scatter, 2, &buffers()).unwrap().of_products(Region::new("products", 8, 32));
        assert_eq!((sum.op, sum.in_place(), sum.of_rank(1).factor), (ReduceOp::Sum, false, None));
        assert_eq!((sum.input_of(1), sum.output_of(1)), (Region::new("products", 8, 32), Region::new("input", 24, 16)));
    }

    #[test]
    fn disagreement_names_the_rank() {
        let one = call(4, Region::new("input", 0, 16), Region::new("output", 0, 16));
        let mut other = one.clone();
        other.dtype = DType::BF16;
        let error = Call::validate(&[one.clone(), one, other], &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "rank 2 passed dtype = bf16, rank 0 passed f32: all ranks must pass the same");
    }

    #[test]
    fn a_group_has_ranks() {
        assert_eq!(Call::validate(&[], &[]).unwrap_err(), CallError::World { world: 0 });
    }
}
