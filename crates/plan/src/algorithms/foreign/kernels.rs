//! What calls of collectives and of tasks have in common: kernels, their modules, buffers and variables.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    argument::{CallOf, Context},
    specification::{SpecError, Specification},
    step::{self, LaunchSpec},
};
use crate::{
    algorithms::{Target, kit::MAX_BLOCKS},
    collective::DType,
    expression::{Expression, Values, Word},
    plan::{BufferSpec, Launch, Op},
};

/// Blocks of a rank that the emulator lets wait for others.
const FEW_BLOCKS: u32 = 4;

/// A module that launches name, for [`Library::replace`](crate::library::Library::replace).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignModule {
    /// What launches call it.
    pub name: String,
    /// The file of its PTX, relative to the specification, where that names one.
    pub file: Option<String>,
}

/// The kernels of a specification.
pub struct Kernels {
    pub(super) specification: Specification,
    /// Bytes of dynamic shared memory, by the module that launches name.
    shared: BTreeMap<String, u32>,
}

impl Kernels {
    pub(super) fn new(specification: Specification) -> Kernels {
        Kernels { specification, shared: BTreeMap::new() }
    }

    /// The name of the algorithm.
    pub fn name(&self) -> &str {
        &self.specification.name
    }

    /// The modules that its launches name.
    pub fn modules(&self) -> BTreeSet<ForeignModule> {
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

    /// What is wrong with the kernel of a [sample](super::Specified::samples), or with an argument of it, where the specification names it.
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

    /// The launch of a [sample](super::Specified::samples).
    fn launch_of(&self, sample: &Launch) -> Option<&LaunchSpec> {
        let Specification { dtypes, ops, worlds, .. } = &self.specification;
        let names = Ok((sample.module.clone(), sample.entry.clone()));
        let kinds = || dtypes.iter().flat_map(|&dtype| ops.iter().map(move |&op| (dtype, op)));
        let places = || worlds.iter().flat_map(|&world| (0..world).map(move |rank| (world, rank)));
        let is = |launch: &&LaunchSpec| {
            kinds().any(|(dtype, op)| places().any(|(world, rank)| launch.names.of(dtype, op, world, rank) == names))
        };
        self.specification.launches().find(is)
    }

    /// Whether the specification gives the launch of a [sample](super::Specified::samples) no dynamic shared memory in any call: it does not say how many bytes, or 0.
    pub fn leaves_shared_open(&self, sample: &Launch) -> bool {
        let given = self.launch_of(sample).and_then(|launch| launch.dynamic_shared.as_ref());
        given.is_none_or(|given| given.expression == Expression::constant(0))
    }

    /// The variables of its modules that hosts set.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.specification.variables.iter().map(|variable| variable.name.as_str())
    }

    /// What is wrong with one of [them](Kernels::variables), by its number, where the specification has it.
    pub fn error_of_variable(&self, number: usize, problem: impl Into<String>) -> SpecError {
        let (line, column) = self.specification.variables.get(number).map_or((1, 1), |variable| variable.place);
        SpecError { line, column, problem: problem.into() }
    }

    /// The element types it is for.
    pub fn dtypes(&self) -> &[DType] {
        &self.specification.dtypes
    }

    /// The world sizes it is for.
    pub fn worlds(&self) -> &[u32] {
        &self.specification.worlds
    }

    /// All that a rank, which `values` are of, does for a call.
    pub(super) fn operations(&self, call: CallOf<'_>, target: &Target, values: Values<'_>, largest: Values<'_>) -> Result<Vec<Op>, String> {
        let values = values.with(Word::Call, target.call).with(Word::WaitingBlocks, target.waiting_blocks.clamp(1, MAX_BLOCKS).into());
        let Specification { steps, buffers, variables, .. } = &self.specification;
        step::operations(steps, &Context { call, buffers, variables, shared: &self.shared, values, largest })
    }

    /// The kernels' own buffers for calls of which `values` are the largest.
    pub(super) fn workspace(&self, values: &Values<'_>) -> Vec<BufferSpec> {
        // What has no value is the reason that `supports` gives, before anything is opened.
        self.specification.buffers.iter().filter_map(|buffer| buffer.made(values).ok()).collect()
    }

    /// Machines for which plans may differ: those that let few blocks wait, as the emulator does, first.
    pub(super) fn targets(&self) -> impl Iterator<Item = Target> {
        let most = if self.specification.mentions(Word::WaitingBlocks) { MAX_BLOCKS } else { 1 };
        let target = |waiting_blocks| Target { waiting_blocks, ..Target::default() };
        [FEW_BLOCKS].into_iter().filter(move |&few| few <= most).chain(1..=most).map(target)
    }
}

/// The launches among operations, of each kernel one.
pub(super) fn each_once(operations: impl Iterator<Item = Op>) -> Vec<Launch> {
    let mut launches: Vec<Launch> = Vec::new();
    for op in operations {
        for op in std::iter::once(&op).chain(op.forked()) {
            let Op::Launch(launch) = op else { continue };
            if !launches.iter().any(|known| (&known.module, &known.entry) == (&launch.module, &launch.entry)) {
                launches.push(launch.clone());
            }
        }
    }
    launches
}
