// aiter 4082: reduce-scatters and all-gathers that read peers' inputs return while others still read theirs.
//
// Every rank adds its slot of all ranks' inputs, which it reads where they are.
//
//   start: blocks of one index meet (release, acquire): inputs may be read.
//   end:   they meet again: our reads of peers' inputs are over.
//   bug:   there is no end. What follows on the stream of a rank that is ahead overwrites the input that slower peers still read.
#include "../common.cuh"

template <typename T>
static __device__ __forceinline__ void reduce_scatter(Pack* const* inputs, u32* const* pads, u32* calls, Pack* output, u32 packs, u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1;
    meet(pads, 0, call, rank, world);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += gridDim.x * blockDim.x) {
        output[i] = sum_of_packs<T>([&](u32 of) { return inputs[of][rank * packs + i]; }, world);
    }
#ifndef PLANTED_BUG
    meet(pads, 1, call, rank, world);
#endif
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}

#define ENTRY(NAME, T)                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                           \
        reduce_scatter_##NAME(Pack* const* inputs, u32* const* pads, u32* calls, Pack* output, u32 packs, u32 rank, u32 world) {   \
        reduce_scatter<T>(inputs, pads, calls, output, packs, rank, world);                                                        \
    }

ENTRY(f32, F32)
ENTRY(bf16, BF16)
