// The inputs of conformance cases: payload = f(seed, rank, index, call), the same bits as crates/harness/src/conformance/inputs.rs makes on the host.
// Only integer operations and correctly rounded ones, so that there is one answer. The Rust side says what each class is for.
#pragma once
#include "../common/reduce.cuh"
#include "abi.cuh"

constexpr u64 GOLDEN = 0x9e3779b97f4a7c15ull;
constexpr u32 COMMON = 0xffffffffu;   // in a rank's place: what all ranks draw alike
constexpr u32 OTHER_CALL = 0x80000000u;  // added to the call where a flipped element comes from

// What a type's bits mean: PRECISION is the significand with its implicit bit (0: an integer), WIDTH all of it. Tagged sums stay below
// 2^TAG_BITS. A probe's large value is 2^LARGE, its small ones are (1 to SMALL_COUNT) x 2^SMALL.
template <u32 Precision, u32 Width, u32 TagBits, u32 SmallCount, i32 Large, i32 Small>
struct FormatOf {
    static constexpr u32 PRECISION = Precision, WIDTH = Width, TAG_BITS = TagBits, SMALL_COUNT = SmallCount;
    static constexpr i32 LARGE = Large, SMALL = Small;
    static constexpr bool SIGNED = true;
};
template <typename T>
struct Format;
template <u32 Width, u32 TagBits, bool Signed>
struct FormatOfInteger : FormatOf<0, Width, TagBits, 1, 0, 0> {
    static constexpr bool SIGNED = Signed;
};
#define FLOAT(T, ...) template <> struct Format<T> : FormatOf<__VA_ARGS__> {};
#define INTEGER(T, ...) template <> struct Format<T> : FormatOfInteger<__VA_ARGS__> {};
FLOATS(FLOAT)
INTEGERS(INTEGER)

template <typename T>
struct Infinities {
    enum : bool { THERE_ARE = true };
};
#define WITHOUT_INFINITIES(T) template <> struct Infinities<T> { enum : bool { THERE_ARE = false }; };
FLOATS_WITHOUT_INFINITIES(WITHOUT_INFINITIES)

// An integer, to nearest even; times a power of two, for integers modulo their width; a sum.
__device__ __forceinline__ void convert(float& to, i64 v) { to = __ll2float_rn(v); }
__device__ __forceinline__ void convert(double& to, i64 v) { to = __ll2double_rn(v); }
template <typename A>
__device__ __forceinline__ void convert(A& to, i64 v) { to = (A)v; }
template <typename T>
__device__ __forceinline__ float scale(float a, i32 k) { return __fmul_rn(a, __int_as_float((127 + k) << 23)); }
template <typename T>
__device__ __forceinline__ double scale(double a, i32 k) { return __dmul_rn(a, __longlong_as_double((i64)(1023 + k) << 52)); }
template <typename T, typename A>
__device__ __forceinline__ A scale(A a, i32 k) { return (A)(as_unsigned(a) << (k & (Format<T>::WIDTH - 1))); }

// The finaliser of splitmix64.
__device__ __forceinline__ u64 mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

__device__ __forceinline__ u64 key(u64 seed, u32 who, u32 call) { return mix(seed ^ mix(((u64)who << 32 | call) + GOLDEN)); }

// Words 0 and 1 of an element.
__device__ __forceinline__ u64 word(u64 key, u64 index, u32 k) { return mix(key + (2 * index + k) * GOLDEN); }

// What one rank draws in one call.
struct Source {
    u64 own, common;
    u32 rank, world;
};

__device__ __forceinline__ Source source(u64 seed, u32 rank, u32 world, u32 call) {
    return Source{key(seed, rank, call), key(seed, COMMON, call), rank, world};
}

template <typename T>
__device__ __forceinline__ typename T::Stored integer(i64 value, i32 exponent) {
    typename T::Acc acc;
    convert(acc, value);
    return T::narrow(scale<T>(acc, exponent));
}

