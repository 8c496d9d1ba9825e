// reduce_scatter/ll: every rank pushes each peer's slot of its input to that peer in LL lines, and reduces what it finds in
// its own pad in ascending rank order.
//
// Over the link: 2 x (world - 1) x count elements into each rank, half of them flags, in one trip without a barrier. For small messages.
//
// Thread i has line i, eight bytes of every slot: the protocol is that of common/lines.cuh. In place the output is the own slot of the input,
// of which each thread reads its elements before it overwrites them.
#include "../common/lines.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void ll(u64 input, u64 output, u32 elements, u32 average, const Sync& sync) {
    stall<SITE_ENTER>(sync);
    u32 lines = lines_of<T>(elements);
    u64 slot_bytes = (u64)elements * sizeof(typename T::Stored);
    auto own = [&](u32 line) { return load_payload<T>(input + sync.rank * slot_bytes, line, elements); };
    auto payload = [&](u32 peer, u32 line, const Pack&) { return load_payload<T>(input + peer * slot_bytes, line, elements); };
    reduce_exchanged<T, Op>(sync, lines, output, elements, average, own, payload);
    stall<SITE_LEAVE>(sync);
}

// Sum with `average` != 0 divides by the world size before the rounding. Slots of at most 2^31 elements, of which ll.rs lets through fewer.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        reduce_scatter_ll_##NAME(u64 input, u64 output, u32 elements, u32 average, const __grid_constant__ Sync sync) {               \
        ll<T, OP>(input, output, units<T>(elements, average), average, sync);                                                         \
    }
#include "../common/entries.cuh"
