// all_reduce/one_shot_lamport: every rank pushes its whole input into every rank's pad, in Lamport packs, and reduces what it finds in its own pad in
// ascending rank order.
//
// Over the link: (world - 1) x bytes into each rank, in one trip without a barrier or a flag.
//
// A warp has tile i, 512 bytes of data: the protocol is that of common/lamport.cuh. In place each thread overwrites its elements after it has sent them.
//
// What was tried: docs/performance/experiments.md.
//
// target: compute_90
#define FEW_ENTRIES
#include "../common/lamport.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void one_shot_lamport(u64 input, u64 output, u32 elements, u32 average, const Lamport& pads) {
    reduce_exchanged_packs<T, Op>(pads, output, elements, average, true, [&](u32) { return input; });
}

// Sum with `average` != 0 divides by the world size before the rounding. At most 2^31 elements, of which one_shot_lamport.rs lets through fewer.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(MOST_THREADS<T>, 1)                                                                  \
        all_reduce_one_shot_lamport_##NAME(u64 input, u64 output, u32 elements, u32 average, const __grid_constant__ Sync sync,       \
                                           const __grid_constant__ Peers escapes) {                                                   \
        one_shot_lamport<T, OP>(input, output, units<T>(elements, average), average, Lamport{sync, escapes});                         \
    }
#include "../common/entries.cuh"
