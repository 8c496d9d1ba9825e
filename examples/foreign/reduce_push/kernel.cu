// reduce_push: each rank writes its input into its slot at the root, which adds the slots. Blocks count their calls in device memory.
//
// Sums are in rank order, in f32, rounded once. Nobody but the root writes an output.
//
//   ready: bar.sync, st.release.sys of the block's count to the root's pad; ld.acquire.sys by the root, bar.sync. It publishes what each rank's block wrote
//          into its slot.
//   done:  bar.sync, st.release.sys of the count to each pad; ld.acquire.sys there. The root's reads of our slot are over, so that the next call may write it.
#include "../signals.cuh"

constexpr u32 MOST_RANKS = 8;
constexpr u32 MOST_BLOCKS = 128;

struct Pad {
    u32 ready[MOST_BLOCKS][MOST_RANKS];
    u32 done[MOST_BLOCKS];
};

template <typename T>
static __device__ __forceinline__ void reduce(const Pack* input, Pack* const* slots, Pad* const* pads, u32* counts, Pack* output, u64 packs,
                                              u64 slot_packs, u32 rank, u32 root, u32 world) {
    u32 block = blockIdx.x, peer = threadIdx.x;
    u64 first = (u64)block * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
    u32 count = counts[block] + 1;
    for (u64 i = first; i < packs; i += stride) slots[root][rank * slot_packs + i] = input[i];
    __syncthreads();
    if (threadIdx.x == 0) store_release(&pads[root]->ready[block][rank], count);
    if (rank == root) {
        if (peer < world) wait_for(&pads[root]->ready[block][peer], count);
        __syncthreads();
#ifdef PLANTED_BUG
        if (peer < world) store_release(&pads[peer]->done[block], count);  // before the slots are read
#endif
        const Pack* own = slots[root];
        for (u64 i = first; i < packs; i += stride) output[i] = sum_of_ranks<T>([&](u32 of) { return own + of * slot_packs; }, i, world);
#ifndef PLANTED_BUG
        __syncthreads();
        if (peer < world) store_release(&pads[peer]->done[block], count);
#endif
    }
    if (threadIdx.x == 0) {
        wait_for(&pads[rank]->done[block], count);
        counts[block] = count;
    }
}

#define ENTRY(NAME, T)                                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                                           \
        reduce_##NAME(const Pack* input, Pack* const* slots, Pad* const* pads, u32* counts, Pack* output, u64 packs, u64 slot_packs, u32 rank,     \
                      u32 root, u32 world) {                                                                                                       \
        reduce<T>(input, slots, pads, counts, output, packs, slot_packs, rank, root, world);                                                       \
    }

ENTRY(f32, F32)
ENTRY(bf16, BF16)
