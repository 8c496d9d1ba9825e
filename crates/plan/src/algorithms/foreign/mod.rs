//! Kernels from elsewhere: an algorithm made from somebody's PTX and a specification that says, as data, how it is launched and what it
//! promises. docs/reference/specification.md is the reference of the specification.
//!
//! `document` is the TOML as written, `specification` what it means, `names` the kernels' and modules' names,
//! `contents` what buffers start with; `argument` and `step` are what becomes of it for a call; `kernels` is what calls of collectives and of tasks share, `task`
//! an algorithm of a task.

mod argument;
mod contents;
mod document;
mod kernels;
mod names;
mod specification;
mod step;
mod task;
#[cfg(test)]
mod tests;

use self::{
    argument::{CallOf, Quantity},
    specification::{Calls, Of, Specification},
};
use super::{Algorithm, Target, TaskAlgorithm, kit::plan_name};
use crate::{
    collective::{Collective, Counts, DType, ReduceOp, Shape},
    contract::Contract,
    expression::{Values, Word},
    machine::MOST_GROUP_BYTES,
    plan::{BufferSpec, Call, Launch, Op, Plan, Region},
};

pub use kernels::{ForeignModule, Kernels};
pub use specification::{Files, SpecError};
pub use task::{ForeignTask, References};

/// What a specification is of.
pub enum Specified {
    /// An algorithm of a collective.
    Collective(Box<Foreign>),
    /// An algorithm of a task that it declares.
    Task(Box<ForeignTask>),
}

impl Specified {
    /// Reads a specification. `kernel` names the kernel in place of what the specification says, with what is in braces replaced as there; `references` finds
    /// the reference of a task.
    ///
    /// # Errors
    /// The first contradiction, with its line and column; a specification of which no call can be made, with the reason.
    pub fn read(text: &str, kernel: Option<&str>, files: Files<'_>, references: References<'_>) -> Result<Specified, SpecError> {
        match Specification::read(text, kernel, files)? {
            (specification, Of::Collective(calls)) => {
                Foreign::new(Kernels::new(specification), *calls).map(Box::new).map(Specified::Collective)
            }
            (specification, Of::Task(task, source)) => {
                ForeignTask::new(Kernels::new(specification), task, &source, references).map(Box::new).map(Specified::Task)
            }
        }
    }

    /// Its kernels.
    pub fn kernels(&self) -> &Kernels {
        match self {
            Specified::Collective(of) => of.kernels(),
            Specified::Task(of) => of.kernels(),
        }
    }

    /// Its kernels, to be changed.
    pub fn kernels_mut(&mut self) -> &mut Kernels {
        match self {
            Specified::Collective(of) => &mut of.kernels,
            Specified::Task(of) => of.kernels_mut(),
        }
    }

    /// The name of the algorithm.
    pub fn name(&self) -> &str {
        self.kernels().name()
    }

    /// What it is, as case ids have it: `all_reduce/two_shot`.
    pub fn does(&self) -> String {
        let of = match self {
            Specified::Collective(of) => of.collective().to_string(),
            Specified::Task(of) => of.task().name().to_owned(),
        };
        format!("{of}/{}", self.name())
    }

