//! Copies of boxes of tensors: which bytes go where, what is counted, what is refused; and maps that kernels change.

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::numerics::f32_to_tf32;
use crate::tensor_map::{ElementType, Interleave, Swizzle, TensorMap};

/// A kernel `k` of one warp with parameters `map`, by value, and `out`, `in`: `%m` is the map's generic address, `%d0` and `%d1` the others, `%t` the thread, and `box` an aligned place
/// with its mbarrier, of one arrival, at `bar`.
fn around(body: &str) -> String {
    format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n\
         .visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u64 in)\n{{\n\
         .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b32 %t; .reg .b64 %d<12>; .reg .b64 %m;\n\
         .shared .align 1024 .b8 box[8192]; .shared .align 128 .b8 copy[128]; .shared .align 8 .b64 bar;\n\
         mov.b64 %m, map; cvta.param.u64 %m, %m;\nld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %t, %tid.x;\n\
         setp.ne.u32 %p7, %t, 0; @%p7 bra MADE;\nmbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;\nMADE: bar.sync 0;\n\
         {body}\n}}\n"
    )
}

/// Loads a box at coordinates, and waits.
fn load(coordinates: &[i32], bytes: u64) -> String {
    format!(
        "@%p7 bra WAIT;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {bytes};\n\
         cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [box], [%m, {{{}}}], [bar];\n\
         WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p6, [bar], 0; @!%p6 bra WAIT;\n",
        coordinates.len(),
        list(coordinates)
    )
}

fn list(coordinates: &[i32]) -> String {
    coordinates.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
}

/// Stores `bytes` bytes of shared memory to `out`.
fn dump(bytes: u64) -> String {
    format!(
        "bar.sync 0; mov.u32 %r0, %t; mov.u32 %r2, box;\nNEXT: setp.ge.u32 %p0, %r0, {bytes}; @%p0 bra END;\n\
         add.u32 %r3, %r2, %r0; ld.shared.u8 %r1, [%r3]; cvt.u64.u32 %d3, %r0; add.u64 %d3, %d3, %d0; st.global.u8 [%d3], %r1;\n\
         add.u32 %r0, %r0, 32; bra NEXT;\nEND:\n"
    )
}

/// Writes zeros to `bytes` bytes of shared memory.
fn clear(bytes: u64) -> String {
    format!(
        "mov.u32 %r0, %t; mov.u32 %r2, box;\nCLEAR: setp.ge.u32 %p0, %r0, {bytes}; @%p0 bra CLEARED;\n\
         add.u32 %r3, %r2, %r0; mov.u32 %r1, 0; st.shared.u8 [%r3], %r1; add.u32 %r0, %r0, 32; bra CLEAR;\nCLEARED: fence.proxy.async; bar.sync 0;\n"
    )
}

/// Starts what a copy does from shared to global memory, and waits.
fn store(opcode: &str, coordinates: &[i32]) -> String {
    format!(
        "@%p7 bra STORED;\nfence.proxy.async;\n{opcode}.bulk_group [%m, {{{}}}], [box];\ncp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nSTORED:\n",
        list(coordinates)
    )
}

/// What memory `in` holds, and `out`, when a kernel has run with a map of `in`, which holds bytes of a pattern at first.
fn run_with(body: &str, map: &mut TensorMap, bytes: usize) -> Result<(Vec<u8>, Vec<u8>), Fault> {
    let mut memory = Memory::new();
    let program = program(&around(body), 0, &mut memory);
    let out = memory.allocate(Owner::new(0, 0, "out"), 8192, Init::Zero);
    let source = memory.allocate(Owner::new(0, 0, "in"), bytes as u64, Init::Uninitialised);
    memory.write(source, 0, &pattern(bytes)).unwrap();
    map.address = source.0;
    let parameters = [&map.to_bytes()[..], &out.0.to_le_bytes(), &source.0.to_le_bytes()].concat();
    let grid = Grid::new(program, "k", shape(1, 32), &parameters, &mut memory)?;
    assert!(finish(grid, &mut memory)?.is_some(), "it hangs");
    Ok((memory.peek_all(source, bytes as u64, 0).unwrap().into_owned(), memory.peek_all(out, 8192, 0).unwrap().into_owned()))
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|byte| (byte * 7 + byte / 251) as u8).collect()
}

