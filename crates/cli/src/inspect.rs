//! `inspect`: what a file of PTX has, and what passmuster would make of it.

mod draft;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::bail;
use passmuster_plan::collective::Collective;
use passmuster_ptx as ptx;
use ptx::{Access, Fence, Function, Instruction, Module, ParameterPlace, Semantics};
use serde::Serialize;

use crate::{foreign::MOST_PTX, input};

/// Show what a PTX file contains, and whether the emulator can run it.
///
/// Lists its kernels with their parameters, the places where they synchronise, and the instructions that the emulator does not know. Such an instruction matters only
/// to kernels that can reach it. With --spec, drafts the specification that `validate --ptx FILE --spec SPEC.toml` needs, and marks what you must decide.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask inspect mine.ptx
  cargo xtask inspect mine.ptx --kernel mine_bf16
  cargo xtask inspect mine.ptx --kernel mine_bf16 --spec > mine.toml
  cargo xtask inspect mine.ptx --spec --collective all_gather > mine.toml
  cargo xtask validate --ptx mine.ptx --spec mine.toml
  cargo xtask inspect mine.ptx --json | jq '.kernels[].name'")]
pub(crate) struct Inspect {
    /// The PTX file.
    #[arg(value_name = "FILE.ptx")]
    file: PathBuf,
    /// Show this kernel only.
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Print a draft of the kernel's specification, in TOML, and nothing else.
    #[arg(long, conflicts_with = "json")]
    spec: bool,
    /// Collective of the draft: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or reduce.
    #[arg(long, value_name = "NAME", requires = "spec", default_value_t = Collective::AllReduce)]
    collective: Collective,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What `inspect` says of a module.
#[derive(Serialize)]
struct Told {
    /// Version of the ISA.
    version: String,
    targets: Vec<String>,
    kernels: Vec<Kernel>,
    /// What the emulator does not know, of kernels and of functions.
    unknown: Vec<Unknown>,
}

#[derive(Serialize)]
struct Kernel {
    name: String,
    parameters: Vec<Parameter>,
    /// Bytes of all parameters.
    parameter_bytes: u32,
    /// Registers as the PTX declares and uses them, by width; what the hardware allocates is ptxas's choice.
    registers: Registers,
    /// Static shared memory of a block, in bytes.
    shared_bytes: u32,
    dynamic_shared: bool,
    /// Local memory of a thread, in bytes.
    local_bytes: u32,
    bounds: Vec<String>,
    /// Functions without a body that it calls, and what becomes of such a call on the emulator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<String>,
    /// Whether the emulator can run it.
    runs: bool,
    synchronisation: Vec<Site>,
}

#[derive(Serialize)]
struct Parameter {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    bytes: u32,
    offset: u32,
    align: u32,
    /// Space and alignment of what it points to, where the PTX tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    points_to: Option<(String, u32)>,
}

#[derive(Serialize)]
struct Registers {
    predicates: u16,
    words: u16,
    longs: u16,
    quads: u16,
}

/// An instruction that orders memory or threads.
#[derive(Serialize)]
struct Site {
    /// Line of the PTX.
    line: u32,
    /// What it is: load, store, atomic, reduction, fence, barrier or multimem.
    kind: &'static str,
    instruction: String,
    /// File and line of the source, where the PTX tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// The function that it is in, where that is another one than the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
}

#[derive(Serialize)]
struct Unknown {
    line: u32,
    column: u32,
    function: String,
    error: String,
    /// The kernels that can reach it.
    reached_by: Vec<String>,
}

impl Inspect {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let text = input::text(&self.file, MOST_PTX)?;
        let name = self.file.display();
        let module = ptx::parse_tolerant(&text).map_err(|error| anyhow::anyhow!("{name}:{error}"))?;
        let chosen = chosen(&module, self.kernel.as_deref(), &self.file)?;
        if self.spec {
            let [kernel] = chosen[..] else {
                let names: Vec<&str> = chosen.iter().map(|&index| module.functions[index].name.as_str()).collect();
                bail!("{name} has {} kernels: --kernel NAME says of which the specification is, one of {}", names.len(), names.join(", "));
            };
            print!("{}", draft::specification(&module, kernel, self.collective, &self.file));
            return Ok(ExitCode::SUCCESS);
        }
        let told = told(&module, &text, &chosen);
        if self.json {
            println!("{}", serde_json::to_string_pretty(&told)?);
        } else {
            print!("{}", table(&told, &name.to_string()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The kernels that were asked for, by index.
fn chosen(module: &Module, kernel: Option<&str>, file: &Path) -> anyhow::Result<Vec<usize>> {
    let kernels = module.functions.iter().enumerate().filter(|(_, function)| function.entry && !function.external);
    let kernels: Vec<(usize, &str)> = kernels.map(|(index, function)| (index, function.name.as_str())).collect();
    let names = kernels.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    let Some(kernel) = kernel else {
        if kernels.is_empty() {
            bail!("{} has no kernel: expected an .entry with a body", file.display());
        }
        return Ok(kernels.into_iter().map(|(index, _)| index).collect());
    };
    match kernels.iter().find(|(_, name)| *name == kernel) {
        Some((index, _)) => Ok(vec![*index]),
        None => bail!("--kernel {kernel}: {} has no such kernel, expected one of {names}", file.display()),
    }
}

fn told(module: &Module, text: &str, chosen: &[usize]) -> Told {
    let lines: Vec<&str> = text.lines().collect();
    let reachable: Vec<_> = chosen.iter().map(|&kernel| (kernel, module.reachable(kernel))).collect();
    let unknown = module.unknown().map(|unknown| {
        let position = unknown.error.place().position;
        let reached_by = reachable.iter().filter(|(_, reachable)| reachable.contains(unknown.function, unknown.operation));
        Unknown {
            line: position.line,
            column: position.column,
            function: module.functions[unknown.function].name.clone(),
            error: unknown.error.to_string(),
            reached_by: reached_by.map(|&(kernel, _)| module.functions[kernel].name.clone()).collect(),
        }
    });
    let kernels = reachable.iter().map(|(kernel, reachable)| {
        let function = &module.functions[*kernel];
        let declared = function.declared_registers;
        Kernel {
            name: function.name.clone(),
            parameters: function.inputs.iter().map(parameter).collect(),
            parameter_bytes: function.input_bytes,
            registers: Registers { predicates: declared.predicates, words: declared.words, longs: declared.longs, quads: declared.quads },
            shared_bytes: function.shared_bytes,
            dynamic_shared: function.code.iter().any(|operation| draft::is_of_dynamic_shared(&operation.instruction)),
            local_bytes: function.local_bytes,
            bounds: bounds(function),
            calls: calls(module, reachable),
            runs: module.launchable(&function.name).is_ok(),
            synchronisation: sites(module, *kernel, reachable, &lines),
        }
    });
    Told {
        version: format!("{}.{}", module.version.0, module.version.1),
        targets: module.targets.clone(),
        kernels: kernels.collect(),
        unknown: unknown.collect(),
    }
}

/// The type of a parameter, as PTX has it: `.u64`, `.b8[64]`.
pub(crate) fn type_of(parameter: &ptx::Parameter) -> String {
    let array = parameter.bytes != parameter.ty.bytes();
    if array { format!(".{}[{}]", parameter.ty, parameter.bytes / parameter.ty.bytes()) } else { format!(".{}", parameter.ty) }
}

fn parameter(parameter: &ptx::Parameter) -> Parameter {
    Parameter {
        name: parameter.name.clone(),
        ty: type_of(parameter),
        bytes: parameter.bytes,
        offset: match parameter.place {
            ParameterPlace::Offset(offset) => offset,
            ParameterPlace::Register(_) => 0,
        },
        align: parameter.align,
        points_to: parameter.pointer.map(|(space, align)| (space.to_string(), align)),
    }
}

fn bounds(function: &Function) -> Vec<String> {
    let ptx::LaunchBounds { max_threads, required_threads, min_blocks_per_sm, max_registers, required_cluster, max_cluster, .. } =
        function.bounds;
    let axes = |name: &str, axes: Option<[u32; 3]>| axes.map(|[x, y, z]| format!(".{name} {x}, {y}, {z}"));
    let one = |name: &str, value: Option<u32>| value.map(|value| format!(".{name} {value}"));
    let stated = [
        axes("maxntid", max_threads),
        axes("reqntid", required_threads),
        one("minnctapersm", min_blocks_per_sm),
        one("maxnreg", max_registers),
        axes("reqnctapercluster", required_cluster),
        one("maxclusterrank", max_cluster),
        function.bounds.explicit_cluster.then(|| ".explicitcluster".to_owned()),
        function.bounds.blocks_are_clusters.then(|| ".blocksareclusters".to_owned()),
    ];
    stated.into_iter().flatten().collect()
}

/// Functions without a body that a kernel can come to, each with what the emulator does.
fn calls(module: &Module, reachable: &ptx::Reachable) -> Vec<String> {
    let mut called = BTreeSet::new();
    for (index, function) in module.functions.iter().enumerate() {
        for (at, operation) in function.code.iter().enumerate() {
            if let Instruction::Call { function, .. } = operation.instruction
                && module.functions[function as usize].external
                && reachable.contains(index, at)
            {
                called.insert(module.functions[function as usize].name.as_str());
            }
        }
    }
    let told = |name: &str| match name {
        "vprintf" => format!("{name}: what it prints stands with a hang or a fault"),
        "__assertfail" => format!("{name}: a failed assertion is a fault"),
        _ => format!("{name}, which has no body: a case that comes to it is not supported"),
    };
    called.into_iter().map(told).collect()
}

/// Where a kernel, or a function that it can reach, synchronises.
fn sites(module: &Module, kernel: usize, reachable: &ptx::Reachable, lines: &[&str]) -> Vec<Site> {
    let mut sites = Vec::new();
    for (index, function) in module.functions.iter().enumerate() {
        for (at, operation) in function.code.iter().enumerate() {
            let Some(kind) = kind(&operation.instruction).filter(|_| reachable.contains(index, at)) else { continue };
            let line = lines.get(operation.at.line as usize - 1).copied().unwrap_or_default();
            let written = line.chars().skip(operation.at.column as usize - 1).take_while(|&c| c != ';').collect::<String>();
            sites.push(Site {
                line: operation.at.line,
                kind,
                instruction: written.split_whitespace().collect::<Vec<_>>().join(" "),
                source: operation.source.map(|source| module.line(source)),
                function: (index != kernel).then(|| function.name.clone()),
            });
        }
    }
    sites
}

/// What kind of synchronisation an instruction is; `None` where it is none.
fn kind(instruction: &Instruction) -> Option<&'static str> {
    let strong = |access: &Access| !matches!(access.semantics, Semantics::Weak | Semantics::NonCoherent);
    match instruction {
        Instruction::Load { access, .. } if strong(access) => Some("load"),
        Instruction::Store { access, .. } if strong(access) => Some("store"),
        Instruction::Atomic { destinations: Some(_), .. } => Some("atomic"),
        Instruction::Atomic { destinations: None, .. } => Some("reduction"),
        Instruction::Fence { fence: Fence::Proxy(_) } => Some("proxy fence"),
        Instruction::Fence { .. } => Some("fence"),
        Instruction::BarrierSync { .. } | Instruction::BarrierArrive { .. } | Instruction::BarrierReduce { .. } => Some("barrier"),
        Instruction::BarrierCluster { .. } => Some("cluster barrier"),
        Instruction::WarpSync { .. } => Some("warp barrier"),
        Instruction::MultimemLoadReduce { .. } | Instruction::MultimemStore { .. } | Instruction::MultimemReduce { .. } => Some("multimem"),
        Instruction::GridDependency { .. } => Some("grid dependency"),
        _ => None,
    }
}

fn table(told: &Told, file: &str) -> String {
    let mut text = format!("{file}: PTX {}, target {}\n", told.version, told.targets.join(", "));
    for kernel in &told.kernels {
        text += &format!("\nkernel {}\n", kernel.name);
        let rows = kernel.parameters.iter().map(|parameter| {
            let ty = match &parameter.points_to {
                Some((space, align)) => format!("{} to .{space}, aligned to {align}", parameter.ty),
                None => parameter.ty.clone(),
            };
            [parameter.offset.to_string(), parameter.bytes.to_string(), parameter.align.to_string(), ty, parameter.name.clone()]
        });
        text += &aligned(["offset", "bytes", "align", "type", "parameter"], rows, 3);
        let Registers { predicates, words, longs, quads } = kernel.registers;
        text += &format!("  registers: {predicates} predicates, {words} of 32 bits, {longs} of 64");
        text += &if quads > 0 { format!(", {quads} of 128") } else { String::new() };
        text += "; not counted for residency unless the specification gives `registers`\n";
        let dynamic = if kernel.dynamic_shared { ", and dynamic" } else { "" };
        text += &format!("  shared memory: {} bytes{dynamic}; local memory: {} bytes a thread\n", kernel.shared_bytes, kernel.local_bytes);
        kernel.calls.iter().for_each(|call| text += &format!("  calls {call}\n"));
        if !kernel.bounds.is_empty() {
            text += &format!("  {}\n", kernel.bounds.join("  "));
        }
        if !kernel.runs {
            text += "  the emulator cannot run it: see below\n";
        }
        let rows = kernel.synchronisation.iter().map(|site| {
            let within = site.function.as_ref().map_or(String::new(), |function| format!(" (in {function})"));
            [site.line.to_string(), site.kind.into(), format!("{}{within}", site.instruction), site.source.clone().unwrap_or_default()]
        });
        text += &aligned(["line", "synchronises", "instruction", "source"], rows, 1);
    }
    for unknown in &told.unknown {
        let reached = if unknown.reached_by.is_empty() { "no kernel shown".to_owned() } else { unknown.reached_by.join(", ") };
        text += &format!("\nunknown to the emulator, in {}, reached by {reached}:\n{file}:{}\n", unknown.function, unknown.error);
    }
    text
}

/// Rows below their headings, indented; the first `numbers` columns are to the right. Nothing where there are no rows.
fn aligned<const N: usize>(headings: [&str; N], rows: impl Iterator<Item = [String; N]>, numbers: usize) -> String {
    let rows: Vec<[String; N]> = std::iter::once(headings.map(str::to_owned)).chain(rows).collect();
    if rows.len() == 1 {
        return String::new();
    }
    let widths: Vec<usize> = (0..N).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &[String; N]| {
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| if column < numbers { format!("{cell:>width$}") } else { format!("{cell:<width$}") });
        format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
