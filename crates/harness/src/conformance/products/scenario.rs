//! What a case of a product does to the machine.
//!
//! Calls are back to back on ranks that run freely. Before each, a copy in stream order puts fresh elements into A, and C and what the algorithm brings
//! together are filled with NaN; after it, a copy takes C into a log. So an early read meets NaN or the elements of another call, and a late one the next
//! call's. Three draws of A take turns: eager calls of draws 0, 1 and 0 again; a graph of two calls, launched with draws 2 and 0, then 1 and 2.

use std::sync::Arc;

use super::ProductCase;
use crate::conformance::{Fault, Skew};
use passmuster_plan::{
    algorithms::{Registry, TensorParallel, TensorParallelFusion},
    contract::Contract,
    plan::{BufferSpec, Departure, Op, Operands, Plan, Region, Role, Script, Step},
};

/// A case made ready to run.
pub(super) struct Scenario {
    /// Buffers of every group.
    pub buffers: Vec<BufferSpec>,
    /// Where A, B and C are.
    pub operands: Operands,
    /// Where each draw of A is to lie before the run.
    pub draws: [Region; DRAWS],
    /// What the ranks do.
    pub script: Script,
    /// What each call of a group multiplied, and where its C was kept.
    pub calls: Vec<Recorded>,
    /// What the plain kernel multiplies, and where its C is kept, where the algorithm promises to equal it.
    pub plain: Option<Plain>,
    /// What the algorithm promises.
    pub contract: Contract,
}

/// A call whose C was kept.
pub(super) struct Recorded {
    /// Which draw of A.
    pub draw: usize,
    /// Where C was kept.
    pub kept: Region,
    /// Whether a graph made it.
    pub replayed: bool,
}

/// A product of the plain kernel, on the first draw.
pub(super) struct Plain {
    /// All rows of A: of a gather, to be written before the run.
    pub a: Region,
    /// All rows of C.
    pub c: Region,
}

/// Draws of A.
pub(super) const DRAWS: usize = 3;

/// Draws of the eager calls.
const EAGER: [usize; 3] = [0, 1, 0];

/// Draws of the two calls of the graph, for each of its launches.
const REPLAYED: [[usize; 2]; 2] = [[2, 0], [1, 2]];

/// Products of each group: of every call, and of the plain kernel.
pub(super) const MULTIPLICATIONS: u64 = (EAGER.len() + REPLAYED.len() * REPLAYED[0].len() + 1) as u64;

/// What A holds in the end.
pub(super) const LAST: usize = REPLAYED[1][1];

/// Makes a case ready, of which ranks have `blocks` blocks at a time.
///
/// # Errors
/// Why the case is not supported.
pub(super) fn build(registry: &Registry, case: &ProductCase, blocks: u32) -> Result<Scenario, String> {
    let algorithm = case.algorithm(registry)?;
    algorithm.supports(&case.product, case.world, blocks)?;
    let builder = Builder::new(case, &*algorithm, blocks);
    let mut scenario = Scenario {
        buffers: builder.buffers(),
        operands: builder.operands.clone(),
        draws: std::array::from_fn(|draw| builder.draw(draw)),
        script: Script { steps: Vec::new() },
        calls: Vec::new(),
        plain: None,
        contract: algorithm.contract(&case.product, case.world),
    };
    scenario.script.steps = builder.steps(&mut scenario.calls);
    if let Some((plain, multiply)) = builder.plain {
        let plan = Arc::new(Plan::per_rank("plain product", case.world, |_| vec![multiply.clone()]));
        scenario.script.steps.extend((0..case.groups as usize).map(|group| enqueue(group, &plan)));
        scenario.plain = Some(plain);
    }
    Ok(scenario)
}

struct Builder<'a> {
    case: &'a ProductCase,
    operands: Operands,
    workspace: Vec<BufferSpec>,
    plan: Plan,
    /// What the plain kernel multiplies, and how, where the algorithm promises to equal it.
    plain: Option<(Plain, Op)>,
}

/// A stream for each group.
fn enqueue(group: usize, plan: &Arc<Plan>) -> Step {
    Step::Enqueue { group, stream: group, plan: plan.clone() }
}

fn copy(from: &Region, to: &Region) -> Op {
    Op::Copy { from: from.clone(), to: to.clone(), to_rank: None }
}