/// 24 x 10 elements of two bytes, in rows of 64 bytes, in boxes of 16 x 4.
fn matrix() -> TensorMap {
    TensorMap {
        element: ElementType::Bf16,
        dimensions: 2,
        extents: [24, 10, 0, 0, 0],
        strides: [64, 0, 0, 0],
        box_extents: [16, 4, 0, 0, 0],
        element_strides: [1; 5],
        ..TensorMap::default()
    }
}

#[test]
fn a_box_comes_and_all_of_it_is_counted() {
    let mut map = matrix();
    let (source, out) = run_with(&format!("{}{}", load(&[-8, 8], 128), dump(128)), &mut map, 640).unwrap();
    for (row, column) in (0..4).flat_map(|row| (0..16).map(move |column| (row, column))) {
        let got = &out[32 * row + 2 * column..][..2];
        match (8 + row, column as i32 - 8) {
            (y @ ..10, x @ 0..24) => assert_eq!(*got, source[64 * y + 2 * x as usize..][..2], "{row} {column}"),
            _ => assert_eq!(*got, [0, 0], "{row} {column}"),
        }
    }
}

/// As an H200 does: to the nearest, ties to even; NaNs are one, what is outside is not rounded, and nothing is flushed.
#[rstest]
fn tf32_is_rounded_where_it_is_loaded(#[values(ElementType::Tf32, ElementType::Tf32Ftz)] element: ElementType) {
    let mut map = TensorMap { element, extents: [12, 10, 0, 0, 0], box_extents: [8, 4, 0, 0, 0], fills_with_nans: true, ..matrix() };
    let cases = [
        (0x5555_5555_u32, 0x5555_6000_u32),
        (0x3f80_1000, 0x3f80_0000),
        (0x3f80_3000, 0x3f80_4000),
        (0x0000_1006, 0x0000_2000),
        (0x8000_0007, 0x8000_0000),
        (0x7f7f_ffff, 0x7f80_0000),
        (0xff80_0000, 0xff80_0000),
        (0x7f80_001c, 0x7fff_e000),
        (0xffff_f006, 0x7fff_e000),
    ];
    for (value, rounded) in cases {
        let put = format!("mov.b32 %r0, {value}; st.global.b32 [%d1], %r0;");
        let body = format!("{put} fence.proxy.async;\n{}{}", load(&[0, 0], 128), dump(128));
        let (_, out) = run_with(&body, &mut map, 640).unwrap();
        assert_eq!(out[..4], rounded.to_le_bytes(), "{value:#x}");
        let (_, out) = run_with(&format!("{}{}", load(&[12, 0], 128), dump(128)), &mut map, 640).unwrap();
        assert_eq!(out[..4], 0x7ff7_7ff7_u32.to_le_bytes());
    }
}

#[rstest]
#[case::bits_4(Swizzle::B32, 16, |chunk: usize| chunk ^ (chunk >> 3 & 1))]
#[case::bits_4_and_5(Swizzle::B64, 32, |chunk: usize| chunk ^ (chunk >> 3 & 3))]
#[case::bits_4_to_6(Swizzle::B128, 64, |chunk: usize| chunk ^ (chunk >> 3 & 7))]
fn swizzles_move_chunks(#[case] swizzle: Swizzle, #[case] columns: u32, #[case] place: fn(usize) -> usize) {
    let mut map =
        TensorMap { swizzle, box_extents: [columns, 32, 0, 0, 0], extents: [64, 32, 0, 0, 0], strides: [128, 0, 0, 0], ..matrix() };
    let bytes = map.box_bytes();
    let (source, out) = run_with(&format!("{}{}", load(&[0, 0], bytes), dump(bytes)), &mut map, 4096).unwrap();
    let row = 2 * columns as usize;
    for chunk in 0..bytes as usize / 16 {
        let (y, x) = (16 * chunk / row, 16 * chunk % row);
        assert_eq!(out[16 * place(chunk)..][..16], source[128 * y + x..][..16], "chunk {chunk}");
    }
}

