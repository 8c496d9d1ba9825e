//! Kernels from elsewhere: an algorithm made from somebody's PTX and a specification that says, as data, how it is launched and what it
//! promises. docs/reference/specification.md is the reference of the specification.
//!
//! `document` is the TOML as written, `specification` what it means, `expression` its arithmetic, `argument` what becomes of it for a call.

mod argument;
mod document;
mod expression;
mod specification;
#[cfg(test)]
mod tests;

use self::{
    argument::{Context, Quantity},
    expression::{Values, Word},
    specification::Specification,
};
use super::{Algorithm, MAX_BLOCKS, Target, plan_name};
use crate::{
    collective::{Collective, DType, ReduceOp},
    contract::Contract,
    machine::MOST_GROUP_BYTES,
    plan::{Arg, BufferSpec, Build, Call, Launch, Op, Plan, RankCall, Region, Role},
};

pub use specification::SpecError;

/// An algorithm whose kernels are somebody else's.
///
/// ```
/// use passmuster_collectives::algorithms::{Algorithm, Foreign};
/// let text = r#"
/// name = "copy"
/// collective = "all_reduce"
/// entry = "copy_{dtype}"
/// dtypes = ["f32"]
/// ops = ["sum"]
/// worlds = [1]
/// launch = { grid = "min(waiting_blocks, ceil_div(count, 256))", block = 256 }
/// argument = [{ pointer = "input" }, { pointer = "output" }, { u64 = "count" }]
/// "#;
/// let foreign = Foreign::read(text, None)?;
/// assert_eq!(foreign.samples()[0].entry, "copy_f32");
/// # Ok::<(), passmuster_collectives::algorithms::SpecError>(())
/// ```
pub struct Foreign {
    specification: Specification,
    /// The specification's name, for as long as the process lives.
    name: &'static str,
    module: String,
}

/// The most blocks of a launch, as on any device along x.
const MOST_GRID: u64 = (1 << 31) - 1;

impl Foreign {
    /// Reads a specification. `kernel` names the kernel in place of what the specification says, with `{dtype}` and `{op}` replaced.
    ///
    /// # Errors
    /// The first contradiction, with its line and column; a specification of which no call can be made, with the reason.
    pub fn read(text: &str, kernel: Option<&str>) -> Result<Foreign, SpecError> {
        let specification = Specification::read(text, kernel)?;
        let module = format!("foreign/{}", specification.name);
        let foreign = Foreign { name: specification.name.clone().leak(), module, specification };
        // What never works is a mistake in the specification, not a case that it does not support.
        let mut reason = None;
        let tried: Vec<Call> = foreign.sample_calls().collect();
        tried.iter().try_for_each(|call| foreign.check_sizes(call))?;
        let works = |call: &Call| foreign.supports(call).map_err(|why| reason.get_or_insert(why).clone()).is_ok();
        if tried.iter().any(works) {
            return Ok(foreign);
        }
        let why = reason.unwrap_or_else(|| "it names no kernel".into());
        Err(SpecError { line: 1, column: 1, problem: format!("no call of `{}` can be made: {why}", foreign.name) })
    }

    /// Refuses buffers that would be larger than any device's memory: what is meant must be something else.
    fn check_sizes(&self, call: &Call) -> Result<(), SpecError> {
        if self.restrictions(call).is_err() {
            return Ok(());
        }
        let values = values_of(call);
        for Quantity { expression, what, line, column } in self.specification.buffers.iter().map(|buffer| &buffer.bytes) {
            // Without a value, the call is not supported, and says why.
            if let Some(bytes) = expression.value(&values).ok().filter(|&bytes| bytes > MOST_GROUP_BYTES) {
                let of = format!("{} elements on {} ranks", call.count, call.world());
                let problem =
                    format!("{what} `{expression}` is {bytes} for {of}: expected at most {MOST_GROUP_BYTES}, more than any device has");
                return Err(SpecError { line: *line, column: *column, problem });
            }
        }
        Ok(())
    }

    /// The module that its launches name, for [`Library::replace`](crate::library::Library::replace).
    pub fn module(&self) -> &str {
        &self.module
    }

