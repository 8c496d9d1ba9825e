//! Boxes of tensors and their maps (PTX ISA 9.7.9.27, 9.7.9.28): loads and stores of each number of dimensions, swizzle, fill and type, reductions, and
//! maps that a kernel has changed.
//!
//! A block copies one box, at coordinates that follow from its first operands: from before the tensor to beyond it. Loads are from the first operands of all
//! blocks together. A store is to the block's own second operands, a slice of the tensor's last dimension. What a thread gives is one word: of the box in shared
//! memory, or of the slice.

use super::{Form, OverOperands, value};
use passmuster_plan::{
    collective::DType,
    plan::{Outside, Region, TensorMap},
};
use passmuster_ptx::Type::{self, *};

/// Bytes of a box and of a slice at most: a word for each thread.
const BYTES: u64 = 1024;

/// Bytes between the slices of blocks: a block's operands.
const SLICE: u64 = 2048;

/// What shared memory holds where no box was loaded.
const UNTOUCHED: &str = "0x5ca1ab1e";

/// All of them.
pub(super) fn forms() -> Vec<Form> {
    let mut forms = loads();
    forms.extend(stores());
    forms.extend(reductions());
    forms.extend(replaced());
    forms
}

/// A map of packed elements.
fn map(dtype: DType, extents: &[u64], tile: &[u32], swizzle: u32) -> TensorMap {
    packed(TensorMap::packed(Region::new("operands", 0, 0), dtype, extents.to_vec(), tile.to_vec(), swizzle))
}

/// The map with strides of rows that lie one after the other.
fn packed(map: TensorMap) -> TensorMap {
    let mut bytes = (map.extents[0] * map.unit()).next_multiple_of(32);
    let strides = map.extents[1..].iter().map(|extent| (bytes, bytes *= extent).0).collect();
    TensorMap { strides, ..map }
}

/// A map of pixels of 16 or 32 bytes, slices of channels. All of these are within what the driver takes.
fn interleaved(bytes: u32, dtype: DType, extents: &[u64], tile: &[u32], swizzle: u32) -> TensorMap {
    packed(TensorMap { interleave: bytes, ..map(dtype, extents, tile, swizzle) })
}

/// Interleaved channels: bytes, type and swizzle.
const INTERLEAVED: [(u32, DType, u32); 6] =
    [(16, DType::U32, 0), (16, DType::BF16, 32), (16, DType::U32, 64), (16, DType::F16, 128), (32, DType::U32, 32), (32, DType::BF16, 32)];

/// Extents and boxes of 1 to 5 dimensions of words.
const SHAPES: [(&[u64], &[u32]); 5] = [
    (&[27, 20], &[16, 16]),
    (&[11, 6, 7], &[8, 4, 5]),
    (&[9, 4, 5, 3], &[4, 3, 4, 2]),
    (&[10, 3, 4, 2, 2], &[4, 2, 3, 2, 2]),
    (&[900], &[256]),
];

