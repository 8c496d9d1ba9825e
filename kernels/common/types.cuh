// Plain integer types and 16-byte packs. Kernels include no system header: NVRTC compiles them in milliseconds, and the PTX
// holds nothing but the algorithm.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

// Ranks of one group that a kernel can address, as many as an NVLink domain has: their pointers travel by value in constant memory, so that no
// kernel starts with a dependent load. They are a kernel's last arguments: a small group reads few lines of constants then, whatever the room for a
// large one. Mirrors MAX_RANKS of crates/plan/src/plan/mod.rs.
// Constants are enumerators: NVRTC makes a .global of the PTX of every constexpr at namespace scope.
enum : u32 { MAX_RANKS = 72 };

// One region on every rank, this rank's own included, in rank order. Entries at and past the world size are null.
struct Peers {
    u64 address[MAX_RANKS];
};

struct alignas(16) Pack {
    u32 word[4];
};

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

