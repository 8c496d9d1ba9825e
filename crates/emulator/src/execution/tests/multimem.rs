//! multimem through a window over replicas: each type and operator, the modes of sums, and misuse.

use std::collections::BTreeSet;

use rstest::rstest;

use super::*;

/// A window of rank 0 over replicas of 16 bytes, one a rank, and 16 bytes for results.
struct Replicas {
    memory: Memory,
    out: Address,
    window: Address,
    replicas: Vec<Address>,
}

impl Replicas {
    /// Replicas that start with these words; what follows was never written.
    fn of(contents: &[&[u32]]) -> Replicas {
        let mut memory = Memory::new();
        let out = memory.allocate(Owner::new(0, 0, "out"), 16, Init::Canary);
        let mut replicas = Vec::new();
        for (rank, words) in contents.iter().enumerate() {
            let replica = memory.allocate(Owner::new(rank, 0, "in"), 16, Init::Uninitialised);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            memory.write(replica, rank, &bytes).unwrap();
            replicas.push(replica);
        }
        let window = memory.multicast(Owner::new(0, 0, "in"), 16, &replicas).unwrap();
        Replicas { memory, out, window, replicas }
    }

    fn grid(&mut self, body: &str, input: Address) -> Grid {
        let program = program(&around(body), 0, &mut self.memory);
        let parameters = [self.out.0.to_le_bytes(), input.0.to_le_bytes()].concat();
        Grid::new(program, "k", shape(1, 1), &parameters, &mut self.memory).unwrap()
    }

    /// What one thread leaves in `%r0` to `%r3`.
    fn run(&mut self, body: &str, (multimem, seed): (MultimemReduction, u64)) -> Result<Vec<u32>, Fault> {
        let grid = self.grid(&format!("{body}\nst.global.v4.u32 [%d0], {{%r0,%r1,%r2,%r3}};"), self.window);
        finish(grid.varied(Arithmetic { multimem, ..Arithmetic::default() }, [0, seed]), &mut self.memory)?.expect("it ends");
        Ok(words(&self.memory, self.out, 4))
    }

    fn replica(&self, rank: usize, count: u32) -> Vec<u32> {
        let bytes = self.memory.peek_all(self.replicas[rank], u64::from(count) * 4, rank).unwrap();
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }
}

const ASCENDING: (MultimemReduction, u64) = (MultimemReduction::RankAscending, 0);
const EXACT: (MultimemReduction, u64) = (MultimemReduction::ExactOnce, 0);

fn single(value: f32) -> u32 {
    value.to_bits()
}

/// A double's words, low first.
fn double(value: f64) -> [u32; 2] {
    [value.to_bits() as u32, (value.to_bits() >> 32) as u32]
}