    /// One launch of each of its kernels, to check against the PTX before anything runs.
    pub fn samples(&self) -> Vec<Launch> {
        match self {
            Specified::Collective(of) => of.samples(),
            Specified::Task(of) => of.samples(),
        }
    }
}

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
    kernels: Kernels,
    calls: Calls,
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
        match Specification::read(text, kernel, files)? {
            (specification, Of::Collective(calls)) => Foreign::new(Kernels::new(specification), *calls),
            (_, Of::Task(..)) => Err(SpecError {
                line: 1,
                column: 1,
                problem: "the specification is of a task; here one of a collective is expected".into(),
            }),
        }
    }

    fn new(kernels: Kernels, calls: Calls) -> Result<Foreign, SpecError> {
        let foreign = Foreign { kernels, calls };
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
        for Quantity { expression, what, line, column } in self.kernels.specification.buffers.iter().map(|buffer| &buffer.bytes) {
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

    /// Its kernels.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The element types it is for.
    pub fn dtypes(&self) -> &[DType] {
        self.kernels.dtypes()
    }

    /// The operators it is for.
    pub fn ops(&self) -> &[ReduceOp] {
        &self.kernels.specification.ops
    }

    /// The world sizes it is for.
    pub fn worlds(&self) -> &[u32] {
        self.kernels.worlds()
    }

    /// Whether it has a kernel for them.
    pub fn has_kernel(&self, dtype: DType, op: ReduceOp) -> bool {
        self.kernels.specification.launches().all(|launch| launch.names.has(dtype, op))
    }

    /// Whether the parts of its all-to-all may differ.
    pub fn takes_counts(&self) -> bool {
        self.calls.counts
    }

    /// What every 32-bit word of its signals and state may start with beside zero, where it promises to go on from there: epochs that are about to
    /// wrap.
    pub fn start(&self) -> Option<u32> {
        self.kernels.specification.start
    }

    /// Of which number counts must be a multiple, at least 1; `None` where the specification's expression has no value.
    pub fn count_multiple(&self, dtype: DType, world: u32) -> Option<u64> {
        let values = Values::new(&[(Word::World, world.into()), (Word::ElementSize, dtype.size())]);
        self.calls.count_multiple_of.value(&values).ok().filter(|&multiple| multiple > 0)
    }

    /// The smallest count above 0 that it allows; `None` where an expression has no value, and where there is none.
    pub fn least_count(&self, dtype: DType, world: u32) -> Option<u64> {
        let multiple = self.count_multiple(dtype, world)?;
        let values = Values::new(&[(Word::World, world.into()), (Word::ElementSize, dtype.size())]);
        self.calls.least_count.value(&values).ok()?.max(1).checked_next_multiple_of(multiple)
    }

    /// One launch of each of its kernels, to check against the PTX before anything runs.
    pub fn samples(&self) -> Vec<Launch> {
        let calls = self.sample_calls().filter(|call| self.supports(call).is_ok());
        let of_call = |call: Call| {
            let target = self.kernels.targets().find(|target| self.check_target(&call, target).is_ok());
            let of_rank = |rank| target.as_ref().and_then(|target| self.operations(&call, target, rank).ok());
            (0..call.world()).filter_map(of_rank).flatten().collect::<Vec<Op>>()
        };
        kernels::each_once(calls.flat_map(of_call))
    }

    /// A few calls of each kind that the specification names, the small worlds first.
    fn sample_calls(&self) -> impl Iterator<Item = Call> {
        let Specification { dtypes, ops, worlds, .. } = &self.kernels.specification;
        let Calls { collective, in_place, out_of_place, least_count, counts, .. } = &self.calls;
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
        let values =
            values_of(call).with(Word::Rank, rank.into()).with(Word::MostCount, most_count).with(Word::MostBytes, largest.of(Word::Bytes));
        self.kernels.operations(CallOf::Collective(call), target, values, largest)
    }

    fn restrictions(&self, call: &Call) -> Result<(), String> {
        let Specification { dtypes, ops, worlds, when, .. } = &self.kernels.specification;
        let Calls { least_count, most_count, alignment, in_place, out_of_place, counts, .. } = &self.calls;
        let (values, count) = (values_of(call), call.count);
        if !dtypes.contains(&call.dtype) || !ops.contains(&call.op) || !worlds.contains(&call.world()) {
            return Err(format!("the specification does not name {} of {} on {} ranks", call.op, call.dtype, call.world()));
        }
        let multiple = self.calls.count_multiple_of.within("count_multiple_of", &values, 1, u64::MAX)?;
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
        self.calls.collective
    }

    fn name(&self) -> &str {
        self.kernels.name()
    }

    fn contract(&self, _: &Call) -> Contract {
        self.kernels.specification.contract
    }

    fn assumes(&self) -> Vec<(String, String)> {
        self.kernels.specification.assumes.clone()
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        self.restrictions(call)?;
        self.kernels.specification.buffers.iter().try_for_each(|buffer| buffer.made(&values_of(call)).map(drop))?;
        // A machine may let so few blocks wait that there is no such launch. A caller that knows the machine asks `check_target`.
        let mut refusal = None;
        for target in self.kernels.targets() {
            match self.check_target(call, &target) {
                Ok(()) => return Ok(()),
                Err(why) => refusal.get_or_insert(why),
            };
        }
        Err(refusal.unwrap_or_default())
    }

    fn workspace(&self, dtype: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        let collective = self.calls.collective;
        self.kernels.workspace(&sizes(collective, dtype, world, bytes / dtype.size() / collective.slots(world).0))
    }

    fn readable_behind(&self) -> u64 {
        self.calls.readable_behind
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn numbers_calls(&self) -> bool {
        self.kernels.specification.mentions(Word::Call)
    }

    fn destroys_input(&self) -> bool {
        self.calls.destroys_input
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
