// all_reduce/push: every rank owns one slice; all push their parts of it into its slots, it reduces them in ascending rank order and pushes the
// result to all ranks. Tile by tile: one half of each block sends parts while the other reduces what has come.
//
// Over the link: (world - 1) / world x bytes in and as many out of each rank, twice, all of them stores. Loads from a peer ask for their data on the
// way that the data of its own loads takes, so that two_shot moves less in the same time. An arrival for each tile, one barrier, as much scratch memory as
// the input takes.
//
//   tile  (release, acquire): our part of the peer's tile, bar.sync, our epoch -> peer's poll. It may reduce the tile and write the result to our
//         output: we have come to this call, and in place what it overwrites has been sent.
//   end   (release, acquire): our pushes and our reads of our slots, bar.sync, our epoch -> peer's poll. Our slice of its output is there, and it may
//         write to our slots in its next launch: its blocks have met all of ours then. Blocks of one index cover the same part of every slice,
//         so a block of the peer that passes has all that these blocks wrote; the end of its kernel gathers its blocks.
//   start (relaxed), of blocks without a tile: peer's epoch -> our poll. What we read of its input has been written, and we may write to its output.
//
// No start barrier where there are tiles: before a peer has arrived nothing of it is touched but its slots, and those its last end barrier has given
// us. The emulator showed that: it had no objection to mutants without the barrier.
//
// Elements beside whole packs are few, unless input and output lie at different distances from packs: the owner pulls them, when its tiles are
// done. In place that is sound as in two_shot: only the owner reads them and only the owner writes them, after it has read them from all ranks.
//
// Reduce-scatter is the same, with slices that are slots of the input and one receiver: the owner, whose output begins `origin` bytes into what
// an all-reduce would give.
//
// Reduce is the same, with the ranks beside the root as owners and the root as receiver; the root of two ranks is the owner itself. From three ranks
// on senders are paced, and tiles short: who has sent a tile waits until its slowest peer is no more than AHEAD tiles behind.
//
// Senders may multiply (premul_sum/push). Then the own part of the own slice goes the way of the others, into a slot with an arrival, which orders the
// two halves of a block as well. There are no elements beside whole packs: to pull them, an owner would need its peers' factors. So a block without a
// tile has nothing to do, and no start barrier: the emulator had no objection to mutants without it.
//
// What was tried: docs/performance/experiments.md.
#pragma once
#include "../common/any.cuh"
#include "../common/signals.cuh"
#include "../common/slices.cuh"

// How many tiles a block takes before its threads take more than one pack of each.
enum : u32 { TURNS = 4 };

// Both where not all ranks are owners, and how many tiles a sender may be ahead of its slowest peer there.
enum : u32 { PACED_FOLD = 2, PACED_TURNS = 32, AHEAD = 2 };

// The halves of a block, and with which of its barriers each meets.
enum Half : u32 { SENDERS = 1, REDUCERS = 2 };

__device__ __forceinline__ void meet_half(Half half) {
    asm volatile("bar.sync %0, %1;" : : "r"((u32)half), "r"(blockDim.x / 2) : "memory");
}

// Packs that a reducer has under way at once. The loads of a single one are too few where there are few ranks; Any's code is large.
template <typename T>
struct AtOnce {
    enum : u32 { PACKS = 4 };
};
template <>
struct AtOnce<Any> {
    enum : u32 { PACKS = 1 };
};

// Reduces the packs at bytes `offset`, `offset + pitch` and so on of every rank, those that begin within `left` bytes, as reduce_pack does: loads of
// two ranks at a time.
template <typename T, typename Op, u32 N>
__device__ __forceinline__ void reduce_packs(Pack (&sums)[N], const Peers& from, u64 offset, u32 pitch, u32 left, u32 world, u32 average) {
    if constexpr (N == 1) {
        sums[0] = reduce_pack<T, Op>(from, offset, world, average);
    } else {
        enum : u32 { RANKS = 2 };
        typename T::Acc acc[N][LANES<T>];
#pragma unroll 1
        for (u32 base = 0; base < world; base += RANKS) {
            Pack flight[N][RANKS];
#pragma unroll
            for (u32 k = 0; k < N; k++)
#pragma unroll
                for (u32 i = 0; i < RANKS; i++)
                    if (k * pitch < left && base + i < world) flight[k][i] = load_pack((const void*)(from.address[base + i] + offset + k * pitch));
#pragma unroll
            for (u32 i = 0; i < RANKS; i++) {
                if (base + i >= world) continue;
#pragma unroll
                for (u32 k = 0; k < N; k++)
#pragma unroll
                    for (u32 j = 0; j < LANES<T>; j++) {
                        typename T::Acc x = T::widen(lane<T>(flight[k][i], j));
                        acc[k][j] = base + i == 0 ? x : Op::apply(acc[k][j], x);
                    }
            }
        }
#pragma unroll
        for (u32 k = 0; k < N; k++)
#pragma unroll
            for (u32 j = 0; j < LANES<T>; j++) set_lane<T>(sums[k], j, T::narrow(average ? divide(acc[k][j], world) : acc[k][j]));
    }
}

// What senders do to packs: nothing. FOLD is the most packs of a tile that a thread takes.
struct Identity {
    enum : bool { MULTIPLIES = false };
    enum : u32 { FOLD = 8 };
    __device__ __forceinline__ const Pack& operator()(const Pack& pack) const { return pack; }
};

// This rank's of what all ranks have, or where only its own is known.
__device__ __forceinline__ u64 of_rank(const Peers& all, u32 rank) { return all.address[rank]; }
__device__ __forceinline__ u64 of_rank(u64 own, u32) { return own; }

