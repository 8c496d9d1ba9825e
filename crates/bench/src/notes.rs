//! Notes of times within a plan: marks around its operations, and what the intervals between them say.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use passmuster_plan::plan::{Op, Plan};

/// One operation of a rank, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// What it is.
    pub name: String,
    /// On which of the rank's streams: its first, or a side stream of the plan.
    #[serde(default)]
    pub stream: usize,
    /// When it began.
    pub begin: f64,
    /// When it was done.
    pub end: f64,
}

/// A plan with marks around some of its operations.
pub(super) struct Noted {
    /// The plan.
    pub(super) plan: Arc<Plan>,
    /// For each rank, which marks are around which operation.
    operations: Vec<Vec<Operation>>,
}

struct Operation {
    name: String,
    stream: usize,
    begin: usize,
    end: usize,
}

/// Marks and operations of a rank as they are added.
#[derive(Default)]
struct Notes {
    marks: usize,
    operations: Vec<Operation>,
}

impl Notes {
    /// The operations of one stream, with marks.
    fn stream(&mut self, stream: usize, ops: &[Op], of_interest: &impl Fn(&Op) -> bool) -> Vec<Op> {
        let mut marked = Vec::with_capacity(3 * ops.len());
        for op in ops {
            match op {
                Op::Fork { stream, ops } => marked.push(Op::Fork { stream: *stream, ops: self.stream(*stream, ops, of_interest) }),
                op if of_interest(op) => {
                    // What ended one operation begins the next.
                    let begin = if marked.last() == Some(&Op::Mark) { self.marks - 1 } else { self.mark(&mut marked) };
                    marked.push(op.clone());
                    let end = self.mark(&mut marked);
                    self.operations.push(Operation { name: op.to_string(), stream, begin, end });
                }
                op => marked.push(op.clone()),
            }
        }
        marked
    }

    fn mark(&mut self, ops: &mut Vec<Op>) -> usize {
        ops.push(Op::Mark);
        self.marks += 1;
        self.marks - 1
    }
}

impl Noted {
    /// A plan with marks around what is of interest.
    pub(super) fn new(plan: &Plan, of_interest: impl Fn(&Op) -> bool) -> Noted {
        let (mut ranks, mut operations) = (Vec::new(), Vec::new());
        for ops in &plan.ranks {
            let mut notes = Notes::default();
            ranks.push(notes.stream(0, ops, &of_interest));
            operations.push(notes.operations);
        }
        Noted { plan: Arc::new(Plan { name: plan.name.clone(), nodes: plan.nodes, of_caller: plan.of_caller, ranks }), operations }
    }

    /// How many marks a rank has.
    pub(super) fn marks(&self, rank: usize) -> usize {
        self.plan.operations(rank).filter(|op| **op == Op::Mark).count()
    }

    /// When a rank's operations began and ended. `intervals` are the times from the mark before the plan's first to that, and from each to the
    /// next; times count from that mark.
    pub(super) fn spans(&self, rank: usize, intervals: &[f64]) -> Vec<Span> {
        let times: Vec<f64> = intervals
            .iter()
            .scan(0.0, |now, interval| {
                *now += interval;
                Some(*now)
            })
            .collect();
        let at = |mark: usize| times.get(mark).copied().unwrap_or(f64::NAN);
        let span = |of: &Operation| Span { name: of.name.clone(), stream: of.stream, begin: at(of.begin), end: at(of.end) };
        self.operations[rank].iter().map(span).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use passmuster_plan::plan::Region;

    fn fill(byte: u8) -> Op {
        Op::Fill { region: Region::new("data", 0, 1), byte }
    }

    /// If this fails, a time is taken for that of another operation.
    #[test]
    fn each_operation_has_the_times_of_its_own_stream() {
        let ops = vec![fill(1), Op::Fork { stream: 1, ops: vec![fill(2), fill(3)] }, fill(4), Op::Join { stream: 1 }];
        let noted = Noted::new(&Plan::per_rank("noted", 1, |_| ops.clone()), |op| matches!(op, Op::Fill { .. }));
        assert_eq!(noted.marks(0), 7);
        // Marks in the order of enqueuing: two around the first, three on the side stream, two around the last.
        let spans = noted.spans(0, &[1.0, 10.0, 2.0, 20.0, 30.0, -52.0, 5.0]);
        let shown: Vec<String> = spans.iter().map(|span| format!("{} {} {} {}", span.stream, span.name, span.begin, span.end)).collect();
        let expected = [("0", 1, "1 11"), ("1", 2, "13 33"), ("1", 3, "33 63"), ("0", 4, "11 16")];
        assert_eq!(shown, expected.map(|(stream, byte, times)| format!("{stream} fill data[0..1] with {byte:#04x} {times}")));
    }
}
