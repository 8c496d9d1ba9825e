// reduce_scatter/lamport: every rank pushes each peer's slot of its input to that peer in Lamport packs, and reduces what it finds in its own pad in
// ascending rank order.
//
// Over the link: (world - 1) x count elements into each rank, in one trip without a barrier or a flag.
//
// A warp has tile i, 512 bytes of every slot: the protocol is that of common/lamport.cuh. In place the output is the own slot of the input, of which
// each thread reads its elements before it overwrites them.
//
// target: compute_90
#define FEW_ENTRIES
#include "../common/lamport.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void lamport(u64 input, u64 output, u32 elements, u32 average, const Lamport& pads) {
    u64 slot_bytes = (u64)elements * sizeof(typename T::Stored);
    reduce_exchanged_packs<T, Op>(pads, output, elements, average, false, [&](u32 peer) { return input + peer * slot_bytes; });
}

// Sum with `average` != 0 divides by the world size before the rounding. Slots of at most 2^31 elements, of which lamport.rs lets through fewer.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(MOST_THREADS<T>, 1)                                                                  \
        reduce_scatter_lamport_##NAME(u64 input, u64 output, u32 elements, u32 average, const __grid_constant__ Sync sync,            \
                                      const __grid_constant__ Peers escapes) {                                                        \
        lamport<T, OP>(input, output, units<T>(elements, average), average, Lamport{sync, escapes});                                  \
    }
#include "../common/entries.cuh"
