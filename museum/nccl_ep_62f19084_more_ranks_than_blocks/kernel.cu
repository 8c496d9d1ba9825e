// NCCL EP 62f19084: a map is written by one block for each destination, and there are more destinations than blocks.
//
// An all-to-all in two kernels: the first writes where the slot for each destination is, the second pushes what has an entry.
//
//   scan:     no synchronisation but the end of the kernel. Entries are ~0 until they are written.
//   dispatch: blocks of one index meet before (outputs may be written) and after (release, acquire: they have been).
//   bug:      block b writes the entry of destination b. Those from gridDim.x on are never written, and nothing is sent there.
#include "../common.cuh"

constexpr u32 NONE = ~0u;

extern "C" __global__ void __launch_bounds__(32, 1) scan(u32* map, u32 packs, u32 world) {
#ifdef PLANTED_BUG
    u32 to = blockIdx.x;
    if (to < world && threadIdx.x == 0) map[to] = to * packs;
#else
    for (u32 to = blockIdx.x; to < world; to += gridDim.x) {
        if (threadIdx.x == 0) map[to] = to * packs;
    }
#endif
}

extern "C" __global__ void __launch_bounds__(256, 1)
    dispatch(const Pack* input, const u32* map, Pack* const* outputs, u32* const* pads, u32* calls, u32 packs, u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1;
    meet(pads, 0, call, rank, world);
    for (u32 to = 0; to < world; to++) {
        u32 at = map[to];
        if (at == NONE) continue;
        for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += gridDim.x * blockDim.x) outputs[to][rank * packs + i] = input[at + i];
    }
    meet(pads, 1, call, rank, world);
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}
