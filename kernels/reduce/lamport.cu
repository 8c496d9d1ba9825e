// reduce/lamport: every rank pushes its input to the root in Lamport packs, which reduces what it finds in its own pad in ascending rank order.
//
// Over the link: (world - 1) x count elements into the root, in one trip without a barrier or a flag, and a 32nd of that between all others.
//
// A warp has tile i, 512 bytes: the protocol is that of common/lamport.cuh, in which the others tell each other of themselves. In place each thread of the
// root overwrites elements that nobody else reads.
//
// target: compute_90
#define FEW_ENTRIES
#include "../common/lamport.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void lamport(u64 input, u64 output, u32 elements, u32 average, u32 root, const Lamport& pads) {
    reduce_exchanged_packs<T, Op, true>(pads, output, elements, average, ToRoot{root}, [&](u32) { return input; });
}

// Sum with `average` != 0 divides by the world size before the rounding. At most 2^31 elements, of which lamport.rs lets through fewer.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(MOST_THREADS<T>, 1)                                                                  \
        reduce_lamport_##NAME(u64 input, u64 output, u32 elements, u32 average, u32 root, const __grid_constant__ Sync sync,          \
                              const __grid_constant__ Peers escapes) {                                                                \
        lamport<T, OP>(input, output, units<T>(elements, average), average, root, Lamport{sync, escapes});                            \
    }
#include "../common/entries.cuh"
