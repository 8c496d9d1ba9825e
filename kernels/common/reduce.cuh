// Reduction operators over accumulators, and the two ways a kernel reads what it reduces: a 16-byte pack or one element of every
// rank, all loads in flight before the first use, added in ascending rank order and rounded once.
#pragma once
#include "dtype.cuh"

// Signed overflow is undefined in C++, unsigned is not, and in two's complement the bits are the same.
__device__ __forceinline__ u32 as_unsigned(i32 a) { return (u32)a; }
__device__ __forceinline__ u32 as_unsigned(u32 a) { return a; }
__device__ __forceinline__ u64 as_unsigned(i64 a) { return (u64)a; }
__device__ __forceinline__ u64 as_unsigned(u64 a) { return a; }

struct Sum {
    static __device__ __forceinline__ float apply(float a, float b) { return __fadd_rn(a, b); }
    static __device__ __forceinline__ double apply(double a, double b) { return __dadd_rn(a, b); }
    template <typename A>
    static __device__ __forceinline__ A apply(A a, A b) { return (A)(as_unsigned(a) + as_unsigned(b)); }
};

struct Prod {
    static __device__ __forceinline__ float apply(float a, float b) { return __fmul_rn(a, b); }
    static __device__ __forceinline__ double apply(double a, double b) { return __dmul_rn(a, b); }
    template <typename A>
    static __device__ __forceinline__ A apply(A a, A b) { return (A)(as_unsigned(a) * as_unsigned(b)); }
};

// min and max as PTX defines them: the number where one operand is NaN, and -0 below +0.
struct Min {
    static __device__ __forceinline__ float apply(float a, float b) { return fminf(a, b); }
    static __device__ __forceinline__ double apply(double a, double b) { return fmin(a, b); }
    template <typename A>
    static __device__ __forceinline__ A apply(A a, A b) { return a < b ? a : b; }
};

struct Max {
    static __device__ __forceinline__ float apply(float a, float b) { return fmaxf(a, b); }
    static __device__ __forceinline__ double apply(double a, double b) { return fmax(a, b); }
    template <typename A>
    static __device__ __forceinline__ A apply(A a, A b) { return a > b ? a : b; }
};

// The average's division, after the sum and before the only rounding to the stored type. Integers truncate toward zero.
__device__ __forceinline__ float divide(float a, u32 world) { return __fdiv_rn(a, (float)world); }
__device__ __forceinline__ double divide(double a, u32 world) { return __ddiv_rn(a, (double)world); }
template <typename A>
__device__ __forceinline__ A divide(A a, u32 world) { return a / (A)world; }

// Peers whose loads are in flight together. Worlds above it take another turn of the loop.
enum : u32 { FLIGHT = 8 };

// Reduces the pack at byte `offset` of every rank.
template <typename T, typename Op>
__device__ __forceinline__ Pack reduce_pack(const Peers& from, u64 offset, u32 world, u32 average) {
    typename T::Acc acc[LANES<T>];
    for (u32 base = 0; base < world; base += FLIGHT) {
        Pack flight[FLIGHT];
#pragma unroll
        for (u32 i = 0; i < FLIGHT; i++)
            if (base + i < world) flight[i] = load_pack((const void*)(from.address[base + i] + offset));
#pragma unroll
        for (u32 i = 0; i < FLIGHT; i++)
            if (base + i < world) {
#pragma unroll
                for (u32 j = 0; j < LANES<T>; j++) {
                    typename T::Acc x = T::widen(lane<T>(flight[i], j));
                    acc[j] = i == 0 && base == 0 ? x : Op::apply(acc[j], x);
                }
            }
    }
    Pack sum;
#pragma unroll
    for (u32 j = 0; j < LANES<T>; j++) set_lane<T>(sum, j, T::narrow(average ? divide(acc[j], world) : acc[j]));
    return sum;
}

// Reduces the element at byte `offset` of every rank.
template <typename T, typename Op>
__device__ __forceinline__ auto reduce_element(const Peers& from, u64 offset, u32 world, u32 average) {
    typename T::Acc acc = T::widen(*(const volatile typename T::Stored*)(from.address[0] + offset));
    for (u32 rank = 1; rank < world; rank++)
        acc = Op::apply(acc, T::widen(*(const volatile typename T::Stored*)(from.address[rank] + offset)));
    return T::narrow(average ? divide(acc, world) : acc);
}

template <typename S>
__device__ __forceinline__ void store_element(u64 to, S s) { *(S*)to = s; }

// `count` elements in the unit that a kernel counts: elements.
template <typename T, typename N>
__device__ __forceinline__ N units(N count, u32) { return count; }

// How `count` elements at two byte offsets split into elements up to a 16-byte boundary, packs, and elements after the last pack.
// Where the two addresses differ modulo 16 no pack is aligned in both: everything is `head`.
struct Split {
    u64 head, packs, tail;
};

template <typename T>
__device__ __forceinline__ Split split(u64 input, u64 output, u64 count) {
    if ((input ^ output) & 15) return Split{count, 0, 0};
    u64 head = min(count, ((16 - (input & 15)) & 15) / sizeof(typename T::Stored));
    u64 packs = (count - head) / LANES<T>;
    return Split{head, packs, count - head - packs * LANES<T>};
}
