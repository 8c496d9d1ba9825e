//! A module as written to a decoded one.

mod arithmetic;
mod asynchronous;
mod data;
mod matrix;
mod tensor;
mod threads;

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    error::{MAX_UNKNOWN, Position, PtxError, shortened},
    form::{Form, Targets, immediate},
    instruction::{Address, Base, Condition, Instruction, Operation, Signature, SourceLine},
    module::{Function, LaunchBounds, Module, Parameter, ParameterPlace, Relocated, Relocation, Variable},
    names::{Layout, MAX_TABLES, Names, Prototype, Symbol, elements, extent},
    operations::{BitOp, UnaryOp},
    registers::{MAX_LIVENESS_WORK, RegisterCounts, compact},
    syntax::{self, Initial, OperandKind, Statement, Storage},
    types::{BooleanOp, Space},
};

/// Decodes a module. Instructions that are not known become [`Instruction::Unknown`].
///
/// # Errors
/// At the first name that is not declared, or is so twice, at the first declaration that is wrong, and at an unknown instruction too many.
pub(super) fn module<'t>(written: &'t syntax::Module<'t>) -> Result<Module, PtxError> {
    let mut decoder = Decoder {
        targets: Targets { version: written.version, names: &written.targets },
        variables: Vec::new(),
        symbols: HashMap::new(),
        callable: HashMap::new(),
        shared: Layout::default(),
        table_labels: MAX_TABLES,
        liveness_work: MAX_LIVENESS_WORK,
        unknown: 0,
        dynamic_align: 0,
    };
    let mut defined = HashSet::new();
    for function in written.functions.iter().filter(|function| function.body.is_some()) {
        if !defined.insert(function.name) {
            return Err(PtxError::redeclared(function.at, function.name));
        }
    }
    let (mut bodies, mut names, mut functions) = (Vec::new(), Vec::new(), Vec::new());
    for function in &written.functions {
        let (signature, scope) = signature(function)?;
        // Calls to a function that was declared first and defined later go to the definition.
        if function.body.is_some() || !defined.contains(function.name) {
            bodies.push(function);
            names.push(scope);
            functions.push(signature);
        }
    }
    // Of several declarations the first.
    for (index, function) in bodies.iter().enumerate().rev().filter(|(_, function)| !function.entry) {
        decoder.callable.insert(function.name, index);
    }
    // After the names of functions, whose addresses a table may hold.
    for variable in &written.variables {
        let symbol = decoder.declare(variable, None)?;
        if decoder.symbols.insert(variable.name, symbol).is_some() && !variable.external {
            return Err(PtxError::redeclared(variable.at, variable.name));
        }
    }
    // Functions first: their shared variables come before those of kernels.
    for entry in [false, true] {
        for (index, function) in bodies.iter().enumerate().filter(|(_, function)| function.entry == entry) {
            let decoded = decoder.function(function, &functions, index, std::mem::take(&mut names[index]))?;
            functions[index] = decoded;
        }
    }
    let addressed = addressed(&decoder.variables, &functions);
    Ok(Module {
        version: written.version,
        targets: written.targets.iter().map(|&target| target.to_owned()).collect(),
        files: written.files.iter().map(|&(index, path)| (index, path.to_owned())).collect(),
        variables: decoder.variables,
        functions,
        dynamic_align: decoder.dynamic_align,
        unknown: decoder.unknown,
        addressed,
    })
}

/// Functions whose address an initial value holds or an instruction takes, by index.
fn addressed(variables: &[Variable], functions: &[Function]) -> Vec<u32> {
    let in_tables = variables.iter().flat_map(|variable| &variable.relocations).filter_map(|relocation| match relocation.of {
        Relocated::Function(index) => Some(index),
        Relocated::Variable(_) => None,
    });
    let taken = functions.iter().flat_map(|function| &function.code).filter_map(|operation| match operation.instruction {
        Instruction::AddressOf { address: Address { base: Base::Function(index), .. }, .. } => Some(index),
        _ => None,
    });
    BTreeSet::from_iter(in_tables.chain(taken)).into_iter().collect()
}

