// reduce_pull: the root adds all ranks' inputs, which it reads where they are. The host passes the number of the call.
//
// Sums are in rank order, in f32, rounded once. Nobody but the root writes an output.
//
//   ready: st.release.sys of the call's number to the root's pad; ld.acquire.sys by the root, bar.sync. It publishes what earlier work of
//          each rank's stream wrote to its input.
//   done:  bar.sync, st.release.sys of the number to each pad; ld.acquire.sys there. The root's reads of our input are over.
#include "../signals.cuh"

constexpr u32 MOST_RANKS = 8;
constexpr u32 MOST_BLOCKS = 128;

struct Pad {
    u32 ready[MOST_BLOCKS][MOST_RANKS];
    u32 done[MOST_BLOCKS];
};

template <typename T>
static __device__ __forceinline__ Pack sum(const Pack* const* inputs, u64 i, u32 world) {
#ifdef PLANTED_BUG
    Pack partial = inputs[0][i];  // rounded after each rank
    for (u32 rank = 1; rank < world; rank++) {
        const Pack* both[] = {&partial, &inputs[rank][i]};
        partial = sum_of_ranks<T>([&](u32 of) { return both[of]; }, 0, 2);
    }
    return partial;
#else
    return sum_of_ranks<T>([&](u32 of) { return inputs[of]; }, i, world);
#endif
}

template <typename T>
static __device__ __forceinline__ void reduce(const Pack* const* inputs, Pad* const* pads, Pack* output, u64 packs, u32 call, u32 rank, u32 root, u32 world) {
    u32 block = blockIdx.x, peer = threadIdx.x;
    if (threadIdx.x == 0) store_release(&pads[root]->ready[block][rank], call);
    if (rank == root) {
        if (peer < world) wait_for(&pads[root]->ready[block][peer], call);
        __syncthreads();
        for (u64 i = block * blockDim.x + threadIdx.x; i < packs; i += (u64)gridDim.x * blockDim.x) output[i] = sum<T>(inputs, i, world);
        __syncthreads();
        if (peer < world) store_release(&pads[peer]->done[block], call);
    }
    if (threadIdx.x == 0) wait_for(&pads[rank]->done[block], call);
}

#define ENTRY(NAME, T)                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                                        \
        reduce_##NAME(const Pack* const* inputs, Pad* const* pads, Pack* output, u64 packs, u32 call, u32 rank, u32 root, u32 world) {          \
        reduce<T>(inputs, pads, output, packs, call, rank, root, world);                                                                        \
    }

ENTRY(f32, F32)
ENTRY(bf16, BF16)
