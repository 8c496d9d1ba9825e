//! A decoded module.

use super::{
    instruction::{Instruction, Operation, Register, Signature, SourceLine},
    registers::RegisterCounts,
    types::{Space, Type},
};

/// A module of PTX, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Version of the ISA: major, minor.
    pub version: (u32, u32),
    /// Targets, such as `sm_90a`.
    pub targets: Vec<String>,
    /// Source files that `.loc` refers to: index and path.
    pub files: Vec<(u32, String)>,
    /// Variables in global and constant memory. Those of function bodies are here too.
    pub variables: Vec<Variable>,
    /// Kernels and functions, in the order of the text.
    pub functions: Vec<Function>,
    /// The largest alignment of extern shared memory that is declared, in bytes; 0 if none is.
    pub dynamic_align: u32,
    /// How many instructions are unknown.
    pub(super) unknown: usize,
    /// Functions whose address the module takes, by index: what an indirect call may reach.
    pub(super) addressed: Vec<u32>,
}

impl Module {
    /// The kernel of this name; `None` if there is none.
    pub fn entry(&self, name: &str) -> Option<&Function> {
        self.entries().find(|function| function.name == name)
    }

    /// All kernels.
    pub fn entries(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.entry)
    }

    /// The path of a source file that `.loc` refers to.
    pub fn file(&self, index: u32) -> Option<&str> {
        self.files.iter().find(|(number, _)| *number == index).map(|(_, path)| path.as_str())
    }

    /// A source line as people read it: `a.cu:12`.
    pub fn line(&self, source: SourceLine) -> String {
        format!("{}:{}", self.file(source.file).unwrap_or("unknown file"), source.line)
    }

    /// Functions whose address the module takes, by index in [`Module::functions`], each once.
    pub fn addressed(&self) -> &[u32] {
        &self.addressed
    }

    /// Functions that an indirect call with this signature may reach, by index.
    pub fn callable<'m>(&'m self, signature: &'m Signature) -> impl Iterator<Item = u32> + 'm {
        self.addressed.iter().copied().filter(|&index| self.functions[index as usize].signature().as_ref() == Some(signature))
    }

    /// Checks that there is a kernel of this name with a body, and that it takes arguments of these sizes in bytes; returns it.
    ///
    /// # Errors
    /// Names the kernels there are, or the first argument that differs.
    pub fn accepts(&self, entry: &str, sizes: impl IntoIterator<Item = usize>) -> Result<&Function, LaunchError> {
        let Some(function) = self.entry(entry).filter(|function| !function.external) else {
            let known = self.entries().map(|entry| entry.name.clone()).collect();
            return Err(LaunchError::NoEntry { entry: entry.to_owned(), known });
        };
        let given: Vec<usize> = sizes.into_iter().collect();
        let takes: Vec<usize> = function.inputs.iter().map(|parameter| parameter.bytes as usize).collect();
        if takes.len() != given.len() {
            return Err(LaunchError::Arguments { entry: entry.to_owned(), takes, given });
        }
        match takes.iter().zip(&given).position(|(takes, given)| takes != given) {
            Some(at) => Err(LaunchError::Argument { entry: entry.to_owned(), at, given: given[at], takes: takes[at] }),
            None => Ok(function),
        }
    }
}

/// Why a kernel cannot be launched so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// There is no such kernel, or it has no body.
    #[error("kernel `{entry}` is not in the PTX, which has {}", if known.is_empty() { "no kernel".into() } else { known.join(", ") })]
    NoEntry {
        /// The kernel.
        entry: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// It takes another number of arguments.
    #[error("kernel `{entry}` takes {} arguments of {takes:?} bytes, it was given {} of {given:?}", takes.len(), given.len())]
    Arguments {
        /// The kernel.
        entry: String,
        /// Bytes of each of its parameters.
        takes: Vec<usize>,
        /// Bytes of each argument.
        given: Vec<usize>,
    },
    /// An argument has another size than its parameter.
    #[error("argument {at} of kernel `{entry}` has {given} bytes, its parameter {takes}")]
    Argument {
        /// The kernel.
        entry: String,
        /// Which argument, from 0.
        at: usize,
        /// Its bytes.
        given: usize,
        /// Bytes of the parameter.
        takes: usize,
    },
    /// Blocks have more threads than the kernel allows.
    #[error("blocks of {threads} threads: the kernel allows {most} (.maxntid)")]
    Threads {
        /// Threads of a block.
        threads: u64,
        /// As many as it allows.
        most: u64,
    },
    /// Blocks have another shape than the kernel requires.
    #[error("blocks of {block:?} threads: the kernel requires {required:?} (.reqntid)")]
    Shape {
        /// Threads of a block along each axis.
        block: [u32; 3],
        /// What it requires.
        required: [u32; 3],
    },
}

impl From<LaunchError> for String {
    fn from(error: LaunchError) -> String {
        error.to_string()
    }
}

/// A variable in global or constant memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Name, mangled as in the PTX.
    pub name: String,
    /// Global or constant.
    pub space: Space,
    /// Size in bytes.
    pub bytes: u64,
    /// Alignment in bytes.
    pub align: u32,
    /// Whether another module defines it.
    pub external: bool,
    /// The first bytes; zeros follow up to the size.
    pub initial: Vec<u8>,
    /// Addresses that the initial value holds, to be added where memory is laid out.
    pub relocations: Vec<Relocation>,
}

