//! Cases of tasks: their ids.
//!
//! `all_reduce_rms_norm/mine:bf16,task:w=4:tokens=17+1+64:hidden=1024:inputs=integers:skew=r1+2000us:seed=9f3c`
//!
//! A parameter has one value for each call, separated by `+`, and within a call one for each rank, separated by `/`; one value stands for all.

use std::{fmt, str::FromStr, sync::Arc};

use crate::conformance::{
    collective_case::{CaseError, CaseId, Fault, Skew, hexadecimal, number, pairs},
    shrink::Simplify,
};
use passmuster_plan::{
    algorithms::{Registry, RegistryError, TaskAlgorithm},
    collective::{DType, from_name},
    plan::MAX_RANKS,
    task::{Task, TaskCall, TaskError, of_ranks},
    words::UnknownName,
};

/// What stands in an id where those of collectives have the operator.
pub(in crate::conformance) const KIND: &str = "task";

/// The keys of an id beside parameters, in the order in which they are written.
pub(in crate::conformance) const KEYS: [&str; 6] = ["w", "inputs", "skew", "fault", "start", "seed"];

/// The most calls of a case.
const MOST_CALLS: usize = 16;

/// Which numbers inputs hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Drawn {
    /// What the task declares.
    Declared,
    /// Integers from -4 to 4 in all inputs.
    Integers,
}

impl Drawn {
    /// Both.
    pub const ALL: [Drawn; 2] = [Drawn::Declared, Drawn::Integers];

    /// The name in ids.
    pub const fn name(self) -> &'static str {
        match self {
            Drawn::Declared => "declared",
            Drawn::Integers => "integers",
        }
    }
}

/// A parameter's values: for each call, for each rank. One stands for all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sizes(pub Vec<Vec<u64>>);

impl Sizes {
    /// The same value for all calls and ranks.
    pub fn of(value: u64) -> Sizes {
        Sizes(vec![vec![value]])
    }

    /// The value of a rank in a call.
    fn at(&self, call: usize, rank: usize) -> u64 {
        let of_call = self.0.get(call).unwrap_or(&self.0[0]);
        of_call.get(rank).copied().unwrap_or(of_call[0])
    }

    fn read(key: &str, text: &str) -> Result<Sizes, String> {
        let of_call = |text: &str| text.split('/').map(|value| number(key, value)).collect::<Result<Vec<u64>, _>>();
        text.split('+').map(of_call).collect::<Result<_, _>>().map(Sizes)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (call, of_call) in self.0.iter().enumerate() {
            write!(f, "{}{}", if call == 0 { "" } else { "+" }, of_ranks(of_call.iter().copied()))?;
        }
        Ok(())
    }
}

/// One point of the test space of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaskCase {
    /// The task.
    pub task: String,
    /// The algorithm under test.
    pub algorithm: String,
    /// The type of tensors whose own is not told.
    pub dtype: DType,
    /// Ranks.
    pub world: u32,
    /// The values of parameters, by their names.
    pub parameters: Vec<(String, Sizes)>,
    /// What inputs hold.
    pub inputs: Drawn,
    /// One rank whose host is late; it has no site.
    pub skew: Option<Skew>,
    /// A rank that stays away from the second call.
    pub fault: Option<Fault>,
    /// What every 32-bit word of signals and state that starts with zeros starts with.
    pub start: u32,
    /// Seed of the inputs.
    pub seed: u64,
}