impl<'a> Builder<'a> {
    fn new(case: &'a ProductCase, algorithm: &dyn TensorParallel, blocks: u32) -> Builder<'a> {
        let ProductCase { half, product, world, .. } = case;
        let bytes = half.elements(product, *world).map(|elements| elements * product.dtype.size());
        let [a, b, c] = [("a", bytes[0]), ("b", bytes[1]), ("c", bytes[2])].map(|(name, bytes)| Region::new(name, 0, bytes));
        let operands = Operands { a, b, c };
        let plan = algorithm.plan(product, &operands, *world, blocks);
        let plain = plain(case, &operands);
        let of_plain = Operands { a: plain.a.clone(), b: operands.b.clone(), c: plain.c.clone() };
        let multiply = algorithm.plain(&product.gathered(*world), &of_plain, case.tile, blocks);
        let plain = multiply.map(|multiply| (plain, multiply));
        Builder { case, workspace: algorithm.workspace(product, *world, blocks), operands, plan, plain }
    }

    fn buffers(&self) -> Vec<BufferSpec> {
        let Operands { a, b, c } = &self.operands;
        let data = |name: &str, bytes| BufferSpec::new(name, bytes, Role::Data);
        let local = |name: &str, bytes| BufferSpec { local: true, ..data(name, bytes) };
        let calls = (EAGER.len() + REPLAYED.as_flattened().len()) as u64;
        let mut buffers = [a, b, c].map(|operand| data(&operand.buffer, operand.bytes)).to_vec();
        buffers.extend([
            local("draws", DRAWS as u64 * a.bytes),
            local("next", 2 * a.bytes),
            local("last", 2 * c.bytes),
            local("log", calls * c.bytes),
        ]);
        if let Some((Plain { a, c }, _)) = &self.plain {
            buffers.extend((a.buffer == "plain.a").then(|| local(&a.buffer, a.bytes)));
            buffers.push(local(&c.buffer, c.bytes));
        }
        buffers.extend(self.workspace.iter().cloned());
        buffers
    }

    fn draw(&self, draw: usize) -> Region {
        draw_of(&self.operands, draw)
    }

    /// A call whose A comes from one region and whose C goes to another.
    fn call(&self, from: &Region, to: &Region) -> Arc<Plan> {
        // What peers bring there they bring only after this stream has said that it may be brought, behind the fills.
        let brought = self.workspace.iter().filter(|buffer| buffer.role == Role::Data && !buffer.name.ends_with(".library"));
        let poisoned: Vec<Region> = brought.map(BufferSpec::whole).chain([self.operands.c.clone()]).collect();
        let mut plan = self.plan.clone();
        for ops in &mut plan.ranks {
            let before = poisoned.iter().map(|region| Op::Fill { region: region.clone(), byte: 0xff });
            let call = std::mem::take(ops);
            *ops = [copy(from, &self.operands.a)].into_iter().chain(before).chain(call).chain([copy(&self.operands.c, to)]).collect();
        }
        Arc::new(plan)
    }

    /// A plan of copies of the same bytes on every rank.
    fn copies(&self, name: &str, copies: [Op; 2]) -> Arc<Plan> {
        Arc::new(Plan::per_rank(name, self.case.world, |_| copies.to_vec()))
    }

    /// The steps of all groups, which take turns.
    fn steps(&self, calls: &mut Vec<Recorded>) -> Vec<Step> {
        let (a, c) = (self.operands.a.bytes, self.operands.c.bytes);
        let log = |calls: &mut Vec<Recorded>, draw: usize, replayed: bool| {
            let kept = part("log", calls.len(), c);
            calls.push(Recorded { draw, kept: kept.clone(), replayed });
            kept
        };
        let late =
            || self.case.skew.map(|Skew { rank, microseconds, .. }| Step::Delay { rank: rank as usize, microseconds: microseconds.into() });
        let groups = 0..self.case.groups as usize;
        let of_all = |plan: &Arc<Plan>| groups.clone().map(|group| enqueue(group, plan)).collect::<Vec<_>>();
        let mut steps = Vec::new();
        for (number, draw) in EAGER.into_iter().enumerate() {
            if number == 1 {
                steps.extend(late());
                if let Some(Fault::Absent(rank)) = self.case.fault {
                    steps.push(Step::Leave { rank: rank as usize, how: Departure::Idle });
                }
            }
            let kept = log(calls, draw, false);
            steps.extend(of_all(&self.call(&self.draw(draw), &kept)));
        }
        let [next, last]: [[Region; 2]; 2] = [("next", a), ("last", c)].map(|(name, bytes)| [part(name, 0, bytes), part(name, 1, bytes)]);
        let captured: Vec<Arc<Plan>> = (0..2).map(|call| self.call(&next[call], &last[call])).collect();
        steps.extend(groups.clone().map(|group| Step::Capture { graph: group, group, plans: captured.clone() }));
        for (launch, draws) in REPLAYED.into_iter().enumerate() {
            if launch == 1 {
                steps.extend(late());
            }
            let kept = draws.map(|draw| log(calls, draw, true));
            steps.extend(of_all(&self.copies("next draws", [0, 1].map(|call| copy(&self.draw(draws[call]), &next[call])))));
            steps.extend(groups.clone().map(|group| Step::Replay { graph: group, stream: group }));
            steps.extend(of_all(&self.copies("keep", [0, 1].map(|call| copy(&last[call], &kept[call])))));
        }
        steps
    }
}

/// A draw of A.
fn draw_of(operands: &Operands, draw: usize) -> Region {
    part("draws", draw, operands.a.bytes)
}

/// What the plain kernel multiplies, and where its C goes.
fn plain(case: &ProductCase, operands: &Operands) -> Plain {
    let ProductCase { half, product, world, .. } = case;
    let size = product.dtype.size();
    let c = Region::new("plain.c", 0, product.c(*world) * size);
    match half {
        TensorParallelFusion::Gather => Plain { a: Region::new("plain.a", 0, u64::from(*world) * product.a() * size), c },
        TensorParallelFusion::Scatter => Plain { a: draw_of(operands, 0), c },
    }
}

/// The `number`th of parts of `bytes` bytes each.
fn part(buffer: &str, number: usize, bytes: u64) -> Region {
    Region::new(buffer, number as u64 * bytes, bytes)
}
