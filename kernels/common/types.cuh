// Plain integer types and 16-byte packs. Kernels include no system header: NVRTC compiles them in milliseconds, and the PTX
// holds nothing but the algorithm.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#include "abi.cuh"

struct alignas(16) Pack {
    u32 word[4];
};

// Asks for the line at this address, which reads nothing: in front of `griddepcontrol.wait`, what runs before may still write it.
__device__ __forceinline__ void prefetch(u64 at) { asm volatile("prefetch.global.L2 [%0];" : : "l"(at)); }

// The widest access of the architecture, as one instruction: what the compiler may not split or merge.
__device__ __forceinline__ Pack load_pack(const void* from) {
    Pack p;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
                 : "l"(from)
                 : "memory");
    return p;
}

__device__ __forceinline__ void store_pack(void* to, const Pack& p) {
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};"
                 :
                 : "l"(to), "r"(p.word[0]), "r"(p.word[1]), "r"(p.word[2]), "r"(p.word[3])
                 : "memory");
}

