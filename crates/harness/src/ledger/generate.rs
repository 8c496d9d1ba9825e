//! PTX of the forms: a kernel loads the operands of tuple i, executes one instruction, and stores its result, for each instruction that the
//! form is.
//!
//! Parameters: operands, results, count. Operands lie in planes of `count` words of 8 bytes, results too.

use std::fmt::Write;

use super::forms::{Form, Role};
use passmuster_plan::{
    library::Library,
    plan::{Arg, Launch, Region},
};
use passmuster_ptx::Type;

/// Kernels of a module.
const OF_A_MODULE: usize = 64;
/// Threads of a block, but for forms of matrices, which are of one warpgroup.
const THREADS: u32 = super::forms::BLOCK as u32;
const WARPGROUP: u32 = 128;

/// Bytes that a thread has in global memory, in `%scratch`, and in shared memory, in `%room`, where its code has these.
const SCRATCH: usize = 16;
const ROOM: u32 = 64;
/// Bytes that a block has in shared memory, in `%box`, and in global memory, in `%maps`, where its code has these.
const BOX: u32 = 2064;
const MAP: usize = 128;

/// Bytes of shared memory that a block has at `%tiles`, where the code has that: zeros at first.
pub(super) const TILES: u32 = 42 << 10;

/// Name of a form's kernel.
pub fn entry(form: &Form) -> String {
    format!("form_{}", form.name.replace("::", "_").replace(['.', ' '], "_"))
}

/// The width of the register that holds a type: what is narrower than 16 bits is in a wider one.
pub(super) fn register_bits(ty: Type) -> u32 {
    match ty.bits() {
        ..16 => 32,
        bits => bits,
    }
}

/// PTX of a module of these forms.
pub fn module(forms: &[Form]) -> String {
    // Halves and bfloat16 in full need sm_90, and this version of the ISA is what driver 580 takes.
    let target = if forms.iter().any(|form| form.uses("tensormap.replace") || form.uses("wgmma")) { "sm_90a" } else { "sm_90" };
    let mut header = format!(".version 9.0\n.target {target}\n.address_size 64\n");
    if forms.iter().any(|form| form.uses("%maps")) {
        let _ = writeln!(header, ".global .align 128 .b8 maps[{}];", MAP * super::inputs::RESULTS / THREADS as usize);
    }
    if forms.iter().any(|form| form.uses("%scratch")) {
        let _ = writeln!(header, ".global .align 16 .b8 scratch[{}];", SCRATCH * super::inputs::RESULTS);
    }
    forms.iter().fold(header, |text, form| text + "\n" + &kernel(form))
}