fn loads() -> Vec<Form> {
    let mut forms = Vec::new();
    for (extents, tile) in SHAPES {
        let map = map(DType::U32, extents, tile, 0);
        forms.extend(["shared::cluster", "shared::cta"].map(|to| loaded(to, "", &map, 0)));
    }
    let mut add = |what: &str, map: TensorMap, at: u64| forms.push(loaded("shared::cluster", what, &map, at));
    for dtype in DType::ALL {
        let columns = 32 / dtype.size();
        add(&format!(" of {dtype}"), map(dtype, &[2 * columns - 3, 40], &[columns as u32, 32], 0), 0);
    }
    // Rows as long as swizzles, and shorter ones.
    for (swizzle, bytes) in
        [(32, 32), (32, 16), (64, 64), (64, 48), (64, 32), (64, 16), (128, 128), (128, 112), (128, 96), (128, 64), (128, 32), (128, 16)]
    {
        let (columns, rows) = (bytes / 4, (BYTES as u32 / bytes).min(16));
        let of = map(DType::U32, &[40, 24], &[columns, rows], swizzle);
        add(&format!(" in rows of {bytes} swizzled {swizzle}"), of, 0);
    }
    for (swizzle, at) in [(32, 128), (64, 128), (64, 256), (128, 128), (128, 384), (128, 640)] {
        add(&format!(" swizzled {swizzle} at {at}"), map(DType::U32, &[40, 24], &[swizzle / 4, 8 / (swizzle / 32)], swizzle), at);
    }
    for bytes in [48, 80, 112] {
        add(&format!(" in rows of {bytes}"), map(DType::U32, &[40, 24], &[bytes / 4, 8], 0), 0);
    }
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let columns = 32 / dtype.size();
        let of = map(dtype, &[2 * columns - 3, 40], &[columns as u32, 32], 0);
        add(&format!(" of {dtype} and NaNs"), TensorMap { outside: Outside::Nans, ..of }, 0);
    }
    for strides in [[2, 1, 1], [1, 2, 1], [1, 1, 2], [1, 3, 2], [8, 8, 8]] {
        let of = map(DType::U32, &[11, 10, 6], &[8, 7, 4], 0);
        let name = format!(" by {}x{}x{}", strides[0], strides[1], strides[2]);
        add(&name, TensorMap { element_strides: strides.to_vec(), ..of }, 0);
    }
    for (bytes, dtype, swizzle) in INTERLEAVED {
        let shapes: [(&[u64], &[u32]); 3] =
            [(&[11, 3, 7], &[8, 2, 4]), (&[9, 4, 3, 3], &[8, 2, 2, 2]), (&[9, 3, 2, 3, 2], &[8, 2, 2, 2, 1])];
        for (extents, tile) in shapes {
            add(&format!(" of {dtype} interleaved {bytes} swizzled {swizzle}"), interleaved(bytes, dtype, extents, tile, swizzle), 0);
        }
    }
    for strides in [[2, 1, 1], [1, 2, 3], [3, 1, 2]] {
        let of = interleaved(16, DType::U32, &[11, 3, 7], &[8, 4, 5], 0);
        let name = format!(" interleaved 16 by {}x{}x{}", strides[0], strides[1], strides[2]);
        add(&name, TensorMap { element_strides: strides.to_vec(), ..of }, 0);
    }
    let of = interleaved(32, DType::F16, &[11, 3, 7], &[8, 2, 4], 32);
    add(" of f16 interleaved 32 and NaNs", TensorMap { outside: Outside::Nans, ..of }, 0);
    // Neighbours that overlap, and a dimension that goes nowhere.
    add(" at strides that overlap", TensorMap { strides: vec![16, 48], ..map(DType::U32, &[27, 20, 5], &[8, 4, 8], 0) }, 0);
    add(" at a stride of nothing", TensorMap { strides: vec![0, 112], ..map(DType::U32, &[27, 20, 5], &[8, 4, 8], 0) }, 0);
    forms
}

fn stores() -> Vec<Form> {
    let mut forms = Vec::new();
    let mut add = |what: &str, map: TensorMap| {
        let dimensions = map.extents.len();
        let store =
            |coordinates: &str| format!("cp.async.bulk.tensor.{dimensions}d.global.shared::cta.bulk_group [%map, {coordinates}], [%box];");
        forms.push(stored(&format!("cp.async.bulk.tensor.{dimensions}d.global{what}"), &map, &store, (B64, B32)));
    };
    // One dimension reaches all blocks: each stores at the start of its own slice.
    add("", map(DType::U32, &[1], &[240], 0));
    let slices: [(&[u64], &[u32]); 4] = [(&[250], &[240]), (&[27, 8], &[16, 6]), (&[11, 4, 5], &[8, 3, 4]), (&[5, 4, 3, 3], &[4, 3, 2, 2])];
    for (extents, tile) in slices {
        add("", sliced(map(DType::U32, extents, tile, 0)));
    }
    for dtype in DType::ALL {
        let columns = 32 / dtype.size();
        add(&format!(" of {dtype}"), sliced(map(dtype, &[2 * columns - 3, 16], &[columns as u32, 12], 0)));
    }
    for (swizzle, bytes) in [(32, 32), (32, 16), (64, 64), (64, 48), (128, 128), (128, 96), (128, 64)] {
        add(&format!(" in rows of {bytes} swizzled {swizzle}"), sliced(map(DType::U32, &[28, 8], &[bytes / 4, 8], swizzle)));
    }
    for strides in [[2, 1, 1], [1, 2, 1], [1, 3, 1], [1, 2, 2]] {
        let of = sliced(map(DType::U32, &[11, 16], &[8, 7], 0));
        add(&format!(" by {}x{}x{}", strides[0], strides[1], strides[2]), TensorMap { element_strides: strides.to_vec(), ..of });
    }
    for (bytes, dtype, swizzle) in INTERLEAVED {
        let slices: [(&[u64], &[u32]); 2] = [(&[10, 2], &[8, 2]), (&[5, 3, 2], &[8, 2, 2])];
        for (extents, tile) in slices {
            add(&format!(" of {dtype} interleaved {bytes} swizzled {swizzle}"), sliced(interleaved(bytes, dtype, extents, tile, swizzle)));
        }
    }
    forms
}

