// UCCL 993: signals are cleaned while peers may already be signalling.
//
// A push all-to-all whose signals are set to one by each sender, waited for, and cleaned to zero for the next round.
//
//   clean: own words to zero, then blocks of one index meet (release, acquire): all words are clean, and outputs may be written.
//   sent:  bar.sync, st.release.sys of one to each peer; ld.acquire.sys until all of ours are one; bar.sync. It publishes what was pushed.
//   bug:   nobody meets after the cleaning. A peer that is ahead sets our word before we clean it, and we wait for it for ever.
#include "../common.cuh"

extern "C" __global__ void __launch_bounds__(256, 1)
    all_to_all(const Pack* input, Pack* const* outputs, u32* const* signals, u32* const* pads, u32* calls, u32 packs, u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1, peer = threadIdx.x;
    if (peer < world) signals[rank][word(0, blockIdx.x, peer)] = 0;
#ifndef PLANTED_BUG
    meet(pads, 0, call, rank, world);
#endif
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += gridDim.x * blockDim.x) {
        for (u32 to = 0; to < world; to++) outputs[to][rank * packs + i] = input[to * packs + i];
    }
    __syncthreads();
    if (peer < world) {
        store_release(signals[peer] + word(0, blockIdx.x, rank), 1);
        while (load_acquire(signals[rank] + word(0, blockIdx.x, peer)) != 1) {
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}
