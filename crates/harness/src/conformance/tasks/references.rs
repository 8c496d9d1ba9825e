//! References that are built in, by name.

use std::sync::Arc;

use passmuster_plan::{
    task::{Array, Computed, Reference, ReferenceCall, ReferenceError, ReferenceSource, Task},
    words::expected,
};

/// The names of those that there are.
pub const NAMES: [&str; 2] = ["all_reduce", "all_reduce_rms_norm"];

/// The reference that a task names.
///
/// # Errors
/// There is none of this name; the task does not have the inputs and outputs that it needs; it is a program.
pub fn built_in(task: &Task, source: &ReferenceSource) -> Result<Arc<dyn Reference>, String> {
    let ReferenceSource::Named(name) = source else { return Err("it is a program, and none may be run here".into()) };
    let (inputs, outputs): (&[&str], &[&str]) = match name.as_str() {
        "all_reduce" => (&["input"], &["output"]),
        "all_reduce_rms_norm" => (&["input", "residual", "gamma"], &["residual_out", "output"]),
        _ => return Err(format!("unknown reference `{name}`: {}", expected(name, &NAMES))),
    };
    let of =
        |is: fn(&passmuster_plan::task::Tensor) -> bool| task.tensors().iter().filter(move |tensor| is(tensor)).map(|tensor| &*tensor.name);
    for (what, needed, has) in [
        ("inputs", inputs, of(|tensor| tensor.role.is_input()).collect::<Vec<_>>()),
        ("outputs", outputs, of(|tensor| tensor.role.is_output()).collect::<Vec<_>>()),
    ] {
        if needed != has {
            return Err(format!("`{name}` has the {what} {}, in this order, and the task {}", needed.join(", "), has.join(", ")));
        }
    }
    match name.as_str() {
        "all_reduce" => Ok(Arc::new(AllReduce)),
        _ => Ok(Arc::new(AllReduceRmsNorm)),
    }
}

/// The sum of an input over all ranks, and of the magnitudes.
fn summed(input: &[Array]) -> Computed {
    let mut values = vec![0.0; input[0].values.len()];
    let mut magnitudes = values.clone();
    for (at, value) in input.iter().flat_map(|of_rank| of_rank.values.iter().enumerate()) {
        values[at] += value;
        magnitudes[at] += value.abs();
    }
    Computed { values, magnitudes: Some(magnitudes) }
}

/// Whether an input has one shape on all ranks.
fn alike(name: &str, input: &[Array]) -> Result<(), ReferenceError> {
    match input.iter().find(|of_rank| of_rank.shape != input[0].shape) {
        None => Ok(()),
        Some(other) => Err(ReferenceError(format!("{name} has the shape {:?} on rank 0 and {:?} on another", input[0].shape, other.shape))),
    }
}

/// `output` of every rank is the sum of `input`.
struct AllReduce;

impl Reference for AllReduce {
    fn outputs(&self, call: &ReferenceCall<'_>) -> Result<Vec<Vec<Computed>>, ReferenceError> {
        let input = call.input("input")?;
        alike("input", input)?;
        Ok(vec![vec![summed(input); input.len()]])
    }

    fn describe(&self) -> String {
        "all_reduce, built in".into()
    }
}

/// What is added to the mean of squares before its root is taken.
const EPSILON: f64 = 1e-6;

/// `residual_out` is the sum of `input` over all ranks and `residual`; `output` is that, divided by the root of the mean of its squares over a row and 1e-6,
/// times `gamma`. Rows are the last dimension.
struct AllReduceRmsNorm;

impl Reference for AllReduceRmsNorm {
    fn outputs(&self, call: &ReferenceCall<'_>) -> Result<Vec<Vec<Computed>>, ReferenceError> {
        let (input, residual, gamma) = (call.input("input")?, call.input("residual")?, call.input("gamma")?);
        alike("input", input)?;
        let Some(hidden) = input[0].shape.last().map(|&hidden| hidden as usize).filter(|&hidden| hidden > 0) else {
            return Err(ReferenceError("input has no row to take a norm of".into()));
        };
        let sum = summed(input);
        let sizes = sum.magnitudes.as_deref().unwrap_or_default();
        let (mut residuals, mut outputs) = (Vec::new(), Vec::new());
        for (residual, gamma) in residual.iter().zip(gamma) {
            if residual.shape != input[0].shape || gamma.values.len() != hidden {
                let shapes = format!("input {:?}, residual {:?}, gamma {:?}", input[0].shape, residual.shape, gamma.shape);
                return Err(ReferenceError(format!("{shapes}: expected residual as input, and gamma as long as a row")));
            }
            let added: Vec<f64> = sum.values.iter().zip(&residual.values).map(|(sum, own)| sum + own).collect();
            let added_sizes: Vec<f64> = sizes.iter().zip(&residual.values).map(|(size, own)| size + own.abs()).collect();
            let (mut values, mut magnitudes) = (Vec::with_capacity(added.len()), Vec::with_capacity(added.len()));
            for (row, of_row) in added.chunks(hidden).zip(added_sizes.chunks(hidden)) {
                let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / hidden as f64;
                let squares = mean(&mut row.iter().map(|value| value * value)) + EPSILON;
                let scale = 1.0 / squares.sqrt();
                // An error of each element by `e` of its magnitude moves the mean of squares by at most twice that of the products, and the root by half.
                let moved = mean(&mut row.iter().zip(of_row).map(|(value, size)| value.abs() * size)) / squares;
                for ((value, size), gamma) in row.iter().zip(of_row).zip(&gamma.values) {
                    values.push(value * scale * gamma);
                    magnitudes.push((size + value.abs() * (moved + 1.0)) * scale * gamma.abs());
                }
            }
            residuals.push(Computed { values: added, magnitudes: Some(added_sizes) });
            outputs.push(Computed { values, magnitudes: Some(magnitudes) });
        }
        Ok(vec![residuals, outputs])
    }

    fn describe(&self) -> String {
        format!("all_reduce_rms_norm, built in, epsilon {EPSILON:e}")
    }
}