/// A function without its code, and the scopes of its body in which its parameters are declared.
fn signature<'t>(written: &'t syntax::Function<'t>) -> Result<(Function, Names<'t>), PtxError> {
    let mut names = Names::default();
    let mut layout = Layout::default();
    let mut parameters = |declared: &'t [syntax::Variable<'t>], names: &mut Names<'t>| -> Result<Vec<Parameter>, PtxError> {
        declared.iter().map(|variable| parameter(variable, &mut layout, names)).collect::<Result<_, _>>()
    };
    let inputs = parameters(&written.inputs, &mut names)?;
    let input_bytes = inputs.iter().map(end).max().unwrap_or(0);
    let returns = parameters(&written.returns, &mut names)?;
    let function = Function {
        name: written.name.to_owned(),
        entry: written.entry,
        external: written.body.is_none(),
        inputs,
        returns,
        input_bytes,
        param_bytes: layout.bytes as u32,
        local_bytes: 0,
        shared_bytes: 0,
        bounds: bounds(&written.bounds)?,
        registers: RegisterCounts::default(),
        declared_registers: RegisterCounts::default(),
        code: Vec::new(),
    };
    Ok((function, names))
}

/// A prototype, laid out as the functions that are called by it are.
fn prototype(written: &syntax::Prototype<'_>) -> Result<Prototype, PtxError> {
    let mut layout = Layout::default();
    let mut places = |declared: &[syntax::Variable<'_>]| -> Result<Vec<Parameter>, PtxError> {
        let unnamed = declared.iter().map(|variable| syntax::Variable { name: "_", ..variable.clone() });
        unnamed.map(|variable| parameter(&variable, &mut layout, &mut Names::default())).collect()
    };
    let inputs = places(&written.inputs)?;
    let returns = places(&written.returns)?;
    let at = written.inputs.iter().chain(&written.returns).next().map_or_else(Position::default, |variable| variable.at);
    let signature = Signature::of(&inputs, &returns).ok_or_else(|| in_registers(at))?;
    Ok(Prototype { inputs, returns, signature })
}

/// The prototype of functions that are called as this one is.
fn of_function(function: &Function, at: Position) -> Result<Prototype, PtxError> {
    let signature = function.signature().ok_or_else(|| in_registers(at))?;
    Ok(Prototype { inputs: function.inputs.clone(), returns: function.returns.clone(), signature })
}

fn in_registers(at: Position) -> PtxError {
    PtxError::syntax(at, "a parameter in a register", "one of .param, as indirect calls pass them")
}

fn end(parameter: &Parameter) -> u32 {
    match parameter.place {
        ParameterPlace::Offset(offset) => offset + parameter.bytes,
        ParameterPlace::Register(_) => 0,
    }
}

fn parameter<'t>(variable: &'t syntax::Variable<'t>, layout: &mut Layout, names: &mut Names<'t>) -> Result<Parameter, PtxError> {
    let (bytes, align) = extent(variable)?;
    let place = match variable.storage {
        Storage::Memory(Space::Param) => {
            let (offset, bytes) = layout.place(variable)?;
            let symbol = Symbol { space: Space::Param, base: Base::Zero, offset, bytes };
            if variable.name != "_" {
                names.declare_symbol(variable.name, symbol, variable.at)?;
            }
            ParameterPlace::Offset(offset as u32)
        }
        Storage::Register if variable.range.is_none() => {
            names.declare_register(variable)?;
            let declared = names.register((variable.name, None), variable.at)?;
            let declared = declared.ok_or_else(|| PtxError::undeclared(variable.at, variable.name, "register"))?;
            ParameterPlace::Register(declared.register)
        }
        _ => return Err(PtxError::syntax(variable.at, "this parameter", "one of .param or one register")),
    };
    let pointer = variable.pointer.map(|(space, align)| (space, align as u32));
    Ok(Parameter { name: variable.name.to_owned(), ty: variable.ty, bytes: bytes as u32, align: align as u32, pointer, place })
}