template <typename T>
__device__ __forceinline__ typename T::Stored tagged(const Source& s, u64 index) {
    constexpr u64 HALF = (1ull << Format<T>::TAG_BITS) / 2;
    u64 reach = HALF / s.world;
    if constexpr (HALF < MAX_RANKS) {
        if (reach == 0) reach = 1;
        u64 holders = HALF / reach;
        if (holders < s.world && (s.rank + word(s.common, index, 0)) % s.world >= holders) return 0;
    }
    i64 drawn = (i64)__umul64hi(word(s.own, index, 0), 2 * reach + 1);
    return integer<T>(Format<T>::SIGNED ? drawn - (i64)reach : drawn, 0);
}

// The highest bits of a drawn word, as many as the type has.
template <typename T>
__device__ __forceinline__ typename T::Stored high_bits(u64 w) { return (typename T::Stored)(w >> (64 - Format<T>::WIDTH)); }

template <typename T>
__device__ __forceinline__ typename T::Stored natural(const Source& s, u64 index) {
    u64 w = word(s.own, index, 0);
    if constexpr (Format<T>::PRECISION == 0) return high_bits<T>(w);
    u64 high = (w & 0xffff) + (w >> 16 & 0xffff) + (w >> 32 & 0xffff) + (w >> 48);
    i64 sum = (i64)((high << 44) + (word(s.own, index, 1) >> 20)) - ((131070ll << 44) + (1ll << 43));
    return integer<T>(sum, -59);
}

// Two different ranks from a common word; the same one twice where there is only one.
struct Pair {
    u32 first, second;
};

__device__ __forceinline__ Pair pick(u64 common, u32 world) {
    u32 first = (u32)((common >> 32) * world >> 32);
    u32 second = first + 1 + (u32)((common & 0xffffffff) * (world - 1) >> 32);
    return Pair{first, second >= world ? second - world : second};
}

template <typename T>
__device__ __forceinline__ typename T::Stored probe(const Source& s, u64 index) {
    if constexpr (Format<T>::PRECISION == 0) return (typename T::Stored)word(s.own, index, 0);
    if (s.world >= 3) {
        Pair pair = pick(word(s.common, index, 0), s.world);
        if (s.rank == pair.first) return integer<T>(1, Format<T>::LARGE);
        if (s.rank == pair.second) return integer<T>(-1, Format<T>::LARGE);
    }
    u64 w = word(s.common, index, 1);
    u32 turn = (s.rank * ((u32)(w >> 3) | 1) + (u32)w) & 7;  // an odd stride: eight ranks in a row differ
    return integer<T>(1 + turn % Format<T>::SMALL_COUNT, Format<T>::SMALL);
}

