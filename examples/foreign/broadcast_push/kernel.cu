// broadcast_push: the root writes to all ranks' windows, which lie at one stride from a base address, and each rank copies its window to
// its output.
//
// A window has signals and data. Counts of calls are kept by block and only grow, so that a captured launch replays; the root may be
// another one in each call.
//
//   ready:   st.release.sys of the count to the root's window; ld.acquire.sys by the root. The copies of the last call are over, so that
//            the root may write to our window.
//   arrived: bar.sync, st.release.sys of the count to each window; ld.acquire.sys of ours, bar.sync. It publishes the data.
#include "../signals.cuh"

constexpr u32 MOST_RANKS = 8;
constexpr u32 MOST_BLOCKS = 128;

struct Window {
    u32 ready[MOST_BLOCKS][MOST_RANKS];
    u32 arrived[MOST_BLOCKS];

    __device__ Pack* data() { return (Pack*)(this + 1); }
};

extern "C" __global__ void __launch_bounds__(256, 1)
    broadcast(const Pack* input, char* windows, u64 stride, u32* calls, Pack* output, u64 packs, u32 rank, u32 root, u32 world) {
    auto window = [&](u32 of) { return (Window*)(windows + of * stride); };
    u32 block = blockIdx.x, peer = threadIdx.x, call = calls[block] + 1;
    u64 first = block * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;

    if (threadIdx.x == 0) store_release(&window(root)->ready[block][rank], call);
    if (rank == root) {
#ifndef PLANTED_BUG  // with it, the root overwrites what slower ranks still copy
        if (peer < world) wait_for(&window(root)->ready[block][peer], call);
#endif
        __syncthreads();
        for (u64 i = first; i < packs; i += step) {
            Pack pack = input[i];
            for (u32 to = 0; to < world; to++) window(to)->data()[i] = pack;
        }
        __syncthreads();
        if (peer < world) store_release(&window(peer)->arrived[block], call);
    }

    if (threadIdx.x == 0) wait_for(&window(rank)->arrived[block], call);
    __syncthreads();
    for (u64 i = first; i < packs; i += step) output[i] = window(rank)->data()[i];
    if (threadIdx.x == 0) calls[block] = call;
}
