//! Kernels from elsewhere: an algorithm made from somebody's PTX and a specification that says, as data, how it is launched and what it
//! promises. docs/reference/specification.md is the reference of the specification.
//!
//! `document` is the TOML as written, `specification` what it means, `expression` its arithmetic, `names` the kernels' and modules' names,
//! `contents` what buffers start with; `argument` and `step` are what becomes of it for a call.

mod argument;
mod contents;
mod document;
mod expression;
mod names;
mod specification;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use self::{
    argument::{Context, Quantity},
    expression::{Values, Word},
    specification::Specification,
    step::LaunchSpec,
};
use super::{
    Algorithm, Target,
    kit::{MAX_BLOCKS, plan_name},
};
use crate::{
    collective::{Collective, Counts, DType, ReduceOp, Shape},
    contract::Contract,
    machine::MOST_GROUP_BYTES,
    plan::{BufferSpec, Call, Launch, Op, Plan, Region},
};

pub use specification::{Files, SpecError};

/// Blocks of a rank that the emulator lets wait for others.
const FEW_BLOCKS: u32 = 4;

/// An algorithm whose kernels are somebody else's.
///
/// ```
/// use passmuster_plan::algorithms::{Algorithm, Foreign};
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
/// # Ok::<(), passmuster_plan::algorithms::SpecError>(())
/// ```
pub struct Foreign {
    specification: Specification,
    /// Bytes of dynamic shared memory, by the module that launches name.
    shared: BTreeMap<String, u32>,
}

/// A module that launches name, for [`Library::replace`](crate::library::Library::replace).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignModule {
    /// What launches call it.
    pub name: String,
    /// The file of its PTX, relative to the specification, where that names one.
    pub file: Option<String>,
}

impl Foreign {
    /// Reads a specification that names no file for a buffer to start with.
    ///
    /// # Errors
    /// As [`Foreign::with_files`].
    pub fn read(text: &str, kernel: Option<&str>) -> Result<Foreign, SpecError> {
        Foreign::with_files(text, kernel, &|file| Err(format!("file `{file}`: there are no files here")))
    }