template <typename T>
__device__ __forceinline__ u64 special_float(const Source& s, u64 index) {
    constexpr u32 P = Format<T>::PRECISION, W = Format<T>::WIDTH;
    constexpr u64 SIGN = 1ull << (W - 1), NORMAL = 1ull << (P - 1);
    constexpr u64 BIAS = (1ull << (W - P - 1)) - 1, ONE = BIAS << (P - 1), HALF_ULP = (BIAS - P) << (P - 1);
    // Without infinities, only the last pattern is no number, and the largest number takes their place.
    constexpr bool HAS_INF = Infinities<T>::THERE_ARE;
    constexpr u64 INF = HAS_INF ? SIGN - NORMAL : SIGN - 2, LARGEST = HAS_INF ? INF - 1 : INF;
    constexpr u64 QUIET = HAS_INF ? INF | NORMAL >> 1 : SIGN - 1, PAYLOAD = HAS_INF ? (NORMAL >> 1) - 1 : 0;
    constexpr u64 SMALLS = NORMAL - 1 < 7 ? NORMAL - 1 : 7;
    u64 common = word(s.common, index, 0), own = word(s.own, index, 0);
    Pair pair = pick(common, s.world);
    bool first = s.rank == pair.first, second = s.rank == pair.second;
    u64 sign = common & 1 ? SIGN : 0, small = 1 + own % SMALLS;
    u64 nan = QUIET | (own & PAYLOAD);
    u32 turn = s.rank >= pair.first ? s.rank - pair.first : s.rank + s.world - pair.first;
    // Neighbours share a situation, so that reserved 32-bit words appear in narrower types too.
    u64 situation = word(s.common, index >> (W == 8 ? 2 : 1), 1);
    switch ((u32)(situation >> 60)) {
        case 0: return SIGN;
        case 1: return first ? 0 : SIGN;
        case 2: if (first) return nan; break;
        case 3: return nan;
        case 4: if (first) return INF; break;
        case 5: if (first) return INF | SIGN; break;
        case 6: if (first) return INF; if (second) return INF | SIGN; break;
        case 7: return LARGEST | sign;
        case 8: return turn < 2 ? LARGEST : turn == 2 ? LARGEST | SIGN : 0;
        case 9: return small | sign;
        case 10: return first ? NORMAL : (W == 8 ? 1 : small) | SIGN;
        case 11:
            if (first) return W == 8 ? (u64)((index & 3) == 3) << 7 : W == 16 ? (index & 1) << 15 : W == 32 ? 0x80000000ull : 0x8000000080000000ull;
            break;
        case 12:
            // Words that kernels of packs without flags have for something else (inputs.rs).
            if (first) return (situation >> 59 & 1 ? 0x7fffffff7fffffffull ^ (situation >> 58 & 1) * 0x100000001ull : situation >> 58 & 1 ? ~0ull : 0xfffafffafffafffaull) >> (W * index & 31);
            break;
        case 13: return first ? ONE : second ? HALF_ULP : 0;
        case 14: return first ? ONE + 1 : second ? HALF_ULP : 0;
    }
    return natural<T>(s, index);
}

template <typename T>
__device__ __forceinline__ typename T::Stored special(const Source& s, u64 index) {
    using Stored = typename T::Stored;
    if constexpr (Format<T>::PRECISION == 0) {
        constexpr u64 TOP = 1ull << (Format<T>::WIDTH - 1);
        u64 w = word(s.own, index, 0);
        switch (w & 7) {
            case 0: return (Stored)TOP;
            case 1: return (Stored)(TOP - 1);
            case 2: return (Stored)~0ull;
            case 3: return 0;
            case 4: return 1;
            case 5: return (Stored)(TOP | 1);
            case 6: return (Stored)(TOP - 2);
        }
        return high_bits<T>(w);
    } else {
        return (Stored)special_float<T>(s, index);
    }
}

template <typename T>
__device__ __forceinline__ typename T::Stored draw(const Source& s, u32 kind, u64 index) {
    if (kind == TAGGED) return tagged<T>(s, index);
    if (kind == NATURAL) return natural<T>(s, index);
    if (kind == PROBE) return probe<T>(s, index);
    return special<T>(s, index);
}

// `other` is the source of the call that PLUS adds, or that FLIP takes the element `argument` from.
template <typename T>
__device__ __forceinline__ typename T::Stored element(const Source& base, const Source& other, u32 kind, u32 transform, u64 argument,
                                                      u64 index) {
    using Stored = typename T::Stored;
    if (transform == FLIP && index == argument) return draw<T>(other, kind, index);
    Stored x = draw<T>(base, kind, index);
    if (transform == NEGATE) return Format<T>::PRECISION == 0 ? (Stored)(0 - x) : (Stored)(x ^ (Stored)(1ull << (Format<T>::WIDTH - 1)));
    if (kind == SPECIAL) return x;
    if (transform == SCALE) return T::narrow(scale<T>(T::widen(x), (i32)argument));
    if (transform == PLUS) return T::narrow(Sum::apply(T::widen(x), T::widen(draw<T>(other, kind, index))));
    return x;
}
