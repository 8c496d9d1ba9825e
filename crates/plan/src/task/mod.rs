//! Tasks: what ranks do together, declared by the author of the kernel, with a reference of their own.
//!
//! A [`Task`] has parameters with the values to try, named tensors whose shapes are expressions of them, and for each output what the kernel may make of the
//! value that the reference computes ([`Acceptance`]). A [`TaskCall`] is one call of it: the values of the parameters, the same for all ranks or one for each.
//! A specification declares a task in its `[task]` (docs/reference/tasks.md).

mod acceptance;
mod contents;
mod error;
mod reference;

use std::{fmt, sync::Arc};

pub use acceptance::{Acceptance, Allowed, Operations};
pub use contents::Contents;
pub use error::TaskError;
pub use reference::{Array, Computed, Reference, ReferenceCall, ReferenceError};

use crate::{
    collective::DType,
    expression::{self, Expression, Problem, Values, Word},
    machine::MOST_GROUP_BYTES,
    plan::Region,
};

/// The most parameters of a task.
pub const MOST_PARAMETERS: usize = Word::PARAMETERS.len();

/// The most tensors of a task.
pub const MOST_TENSORS: usize = 32;

/// What the buffers of tensors are called, before the tensor's name.
const BUFFER: &str = "task.";

/// Where a specification says that the reference is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceSource {
    /// One that is built in, or that a program brings, by name.
    Named(String),
    /// A program and its arguments.
    Program(Vec<String>),
}

/// What ranks do together, declared by an author.
#[derive(Clone, Debug)]
pub struct Task {
    name: String,
    parameters: Vec<Parameter>,
    tensors: Vec<Tensor>,
}

/// A number that sizes and arguments depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in expressions and case ids: `tokens`.
    pub name: String,
    /// The values to try.
    pub values: Vec<u64>,
    /// Whether ranks may have different ones.
    pub per_rank: bool,
}

/// What a call does with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorRole {
    /// It reads it, and leaves it as it is.
    Input,
    /// It writes it.
    Output,
    /// It reads what is there and leaves a result in its place.
    InputOutput,
}

impl TensorRole {
    /// Every role, with its name in a specification.
    pub const ALL: [(TensorRole, &'static str); 3] =
        [(TensorRole::Input, "input"), (TensorRole::Output, "output"), (TensorRole::InputOutput, "input_output")];

    /// Whether calls read what the case puts there.
    pub fn is_input(self) -> bool {
        self != TensorRole::Output
    }

    /// Whether calls leave a result there.
    pub fn is_output(self) -> bool {
        self != TensorRole::Input
    }
}

/// A tensor of a task. Each rank has one.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name: `residual`.
    pub name: String,
    /// Type of the elements; the case's where it is not told.
    pub dtype: Option<DType>,
    shape: Vec<Expression>,
    /// What calls do with it.
    pub role: TensorRole,
    /// What it is filled with before a call, if it is an input.
    pub contents: Contents,
    /// Whether all ranks have the same: inputs get it so, outputs must be so, to the bit.
    pub same_on_all_ranks: bool,
    /// What an output may be, by the reference's value.
    pub acceptance: Acceptance,
}

impl Tensor {
    /// A tensor of a task with these parameters. `shape` has an expression for each dimension, of parameters, `world` and `rank`.
    ///
    /// # Errors
    /// The dimension that is no expression, and why.
    pub fn new(name: &str, shape: &[&str], role: TensorRole, parameters: &[Parameter]) -> Result<Tensor, TaskError> {
        let names: Vec<String> = parameters.iter().map(|parameter| parameter.name.clone()).collect();
        let dimension = |text: &&str| {
            let why = |problem: Problem| TaskError::Dimension { tensor: name.to_owned(), dimension: (*text).to_owned(), why: problem.what };
            Expression::read_with(text, Word::OF_TENSOR, &names).map_err(why)
        };
        let shape = shape.iter().map(dimension).collect::<Result<_, _>>()?;
        Ok(Tensor::of_expressions(name, shape, role))
    }

