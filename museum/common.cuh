// What the entries share: packs and their sums, loads and stores with an order and a scope, and a barrier for those whose bug is elsewhere.
#pragma once

#include "../examples/foreign/packs.cuh"

typedef unsigned char u8;

constexpr u32 MOST_RANKS = 16;
constexpr u32 MOST_BLOCKS = 128;  // waiting_blocks is never more

static __device__ __forceinline__ void store_release(u32* to, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

static __device__ __forceinline__ u32 load_acquire(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

static __device__ __forceinline__ void store_relaxed(u32* to, u32 value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

static __device__ __forceinline__ u32 load_relaxed(const u32* from) {
    u32 value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

static __device__ __forceinline__ void store_volatile(u32* to, u32 value) {
    asm volatile("st.volatile.global.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

static __device__ __forceinline__ u32 load_volatile(const u32* from) {
    u32 value;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

static __device__ __forceinline__ u32 add_release(u32* to, u32 value) {
    u32 before;
    asm volatile("atom.release.sys.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(value) : "memory");
    return before;
}

static __device__ __forceinline__ u32 add_on_this_gpu(u32* to, u32 value) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(value) : "memory");
    return before;
}

static __device__ __forceinline__ void store_relaxed(u64* to, u64 value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(to), "l"(value) : "memory");
}

static __device__ __forceinline__ u64 load_relaxed(const u64* from) {
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

// Counts only grow; `count` may wrap.
static __device__ __forceinline__ bool reached(u32 found, u32 count) { return (int)(found - count) >= 0; }

static __device__ __forceinline__ void wait_for(const u32* at, u32 count) {
    while (!reached(load_acquire(at), count)) {
    }
}

// The word of a pad that `from` writes for `block` in `phase`.
static __device__ __forceinline__ u32 word(u32 phase, u32 block, u32 from) { return (phase * MOST_BLOCKS + block) * MOST_RANKS + from; }

// Blocks of one index meet on all ranks: st.release.sys of the count to each peer's pad, ld.acquire.sys of theirs from ours.
static __device__ __forceinline__ void meet(u32* const* pads, u32 phase, u32 count, u32 rank, u32 world) {
    __syncthreads();
    u32 peer = threadIdx.x;
    if (peer < world) {
        store_release(pads[peer] + word(phase, blockIdx.x, rank), count);
        wait_for(pads[rank] + word(phase, blockIdx.x, peer), count);
    }
    __syncthreads();
}

// Adds one pack of each rank, in rank order. `of(rank)` is that rank's pack.
template <typename T, typename Of>
static __device__ __forceinline__ Pack sum_of_packs(Of of, u32 world) {
    float sums[T::LANES];
    Pack pack = of(0);
#pragma unroll
    for (u32 lane = 0; lane < T::LANES; lane++) sums[lane] = T::get(pack, lane);
    for (u32 rank = 1; rank < world; rank++) {
        pack = of(rank);
#pragma unroll
        for (u32 lane = 0; lane < T::LANES; lane++) sums[lane] += T::get(pack, lane);
    }
#pragma unroll
    for (u32 lane = 0; lane < T::LANES; lane++) T::set(pack, lane, sums[lane]);
    return pack;
}

static __device__ __forceinline__ u32 smaller(u32 a, u32 b) { return a < b ? a : b; }
