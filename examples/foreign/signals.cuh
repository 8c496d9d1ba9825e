// Signals between ranks: words that are stored with release and loaded with acquire, at system scope. What the CUDA examples share.
#pragma once
#include "packs.cuh"

static __device__ __forceinline__ void store_release(u32* to, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

static __device__ __forceinline__ u32 load_acquire(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// Counts only grow, so that a captured launch replays; they may wrap.
static __device__ __forceinline__ void wait_for(const u32* at, u32 count) {
    while ((int)(load_acquire(at) - count) < 0) {
    }
}
