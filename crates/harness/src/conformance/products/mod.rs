//! Conformance of products of matrices that ranks have parts of ([`TensorParallel`](passmuster_plan::algorithms::TensorParallel)): cases, what they do, and
//! how it is judged.
//!
//! The reference is computed on the host, in f64.

mod case;
mod numbers;
mod scenario;

use std::thread;

use half::{bf16, f16};
use smallvec::SmallVec;

pub(super) use case::KEYS;
pub use case::{ProductCase, UnknownProduct};
pub use numbers::Numbers;

use self::{
    numbers::{Judge, Term, multiply},
    scenario::{DRAWS, LAST, Scenario},
};
use super::{
    faults,
    inputs::mix,
    oracle::Expected,
    runner::{self, Checks, Settings},
    verdict::Verdict,
};
use passmuster_plan::{
    algorithms::{Registry, TensorParallelFusion},
    collective::{Bounded, Collective, DType, Element, Product, ReduceOp, Shape},
    machine::{Machine, MachineError, arguments::tensor_maps},
    plan::{BufferSpec, Op, Region, Script, Step},
};

/// Multiplications of a case, of all ranks and draws together, that the reference may take.
const MOST_TERMS: u64 = 1 << 36;

/// Judges one case on a machine. After a verdict of hang or crash the machine must not be used again.
pub(super) fn judge(case: &ProductCase, machine: &mut dyn Machine, settings: &Settings<'_>) -> Verdict {
    let verdict = runner::timed(case, || match case.product.dtype {
        DType::F16 => try_judge::<f16>(case, machine, settings),
        _ => try_judge::<bf16>(case, machine, settings),
    });
    match case.fault {
        Some(_) => faults::named(settings.registry, &case.clone().into(), verdict),
        None => verdict,
    }
}

fn try_judge<T: Element<Acc = f32>>(
    case: &ProductCase,
    machine: &mut dyn Machine,
    settings: &Settings<'_>,
) -> Result<Verdict, MachineError> {
    machine.close_groups();
    let (world, groups) = (case.world as usize, case.groups as usize);
    let supported = scenario::build(settings.registry, case, machine.waiting_blocks(world, groups)).and_then(|scenario| {
        affordable(case)?;
        gpus_of_their_own(case, &scenario, machine.info().gpus)?;
        Ok(scenario)
    });
    let scenario = supported.map_err(|reason| MachineError::NotSupported { reason })?;
    machine.check_multiplications(of_kernels(case, &scenario.script))?;
    (settings.progress)("opening groups");
    let matrices: Vec<Matrices<T>> = (0..case.groups).map(|group| Matrices::draw(case, group)).collect();
    for matrices in &matrices {
        let group = machine.open_group(world, &scenario.buffers)?;
        for rank in 0..world {
            machine.write(group, rank, &scenario.operands.b, &bytes(&matrices.b[rank]))?;
            for (region, draw) in scenario.draws.iter().zip(&matrices.a) {
                machine.write(group, rank, region, &bytes(&draw[rank]))?;
            }
            if let (TensorParallelFusion::Gather, Some(plain)) = (case.half, &scenario.plain) {
                machine.write(group, rank, &plain.a, &bytes(&matrices.a[0].concat()))?;
            }
        }
    }
    (settings.progress)("running");
    let ran = runner::run(machine, &scenario.script, settings.deadline)?;
    (settings.progress)("checking");
    let mut checks = Checks::default();
    for (group, matrices) in matrices.iter().enumerate() {
        checks.canaries(machine, group)?;
        check(case, &scenario, matrices, group, machine, &mut checks)?;
    }
    if scenario.plain.is_none() {
        checks.not_applicable.push(("equals_plain".into(), "its products are the library's".into()));
    }
    Ok(ran.on(checks.verdict(case)))
}

/// Whether the reference takes no longer than somebody waits.
fn affordable(case: &ProductCase) -> Result<(), String> {
    let of_rank = case.half.elements(&case.product, case.world)[0].checked_mul(case.product.columns);
    let times = u64::from(case.groups)
        * DRAWS as u64
        * u64::from(case.world)
        * if case.half == TensorParallelFusion::Gather { u64::from(case.world) } else { 1 };
    match of_rank.and_then(|terms| terms.checked_mul(times)) {
        Some(terms) if terms <= MOST_TERMS => Ok(()),
        _ => Err(format!(
            "the reference would take more than {MOST_TERMS} multiplications on the host: fewer rows, columns, depth or groups"
        )),
    }
}