    /// Reads a specification. `kernel` names the kernel in place of what the specification says, with what is in braces replaced as there.
    ///
    /// # Errors
    /// The first contradiction, with its line and column; a specification of which no call can be made, with the reason.
    pub fn with_files(text: &str, kernel: Option<&str>, files: Files<'_>) -> Result<Foreign, SpecError> {
        let specification = Specification::read(text, kernel, files)?;
        let foreign = Foreign { specification, shared: BTreeMap::new() };
        // What never works is a mistake in the specification, not a case that it does not support.
        let mut reason = None;
        let tried: Vec<Call> = foreign.sample_calls().collect();
        tried.iter().try_for_each(|call| foreign.check_sizes(call))?;
        let works = |call: &Call| foreign.supports(call).map_err(|why| reason.get_or_insert(why).clone()).is_ok();
        if tried.iter().any(works) {
            return Ok(foreign);
        }
        let why = reason.unwrap_or_else(|| "it names no kernel".into());
        Err(SpecError { line: 1, column: 1, problem: format!("no call of `{}` can be made: {why}", foreign.name()) })
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

    /// The modules that its launches name.
    pub fn foreign_modules(&self) -> BTreeSet<ForeignModule> {
        let Specification { dtypes, ops, worlds, .. } = &self.specification;
        let of_launches = self.specification.launches().flat_map(|launch| launch.names.modules(dtypes, ops, worlds));
        of_launches.map(|(name, file)| ForeignModule { name, file }).collect()
    }

    /// Has launches from a module (as [`ForeignModule::name`] has it) get `bytes` of dynamic shared memory if the specification does not say how many.
    pub fn set_shared(&mut self, module: &str, bytes: u32) {
        self.shared.insert(module.to_owned(), bytes);
    }

    /// What is wrong with a module of these, where the specification names it.
    pub fn error_of_module(&self, module: &ForeignModule, problem: impl Into<String>) -> SpecError {
        let Specification { dtypes, ops, worlds, .. } = &self.specification;
        let is = |launch: &&LaunchSpec| launch.names.modules(dtypes, ops, worlds).iter().any(|(name, _)| *name == module.name);
        let (line, column) = self.specification.launches().find(is).map_or((1, 1), |launch| launch.places.module);
        SpecError { line, column, problem: problem.into() }
    }

    /// What is wrong with the kernel of a [sample](Foreign::samples), or with an argument of it, where the specification names it.
    pub fn error_of_launch(&self, sample: &Launch, argument: Option<usize>, problem: impl Into<String>) -> SpecError {
        let place = self.launch_of(sample).map(|launch| {
            // From one that is repeated on, numbers are not those of what is written.
            let mut written = launch.arguments.iter().enumerate();
            let found = argument.and_then(|argument| written.find(|(number, written)| *number == argument || written.repeat.is_some()));
            found.map_or(launch.places.entry, |(_, written)| written.place)
        });
        let (line, column) = place.unwrap_or((1, 1));
        SpecError { line, column, problem: problem.into() }
    }

    /// The launch of a [sample](Foreign::samples).
    fn launch_of(&self, sample: &Launch) -> Option<&LaunchSpec> {
        let calls: Vec<Call> = self.sample_calls().collect();
        let ranks = || calls.iter().flat_map(|call| (0..call.world()).map(move |rank| (call, rank)));
        let names = (sample.module.clone(), sample.entry.clone());
        self.specification.launches().find(|launch| ranks().any(|(call, rank)| launch.names.of(call, rank).as_ref() == Ok(&names)))
    }

    /// Whether the specification gives the launch of a [sample](Foreign::samples) no dynamic shared memory in any call: it does not say how many bytes, or 0.
    pub fn leaves_shared_open(&self, sample: &Launch) -> bool {
        let given = self.launch_of(sample).and_then(|launch| launch.dynamic_shared.as_ref());
        given.is_none_or(|given| given.expression == expression::Expression::constant(0))
    }

    /// The variables of its modules that hosts set.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.specification.variables.iter().map(|variable| variable.name.as_str())
    }

    /// What is wrong with one of [them](Foreign::variables), by its number, where the specification has it.
    pub fn error_of_variable(&self, number: usize, problem: impl Into<String>) -> SpecError {
        let (line, column) = self.specification.variables.get(number).map_or((1, 1), |variable| variable.place);
        SpecError { line, column, problem: problem.into() }
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
        self.specification.launches().all(|launch| launch.names.has(dtype, op))
    }

    /// Whether the parts of its all-to-all may differ.
    pub fn takes_counts(&self) -> bool {
        self.specification.counts
    }

    /// What every 32-bit word of its signals and state may start with beside zero, where it promises to go on from there: epochs that are about to
    /// wrap.
    pub fn start(&self) -> Option<u32> {
        self.specification.start
    }

    /// Of which number counts must be a multiple, at least 1; `None` where the specification's expression has no value.
    pub fn count_multiple(&self, dtype: DType, world: u32) -> Option<u64> {
        let values = Values::new(&[(Word::World, world.into()), (Word::ElementSize, dtype.size())]);
        self.specification.count_multiple_of.value(&values).ok().filter(|&multiple| multiple > 0)
    }

    /// The smallest count above 0 that it allows; `None` where an expression has no value, and where there is none.
    pub fn least_count(&self, dtype: DType, world: u32) -> Option<u64> {
        let multiple = self.count_multiple(dtype, world)?;
        let values = Values::new(&[(Word::World, world.into()), (Word::ElementSize, dtype.size())]);
        self.specification.least_count.value(&values).ok()?.max(1).checked_next_multiple_of(multiple)
    }

