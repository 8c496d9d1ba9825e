// premul_sum/push: all_reduce/push, reduce_scatter/push or reduce/push whose senders multiply: see all_reduce/push.cuh. Over the link and in time
// that is a sum; products that another kernel had written to memory first would have to be read again (products.cu).
//
// Inputs and outputs are whole packs that begin with one, and the type is one that has an entry here: push.rs leaves the others to products.cu.
#include "../all_reduce/push.cuh"
#include "times.cuh"

// Sixteen sums a pack take the registers of several.
template <>
struct AtOnce<E4M3> {
    enum : u32 { PACKS = 2 };
};
template <>
struct AtOnce<E5M2> : AtOnce<E4M3> {};

#define ENTRY(NAME, T)                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                               \
        premul_sum_push_##NAME(u64 input, u64 count, u64 factor, u64 origin, Ranks owners, Ranks receivers,                            \
                               const __grid_constant__ Sync sync, const __grid_constant__ Peers output,                                \
                               const __grid_constant__ Peers slots) {                                                                  \
        push<T, Sum>(input, output, count, 0, origin, slots, owners, receivers, sync, Multiplier<T>(factor));                          \
    }
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#else
FEW_DTYPES(ENTRY)
ENTRY(e4m3, E4M3)
ENTRY(e5m2, E5M2)
#endif