fn bounds(written: &[(&str, Vec<u64>, Position)]) -> Result<LaunchBounds, PtxError> {
    let mut bounds = LaunchBounds::default();
    for (name, values, at) in written {
        let small: Option<Vec<u32>> = values.iter().map(|&value| u32::try_from(value).ok()).collect();
        let small = small.ok_or_else(|| PtxError::limit(*at, format!("a number of `.{name}`"), u32::MAX.into()))?;
        let wrong = || PtxError::syntax(*at, format!("`.{name}` with {} numbers", values.len()), "as many as it takes");
        let axes = match small[..] {
            [x] => Some([x, 1, 1]),
            [x, y] => Some([x, y, 1]),
            [x, y, z] => Some([x, y, z]),
            _ => None,
        };
        let one = if small.len() == 1 { Some(small[0]) } else { None };
        match *name {
            "maxntid" => bounds.max_threads = Some(axes.ok_or_else(wrong)?),
            "reqntid" => bounds.required_threads = Some(axes.ok_or_else(wrong)?),
            "reqnctapercluster" => bounds.required_cluster = Some(axes.ok_or_else(wrong)?),
            "minnctapersm" | "maxnctapersm" => bounds.min_blocks_per_sm = Some(one.ok_or_else(wrong)?),
            "maxnreg" => bounds.max_registers = Some(one.ok_or_else(wrong)?),
            "maxclusterrank" => bounds.max_cluster = Some(one.ok_or_else(wrong)?),
            "explicitcluster" => bounds.explicit_cluster = true,
            _ => bounds.blocks_are_clusters = true,
        }
    }
    Ok(bounds)
}

struct Decoder<'t> {
    targets: Targets<'t>,
    variables: Vec<Variable>,
    symbols: HashMap<&'t str, Symbol>,
    /// Functions that are no kernels, by name.
    callable: HashMap<&'t str, usize>,
    /// Shared variables of the module and of functions.
    shared: Layout,
    /// How many labels of branch tables instructions may still use.
    table_labels: usize,
    /// How much work may still be done to find registers that can share a slot.
    liveness_work: usize,
    /// Instructions that are unknown so far.
    unknown: usize,
    /// The largest alignment of extern shared memory so far.
    dynamic_align: u32,
}

impl<'t> Decoder<'t> {
    /// A variable outside registers, parameters and local memory; `shared` is the layout of the kernel that it stands in.
    fn declare(&mut self, variable: &syntax::Variable<'t>, shared: Option<&mut Layout>) -> Result<Symbol, PtxError> {
        let Storage::Memory(space) = variable.storage else {
            return Err(PtxError::syntax(variable.at, "registers", "a variable in memory"));
        };
        let (bytes, align) = extent(variable)?;
        if space == Space::Shared && (variable.external || variable.elements == Some(None)) {
            self.dynamic_align = self.dynamic_align.max(align as u32);
            return Ok(Symbol { space, base: Base::DynamicShared { align: align as u32 }, offset: 0, bytes });
        }
        if space == Space::Shared {
            let (offset, bytes) = shared.unwrap_or(&mut self.shared).place(variable)?;
            return Ok(Symbol { space, base: Base::Zero, offset, bytes });
        }
        let base = Base::Variable(self.variables.len() as u32);
        let (initial, relocations) = self.initial(variable, bytes)?;
        let (name, external, align) = (variable.name.to_owned(), variable.external, align as u32);
        self.variables.push(Variable { name, space, bytes, align, external, initial, relocations });
        Ok(Symbol { space, base, offset: 0, bytes })
    }

    fn initial(&self, variable: &syntax::Variable<'t>, bytes: u64) -> Result<(Vec<u8>, Vec<Relocation>), PtxError> {
        let width = variable.ty.bytes() as usize;
        let (mut initial, mut relocations) = (Vec::new(), Vec::new());
        for &(element, at) in &variable.initial {
            if (initial.len() + width) as u64 > bytes {
                return Err(PtxError::limit(at, "an initial value longer than its variable, in bytes", bytes));
            }
            match element {
                Initial::Number(number) => {
                    let value = immediate(number, variable.ty);
                    let value = value.ok_or_else(|| PtxError::syntax(at, "this constant", format!("one of type .{}", variable.ty)))?;
                    initial.extend_from_slice(&value.to_le_bytes()[..width]);
                }
                Initial::Address { name, generic, offset } => {
                    let function = self.callable.get(name).filter(|_| offset == 0).map(|&index| Relocated::Function(index as u32));
                    let of = match (self.symbols.get(name).map(|symbol| symbol.base), function) {
                        (Some(Base::Variable(index)), _) => Relocated::Variable(index),
                        (Some(_), _) => {
                            return Err(PtxError::syntax(at, format!("`{}`", shortened(name)), "a variable of .global or .const"));
                        }
                        (None, Some(function)) => function,
                        (None, None) => return Err(PtxError::undeclared(at, name, "variable or function")),
                    };
                    if width != 8 {
                        return Err(PtxError::syntax(at, format!("an address in .{}", variable.ty), "a type of 64 bits"));
                    }
                    relocations.push(Relocation { at: initial.len() as u64, of, generic, offset });
                    initial.extend_from_slice(&[0; 8]);
                }
            }
        }
        Ok((initial, relocations))
    }

