// bench/numbers: the operands of products. Values are drawn from seed and index, so that every rank has others: about N(0, 1), since what a
// multiprocessor draws in watts depends on the bits that toggle, or integers from -4 to 4, whose products any order of additions gives exactly.
// No synchronisation: every thread writes elements of its own.
#include "../common/dtype.cuh"

// The finaliser of splitmix64.
__device__ __forceinline__ u64 mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// The sum of four uniform draws of 16 bits, less its mean and over its standard deviation: 65536 / sqrt(3).
__device__ __forceinline__ float normal(u64 drawn) {
    u32 sum = (u32)(drawn & 0xffff) + (u32)(drawn >> 16 & 0xffff) + (u32)(drawn >> 32 & 0xffff) + (u32)(drawn >> 48);
    return (float)((i32)sum - 131070) * (1.0f / 37837.227f);
}

__device__ __forceinline__ float integer(u64 drawn) { return (float)((i32)((drawn >> 32) * 9 >> 32) - 4); }

template <typename T>
__device__ __forceinline__ void numbers(u64 destination, u64 count, u64 seed, u32 integers) {
    u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        u64 drawn = mix(mix(seed) + (i + 1) * 0x9e3779b97f4a7c15ull);
        ((typename T::Stored*)destination)[i] = T::narrow(integers ? integer(drawn) : normal(drawn));
    }
}

#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) numbers_##NAME(u64 destination, u64 count, u64 seed, u32 integers) {            \
        numbers<T>(destination, count, seed, integers);                                                                               \
    }
ENTRY(f16, F16)
ENTRY(bf16, BF16)
