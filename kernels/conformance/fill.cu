// conformance/fill: writes one rank's payload, element by element, so that large inputs need not cross the bus. No synchronisation:
// every thread writes elements of its own. The destination need only be aligned to an element.
#include "inputs.cuh"

template <typename T>
__device__ __forceinline__ void fill(u64 destination, u64 count, u64 seed, u32 kind, u32 rank, u32 world, u32 call, u32 transform,
                                     u64 argument) {
    Source base = source(seed, rank, world, call);
    Source other = source(seed, rank, world, transform == PLUS ? (u32)argument : call ^ OTHER_CALL);
    u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads)
        ((typename T::Stored*)destination)[i] = element<T>(base, other, kind, transform, argument, i);
}

// `kind` is a Class, `argument` the transform's: an exponent of two, a call, or the index of the flipped element.
#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                                                 \
        fill_##NAME(u64 destination, u64 count, u64 seed, u32 kind, u32 rank, u32 world, u32 call, u32 transform, u64 argument) {     \
        fill<T>(destination, count, seed, kind, rank, world, call, transform, argument);                                              \
    }
DTYPES(ENTRY)