/// Multiplications of all ranks in all calls, where kernels make the products and not the library.
pub(super) fn of_kernels(case: &ProductCase, script: &Script) -> u64 {
    let multiplies = |op: &Op| matches!(op, Op::Launch(launch) if !tensor_maps(&launch.args).is_empty());
    let kernels = script.plans().any(|plan| (0..plan.world()).flat_map(|rank| plan.operations(rank)).any(multiplies));
    let Product { rows, columns, depth, .. } = case.product;
    let ranks = u64::from(case.world);
    let calls = scenario::MULTIPLICATIONS * u64::from(case.groups);
    if kernels { [ranks, ranks, rows, columns, depth, calls].into_iter().fold(1, u64::saturating_mul) } else { 0 }
}

/// Ranks that share a GPU do not all make progress where each has several streams, and a copy within a GPU may need the SMs that a kernel
/// holds which waits for it.
fn gpus_of_their_own(case: &ProductCase, scenario: &Scenario, gpus: usize) -> Result<(), String> {
    let plans = scenario.script.steps.iter().filter_map(|step| if let Step::Enqueue { plan, .. } = step { Some(plan) } else { None });
    let forks = plans.flat_map(|plan| plan.ranks.iter().flatten()).any(|op| matches!(op, Op::Fork { .. }));
    if forks && (1..case.world as usize).contains(&gpus) {
        return Err(format!("plans with side streams need a GPU for each of {} ranks, there are {gpus}", case.world));
    }
    Ok(())
}

/// What a group multiplies.
struct Matrices<T> {
    /// Of each draw, each rank's A.
    a: [Vec<Vec<T>>; DRAWS],
    /// Each rank's B.
    b: Vec<Vec<T>>,
}

impl<T: Element<Acc = f32>> Matrices<T> {
    fn draw(case: &ProductCase, group: u32) -> Matrices<T> {
        let [a, b, _] = case.half.elements(&case.product, case.world);
        // B is as if it were one draw more.
        let matrix = |draw: usize, rank: u32, count| {
            let which = (u64::from(group) * (DRAWS as u64 + 1) + draw as u64) << 8 | u64::from(rank);
            case.inputs.draw(mix(case.seed ^ mix(which)), count)
        };
        let of_ranks = |draw, count| (0..case.world).map(|rank| matrix(draw, rank, count)).collect();
        Matrices { a: std::array::from_fn(|draw| of_ranks(draw, a)), b: of_ranks(DRAWS, b) }
    }

    /// Of a draw, for each rank the products that its C is made of: of a gather one, of a scatter one of each rank.
    fn products(&self, case: &ProductCase, draw: usize) -> Vec<Vec<Vec<Term>>> {
        let product = &case.product;
        let gathered = self.a[draw].concat();
        let of_rank = &|rank: usize| match case.half {
            TensorParallelFusion::Gather => multiply(product, &gathered, &self.b[rank]),
            TensorParallelFusion::Scatter => multiply(product, &self.a[draw][rank], &self.b[rank]),
        };
        let of_ranks: Vec<Vec<Term>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..case.world as usize).map(|rank| scope.spawn(move || of_rank(rank))).collect();
            threads.into_iter().map(|thread| thread.join().expect("numbers do not panic")).collect()
        });
        match case.half {
            TensorParallelFusion::Gather => of_ranks.into_iter().map(|terms| vec![terms]).collect(),
            TensorParallelFusion::Scatter => {
                let rows = |rank: usize, terms: &Vec<Term>| terms[rank * product.c(1) as usize..][..product.c(1) as usize].to_vec();
                (0..case.world as usize).map(|rank| of_ranks.iter().map(|terms| rows(rank, terms)).collect()).collect()
            }
        }
    }
}

fn bytes<T: Element>(elements: &[T]) -> Vec<u8> {
    elements.iter().flat_map(|element| (element.bits() as u16).to_le_bytes()).collect()
}

