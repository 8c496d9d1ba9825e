//! A first draft of a specification: what the PTX tells is filled in, and what a person must decide says `DECIDE`.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    path::Path,
};

use passmuster_plan::{
    collective::{Collective, DType},
    plan::MAX_WORLD,
};
use passmuster_ptx::{Address, Base, Function, Instruction, IntegerOp, Module, Operand, Parameter, ParameterPlace, Register, Space, Type};

/// The most fields that a struct by value is drafted with.
const MOST_FIELDS: u32 = 64;

/// The ranks that a draft starts with; arrays of pointers have room for the last of them.
const WORLDS: [u32; 3] = [2, 4, 8];

/// The draft for a kernel, by index, of a file, as one of a collective.
pub(super) fn specification(module: &Module, kernel: usize, collective: Collective, file: &Path) -> String {
    let function = &module.functions[kernel];
    let (entry, dtypes) = entry(module, function);
    let stem = file.file_stem().map_or("kernel".into(), |stem| stem.to_string_lossy().to_lowercase());
    let name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let block = function.bounds.required_threads.or(function.bounds.max_threads).map(|axes| axes.iter().product::<u32>());
    let told = match (block, function.bounds.required_threads) {
        (Some(_), Some(_)) => ".reqntid",
        (Some(_), None) => "DECIDE: at most this many, by .maxntid",
        (None, _) => "DECIDE: threads of a block; the PTX does not say",
    };
    let reduces = collective.operators()[0].reduces();
    let mut text = format!(
        "# A draft from the PTX of {}. docs/reference/specification.md has the keys; what the PTX does not tell says DECIDE.\n\
         name = \"{name}\"\n\
         collective = \"{collective}\"{}\n\
         entry = \"{entry}\"\n\
         dtypes = [{dtypes}]{}\n\
         {}worlds = {WORLDS:?} # DECIDE: ranks\n\
         \n\
         [call]\n\
         # DECIDE what calls it takes: these are whole packs of 16 bytes, out of place.\n\
         count_multiple_of = \"16 / element_size\"\n\
         alignment = 16\n{}\
         \n\
         [launch]\n\
         grid = \"waiting_blocks\" # DECIDE: blocks, an expression of count, world, bytes and waiting_blocks\n\
         block = {} # {told}\n",
        file.display(),
        slots(collective),
        if entry.contains("{dtype}") { "" } else { " # DECIDE" },
        if reduces { "ops = [\"sum\"] # DECIDE\n" } else { "" },
        if collective == Collective::AllToAll {
            "counts = false # DECIDE: true where parts have lengths of their own, as of experts\n"
        } else {
            ""
        },
        block.unwrap_or(256),
    );
    if function.code.iter().any(|operation| is_of_dynamic_shared(&operation.instruction)) {
        text += "dynamic_shared = 0 # DECIDE: bytes, which the kernel uses; Triton's metadata.shared\n";
    }
    if reduces {
        text += "\n[contract]\n\
                 # DECIDE what it promises, and so what is tested.\n\
                 order = \"any\"\n\
                 roundings = \"once\"\n";
    }
    text += "\n\
             # DECIDE which buffers it has besides input and output, and their sizes.\n\
             [[buffer]]\n\
             name = \"signals\"\n\
             role = \"signals\"\n\
             bytes = \"world * 128 * 4\"\n";
    let mut guesses = Guesses::new(function, collective);
    for parameter in &function.inputs {
        text += &guesses.argument(parameter);
    }
    text
}

/// What a count is of, where it is not of the whole input and output.
fn slots(collective: Collective) -> &'static str {
    match collective {
        Collective::AllGather => " # count: elements of each rank's input; the output has world times as many",
        Collective::ReduceScatter => " # count: elements of each rank's output; the input has world times as many",
        Collective::AllToAll => " # count: elements that each rank sends to each",
        _ => "",
    }
}

/// The kernel's name with `{dtype}` where others of the module differ in that alone, and the types there are.
fn entry(module: &Module, function: &Function) -> (String, String) {
    let names: Vec<&str> = module.entries().map(|entry| entry.name.as_str()).collect();
    let types = || DType::ALL.iter().map(|dtype| dtype.to_string());
    for own in types() {
        let parts: Vec<&str> = function.name.split('_').collect();
        let Some(at) = parts.iter().position(|part| *part == own) else { continue };
        let with = |dtype: &str| {
            let mut parts = parts.clone();
            parts[at] = dtype;
            parts.join("_")
        };
        let known: Vec<String> =
            types().filter(|dtype| names.contains(&with(dtype).as_str())).map(|dtype| format!("\"{dtype}\"")).collect();
        return (with("{dtype}"), known.join(", "));
    }
    (function.name.clone(), "\"f32\"".into())
}

