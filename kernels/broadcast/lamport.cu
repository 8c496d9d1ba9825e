// broadcast/lamport: the root pushes its input to every rank in Lamport packs, and each stores what it finds in its own pad to its output.
//
// Over the link: (world - 1) x count elements out of the root, in one trip without a barrier or a flag, and a 32nd of that between all others.
//
// A warp has tile i, 512 bytes: the protocol is that of common/lamport.cuh, in which the others tell of themselves. In place the root's output is
// overwritten with itself.
//
// target: compute_90
#include "../common/copies.cuh"
#include "../common/lamport.cuh"

template <typename T>
__device__ __forceinline__ void lamport(u64 input, u64 output, u32 elements, u32 root, const Lamport& pads) {
    exchange_packs<T, true>(pads, elements, FromRoot{root}, [&](u32) { return input; }, [&](u32) { return output; });
}

// At most 2^31 elements, of which lamport.rs lets through fewer.
#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(MOST_THREADS<T>, 1)                                                                  \
        broadcast_lamport_##NAME(u64 input, u64 output, u32 elements, u32 root, const __grid_constant__ Sync sync,                    \
                                 const __grid_constant__ Peers escapes) {                                                             \
        lamport<T>(input, output, elements, root, Lamport{sync, escapes});                                                            \
    }
#include "../common/copy_entries.cuh"
