// reduce/chain: see chain.cuh.
// target: compute_90
#define FEW_ENTRIES
#include "chain.cuh"

// Sum with `average` != 0 divides by the world size before the last rounding.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(CHAIN_THREADS, 1)                                                                    \
        reduce_chain_##NAME(u64 input, u64 output, u64 count, u32 average, u32 root, const __grid_constant__ Sync sync,               \
                            const __grid_constant__ Peers slots) {                                                                    \
        chain<T, OP>(input, output, units<T>(count, average), average, root, slots, sync);                                            \
    }
#include "../common/entries.cuh"