/// Why a registry does not have what a case runs, or not with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownTask {
    /// There is no such algorithm.
    #[error(transparent)]
    Algorithm(#[from] RegistryError),
    /// The task has no such parameter.
    #[error(transparent)]
    Key(#[from] UnknownName),
    /// The case lacks a parameter of the task.
    #[error("{parameter}= must be given")]
    NotGiven {
        /// The parameter.
        parameter: String,
    },
    /// Ranks differ in a parameter that is the same for all.
    #[error("{parameter}={given}: the task does not say that ranks may differ in it (per_rank = true)")]
    OfAllRanks {
        /// The parameter.
        parameter: String,
        /// What the case has.
        given: String,
    },
}

impl From<UnknownTask> for String {
    fn from(error: UnknownTask) -> String {
        error.to_string()
    }
}

impl TaskCase {
    /// A case with every default.
    pub fn new(task: &str, algorithm: &str, dtype: DType, world: u32, parameters: Vec<(String, Sizes)>) -> TaskCase {
        TaskCase {
            task: task.into(),
            algorithm: algorithm.into(),
            dtype,
            world,
            parameters,
            inputs: Drawn::Declared,
            skew: None,
            fault: None,
            start: 0,
            seed: 0,
        }
    }

    /// The algorithm.
    ///
    /// # Errors
    /// An unknown one, with those that there are.
    pub fn algorithm<'r>(&self, registry: &'r Registry) -> Result<&'r Arc<dyn TaskAlgorithm>, RegistryError> {
        registry.task(&self.task, &self.algorithm)
    }

    /// Whether a registry has the algorithm, and its task the parameters.
    ///
    /// # Errors
    /// An unknown algorithm, or a parameter that is missing or that the task does not have.
    pub fn check_known(&self, registry: &Registry) -> Result<(), UnknownTask> {
        let task = self.algorithm(registry)?.task();
        let names: Vec<&str> = task.parameters().iter().map(|parameter| parameter.name.as_str()).collect();
        if let Some((key, _)) = self.parameters.iter().find(|(key, _)| !names.contains(&key.as_str())) {
            return Err(UnknownName::new("key", key, KEYS.into_iter().chain(names)).into());
        }
        for parameter in task.parameters() {
            let Some((_, sizes)) = self.parameters.iter().find(|(key, _)| *key == parameter.name) else {
                return Err(UnknownTask::NotGiven { parameter: parameter.name.clone() });
            };
            if !parameter.per_rank && sizes.0.iter().any(|of_call| of_call.len() > 1) {
                return Err(UnknownTask::OfAllRanks { parameter: parameter.name.clone(), given: sizes.to_string() });
            }
        }
        Ok(())
    }

    /// The calls that it makes.
    ///
    /// # Errors
    /// As [`TaskCall::new`].
    pub fn calls(&self, algorithm: &dyn TaskAlgorithm) -> Result<Vec<TaskCall>, TaskError> {
        let task = algorithm.task();
        let sizes: Vec<&Sizes> = task
            .parameters()
            .iter()
            .filter_map(|parameter| self.parameters.iter().find(|(key, _)| *key == parameter.name).map(|(_, sizes)| sizes))
            .collect();
        let of_call = |call| {
            let of_rank = |rank| sizes.iter().map(|sizes| sizes.at(call, rank)).collect();
            TaskCall::new(task, self.dtype, (0..self.world as usize).map(of_rank).collect())
        };
        (0..self.number_of_calls()).map(of_call).collect()
    }

    /// How many calls of different parameters it makes.
    pub fn number_of_calls(&self) -> usize {
        self.parameters.iter().map(|(_, sizes)| sizes.0.len()).max().unwrap_or(1)
    }

    /// How large it is, about: the product of its largest parameters.
    pub fn size(&self) -> u64 {
        let largest = |sizes: &Sizes| sizes.0.iter().flatten().copied().max().unwrap_or(0).max(1);
        self.parameters.iter().fold(1, |size: u64, (_, sizes)| size.saturating_mul(largest(sizes)))
    }

    fn check(&self) -> Result<(), String> {
        if self.world == 0 || self.world as usize > MAX_RANKS {
            return Err(format!("w={}: a group has 1 to {MAX_RANKS} ranks", self.world));
        }
        let calls = self.number_of_calls();
        if calls > MOST_CALLS {
            return Err(format!("{calls} calls: a case has at most {MOST_CALLS}"));
        }
        for (key, sizes) in &self.parameters {
            if ![1, calls].contains(&sizes.0.len()) {
                return Err(format!("{key}={sizes} has {} calls, another parameter {calls}: one, or as many", sizes.0.len()));
            }
            if let Some(of_call) = sizes.0.iter().find(|of_call| ![1, self.world as usize].contains(&of_call.len())) {
                return Err(format!("{key}={sizes} has {} ranks in a call: one value, or {}", of_call.len(), self.world));
            }
        }
        let ranks = [self.skew.map(|skew| skew.rank), self.fault.and_then(Fault::rank)];
        if let Some(rank) = ranks.into_iter().flatten().find(|&rank| rank >= self.world) {
            return Err(format!("rank {rank} of {}: ranks are 0 to {}", self.world, self.world - 1));
        }
        if let Some(site) = self.skew.and_then(|skew| skew.site) {
            return Err(format!("skew at {}: a task is late on its host only", site.name()));
        }
        if let Some(fault) = self.fault.filter(|fault| !matches!(fault, Fault::Absent(_))) {
            return Err(format!("fault={fault}: of tasks expected absent@rRANK"));
        }
        Ok(())
    }
}

