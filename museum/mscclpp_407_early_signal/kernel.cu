// MSCCL++ 407, RCCL 1457: thread 0 signals to peers while other threads of its block are still writing.
//
// Each rank writes to every peer the slice that it owns, adds what came for its own slice, and writes the sum to all outputs.
//
//   start:  blocks of one index meet. Peers' outputs and scratch may be written.
//   slices: bar.sync, atom.release.sys.add on each peer's word, ld.acquire.sys until all peers have added, bar.sync. It publishes the
//           slices.
//   sums:   blocks meet again. It publishes the sums.
//   bug:    there is no bar.sync before the signals: they publish what the signalling threads wrote, and nothing else.
#include "../common.cuh"

static __device__ __forceinline__ void slices_are_there(u32* const* pads, u32 call, u32 rank, u32 world) {
#ifndef PLANTED_BUG
    __syncthreads();
#endif
    u32 peer = threadIdx.x;
    if (peer < world) {
        add_release(pads[peer] + word(1, blockIdx.x, rank), 1);
        wait_for(pads[rank] + word(1, blockIdx.x, peer), call);
    }
    __syncthreads();
}

template <typename T>
static __device__ __forceinline__ void all_reduce(const Pack* input, Pack* const* scratch, Pack* const* outputs, u32* const* pads, u32* calls, u32 packs,
                                                  u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1, slice = (packs + world - 1) / world, stride = gridDim.x * blockDim.x;
    u32 first = blockIdx.x * blockDim.x + threadIdx.x;
    meet(pads, 0, call, rank, world);
    for (u32 peer = 0; peer < world; peer++) {
        for (u32 i = first; i < slice && peer * slice + i < packs; i += stride) scratch[peer][rank * slice + i] = input[peer * slice + i];
    }
    slices_are_there(pads, call, rank, world);
    for (u32 i = first; i < slice && rank * slice + i < packs; i += stride) {
        Pack sum = sum_of_packs<T>([&](u32 of) { return scratch[rank][of * slice + i]; }, world);
        for (u32 peer = 0; peer < world; peer++) outputs[peer][rank * slice + i] = sum;
    }
    meet(pads, 2, call, rank, world);
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}

#define ENTRY(NAME, T)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(128, 1)                                                                             \
        all_reduce_##NAME(const Pack* input, Pack* const* scratch, Pack* const* outputs, u32* const* pads, u32* calls, u32 packs,    \
                          u32 rank, u32 world) {                                                                                     \
        all_reduce<T>(input, scratch, outputs, pads, calls, packs, rank, world);                                                     \
    }

ENTRY(bf16, BF16)
