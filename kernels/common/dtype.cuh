// Element types: how they are stored, in which type they are accumulated, and the two conversions between. Stored forms are plain
// unsigned words, so that no bit pattern changes on its way through a register.
#pragma once
#include "dtypes.cuh"
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

// Integers are accumulated as such of 32 or 64 bits, which are cut to their width: operators wrap.
template <typename S, typename A>
struct Integer {
    using Stored = S;
    using Acc = A;
    static __device__ __forceinline__ Acc widen(Stored s) { return (Acc)s; }
    static __device__ __forceinline__ Stored narrow(Acc a) { return (Stored)a; }
};
struct I32 : Integer<u32, i32> {};
struct U8 : Integer<u8, u32> {};
struct U32 : Integer<u32, u32> {};
struct I64 : Integer<u64, i64> {};
struct U64 : Integer<u64, u64> {};
struct I8 : Integer<u8, i32> {
    static __device__ __forceinline__ Acc widen(Stored s) { return (signed char)s; }
};

// An 8-bit float from f32: to nearest, ties to even, and to the largest number what is beyond it, as `cvt.rn.satfinite` does. In arithmetic that
// every GPU has: that instruction asks for sm_89. Without a branch, and in few instructions on integers: for sixteen lanes of a pack these take longer
// than the links. FRACTION is the bits of the fraction, BIAS the exponent's, LARGEST the bits of the largest number.
template <u32 FRACTION, u32 BIAS, u32 LARGEST>
__device__ __forceinline__ u8 narrow_to_8_bits(float a) {
    constexpr u32 CUT = 23 - FRACTION, REBIAS = (127 - BIAS) << 23, LEAST_NORMAL = REBIAS + (1u << 23), TOP = (LARGEST << CUT) + REBIAS;
    u32 bits = (u32)__float_as_int(a), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    u32 finite = magnitude < TOP ? magnitude : TOP;
    // Beside this number, the last place of f32 is that of the result: the sum rounds to it.
    u32 power = (finite & 0x7f800000) + (CUT << 23);
    float beside = __int_as_float((int)(power > LEAST_NORMAL + (CUT << 23) ? power : LEAST_NORMAL + (CUT << 23)));
    float rounded = __fsub_rn(__fadd_rn(__int_as_float((int)finite), beside), beside);
    // With the exponent's bias taken off its fields are the result's, whether that is normal or not.
    u32 fields = (u32)__float_as_int(__fmul_rn(rounded, __int_as_float((int)(BIAS << 23)))) >> CUT;
    return magnitude > 0x7f800000 ? 0x7f : sign | fields;
}

struct E4M3 {
    using Stored = u8;
    using Acc = float;
    // Its fields at the place of f32's are 2^-120 of the number, whether it is normal or not. One pattern of each sign is NaN, and would be 480.
    static __device__ __forceinline__ Acc widen(Stored s) {
        u32 fields = (u32)((i32)((u32)s << 24) >> 4) & 0x87f00000;
        float number = __fmul_rn(__int_as_float((int)fields), __int_as_float((127 + 120) << 23));
        return __int_as_float(__float_as_int(number) & 0x7fffffff) > 448.0f ? __int_as_float(0x7fffffff) : number;
    }
    static __device__ __forceinline__ Stored narrow(Acc a) { return narrow_to_8_bits<3, 7, 0x7e>(a); }
};

// The upper half of an f16.
struct E5M2 {
    using Stored = u8;
    using Acc = float;
    static __device__ __forceinline__ Acc widen(Stored s) { return F16::widen((u16)(s << 8)); }
    static __device__ __forceinline__ Stored narrow(Acc a) { return narrow_to_8_bits<2, 15, 0x7b>(a); }
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
