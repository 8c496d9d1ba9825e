//! Mutants of plans: one operation of every rank's stream dropped, or moved before all others or behind them.
//!
//! They are for plans in which streams synchronise. Operations of a kind that follow each other are taken to be in any order: a mutant that
//! differs in nothing else is not made.

use std::mem::discriminant;

use passmuster_plan::plan::{Op, Plan};

/// What is done to an operation, by its index.
type Change = fn(&mut Vec<Op>, usize);

const RULES: [(&str, Change); 3] = [
    ("drop", |ops, at| drop(ops.remove(at))),
    ("early", |ops, at| ops[..=at].rotate_right(1)),
    ("late", |ops, at| ops[at..].rotate_left(1)),
];

/// All mutants of a plan whose ranks have as many operations, with their names: `drop 3: ` and the operation as rank 0 has it.
pub fn of_plan(plan: &Plan) -> Vec<(String, Plan)> {
    let mut mutants = Vec::new();
    for (at, op) in plan.ranks.first().into_iter().flatten().enumerate() {
        for (rule, change) in RULES {
            let mut mutant = plan.clone();
            mutant.ranks.iter_mut().for_each(|ops| change(ops, at));
            if normal(&mutant) != normal(plan) {
                mutants.push((format!("{rule} {at}: {op}"), mutant));
            }
        }
    }
    mutants
}

/// The operations of each rank, sorted where those of a kind follow each other.
fn normal(plan: &Plan) -> Vec<Vec<String>> {
    let of_rank = |ops: &Vec<Op>| {
        let runs = ops.chunk_by(|one, next| discriminant(one) == discriminant(next));
        let sorted = runs.flat_map(|run| {
            let mut texts: Vec<String> = run.iter().map(Op::to_string).collect();
            texts.sort_unstable();
            texts
        });
        sorted.collect()
    };
    plan.ranks.iter().map(of_rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use passmuster_plan::plan::Region;

    #[test]
    fn each_operation_is_dropped_and_moved_where_that_is_a_difference() {
        let word = |at: u64| Region::new("w", at, 4);
        let write = |at| Op::WriteValue { to: word(at), value: 1, to_rank: None };
        let plan = Plan::per_rank("p", 2, |_| vec![write(0), write(4), Op::WaitValue { at: word(8), value: 1 }]);
        let names: Vec<String> = of_plan(&plan).into_iter().map(|(name, _)| name).collect();
        let expected = [
            "drop 0: write 1 -> w[0..4]",
            "late 0: write 1 -> w[0..4]",
            "drop 1: write 1 -> w[4..8]",
            "late 1: write 1 -> w[4..8]",
            "drop 2: wait until w[8..12] is 1",
            "early 2: wait until w[8..12] is 1",
        ];
        assert_eq!(names, expected);
        let (_, early) = &of_plan(&plan)[5];
        assert_eq!(early.ranks[1], [plan.ranks[1][2].clone(), plan.ranks[1][0].clone(), plan.ranks[1][1].clone()]);
    }
}