/// A tensor of slices, one a block.
fn sliced(map: TensorMap) -> TensorMap {
    let (mut extents, mut strides, mut tile) = (map.extents, map.strides, map.tile);
    extents.push(1);
    strides.push(SLICE);
    tile.push(1);
    TensorMap { extents, strides, tile, ..map }
}

fn reductions() -> Vec<Form> {
    let mut forms = Vec::new();
    let of_3 = |map: &TensorMap, (op, what): (&str, &str), types| {
        let reduce = |coordinates: &str| {
            format!("cp.reduce.async.bulk.tensor.3d.global.shared::cta.{op}.tile.bulk_group [%map, {coordinates}], [%box];")
        };
        stored(&format!("cp.reduce.async.bulk.tensor.3d.global.{op} of {what}"), map, &reduce, types)
    };
    let of = sliced(interleaved(16, DType::U32, &[10, 2], &[8, 2], 0));
    forms.push(of_3(&of, ("add", "u32 interleaved 16"), (U32, U32)));
    let types: [(&str, &[(DType, Type)]); 8] = [
        (
            "add",
            &[
                (DType::U32, U32),
                (DType::I32, S32),
                (DType::U64, U64),
                (DType::F32, F32),
                (DType::F64, F64),
                (DType::F16, F16),
                (DType::BF16, Bf16),
            ],
        ),
        ("min", &[(DType::U32, U32), (DType::I32, S32), (DType::U64, U64), (DType::I64, S64), (DType::F16, F16), (DType::BF16, Bf16)]),
        ("max", &[(DType::U32, U32), (DType::I32, S32), (DType::U64, U64), (DType::I64, S64), (DType::F16, F16), (DType::BF16, Bf16)]),
        ("inc", &[(DType::U32, U32)]),
        ("dec", &[(DType::U32, U32)]),
        ("and", &[(DType::U32, B32), (DType::I32, B32), (DType::U64, B64)]),
        ("or", &[(DType::U32, B32), (DType::I32, B32), (DType::U64, B64)]),
        ("xor", &[(DType::U32, B32), (DType::I32, B32), (DType::U64, B64)]),
    ];
    for (op, dtype, ty) in types.iter().flat_map(|(op, types)| types.iter().map(move |&(dtype, ty)| (op, dtype, ty))) {
        let columns = 32 / dtype.size();
        let map = sliced(map(dtype, &[columns - 3, 30], &[columns as u32, 32], 0));
        forms.push(of_3(&map, (op, &dtype.to_string()), (ty, ty)).with_open_nan(ty == F64));
    }
    forms
}

/// Maps of which a field has been replaced, all of them of f32 in boxes of 8 x 16 at first.
fn replaced() -> Vec<Form> {
    const BOX: u64 = 8 * 16;
    // What is replaced, of what in the name, by what; bytes of the box then.
    let mut all: Vec<(String, &str, String, u64)> = [
        ("global_address", "b64", "%next", 4 * BOX),
        ("rank", "b32", "1", 4 * BOX),
        ("box_dim", "b32", "1, 5", 4 * 8 * 5),
        ("global_dim", "b32", "1, 14", 4 * BOX),
        ("global_stride", "b64", "0, %state", 4 * BOX),
        ("element_stride", "b32", "1, 3", 4 * 8 * 6),
        ("fill_mode", "b32", "0", 4 * BOX),
        ("interleave_layout", "b32", "0", 4 * BOX),
        ("swizzle_mode", "b32", "1", 4 * BOX),
    ]
    .map(|(field, ty, by, bytes)| (field.to_owned(), ty, by.to_owned(), bytes))
    .into();
    let types = [("u8", 1), ("u16", 2), ("u32", 4), ("s32", 4), ("u64", 8), ("s64", 8), ("f16", 2), ("f32", 4), ("f32.ftz", 4)];
    let types = types.into_iter().chain([("f64", 8), ("bf16", 2), ("tf32", 4), ("tf32.ftz", 4)]);
    all.extend((0..).zip(types).map(|(number, (name, size))| (format!("elemtype to {name}"), "b32", number.to_string(), size * BOX)));
    let replace = |field: &str, ty: &str, by: &str| format!("tensormap.replace.tile.{field}.shared::cta.b1024.{ty} [%box], {by};\n");
    let form = |(what, ty, by, bytes): (String, &str, String, u64)| {
        let (field, to) = what.split_once(" to ").unwrap_or((&what, ""));
        let before = match to {
            // Rows of 8 bytes are none.
            "u8" => replace("box_dim", "b32", "0, 16") + &replace("box_dim", "b32", "1, 8"),
            _ => String::new(),
        };
        let outside = if field == "fill_mode" || to.contains('f') { Outside::Nans } else { Outside::Zeros };
        let of = TensorMap { outside, ..map(DType::F32, &[27, 20], &[8, 16], 0) };
        let change = format!(
            "ld.param.u64 %next, [operands];\nadd.u64 %next, %next, 64;\nmov.u64 %state, 144;\n{before}{}",
            replace(field, ty, &by)
        );
        let code = format!(
            "{}{}{}",
            coordinates(&of, B64, if to == "u8" { 16 } else { 8 }, 1),
            changed(&change),
            load_of(&of, "shared::cluster", 0, bytes, "%maps")
        );
        over(&format!("tensormap.replace.tile.{what}"), &of, 0, &code, (B64, B32))
    };
    all.into_iter().map(form).collect()
}