impl Simplify for TaskCase {
    /// Fewer calls, ranks that are alike, smaller parameters, fewer ranks. Inputs are drawn again.
    fn simpler(&self) -> Vec<TaskCase> {
        self.simpler_below(&|_, largest| [1, largest / 2, largest.saturating_sub(1)].map(|most| most.max(1)).to_vec())
    }
}

impl TaskCase {
    /// The same, with values of parameters that a task declares: with others a kernel may do what it was not made for.
    pub(in crate::conformance) fn simpler_of(&self, task: &Task) -> Vec<TaskCase> {
        self.simpler_below(&|key, _| {
            let parameter = task.parameters().iter().find(|parameter| parameter.name == key);
            let mut values = parameter.map(|parameter| parameter.values.clone()).unwrap_or_default();
            values.sort_unstable();
            values
        })
    }

    /// `most` has what a parameter may be at most, given its name and its largest value, the smallest first.
    fn simpler_below(&self, most: &dyn Fn(&str, u64) -> Vec<u64>) -> Vec<TaskCase> {
        let mut out = Vec::new();
        let mut push = |change: &dyn Fn(&mut TaskCase)| {
            let mut simpler = self.clone();
            change(&mut simpler);
            if simpler != *self && simpler.check().is_ok() {
                out.push(simpler);
            }
        };
        for call in 0..self.number_of_calls() {
            push(&|case| {
                let only = |sizes: &mut Sizes| sizes.0 = vec![sizes.0.get(call).unwrap_or(&sizes.0[0]).clone()];
                case.parameters.iter_mut().for_each(|(_, sizes)| only(sizes));
            });
        }
        for world in [2, 3, self.world.saturating_sub(1)] {
            if (2..self.world).contains(&world) {
                push(&|case| {
                    case.world = world;
                    let fewer = |of_call: &mut Vec<u64>| of_call.truncate(if of_call.len() > 1 { world as usize } else { 1 });
                    case.parameters.iter_mut().flat_map(|(_, sizes)| &mut sizes.0).for_each(fewer);
                    case.skew = case.skew.map(|skew| Skew { rank: skew.rank.min(world - 1), ..skew });
                });
            }
        }
        for at in 0..self.parameters.len() {
            push(&|case| case.parameters[at].1.0.iter_mut().for_each(|of_call| of_call.truncate(1)));
            let (key, sizes) = &self.parameters[at];
            for most in most(key, sizes.0.iter().flatten().copied().max().unwrap_or_default()) {
                push(&|case| case.parameters[at].1.0.iter_mut().flatten().for_each(|value| *value = most.min(*value)));
            }
        }
        push(&|case| case.skew = None);
        push(&|case| case.inputs = Drawn::Integers);
        push(&|case| case.start = 0);
        push(&|case| case.seed = 0);
        out
    }
}

impl CaseId for TaskCase {
    fn head(&self) -> [&str; 4] {
        [&self.task, &self.algorithm, self.dtype.name(), KIND]
    }

    fn fields(&self) -> Vec<(&str, String)> {
        let mut fields = vec![("w", self.world.to_string())];
        fields.extend(self.parameters.iter().map(|(key, sizes)| (&**key, sizes.to_string())));
        let given = [
            ("inputs", (self.inputs != Drawn::Declared).then(|| self.inputs.name().to_owned())),
            ("skew", self.skew.map(|skew| skew.to_string())),
            ("fault", self.fault.map(|fault| fault.to_string())),
            ("start", (self.start != 0).then(|| format!("{:x}", self.start))),
            ("seed", (self.seed != 0).then(|| format!("{:x}", self.seed))),
        ];
        fields.extend(given.into_iter().filter_map(|(key, value)| Some((key, value?))));
        fields
    }

    fn default_of(&self, key: &str) -> &'static str {
        match key {
            "inputs" => Drawn::Declared.name(),
            "start" | "seed" => "0",
            _ => "",
        }
    }
}

impl fmt::Display for TaskCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_id(f)
    }
}

/// Whether an id is of a task.
pub(in crate::conformance) fn is_of_task(id: &str) -> bool {
    id.split(':').nth(1).and_then(|types| types.split_once(',')).is_some_and(|(_, kind)| kind == KIND)
}

impl FromStr for TaskCase {
    type Err = CaseError;

    fn from_str(id: &str) -> Result<TaskCase, CaseError> {
        parse(id).map_err(|problem| CaseError::new(id, problem))
    }
}