    /// The element types it is for.
    pub fn dtypes(&self) -> &[DType] {
        &self.specification.dtypes
    }

    /// The operators it is for.
    pub fn ops(&self) -> &[ReduceOp] {
        &self.specification.ops
    }

    /// The world sizes it is for.
    pub fn worlds(&self) -> &[u32] {
        &self.specification.worlds
    }

    /// Whether it has a kernel for them.
    pub fn has_kernel(&self, dtype: DType, op: ReduceOp) -> bool {
        self.specification.entries.contains_key(&(dtype, op))
    }

    /// Of which number counts must be a multiple, at least 1; `None` where the specification's expression has no value.
    pub fn count_multiple(&self, dtype: DType, world: u32) -> Option<u64> {
        let values = Values { world: world.into(), element_size: dtype.size(), ..Values::default() };
        self.specification.count_multiple_of.value(&values).ok().filter(|&multiple| multiple > 0)
    }

    /// One launch of each of its kernels, as rank 0 would make it: to be held against the PTX before anything runs.
    pub fn samples(&self) -> Vec<Launch> {
        let mut samples: Vec<Launch> = Vec::new();
        for call in self.sample_calls() {
            if samples.iter().any(|known| Some(&known.entry) == self.specification.entries.get(&(call.dtype, call.op))) {
                continue;
            }
            if let Ok(launch) = self.supports(&call).and_then(|()| self.launch(&call, &Target::default(), 0)) {
                samples.push(launch);
            }
        }
        samples
    }

    /// A few calls of each kind that the specification names, the small worlds first.
    fn sample_calls(&self) -> impl Iterator<Item = Call> {
        let Specification { collective, dtypes, ops, worlds, in_place, least_count, .. } = &self.specification;
        let kinds = dtypes.iter().flat_map(move |&dtype| ops.iter().map(move |&op| (dtype, op)));
        let kinds = kinds.flat_map(move |(dtype, op)| worlds.iter().map(move |&world| (dtype, op, world)));
        kinds.flat_map(move |(dtype, op, world)| {
            let multiple = self.count_multiple(dtype, world).unwrap_or(1);
            let values = Values { world: world.into(), element_size: dtype.size(), ..Values::default() };
            let least = least_count.value(&values).unwrap_or(0).div_ceil(multiple).saturating_mul(multiple);
            [least, multiple, 1040_u64.div_ceil(multiple).saturating_mul(multiple), 1 << 20].into_iter().filter_map(move |count| {
                let bytes = count.checked_mul(dtype.size())?;
                let region = |name: &str| Region::new(name, 0, bytes);
                let output = region(if *in_place { "input" } else { "output" });
                let call = RankCall {
                    collective: *collective,
                    dtype,
                    op,
                    count,
                    root: 0,
                    factor: None,
                    parts: None,
                    input: region("input"),
                    output,
                };
                let buffers = ["input", "output"].map(|name| BufferSpec::new(name, bytes, Role::Data));
                Call::validate(&vec![call; world as usize], &buffers).ok()
            })
        })
    }

    fn launch(&self, call: &Call, target: &Target, rank: u32) -> Result<Launch, String> {
        let Specification { entries, buffers, arguments, grid, block, dynamic_shared, waits_for_peers, .. } = &self.specification;
        let entry = entries.get(&(call.dtype, call.op));
        let entry = entry.ok_or_else(|| format!("the specification names no kernel for {} of {}", call.op, call.dtype))?;
        let mut values = values_of(call);
        values.rank = rank.into();
        values.waiting_blocks = target.waiting_blocks.clamp(1, MAX_BLOCKS).into();
        values.grid = grid.within("grid", &values, 1, MOST_GRID)?;
        values.block = block.within("block", &values, 1, 1024)?;
        let dynamic_shared = dynamic_shared.within("dynamic_shared", &values, 0, 227 * 1024)? as u32;
        let context = Context { call, buffers, values };
        Ok(Launch {
            module: self.module.clone(),
            entry: entry.clone(),
            build: Build::Release,
            grid: values.grid as u32,
            block: values.block as u32,
            dynamic_shared,
            waits_for_peers: *waits_for_peers,
            args: arguments.iter().map(|argument| argument.made(&context)).collect::<Result<Vec<Arg>, _>>()?,
        })
    }

