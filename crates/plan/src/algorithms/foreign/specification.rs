//! A specification understood: names resolved, expressions read, contradictions refused with line and column.

use std::{collections::BTreeMap, sync::Arc};

use toml::Spanned;

use super::{
    argument::{Argument, Buffer, BufferPart, Holder, Kind, Quantity, Tensor, Variable},
    contents::{Bits, Contents},
    document::{self, Document, Scalar},
    names::{Entries, Names, Pattern},
    step::{self, Extent, LaunchSpec, Places, Step},
};
use crate::{
    collective::{Collective, DType, ReduceOp},
    contract::Contract,
    expression::{Expression, Values, Word},
    machine::{ASSUMPTIONS, GUARD},
    modules::FOREIGN,
    plan::{Arg, Fill, MAX_RANKS, MAX_SIDES, Role},
    task::{self, Acceptance, Operations, Parameter, ReferenceSource, Task, TensorRole},
    words::{did_you_mean, expected},
};

/// The largest specification, in bytes.
const MOST_TEXT: usize = 1 << 20;

/// The most arguments, fields of a struct, buffers and steps.
const MOST_ITEMS: usize = 256;

/// The most levels of structs in structs.
const MOST_DEPTH: usize = 8;

/// How regions are aligned at most: what every machine keeps buffers to.
const MOST_ALIGNMENT: u64 = 512;

/// Names in a sentence: `a, b and c`.
fn and(names: &[&str]) -> String {
    match names {
        [] => "none".into(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Why a text is no specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {problem}")]
#[non_exhaustive]
pub struct SpecError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there, and what was expected.
    pub problem: String,
}

/// What a specification says, without what the kernel is called for the user.
pub(super) struct Specification {
    pub(super) name: String,
    pub(super) dtypes: Vec<DType>,
    pub(super) ops: Vec<ReduceOp>,
    pub(super) worlds: Vec<u32>,
    /// A call for which it is 0 cannot be made.
    pub(super) when: Option<Quantity>,
    pub(super) contract: Contract,
    /// What every word of signals and state may start with beside zero.
    pub(super) start: Option<u32>,
    /// Assumptions about the hardware that it rests on, each with the reason.
    pub(super) assumes: Vec<(String, String)>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) variables: Vec<Variable>,
    pub(super) steps: Vec<Step>,
}

/// What its calls are.
pub(super) enum Of {
    Collective(Box<Calls>),
    Task(Arc<Task>, ReferenceSource),
}

/// Calls of a collective.
pub(super) struct Calls {
    pub(super) collective: Collective,
    pub(super) count_multiple_of: Quantity,
    pub(super) least_count: Quantity,
    pub(super) most_count: Option<Quantity>,
    pub(super) alignment: u64,
    pub(super) in_place: bool,
    pub(super) out_of_place: bool,
    pub(super) destroys_input: bool,
    /// Whether parts of an all-to-all may differ.
    pub(super) counts: bool,
    /// Bytes behind an input that the kernels may read.
    pub(super) readable_behind: u64,
}

/// Reads a file that a specification names: its contents, or why there are none.
pub type Files<'f> = &'f dyn Fn(&str) -> Result<Vec<u8>, String>;

/// An error of the TOML reader about a key or a value, with what was likely meant.
fn meant(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let is_of_names = message.starts_with("unknown field") || message.starts_with("unknown variant");
    let near = names.next().filter(|_| is_of_names).map(|word| did_you_mean(word, names)).unwrap_or_default();
    match message.split_once(", expected") {
        Some((what, rest)) if !near.is_empty() => format!("{what}: {near}expected{rest}"),
        _ => message.to_owned(),
    }
}

impl Specification {
    /// Reads a specification. `kernel` names the kernel in its place.
    pub(super) fn read(text: &str, kernel: Option<&str>, files: Files<'_>) -> Result<(Specification, Of), SpecError> {
        let mut reader = Reader { text, files, parameters: None };
        if text.len() > MOST_TEXT {
            return Err(reader.error(0, format!("a specification of {} bytes: at most {MOST_TEXT}", text.len())));
        }
        let document: Document = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            reader.error(at, meant(&error.message().trim().replace('\n', ", ")))
        })?;
        let (of, ops) = reader.of(&document)?;
        Ok((reader.specification(document, &of, ops, kernel)?, of))
    }

    /// The launches.
    pub(super) fn launches(&self) -> impl Iterator<Item = &LaunchSpec> {
        self.steps.iter().filter_map(|step| if let step::Kind::Launch(launch) = &step.kind { Some(&**launch) } else { None })
    }

    /// Whether a step speaks of a word.
    pub(super) fn mentions(&self, word: Word) -> bool {
        let mut found = false;
        self.steps.iter().for_each(|step| step.visit(&mut |quantity| found |= quantity.expression.mentions(word)));
        found
    }
}

struct Reader<'t> {
    text: &'t str,
    files: Files<'t>,
    /// The names of a task's parameters; none of a collective.
    parameters: Option<Vec<String>>,
}

/// What launches, steps and arguments refer to.
struct Scope<'s> {
    document: &'s Document,
    /// The kernel, where it was named outside.
    kernel: Option<&'s str>,
    ops: &'s [ReduceOp],
    /// Names of the buffers that calls bring.
    calls: Vec<(&'s str, Holder)>,
    buffers: &'s [Buffer],
}

