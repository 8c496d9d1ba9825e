// premul_sum/chain: reduce/chain whose ranks multiply what is their own: see reduce/chain.cuh.
//
// It has every type: its packs begin where messages do, so that it needs none of the products that another kernel writes (products.cu).
// target: compute_90
#include "../reduce/chain.cuh"
#include "times.cuh"

// As Times, by the conversions of fp8.cuh. A product is rounded to the type before it is added.
template <typename T>
struct Factor {
    typename T::Acc factor;

    __device__ __forceinline__ explicit Factor(u64 bits) : factor(Times<T>(bits).factor) {}

    __device__ __forceinline__ Pack operator()(const Pack& pack) const {
        typename T::Acc x[LANES<T>];
        widen_lanes<T>(x, pack);
#pragma unroll
        for (u32 j = 0; j < LANES<T>; j++) x[j] = Prod::apply(x[j], factor);
        return finish_lanes<T>(x, 1, 0);
    }
};

#define ENTRY(NAME, T)                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(CHAIN_THREADS, 1)                                                                     \
        premul_sum_chain_##NAME(u64 input, u64 output, u64 count, u64 factor, u32 root, const __grid_constant__ Sync sync,             \
                                const __grid_constant__ Peers slots) {                                                                 \
        chain<T, Sum>(input, output, count, 0, root, slots, sync, Factor<T>(factor));                                                  \
    }
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#else
DTYPES(ENTRY)
#endif