/// What parameters are taken for, those whose names do not tell, in their order.
struct Guesses {
    /// Offsets that the kernel reads, and those of what it uses as an address.
    read: BTreeSet<u32>,
    addresses: BTreeSet<u32>,
    /// Whether the kernel calls functions: what becomes of parameters there is not looked at.
    calls: bool,
    /// Buffers that peers' addresses may be of, and those of this rank.
    of_peers: VecDeque<&'static str>,
    of_rank: VecDeque<&'static str>,
    numbers: VecDeque<&'static str>,
}

/// Words in parameters' names, and what they are names of.
const NAMES: [(&str, &[&str]); 7] = [
    ("world", &["world", "nranks", "ranks", "npes"]),
    ("rank", &["rank", "pe"]),
    ("root", &["root", "src_rank"]),
    ("count", &["count", "numel", "n", "elements", "nelem", "size"]),
    ("signals", &["signal", "signals", "flag", "flags", "pad", "pads", "barrier", "sync", "semaphore"]),
    ("input", &["input", "inp", "in", "src", "send", "sendbuff", "x"]),
    ("output", &["output", "out", "dst", "recv", "recvbuff", "result", "y"]),
];

impl Guesses {
    fn new(function: &Function, collective: Collective) -> Guesses {
        let (read, addresses) = uses(function);
        let named = |parameter: &&Parameter| named(parameter).is_none();
        let words =
            function.inputs.iter().filter(named).filter(|parameter| is_word(parameter) && read.contains(&offset(parameter))).count();
        let numbers: &[&str] = match (words, collective.has_root()) {
            (0 | 1, _) => &["count"],
            (2, _) => &["rank", "world"],
            (3, true) => &["rank", "world", "root"],
            (_, true) => &["rank", "world", "root", "count"],
            (_, false) => &["rank", "world", "count"],
        };
        Guesses {
            calls: function
                .code
                .iter()
                .any(|operation| matches!(operation.instruction, Instruction::Call { .. } | Instruction::CallIndirect { .. })),
            read,
            addresses,
            of_peers: ["input", "signals", "output"].into(),
            of_rank: ["input", "output", "signals"].into(),
            numbers: numbers.iter().copied().collect(),
        }
    }

    /// The buffer of a parameter that is an address, on all ranks or on this one.
    fn buffer(&mut self, parameter: &Parameter, on_all: bool) -> (&'static str, &'static str) {
        let buffers = if on_all { &mut self.of_peers } else { &mut self.of_rank };
        let named = named(parameter).filter(|name| ["input", "output", "signals"].contains(name));
        let buffer = named.or(buffers.front().copied()).unwrap_or("signals");
        self.of_peers.retain(|other| *other != buffer);
        self.of_rank.retain(|other| *other != buffer);
        (buffer, if named.is_some() { "by its name" } else { "by its place" })
    }

    fn number(&mut self, parameter: &Parameter) -> (&'static str, &'static str) {
        match named(parameter).filter(|name| ["world", "rank", "root", "count"].contains(name)) {
            Some(name) => (name, "by its name"),
            None => (self.numbers.pop_front().unwrap_or("count"), "by its place"),
        }
    }

    fn argument(&mut self, parameter: &Parameter) -> String {
        let Parameter { name, ty, bytes, .. } = parameter;
        let points = parameter.pointer.map_or(String::new(), |(space, align)| format!(", to .{space} aligned to {align}"));
        let head = format!("\n# {name}: .{ty}, {bytes} bytes{points}\n");
        let (is_read, is_address) = (self.read.contains(&offset(parameter)), self.addresses.contains(&offset(parameter)));
        let value = match (ty, bytes) {
            (Type::U64 | Type::B64 | Type::S64, 8) if !is_read => "u64 = 0 # guessed: the kernel never reads it".into(),
            (Type::U32 | Type::B32 | Type::S32, 4) if !is_read => "u32 = 0 # guessed: the kernel never reads it".into(),
            (Type::F32, 4) => "f32 = 1.0 # DECIDE".into(),
            (Type::U64 | Type::B64 | Type::S64, 8) if is_address || self.calls || parameter.pointer.is_some() => {
                let (buffer, how) = self.buffer(parameter, false);
                format!("pointer = \"{buffer}\" # DECIDE: an address, guessed {how}; or peer_table, memory, multicast")
            }
            (Type::U64 | Type::B64 | Type::S64, 8) => {
                let (number, how) = match named(parameter) {
                    Some(_) => self.number(parameter),
                    None => ("count", "for it is not used as an address itself"),
                };
                format!("u64 = \"{number}\" # DECIDE: a number, guessed {how}; or \"bytes / 16\", pointer, stride")
            }
            (Type::U32 | Type::B32 | Type::S32, 4) => {
                let (number, how) = self.number(parameter);
                format!("u32 = \"{number}\" # DECIDE: guessed {how}; or \"rank\", \"world\", \"root\", \"count\", \"bytes / 16\"")
            }
            (Type::B8 | Type::U8 | Type::S8, bytes) if *bytes >= 4 => self.by_value(parameter),
            _ => return format!("{head}# DECIDE: no kind of argument has a .{ty} of {bytes} bytes\n"),
        };
        format!("{head}[[argument]]\n{value}\n")
    }