fn parse(id: &str) -> Result<TaskCase, String> {
    let ([task, algorithm, dtype, _], pairs) = pairs(id, "DTYPE,task")?;
    let mut case = TaskCase::new(task, algorithm, dtype.parse()?, 0, Vec::new());
    for &(key, value) in &pairs {
        match key {
            "w" => case.world = number(key, value)?,
            "inputs" => case.inputs = from_name(&Drawn::ALL, value, "inputs", |drawn| drawn.name())?,
            "skew" => case.skew = Some(value.parse()?),
            "fault" => case.fault = Some(value.parse()?),
            "start" => {
                let start = hexadecimal(key, value)?;
                case.start = u32::try_from(start).map_err(|_| format!("start={value}: at most 32 bits"))?;
            }
            "seed" => case.seed = hexadecimal(key, value)?,
            parameter => case.parameters.push((parameter.to_owned(), Sizes::read(key, value)?)),
        }
    }
    if !pairs.iter().any(|(key, _)| *key == "w") {
        return Err("w= must be given".into());
    }
    case.check()?;
    Ok(case)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Case, shrink::shrink};
    use passmuster_plan::task::{Parameter, Tensor, TensorRole};
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case("norm/mine:bf16,task:w=4:tokens=17:hidden=1024")]
    #[case("norm/mine:bf16,task:w=2:tokens=17+1/0+64:hidden=1024:inputs=integers:skew=r1+2000us:start=ffffffff:seed=9f3c")]
    #[case("barrier/mine:f32,task:w=3:fault=absent@r1")]
    fn ids_are_read_and_written(#[case] id: &str) {
        assert_eq!(id.parse::<Case>().unwrap().to_string(), id);
    }

    #[rstest]
    #[case("norm/mine:bf16,task:tokens=1", "w= must be given")]
    #[case("norm/mine:bf16,task:w=2:tokens=1+2:hidden=1+2+3", "tokens=1+2 has 2 calls, another parameter 3: one, or as many")]
    #[case("norm/mine:bf16,task:w=2:tokens=1/2/3", "tokens=1/2/3 has 3 ranks in a call: one value, or 2")]
    #[case("norm/mine:bf16,task:w=2:skew=r2+9us", "rank 2 of 2: ranks are 0 to 1")]
    #[case("norm/mine:bf16,task:w=2:fault=killed", "fault=killed: of tasks expected absent@rRANK")]
    #[case("norm/mine:bf16,task:w=2:tokens=many", "tokens=many")]
    #[case("norm/mine:bf16,task:w=2:inputs=large", "unknown inputs `large`: expected one of declared, integers")]
    fn errors_say_what_was_expected(#[case] id: &str, #[case] start: &str) {
        let error = id.parse::<Case>().unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }

    #[test]
    fn shrinks_to_what_the_failure_needs() {
        let case: TaskCase = "norm/mine:bf16,task:w=8:tokens=17+40/1/1/1/1/1/1/1+64:hidden=1024:skew=r5+9us:seed=9f3c".parse().unwrap();
        let fails = |case: &TaskCase| {
            let wide = case.parameters.iter().any(|(key, sizes)| key == "tokens" && sizes.0.iter().flatten().any(|&tokens| tokens > 9));
            (wide && case.world > 2).then(|| "it fails".into())
        };
        let shrunk = shrink(&case, "it fails".into(), Duration::from_secs(5), fails);
        assert_eq!(shrunk.case.to_string(), "norm/mine:bf16,task:w=3:tokens=10:hidden=1:inputs=integers");
    }

    /// If this fails, a kernel for rows of whole packs is shrunk to a row of one element, which fails for another reason.
    #[test]
    fn shrinks_to_values_that_the_task_declares() {
        let parameter = |name: &str, values: &[u64]| Parameter { name: name.into(), values: values.to_vec(), per_rank: false };
        let parameters = vec![parameter("tokens", &[9, 3]), parameter("hidden", &[64, 8, 1032])];
        let output = Tensor::new("output", &["tokens", "hidden"], TensorRole::Output, &parameters).unwrap();
        let task = Task::new("norm", parameters, vec![output]).unwrap();
        let case: TaskCase = "norm/mine:bf16,task:w=2:tokens=9:hidden=1032".parse().unwrap();
        let simpler: Vec<String> = case.simpler_of(&task).iter().map(|case| case.parameters[1].1.to_string()).collect();
        assert_eq!(simpler, ["1032", "8", "64", "1032"]);
    }
}
