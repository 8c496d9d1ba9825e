// Barriers between the blocks of one index on all ranks of a group.
//
// Every rank owns a signal pad, one word for each (block, peer): `pad[block][peer]` counts the barriers that `peer`'s block has
// arrived at. A block's own count, its epoch, lives in device memory and is advanced by the kernel, so that a captured launch
// replays. Counts only grow and are compared by their signed difference, so a peer may be any number of barriers ahead, and wrap-around
// after 2^32 barriers is harmless.
//
//   arrive: thread t of the block stores the epoch to peer t's pad, after the block's bar.sync where anything is to be ordered before
//   wait:   thread t polls its own pad for peer t, then bar.sync passes it on to the block
//
// A barrier that publishes what this kernel wrote is RELEASE_ACQUIRE (st.release.sys, ld.acquire.sys). One that publishes only what
// earlier work of the rank's stream wrote, or only says that reads are over, may be RELAXED (st.relaxed.sys, ld.relaxed.sys): a
// kernel boundary has made the former visible to the system, and loads have returned before bar.sync lets their thread's block signal.
// By the letter of PTX that is a data race; it is what Hopper does, and saves 0.65 us a barrier (measured with 2 and 4 H200).
//
// No wait is without a bound. One that gives up writes what it waited for into the group's stuck report and lets the kernel run to
// its end: the results are void, the device is not lost. Once a rank has given up, its later waits do so after a millisecond.
#pragma once
#include "types.cuh"

// The rank that comes `step` ranks after this one, going round; this one again after as many steps as there are ranks.
__device__ __forceinline__ u32 rank_after(const Sync& sync, u32 step) {
    u32 rank = sync.rank + step;
    return rank < sync.world ? rank : rank - sync.world;
}

__device__ __forceinline__ u64 nanoseconds() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

// What a barrier orders.
enum Ordering { RELAXED, RELEASE_ACQUIRE };

template <Ordering ORDERING>
__device__ __forceinline__ void store_signal(u32* to, u32 value) {
    if constexpr (ORDERING == RELEASE_ACQUIRE)
        asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
    else
        asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

template <Ordering ORDERING>
__device__ __forceinline__ u32 load_signal(const u32* from) {
    u32 value;
    if constexpr (ORDERING == RELEASE_ACQUIRE)
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    else
        asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// Where a test may hold this rank up. It compiles to a comment and costs nothing: what reads the nanoseconds to lose and spins takes the comment's place when a
// test loads the PTX (with_stalls of crates/plan/src/modules.rs).
template <Site SITE>
__device__ __forceinline__ void stall(const Sync& sync) {
    asm volatile("// passmuster: stall %0 %1" : : "n"((u32)SITE), "l"(sync.stalls));
}

// Where a block tells of a wait for `peer` that it gave up.
__device__ __forceinline__ StuckEntry* stuck_entry(const Sync& sync, u32 peer) {
    return (StuckEntry*)((u8*)sync.stuck + STUCK_ENTRIES) + (u64)blockIdx.x * MAX_RANKS + peer;
}

__device__ __forceinline__ void report_stuck(const Sync& sync, u32 want, u32 saw, u32 peer, Site site) {
    StuckEntry* entry = stuck_entry(sync, peer);
    *(volatile u32*)sync.stuck = 1;
    // The first wait that gave up is the one to tell of: those after it are its consequences.
    if (*(volatile u32*)&entry->site) return;
    *(volatile u32*)&entry->want = want;
    *(volatile u32*)&entry->saw = saw;
    *(volatile u32*)&entry->ranks = sync.rank | sync.world << 16;
    *(volatile u32*)&entry->site = site;
}

// Returns what it saw last, at least `want` unless it gave up.
template <Ordering ORDERING>
__device__ __forceinline__ u32 wait_at_least(const Sync& sync, const u32* flag, u32 want, u32 peer, Site site) {
    u32 saw = load_signal<ORDERING>(flag);
    if ((i32)(saw - want) >= 0) return saw;
    u64 start = nanoseconds();
    while (true) {
        saw = load_signal<ORDERING>(flag);
        if ((i32)(saw - want) >= 0) return saw;
        u64 waited = nanoseconds() - start;
        if (waited > sync.limit || (waited > 1000000 && *(volatile u32*)sync.stuck)) break;
    }
    report_stuck(sync, want, saw, peer, site);
    return saw;
}

// Arrives at barrier number `epoch` of this block and waits for the same block of every peer.
template <Ordering ORDERING>
__device__ __forceinline__ void barrier(const Sync& sync, u32 epoch, Site site) {
    if (threadIdx.x < sync.world) {
        u32 peer = threadIdx.x;
        u64 row = (u64)blockIdx.x * MAX_RANKS;
        store_signal<ORDERING>((u32*)sync.pads.address[peer] + row + sync.rank, epoch);
        wait_at_least<ORDERING>(sync, (const u32*)sync.pads.address[sync.rank] + row + peer, epoch, peer, site);
    }
}

// Every kernel is bracketed by these two. `start`: all ranks have launched, so all that their streams did before is done: it may be
// read, and their buffers may be overwritten. Returns the epoch for `end_barrier`.
__device__ __forceinline__ u32 start_barrier(const Sync& sync) {
    stall<SITE_ENTER>(sync);
    u32 epoch = sync.epochs[blockIdx.x] + 1;
    barrier<RELAXED>(sync, epoch, SITE_START);
    __syncthreads();
    stall<SITE_START>(sync);
    return epoch;
}

// `end`: the same block of every rank has done what it does, so its results are here (RELEASE_ACQUIRE) and its reads are over.
template <Ordering ORDERING>
__device__ __forceinline__ void end_barrier(const Sync& sync, u32 epoch) {
    stall<SITE_END>(sync);
    __syncthreads();
    barrier<ORDERING>(sync, epoch + 1, SITE_END);
    if (threadIdx.x == 0) sync.epochs[blockIdx.x] = epoch + 1;
    stall<SITE_LEAVE>(sync);
}
