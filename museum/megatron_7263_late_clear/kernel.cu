// Megatron 7263: the buffer that peers gather into is cleared after the barrier that lets them write.
//
// A push all-gather into a buffer of which not every slot need be written: it is filled with -1 first.
//
//   clear: by the rank itself, before it meets the others.
//   start: blocks of one index meet (release, acquire): our buffer is clear, peers may write to it.
//   end:   they meet again. It publishes what was written.
//   bug:   the buffer is cleared after the start. A peer that is ahead has written already, and its slot becomes -1 again.
#include "../common.cuh"

static __device__ __forceinline__ void clear(Pack* slots, u32 packs, u32 world) {
    Pack none = {{~0u, ~0u, ~0u, ~0u}};
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += gridDim.x * blockDim.x) {
        for (u32 of = 0; of < world; of++) slots[of * packs + i] = none;
    }
}

extern "C" __global__ void __launch_bounds__(256, 1)
    all_gather(const Pack* input, Pack* const* outputs, u32* const* pads, u32* calls, u32 packs, u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1;
#ifndef PLANTED_BUG
    clear(outputs[rank], packs, world);
#endif
    meet(pads, 0, call, rank, world);
#ifdef PLANTED_BUG
    clear(outputs[rank], packs, world);
    __syncthreads();
#endif
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += gridDim.x * blockDim.x) {
        for (u32 to = 0; to < world; to++) outputs[to][rank * packs + i] = input[i];
    }
    meet(pads, 1, call, rank, world);
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}
