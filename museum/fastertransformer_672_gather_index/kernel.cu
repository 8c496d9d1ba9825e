// FasterTransformer 672: the second shot of the two-shot all-reduce mixes up rotated and plain indices.
//
// Each rank adds its slice of all inputs into a buffer that peers can read, and collects all slices from there. To spread the load each
// starts with its own slice and goes on in turn.
//
//   start:  blocks of one index meet: inputs may be read, and reads of the partial sums of the last call are over.
//   middle: they meet again (release, acquire). It publishes the partial sums.
//   bug:    step k takes the partial sum of rank (rank + k) mod world and puts it where slice k belongs. On rank 0 that is the same.
#include "../common.cuh"

template <typename T>
static __device__ __forceinline__ void two_shot(Pack* const* inputs, Pack* const* partials, u32* const* pads, u32* calls, Pack* output, u32 packs, u32 rank,
                                                u32 world) {
    u32 call = calls[blockIdx.x] + 1, slice = packs / world, stride = gridDim.x * blockDim.x;
    meet(pads, 0, call, rank, world);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < slice; i += stride) {
        partials[rank][i] = sum_of_packs<T>([&](u32 of) { return inputs[of][rank * slice + i]; }, world);
    }
    meet(pads, 1, call, rank, world);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < slice; i += stride) {
        for (u32 step = 0; step < world; step++) {
            u32 owner = (rank + step) % world;
#ifdef PLANTED_BUG
            u32 place = step;
#else
            u32 place = owner;
#endif
            output[place * slice + i] = partials[owner][i];
        }
    }
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}

#define ENTRY(NAME, T)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                        \
        two_shot_##NAME(Pack* const* inputs, Pack* const* partials, u32* const* pads, u32* calls, Pack* output, u32 packs,      \
                        u32 rank, u32 world) {                                                                                  \
        two_shot<T>(inputs, partials, pads, calls, output, packs, rank, world);                                                 \
    }

ENTRY(bf16, BF16)