/// An address within an initial value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Where in the variable, in bytes; 8 bytes wide.
    pub at: u64,
    /// Whose address it is.
    pub of: Relocated,
    /// Whether it is the generic address, or that in the variable's space.
    pub generic: bool,
    /// Bytes to be added.
    pub offset: i64,
}

/// What an initial value holds the address of, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocated {
    /// One of [`Module::variables`].
    Variable(u32),
    /// One of [`Module::functions`].
    Function(u32),
}

/// A kernel or a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Name, mangled as in the PTX.
    pub name: String,
    /// Whether it is a kernel.
    pub entry: bool,
    /// Whether it is declared and has no body. Its code is empty and must not be run.
    pub external: bool,
    /// Parameters.
    pub inputs: Vec<Parameter>,
    /// What it returns.
    pub returns: Vec<Parameter>,
    /// Bytes of the inputs, laid out as C does: what a launch passes.
    pub input_bytes: u32,
    /// Bytes of its parameter space: inputs, then returns, then those that it passes to calls.
    pub param_bytes: u32,
    /// Bytes of its local variables, for each thread.
    pub local_bytes: u32,
    /// Bytes of static shared memory. The module's own come first, so that functions find them at the same place in all kernels.
    pub shared_bytes: u32,
    /// What launches must keep to.
    pub bounds: LaunchBounds,
    /// Slots of a frame.
    pub registers: RegisterCounts,
    /// How many registers the PTX uses, before those that are never live together were given one slot.
    pub declared_registers: RegisterCounts,
    /// Operations. Branches are indices of it; the last one returns.
    pub code: Vec<Operation>,
}

impl Function {
    /// What an indirect call must pass it and take back; `None` if a parameter is in a register, which such calls cannot reach.
    pub fn signature(&self) -> Option<Signature> {
        Signature::of(&self.inputs, &self.returns)
    }

    /// Whether a thread at an operation may come to an end of the function: a return, an exit or a trap, or a call, whose end is not looked for.
    /// Where it may not, it runs for ever, whatever it reads.
    pub fn may_leave(&self, from: usize) -> bool {
        let mut seen = vec![false; self.code.len()];
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            let Some(operation) = self.code.get(at) else { return true };
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            match &operation.instruction {
                Instruction::Return {} | Instruction::Exit {} | Instruction::Trap {} => return true,
                Instruction::Call { .. } | Instruction::CallIndirect { .. } => return true,
                Instruction::Branch { target, .. } => {
                    next.push(*target);
                    next.extend(operation.guard.map(|_| at + 1));
                }
                Instruction::BranchIndexed { targets, .. } => {
                    next.extend(targets);
                    next.extend(operation.guard.map(|_| at + 1));
                }
                _ => next.push(at + 1),
            }
        }
        false
    }
}

impl Signature {
    /// The signature of these parameters; `None` if one is in a register.
    pub(super) fn of(inputs: &[Parameter], returns: &[Parameter]) -> Option<Signature> {
        let place = |parameter: &Parameter| match parameter.place {
            ParameterPlace::Offset(offset) => Some((offset, parameter.bytes)),
            ParameterPlace::Register(_) => None,
        };
        Some(Signature {
            inputs: inputs.iter().map(place).collect::<Option<_>>()?,
            returns: returns.iter().map(place).collect::<Option<_>>()?,
        })
    }
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name, mangled as in the PTX.
    pub name: String,
    /// Type of its elements.
    pub ty: Type,
    /// Size in bytes.
    pub bytes: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// `.ptr`: the space of what it points to, and the alignment of that in bytes.
    pub pointer: Option<(Space, u32)>,
    /// Where it is.
    pub place: ParameterPlace,
}

/// Where a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterPlace {
    /// This many bytes into the function's parameter space.
    Offset(u32),
    /// In a register; functions only.
    Register(Register),
}

/// What launches of a kernel must keep to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchBounds {
    /// `.maxntid`: the most threads of a block. The product counts.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`: exactly these threads of a block.
    pub required_threads: Option<[u32; 3]>,
    /// `.minnctapersm`
    pub min_blocks_per_sm: Option<u32>,
    /// `.maxnreg`
    pub max_registers: Option<u32>,
    /// `.reqnctapercluster`
    pub required_cluster: Option<[u32; 3]>,
    /// `.maxclusterrank`
    pub max_cluster: Option<u32>,
    /// `.explicitcluster`
    pub explicit_cluster: bool,
    /// `.blocksareclusters`
    pub blocks_are_clusters: bool,
}

impl LaunchBounds {
    /// Whether blocks may have this shape.
    ///
    /// # Errors
    /// What the kernel requires.
    pub fn accept(&self, block: [u32; 3]) -> Result<(), LaunchError> {
        let threads = |sizes: [u32; 3]| sizes.map(u64::from).into_iter().fold(1, u64::saturating_mul);
        match (self.max_threads.map(threads), self.required_threads) {
            (Some(most), _) if threads(block) > most => Err(LaunchError::Threads { threads: threads(block), most }),
            (_, Some(required)) if required != block => Err(LaunchError::Shape { block, required }),
            _ => Ok(()),
        }
    }
}