fn kernel(form: &Form) -> String {
    let bounds = if form.uses("%cluster_ctarank") { " .explicitcluster .reqnctapercluster 2, 1, 1" } else { "" };
    let map = if form.tensor.is_some() { ", .param .align 64 .b8 tensor[128]" } else { "" };
    let mut text =
        format!(".visible .entry {}(.param .u64 operands, .param .u64 results, .param .u32 count{map}){bounds}\n{{\n", entry(form));
    text += ".reg .pred %p, %q, %pa, %pb, %pc, %pd;\n";
    text +=
        ".reg .b16 %yh;\n.reg .b32 %y, %thread, %index, %blocks, %count, %truth;\n.reg .b64 %yd, %from, %slot, %place, %near, %plane;\n";
    let mut register = |name: &str, ty| {
        let _ = writeln!(text, ".reg .b{} %{name};", register_bits(ty));
    };
    for (index, operand) in form.operands.iter().enumerate() {
        register(&operand.name(index), if operand.role == Role::Truth { Type::B32 } else { operand.ty });
    }
    register("x", form.result);
    let shared = form.uses("%shared");
    let (scratch, room) = (form.uses("%scratch"), form.uses("%room"));
    if scratch {
        text += ".reg .b64 %scratch;\n";
    }
    if room {
        let _ = writeln!(text, ".reg .b32 %room;\n.shared .align 16 .b8 rooms[{}];", ROOM * THREADS);
    }
    if shared {
        let _ = writeln!(text, ".reg .b32 %shared;\n.shared .align 8 .b8 words[{}];", 8 * THREADS);
    }
    let tiles = form.uses("%tiles");
    if tiles {
        let _ = writeln!(text, ".reg .b32 %tiles;\n.shared .align 1024 .b8 tiles[{TILES}];");
    }
    text += "mov.u32 %thread, %tid.x;\nmov.u32 %index, %ctaid.x;\nmov.u32 %blocks, %ntid.x;\n\
             mad.lo.u32 %index, %index, %blocks, %thread;\n\
             ld.param.u32 %count, [count];\nmul.wide.u32 %plane, %count, 8;\nmul.wide.u32 %near, %index, 8;\n\
             ld.param.u64 %from, [operands];\ncvta.to.global.u64 %from, %from;\nadd.u64 %from, %from, %near;\n\
             ld.param.u64 %place, [results];\nadd.u64 %place, %place, %near;\ncvta.to.global.u64 %slot, %place;\n";
    if shared {
        text += "mov.u32 %shared, words;\nmad.lo.u32 %shared, %thread, 8, %shared;\n";
    }
    if scratch {
        let _ = writeln!(text, "mov.u64 %scratch, scratch;\nmad.wide.u32 %scratch, %index, {SCRATCH}, %scratch;");
    }
    if form.tensor.is_some() {
        text += ".reg .b64 %map, %maps;\n.reg .b32 %box;\nmov.b64 %map, tensor;\ncvta.param.u64 %map, %map;\n";
        let _ = writeln!(text, ".shared .align 1024 .b8 boxes[{BOX}];\nmov.u32 %box, boxes;");
    }
    if form.uses("%maps") {
        let _ = writeln!(
            text,
            "mov.u64 %maps, maps;\nmov.u32 %y, %ctaid.x;\nmad.wide.u32 %maps, %y, {MAP}, %maps;\ncvta.global.u64 %maps, %maps;"
        );
    }
    if room {
        let _ = writeln!(text, "mov.u32 %room, rooms;\nmad.lo.u32 %room, %thread, {ROOM}, %room;");
    }
    if tiles {
        let _ = writeln!(
            text,
            "mov.u32 %tiles, tiles;\nmad.lo.u32 %y, %thread, 16, %tiles;\nadd.u32 %truth, %tiles, {TILES};\nmov.b64 %yd, 0;\n\
             ZERO:\nst.shared.v2.b64 [%y], {{%yd, %yd}};\nadd.u32 %y, %y, {};\nsetp.lt.u32 %q, %y, %truth;\n@%q bra ZERO;\nbar.sync 0;",
            16 * WARPGROUP
        );
    }
    for (index, operand) in form.operands.iter().enumerate() {
        let letter = operand.name(index);
        let truth = operand.role == Role::Truth;
        let bits = if truth { 32 } else { register_bits(operand.ty) };
        let _ = writeln!(text, "ld.global.b{bits} %{letter}, [%from];\nadd.u64 %from, %from, %plane;");
        if truth {
            let _ = writeln!(text, "and.b32 %truth, %{letter}, 1;\nsetp.ne.u32 %p{letter}, %truth, 0;");
        }
    }
    for code in &form.code {
        let bits = register_bits(form.result);
        let _ = writeln!(text, "{code}\nst.global.b{bits} [%slot], %x;");
        text += "add.u64 %slot, %slot, %plane;\nadd.u64 %place, %place, %plane;\n";
    }
    text + "ret;\n}\n"
}

/// Name of the module that form number `index` is in.
pub(super) fn module_of(index: usize) -> String {
    format!("ledger/{}", index / OF_A_MODULE)
}

/// Name of the module that has a form's kernel alone: what the others of its module cannot spoil.
pub(super) fn module_alone(form: &Form) -> String {
    format!("ledger/{}", entry(form))
}

/// A library with the modules of these forms.
pub fn library(forms: &[Form]) -> Library {
    let mut library = Library::default();
    for (number, forms) in forms.chunks(OF_A_MODULE).enumerate() {
        library.replace(&module_of(number * OF_A_MODULE), module(forms));
    }
    for form in forms {
        library.replace(&module_alone(form), module(std::slice::from_ref(form)));
    }
    library
}

/// Threads of a block of a form's kernel.
fn threads(form: &Form) -> u32 {
    if form.uses("%tiles") { WARPGROUP } else { THREADS }
}

/// The launch of a form's kernel over `count` tuples.
pub(super) fn launch(form: &Form, module: String, operands: Region, results: Region, count: usize) -> Launch {
    let mut args = vec![Arg::Address(operands), Arg::Address(results), Arg::U32(count as u32)];
    args.extend(form.tensor.iter().map(|tensor| Arg::TensorMap(tensor.of(count))));
    Launch {
        dynamic_shared: 0,
        module,
        entry: entry(form),
        grid: (count as u32 / threads(form)).into(),
        block: threads(form).into(),
        cluster: None,
        waits_for_peers: false,
        programmatic: false,
        registers: None,
        variables: Vec::new(),
        args,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ledger::forms;
    use passmuster_ptx as ptx;

    #[test]
    fn every_kernel_has_its_form_as_often_as_it_has_instructions() {
        for form in forms::all() {
            let text = module(std::slice::from_ref(&form));
            let decoded = ptx::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", form.name));
            let names = decoded.functions[0].code.iter().filter_map(|operation| operation.instruction.value_form());
            let times = names.filter(|name| *name == forms::opcode(&form.name)).count();
            assert!(times >= form.code.len(), "`{}` is there {times} times:\n{text}", form.name);
        }
    }

    #[test]
    fn names_and_entries_are_apart() {
        let forms = forms::all();
        let (names, entries): (BTreeSet<_>, BTreeSet<_>) = forms.iter().map(|form| (form.name.clone(), entry(form))).unzip();
        assert_eq!((names.len(), entries.len()), (forms.len(), forms.len()));
    }
}