    /// A struct by value: pointers of all ranks where there is room for just those, else numbers.
    fn by_value(&mut self, parameter: &Parameter) -> String {
        let Parameter { bytes, align, .. } = *parameter;
        let (width, ty) = if align >= 8 && bytes.is_multiple_of(8) { (8, "u64") } else { (4, "u32") };
        let fields = bytes / width;
        if width == 8 && (WORLDS[WORLDS.len() - 1]..=MAX_WORLD as u32).contains(&fields) {
            let (buffer, how) = self.buffer(parameter, true);
            return format!(
                "struct = [{{ peers = \"{buffer}\", length = {fields} }}] # DECIDE: addresses on all ranks, guessed {how} and size"
            );
        }
        if fields > MOST_FIELDS || !bytes.is_multiple_of(width) {
            return "struct = [{ u32 = 0 }] # DECIDE: its fields, which together have its size".into();
        }
        let fields = vec![format!("{{ {ty} = 0 }}"); fields as usize].join(", ");
        format!("struct = [{fields}] # DECIDE: its fields")
    }
}

fn is_word(parameter: &Parameter) -> bool {
    matches!((parameter.ty, parameter.bytes), (Type::U32 | Type::B32 | Type::S32, 4))
}

/// Where a parameter is.
fn offset(parameter: &Parameter) -> u32 {
    match parameter.place {
        ParameterPlace::Offset(offset) => offset,
        ParameterPlace::Register(_) => 0,
    }
}

/// What a parameter's name says that it is. Compilers leave no name but `KERNEL_param_0`.
fn named(parameter: &Parameter) -> Option<&'static str> {
    let (_, own) = parameter.name.rsplit_once("_param_").unwrap_or(("", &parameter.name));
    let own = own.to_lowercase();
    let parts: Vec<&str> = own.split(|c: char| !c.is_ascii_alphabetic()).filter(|part| !part.is_empty()).collect();
    NAMES.iter().find(|(_, words)| parts.iter().any(|part| words.contains(part))).map(|(name, _)| *name)
}

/// Offsets of parameters that a kernel reads, and of those that it uses as addresses: by themselves, or with something added.
fn uses(function: &Function) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut read, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    let mut holds: HashMap<Register, u32> = HashMap::new();
    let at = |address: &Address| u32::try_from(address.offset).unwrap_or(0);
    let parameter = |offset: u32| function.inputs.iter().map(self::offset).filter(|start| *start <= offset).max().unwrap_or(0);
    for operation in &function.code {
        match &operation.instruction {
            Instruction::Load { access, address, destinations, .. } if access.space == Space::Param && address.base == Base::Zero => {
                let from = parameter(at(address));
                read.insert(from);
                holds.extend(destinations.iter().flatten().map(|register| (*register, from)));
            }
            Instruction::AddressOf { space: Space::Param, address, .. } => drop(read.insert(parameter(at(address)))),
            Instruction::ConvertAddress { destination, source: Operand::Register(source), .. } => {
                if let Some(&from) = holds.get(source) {
                    addresses.insert(from);
                    holds.insert(*destination, from);
                }
            }
            Instruction::Integer { op: IntegerOp::Add, destination, a, b, .. } => {
                let held = [a, b].into_iter().find_map(|operand| match operand {
                    Operand::Register(register) => holds.get(register).copied(),
                    _ => None,
                });
                holds.extend(held.map(|from| (*destination, from)));
            }
            Instruction::Load { address, .. } | Instruction::Store { address, .. } | Instruction::Atomic { address, .. } => {
                if let Base::Register(register) = address.base {
                    addresses.extend(holds.get(&register));
                }
            }
            _ => {}
        }
    }
    (read, addresses)
}

/// Whether an instruction uses dynamic shared memory.
pub(super) fn is_of_dynamic_shared(instruction: &Instruction) -> bool {
    let address = match instruction {
        Instruction::AddressOf { address, .. } | Instruction::Load { address, .. } | Instruction::Store { address, .. } => address,
        Instruction::Atomic { address, .. } | Instruction::MapToBlock { address, .. } => address,
        _ => return false,
    };
    matches!(address.base, Base::DynamicShared { .. })
}
