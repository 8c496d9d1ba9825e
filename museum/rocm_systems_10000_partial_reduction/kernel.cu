// rocSHMEM 10000: a work group adds what its threads have fetched, without waiting for one another.
//
// A reduce to one root: the root's blocks fetch a tile of each rank's input into a work buffer, a pack for each thread, and add it from
// there element by element, in another order of threads.
//
//   start: blocks of one index meet on all ranks (release, acquire): inputs may be read.
//   tile:  bar.sync between fetching and adding, and between adding and fetching the next rank's.
//   end:   they meet again: inputs have been read.
//   bug:   there is no bar.sync between fetching and adding: elements are added that another thread has yet to fetch.
#include "../common.cuh"

constexpr u32 THREADS = 128;
constexpr u32 LANES = BF16::LANES;

static __device__ __forceinline__ float widened(u16 half) { return __int_as_float((int)((u32)half << 16)); }

static __device__ __forceinline__ u16 rounded(float value) {
    u16 half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

static __device__ __forceinline__ void reduce(Pack* const* inputs, Pack* work, u16* output, u32 packs, u32 world) {
    const u16* fetched = (const u16*)work;
    for (u32 first = blockIdx.x * THREADS; first < packs; first += gridDim.x * THREADS) {
        u32 length = smaller(packs - first, THREADS);
        float sums[LANES] = {};
        for (u32 of = 0; of < world; of++) {
            if (threadIdx.x < length) work[threadIdx.x] = inputs[of][first + threadIdx.x];
#ifndef PLANTED_BUG
            __syncthreads();
#endif
#pragma unroll
            for (u32 k = 0; k < LANES; k++) {
                u32 element = k * THREADS + threadIdx.x;
                if (element < length * LANES) sums[k] = of == 0 ? widened(fetched[element]) : sums[k] + widened(fetched[element]);
            }
            __syncthreads();
        }
#pragma unroll
        for (u32 k = 0; k < LANES; k++) {
            u32 element = k * THREADS + threadIdx.x;
            if (element < length * LANES) output[first * LANES + element] = rounded(sums[k]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(128, 1)
    reduce_bf16(Pack* const* inputs, u32* const* pads, u32* calls, Pack* work, u16* output, u32 packs, u32 rank, u32 root, u32 world) {
    u32 call = calls[blockIdx.x] + 1;
    meet(pads, 0, call, rank, world);
    if (rank == root) reduce(inputs, work + blockIdx.x * THREADS, output, packs, world);
    meet(pads, 1, call, rank, world);
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}
