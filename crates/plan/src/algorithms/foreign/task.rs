//! An algorithm of a task, made from a specification.

use std::sync::Arc;

use super::{
    argument::CallOf,
    kernels::{self, Kernels},
    specification::SpecError,
};
use crate::{
    algorithms::{Target, TaskAlgorithm},
    collective::DType,
    contract::Contract,
    expression::Word,
    plan::{BufferSpec, Launch, Op, Plan},
    task::{Reference, ReferenceSource, Task, TaskCall},
};

/// Finds the reference that a specification names.
pub type References<'r> = &'r dyn Fn(&Task, &ReferenceSource) -> Result<Arc<dyn Reference>, String>;

/// The most calls that are tried to see whether any can be made.
const MOST_TRIED: usize = 64;

/// An algorithm of a task whose kernels are somebody else's.
pub struct ForeignTask {
    kernels: Kernels,
    task: Arc<Task>,
    reference: Arc<dyn Reference>,
}

impl ForeignTask {
    pub(super) fn new(
        kernels: Kernels,
        task: Arc<Task>,
        source: &ReferenceSource,
        references: References<'_>,
    ) -> Result<ForeignTask, SpecError> {
        let of_all = |problem: String| SpecError { line: 1, column: 1, problem };
        let reference = references(&task, source).map_err(|why| of_all(format!("reference: {why}")))?;
        let made = ForeignTask { kernels, task, reference };
        // What never works is a mistake in the specification, not a case that it does not support.
        let mut reason = None;
        let tried: Vec<Result<TaskCall, String>> = made.sample_calls().collect();
        let works = |call: &Result<TaskCall, String>| {
            let call = call.as_ref().map_err(String::clone);
            let plan = call.and_then(|call| made.first_plan(call).map(drop));
            plan.map_err(|why| reason.get_or_insert(why).clone()).is_ok()
        };
        if tried.iter().any(works) {
            return Ok(made);
        }
        Err(of_all(format!("no call of `{}` can be made: {}", made.name(), reason.unwrap_or_else(|| "it names no kernel".into()))))
    }

    /// Its kernels.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    pub(super) fn kernels_mut(&mut self) -> &mut Kernels {
        &mut self.kernels
    }

    /// One launch of each of its kernels, to check against the PTX before anything runs.
    pub fn samples(&self) -> Vec<Launch> {
        let plans = self.sample_calls().filter_map(|call| call.and_then(|call| self.first_plan(&call)).ok());
        let operations =
            |plan: Plan| (0..plan.world()).flat_map(|rank| plan.operations(rank).cloned().collect::<Vec<Op>>()).collect::<Vec<Op>>();
        kernels::each_once(plans.flat_map(operations))
    }

    /// The plan of a call on the first machine that it can be made for.
    fn first_plan(&self, call: &TaskCall) -> Result<Plan, String> {
        let calls = std::slice::from_ref(call);
        self.workspace(calls)?;
        let mut refusal = None;
        for target in self.kernels.targets() {
            match self.plan(call, calls, &target) {
                Ok(plan) => return Ok(plan),
                Err(why) => refusal.get_or_insert(why),
            };
        }
        Err(refusal.unwrap_or_default())
    }

    /// Calls with the values that parameters are to be tried with, the small worlds first: every value of every parameter in one of them.
    fn sample_calls(&self) -> impl Iterator<Item = Result<TaskCall, String>> {
        let most = self.task.parameters().iter().map(|parameter| parameter.values.len()).max().unwrap_or(1);
        let kinds = self.dtypes().iter().flat_map(|&dtype| self.worlds().iter().map(move |&world| (dtype, world)));
        let calls = kinds.flat_map(move |(dtype, world)| {
            (0..most).map(move |turn| {
                let values = self.task.parameters().iter().map(|parameter| parameter.values[turn % parameter.values.len()]).collect();
                Ok(TaskCall::new(&self.task, dtype, vec![values; world as usize])?)
            })
        });
        calls.take(MOST_TRIED)
    }
}

impl TaskAlgorithm for ForeignTask {
    fn task(&self) -> &Arc<Task> {
        &self.task
    }

    fn name(&self) -> &str {
        self.kernels.name()
    }

    fn reference(&self) -> &Arc<dyn Reference> {
        &self.reference
    }

    fn contract(&self) -> Contract {
        self.kernels.specification.contract
    }

    fn assumes(&self) -> Vec<(String, String)> {
        self.kernels.specification.assumes.clone()
    }

    fn dtypes(&self) -> &[DType] {
        self.kernels.dtypes()
    }

    fn worlds(&self) -> &[u32] {
        self.kernels.worlds()
    }

    fn numbers_calls(&self) -> bool {
        self.kernels.specification.mentions(Word::Call)
    }

    fn start(&self) -> Option<u32> {
        self.kernels.specification.start
    }

    fn workspace(&self, calls: &[TaskCall]) -> Result<Vec<BufferSpec>, String> {
        let values = TaskCall::largest_values(calls);
        self.kernels.specification.buffers.iter().map(|buffer| buffer.made(&values)).collect()
    }

    fn plan(&self, call: &TaskCall, calls: &[TaskCall], target: &Target) -> Result<Plan, String> {
        let (dtypes, worlds) = (self.dtypes(), self.worlds());
        if !dtypes.contains(&call.dtype) || !worlds.contains(&call.world()) {
            return Err(format!("the specification does not name {} on {} ranks", call.dtype, call.world()));
        }
        let largest = TaskCall::largest_values(calls);
        let of_rank = |rank| self.kernels.operations(CallOf::Task(call), target, call.values(rank), largest);
        let ranks = (0..call.world()).map(of_rank).collect::<Result<Vec<_>, _>>()?;
        let name = format!("{}/{} {} {call}", self.task.name(), self.name(), call.dtype);
        Ok(Plan::per_rank(name, call.world(), |rank| ranks[rank as usize].clone()))
    }
}
