// all_reduce/push, and by its other arguments reduce_scatter/push and reduce/push: see push.cuh.
#define FEW_ENTRIES
#include "push.cuh"

// Sum with `average` != 0 divides by the world size before the rounding.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_reduce_push_##NAME(u64 count, u32 average, u64 origin, Ranks owners, Ranks receivers,                                     \
                               const __grid_constant__ Sync sync, const __grid_constant__ Peers input,                                \
                               const __grid_constant__ Peers output, const __grid_constant__ Peers slots) {                           \
        push<T, OP>(input, output, units<T>(count, average), average, origin, slots, owners, receivers, sync);                        \
    }
#include "../common/entries.cuh"
