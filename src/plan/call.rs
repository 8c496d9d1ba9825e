//! The arguments of one collective call, and the agreement of all ranks on them.

use serde::{Deserialize, Serialize};

use super::{BufferSpec, MAX_WORLD, Region};
use crate::collective::{Collective, DType, ReduceOp};

/// What one rank passes to a collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankCall {
    /// The operation.
    pub collective: Collective,
    /// Type of the elements.
    pub dtype: DType,
    /// How elements are combined.
    pub op: ReduceOp,
    /// Elements of the input.
    pub count: u64,
    /// Where this rank's input is.
    pub input: Region,
    /// Where this rank's output goes; equal to `input` for an in-place call.
    pub output: Region,
}

/// A call that all ranks agree on and that fits its buffers: what algorithms plan.
///
/// Made by [`Call::agree`] only, so that whoever holds one need not check again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    arguments: RankCall,
    world: u32,
}

/// Why a call was refused. Nothing was enqueued on any rank.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No rank, or more than kernels can address.
    #[error("world size {world} is not supported: a group has 1 to {MAX_WORLD} ranks")]
    World {
        /// Ranks asked for.
        world: usize,
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
    /// `count` elements do not fit into 64 bits of bytes.
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
    /// A region is not as long as `count` elements.
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
    pub fn agree(calls: &[RankCall], buffers: &[BufferSpec]) -> Result<Call, CallError> {
        let Some(first) = calls.first().filter(|_| calls.len() <= MAX_WORLD) else {
            return Err(CallError::World { world: calls.len() });
        };
        for (rank, call) in calls.iter().enumerate() {
            let pairs: [(&'static str, String, String); 6] = [
                ("collective", call.collective.to_string(), first.collective.to_string()),
                ("dtype", call.dtype.to_string(), first.dtype.to_string()),
                ("op", call.op.to_string(), first.op.to_string()),
                ("count", call.count.to_string(), first.count.to_string()),
                ("input", call.input.to_string(), first.input.to_string()),
                ("output", call.output.to_string(), first.output.to_string()),
            ];
            if let Some((argument, got, expected)) = pairs.into_iter().find(|(_, got, expected)| got != expected) {
                return Err(CallError::Mismatch { rank, argument, got, expected });
            }
        }
        let RankCall { dtype, count, .. } = *first;
        let size = dtype.size();
        let needed = count.checked_mul(size).ok_or(CallError::Overflow { count, dtype, size })?;
        for (argument, region) in [("input", &first.input), ("output", &first.output)] {
            let Some(buffer) = buffers.iter().find(|b| b.name == region.buffer) else {
                let known: Vec<&str> = buffers.iter().map(|b| b.name.as_str()).collect();
                return Err(CallError::UnknownBuffer { argument, buffer: region.buffer.clone(), known: known.join(", ") });
            };
            if region.bytes != needed {
                return Err(CallError::Length { argument, region: region.clone(), bytes: region.bytes, count, dtype, needed });
            }
            if region.offset.checked_add(needed).is_none_or(|end| end > buffer.bytes) {
                return Err(CallError::OutOfRange { argument, region: region.clone(), buffer_bytes: buffer.bytes });
            }
            if !region.offset.is_multiple_of(size) {
                return Err(CallError::Misaligned { argument, region: region.clone(), dtype, size });
            }
        }
        if first.input != first.output && first.input.overlaps(&first.output) {
            return Err(CallError::Overlap { input: first.input.clone(), output: first.output.clone() });
        }
        Ok(Call { arguments: first.clone(), world: calls.len() as u32 })
    }

    /// Ranks of the group.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Bytes of the input.
    pub fn bytes(&self) -> u64 {
        self.arguments.input.bytes
    }

    /// Whether the output takes the input's place.
    pub fn in_place(&self) -> bool {
        self.arguments.input == self.arguments.output
    }
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
    use crate::plan::Role;
    use rstest::rstest;

    fn buffers() -> Vec<BufferSpec> {
        vec![BufferSpec::new("input", 64, Role::Data), BufferSpec::new("output", 64, Role::Data)]
    }

    fn call(count: u64, input: Region, output: Region) -> RankCall {
        RankCall { collective: Collective::AllReduce, dtype: DType::F32, op: ReduceOp::Sum, count, input, output }
    }

    #[test]
    fn ranks_that_agree_make_a_call() {
        let one = call(16, Region::new("input", 0, 64), Region::new("output", 0, 64));
        let agreed = Call::agree(&[one.clone(), one], &buffers()).unwrap();
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
        assert_eq!(Call::agree(&[call], &buffers()).unwrap_err().to_string(), message);
    }

    #[test]
    fn disagreement_names_the_rank() {
        let one = call(4, Region::new("input", 0, 16), Region::new("output", 0, 16));
        let mut other = one.clone();
        other.dtype = DType::BF16;
        let error = Call::agree(&[one.clone(), one, other], &buffers()).unwrap_err();
        assert_eq!(error.to_string(), "rank 2 passed dtype = bf16, rank 0 passed f32: all ranks must pass the same");
    }

    #[test]
    fn a_group_has_ranks() {
        assert_eq!(Call::agree(&[], &[]).unwrap_err(), CallError::World { world: 0 });
    }
}
