// premul_sum/products: this rank's input times its factor, element by element, each product rounded to the type of the elements: what a
// pre-multiplied sum adds.
//
// Nothing here waits for a peer, and no peer looks at what is under way: the kernel that follows on the stream tells them.
#include "times.cuh"

template <typename T, typename F>
__device__ __forceinline__ void products(u64 input, u64 output, u64 count, const F& times) {
    using Stored = typename T::Stored;
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    Split part = split<T>(input, output, count);
    u64 packs_at = part.head * sizeof(Stored);
    for (u64 i = thread; i < part.packs; i += threads) {
        u64 offset = packs_at + i * sizeof(Pack);
        store_pack((void*)(output + offset), times(load_pack((const void*)(input + offset))));
    }
    for (u64 i = thread; i < part.head + part.tail; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        *(Stored*)(output + offset) = times.of(*(const Stored*)(input + offset));
    }
}

#define ENTRY(NAME, T)                                                                                    \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                  \
        premul_sum_products_##NAME(u64 input, u64 output, u64 count, u64 factor) {                        \
        products<T>(input, output, count, Multiplier<T>(factor));                                         \
    }
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#else
DTYPES(ENTRY)
#endif