#[test]
fn what_is_outside_is_not_stored() {
    let mut map = matrix();
    let fill = "mov.u32 %r2, box; mad.lo.u32 %r2, %t, 4, %r2; st.shared.u32 [%r2], 0xabababab; bar.sync 0;\n";
    let (stored, _) = run_with(&format!("{fill}{}", store("cp.async.bulk.tensor.2d.global.shared::cta", &[16, 8])), &mut map, 640).unwrap();
    let mut expected = pattern(640);
    (8..10).for_each(|y| expected[64 * y + 32..64 * y + 48].fill(0xab));
    assert_eq!(stored, expected);
}

#[rstest]
#[case("add", ElementType::U32, 0x0101_0101, |a: u32| a.wrapping_add(0x0101_0101))]
#[case("max", ElementType::S32, 5, |a: u32| (a as i32).max(5) as u32)]
#[case("and", ElementType::S32, 0xffff, |a: u32| a & 0xffff)]
#[case("inc", ElementType::U32, 1, |a: u32| if a >= 1 { 0 } else { a + 1 })]
fn boxes_are_reduced_into_tensors(#[case] op: &str, #[case] element: ElementType, #[case] value: u32, #[case] expected: fn(u32) -> u32) {
    let mut map = TensorMap { element, extents: [6, 3, 0, 0, 0], strides: [32, 0, 0, 0], box_extents: [8, 2, 0, 0, 0], ..matrix() };
    let fill = format!("mov.u32 %r2, box; mad.lo.u32 %r2, %t, 4, %r2; st.shared.u32 [%r2], {value}; bar.sync 0;\n");
    let copy = store(&format!("cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.tile"), &[0, 1]);
    let (reduced, _) = run_with(&format!("{fill}{copy}"), &mut map, 96).unwrap();
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    for (index, (after, before)) in reduced.chunks(4).zip(pattern(96).chunks(4)).enumerate() {
        // Rows of six words, of which the last chunk is reduced whole.
        let inside = index >= 8;
        assert_eq!(word(after), if inside { expected(word(before)) } else { word(before) }, "{index}");
    }
}

/// A map that a kernel has copied and changed, field by field, is the one that it means.
#[test]
fn a_changed_map_is_another_map() {
    let mut map = matrix();
    let changes = "mad.wide.u32 %d4, %t, 4, %m; ld.u32 %r1, [%d4]; mov.u32 %r2, copy; mad.lo.u32 %r2, %t, 4, %r2; st.shared.u32 [%r2], %r1; bar.sync 0;\n\
        @%p7 bra CHANGED;\nadd.u64 %d5, %d1, 64; tensormap.replace.tile.global_address.shared::cta.b1024.b64 [copy], %d5;\n\
        tensormap.replace.tile.rank.shared::cta.b1024.b32 [copy], 2; tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [copy], 0, 9;\n\
        tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [copy], 2, 5; tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [copy], 0, 32;\n\
        tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [copy], 1, 128; tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [copy], 1, 2;\n\
        tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [copy], 2, 3; tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [copy], 2, 2;\n\
        tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [copy], 0xa; tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [copy], 1;\n\
        tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [copy], 1; tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [copy], 0;\n\
        CHANGED: bar.sync 0;\n\
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d0], [copy], 128;\n\
        fence.proxy.tensormap::generic.acquire.gpu [%d0], 128; mov.b64 %m, %d0;\n";
    // Every second of three along the last dimension.
    let (source, out) = run_with(&format!("{changes}{}{}", load(&[0, 0, 1], 128), dump(0)), &mut map, 640).unwrap();
    let mut changed = TensorMap {
        address: map.address + 64,
        dimensions: 3,
        extents: [9, 10, 5, 1 << 32, 1 << 32],
        strides: [32, 128, 0, 0],
        box_extents: [16, 2, 3, 0, 0],
        element_strides: [1, 1, 2, 1, 1],
        swizzle: Swizzle::B32,
        fills_with_nans: true,
        ..map
    };
    let bytes: [u8; 128] = out[..128].try_into().unwrap();
    assert_eq!(TensorMap::of_bytes(&bytes), Ok(changed));
    changed.replace(crate::tensor_map::Field::Element, 9).unwrap();
    assert_eq!(changed.element, ElementType::F64);
    assert_eq!(source, pattern(640));
}

