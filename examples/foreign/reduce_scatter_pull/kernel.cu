// reduce_scatter_pull: every rank adds its slot of all ranks' inputs, over device tables of peers' pointers: inputs and signal pads.
//
// Sums are in rank order, in f32, rounded once: the same bits whichever rank they are on.
//
//   barrier: bar.sync; st.release.sys of the count to every peer's pad; ld.acquire.sys until ours has theirs; bar.sync
//   first:   publishes what earlier work of each rank's stream wrote to its input
//   second:  says that our reads of peers' inputs are over
#include "../signals.cuh"

static __device__ __forceinline__ void barrier(u32* const* pads, u32 count, u32 rank, u32 world) {
    __syncthreads();
    u32 peer = threadIdx.x;
    if (peer < world) {
        store_release(pads[peer] + blockIdx.x * world + rank, count);
        wait_for(pads[rank] + blockIdx.x * world + peer, count);
    }
    __syncthreads();
}

template <typename T>
static __device__ __forceinline__ void reduce_scatter(const Pack* const* inputs, u32* const* pads, u32* counts, Pack* output, u64 packs, u32 rank, u32 world) {
    u32 count = counts[blockIdx.x];
    barrier(pads, count + 1, rank, world);
    for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += (u64)gridDim.x * blockDim.x) {
#ifdef PLANTED_BUG
        u32 first = rank;  // each rank starts with its own: to spread the load, and in another order on each
#else
        u32 first = 0;
#endif
        output[i] = sum_of_ranks<T>([&](u32 of) { return inputs[(first + of) % world] + rank * packs; }, i, world);
    }
    barrier(pads, count + 2, rank, world);
    if (threadIdx.x == 0) counts[blockIdx.x] = count + 2;
}

#define ENTRY(NAME, T)                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                                     \
        reduce_scatter_##NAME(const Pack* const* inputs, u32* const* pads, u32* counts, Pack* output, u64 packs, u32 rank, u32 world) {      \
        reduce_scatter<T>(inputs, pads, counts, output, packs, rank, world);                                                                 \
    }

ENTRY(f32, F32)
ENTRY(bf16, BF16)