    pub(crate) fn of_expressions(name: &str, shape: Vec<Expression>, role: TensorRole) -> Tensor {
        Tensor {
            name: name.to_owned(),
            dtype: None,
            shape,
            role,
            contents: Contents::Normal,
            same_on_all_ranks: false,
            acceptance: Acceptance::Bits,
        }
    }

    /// The name of its buffer.
    pub fn buffer(&self) -> String {
        format!("{BUFFER}{}", self.name)
    }
}

impl Task {
    /// A task.
    ///
    /// # Errors
    /// A name that is given twice, that case ids cannot have or that expressions use; no tensor that is an output; a parameter without values; more parameters or
    /// tensors than a task has.
    pub fn new(name: &str, parameters: Vec<Parameter>, tensors: Vec<Tensor>) -> Result<Task, TaskError> {
        check_name("task", name)?;
        tensors.iter().try_for_each(|tensor| check_name("tensor", &tensor.name))?;
        check_parameters(&parameters)?;
        if tensors.len() > MOST_TENSORS {
            return Err(TaskError::Tensors(tensors.len()));
        }
        if let Some(tensor) = tensors.iter().enumerate().find(|(at, tensor)| tensors[..*at].iter().any(|other| other.name == tensor.name)) {
            return Err(TaskError::Twice { what: "tensor", name: tensor.1.name.clone() });
        }
        if !tensors.iter().any(|tensor| tensor.role.is_output()) {
            return Err(TaskError::NoOutput);
        }
        Ok(Task { name: name.to_owned(), parameters, tensors })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Its tensors.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Those that are inputs, with their numbers.
    pub fn inputs(&self) -> impl Iterator<Item = (usize, &Tensor)> {
        self.tensors.iter().enumerate().filter(|(_, tensor)| tensor.role.is_input())
    }

    /// Those that are outputs, with their numbers.
    pub fn outputs(&self) -> impl Iterator<Item = (usize, &Tensor)> {
        self.tensors.iter().enumerate().filter(|(_, tensor)| tensor.role.is_output())
    }
}

fn check_name(what: &'static str, name: &str) -> Result<(), TaskError> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.starts_with(|c: char| c.is_ascii_lowercase()) && name.len() <= 64 && name.chars().all(letters) {
        return Ok(());
    }
    Err(TaskError::Name { what, name: name.to_owned() })
}

/// Whether a task can have these parameters.
///
/// # Errors
/// As [`Task::new`].
pub(crate) fn check_parameters(parameters: &[Parameter]) -> Result<(), TaskError> {
    if parameters.len() > MOST_PARAMETERS {
        return Err(TaskError::Parameters(parameters.len()));
    }
    for (at, parameter) in parameters.iter().enumerate() {
        check_name("parameter", &parameter.name)?;
        if !expression::is_free(&parameter.name) || RESERVED.contains(&&*parameter.name) {
            return Err(TaskError::Reserved(parameter.name.clone()));
        }
        if parameters[..at].iter().any(|other| other.name == parameter.name) {
            return Err(TaskError::Twice { what: "parameter", name: parameter.name.clone() });
        }
        if parameter.values.is_empty() {
            return Err(TaskError::NoValue(parameter.name.clone()));
        }
    }
    Ok(())
}

/// Keys of case ids, which no parameter may have.
const RESERVED: [&str; 8] = ["w", "inputs", "skew", "groups", "fault", "start", "seed", "graph"];

/// One call of a task, that all ranks make together.
#[derive(Clone, Debug)]
pub struct TaskCall {
    /// The task.
    pub task: Arc<Task>,
    /// The type that tensors have whose own is not told.
    pub dtype: DType,
    /// For each rank, the values of the parameters.
    parameters: Vec<Vec<u64>>,
    /// For each tensor and rank, its dimensions.
    shapes: Vec<Vec<Vec<u64>>>,
}

impl TaskCall {
    /// A call with `parameters` of each rank.
    ///
    /// # Errors
    /// A dimension without a value, a tensor of more bytes than any device has, or outputs that are empty on all ranks.
    pub fn new(task: &Arc<Task>, dtype: DType, parameters: Vec<Vec<u64>>) -> Result<TaskCall, TaskError> {
        let mut call = TaskCall { task: task.clone(), dtype, parameters, shapes: Vec::new() };
        for tensor in &task.tensors {
            let shapes = (0..call.world()).map(|rank| call.shape_of(tensor, rank)).collect::<Result<_, _>>()?;
            call.shapes.push(shapes);
        }
        let is_empty = |at: usize| (0..call.world()).all(|rank| call.elements(at, rank) == 0);
        if task.outputs().all(|(at, _)| is_empty(at)) {
            return Err(TaskError::Empty { call: call.to_string() });
        }
        Ok(call)
    }