/// Triton makes maps of zeros.
#[test]
fn a_map_is_made_of_zeros() {
    let fields = "@%p7 bra CHANGED;\n\
        tensormap.replace.tile.global_address.global.b1024.b64 [%d0], %d1; tensormap.replace.tile.rank.global.b1024.b32 [%d0], 0;\n\
        tensormap.replace.tile.global_dim.global.b1024.b32 [%d0], 0, 40; tensormap.replace.tile.box_dim.global.b1024.b32 [%d0], 0, 48;\n\
        tensormap.replace.tile.element_stride.global.b1024.b32 [%d0], 0, 1; tensormap.replace.tile.elemtype.global.b1024.b32 [%d0], 0;\n\
        fence.proxy.tensormap::generic.release.gpu;\nCHANGED: bar.sync 0;\nfence.proxy.tensormap::generic.acquire.gpu [%d0], 128; mov.b64 %m, %d0;\n";
    let (source, out) = run_with(&format!("{fields}{}{}", load(&[32], 48), dump(48)), &mut matrix(), 640).unwrap();
    assert_eq!(out[..8], source[32..40]);
    assert_eq!(out[8..48], [0; 40]);
}

#[rstest]
#[case::alignment(
    "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [box+64], [%m, {0, 0}], [bar];",
    "a multiple of 128 bytes"
)]
#[case::place(
    "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [box], [%m, {4, 0}], [bar];",
    "a box at 4 along the first dimension, which is 8 bytes: expected a multiple of 16"
)]
#[case::dimensions(
    "cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes [box], [%m, {0, 0, 0}], [bar];",
    "a tensor map of 2 dimensions, and 3 coordinates"
)]
#[case::elsewhere(
    "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [box], [%d1, {0, 0}], [bar];",
    "no tensor map at rank 0 in+0: these are the bytes of something else"
)]
#[case::zeros(
    "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [box], [%d0, {0, 0}], [bar];",
    "no tensor map at rank 0 out+0: all of its bytes are zero"
)]
#[case::misaligned(
    "add.u64 %m, %m, 8; cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [box], [%m, {0, 0}], [bar];",
    "a multiple of 64 bytes"
)]
#[case::no_mbarrier(
    "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [box], [%m, {0, 0}], [copy+8];",
    "there is no mbarrier"
)]
#[case::room("cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [box+8320], [%m, {0, 0}], [bar];", "out of bounds")]
#[case::written(
    "mov.u32 %r1, 7; st.u32 [%m+40], %r1; cp.async.bulk.prefetch.tensor.2d.L2.global [%m, {0, 0}];",
    "something else than tensormap.replace has written there"
)]
#[case::bound(
    "tensormap.replace.tile.box_dim.b1024.b32 [%m], 0, 12; cp.async.bulk.prefetch.tensor.2d.L2.global [%m, {0, 0}];",
    "rows of 24 bytes: expected a multiple of 16"
)]
#[case::interleaved(
    "tensormap.replace.tile.interleave_layout.b1024.b32 [%m], 1; cp.async.bulk.prefetch.tensor.2d.L2.global [%m, {0, 0}];",
    "2 dimensions: expected 3 to 5"
)]
#[case::type_of_sums(
    "tensormap.replace.tile.elemtype.b1024.b32 [%m], 0; cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%m, {0, 0}], [box];",
    ".add of U8 is not emulated"
)]
#[case::stored_before("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%m, {0, -1}], [box];", "only loads start before the tensor")]
#[case::block_is_gone("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%m, {0, 0}], [box]; exit;", "ended before it was done")]
fn misuse_is_told(#[case] body: &str, #[case] expected: &str) {
    let fault = run_with(&format!("@%p7 ret;\n{body}\nret;"), &mut matrix(), 640).unwrap_err().to_string();
    assert!(fault.contains(expected), "{fault}");
}

