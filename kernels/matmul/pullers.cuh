// Warps of a product's block that neither load nor multiply, all of them but the first of the producer: they pull what peers have, and count what was pulled.
#pragma once
#include "../common/signals.cuh"
#include "tma.cuh"

enum : u32 { PULLERS = 3, PULLERS_BARRIER = 3 };

__device__ __forceinline__ u32 load_count(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// A barrier of the pullers of a block and those of the same block of every peer.
template <Ordering ORDERING>
__device__ __forceinline__ void meet_pullers(const Sync& sync, u32 epoch, Site site) {
    named_barrier(PULLERS_BARRIER, PULLERS * 32);
    u32 peer = threadIdx.x - 32;
    if (peer < sync.world) {
        u64 row = (u64)blockIdx.x * MAX_RANKS;
        store_signal<ORDERING>((u32*)sync.pads.address[peer] + row + sync.rank, epoch);
        wait_at_least<ORDERING>(sync, (const u32*)sync.pads.address[sync.rank] + row + peer, epoch, peer, site);
    }
    named_barrier(PULLERS_BARRIER, PULLERS * 32);
}

// Waits until the count is reached. Who counts does so even after giving up waiting for a peer, which it reports: this bound is for blocks that never ran.
__device__ __forceinline__ void wait_for_count(const Sync& sync, const u32* count, u32 want) {
    if (load_count(count) == want) return;
    u64 start = nanoseconds();
    while (load_count(count) != want) {
        if (nanoseconds() - start > 2 * sync.limit) {
            *(volatile u32*)sync.stuck = 1;
            return;
        }
    }
}
