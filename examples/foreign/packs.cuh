// What the two CUDA examples share: 16-byte packs of f32 or bf16, added in f32 and rounded once.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct __align__(16) Pack {
    u32 word[4];
};

struct F32 {
    static constexpr u32 LANES = 4;
    static __device__ __forceinline__ float get(const Pack& pack, u32 lane) { return __int_as_float((int)pack.word[lane]); }
    static __device__ __forceinline__ void set(Pack& pack, u32 lane, float value) { pack.word[lane] = (u32)__float_as_int(value); }
};

struct BF16 {
    static constexpr u32 LANES = 8;
    static __device__ __forceinline__ float get(const Pack& pack, u32 lane) {
        u32 half = pack.word[lane / 2] >> (16 * (lane % 2));
        return __int_as_float((int)(half << 16));
    }
    static __device__ __forceinline__ void set(Pack& pack, u32 lane, float value) {
        u16 half;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
        u32 shift = 16 * (lane % 2);
        pack.word[lane / 2] = (pack.word[lane / 2] & ~(0xffffu << shift)) | ((u32)half << shift);
    }
};

// Adds pack `index` of `ranks` buffers in rank order. `buffer(rank)` is a rank's first pack.
template <typename T, typename Buffer>
__device__ __forceinline__ Pack sum_of_ranks(Buffer buffer, u64 index, u32 ranks) {
    float sums[T::LANES];
    Pack pack = buffer(0)[index];
#pragma unroll
    for (u32 lane = 0; lane < T::LANES; lane++) sums[lane] = T::get(pack, lane);
    for (u32 rank = 1; rank < ranks; rank++) {
        pack = buffer(rank)[index];
#pragma unroll
        for (u32 lane = 0; lane < T::LANES; lane++) sums[lane] += T::get(pack, lane);
    }
#pragma unroll
    for (u32 lane = 0; lane < T::LANES; lane++) T::set(pack, lane, sums[lane]);
    return pack;
}