/// Checks everything that must hold of a group after the run.
fn check<T: Element<Acc = f32>>(
    case: &ProductCase,
    scenario: &Scenario,
    matrices: &Matrices<T>,
    group: usize,
    machine: &mut dyn Machine,
    checks: &mut Checks,
) -> Result<(), MachineError> {
    let judge = Judge { half: case.half, numbers: case.inputs, contract: scenario.contract, depth: case.product.depth };
    let mut read = |region: &Region| -> Result<Vec<Vec<u8>>, MachineError> {
        (0..case.world as usize).map(|rank| machine.read(group, rank, region)).collect()
    };
    let outputs = scenario.calls.iter().map(|call| read(&call.kept)).collect::<Result<Vec<_>, _>>()?;
    for draw in 0..DRAWS {
        let products = matrices.products(case, draw);
        for (index, _) in scenario.calls.iter().enumerate().filter(|(_, call)| call.draw == draw) {
            let mut of_ranks = outputs[index].iter().zip(&products).enumerate();
            let wrong = of_ranks.find_map(|(rank, (c, products))| Some((rank, wrong_elements::<T>(case, &judge, c, products)?)));
            let found = wrong.map(|(rank, wrong)| (format!("group {group} rank {rank}: {wrong}"), String::new()));
            checks.note("reference", Some(index), found);
        }
    }
    for (other, call) in scenario.calls.iter().enumerate() {
        let Some(base) = scenario.calls[..other].iter().position(|earlier| earlier.draw == call.draw) else { continue };
        let (property, promised) = match call.replayed {
            true => ("graph", scenario.contract.graph_equals_eager),
            false => ("repeat", scenario.contract.equal_run_to_run),
        };
        if promised {
            checks.note(property, Some(other), different(group, &outputs[base], &outputs[other], &format!("that of call {base}")));
        } else if !checks.not_applicable.iter().any(|(name, _)| name == property) {
            checks.not_applicable.push((property.into(), "the contract does not promise it".into()));
        }
    }
    if let Some(plain) = &scenario.plain {
        let products = read(&plain.c)?;
        let expected = match case.half {
            TensorParallelFusion::Gather => products,
            TensorParallelFusion::Scatter => {
                let shape = Shape::new(Collective::ReduceScatter, case.world, case.product.c(1));
                shape.results(case.product.dtype, ReduceOp::Sum, &products)
            }
        };
        checks.note("equals_plain", None, different(group, &expected, &outputs[0], "what plain products come to"));
    }
    for (operand, sent) in [(&scenario.operands.a, &matrices.a[LAST]), (&scenario.operands.b, &matrices.b)] {
        let now = read(operand)?;
        let changed = now.iter().zip(sent).position(|(now, sent)| *now != bytes(sent));
        checks.note(
            "input_unchanged",
            None,
            changed.map(|rank| (format!("group {group} rank {rank}: {operand} was overwritten"), String::new())),
        );
    }
    Ok(())
}

/// What is wrong with a rank's C, in a line.
fn wrong_elements<T: Element<Acc = f32>>(case: &ProductCase, judge: &Judge, c: &[u8], products: &[Vec<Term>]) -> Option<String> {
    let of_element = |at: usize| -> Expected<T> { judge.expect(&products.iter().map(|terms| terms[at]).collect::<SmallVec<[Term; 16]>>()) };
    let mut wrong = c.chunks_exact(2).map(T::from_bytes).enumerate().filter(|&(at, got)| !of_element(at).accepts(got));
    let (at, got) = wrong.next()?;
    let more = wrong.count();
    let (row, column) = (at as u64 / case.product.columns, at as u64 % case.product.columns);
    let expected = match of_element(at).shown() {
        Some(Bounded { exact, bound: 0.0 }) => format!("expected {exact}"),
        Some(Bounded { exact, bound }) => format!("exactly {exact}, at most {bound:.3e} away"),
        None => "expected anything".into(),
    };
    Some(format!("{} of {} elements of C are wrong, first row {row} column {column}: {}, {expected}", more + 1, c.len() / 2, got.to_f64()))
}

/// The first rank whose C is not, to the bit, what it should be.
fn different(group: usize, expected: &[Vec<u8>], got: &[Vec<u8>], what: &str) -> Option<(String, String)> {
    let of_rank = |(expected, got): (&Vec<u8>, &Vec<u8>)| expected.chunks_exact(2).zip(got.chunks_exact(2)).filter(|(a, b)| a != b).count();
    let (rank, count) = expected.iter().zip(got).map(of_rank).enumerate().find(|&(_, count)| count > 0)?;
    Some((format!("group {group} rank {rank}: {count} of {} elements of C are not {what}", got[rank].len() / 2), String::new()))
}

/// What a case would do: the buffers of each group, and the script.
///
/// # Errors
/// Why the case is not supported.
pub(super) fn prepared(registry: &Registry, case: &ProductCase, waiting_blocks: u32) -> Result<(Vec<Vec<BufferSpec>>, Script), String> {
    let scenario = scenario::build(registry, case, waiting_blocks)?;
    Ok((vec![scenario.buffers; case.groups as usize], scenario.script))
}
