// two_shot_by_table: a two-shot all-reduce in place, over device tables of peers' pointers: buffers and signal pads.
//
// It is written as kernels over PyTorch's symmetric memory are: every rank reduces its slice from all ranks' buffers and writes it to all of
// them. A signal is one word that is put by compare-and-swap from 0 to 1, and taken by compare-and-swap from 1 to 0, so that pads are zero
// again after each barrier and nothing need be counted.
//
//   barrier: bar.sync; put: atom.release.sys.cas 0 -> 1 on the peer's pad; take: atom.acquire.sys.cas 1 -> 0 on ours; bar.sync
//   first:   publishes what earlier work of each rank's stream wrote to its buffer
//   second:  publishes the slices that peers wrote to our buffer, and says that our reads of theirs are over
#include "../packs.cuh"

static __device__ __forceinline__ u32 swap_release(u32* at, u32 from, u32 to) {
    u32 found;
    asm volatile("atom.release.sys.global.cas.b32 %0, [%1], %2, %3;" : "=r"(found) : "l"(at), "r"(from), "r"(to) : "memory");
    return found;
}

static __device__ __forceinline__ u32 swap_acquire(u32* at, u32 from, u32 to) {
    u32 found;
    asm volatile("atom.acquire.sys.global.cas.b32 %0, [%1], %2, %3;" : "=r"(found) : "l"(at), "r"(from), "r"(to) : "memory");
    return found;
}

static __device__ __forceinline__ void barrier(u32* const* pads, u32 rank, u32 world) {
    __syncthreads();
    u32 peer = threadIdx.x;
    if (peer < world) {
        u32* put = pads[peer] + blockIdx.x * world + rank;
        u32* take = pads[rank] + blockIdx.x * world + peer;
        while (swap_release(put, 0, 1) != 0) {
        }
#ifdef PLANTED_BUG
        while (swap_acquire(take, 1, 1) != 1) {  // the signal is seen but not taken: the next put waits for ever
        }
#else
        while (swap_acquire(take, 1, 0) != 1) {
        }
#endif
    }
    __syncthreads();
}

template <typename T>
static __device__ __forceinline__ void two_shot(Pack* const* buffers, u32* const* pads, u64 packs, u32 rank, u32 world) {
    barrier(pads, rank, world);
    u64 slice = (packs + world - 1) / world;
    u64 first = rank * slice, last = first + slice < packs ? first + slice : packs;
    for (u64 i = first + blockIdx.x * blockDim.x + threadIdx.x; i < last; i += (u64)gridDim.x * blockDim.x) {
        Pack sum = sum_of_ranks<T>([&](u32 of) { return buffers[of]; }, i, world);
        for (u32 peer = 0; peer < world; peer++) buffers[peer][i] = sum;
    }
    barrier(pads, rank, world);
}

#define ENTRY(NAME, T)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                       \
        two_shot_##NAME(Pack* const* buffers, u32* const* pads, u64 packs, u32 rank, u32 world) {                              \
        two_shot<T>(buffers, pads, packs, rank, world);                                                                        \
    }

ENTRY(f32, F32)
ENTRY(bf16, BF16)