/// Copies the map to shared memory, changes it there, and publishes it at `%maps` in global memory.
fn changed(change: &str) -> String {
    format!(
        "setp.lt.u32 %over, %thread, 32;\nmul.wide.u32 %state, %thread, 4;\nadd.u64 %state, %state, %map;\n@%over ld.b32 %part, [%state];\n\
         @%over st.shared.b32 [%word], %part;\nbar.sync 0;\nsetp.eq.u32 %over, %thread, 0;\n@!%over bra CHANGED;\n{change}CHANGED:\nbar.sync 0;\n\
         setp.ge.u32 %over, %thread, 32;\n@%over bra PUBLISHED;\n\
         tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%maps], [%box], 128;\nPUBLISHED:\nbar.sync 0;\n\
         fence.proxy.tensormap::generic.acquire.gpu [%maps], 128;\nbar.sync 0;\n"
    )
}

/// A form of a map over operands of one plane.
fn over(name: &str, map: &TensorMap, plane: usize, code: &str, (operand, result): (Type, Type)) -> Form {
    let code = format!(
        "{{\n.reg .pred %over;\n.reg .b32 %looks, %part, %word, {};\n.reg .b64 %state, %next, %slice;\n\
         shl.b32 %word, %thread, 2;\nadd.u32 %word, %word, %box;\n{code}}}",
        COORDINATES.join(", ")
    );
    let tensor = Some(OverOperands { map: map.clone(), plane });
    Form { tensor, ..Form::new(name, &[value(operand), value(operand)], result).with_code(vec![code]) }
}

/// Names of coordinates.
const COORDINATES: [&str; 5] = ["%ca", "%cb", "%cc", "%cd", "%ce"];

fn list(dimensions: usize) -> String {
    format!("{{{}}}", COORDINATES[..dimensions].join(", "))
}

/// Coordinates of a box from before the tensor to beyond it, from the block's first operands: all threads know them. Along the first dimension they are
/// multiples of `grain` elements: boxes start at multiples of 16 bytes. Those of loads may start `before` times that before the tensor.
fn coordinates(map: &TensorMap, operand: Type, grain: u64, before: u32) -> String {
    let narrow = match operand.bits() {
        32 => "mov.b32 %part, %a;",
        bits => &format!("cvt.u32.u{bits} %part, %a;"),
    };
    let each = map.extents.iter().zip(COORDINATES).enumerate().map(|(dimension, (&extent, name))| {
        let grain = if dimension == 0 { grain } else { 1 };
        let span = extent.div_ceil(grain) + 2;
        format!(
            "ld.shared.b32 {name}, [%box+{}];\nrem.u32 {name}, {name}, {span};\nsub.s32 {name}, {name}, {before};\nmul.lo.s32 {name}, {name}, {grain};\n",
            4 * dimension
        )
    });
    // Edges alone would bring most boxes to few places.
    let mixed = "add.u32 %part, %part, %index;\nmul.lo.u32 %part, %part, 0x9e3779b1;\nshr.u32 %part, %part, 8;\n";
    format!("{narrow}\n{mixed}st.shared.b32 [%word], %part;\nbar.sync 0;\n{}bar.sync 0;\n", each.collect::<String>())
}