/// Beyond the buffer that a map was made of: what the tensor is said to have there is no memory of it.
#[test]
fn a_tensor_larger_than_its_buffer_is_out_of_bounds() {
    let fault = run_with(&load(&[0, 8], 128), &mut matrix(), 600).unwrap_err();
    assert!(matches!(fault, Fault::Memory { error: crate::memory::AccessError::OutOfBounds { offset: 576, .. }, .. }), "{fault}");
}

prop_compose! {
    /// A map that the driver would make, and coordinates.
    fn maps()(
        dimensions in 1_usize..=5,
        element in prop::sample::select(ElementType::ALL.to_vec()),
        swizzle in prop::sample::select(Swizzle::ALL.to_vec()),
        interleave in prop::sample::select(Interleave::ALL.to_vec()),
        chunks in 1_u64..=8,
        extents in prop::array::uniform5(1_u64..=9),
        room in prop::array::uniform4(0_u64..=2),
        boxes in prop::array::uniform5(1_u32..=5),
        element_strides in prop::array::uniform5(1_u32..=3),
        coordinates in prop::array::uniform5(-6_i32..=8),
    ) -> (TensorMap, Vec<i32>) {
        let chunks = chunks.min(swizzle.span().unwrap_or(128) / 16);
        let interleave = if dimensions < 3 { Interleave::None } else { interleave };
        let swizzle = if interleave == Interleave::B32 { Swizzle::B32 } else { swizzle };
        let mut map = TensorMap { dimensions, element, swizzle, interleave, extents, box_extents: boxes, element_strides, ..TensorMap::default() };
        map.extents[0] *= if interleave == Interleave::None { 5 } else { 1 };
        map.box_extents[0] = (16 * chunks / element.bytes()) as u32;
        let size = map.unit();
        let aligned = size.max(16);
        map.strides[0] = (map.extents[0] * size).next_multiple_of(aligned) + aligned * room[0];
        for (dimension, room) in room.iter().enumerate().skip(1) {
            map.strides[dimension] = map.strides[dimension - 1] * (map.extents[dimension] + room);
        }
        let in_shared = |map: &TensorMap| map.box_bytes() / map.row_bytes() * map.pitch();
        while in_shared(&map) > 4096 {
            map.box_extents[dimensions - 1] -= 1;
            if map.box_extents[dimensions - 1] == 0 {
                map.box_extents[dimensions - 1] = 1;
                map.box_extents[1..].fill(1);
            }
        }
        let mut coordinates = coordinates[..dimensions].to_vec();
        coordinates[0] *= 16_u64.div_ceil(size) as i32;
        (map, coordinates)
    }
}

