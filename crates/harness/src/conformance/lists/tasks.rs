//! What the lists have of tasks that authors declare.

use super::super::{
    Fault, Skew, TaskCase,
    tasks::{Drawn, Sizes},
};
use passmuster_emulator::choice::Choice;
use passmuster_plan::{
    algorithms::TaskAlgorithm,
    modules::fnv1a64,
    task::{Parameter, Task},
};

/// Cases of smoke for each type and world, and of merge.
const SMOKE: usize = 6;
const MERGE: usize = 24;

/// Calls of a sequence.
const CALLS: usize = 3;

/// How late a rank is, in microseconds.
const LATE: u32 = 2000;

/// A few cases of each type and world.
pub(super) fn smoke(algorithm: &dyn TaskAlgorithm, seed: u64) -> Vec<TaskCase> {
    cases(algorithm, SMOKE, seed)
}

/// More of them.
pub(super) fn merge(algorithm: &dyn TaskAlgorithm, seed: u64) -> Vec<TaskCase> {
    cases(algorithm, MERGE, seed)
}

/// A rank that stays away from a kernel that waits for it at the smallest and the largest world of several ranks, and the same case without.
pub(super) fn faults(algorithm: &dyn TaskAlgorithm, seed: u64) -> Vec<TaskCase> {
    let worlds = || algorithm.worlds().iter().copied().filter(|&world| world > 1);
    let (Some(least), Some(most)) = (worlds().min(), worlds().max()) else { return Vec::new() };
    let mut worlds = vec![least, most];
    worlds.dedup();
    let case = |world| {
        let parameters = algorithm.task().parameters().iter().map(|parameter| (parameter.name.clone(), Sizes::of(parameter.values[0])));
        TaskCase { seed, ..TaskCase::new(algorithm.task().name(), algorithm.name(), algorithm.dtypes()[0], world, parameters.collect()) }
    };
    let both = |case: TaskCase| [TaskCase { fault: Some(Fault::Absent(case.world - 1)), ..case.clone() }, case];
    worlds.into_iter().map(case).flat_map(both).collect()
}

/// For each type and world: every value of every parameter in some case, alone and in a sequence of calls of different values; where ranks may differ in one, they
/// do, one of them having the smallest. Inputs and a late rank take turns.
fn cases(algorithm: &dyn TaskAlgorithm, most: usize, seed: u64) -> Vec<TaskCase> {
    let task = algorithm.task();
    let mut cases = Vec::new();
    for &dtype in algorithm.dtypes() {
        for &world in algorithm.worlds() {
            let plain = |parameters| TaskCase { seed, ..TaskCase::new(task.name(), algorithm.name(), dtype, world, parameters) };
            let mut choice = Choice::of_seed(fnv1a64(format!("{seed} {}", plain(Vec::new())).as_bytes()));
            let mut own: Vec<TaskCase> = combinations(task, most, &mut choice).into_iter().map(plain).collect();
            for (turn, case) in own.iter_mut().enumerate() {
                case.inputs = Drawn::ALL[turn % Drawn::ALL.len()];
                if turn % 2 == 1 && world > 1 {
                    let rank = (choice.draw() % u64::from(world)) as u32;
                    case.skew = Some(Skew { rank, microseconds: LATE, site: None });
                }
            }
            own.push(plain(sequence(task, &mut choice)));
            if world > 1 && task.parameters().iter().any(|parameter| parameter.per_rank) {
                let uneven = |choice: &mut Choice| {
                    let of = |parameter: &Parameter, choice: &mut Choice| (parameter.name.clone(), uneven(parameter, world, choice));
                    task.parameters().iter().map(|parameter| of(parameter, choice)).collect()
                };
                own.extend([plain(uneven(&mut choice)), plain(uneven(&mut choice))]);
            }
            if let Some(start) = algorithm.start() {
                own.push(TaskCase { start, ..plain(sequence(task, &mut choice)) });
            }
            own.dedup();
            cases.extend(own);
        }
    }
    cases
}

/// Values of all parameters, at most `most`: all combinations where they are few, and otherwise every value of each at least once.
fn combinations(task: &Task, most: usize, choice: &mut Choice) -> Vec<Vec<(String, Sizes)>> {
    let parameters = task.parameters();
    let all = parameters.iter().fold(1_usize, |all, parameter| all.saturating_mul(parameter.values.len()));
    let named = |values: Vec<u64>| parameters.iter().zip(values).map(|(of, value)| (of.name.clone(), Sizes::of(value))).collect::<Vec<_>>();
    if all <= most {
        let combination = |mut number: usize| {
            let value = |of: &Parameter| {
                let value = of.values[number % of.values.len()];
                number /= of.values.len();
                value
            };
            named(parameters.iter().map(value).collect())
        };
        return (0..all).map(combination).collect();
    }
    let longest = parameters.iter().map(|parameter| parameter.values.len()).max().unwrap_or(1);
    let mut found: Vec<Vec<(String, Sizes)>> = Vec::new();
    for turn in 0..most.max(longest) {
        let value = |(number, of): (usize, &Parameter)| {
            // By turns first, so that each comes; then by chance, so that they come together otherwise.
            if turn < longest { of.values[(turn + number * (turn / of.values.len())) % of.values.len()] } else { choice.of(&of.values) }
        };
        let new = named(parameters.iter().enumerate().map(value).collect());
        if !found.contains(&new) {
            found.push(new);
        }
    }
    found
}

/// Calls of different values on the same buffers.
fn sequence(task: &Task, choice: &mut Choice) -> Vec<(String, Sizes)> {
    let calls = if task.parameters().iter().any(|parameter| parameter.values.len() > 1) { CALLS } else { 1 };
    let of = |parameter: &Parameter, choice: &mut Choice| {
        let values = if parameter.values.len() == 1 {
            vec![vec![parameter.values[0]]]
        } else {
            (0..calls).map(|_| vec![choice.of(&parameter.values)]).collect()
        };
        (parameter.name.clone(), Sizes(values))
    };
    task.parameters().iter().map(|parameter| of(parameter, choice)).collect()
}

/// A value for each rank where they may differ, one of them the smallest.
fn uneven(parameter: &Parameter, world: u32, choice: &mut Choice) -> Sizes {
    if !parameter.per_rank {
        return Sizes::of(choice.of(&parameter.values));
    }
    let mut values: Vec<u64> = (0..world).map(|_| choice.of(&parameter.values)).collect();
    let at = (choice.draw() % u64::from(world)) as usize;
    values[at] = parameter.values.iter().copied().min().unwrap_or_default();
    Sizes(vec![values])
}
