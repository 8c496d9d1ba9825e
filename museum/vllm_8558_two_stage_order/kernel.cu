// vLLM 8558: the two stages of the two-stage all-reduce are divided by flags that order nothing.
//
// Each rank adds its slice of all ranks' inputs into a buffer that peers can read, and then collects all slices from there.
//
//   start:  st.relaxed.sys of the count to every peer, ld.relaxed.sys of theirs. What the streams did before is published by the kernels'
//           start.
//   middle: bar.sync, st.release.sys of the count, ld.acquire.sys, bar.sync. It publishes the partial sums, which this very kernel wrote.
//   end:    none. The start of the next call says that our reads of the partial sums are over.
//   bug:    the flags in the middle are volatile: the count may be seen before the sums.
#include "../common.cuh"

template <bool ORDERED>
static __device__ __forceinline__ void barrier(u32* const* pads, u32 phase, u32 count, u32 rank, u32 world) {
    __syncthreads();
    u32 peer = threadIdx.x;
    if (peer < world) {
        u32* put = pads[peer] + word(phase, blockIdx.x, rank);
        const u32* take = pads[rank] + word(phase, blockIdx.x, peer);
        if (ORDERED) {
            store_release(put, count);
            wait_for(take, count);
        } else {
            store_volatile(put, count);
            while (!reached(load_volatile(take), count)) {
            }
        }
    }
    __syncthreads();
}

template <typename T>
static __device__ __forceinline__ void two_stage(Pack* const* inputs, Pack* const* partials, u32* const* pads, u32* calls, Pack* output, u32 packs,
                                                 u32 rank, u32 world) {
#ifdef PLANTED_BUG
    constexpr bool MIDDLE_IS_ORDERED = false;
#else
    constexpr bool MIDDLE_IS_ORDERED = true;
#endif
    u32 call = calls[blockIdx.x] + 1, slice = (packs + world - 1) / world, stride = gridDim.x * blockDim.x;
    barrier<false>(pads, 0, call, rank, world);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < slice && rank * slice + i < packs; i += stride) {
        partials[rank][i] = sum_of_packs<T>([&](u32 of) { return inputs[of][rank * slice + i]; }, world);
    }
    barrier<MIDDLE_IS_ORDERED>(pads, 1, call, rank, world);
    // A block collects what blocks of its own index have added, which are those that it has met.
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < slice; i += stride) {
        for (u32 owner = 0; owner < world && owner * slice + i < packs; owner++) output[owner * slice + i] = partials[owner][i];
    }
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}

#define ENTRY(NAME, T)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                        \
        two_stage_##NAME(Pack* const* inputs, Pack* const* partials, u32* const* pads, u32* calls, Pack* output, u32 packs,     \
                         u32 rank, u32 world) {                                                                                 \
        two_stage<T>(inputs, partials, pads, calls, output, packs, rank, world);                                                \
    }

ENTRY(bf16, BF16)
