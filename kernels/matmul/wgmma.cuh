// Matrix products of one warpgroup (wgmma, sm_90a): 64 rows of A by up to 256 columns of B, 16 of K at a time, both in shared memory,
// the sums in the registers of its 128 threads.
//
// Thread t of warp w holds rows 16w + t/4 and 8 more, columns 8j + 2(t%4) and one more: sums[4j..4j+2] of the first row,
// sums[4j+2..4j+4] of the second.
#pragma once
#include "../common/types.cuh"

struct Bf16 {
    enum : bool { BRAIN = true };
    // Two elements as one word, the first in the low half, each rounded to nearest even.
    static __device__ __forceinline__ u32 pack(float low, float high) {
        u32 word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
    }
    static __device__ __forceinline__ float low(u32 word) { return __int_as_float((int)(word << 16)); }
    static __device__ __forceinline__ float high(u32 word) { return __int_as_float((int)(word & 0xffff0000)); }
};

struct F16 {
    enum : bool { BRAIN = false };
    static __device__ __forceinline__ u32 pack(float low, float high) {
        u32 word;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
        return word;
    }
    static __device__ __forceinline__ float widen(u16 half) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
        return value;
    }
    static __device__ __forceinline__ float low(u32 word) { return widen((u16)word); }
    static __device__ __forceinline__ float high(u32 word) { return widen((u16)(word >> 16)); }
};

// An operand in shared memory (PTX ISA, "Matrix descriptor"): rows of 128 bytes whose 16-byte chunks are swizzled, 8 rows after 8.
// `boxes`: bytes between boxes of such rows, where it is its rows that are contiguous in memory and there are several side by side.
__device__ __forceinline__ u64 descriptor(u32 shared, u32 boxes) {
    enum : u64 { SWIZZLE_128 = 1ull << 62, EIGHT_ROWS = (u64)(1024 >> 4) << 32 };
    return SWIZZLE_128 | EIGHT_ROWS | (u64)(boxes >> 4) << 16 | (u64)((shared & 0x3ffff) >> 4);
}

// Registers written before may be read by the products that follow.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
// Closes a group of products.
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
// Until no more than GROUPS groups are under way: those before have read their operands and written their sums.
template <u32 GROUPS>
__device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(GROUPS) : "memory");
}

// The compiler knows nothing of products under way: reads of the sums must not move above the wait for them.
template <u32 COUNT>
__device__ __forceinline__ void settle(float (&sums)[COUNT]) {
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) asm volatile("" : "+f"(sums[i]) : : "memory");
}

#define SUMS_4(I) "+f"(sums[I]), "+f"(sums[I + 1]), "+f"(sums[I + 2]), "+f"(sums[I + 3])
#define SUMS_8(I) SUMS_4(I), SUMS_4(I + 4)
#define SUMS_16(I) SUMS_8(I), SUMS_8(I + 8)
#define SUMS_32(I) SUMS_16(I), SUMS_16(I + 16)
#define SUMS_64(I) SUMS_32(I), SUMS_32(I + 32)
#define NAMES_64                                                                             \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                 \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                       \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                       \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_96                                                                             \
    NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"             \
             "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define NAMES_104 NAMES_96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define NAMES_112 NAMES_104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define NAMES_128                                                                            \
    NAMES_112 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#define PRODUCT(N, TYPE, NAMES, A, B, KEEP, ALONG_N, ...)                                     \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.u32 keep, " KEEP ", 0;\n"                      \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES   \
                 "}, " A ", " B ", keep, 1, 1, 0, " ALONG_N ";\n}"                            \
                 : __VA_ARGS__                                                                \
                 : "l"(a), "l"(b), "r"(keep), "n"(B_ALONG_N ? 1 : 0)                          \
                 : "memory")

// sums = a x b, added to what they were if `keep`. B_ALONG_N: B lies with N contiguous.
template <class T, u32 N, bool B_ALONG_N>
__device__ __forceinline__ void multiply(float (&sums)[N / 2], u64 a, u64 b, u32 keep) {
#define PRODUCT_OF(TYPE)                                                                                                    \
    if constexpr (N == 128) PRODUCT(128, TYPE, NAMES_64, "%64", "%65", "%66", "%67", SUMS_64(0));                          \
    if constexpr (N == 192) PRODUCT(192, TYPE, NAMES_96, "%96", "%97", "%98", "%99", SUMS_64(0), SUMS_32(64));             \
    if constexpr (N == 208)                                                                                                 \
        PRODUCT(208, TYPE, NAMES_104, "%104", "%105", "%106", "%107", SUMS_64(0), SUMS_32(64), SUMS_8(96));                 \
    if constexpr (N == 224)                                                                                                 \
        PRODUCT(224, TYPE, NAMES_112, "%112", "%113", "%114", "%115", SUMS_64(0), SUMS_32(64), SUMS_16(96));                \
    if constexpr (N == 256) PRODUCT(256, TYPE, NAMES_128, "%128", "%129", "%130", "%131", SUMS_64(0), SUMS_64(64));
    if constexpr (T::BRAIN) {
        PRODUCT_OF("bf16")
    } else {
        PRODUCT_OF("f16")
    }
#undef PRODUCT_OF
}
