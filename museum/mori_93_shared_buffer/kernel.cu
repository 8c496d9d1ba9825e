// MORI 93: dispatch and combine share one output buffer, which peers write and the rank itself reads.
//
// A push all-to-all by way of a buffer: each rank writes to its peers' buffers, waits, and copies its own to the output. Calls alternate,
// as dispatch and combine of a mixture of experts do; the grid is the same in every call.
//
//   pushed: blocks of one index meet (release, acquire). It publishes what was pushed, and says that the copies of the call before are
//           over.
//   bug:    all calls use one buffer. A peer that is a call ahead writes to it while a slower rank still copies from it.
//   mend:   dispatch and combine have a buffer each: who writes to one has met all after their copies from it.
#include "../common.cuh"

extern "C" __global__ void __launch_bounds__(256, 1)
    all_to_all(const Pack* input, Pack* const* dispatched, Pack* const* combined, u32* const* pads, u32* calls, Pack* output, u32 packs, u32 rank,
               u32 world) {
    u32 call = calls[blockIdx.x] + 1, first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
#ifdef PLANTED_BUG
    Pack* const* buffers = dispatched;
#else
    Pack* const* buffers = call % 2 ? dispatched : combined;
#endif
    for (u32 i = first; i < packs; i += stride) {
        for (u32 to = 0; to < world; to++) buffers[to][rank * packs + i] = input[to * packs + i];
    }
    meet(pads, 0, call, rank, world);
    for (u32 i = first; i < packs; i += stride) {
        for (u32 from = 0; from < world; from++) output[from * packs + i] = buffers[rank][from * packs + i];
    }
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}