template <typename T, typename Op, typename Input, typename Sent = Identity>
__device__ __forceinline__ void push(const Input& input, const Peers& output, u64 count, u32 average, u64 origin, const Peers& slots,
                                     Ranks owners, Ranks receivers, const Sync& sync, const Sent& sent = {}) {
    using Stored = typename T::Stored;
    enum : u32 { FOLD = Sent::FOLD };
    Split part = split<T>(of_rank(input, sync.rank), output.address[sync.rank], count);
    u64 packs_at = part.head * sizeof(Stored);
    u64 each = slice_begin(part.packs, 1, owners.count);
    // The first owner has the first slice. A rank that owns none has an empty one behind the last.
    auto begin_of = [&](u32 rank) { return min(part.packs, each * place(owners, rank, sync.world)); };
    auto length_of = [&](u32 rank) { return min(part.packs - begin_of(rank), each); };
    // Where each rank's part of our slice lies.
    __shared__ Peers parts;
    if (threadIdx.x < sync.world) {
        u64 mine = of_rank(input, sync.rank) + packs_at + begin_of(sync.rank) * sizeof(Pack);
        parts.address[threadIdx.x] = threadIdx.x == sync.rank && !Sent::MULTIPLIES ? mine : slots.address[sync.rank] + each * threadIdx.x * sizeof(Pack);
    }

    u32 half = blockDim.x / 2;
    u32 fold = 1;
    bool paced = owners.count > 1 && owners.count < sync.world;
    while (fold < (paced ? PACED_FOLD : FOLD) && (u64)fold * (paced ? PACED_TURNS : TURNS) * gridDim.x * half < each) fold *= 2;
    u32 tile = fold * half;
    u64 first = (u64)blockIdx.x * tile;
    u64 stride = (u64)gridDim.x * tile;

    stall<SITE_ENTER>(sync);
    u32 epoch = sync.epochs[blockIdx.x];
    if constexpr (!Sent::MULTIPLIES) {
        if (first >= each) barrier<RELAXED>(sync, ++epoch, SITE_START);
        __syncthreads();
    }
    stall<SITE_START>(sync);

    u32 thread = threadIdx.x < half ? threadIdx.x : threadIdx.x - half;
    bool has_peer = thread < sync.world && (thread != sync.rank || Sent::MULTIPLIES);
    u64 row = (u64)blockIdx.x * MAX_RANKS;
    if (threadIdx.x < half) {
        for (u64 begin = first; begin < each; begin += stride) {
#pragma unroll 1
            for (u32 step = 1; step < sync.world + Sent::MULTIPLIES; step++) {
                u32 owner = rank_after(sync, step);
                u64 from = of_rank(input, sync.rank) + packs_at + begin_of(owner) * sizeof(Pack);
                u64 slot = slots.address[owner] + each * sync.rank * sizeof(Pack);
                u64 length = length_of(owner);
                Pack flight[FOLD];
#pragma unroll
                for (u32 i = 0; i < FOLD; i++) {
                    u64 at = begin + i * half + thread;
                    if (i < fold && at < length) flight[i] = load_pack((const void*)(from + at * sizeof(Pack)));
                }
#pragma unroll
                for (u32 i = 0; i < FOLD; i++) {
                    u64 at = begin + i * half + thread;
                    if (i < fold && at < length) store_pack((void*)(slot + at * sizeof(Pack)), sent(flight[i]));
                }
            }
            meet_half(SENDERS);
            epoch++;
            if (has_peer) {
                store_signal<RELEASE_ACQUIRE>((u32*)sync.pads.address[thread] + row + sync.rank, epoch);
                if (paced) wait_at_least<RELAXED>(sync, (const u32*)sync.pads.address[sync.rank] + row + thread, epoch - AHEAD, thread, SITE_END);
            }
        }
    } else {
        enum : u32 { PACKS = AtOnce<T>::PACKS };
        u64 to = packs_at + begin_of(sync.rank) * sizeof(Pack) - origin;
        for (u64 begin = first; begin < each; begin += stride) {
            epoch++;
            if (has_peer)
                wait_at_least<RELEASE_ACQUIRE>(sync, (const u32*)sync.pads.address[sync.rank] + row + thread, epoch, thread, SITE_END);
            meet_half(REDUCERS);
            u64 end = min(begin + tile, length_of(sync.rank));
#pragma unroll 1
            for (u64 at = begin + thread; at < end; at += PACKS * half) {
                Pack sums[PACKS];
                u64 offset = at * sizeof(Pack);
                u32 pitch = half * sizeof(Pack), left = (u32)(end - at) * sizeof(Pack);
                reduce_packs<T, Op>(sums, parts, offset, pitch, left, sync.world, average);
#pragma unroll 1
                for (u32 step = 0; step < receivers.count; step++) {
                    u64 there = output.address[nth(receivers, step, sync.world)] + to + offset;
#pragma unroll
                    for (u32 k = 0; k < PACKS; k++)
                        if (k * pitch < left) store_pack((void*)(there + k * pitch), sums[k]);
                }
            }
        }
    }

    if constexpr (!Sent::MULTIPLIES) {
        __syncthreads();
        u64 edge = part.head + part.tail;
        u64 edge_end = slice_begin(edge, sync.rank + 1, sync.world);
        u64 threads = (u64)gridDim.x * blockDim.x;
#pragma unroll 1
        for (u64 i = slice_begin(edge, sync.rank, sync.world) + (u64)blockIdx.x * blockDim.x + threadIdx.x; i < edge_end; i += threads) {
            u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
            auto sum = reduce_element<T, Op>(input, offset, sync.world, average);
#pragma unroll 1
            for (u32 step = 0; step < receivers.count; step++)
                store_element(output.address[nth(receivers, step, sync.world)] - origin + offset, sum);
        }
    }

    end_barrier<RELEASE_ACQUIRE>(sync, epoch);
}