/// Two bf16 or f16 patterns in a word, the first in the low half.
fn pair(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

#[rstest]
#[case("add.u32 %r0", [3, 5, u32::MAX], 7)]
#[case("add.s32 %r0", [3, 5, u32::MAX], 7)]
#[case("min.u32 %r0", [3, 5, u32::MAX], 3)]
#[case("min.s32 %r0", [3, 5, u32::MAX], u32::MAX)]
#[case("max.u32 %r0", [3, 5, u32::MAX], u32::MAX)]
#[case("max.s32 %r0", [3, 5, u32::MAX], 5)]
#[case("and.b32 %r0", [7, 13, 6], 4)]
#[case("or.b32 %r0", [1, 8, 2], 11)]
#[case("xor.b32 %r0", [7, 13, 6], 12)]
#[case("add.f32 %r0", [1.5, -0.25, 8.0].map(single), single(9.25))]
#[case::subnormals_stay("add.f32 %r0", [1, 2, 4], 7)]
#[case::infinities("add.f32 %r0", [f32::INFINITY, 1.0, f32::NEG_INFINITY].map(single), 0x7fff_ffff)]
// 1, 2 and 3 below, 4, -8 and 0.5 above, in f16.
#[case("add.f16x2 %r0", [pair(0x3c00, 0x4400), pair(0x4000, 0xc800), pair(0x4200, 0x3800)], pair(0x4600, 0xc300))]
#[case("min.f16x2 %r0", [pair(0x3c00, 0x4400), pair(0x4000, 0xc800), pair(0x4200, 0x3800)], pair(0x3c00, 0xc800))]
#[case("max.f16x2 %r0", [pair(0x3c00, 0x4400), pair(0x4000, 0xc800), pair(0x4200, 0x3800)], pair(0x4200, 0x4400))]
#[case::number_wins_and_minus_zero_is_less("min.f16x2 %r0", [pair(0x7e00, 0), pair(0x4000, 0x8000), pair(0x7e00, 0)], pair(0x4000, 0x8000))]
// The same numbers in bf16.
#[case("add.bf16x2 %r0", [pair(0x3f80, 0x4080), pair(0x4000, 0xc100), pair(0x4040, 0x3f00)], pair(0x40c0, 0xc060))]
#[case("min.bf16x2 %r0", [pair(0x3f80, 0x4080), pair(0x4000, 0xc100), pair(0x4040, 0x3f00)], pair(0x3f80, 0xc100))]
#[case("max.bf16x2 %r0", [pair(0x3f80, 0x4080), pair(0x4000, 0xc100), pair(0x4040, 0x3f00)], pair(0x4040, 0x4080))]
fn words_are_reduced(#[case] form: &str, #[case] inputs: [u32; 3], #[case] expected: u32) {
    let mut replicas = Replicas::of(&[&inputs[..1], &inputs[1..2], &inputs[2..]]);
    let got = replicas.run(&format!("multimem.ld_reduce.global.{form}, [%d1];"), ASCENDING).unwrap()[0];
    assert_eq!(got, expected, "{form}: {got:#x} for {expected:#x}");
    let exact = replicas.run(&format!("multimem.ld_reduce.relaxed.sys.global.{form}, [%d1];"), EXACT).unwrap()[0];
    assert_eq!(exact, expected, "{form}, exact: {exact:#x} for {expected:#x}");
}

#[rstest]
#[case("add.u64", [[u32::MAX, 0], [1, 2]], [0, 3])]
#[case("min.s64", [[1, 0], [0, u32::MAX]], [0, u32::MAX])]
#[case("max.u64", [[1, 0], [0, u32::MAX]], [0, u32::MAX])]
#[case("xor.b64", [[1, 3], [2, 1]], [3, 2])]
#[case("add.f64", [double(1.0), double(1e-9)], double(1.0 + 1e-9))]
fn long_words_are_reduced(#[case] form: &str, #[case] inputs: [[u32; 2]; 2], #[case] expected: [u32; 2]) {
    let mut replicas = Replicas::of(&[&inputs[0], &inputs[1]]);
    let body = format!("multimem.ld_reduce.global.{form} %d4, [%d1]; mov.b64 {{%r0,%r1}}, %d4;");
    assert_eq!(replicas.run(&body, ASCENDING).unwrap()[..2], expected, "{form}");
}

#[test]
fn vectors_are_reduced_element_by_element() {
    let numbers = |n: f32| [n, 10.0 * n, 100.0 * n, 1000.0 * n].map(single);
    let mut replicas = Replicas::of(&[&numbers(1.0), &numbers(2.0)]);
    let load = |form: &str| format!("multimem.ld_reduce.global.add.{form} {{%r0,%r1,%r2,%r3}}, [%d1];");
    assert_eq!(replicas.run(&load("v4.f32"), ASCENDING).unwrap(), numbers(3.0));
    // As bf16, the upper halves are 1, 10, 100 and 1000, of which the last rounds; the lower ones are what is left of it.
    let upper: Vec<u32> = replicas.run(&load("acc::f32.v4.bf16x2"), ASCENDING).unwrap().iter().map(|word| word >> 16).collect();
    assert_eq!(upper, [0x4040, 0x41f0, 0x4396, 0x453c]);
    let eight =
        "multimem.ld_reduce.global.add.v8.bf16 {%h0,%h1,%h2,%h3,%h4,%h5,%h6,%h7}, [%d1]; mov.b32 %r0, {%h1,%h3}; mov.b32 %r1, {%h5,%h7};";
    assert_eq!(replicas.run(eight, ASCENDING).unwrap()[..2], [pair(0x4040, 0x41f0), pair(0x4396, 0x453c)]);
}

/// If this fails, kernels without `.acc::f32` look more exact than they are, or those with it less.
#[test]
fn the_accumulator_decides_what_is_lost() {
    // 256 + 1 + 1 in bf16, which has 8 bits.
    let mut replicas = Replicas::of(&[&[0x4380], &[0x3f80], &[0x3f80]]);
    let sum = |form: &str, replicas: &mut Replicas, mode| {
        replicas.run(&format!("multimem.ld_reduce.global.add.{form} %r0, [%d1];"), mode).unwrap()[0]
    };
    assert_eq!(sum("bf16x2", &mut replicas, ASCENDING), 0x4380);
    assert_eq!(sum("acc::f32.bf16x2", &mut replicas, ASCENDING), 0x4381);
    assert_eq!(sum("bf16x2", &mut replicas, EXACT), 0x4381);
    // 2048 + 1 + 1 in f16.
    let mut replicas = Replicas::of(&[&[0x6800], &[0x3c00], &[0x3c00]]);
    assert_eq!(sum("f16x2", &mut replicas, ASCENDING), 0x6800);
    assert_eq!(sum("acc::f32.f16x2", &mut replicas, ASCENDING), 0x6801);
}

#[test]
fn modes_differ_where_order_and_rounding_do() {
    let large = 2f32.powi(30);
    let inputs = [large, 1.0, -large, 2.0];
    let bits = inputs.map(single);
    let mut replicas = Replicas::of(&[&bits[..1], &bits[1..2], &bits[2..3], &bits[3..]]);
    let load = "multimem.ld_reduce.global.add.f32 %r0, [%d1]; multimem.ld_reduce.global.add.f32 %r1, [%d1];";
    assert_eq!(replicas.run(load, ASCENDING).unwrap()[..2], [single(2.0); 2]);
    assert_eq!(replicas.run(load, EXACT).unwrap()[..2], [single(3.0); 2]);
    // The a-priori bound on three additions in any order, each rounded to either neighbour.
    let (exact, unit) = (3.0, 2f64.powi(-23));
    let magnitudes: f64 = inputs.iter().map(|&input| f64::from(input.abs())).sum();
    let bound = unit * exact + (1.0 + unit) * 3.0 * unit * magnitudes;
    let (mut seen, mut unequal) = (BTreeSet::new(), 0);
    for seed in 0..60 {
        let drawn = replicas.run(load, (MultimemReduction::Bound, seed)).unwrap();
        assert_eq!(drawn, replicas.run(load, (MultimemReduction::Bound, seed)).unwrap(), "a seed is a run");
        for &sum in &drawn[..2] {
            let error = (f64::from(f32::from_bits(sum)) - exact).abs();
            assert!(error <= bound, "{error} is more than {bound}");
            seen.insert(sum);
        }
        unequal += u32::from(drawn[0] != drawn[1]);
    }
    assert!(seen.len() >= 4 && seen.contains(&single(3.0)), "{seen:?}");
    assert!(unequal > 10, "two reads of the same data hardly differ: {unequal} of 60");
}

#[test]
fn stores_and_reductions_reach_every_replica() {
    let mut replicas = Replicas::of(&[&[1, 2, 3, 4], &[10, 20, 30, 40], &[5, 6, 7, 8]]);
    replicas
        .run(
            "mov.u32 %r4, 7; multimem.red.add.u32 [%d1], %r4; mov.u32 %r5, 3; multimem.red.release.gpu.global.and.b32 [%d1+4], %r5;",
            ASCENDING,
        )
        .unwrap();
    assert_eq!([0, 1, 2].map(|rank| replicas.replica(rank, 2)), [[8, 2], [17, 0], [12, 2]]);
    let store =
        "mov.u32 %r4, 100; mov.u32 %r5, 200; multimem.st.release.sys.global.v2.f32 [%d1+8], {%r4,%r5}; multimem.st.u32 [%d1+4], %r4;";
    replicas.run(store, ASCENDING).unwrap();
    assert_eq!([0, 1, 2].map(|rank| replicas.replica(rank, 4)[1..].to_vec()), [[100, 100, 200]; 3]);
    let add = "mov.u32 %r4, 0x3c003c00; mov.u32 %r5, 0x44004400; multimem.st.global.v2.f32 [%d1], {%r4,%r5}; multimem.red.global.add.v2.f16x2 [%d1], {%r4,%r5};";
    replicas.run(add, ASCENDING).unwrap();
    assert_eq!([0, 1, 2].map(|rank| replicas.replica(rank, 2)), [[0x4000_4000, 0x4800_4800]; 3]);
}

#[test]
fn a_store_makes_every_replica_written() {
    let mut replicas = Replicas::of(&[&[], &[1, 2]]);
    assert!(replicas.run("multimem.ld_reduce.add.u32 %r0, [%d1];", ASCENDING).is_err());
    replicas.run("mov.u32 %r4, 9; multimem.st.u32 [%d1], %r4; multimem.ld_reduce.add.u32 %r0, [%d1];", ASCENDING).unwrap();
    assert_eq!([0, 1].map(|rank| replicas.replica(rank, 1)), [[9], [9]]);
}

/// Of e4m3 in the words: 1 and twice 2^-4, of which the sum is between two numbers; sums beyond the largest, of both signs; NaN.
const E4M3: [&[u32]; 3] = [&[0x7ffe_7e38], &[0x38fe_7e18], &[0x3838_3818]];

/// Of e5m2: an infinity and 1, infinities of both signs, 1 and 2^-14, zeros of both signs.
const E5M2: [&[u32]; 2] = [&[0x003c_7c7c], &[0x8004_fc3c]];

#[rstest]
#[case("add.e4m3x4 %r0", ASCENDING, &E4M3, 0x7ffe_7e38)]
#[case("add.acc::f16.e4m3x4 %r0", ASCENDING, &E4M3, 0x7ffe_7e39)]
#[case("add.e4m3x4 %r0", EXACT, &E4M3, 0x7ffe_7e39)]
#[case("add.acc::f16.e4m3x4 %r0", EXACT, &E4M3, 0x7ffe_7e39)]
#[case("min.e4m3x4 %r0", ASCENDING, &E4M3, 0x38fe_3818)]
#[case("max.e4m3x4 %r0", EXACT, &E4M3, 0x3838_7e38)]
#[case("add.e5m2x4 %r0", ASCENDING, &E5M2, 0x003c_7f7b)]
#[case("add.acc::f16.e5m2x4 %r0", EXACT, &E5M2, 0x003c_7f7b)]
fn numbers_of_8_bits_are_reduced(
    #[case] form: &str,
    #[case] mode: (MultimemReduction, u64),
    #[case] contents: &[&[u32]],
    #[case] expected: u32,
) {
    let words = Replicas::of(contents).run(&format!("multimem.ld_reduce.{form}, [%d1];"), mode).unwrap();
    assert_eq!(words[0], expected, "{:#010x}", words[0]);
}

#[test]
fn vectors_of_8_bit_numbers_are_reduced_part_by_part() {
    let words = |body: &str| Replicas::of(&E4M3).run(body, ASCENDING).unwrap()[0];
    assert_eq!(
        words("multimem.ld_reduce.relaxed.gpu.global.add.acc::f16.v2.e4m3x2 {%h0,%h1}, [%d1]; mov.b32 %r0, {%h0,%h1};"),
        0x7ffe_7e39
    );
    let bytes = "multimem.ld_reduce.add.v4.e4m3 {%h0,%h1,%h2,%h3}, [%d1]; shl.b16 %h1, %h1, 8; or.b16 %h0, %h0, %h1;\n\
                 shl.b16 %h3, %h3, 8; or.b16 %h2, %h2, %h3; mov.b32 %r0, {%h0,%h2};";
    assert_eq!(words(bytes), 0x7ffe_7e38);
}

#[test]
fn sums_of_8_bit_numbers_in_any_order_and_direction() {
    let sum = |seed| Replicas::of(&E4M3).run("multimem.ld_reduce.add.e4m3x4 %r0, [%d1];", (MultimemReduction::Bound, seed)).unwrap()[0];
    let sums: BTreeSet<u32> = (0..64).map(sum).collect();
    // Down to 1 and up to 1.25; what is beyond the largest number stays there, or is next to it where rounding is toward zero.
    assert!(sums.len() > 1 && sums.iter().all(|sum| (0x38..=0x3a).contains(&(sum & 0xff))), "{sums:x?}");
    assert!(sums.iter().all(|sum| sum >> 8 & 0xff == 0x7e && sum >> 24 == 0x7f), "{sums:x?}");
}

#[rstest]
#[case("sm_90a", "multimem.ld_reduce.add.e4m3x4 %r0, [%d1];", ".e4m3x4")]
#[case("sm_100", "multimem.st.e5m2x4 [%d1], %r0;", ".e5m2x4")]
fn other_targets_have_no_multimem_of_8_bits(#[case] target: &str, #[case] body: &str, #[case] ty: &str) {
    let error = ptx::parse(&around(body).replace("sm_100a", target)).unwrap_err().to_string();
    assert!(error.contains(&format!("type {ty} for target {target}")) && error.contains("one of sm_100a"), "{error}");
    assert!(error.starts_with("15:1: "), "{error}");
    for target in ["sm_100f", "sm_110a", "sm_121a"] {
        ptx::parse(&around(body).replace("sm_100a", target)).unwrap();
    }
}

#[test]
fn misuse_tells_what_and_where() {
    let mut replicas = Replicas::of(&[&[1, 2], &[3]]);
    let mut fault = |body: &str| replicas.run(body, ASCENDING).unwrap_err().to_string();
    insta::assert_snapshot!(fault("ld.global.u32 %r0, [%d1+4];"), @"rank 0 k, block 0 warp 0 lane 0, Load at PTX 15:1: in+4 is a multicast address, used by an instruction that is not multimem");
    insta::assert_snapshot!(fault("st.global.u32 [%d1], %t;"), @"rank 0 k, block 0 warp 0 lane 0, Store at PTX 15:1: in+0 is a multicast address, used by an instruction that is not multimem");
    insta::assert_snapshot!(fault("atom.global.add.u32 %r0, [%d1], 1;"), @"rank 0 k, block 0 warp 0 lane 0, Atomic at PTX 15:1: in+0 is a multicast address, used by an instruction that is not multimem");
    insta::assert_snapshot!(fault("multimem.ld_reduce.add.u32 %r0, [%d0];"), @"rank 0 k, block 0 warp 0 lane 0, MultimemLoadReduce at PTX 15:1: rank 0 out+0 is no multicast address, used by a multimem instruction");
    insta::assert_snapshot!(fault("multimem.st.u32 [%d0+8], %t;"), @"rank 0 k, block 0 warp 0 lane 0, MultimemStore at PTX 15:1: rank 0 out+8 is no multicast address, used by a multimem instruction");
    insta::assert_snapshot!(fault("multimem.red.add.u32 [%d0], %t;"), @"rank 0 k, block 0 warp 0 lane 0, MultimemReduce at PTX 15:1: rank 0 out+0 is no multicast address, used by a multimem instruction");
    insta::assert_snapshot!(fault("multimem.ld_reduce.add.u32 %r0, [%d1+16];"), @"rank 0 k, block 0 warp 0 lane 0, MultimemLoadReduce at PTX 15:1: 4 bytes at rank 0 in+16 are out of bounds: the buffer has 16 bytes");
    insta::assert_snapshot!(fault("multimem.ld_reduce.add.u64 %d4, [%d1+4];"), @"rank 0 k, block 0 warp 0 lane 0, MultimemLoadReduce at PTX 15:1: 8 bytes at rank 0 in+4 are not aligned to 8");
    insta::assert_snapshot!(fault("multimem.ld_reduce.add.u32 %r0, [%d1+4];"), @"rank 0 k, block 0 warp 0 lane 0, MultimemLoadReduce at PTX 15:1: 4 bytes at rank 1 in+4 were read, of which the one at 4 was never written");
    insta::assert_snapshot!(fault("multimem.red.add.u32 [%d1+4], %t;"), @"rank 0 k, block 0 warp 0 lane 0, MultimemReduce at PTX 15:1: 4 bytes at rank 1 in+4 were read, of which the one at 4 was never written");
}

#[test]
fn a_window_is_of_the_rank_that_it_was_made_for() {
    let mut replicas = Replicas::of(&[&[1], &[2]]);
    let other = replicas.memory.multicast(Owner::new(1, 0, "in"), 16, &replicas.replicas).unwrap();
    let grid = replicas.grid("multimem.ld_reduce.add.u32 %r0, [%d1];", other);
    let fault = finish(grid, &mut replicas.memory).unwrap_err().to_string();
    assert!(fault.contains("rank 0 has not mapped rank 1 in+0"), "{fault}");
}

#[test]
fn waiting_by_a_reduced_load_is_polling() {
    let mut replicas = Replicas::of(&[&[1], &[0]]);
    let wait =
        "L: multimem.ld_reduce.acquire.sys.global.min.u32 %r0, [%d1]; setp.eq.u32 %p0, %r0, 0; @%p0 bra L; st.global.u32 [%d0], %r0;";
    let mut grid = replicas.grid(wait, replicas.window);
    for _ in 0..3 {
        assert!(grid.turn(&mut replicas.memory, 0, 100, &mut |_| 0).unwrap().polled);
    }
    assert_eq!(grid.standing()[0].what, WarpState::Polling { address: replicas.window.0 });
    let flag = replicas.replicas[1];
    replicas.memory.write(flag, 1, &[5, 0, 0, 0]).unwrap();
    while !grid.is_done() {
        grid.turn(&mut replicas.memory, 0, 100, &mut |_| 0).unwrap();
    }
    assert_eq!(words(&replicas.memory, replicas.out, 1), [1]);
}