impl Reader<'_> {
    fn place_of(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }

    fn error(&self, at: usize, problem: impl Into<String>) -> SpecError {
        let (line, column) = self.place_of(at);
        SpecError { line, column, problem: problem.into() }
    }

    fn refuse<T, V>(&self, value: &Spanned<V>, problem: impl Into<String>) -> Result<T, SpecError> {
        Err(self.error(value.span().start, problem))
    }

    /// What the calls are of, and their operators.
    fn of(&mut self, document: &Document) -> Result<(Of, Vec<ReduceOp>), SpecError> {
        let Document { name, collective, task, ops, call, contract, .. } = document;
        match (collective, task) {
            (Some(collective), None) => {
                let collective = *collective.get_ref();
                let ops = self.ops(document, collective)?;
                let calls = self.calls(name, collective, call.as_ref().map(Spanned::get_ref))?;
                Ok((Of::Collective(Box::new(calls)), ops))
            }
            (None, Some(task)) => {
                if let Some(ops) = ops {
                    return self.refuse(ops, "ops: a task has no operator of its own");
                }
                if let Some(call) = call {
                    return self.refuse(call, "[call] is of collectives: a task has parameters and tensors");
                }
                if let Some((key, at)) = contract.of_collectives() {
                    return Err(self.error(at, format!("{key} is of collectives: each output of a task has a contract of its own")));
                }
                let (task, source) = self.task(task)?;
                self.parameters = Some(task.parameters().iter().map(|parameter| parameter.name.clone()).collect());
                Ok((Of::Task(Arc::new(task), source), vec![ReduceOp::Copy]))
            }
            (Some(_), Some(task)) => self.refuse(task, "both collective and [task]: a specification is of one of them"),
            (None, None) => self.refuse(name, "neither collective nor [task]: what do the ranks do?"),
        }
    }

    fn calls(&self, name: &Spanned<String>, collective: Collective, call: Option<&document::OfCall>) -> Result<Calls, SpecError> {
        let none = document::OfCall::default();
        let call = call.unwrap_or(&none);
        let out_of_place = call.out_of_place.unwrap_or(true);
        if call.in_place && !collective.has_in_place() {
            return self.refuse(name, format!("in_place: {collective} has no call in place"));
        }
        if !call.in_place && !out_of_place {
            return self.refuse(name, "neither in_place nor out_of_place: no call is left");
        }
        let alignment = match &call.alignment {
            None => 1,
            Some(given) if given.get_ref().is_power_of_two() && *given.get_ref() <= MOST_ALIGNMENT => *given.get_ref(),
            Some(given) => {
                return self.refuse(given, format!("alignment {}: a power of two, at most {MOST_ALIGNMENT}", given.get_ref()));
            }
        };
        if let Some(counts) = call.counts.as_ref().filter(|counts| *counts.get_ref() && collective != Collective::AllToAll) {
            return self.refuse(counts, format!("counts: {collective} has parts of one length"));
        }
        let readable_behind = match &call.readable_behind {
            Some(given) if *given.get_ref() > GUARD => {
                return self.refuse(given, format!("readable_behind {}: at most {GUARD} bytes", given.get_ref()));
            }
            given => given.as_ref().map_or(0, |given| *given.get_ref()),
        };
        let least = |given: &Option<Spanned<Scalar>>, what: &str, value| match given {
            Some(given) => self.quantity(given, what, Word::OF_TYPES),
            None => Ok(Quantity::constant(value)),
        };
        Ok(Calls {
            collective,
            count_multiple_of: least(&call.count_multiple_of, "count_multiple_of", 1)?,
            least_count: least(&call.least_count, "least_count", 0)?,
            most_count: self.optional(&call.most_count, "most_count", Word::OF_TYPES)?,
            alignment,
            in_place: call.in_place,
            out_of_place,
            destroys_input: call.destroys_input,
            counts: call.counts.as_ref().is_some_and(|counts| *counts.get_ref()),
            readable_behind,
        })
    }

    /// The task of a `[task]`, and where its reference is.
    fn task(&self, written: &Spanned<document::Task>) -> Result<(Task, ReferenceSource), SpecError> {
        let document::Task { name, reference, parameters, tensors } = written.get_ref();
        let program = |list: &[Spanned<Scalar>]| {
            let word = |word: &Spanned<Scalar>| match word.get_ref() {
                Scalar::Text(text) if !text.is_empty() => Ok(text.clone()),
                _ => self.refuse(word, "reference: a program is a list of words"),
            };
            list.iter().map(word).collect::<Result<Vec<String>, _>>()
        };
        let source = match reference.get_ref() {
            Scalar::Text(text) => ReferenceSource::Named(text.clone()),
            Scalar::List(list) if !list.is_empty() => ReferenceSource::Program(program(list)?),
            _ => {
                return self.refuse(
                    reference,
                    "reference: expected the name of a built-in one, or a program as in [\"python3\", \"reference.py\"]",
                );
            }
        };
        let parameters: Vec<Parameter> = parameters
            .iter()
            .map(|parameter| {
                let document::Parameter { name, values, per_rank } = parameter.get_ref();
                Parameter { name: name.clone(), values: values.clone(), per_rank: *per_rank }
            })
            .collect();
        task::check_parameters(&parameters).map_err(|why| self.error(written.span().start, why))?;
        let names: Vec<String> = parameters.iter().map(|parameter| parameter.name.clone()).collect();
        let tensors = tensors.iter().map(|tensor| self.task_tensor(tensor.get_ref(), &names)).collect::<Result<Vec<_>, _>>()?;
        let task = Task::new(name.get_ref(), parameters, tensors).map_err(|why| self.error(written.span().start, why))?;
        Ok((task, source))
    }

    fn task_tensor(&self, written: &document::TaskTensor, parameters: &[String]) -> Result<task::Tensor, SpecError> {
        let document::TaskTensor { name, shape, role, dtype, contents, same_on_all_ranks, contract } = written;
        let dimension = |side: &Spanned<Scalar>| self.expression(side, "shape", Word::OF_TENSOR, parameters).map(|side| side.expression);
        let shape = shape.iter().map(dimension).collect::<Result<Vec<_>, _>>()?;
        let roles = TensorRole::ALL;
        let known = roles.iter().find(|(_, known)| *known == role.get_ref()).map(|(role, _)| *role);
        let Some(known) = known else {
            return self
                .refuse(role, format!("unknown role `{}`: {}", role.get_ref(), expected(role.get_ref(), &roles.map(|(_, name)| name))));
        };
        let mut tensor = task::Tensor::of_expressions(name.get_ref(), shape, known);
        (tensor.dtype, tensor.same_on_all_ranks) = (*dtype, *same_on_all_ranks);
        if let Some(contents) = contents {
            if !known.is_input() {
                return self.refuse(contents, "contents: an output is filled by the kernel");
            }
            let all = task::Contents::ALL;
            let Some(found) = all.into_iter().find(|known| known.name() == contents.get_ref()) else {
                let names = all.map(task::Contents::name);
                return self
                    .refuse(contents, format!("unknown contents `{}`: {}", contents.get_ref(), expected(contents.get_ref(), &names)));
            };
            tensor.contents = found;
        }
        match contract {
            Some(contract) if !known.is_output() => return self.refuse(contract, "contract: an input has none"),
            Some(contract) => tensor.acceptance = self.acceptance(contract, parameters)?,
            None if known.is_output() => {
                return self.refuse(name, format!("output `{}` has no contract, as in contract = {{ kind = \"bits\" }}", name.get_ref()));
            }
            None => {}
        }
        Ok(tensor)
    }

    fn acceptance(&self, written: &Spanned<document::OutputContract>, parameters: &[String]) -> Result<Acceptance, SpecError> {
        const KINDS: [&str; 4] = ["bits", "bound", "tolerance", "unspecified"];
        let document::OutputContract { kind, roundings, operations, accumulator, relative, absolute, reason } = written.get_ref();
        let of_bound = roundings.is_some() || operations.is_some() || accumulator.is_some();
        let of_tolerance = relative.is_some() || absolute.is_some() || reason.is_some();
        let kind_of = kind.get_ref().as_str();
        if of_bound && kind_of != "bound" || of_tolerance && kind_of != "tolerance" {
            return self.refuse(
                written,
                "roundings, operations and accumulator go with kind = \"bound\"; relative, absolute and reason with kind = \"tolerance\"",
            );
        }
        match kind_of {
            "bits" => Ok(Acceptance::Bits),
            "unspecified" => Ok(Acceptance::Unspecified),
            "bound" => {
                let operations =
                    operations.as_ref().map(|count| self.expression(count, "operations", Word::OF_TENSOR, parameters)).transpose()?;
                let accumulator = accumulator.unwrap_or(DType::F32);
                if !accumulator.is_float() {
                    return self.refuse(written, format!("accumulator {accumulator}: a float"));
                }
                let operations = operations.map(|count| Operations(count.expression));
                Ok(Acceptance::Bound { roundings: roundings.unwrap_or(1), operations, accumulator })
            }
            "tolerance" => {
                let reason = reason.as_deref().unwrap_or_default().trim();
                let (relative, absolute) = (relative.unwrap_or(0.0), absolute.unwrap_or(0.0));
                if reason.is_empty() {
                    return self.refuse(written, "a tolerance that nobody derived needs a reason = \"...\", which reports repeat");
                }
                if !(relative >= 0.0 && absolute >= 0.0 && relative + absolute > 0.0 && relative + absolute < f64::INFINITY) {
                    return self.refuse(written, "relative and absolute: numbers from 0, not both 0");
                }
                Ok(Acceptance::Tolerance { relative, absolute, reason: reason.to_owned() })
            }
            other => self.refuse(kind, format!("unknown kind `{other}`: {}", expected(other, &KINDS))),
        }
    }

    fn specification(&self, document: Document, of: &Of, ops: Vec<ReduceOp>, kernel: Option<&str>) -> Result<Specification, SpecError> {
        let Document { name, dtypes, worlds, call, contract, .. } = &document;
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.get_ref().is_empty() || name.get_ref().len() > 64 || !name.get_ref().chars().all(letters) {
            return self.refuse(name, format!("name `{}`: 1 to 64 of a-z, 0-9 and _", name.get_ref()));
        }
        self.distinct("dtypes", dtypes)?;
        self.distinct("worlds", worlds)?;
        let reduces = ops != [ReduceOp::Copy];
        if let Some(world) = worlds.get_ref().iter().find(|&&world| world == 0 || world as usize > MAX_RANKS) {
            return self.refuse(worlds, format!("world size {world}: a group has 1 to {MAX_RANKS} ranks"));
        }
        let items = [document.buffers.len(), document.arguments.len(), document.steps.len(), document.variables.len()];
        if items.into_iter().any(|items| items > MOST_ITEMS) {
            return self.refuse(name, format!("more than {MOST_ITEMS} buffers, arguments, steps or variables"));
        }
        let calls = match of {
            Of::Collective(_) => vec![("input", Holder::Input), ("output", Holder::Output)],
            Of::Task(task, _) => task.tensors().iter().enumerate().map(|(at, tensor)| (&*tensor.name, Holder::Tensor(at))).collect(),
        };
        let buffers = self.buffers(name.get_ref(), &document.buffers, &calls)?;
        let scope = Scope { document: &document, kernel, ops: &ops, calls, buffers: &buffers };
        let (steps, variables) = (self.steps(&scope, reduces)?, self.variables(&scope)?);
        let start =
            self.optional(&contract.start, "start", &[])?.map(|start| start.within("start", &Values::default(), 1, u32::MAX.into()));
        let start = start.transpose().map_err(|why| self.error(contract.start.as_ref().map_or(0, |start| start.span().start), why))?;
        for (name, reason) in &contract.assumes {
            if !ASSUMPTIONS.contains(&&**name.get_ref()) {
                return self.refuse(name, format!("unknown assumption `{}`: {}", name.get_ref(), expected(name.get_ref(), &ASSUMPTIONS)));
            }
            if reason.get_ref().trim().is_empty() {
                return self.refuse(reason, format!("assumption `{}` has no reason", name.get_ref()));
            }
        }
        let assumes = contract.assumes.iter().map(|(name, reason)| (name.get_ref().clone(), reason.get_ref().clone())).collect();
        let when = call.as_ref().map_or(Ok(None), |call| self.optional(&call.get_ref().when, "when", Word::OF_CONDITION))?;
        Ok(Specification {
            name: name.get_ref().clone(),
            dtypes: dtypes.get_ref().clone(),
            ops,
            worlds: worlds.get_ref().clone(),
            when,
            contract: contract.contract(reduces),
            start: start.map(|start| start as u32),
            assumes,
            buffers,
            variables,
            steps,
        })
    }

    /// The operators: those that are named, or the copy where nothing is reduced.
    fn ops(&self, document: &Document, collective: Collective) -> Result<Vec<ReduceOp>, SpecError> {
        let Document { name, ops, .. } = document;
        let Some(ops) = ops else {
            return match collective.operators() {
                [ReduceOp::Copy] => Ok(vec![ReduceOp::Copy]),
                _ => self.refuse(name, format!("no ops: {collective} reduces, and they name how")),
            };
        };
        self.distinct("ops", ops)?;
        if let Some(op) = ops.get_ref().iter().find(|op| !collective.operators().contains(op)) {
            return self.refuse(ops, format!("operator {op}: {collective} has none of that name"));
        }
        if ops.get_ref().contains(&ReduceOp::PremulSum) {
            return self.refuse(ops, format!("operator {}: a launch has no argument for a rank's factor", ReduceOp::PremulSum));
        }
        Ok(ops.get_ref().clone())
    }

    fn distinct<T: PartialEq>(&self, what: &str, list: &Spanned<Vec<T>>) -> Result<(), SpecError> {
        let items = list.get_ref();
        if items.is_empty() {
            return self.refuse(list, format!("{what} is empty"));
        }
        if items.iter().enumerate().any(|(at, item)| items[..at].contains(item)) {
            return self.refuse(list, format!("{what} names one twice"));
        }
        Ok(())
    }

    /// What each rank does: the steps that are written, or the copy of the input and the one launch.
    fn steps(&self, scope: &Scope<'_>, reduces: bool) -> Result<Vec<Step>, SpecError> {
        let Document { name, call, launch, arguments, steps: written, .. } = scope.document;
        let mut steps = Vec::new();
        if let Some(buffer) = call.as_ref().and_then(|call| call.get_ref().copy_input_to.as_ref()) {
            let to = self.place(buffer, None, scope)?;
            if !matches!(to.holder, Holder::Own(_)) {
                return self.refuse(buffer, "the input is copied to a buffer of the kernel's own");
            }
            let from = BufferPart { holder: Holder::Input, offset: Quantity::constant(0) };
            let kind = step::Kind::Copy { from, to, bytes: None, to_rank: None };
            steps.push(Step { kind, stream: 0, when: None, repeat: None });
        }
        if let Some(inner) = &launch.arguments {
            let at = inner.first().map_or(name.span().start, |argument| argument.span().start);
            return Err(self.error(at, "arguments of [launch] are written as [[argument]]"));
        }
        let common: Vec<Argument> = self.arguments(arguments, scope, 0)?;
        if written.is_empty() {
            let kind = step::Kind::Launch(Box::new(self.launch(launch, common.clone(), scope, reduces)?));
            steps.push(Step { kind, stream: 0, when: None, repeat: None });
        }
        for written in written {
            steps.push(self.step(written, &common, scope, reduces)?);
        }
        if !steps.iter().any(|step| matches!(step.kind, step::Kind::Launch(_) | step::Kind::Copy { .. })) {
            return self.refuse(name, "no step launches or copies anything");
        }
        Ok(steps)
    }

    fn step(&self, written: &Spanned<document::Step>, common: &[Argument], scope: &Scope<'_>, reduces: bool) -> Result<Step, SpecError> {
        let document::Step { launch, copy, fill, write, wait, join, when, repeat, stream } = written.get_ref();
        let given = [launch.is_some(), copy.is_some(), fill.is_some(), write.is_some(), wait.is_some(), join.is_some()];
        let number = given.iter().filter(|given| **given).count();
        if number != 1 {
            return self.refuse(written, format!("a step has exactly one of launch, copy, fill, write, wait, join: this one has {number}"));
        }
        let side = |stream: &Spanned<usize>| match stream.get_ref() {
            1..=MAX_SIDES => Ok(*stream.get_ref()),
            other => self.refuse(stream, format!("stream {other}: side streams are 1 to {MAX_SIDES}")),
        };
        let kind = if let Some(launch) = launch {
            let arguments = match &launch.get_ref().arguments {
                Some(arguments) => self.arguments(arguments, scope, 0)?,
                None => common.to_vec(),
            };
            step::Kind::Launch(Box::new(self.launch(launch.get_ref(), arguments, scope, reduces)?))
        } else if let Some(copy) = copy {
            let document::CopyStep { from, from_offset, to, to_offset, bytes, to_rank } = copy.get_ref();
            if to_rank.is_some() {
                self.reaches(to, scope)?;
            }
            step::Kind::Copy {
                from: self.place(from, from_offset.as_ref(), scope)?,
                to: self.place(to, to_offset.as_ref(), scope)?,
                bytes: self.optional(bytes, "bytes", Word::OF_STEP)?,
                to_rank: self.optional(to_rank, "to_rank", Word::OF_STEP)?,
            }
        } else if let Some(fill) = fill {
            let document::FillStep { buffer, offset, bytes, byte } = fill.get_ref();
            step::Kind::Fill {
                part: self.place(buffer, offset.as_ref(), scope)?,
                bytes: self.optional(bytes, "bytes", Word::OF_STEP)?,
                byte: self.quantity(byte, "byte", Word::OF_STEP)?,
            }
        } else if let Some(write) = write {
            let document::WordStep { buffer, offset, value, to_rank } = write.get_ref();
            if to_rank.is_some() {
                self.reaches(buffer, scope)?;
            }
            step::Kind::Write {
                part: self.place(buffer, offset.as_ref(), scope)?,
                value: self.quantity(value, "value", Word::OF_STEP)?,
                to_rank: self.optional(to_rank, "to_rank", Word::OF_STEP)?,
            }
        } else if let Some(wait) = wait {
            let document::WordStep { buffer, offset, value, to_rank } = wait.get_ref();
            if let Some(to_rank) = to_rank {
                return self.refuse(to_rank, "to_rank: a stream waits for words of its own rank");
            }
            step::Kind::Wait { part: self.place(buffer, offset.as_ref(), scope)?, value: self.quantity(value, "value", Word::OF_STEP)? }
        } else if let Some(join) = join {
            if let Some(stream) = stream {
                return self.refuse(stream, "stream: it is the call's own stream that joins another");
            }
            step::Kind::Join(side(join)?)
        } else {
            return self.refuse(written, "a step of no kind");
        };
        Ok(Step {
            kind,
            stream: stream.as_ref().map_or(Ok(0), side)?,
            when: self.optional(when, "when", Word::OF_STEP)?,
            repeat: self.optional(repeat, "repeat", Word::OF_STEP)?,
        })
    }

    /// One launch; what it leaves out is as in `[launch]`.
    fn launch(
        &self,
        written: &document::Launch,
        arguments: Vec<Argument>,
        scope: &Scope<'_>,
        reduces: bool,
    ) -> Result<LaunchSpec, SpecError> {
        let Document { name, launch: common, module, .. } = scope.document;
        fn or<'d, T>(own: &'d Option<T>, common: &'d Option<T>) -> Option<&'d T> {
            own.as_ref().or(common.as_ref())
        }
        let extent = |given: Option<&Spanned<Scalar>>, what: &str| match given {
            Some(given) => self.extent(given, what),
            None => self.refuse(name, format!("no {what} of the launch")),
        };
        let cluster = or(&written.cluster, &common.cluster).map(|cluster| self.extent(cluster, "cluster")).transpose()?;
        let dynamic_shared = or(&written.dynamic_shared, &common.dynamic_shared);
        let module = or(&written.module, &common.module).or(module.as_ref());
        let (document, own) = (scope.document, or(&written.entry, &common.entry));
        let listed = document.entries.values().next();
        let entry = own.or(document.entry.as_ref().filter(|_| scope.kernel.is_none())).or(listed).unwrap_or(name);
        let places = Places { module: self.place_of(module.unwrap_or(name).span().start), entry: self.place_of(entry.span().start) };
        let module = module.map(|module| Pattern::read(module.get_ref(), "module").map_err(|why| self.error(module.span().start, why)));
        Ok(LaunchSpec {
            names: Names {
                prefix: format!("{FOREIGN}{}", name.get_ref()),
                module: module.transpose()?,
                entries: self.entries(own, scope, reduces)?,
            },
            places,
            grid: extent(or(&written.grid, &common.grid), "grid")?,
            block: extent(or(&written.block, &common.block), "block")?,
            cluster,
            dynamic_shared: dynamic_shared.map(|given| self.quantity(given, "dynamic_shared", Word::OF_STEP)).transpose()?,
            waits_for_peers: or(&written.waits_for_peers, &common.waits_for_peers).copied().unwrap_or(true),
            programmatic: or(&written.programmatic, &common.programmatic).copied().unwrap_or(false),
            registers: match or(&written.registers, &common.registers) {
                Some(given) if !(1..=255).contains(given.get_ref()) => {
                    return self.refuse(given, format!("registers = {}: a thread has 1 to 255", given.get_ref()));
                }
                given => given.map(|given| *given.get_ref()),
            },
            arguments,
        })
    }

    /// Sizes along one to three axes.
    fn extent(&self, written: &Spanned<Scalar>, what: &str) -> Result<Extent, SpecError> {
        let Scalar::List(sizes) = written.get_ref() else { return Ok(Extent(vec![self.quantity(written, what, Word::OF_STEP)?])) };
        if !(1..=3).contains(&sizes.len()) {
            return self.refuse(written, format!("{what} of {} sizes: 1 to 3", sizes.len()));
        }
        sizes.iter().map(|size| self.quantity(size, what, Word::OF_STEP)).collect::<Result<_, _>>().map(Extent)
    }

    /// The kernel of each combination of dtype and operator. Where nothing is reduced, one may be for several types.
    fn entries(&self, own: Option<&Spanned<String>>, scope: &Scope<'_>, reduces: bool) -> Result<Entries, SpecError> {
        let Scope { document, kernel, ops, .. } = *scope;
        let Document { name, entry, entries, dtypes, .. } = document;
        let all: Vec<(DType, ReduceOp)> = dtypes.get_ref().iter().flat_map(|&dtype| ops.iter().map(move |&op| (dtype, op))).collect();
        let (pattern, at) = match (own, kernel, entry) {
            (Some(own), ..) => (own.get_ref().as_str(), own.span().start),
            (None, Some(kernel), _) => (kernel, name.span().start),
            (None, None, Some(entry)) if entries.is_empty() => (entry.get_ref().as_str(), entry.span().start),
            (None, None, Some(entry)) => return self.refuse(entry, "both entry and entries: one of them names the kernels"),
            (None, None, None) if entries.is_empty() => {
                return self.refuse(name, "no kernel: it is named by entry, by entries or on the command line");
            }
            (None, None, None) => {
                let mut found = BTreeMap::new();
                for (key, entry) in entries {
                    let known = all.iter().find(|(dtype, op)| format!("{dtype},{op}") == *key);
                    let Some(&combination) = known else {
                        return self.refuse(entry, format!("entries has `{key}`, which is no DTYPE,OP of dtypes and ops"));
                    };
                    let pattern = Pattern::read(entry.get_ref(), "kernel").map_err(|why| self.error(entry.span().start, why))?;
                    found.insert(combination, pattern);
                }
                return Ok(Entries::Listed(found));
            }
        };
        let read = Pattern::read(pattern, "kernel").map_err(|why| self.error(at, why))?;
        let differs = |placeholder, of: usize| of < 2 || read.has(placeholder);
        // A module for each type or operator may have its kernel under one name.
        let by_module = document.module.as_ref().is_some_and(|module| module.get_ref().contains('{'));
        if reduces && !by_module && !(differs("{dtype}", dtypes.get_ref().len()) && differs("{op}", ops.len())) {
            let reason = format!(
                "one kernel `{pattern}` for several of {} combinations of dtype and op: write {{dtype}} and {{op}} in its name, or entries",
                all.len()
            );
            return Err(self.error(at, reason));
        }
        Ok(Entries::Pattern(read))
    }

    fn buffers(&self, name: &str, written: &[Spanned<document::Buffer>], calls: &[(&str, Holder)]) -> Result<Vec<Buffer>, SpecError> {
        let mut buffers: Vec<Buffer> = Vec::new();
        for buffer in written.iter().map(Spanned::get_ref) {
            let own = buffer.name.get_ref();
            let full = format!("{name}.{own}");
            if own.is_empty() || calls.iter().any(|(known, _)| known == own) || buffers.iter().any(|known| known.name == full) {
                let of_calls: Vec<&str> = calls.iter().map(|(name, _)| *name).collect();
                return self.refuse(&buffer.name, format!("a second buffer `{own}`: {} are the call's", and(&of_calls)));
            }
            let role = match buffer.role {
                document::Purpose::Data | document::Purpose::Scratch => Role::Data,
                document::Purpose::Signals => Role::Signals,
                document::Purpose::State => Role::State,
            };
            buffers.push(Buffer {
                name: full,
                role,
                local: buffer.memory == document::Reach::Local,
                contents: buffer.fill.as_ref().map(|fill| self.contents(fill)).transpose()?,
                bytes: self.quantity(&buffer.bytes, &format!("bytes of buffer `{own}`"), Word::OF_CALL)?,
            });
        }
        Ok(buffers)
    }

    fn contents(&self, fill: &Spanned<document::Contents>) -> Result<Contents, SpecError> {
        let typed = match fill.get_ref() {
            document::Contents::Plain(Scalar::Text(text)) if text == "zero" => return Ok(Contents::Plain(Fill::Byte(0))),
            document::Contents::Plain(Scalar::Text(text)) if text == "uninitialised" => return Ok(Contents::Plain(Fill::Uninitialised)),
            document::Contents::Plain(Scalar::Integer(byte @ 0..=255)) => return Ok(Contents::Plain(Fill::Byte(*byte as u8))),
            document::Contents::Plain(_) => {
                return self.refuse(fill, "fill: expected \"zero\", \"uninitialised\", a byte from 0 to 255 or a table as { u32 = 1 }");
            }
            document::Contents::Typed(typed) => typed,
        };
        let document::Typed { u8, u16, u32, u64, i32, i64, f32, file } = &**typed;
        let integers = [(u8, 1), (u16, 2), (u32, 4), (u64, 8), (i32, 4), (i64, 8)];
        let words = integers.map(|(words, bytes)| (words, Bits::Integer(bytes))).into_iter().chain([(f32, Bits::Float)]);
        let words: Vec<(&Spanned<Scalar>, Bits)> = words.filter_map(|(words, bits)| Some((words.as_ref()?, bits))).collect();
        match (&words[..], file) {
            ([], Some(file)) => (self.files)(file.get_ref()).map(Contents::Bytes).map_err(|why| self.error(file.span().start, why)),
            ([(words, bits)], None) => {
                let one = |word: &Spanned<Scalar>| self.quantity(&self.wrapped(word, *bits)?, "fill", Word::OF_CONTENTS);
                match words.get_ref() {
                    Scalar::List(list) => Ok(Contents::Listed(*bits, list.iter().map(one).collect::<Result<_, _>>()?)),
                    _ => Ok(Contents::Each(*bits, one(words)?)),
                }
            }
            _ => self.refuse(fill, "fill: exactly one of u8, u16, u32, u64, i32, i64, f32, file"),
        }
    }

    /// A negative number as the bits of a word; anything else as it is.
    fn wrapped(&self, word: &Spanned<Scalar>, bits: Bits) -> Result<Spanned<Scalar>, SpecError> {
        let value = match (word.get_ref(), bits) {
            (Scalar::Integer(value @ ..0), Bits::Integer(bytes)) if *value >= i64::MIN >> (64 - 8 * bytes) => {
                Scalar::Text((*value as u64 & (u64::MAX >> (64 - 8 * bytes))).to_string())
            }
            (Scalar::Integer(value), _) => Scalar::Integer(*value),
            (Scalar::Float(value), _) => Scalar::Float(*value),
            (Scalar::Text(text), _) => Scalar::Text(text.clone()),
            (Scalar::List(_), _) => return self.refuse(word, "fill: a list in a list"),
        };
        Ok(Spanned::new(word.span(), value))
    }

    fn variables(&self, scope: &Scope<'_>) -> Result<Vec<Variable>, SpecError> {
        let mut variables: Vec<Variable> = Vec::new();
        for variable in scope.document.variables.iter().map(Spanned::get_ref) {
            let name = variable.name.get_ref();
            if name.is_empty() || variables.iter().any(|known| known.name == *name) {
                return self.refuse(&variable.name, format!("variable `{name}`: a name of the module's, once"));
            }
            if variable.value.is_empty() || variable.value.len() > MOST_ITEMS {
                return self.refuse(&variable.name, format!("value of `{name}`: 1 to {MOST_ITEMS} fields"));
            }
            let value = self.arguments(&variable.value, scope, 1)?;
            for (argument, written) in value.iter().zip(&variable.value) {
                if argument.is_of_call() {
                    return self.refuse(written, "a variable is set once for a group: input and output are a call's");
                }
                let mut wrong = None;
                argument.visit(&mut |quantity| {
                    let word =
                        Word::OF_ARGUMENT.iter().find(|word| !Word::OF_VARIABLE.contains(word) && quantity.expression.mentions(**word));
                    wrong = wrong.or(word);
                });
                if let Some(word) = wrong {
                    return self.refuse(written, format!("a variable is set once for a group: `{}` is a call's", word.name()));
                }
            }
            variables.push(Variable { name: name.clone(), place: self.place_of(variable.name.span().start), value });
        }
        Ok(variables)
    }

    fn optional(&self, written: &Option<Spanned<Scalar>>, what: &str, words: &[Word]) -> Result<Option<Quantity>, SpecError> {
        written.as_ref().map(|written| self.quantity(written, what, words)).transpose()
    }

    fn quantity(&self, written: &Spanned<Scalar>, what: &str, words: &[Word]) -> Result<Quantity, SpecError> {
        match &self.parameters {
            None => self.expression(written, what, words, &[]),
            Some(parameters) => {
                let words: Vec<Word> = words.iter().copied().filter(|word| !Word::OF_COLLECTIVE.contains(word)).collect();
                self.expression(written, what, &words, parameters)
            }
        }
    }

    fn expression(&self, written: &Spanned<Scalar>, what: &str, words: &[Word], parameters: &[String]) -> Result<Quantity, SpecError> {
        let start = written.span().start;
        match written.get_ref() {
            Scalar::Integer(value) => match u64::try_from(*value) {
                Ok(value) => {
                    let (line, column) = self.place_of(start);
                    Ok(Quantity { expression: Expression::constant(value), what: what.to_owned(), line, column })
                }
                Err(_) => self.refuse(written, format!("{what} = {value}: it must not be negative")),
            },
            Scalar::Float(value) => self.refuse(written, format!("{what} = {value}: it must be an integer or an expression")),
            Scalar::List(_) => self.refuse(written, format!("{what}: expected one number or expression, not a list")),
            Scalar::Text(text) => {
                // The text starts behind its quote.
                let (line, column) = self.place_of(start + 1);
                let expression = Expression::read_with(text, words, parameters)
                    .map_err(|problem| self.error(start + 1 + problem.at, format!("{} in {what}", problem.what)))?;
                Ok(Quantity { expression, what: what.to_owned(), line, column })
            }
        }
    }

    fn place(&self, buffer: &Spanned<String>, offset: Option<&Spanned<Scalar>>, scope: &Scope<'_>) -> Result<BufferPart, SpecError> {
        let buffers = scope.buffers;
        let name = buffer.get_ref();
        let own = |buffer: &Buffer| buffer.name.split_once('.').is_some_and(|(_, own)| own == name);
        let holder = match scope.calls.iter().find(|(known, _)| known == name) {
            Some((_, holder)) => *holder,
            None => Holder::Own(buffers.iter().position(own).ok_or_else(|| {
                let known = buffers.iter().filter_map(|buffer| buffer.name.split_once('.')).map(|(_, own)| own);
                let known: Vec<&str> = scope.calls.iter().map(|(name, _)| *name).chain(known).collect();
                self.error(buffer.span().start, format!("unknown buffer `{name}`: {}", expected(name, &known)))
            })?),
        };
        let offset = offset.map(|offset| self.quantity(offset, "offset", Word::OF_ARGUMENT)).transpose()?;
        Ok(BufferPart { holder, offset: offset.unwrap_or(Quantity::constant(0)) })
    }

    /// Refuses a buffer that peers have no address of.
    fn reaches(&self, buffer: &Spanned<String>, scope: &Scope<'_>) -> Result<(), SpecError> {
        match self.place(buffer, None, scope)?.holder {
            Holder::Own(index) if scope.buffers[index].local => {
                self.refuse(buffer, format!("buffer `{}` is local: peers have no address of it", buffer.get_ref()))
            }
            _ => Ok(()),
        }
    }

    fn arguments(&self, written: &[Spanned<document::Argument>], scope: &Scope<'_>, depth: usize) -> Result<Vec<Argument>, SpecError> {
        written.iter().map(|argument| self.argument(argument, scope, depth)).collect()
    }

    fn argument(&self, written: &Spanned<document::Argument>, scope: &Scope<'_>, depth: usize) -> Result<Argument, SpecError> {
        let repeat = self.optional(&written.get_ref().repeat, "repeat", Word::OF_ARGUMENT)?;
        Ok(Argument { place: self.place_of(written.span().start), kind: self.kind(written, scope, depth)?, repeat })
    }

    fn kind(&self, written: &Spanned<document::Argument>, scope: &Scope<'_>, depth: usize) -> Result<Kind, SpecError> {
        let document::Argument { u8, u16, u32, i32, u64, i64, f32, .. } = written.get_ref();
        let document::Argument {
            pointer,
            peers,
            peer_table,
            multicast,
            stride,
            shift,
            bits,
            tensor_map,
            fields,
            memory,
            offset,
            length,
            of_rank,
            ..
        } = written.get_ref();
        let given = [u8, u16, u32, i32, u64, i64, f32].iter().filter(|kind| kind.is_some()).count()
            + [pointer, peers, peer_table, multicast, stride].iter().filter(|kind| kind.is_some()).count()
            + [fields, memory].iter().filter(|kind| kind.is_some()).count()
            + usize::from(tensor_map.is_some());
        if given != 1 {
            let kinds = "u8, u16, u32, i32, u64, i64, f32, pointer, peers, peer_table, multicast, stride, tensor_map, struct, memory";
            return self.refuse(written, format!("an argument has exactly one of {kinds}: this one has {given}"));
        }
        let of_map = tensor_map.as_ref().map(|tensor| &tensor.buffer);
        let addressed = [pointer, peers, peer_table, multicast, stride].into_iter().flatten().next().or(of_map);
        if let (Some(offset), None) = (offset, addressed) {
            return self.refuse(offset, "offset goes with a buffer");
        }
        for (key, given) in [("shift", shift), ("bits", bits)] {
            if let (Some(given), None) = (given, stride) {
                return self.refuse(given, format!("{key} goes with stride"));
            }
        }
        if let (Some(length), None) = (length, peers) {
            return self.refuse(length, "length goes with peers");
        }
        if let (Some(of_rank), None) = (of_rank, pointer.as_ref().or(of_map)) {
            return self.refuse(of_rank, "of_rank goes with pointer or tensor_map");
        }
        let scalars: [(_, u32, bool); 6] =
            [(u8, 8, false), (u16, 16, false), (u32, 32, false), (i32, 32, true), (u64, 64, false), (i64, 64, true)];
        for (scalar, bits, signed) in scalars {
            if let Some(scalar) = scalar {
                return self.integer(scalar, bits, signed);
            }
        }
        if let Some(value) = f32 {
            return Ok(match value.get_ref() {
                Scalar::Float(float) => Kind::Fixed(Arg::U32((*float as f32).to_bits())),
                Scalar::Integer(integer) => Kind::Fixed(Arg::U32((*integer as f32).to_bits())),
                Scalar::Text(_) | Scalar::List(_) => Kind::Float(self.quantity(value, "f32", Word::OF_ARGUMENT)?),
            });
        }
        if let Some(inner) = fields.as_ref().or(memory.as_ref()) {
            if depth == MOST_DEPTH || inner.is_empty() || inner.len() > MOST_ITEMS {
                return self.refuse(written, format!("a struct has 1 to {MOST_ITEMS} fields and at most {MOST_DEPTH} levels"));
            }
            let inner = self.arguments(inner, scope, depth + 1)?;
            return Ok(if fields.is_some() { Kind::Struct(inner) } else { Kind::Memory(inner) });
        }
        let Some(buffer) = addressed else { return self.refuse(written, "an argument of no kind") };
        let place = self.place(buffer, offset.as_ref(), scope)?;
        if of_rank.is_some() {
            self.reaches(buffer, scope)?;
        }
        if let Some(tensor) = tensor_map {
            let of_rank = self.optional(of_rank, "of_rank", Word::OF_ARGUMENT)?;
            return self.tensor(tensor, place, of_rank).map(|tensor| Kind::TensorMap(Box::new(tensor)));
        }
        if pointer.is_some() {
            return Ok(Kind::Pointer(place, self.optional(of_rank, "of_rank", Word::OF_ARGUMENT)?));
        }
        self.reaches(buffer, scope)?;
        if peer_table.is_some() {
            return Ok(Kind::PeerTable(place));
        }
        if multicast.is_some() {
            return Ok(Kind::Multicast(place));
        }
        if stride.is_some() {
            if let Some(shift) = shift.as_ref().filter(|shift| *shift.get_ref() > 63) {
                return self.refuse(shift, format!("shift {}: 0 to 63", shift.get_ref()));
            }
            if let Some(bits) = bits.as_ref().filter(|bits| ![32, 64].contains(bits.get_ref())) {
                return self.refuse(bits, format!("bits {}: 32 or 64", bits.get_ref()));
            }
            let (shift, bits) = (shift.as_ref().map_or(0, |shift| *shift.get_ref()), bits.as_ref().map_or(64, |bits| *bits.get_ref()));
            return Ok(match (shift, bits) {
                (0, 64) => Kind::Stride(place),
                _ => Kind::ShiftedStride { part: place, shift, bytes: bits / 8 },
            });
        }
        if let Some(length) = length {
            let most = scope.document.worlds.get_ref().iter().copied().max().unwrap_or(1);
            if *length.get_ref() < most || *length.get_ref() as usize > MAX_RANKS {
                return self
                    .refuse(length, format!("length {}: at least the largest world, {most}, and at most {MAX_RANKS}", length.get_ref()));
            }
        }
        Ok(Kind::Peers(place, length.as_ref().map(|length| *length.get_ref())))
    }

    fn tensor(&self, written: &document::Tensor, part: BufferPart, of_rank: Option<Quantity>) -> Result<Tensor, SpecError> {
        let document::Tensor { dtype, extents, strides, tile, element_strides, interleave, swizzle, outside, .. } = written;
        let list = |what: &str, written: &[Spanned<Scalar>]| {
            written.iter().map(|side| self.quantity(side, what, Word::OF_ARGUMENT)).collect::<Result<Vec<_>, _>>()
        };
        Ok(Tensor {
            part,
            of_rank,
            dtype: *dtype,
            extents: list("an extent", extents)?,
            strides: list("a stride", strides)?,
            tile: list("a side of a box", tile)?,
            element_strides: list("an element stride", element_strides)?,
            interleave: *interleave,
            swizzle: *swizzle,
            outside: *outside,
        })
    }

    fn integer(&self, written: &Spanned<Scalar>, bits: u32, signed: bool) -> Result<Kind, SpecError> {
        let Scalar::Integer(value @ ..0) = written.get_ref() else {
            let what = format!("{}{bits}", if signed { 'i' } else { 'u' });
            let quantity = self.quantity(written, &what, Word::OF_ARGUMENT)?;
            let most = (u64::MAX >> (64 - bits)) >> u32::from(signed);
            return Ok(Kind::Integer { quantity, bits, most });
        };
        let fits = signed && (bits == 64 || i32::try_from(*value).is_ok());
        match (fits, bits) {
            (true, 32) => Ok(Kind::Fixed(Arg::U32(*value as u32))),
            (true, _) => Ok(Kind::Fixed(Arg::U64(*value as u64))),
            (false, _) => self.refuse(written, format!("{value} does not fit {}{bits}", if signed { 'i' } else { 'u' })),
        }
    }
}