    /// One launch of each of its kernels, to check against the PTX before anything runs.
    pub fn samples(&self) -> Vec<Launch> {
        let mut samples: Vec<Launch> = Vec::new();
        for call in self.sample_calls().filter(|call| self.supports(call).is_ok()) {
            let Some(target) = self.targets().find(|target| self.check_target(&call, target).is_ok()) else { continue };
            for op in (0..call.world()).filter_map(|rank| self.operations(&call, &target, rank).ok()).flatten() {
                for op in std::iter::once(&op).chain(op.forked()) {
                    let Op::Launch(launch) = op else { continue };
                    let same = |known: &Launch| (&known.module, &known.entry) == (&launch.module, &launch.entry);
                    if !samples.iter().any(same) {
                        samples.push(launch.clone());
                    }
                }
            }
        }
        samples
    }

    /// A few calls of each kind that the specification names, the small worlds first.
    fn sample_calls(&self) -> impl Iterator<Item = Call> {
        let Specification { collective, dtypes, ops, worlds, in_place, out_of_place, least_count, counts, .. } = &self.specification;
        let kinds = dtypes.iter().flat_map(move |&dtype| ops.iter().map(move |&op| (dtype, op)));
        let kinds = kinds.flat_map(move |(dtype, op)| worlds.iter().map(move |&world| (dtype, op, world)));
        kinds.flat_map(move |(dtype, op, world)| {
            let multiple = self.count_multiple(dtype, world).unwrap_or(1);
            let values = Values::new(&[(Word::World, world.into()), (Word::ElementSize, dtype.size())]);
            let least = least_count.value(&values).unwrap_or(0).div_ceil(multiple).saturating_mul(multiple);
            [least, multiple, 1040_u64.div_ceil(multiple).saturating_mul(multiple), 1 << 20].into_iter().filter_map(move |count| {
                let shape = Shape::new(*collective, world, count);
                let (call, buffers) = Call::standalone(shape.clone(), dtype, op).ok()?;
                if *counts {
                    let counts = Counts::new(world, |_, _| count);
                    return Call::with_counts(&call.of_rank(0), world, &counts, &buffers).ok();
                }
                if *out_of_place || !in_place {
                    return Some(call);
                }
                let region = |elements: u64| Region::new("in_place", 0, elements * dtype.size());
                Call::on_regions(shape.clone(), dtype, op, region(shape.input()), region(shape.output())).ok()
            })
        })
    }

    /// All that a rank does for a call.
    fn operations(&self, call: &Call, target: &Target, rank: u32) -> Result<Vec<Op>, String> {
        let most_count = target.most_count.unwrap_or(call.count).max(call.count);
        let largest = values_for(call, most_count);
        let largest = largest.with(Word::MostCount, most_count).with(Word::MostBytes, largest.of(Word::Bytes));
        let values = values_of(call)
            .with(Word::Rank, rank.into())
            .with(Word::Call, target.call)
            .with(Word::MostCount, most_count)
            .with(Word::MostBytes, largest.of(Word::Bytes))
            .with(Word::WaitingBlocks, target.waiting_blocks.clamp(1, MAX_BLOCKS).into());
        let Specification { steps, buffers, variables, .. } = &self.specification;
        step::operations(steps, &Context { call, buffers, variables, shared: &self.shared, values, largest })
    }

    /// Machines for which plans may differ: those that let few blocks wait, as the emulator does, first.
    fn targets(&self) -> impl Iterator<Item = Target> {
        let most = if self.specification.mentions(Word::WaitingBlocks) { MAX_BLOCKS } else { 1 };
        let target = |waiting_blocks| Target { waiting_blocks, ..Target::default() };
        [FEW_BLOCKS].into_iter().filter(move |&few| few <= most).chain(1..=most).map(target)
    }

