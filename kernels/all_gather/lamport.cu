// all_gather/lamport: every rank pushes its input to every rank in Lamport packs, and stores what it finds in its own pad to its output.
//
// Over the link: (world - 1) x count elements into each rank, in one trip without a barrier or a flag.
//
// A warp has tile i, 512 bytes of every rank's slot: the protocol is that of common/lamport.cuh. In place the own slot is overwritten with itself.
//
// target: compute_90
#include "../common/copies.cuh"
#include "../common/lamport.cuh"

template <typename T>
__device__ __forceinline__ void lamport(u64 input, u64 output, u32 elements, const Lamport& pads) {
    u64 slot_bytes = (u64)elements * sizeof(typename T::Stored);
    exchange_packs<T>(pads, elements, true, [&](u32) { return input; }, [&](u32 rank) { return output + rank * slot_bytes; });
}

// Slots of at most 2^31 elements, of which lamport.rs lets through fewer.
#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(MOST_THREADS<T>, 1)                                                                  \
        all_gather_lamport_##NAME(u64 input, u64 output, u32 elements, const __grid_constant__ Sync sync, const __grid_constant__ Peers escapes) {\
        lamport<T>(input, output, elements, Lamport{sync, escapes});                                                                  \
    }
#include "../common/copy_entries.cuh"