    fn function(
        &mut self,
        written: &'t syntax::Function<'t>,
        functions: &[Function],
        index: usize,
        mut names: Names<'t>,
    ) -> Result<Function, PtxError> {
        let mut function = functions[index].clone();
        let Some(body) = &written.body else { return Ok(function) };
        names.enter(body)?;
        let mut kernel_shared = self.shared;
        let (mut local, mut param) = (Layout::default(), Layout { bytes: function.param_bytes.into() });
        let mut source = None;
        for statement in body {
            match statement {
                Statement::Open => names.open(),
                Statement::Close => names.close(),
                Statement::Label(..) | Statement::BranchTargets(..) => {}
                Statement::Prototype(name, at, written) => names.declare_prototype(name, prototype(written)?, *at)?,
                Statement::CallTargets(name, at, targets) => {
                    let mut of = targets.iter().map(|&(target, at)| {
                        let index = self.callable.get(target).ok_or_else(|| PtxError::undeclared(at, target, "function"))?;
                        Ok(&functions[*index])
                    });
                    let first = of.next().ok_or_else(|| PtxError::syntax(*at, "no function", "a function's name"))??;
                    names.declare_prototype(name, of_function(first, *at)?, *at)?;
                }
                Statement::Loc([file, line, column]) => source = Some(SourceLine { file: *file, line: *line, column: *column }),
                Statement::Variable(variable) if variable.storage == Storage::Register => names.declare_register(variable)?,
                Statement::Variable(variable) => {
                    let own = match variable.storage {
                        Storage::Memory(Space::Local) => Some((Space::Local, &mut local)),
                        Storage::Memory(Space::Param) => Some((Space::Param, &mut param)),
                        _ => None,
                    };
                    let symbol = if let Some((space, layout)) = own {
                        let (offset, bytes) = layout.place(variable)?;
                        Symbol { space, base: Base::Zero, offset, bytes }
                    } else {
                        self.declare(variable, if written.entry { Some(&mut kernel_shared) } else { None })?
                    };
                    names.declare_symbol(variable.name, symbol, variable.at)?;
                }
                Statement::Instruction(instruction) => {
                    let (guard, decoded) = match self.instruction(&mut names, functions, written.entry, instruction) {
                        Err(error) if error.is_of_one_instruction() && self.unknown < MAX_UNKNOWN => {
                            self.unknown += 1;
                            (None, Instruction::Unknown { error: Box::new(error) })
                        }
                        decoded => decoded?,
                    };
                    function.code.push(Operation { guard, instruction: decoded, at: instruction.at, source });
                }
            }
        }
        function.code.push(Operation { guard: None, instruction: Instruction::Return {}, at: written.end, source });
        function.local_bytes = local.bytes as u32;
        function.param_bytes = param.bytes as u32;
        function.shared_bytes = if written.entry { kernel_shared.bytes } else { self.shared.bytes } as u32;
        function.declared_registers = names.counts;
        let mut passed = function.inputs.iter().chain(&function.returns);
        // Callers know the slots of parameters that are registers.
        let fixed = passed.any(|parameter| matches!(parameter.place, ParameterPlace::Register(_)));
        function.registers = if fixed { names.counts } else { compact(&mut function.code, names.counts, &mut self.liveness_work) };
        Ok(function)
    }

    fn instruction(
        &mut self,
        names: &mut Names<'t>,
        functions: &[Function],
        in_entry: bool,
        written: &syntax::Instruction<'t>,
    ) -> Result<(Option<Condition>, Instruction), PtxError> {
        if let Some(error) = &written.unreadable {
            return Err((**error).clone());
        }
        let spread = names.has_vectors().then(|| spread(names, written));
        let written = spread.as_ref().unwrap_or(written);
        let names = (names, &mut self.table_labels);
        operation(Form::new(names, (&self.symbols, &self.callable, self.targets), functions, in_entry, written))
    }
}

