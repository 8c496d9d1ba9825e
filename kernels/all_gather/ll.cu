// all_gather/ll: every rank pushes its input to every rank in LL lines, and stores what it finds in its own pad to its output.
//
// Over the link: 2 x (world - 1) x count elements into each rank, half of them flags, in one trip without a barrier. For small messages.
//
// Thread i has line i, eight bytes of every rank's slot: the protocol is that of common/lines.cuh. In place the own slot is overwritten with
// itself.
#include "../common/copies.cuh"
#include "../common/lines.cuh"

template <typename T>
__device__ __forceinline__ void ll(u64 input, u64 output, u32 elements, const Sync& sync) {
    stall<SITE_ENTER>(sync);
    u32 lines = lines_of<T>(elements);
    u64 slot_bytes = (u64)elements * sizeof(typename T::Stored);
    auto own = [&](u32 line) { return load_payload<T>(input, line, elements); };
    auto payload = [](u32, u32, const Pack& own) { return own; };
    auto take = [&](u32 rank, u32 line, const Pack& payload) { store_payload<T>(output + rank * slot_bytes, line, elements, payload); };
    exchange_lines(sync, lines, own, payload, take);
    stall<SITE_LEAVE>(sync);
}

// Slots of at most 2^31 elements, of which ll.rs lets through fewer.
#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_gather_ll_##NAME(u64 input, u64 output, u32 elements, const __grid_constant__ Sync sync) {                                \
        ll<T>(input, output, elements, sync);                                                                                         \
    }
#include "../common/copy_entries.cuh"