    fn shape_of(&self, tensor: &Tensor, rank: u32) -> Result<Vec<u64>, TaskError> {
        let values = self.values(rank);
        let wrong = |of: &Expression, problem: Problem| TaskError::Dimension {
            tensor: tensor.name.clone(),
            dimension: of.to_string(),
            why: problem.what,
        };
        let dimension = |of: &Expression| of.value(&values).map_err(|problem| wrong(of, problem));
        let shape = tensor.shape.iter().map(dimension).collect::<Result<Vec<u64>, _>>()?;
        let bytes = shape.iter().try_fold(self.dtype_of(tensor).size(), |bytes, &side| bytes.checked_mul(side));
        match bytes {
            Some(bytes) if bytes <= MOST_GROUP_BYTES => Ok(shape),
            _ => Err(TaskError::TooLarge { tensor: tensor.name.clone(), rank, shape, call: self.to_string() }),
        }
    }

    /// Ranks.
    pub fn world(&self) -> u32 {
        self.parameters.len() as u32
    }

    /// The parameters of a rank.
    pub fn parameters(&self, rank: u32) -> &[u64] {
        &self.parameters[rank as usize]
    }

    /// The type of a tensor's elements.
    pub fn dtype_of(&self, tensor: &Tensor) -> DType {
        tensor.dtype.unwrap_or(self.dtype)
    }

    /// The dimensions of a tensor, by its number, on a rank.
    pub fn shape(&self, tensor: usize, rank: u32) -> &[u64] {
        &self.shapes[tensor][rank as usize]
    }

    /// Elements of a tensor on a rank.
    pub fn elements(&self, tensor: usize, rank: u32) -> u64 {
        self.shape(tensor, rank).iter().product()
    }

    /// Where a tensor of a rank is.
    pub fn region(&self, tensor: usize, rank: u32) -> Region {
        let of = &self.task.tensors[tensor];
        Region::new(of.buffer(), 0, self.elements(tensor, rank) * self.dtype_of(of).size())
    }

    /// What words stand for on a rank.
    pub(crate) fn values(&self, rank: u32) -> Values<'static> {
        let values = Values::new(&[(Word::World, self.world().into()), (Word::Rank, rank.into())]);
        self.parameters(rank).iter().zip(Word::PARAMETERS).fold(values, |values, (&value, word)| values.with(word, value))
    }

    /// What they stand for where the largest of several calls and ranks is meant: each parameter's largest value.
    pub(crate) fn largest_values(calls: &[TaskCall]) -> Values<'static> {
        let world = calls.first().map_or(0, TaskCall::world);
        let values = Values::new(&[(Word::World, world.into())]);
        let most = |number: usize| calls.iter().flat_map(|call| &call.parameters).filter_map(|of_rank| of_rank.get(number)).max();
        Word::PARAMETERS.into_iter().enumerate().fold(values, |values, (number, word)| match most(number) {
            Some(&value) => values.with(word, value),
            None => values,
        })
    }
}

impl fmt::Display for TaskCall {
    /// As in case ids: `w=2 tokens=3/0 hidden=64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w={}", self.world())?;
        for (number, parameter) in self.task.parameters.iter().enumerate() {
            write!(f, " {}={}", parameter.name, of_ranks(self.parameters.iter().map(|of_rank| of_rank[number])))?;
        }
        Ok(())
    }
}

/// A parameter of all ranks as case ids have it: `17`, or `3/0/4/4` where ranks differ.
pub fn of_ranks(values: impl Iterator<Item = u64>) -> String {
    let values: Vec<u64> = values.collect();
    match values.split_first() {
        Some((first, others)) if others.iter().all(|other| other == first) => first.to_string(),
        _ => values.iter().map(u64::to_string).collect::<Vec<_>>().join("/"),
    }
}