/// Where in the tensor an element of a box is, by its numbers along each dimension, element by element.
fn place(map: &TensorMap, coordinates: &[i32], element: &[u64]) -> Option<usize> {
    let mut at = 0;
    for (dimension, (&coordinate, &number)) in coordinates.iter().zip(element).enumerate() {
        let stride = if dimension == 0 && map.interleave == Interleave::None { 1 } else { map.element_strides[dimension] };
        let index = i64::from(coordinate) + number as i64 * i64::from(stride);
        if index < 0 || index >= map.extents[dimension] as i64 {
            return None;
        }
        at += index as u64 * if dimension == 0 { map.unit() } else { map.strides[dimension - 1] };
    }
    Some(at as usize)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A load is the copy that one would write by hand, and a store of what was loaded changes nothing where loads do not round.
    #[test]
    fn boxes_are_what_copies_by_hand_are((mut map, coordinates) in maps()) {
        prop_assert_eq!(map.check(), Ok(()));
        let (size, box_bytes) = (map.unit() as usize, map.box_bytes());
        let bytes = match map.dimensions {
            1 => (map.extents[0] as usize * size).next_multiple_of(16),
            dimensions => (map.strides[dimensions - 2] * map.extents[dimensions - 1]) as usize,
        };
        let rounds = matches!(map.element, ElementType::Tf32 | ElementType::Tf32Ftz);
        let back = match coordinates.iter().all(|&coordinate| coordinate >= 0) {
            true if !rounds => store(&format!("cp.async.bulk.tensor.{}d.global.shared::cta", coordinates.len()), &coordinates),
            _ => String::new(),
        };
        // Rows whose number is no multiple of a swizzle's leave gaps.
        let row = map.row_bytes();
        let room = (box_bytes / row * map.pitch()).next_multiple_of(1024);
        let body = format!("{}{}{}{back}", clear(room), load(&coordinates, box_bytes), dump(room));
        let (source, out) = run_with(&body, &mut map, bytes).unwrap();
        // What completes the last 16 bytes of a row is stored, too.
        let (row_bytes, pitch) = (map.extents[0] as usize * size, if map.dimensions == 1 { bytes } else { map.strides[0] as usize });
        let before = pattern(bytes);
        let differs = (0..bytes).find(|&at| at % pitch < row_bytes && source[at] != before[at]);
        prop_assert_eq!(differs, None);
        let counts: Vec<u64> = (0..map.dimensions)
            .map(|dimension| match map.interleave {
                Interleave::None if dimension == 0 => map.box_extents[0].into(),
                // A box is of one slice of channels.
                Interleave::B16 | Interleave::B32 if dimension + 2 == map.dimensions => 1,
                _ => map.box_extents[dimension].div_ceil(map.element_strides[dimension]).into(),
            })
            .collect();
        for number in 0..box_bytes as usize / size {
            let mut rest = number as u64;
            let element: Vec<u64> = counts.iter().map(|count| (rest % count, rest /= count).0).collect();
            let expected = place(&map, &coordinates, &element).map_or(vec![0; size], |at| source[at..at + size].to_vec());
            let rounded = |word: &[u8]| f32_to_tf32(u32::from_le_bytes(word.try_into().unwrap())).to_le_bytes();
            let expected = if rounds { expected.chunks_exact(4).flat_map(rounded).collect() } else { expected };
            let offset = number * size / row as usize * map.pitch() as usize + number * size % row as usize;
            // A pixel of 32 bytes is two chunks, each of which has a place of its own.
            for (offset, expected) in (offset..).step_by(16).zip(expected.chunks(16)) {
                let (chunk, within) = (offset / 16, offset % 16);
                let turned = match map.swizzle {
                    Swizzle::None => chunk,
                    Swizzle::B32 => chunk ^ (chunk >> 3 & 1),
                    Swizzle::B64 => chunk ^ (chunk >> 3 & 3),
                    Swizzle::B128 => chunk ^ (chunk >> 3 & 7),
                };
                let got = &out[16 * turned + within..][..expected.len()];
                prop_assert_eq!(got, expected, "element {:?} of {:?} at {:?}", &element, map, coordinates);
            }
        }
    }
}

#[test]
fn bytes_of_maps_are_maps() {
    let map = TensorMap { interleave: Interleave::B32, fills_with_nans: true, swizzle: Swizzle::B64, address: 1 << 40, ..matrix() };
    let bytes = map.to_bytes();
    let read = TensorMap::of_bytes(&bytes).unwrap();
    // What is beyond the dimensions is not told apart from 2^32.
    assert_eq!(TensorMap { extents: map.extents, ..read }, map);
    assert_eq!(read.extents[..2], map.extents[..2]);
    for byte in 0..bytes.len() {
        let mut changed = bytes;
        changed[byte] ^= 1;
        assert!(TensorMap::of_bytes(&changed).is_err(), "byte {byte}");
    }
}
