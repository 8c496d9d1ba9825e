// bench/numbers: the operands of products. Values are drawn from seed and index, so that every rank has others: about N(0, 1), since what a
// SM draws in watts depends on the bits that toggle, or integers from -4 to 4, whose products any order of additions gives exactly.
// No synchronisation: every thread writes elements of its own.
//
// `arrived` counts what is not there of an all-to-all of such integers: slot s of the output is the part of rank s's input, drawn with seed + s, that is
// for this rank. The verdict is two words, 0 before: elements that are wrong, and blocks that have looked.
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

template <typename T>
__device__ __forceinline__ void arrived(u64 output, u64 count, u32 world, u32 rank, u64 seed, u64 verdict) {
    u64 threads = (u64)gridDim.x * blockDim.x;
    u32 wrong = 0;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count * world; at += threads) {
        u64 source = at / count;
        u64 i = rank * count + at % count;
        u64 drawn = mix(mix(seed + source) + (i + 1) * 0x9e3779b97f4a7c15ull);
        wrong += T::widen(((const typename T::Stored*)output)[at]) != integer(drawn);
    }
    if (wrong) atomicAdd((u32*)verdict, wrong);
    if (threadIdx.x == 0) atomicAdd((u32*)verdict + 1, 1u);
}

#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) numbers_##NAME(u64 destination, u64 count, u64 seed, u32 integers) {            \
        numbers<T>(destination, count, seed, integers);                                                                               \
    }
ENTRY(f16, F16)
ENTRY(bf16, BF16)

extern "C" __global__ void __launch_bounds__(256) arrived_bf16(u64 output, u64 count, u32 world, u32 rank, u64 seed, u64 verdict) {
    arrived<BF16>(output, count, world, rank, seed, verdict);
}
