// all_reduce/copy_engine: reduces this rank's slice of all inputs, each of which copy engines have brought into its own memory, in ascending
// rank order.
//
// Nothing here waits for a peer, and no peer looks at what is under way: the stream comes here when it has waited for the words of all peers,
// and tells them when it has copied what is left here to their outputs.
//
// The output may be the slice of this rank's own input: each thread overwrites its own elements, after it has read them from all slices.
#include "../common/reduce.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void copy_engine(const Peers& slices, u64 count, u64 output, u32 average, u32 world) {
    using Stored = typename T::Stored;
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    Split part = split<T>(slices.address[0], output, count);
    u64 packs_at = part.head * sizeof(Stored);
    for (u64 i = thread; i < part.packs; i += threads) {
        u64 offset = packs_at + i * sizeof(Pack);
        store_pack((void*)(output + offset), reduce_pack<T, Op>(slices, offset, world, average));
    }
    for (u64 i = thread; i < part.head + part.tail; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        auto element = reduce_element<T, Op>(slices, offset, world, average);
        store_element(output + offset, element);
    }
}

// Sum with `average` != 0 divides by the world size before the rounding.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_reduce_copy_engine_##NAME(u64 count, u64 output, u32 average, u32 world, const __grid_constant__ Peers slices) {          \
        copy_engine<T, OP>(slices, units<T>(count, average), output, average, world);                                                 \
    }
#include "../common/entries.cuh"
