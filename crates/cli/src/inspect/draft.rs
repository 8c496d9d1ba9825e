//! A first draft of a specification: what the PTX tells is filled in, and what a person must decide says `DECIDE`.

use std::path::Path;

use passmuster_collectives::collective::DType;
use passmuster_ptx::{Base, Function, Instruction, Module, Parameter, Type};

/// The most fields that a struct by value is drafted with.
const MOST_FIELDS: u32 = 64;

/// The ranks that a draft starts with; arrays of pointers have room for the last of them.
const WORLDS: [u32; 3] = [2, 4, 8];

/// The draft for a kernel, by index, of a file.
pub(super) fn specification(module: &Module, kernel: usize, file: &Path) -> String {
    let function = &module.functions[kernel];
    let (entry, dtypes) = entry(module, function);
    let stem = file.file_stem().map_or("kernel".into(), |stem| stem.to_string_lossy().to_lowercase());
    let name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let block = function.bounds.required_threads.or(function.bounds.max_threads).map(|axes| axes.iter().product::<u32>());
    let told = match (block, function.bounds.required_threads) {
        (Some(_), Some(_)) => ".reqntid",
        (Some(_), None) => "DECIDE: at most so many, by .maxntid",
        (None, _) => "DECIDE: threads of a block; the PTX does not say",
    };
    let mut text = format!(
        "# A draft from the PTX of {}. docs/reference/specification.md has the keys; what the PTX does not tell says DECIDE.\n\
         name = \"{name}\"\n\
         collective = \"all_reduce\"\n\
         entry = \"{entry}\"\n\
         dtypes = [{dtypes}]{}\n\
         ops = [\"sum\"] # DECIDE\n\
         worlds = {WORLDS:?} # DECIDE: ranks\n\
         \n\
         [call]\n\
         # DECIDE what calls it takes: these are whole packs of 16 bytes, out of place.\n\
         count_multiple_of = \"16 / element_size\"\n\
         alignment = 16\n\
         \n\
         [launch]\n\
         grid = \"waiting_blocks\" # DECIDE: blocks, an expression of count, world, bytes and waiting_blocks\n\
         block = {} # {told}\n",
        file.display(),
        if entry.contains("{dtype}") { "" } else { " # DECIDE" },
        block.unwrap_or(256),
    );
    if function.code.iter().any(|operation| is_of_dynamic_shared(&operation.instruction)) {
        text += "dynamic_shared = 0 # DECIDE: bytes, which the kernel uses; Triton's metadata.shared\n";
    }
    text += "\n[contract]\n\
             # DECIDE what it promises, and so what is tested.\n\
             order = \"any\"\n\
             roundings = \"once\"\n\
             \n\
             # DECIDE which buffers it has besides input and output, and their sizes.\n\
             [[buffer]]\n\
             name = \"signals\"\n\
             role = \"signals\"\n\
             bytes = \"world * 128 * 4\"\n";
    let mut addresses = ["input", "output", "signals"].into_iter();
    for parameter in &function.inputs {
        text += &argument(parameter, &mut addresses);
    }
    text
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

fn argument(parameter: &Parameter, addresses: &mut impl Iterator<Item = &'static str>) -> String {
    let Parameter { name, ty, bytes, .. } = parameter;
    let points = parameter.pointer.map_or(String::new(), |(space, align)| format!(", to .{space} aligned to {align}"));
    let head = format!("\n# {name}: .{ty}, {bytes} bytes{points}\n");
    let mut address = || addresses.next().unwrap_or("signals");
    let value = match (ty, bytes) {
        (Type::F32, 4) => "f32 = 1.0 # DECIDE".into(),
        (Type::U64 | Type::B64 | Type::S64, 8) => {
            format!("pointer = \"{}\" # DECIDE: or peer_table, multicast, or a number (u64 = \"count\")", address())
        }
        (Type::U32 | Type::B32 | Type::S32, 4) => "u32 = \"count\" # DECIDE: or \"rank\", \"world\", \"bytes / 16\"".into(),
        (Type::B8 | Type::U8 | Type::S8, bytes) if *bytes >= 4 => by_value(parameter, &mut address),
        _ => return format!("{head}# DECIDE: no kind of argument has a .{ty} of {bytes} bytes\n"),
    };
    format!("{head}[[argument]]\n{value}\n")
}

/// A struct by value: pointers of all ranks where there is room for just those, else numbers.
fn by_value(parameter: &Parameter, address: &mut impl FnMut() -> &'static str) -> String {
    let Parameter { bytes, align, .. } = *parameter;
    let (width, ty) = if align >= 8 && bytes.is_multiple_of(8) { (8, "u64") } else { (4, "u32") };
    let fields = bytes / width;
    if width == 8 && (WORLDS[WORLDS.len() - 1]..=passmuster_collectives::plan::MAX_WORLD as u32).contains(&fields) {
        return format!(
            "struct = [{{ peers = \"{}\", length = {fields} }}] # DECIDE: a struct by value; pointers to all ranks?",
            address()
        );
    }
    if fields > MOST_FIELDS || !bytes.is_multiple_of(width) {
        return "struct = [{ u32 = 0 }] # DECIDE: its fields, which together have its size".into();
    }
    let fields = vec![format!("{{ {ty} = 0 }}"); fields as usize].join(", ");
    format!("struct = [{fields}] # DECIDE: its fields")
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