    fn restrictions(&self, call: &Call) -> Result<(), String> {
        let Specification { dtypes, ops, worlds, least_count, most_count, alignment, in_place, out_of_place, when, counts, .. } =
            &self.specification;
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
        if let Some(when) = when
            && when.value(&values)? == 0
        {
            return Err(format!("the specification excludes calls for which `{}` does not hold", when.expression));
        }
        if call.counts().is_some() && !counts {
            return Err("the specification allows parts of one length only".into());
        }
        if !self.has_kernel(call.dtype, call.op) {
            return Err(format!("the specification names no kernel for {} of {}", call.op, call.dtype));
        }
        for rank in 0..call.world() {
            for (argument, region) in [("input", call.input_of(rank)), ("output", call.output_of(rank))] {
                if !region.offset.is_multiple_of(*alignment) {
                    return Err(format!("{argument} {region} starts at byte {}: a multiple of {alignment} is needed", region.offset));
                }
            }
        }
        match call.in_place() {
            true if !in_place => Err("the specification excludes calls in place".into()),
            false if !out_of_place => Err("the specification allows calls in place only".into()),
            _ => Ok(()),
        }
    }
}

/// What the words stand for that all ranks share, for this call.
fn values_of(call: &Call) -> Values<'_> {
    values_for(call, call.count)
}

/// The same for a call of another size.
fn values_for(call: &Call, count: u64) -> Values<'_> {
    let values = sizes(call.collective, call.dtype, call.world(), count);
    values.with(Word::Root, call.root.into()).with_counts(call.counts())
}

/// What depends on nothing but the size.
fn sizes(collective: Collective, dtype: DType, world: u32, count: u64) -> Values<'static> {
    let slot_bytes = count.saturating_mul(dtype.size());
    let (input, output) = collective.slots(world);
    Values::new(&[
        (Word::Count, count),
        (Word::World, world.into()),
        (Word::ElementSize, dtype.size()),
        (Word::SlotBytes, slot_bytes),
        (Word::Bytes, slot_bytes.saturating_mul(input)),
        (Word::OutputBytes, slot_bytes.saturating_mul(output)),
    ])
}

impl Algorithm for Foreign {
    fn collective(&self) -> Collective {
        self.specification.collective
    }

    fn name(&self) -> &str {
        &self.specification.name
    }

    fn contract(&self, _: &Call) -> Contract {
        self.specification.contract
    }

    fn assumes(&self) -> Vec<(String, String)> {
        self.specification.assumes.clone()
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        self.restrictions(call)?;
        self.specification.buffers.iter().try_for_each(|buffer| buffer.made(&values_of(call)).map(drop))?;
        // A machine may let so few blocks wait that there is no such launch. A caller that knows the machine asks `check_target`.
        let mut refusal = None;
        for target in self.targets() {
            match self.check_target(call, &target) {
                Ok(()) => return Ok(()),
                Err(why) => refusal.get_or_insert(why),
            };
        }
        Err(refusal.unwrap_or_default())
    }

    fn workspace(&self, dtype: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        let Specification { collective, buffers, .. } = &self.specification;
        let values = sizes(*collective, dtype, world, bytes / dtype.size() / collective.slots(world).0);
        // What has no value is the reason that `supports` gives, before anything is opened.
        buffers.iter().filter_map(|buffer| buffer.made(&values).ok()).collect()
    }

    fn readable_behind(&self) -> u64 {
        self.specification.readable_behind
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn numbers_calls(&self) -> bool {
        self.specification.mentions(Word::Call)
    }

    fn destroys_input(&self) -> bool {
        self.specification.destroys_input
    }

    /// A number of the group's largest call may be more than the argument has bits for that takes it.
    fn check_target(&self, call: &Call, target: &Target) -> Result<(), String> {
        (0..call.world()).try_for_each(|rank| self.operations(call, target, rank).map(drop))
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let of_rank = |rank| self.operations(call, target, rank).expect("a call that is supported can be made for a target that is");
        Plan::per_rank(plan_name(self.name(), call), call.world(), of_rank)
    }
}