/// Loads a box by the map at an address, `at` bytes into the block's shared memory, waits for `bytes` bytes, and gives a word of them to each thread.
fn load_of(map: &TensorMap, to: &str, at: u64, bytes: u64, by: &str) -> String {
    let dimensions = map.extents.len();
    format!(
        "st.shared.b32 [%word], {UNTOUCHED};\nst.shared.b32 [%word+{BYTES}], {UNTOUCHED};\nsetp.ne.u32 %over, %thread, 0;\n@%over bra MADE;\n\
         mbarrier.init.shared::cta.b64 [%box+2048], 1;\nfence.mbarrier_init.release.cluster;\nMADE:\nfence.proxy.async;\nbar.sync 0;\n\
         @%over bra SENT;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%box+2048], {bytes};\n\
         cp.async.bulk.tensor.{dimensions}d.{to}.global.mbarrier::complete_tx::bytes [%box+{at}], [{by}, {}], [%box+2048];\nSENT:\n\
         mov.u32 %looks, 0;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 %over, [%box+2048], 0;\n@%over bra OVER;\n\
         add.u32 %looks, %looks, 1;\nsetp.lt.u32 %over, %looks, 100000;\n@%over bra WAIT;\nOVER:\n\
         ld.shared.b32 %x, [%word+{at}];\n@!%over not.b32 %x, %x;\nbar.sync 0;\nsetp.ne.u32 %over, %thread, 0;\n@%over bra GONE;\n\
         mbarrier.inval.shared::cta.b64 [%box+2048];\nGONE:\nbar.sync 0;\n",
        list(dimensions)
    )
}

/// Elements of the first dimension between places where boxes may start.
fn grain(map: &TensorMap) -> u64 {
    16_u64.div_ceil(map.unit())
}

fn loaded(to: &str, what: &str, map: &TensorMap, at: u64) -> Form {
    let copied = |(dimension, (&tile, stride)): (usize, (&u32, u32))| match map.interleave {
        0 if dimension == 0 => tile.into(),
        // One slice of channels.
        16 | 32 if dimension + 2 == map.tile.len() => 1,
        _ => u64::from(tile.div_ceil(stride)),
    };
    let elements: u64 = map.tile.iter().zip(map.all_element_strides()).enumerate().map(copied).product();
    let code = format!("{}{}", coordinates(map, B64, grain(map), 1), load_of(map, to, at, elements * map.unit(), "%map"));
    let named = if to == "shared::cta" { "shared" } else { to };
    over(&format!("cp.async.bulk.tensor.{}d.{named}{what}", map.extents.len()), map, 0, &code, (B64, B32))
}

/// What a copy to the block's slice leaves there. Each thread puts its first operand into the box.
fn stored(name: &str, map: &TensorMap, start: &dyn Fn(&str) -> String, (operand, result): (Type, Type)) -> Form {
    let dimensions = map.extents.len();
    let fill = match operand.bytes() {
        8 => {
            "setp.lt.u32 %over, %thread, 128;\nshl.b32 %part, %thread, 2;\nadd.u32 %part, %part, %word;\n@%over st.shared.b64 [%part], %a;\n"
        }
        4 => "st.shared.b32 [%word], %a;\n",
        _ => "st.shared.b16 [%word], %a;\nst.shared.b16 [%word+2], %a;\n",
    };
    let last = COORDINATES[dimensions - 1];
    let whose = if dimensions == 1 {
        format!("mul.lo.u32 {last}, %index, 2;\nshfl.sync.idx.b32 {last}, {last}, 0, 31, -1;\n")
    } else {
        format!("mov.u32 {last}, %ctaid.x;\n")
    };
    let bits = result.bits();
    let code = format!(
        "{}{whose}{fill}fence.proxy.async;\nbar.sync 0;\nsetp.ne.u32 %over, %thread, 0;\n@%over bra STORED;\n{}\n\
         cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nSTORED:\nbar.sync 0;\n\
         ld.param.u64 %slice, [operands];\nadd.u64 %slice, %slice, %plane;\nmov.u32 %part, %ctaid.x;\nmul.wide.u32 %state, %part, {SLICE};\n\
         add.u64 %slice, %slice, %state;\nmul.wide.u32 %state, %thread, {};\nadd.u64 %slice, %slice, %state;\n\
         cvta.to.global.u64 %slice, %slice;\nld.global.b{bits} %x, [%slice];\nbar.sync 0;\n",
        coordinates(map, operand, grain(map), 0),
        start(&list(dimensions)),
        result.bytes().max(4)
    );
    over(name, map, 1, &code, (operand, result))
}