    /// All that a rank does for a call.
    fn operations(&self, call: &Call, target: &Target, rank: u32) -> Result<Vec<Op>, String> {
        let mut operations = Vec::new();
        if let Some(index) = self.specification.copy_input_to {
            let context = Context { call, buffers: &self.specification.buffers, values: values_of(call) };
            let Region { buffer, bytes, .. } = self.specification.buffers[index].made(context.bytes(index)?).whole();
            if bytes < call.bytes() {
                return Err(format!("buffer `{buffer}` of {bytes} bytes, to which {} bytes of input are to be copied", call.bytes()));
            }
            operations.push(Op::Copy { from: call.input.clone(), to: Region::new(buffer, 0, call.bytes()), to_rank: None });
        }
        operations.push(Op::Launch(self.launch(call, target, rank)?));
        Ok(operations)
    }

    /// The numbers of waiting blocks for which a plan may differ.
    fn waiting_blocks(&self) -> std::ops::RangeInclusive<u32> {
        let Specification { grid, block, dynamic_shared, arguments, .. } = &self.specification;
        let shape = [grid, block, dynamic_shared];
        let matters = shape.iter().any(|quantity| quantity.expression.mentions(Word::WaitingBlocks))
            || arguments.iter().any(|argument| argument.mentions(Word::WaitingBlocks));
        if matters { 1..=MAX_BLOCKS } else { 1..=1 }
    }

    fn restrictions(&self, call: &Call) -> Result<(), String> {
        let Specification { dtypes, ops, worlds, least_count, most_count, alignment, in_place, out_of_place, .. } = &self.specification;
        let (values, count) = (values_of(call), call.count);
        if !dtypes.contains(&call.dtype) || !ops.contains(&call.op) || !worlds.contains(&call.world()) {
            return Err(format!("the specification does not name {} of {} on {} ranks", call.op, call.dtype, call.world()));
        }
        let multiple = self.specification.count_multiple_of.within("count_multiple_of", &values, 1, u64::MAX)?;
        if !count.is_multiple_of(multiple) {
            return Err(format!("count {count} is no multiple of {multiple}"));
        }
        let least = least_count.value(&values)?;
        let most = most_count.as_ref().map_or(Ok(u64::MAX), |most| most.value(&values))?;
        if !(least..=most).contains(&count) {
            return Err(format!("count {count}: the specification allows {least} to {most}"));
        }
        for (argument, region) in [("input", &call.input), ("output", &call.output)] {
            if !region.offset.is_multiple_of(*alignment) {
                return Err(format!("{argument} {region} starts at byte {}: a multiple of {alignment} is needed", region.offset));
            }
        }
        match call.in_place() {
            true if !in_place => Err("the specification excludes calls in place".into()),
            false if !out_of_place => Err("the specification allows calls in place only".into()),
            _ => Ok(()),
        }
    }
}

fn values_of(call: &Call) -> Values {
    Values { count: call.count, world: call.world().into(), element_size: call.dtype.size(), bytes: call.bytes(), ..Values::default() }
}

impl Algorithm for Foreign {
    fn collective(&self) -> Collective {
        self.specification.collective
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn contract(&self, _: &Call) -> Contract {
        self.specification.contract
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        self.restrictions(call)?;
        for waiting_blocks in self.waiting_blocks() {
            let target = Target { waiting_blocks, ..Target::default() };
            (0..call.world()).try_for_each(|rank| self.operations(call, &target, rank).map(drop))?;
        }
        Ok(())
    }

    fn workspace(&self, dtype: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        let count = bytes / dtype.size();
        let values = Values { count, world: world.into(), element_size: dtype.size(), bytes, ..Values::default() };
        // A size without a value is the reason that `supports` gives, before anything is opened.
        self.specification.buffers.iter().map(|buffer| buffer.made(buffer.bytes.value(&values).unwrap_or(0))).collect()
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let of_rank = |rank| self.operations(call, target, rank).expect("a call that is supported can be made for every target");
        Plan::per_rank(plan_name(self.name, call), call.world(), of_rank)
    }
}
