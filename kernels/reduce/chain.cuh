// reduce/chain: the rank behind the root stores its input to the next rank, which adds its own and stores the sums to the one after it, and so on to the
// root. Tile by tile: all ranks are at work at once, but for the time that the first tile takes to come.
//
// Over each link: as many bytes as the message has, in one direction and from one rank to one. The root sends nothing. A sum is rounded to the element type by
// each rank that it passes, as in NCCL's ring; what `push` and `two_shot` add is rounded once. As much scratch memory as the input takes.
//
// A block's threads take two packs each for a tile, and meet when they have stored them; then its last warp, which takes none, tells the next rank.
//
//   tile  (release, acquire): the block's stores of a tile, bar.sync, the tile's epoch by the last warp -> poll of the next rank's warps, for this tile
//         or a later one.
//   end   (release, acquire): our reads of our slots are over, bar.sync, our epoch -> peer's poll. The rank before us may write to them in its next
//         launch: its blocks have met all of ours then. A release, because a poll for a tile may see this epoch in place of the tile's.
//
// No start barrier: nothing of a peer is touched but its slots, and those its last end barrier has given us. Inputs and the output are the rank's own.
//
// The first rank waits for nobody, and would fill the link's queue with stores. All that follows would stand behind them, arrivals too, once for each rank. The
// release holds it back: it waits for all stores of its SM, and the other warps wait at the next bar.sync for the one that releases. So a tile and what
// of the next was stored meanwhile are under way. With three packs of a thread they take longer to come to the next rank. A thread that had packs of its
// own beside the release would have all others wait for them.
//
// Slots begin where packs do, so packs are counted from a message's first element, wherever it lies.
//
// Ranks may multiply what is their own (premul_sum/chain).
//
// What was tried: docs/performance/experiments.md.
#pragma once
#include "../common/any.cuh"
#include "../common/elements.cuh"
#include "../common/fp8.cuh"
#include "../common/signals.cuh"

// Threads of a block.
enum : u32 { CHAIN_THREADS = WORKERS + WARP };

// Packs of a tile that a thread takes.
enum : u32 { PACKS = 2 };

// Two packs as the operator combines them, rounded.
struct TwoPacks {
    const Pack &a, &b;

    template <typename T, typename Combine>
    __device__ __forceinline__ Pack operator()(T, const Combine& combine) const {
        typename T::Acc acc[LANES<T>], x[LANES<T>];
        widen_lanes<T>(acc, a);
        widen_lanes<T>(x, b);
        combine(acc, x);
        return finish_lanes<T>(acc, 1, 0);
    }
};

// A pack of sums as averages of `world` ranks.
struct Quotients {
    const Pack& sum;
    u32 world;

    template <typename T, typename Combine>
    __device__ __forceinline__ Pack operator()(T, const Combine&) const {
        typename T::Acc x[LANES<T>];
        widen_lanes<T>(x, sum);
        return finish_lanes<T>(x, world, 1);
    }
};

// What f gives for the type and the operator of an entry.
template <typename T, typename Op>
struct Entry {
    template <typename F>
    static __device__ __forceinline__ Pack apply(u32, const F& f) { return f(T{}, Only<Op>{}); }
};
template <>
struct Entry<Any, Any> {
    template <typename F>
    static __device__ __forceinline__ Pack apply(u32 how, const F& f) { return with_reduction(how, f); }
};

// What ranks multiply their packs by: nothing.
struct One {
    __device__ __forceinline__ const Pack& operator()(const Pack& pack) const { return pack; }
};

// Of packs in registers, which have no index, one that is known at run time.
__device__ __forceinline__ Pack chosen(const Pack (&packs)[PACKS], u32 i) {
    Pack one = packs[0];
#pragma unroll
    for (u32 k = 1; k < PACKS; k++)
        if (i == k) one = packs[k];
    return one;
}

template <typename T, typename Op, typename Factor = One>
__device__ __forceinline__ void chain(u64 input, u64 output, u64 count, u32 average, u32 root, const Peers& slots, const Sync& sync,
                                      const Factor& factor = {}) {
    u32 before = rank_after(sync, sync.world - 1), next = rank_after(sync, 1);
    bool is_first = before == root, is_last = sync.rank == root;
    u64 here = slots.address[sync.rank], there = slots.address[next];
    u64 row = (u64)blockIdx.x * MAX_RANKS;

    // A tile's packs of a thread lie as far apart as the grid is wide, so that short messages are spread over all blocks.
    u64 packs = packs_of<T>(count);
    u64 width = (u64)gridDim.x * WORKERS, first = (u64)blockIdx.x * WORKERS;
    u32 tiles = first < packs ? (u32)((packs - first + PACKS * width - 1) / (PACKS * width)) : 0;

    stall<SITE_ENTER>(sync);
    u32 begin = sync.epochs[blockIdx.x];
    stall<SITE_START>(sync);

    bool tells = threadIdx.x >= WORKERS;
    for (u32 tile = 1; tells && !is_last && tile <= tiles; tile++) {
        __syncthreads();
        if (threadIdx.x == WORKERS) store_signal<RELEASE_ACQUIRE>((u32*)sync.pads.address[next] + row + sync.rank, begin + tile);
    }

    u32 come = begin;
    for (u32 tile = 1; !tells && tile <= tiles; tile++) {
        u32 epoch = begin + tile;
        u64 at = (tile - 1) * PACKS * width + first + threadIdx.x;
        Pack own[PACKS], came[PACKS];
#pragma unroll
        for (u32 i = 0; i < PACKS; i++)
            if (at + i * width < packs) own[i] = load_elements<T>(input, at + i * width, count);
        if (threadIdx.x % WARP == 0 && !is_first && (i32)(come - epoch) < 0)
            come = wait_at_least<RELEASE_ACQUIRE>(sync, (const u32*)sync.pads.address[sync.rank] + row + before, epoch, before, SITE_END);
        __syncwarp();
        if (!is_first) {
#pragma unroll
            for (u32 i = 0; i < PACKS; i++)
                if (at + i * width < packs) came[i] = load_pack((const void*)(here + (at + i * width) * sizeof(Pack)));
        }
        // Not unrolled: as fast, and a third of the code, which is most of `any`.
#pragma unroll 1
        for (u32 i = 0; i < PACKS; i++) {
            u64 pack = at + i * width;
            if (pack >= packs) break;
            Pack sum = factor(chosen(own, i));
            if (!is_first) sum = Entry<T, Op>::apply(average, TwoPacks{chosen(came, i), sum});
            if (is_last)
                store_elements<T>(output, pack, count, average & 1 ? Entry<T, Op>::apply(average, Quotients{sum, sync.world}) : sum);
            else
                store_pack((void*)(there + pack * sizeof(Pack)), sum);
        }
        if (!is_last) __syncthreads();
    }

    end_barrier<RELEASE_ACQUIRE>(sync, begin + tiles);
}