/// The instruction with its vectors as lists of their elements: `{%a.x, %a.y}` for `%a`.
fn spread<'t>(names: &Names<'t>, written: &syntax::Instruction<'t>) -> syntax::Instruction<'t> {
    let mut spread = written.clone();
    for operand in &mut spread.operands {
        if let OperandKind::Name(name, None) = operand.kind
            && let Some(count) = names.vector(name)
        {
            let at = operand.at;
            let items = elements(count).map(|element| syntax::Operand { at, kind: OperandKind::Name(name, Some(element)) });
            operand.kind = OperandKind::Vector(items.collect());
        }
    }
    spread
}

fn operation(mut form: Form<'_, '_>) -> Result<(Option<Condition>, Instruction), PtxError> {
    let guard = form.guard()?;
    let instruction = instruction(&mut form)?;
    form.finish()?;
    Ok((guard, instruction))
}

fn instruction(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    match f.instruction.opcode {
        "mov" => data::mov(f),
        "ld" => data::ld(f),
        "st" => data::st(f),
        "cvta" => data::cvta(f),
        "isspacep" => data::isspacep(f),
        "mapa" => data::mapa(f),
        "getctarank" => data::getctarank(f),
        "cvt" => data::cvt(f),
        op @ ("add" | "sub" | "mul" | "div" | "rem" | "min" | "max") => arithmetic::binary(f, op),
        "mad" => arithmetic::mad(f),
        "fma" => arithmetic::fma_of_any(f),
        "neg" => arithmetic::sign(f, UnaryOp::Negate),
        "abs" => arithmetic::sign(f, UnaryOp::Absolute),
        "copysign" => arithmetic::copysign(f),
        "testp" => arithmetic::testp(f),
        "and" => arithmetic::logic(f, BooleanOp::And),
        "or" => arithmetic::logic(f, BooleanOp::Or),
        "xor" => arithmetic::logic(f, BooleanOp::Xor),
        "lop3" => arithmetic::lop3(f),
        "bfind" => arithmetic::bfind(f),
        "shl" => arithmetic::shift(f, true),
        "shr" => arithmetic::shift(f, false),
        "shf" => arithmetic::funnel_shift(f),
        "bfi" => arithmetic::bfi(f),
        "bfe" => arithmetic::bfe(f),
        "prmt" => arithmetic::prmt(f),
        "setp" => arithmetic::setp(f),
        "set" => arithmetic::set(f),
        "selp" => arithmetic::selp(f),
        "slct" => arithmetic::slct(f),
        "bra" => threads::bra(f),
        "brx" => threads::brx(f),
        "call" => threads::call(f),
        "ret" => {
            f.take("uni");
            Ok(Instruction::Return {})
        }
        "exit" => Ok(Instruction::Exit {}),
        "trap" => Ok(Instruction::Trap {}),
        "bar" => threads::barrier(f, true),
        "barrier" => threads::barrier(f, false),
        "fence" => threads::fence(f),
        "membar" => threads::membar(f),
        "atom" => threads::atomic(f, true),
        "red" => threads::atomic(f, false),
        "multimem" => threads::multimem(f),
        "shfl" => threads::shfl(f),
        "vote" => threads::vote(f),
        "activemask" => threads::activemask(f),
        "match" => threads::matching(f),
        "elect" => threads::elect(f),
        "redux" => threads::redux(f),
        "nanosleep" => threads::nanosleep(f),
        "griddepcontrol" => threads::griddepcontrol(f),
        op @ ("prefetch" | "prefetchu" | "applypriority") => threads::prefetch(f, op),
        "discard" => threads::discard(f),
        "cp" => asynchronous::cp(f),
        "mbarrier" => asynchronous::mbarrier(f),
        "mma" => matrix::mma(f),
        "wgmma" => matrix::wgmma(f),
        "ldmatrix" => matrix::ldmatrix(f),
        "stmatrix" => matrix::stmatrix(f),
        "movmatrix" => matrix::movmatrix(f),
        "setmaxnreg" => asynchronous::setmaxnreg(f),
        "tensormap" => tensor::tensormap(f),
        "createpolicy" => asynchronous::createpolicy(f),
        opcode => match (named(UnaryOp::ALL, opcode), named(BitOp::ALL, opcode)) {
            (Some(op), _) => arithmetic::function(f, op),
            (None, Some(op)) => arithmetic::bits(f, op),
            (None, None) => Err(f.unknown()),
        },
    }
}

/// The operation that an opcode is the name of.
fn named<T: Copy>(all: &[(&str, T)], opcode: &str) -> Option<T> {
    all.iter().find(|(text, _)| *text == opcode).map(|&(_, op)| op)
}
