// Element types: how they are stored, in which type they are accumulated, and the two conversions between. Stored forms are plain
// unsigned words, so that no bit pattern changes on its way through a register.
#pragma once
#include "types.cuh"

struct F32 {
    using Stored = u32;
    using Acc = float;
    static __device__ __forceinline__ Acc widen(Stored s) { return __int_as_float((int)s); }
    static __device__ __forceinline__ Stored narrow(Acc a) { return (u32)__float_as_int(a); }
};

struct F16 {
    using Stored = u16;
    using Acc = float;
    static __device__ __forceinline__ Acc widen(Stored s) {
        float a;
        asm("cvt.f32.f16 %0, %1;" : "=f"(a) : "h"(s));
        return a;
    }
    static __device__ __forceinline__ Stored narrow(Acc a) {
        u16 s;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(s) : "f"(a));
        return s;
    }
};

struct BF16 {
    using Stored = u16;
    using Acc = float;
    static __device__ __forceinline__ Acc widen(Stored s) { return __int_as_float((int)((u32)s << 16)); }
    static __device__ __forceinline__ Stored narrow(Acc a) {
        u16 s;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(s) : "f"(a));
        return s;
    }
};

struct F64 {
    using Stored = u64;
    using Acc = double;
    static __device__ __forceinline__ Acc widen(Stored s) { return __longlong_as_double((i64)s); }
    static __device__ __forceinline__ Stored narrow(Acc a) { return (u64)__double_as_longlong(a); }
};

// Accumulated unsigned: two's complement sums are the same bits, and signed overflow is undefined in C++.
struct I32 {
    using Stored = u32;
    using Acc = u32;
    static __device__ __forceinline__ Acc widen(Stored s) { return s; }
    static __device__ __forceinline__ Stored narrow(Acc a) { return a; }
};

// Elements of T in one 16-byte pack.
template <typename T>
constexpr u32 LANES = 16 / sizeof(typename T::Stored);

// Lane i of a pack; i is a compile-time constant after unrolling, so both compile to register moves.
template <typename T>
__device__ __forceinline__ typename T::Stored lane(const Pack& p, u32 i) {
    if constexpr (sizeof(typename T::Stored) == 1) return (u8)(p.word[i / 4] >> (8 * (i % 4)));
    if constexpr (sizeof(typename T::Stored) == 2) return (u16)(p.word[i / 2] >> (16 * (i % 2)));
    if constexpr (sizeof(typename T::Stored) == 4) return p.word[i];
    if constexpr (sizeof(typename T::Stored) == 8) return (u64)p.word[2 * i] | ((u64)p.word[2 * i + 1] << 32);
}

template <typename T>
__device__ __forceinline__ void set_lane(Pack& p, u32 i, typename T::Stored s) {
    if constexpr (sizeof(typename T::Stored) < 4) {
        constexpr u32 BITS = 8 * sizeof(typename T::Stored), MASK = (1u << BITS) - 1, IN_WORD = 32 / BITS;
        u32 shift = BITS * (i % IN_WORD);
        p.word[i / IN_WORD] = (p.word[i / IN_WORD] & ~(MASK << shift)) | ((u32)s << shift);
    }
    if constexpr (sizeof(typename T::Stored) == 4) p.word[i] = s;
    if constexpr (sizeof(typename T::Stored) == 8) {
        p.word[2 * i] = (u32)s;
        p.word[2 * i + 1] = (u32)(s >> 32);
    }
}
