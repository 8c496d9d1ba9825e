// Barriers between the blocks of one index on all ranks of a group.
//
// Every rank owns a signal pad, one word for each (block, peer): `pad[block][peer]` counts the barriers that `peer`'s block has
// arrived at. A block's own count, its epoch, lives in device memory and is advanced by the kernel, so that a captured launch
// replays. Counts only grow and are compared by their signed difference, so a peer may be any number of barriers ahead, and wrap-around
// after 2^32 barriers is harmless.
//
//   release: thread t of the block stores the epoch to peer t's pad (st.release.sys), after the block's bar.sync
//   acquire: thread t polls its own pad for peer t (ld.acquire.sys), then bar.sync passes it on to the block
//
// No wait is without a bound. One that gives up writes what it waited for into the group's stuck report and lets the kernel run to
// its end: the results are void, the device is not lost. Once a rank has given up, its later waits do so after a millisecond.
#pragma once
#include "types.cuh"

// Mirrors src/machine/stuck.rs: word 0 of the report says that a wait was given up; from byte 64, one entry for each (block, peer).
struct StuckEntry {
    u32 site;  // 0: this wait was never given up
    u32 want;
    u32 saw;
    u32 ranks;  // this rank in the low half, the group's size in the high half
};
enum : u32 { STUCK_ENTRIES = 64 };  // byte offset of the entries

// Where a kernel synchronises. Mirrors machine::Site.
enum Site : u32 { SITE_ENTER = 1, SITE_START = 2, SITE_END = 3, SITE_LEAVE = 4 };

struct Sync {
    Peers pads;      // signal pad of every rank
    u32* epochs;     // one word a block
    u32* stuck;      // stuck report of this rank
    u32* stalls;     // nanoseconds to lose at each site (checked build)
    u64 limit;       // nanoseconds after which a wait gives up
    u32 rank;
    u32 world;
};

__device__ __forceinline__ u64 nanoseconds() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

__device__ __forceinline__ void store_release(u32* to, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ u32 load_acquire(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// Loses the time that a test asked for at this site on this rank. Compiled out of release builds.
__device__ __forceinline__ void stall(const Sync& sync, Site site) {
#ifdef PASSMUSTER_CHECKED
    u32 wanted = ((volatile u32*)sync.stalls)[site];
    if (wanted) {
        u64 start = nanoseconds();
        while (nanoseconds() - start < wanted) {}
    }
#endif
}

__device__ __forceinline__ void wait_at_least(const Sync& sync, const u32* flag, u32 want, u32 peer, Site site) {
    u32 saw = load_acquire(flag);
    if ((i32)(saw - want) >= 0) return;
    u64 start = nanoseconds();
    while (true) {
        saw = load_acquire(flag);
        if ((i32)(saw - want) >= 0) return;
        u64 waited = nanoseconds() - start;
        if (waited > sync.limit || (waited > 1000000 && *(volatile u32*)sync.stuck)) break;
    }
    StuckEntry* entry = (StuckEntry*)((u8*)sync.stuck + STUCK_ENTRIES) + (u64)blockIdx.x * MAX_WORLD + peer;
    *(volatile u32*)&entry->want = want;
    *(volatile u32*)&entry->saw = saw;
    *(volatile u32*)&entry->ranks = sync.rank | sync.world << 16;
    *(volatile u32*)&entry->site = site;
    *(volatile u32*)sync.stuck = 1;
}

// Arrives at barrier number `epoch` of this block and waits for the same block of every peer.
__device__ __forceinline__ void meet(const Sync& sync, u32 epoch, Site site) {
    if (threadIdx.x < sync.world) {
        u32 peer = threadIdx.x;
        u64 row = (u64)blockIdx.x * MAX_WORLD;
        store_release((u32*)sync.pads.address[peer] + row + sync.rank, epoch);
        wait_at_least(sync, (const u32*)sync.pads.address[sync.rank] + row + peer, epoch, peer, site);
    }
}

// Every kernel is bracketed by these two. `start`: all ranks have launched, so all that their streams did before is done and may be
// read and overwritten. `end`: all ranks have done what they do, so their results are here and nobody reads this rank's buffers.
__device__ __forceinline__ u32 start_barrier(const Sync& sync) {
    stall(sync, SITE_ENTER);
    u32 epoch = sync.epochs[blockIdx.x] + 1;
    meet(sync, epoch, SITE_START);
    __syncthreads();
    return epoch;
}

__device__ __forceinline__ void end_barrier(const Sync& sync, u32 epoch) {
    stall(sync, SITE_END);
    __syncthreads();
    meet(sync, epoch + 1, SITE_END);
    if (threadIdx.x == 0) sync.epochs[blockIdx.x] = epoch + 1;
    stall(sync, SITE_LEAVE);
}
