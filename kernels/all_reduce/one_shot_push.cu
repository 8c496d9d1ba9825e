// all_reduce/one_shot_push: every rank pushes its whole input into every rank's pad, in LL lines, and reduces what it finds
// in its own pad in ascending rank order.
//
// Over the link: 2 x (world - 1) x bytes into each rank, half of them flags, in one trip without a barrier. For small messages.
//
// Thread i has line i, eight bytes of data: the protocol is that of common/lines.cuh.
//
// What was tried: docs/performance/experiments.md.
#include "../common/lines.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void one_shot_push(u64 input, u64 output, u32 elements, u32 average, const Sync& sync) {
    stall<SITE_ENTER>(sync);
    u32 lines = lines_of<T>(elements);
    auto own = [&](u32 line) { return load_payload<T>(input, line, elements); };
    auto payload = [](u32, u32, const Pack& own) { return own; };
    reduce_exchanged<T, Op>(sync, lines, output, elements, average, own, payload);
    stall<SITE_LEAVE>(sync);
}

// Sum with `average` != 0 divides by the world size before the rounding. At most 2^31 elements, of which one_shot_push.rs lets through
// fewer.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_reduce_one_shot_push_##NAME(u64 input, u64 output, u32 elements, u32 average, const __grid_constant__ Sync sync) {        \
        one_shot_push<T, OP>(input, output, units<T>(elements, average), average, sync);                                              \
    }
#include "../common/entries.cuh"
