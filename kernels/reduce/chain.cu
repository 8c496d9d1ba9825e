// reduce/chain: the rank behind the root stores its input to the next rank, which adds its own and stores the sums to the one after it, and so on to the
// root. Tile by tile: all ranks are at work at once, but for the time that the first tile takes to come.
//
// Over each link: as many bytes as the message has, in one direction and from one rank to one. The root sends nothing. A sum is rounded to the element type by
// each rank that it passes, as in NCCL's ring; what `push` and `two_shot` add is rounded once. As much scratch memory as the input takes.
//
// Warps are on their own: each takes its part of a tile when the tile has come and stores it to the next rank's slots. One more warp tells that rank when all
// of them have.
//
//   full  (release, acquire, of the block): each warp's stores of a tile, its arrival at a barrier in shared memory -> the telling warp's wait.
//   empty (the same): the tile has been told -> the warps' waits, before they store another in its place in the ring.
//   tile  (release, acquire): what the block's warps stored, the last tile's epoch -> poll of the next rank's warps, for this tile or a later one.
//   end   (release, acquire): our reads of our slots are over, bar.sync, our epoch -> peer's poll. The rank before us may write to them in its next
//         launch: its blocks have met all of ours then. A release, because a poll for a tile may see this epoch in place of the tile's.
//
// No start barrier: nothing of a peer is touched but its slots, and those its last end barrier has given us. Inputs and the output are the rank's own.
//
// The first rank waits for nobody, and would fill the link's queue with stores. All that follows would stand behind them, arrivals too, once for each rank: so
// its ring is short. What waits in shared memory must not spin there: that alone made the stores to the next rank 5 % slower.
//
// Slots begin where packs do, so packs are counted from a message's first element, wherever it lies.
//
// What was tried: docs/performance/experiments.md.
// target: compute_90
#define FEW_ENTRIES
#include "../common/any.cuh"
#include "../common/elements.cuh"
#include "../common/mbarrier.cuh"
#include "../common/signals.cuh"

enum : u32 { WARP = 32 };

// Packs of a tile that a thread takes. Any's code is large.
template <typename T>
constexpr u32 PACKS = 2;
template <>
constexpr u32 PACKS<Any> = 1;

// Packs that a thread may have under way, and one of the first rank.
enum : u32 { UNDER_WAY = 8, FIRST_UNDER_WAY = 6 };

// Two packs as the operator combines them, rounded.
template <typename T, typename Op>
__device__ __forceinline__ Pack combine_packs(const Pack& a, const Pack& b, u32) {
    Pack sum;
#pragma unroll
    for (u32 j = 0; j < LANES<T>; j++) set_lane<T>(sum, j, T::narrow(Op::apply(T::widen(lane<T>(a, j)), T::widen(lane<T>(b, j)))));
    return sum;
}

// A pack of sums as averages of so many.
template <typename T>
__device__ __forceinline__ Pack divide_pack(const Pack& sum, u32 world, u32) {
    Pack average;
#pragma unroll
    for (u32 j = 0; j < LANES<T>; j++) set_lane<T>(average, j, T::narrow(divide(T::widen(lane<T>(sum, j)), world)));
    return average;
}

struct TwoPacks {
    const Pack &a, &b;
    u32 how;

    template <typename T, typename Combine>
    __device__ __forceinline__ Pack operator()(T, const Combine& combine) const {
        typename T::Acc acc[LANES<T>], x[LANES<T>];
        widen_lanes<T>(acc, a);
        widen_lanes<T>(x, b);
        combine(acc, x);
        return finish_lanes<T>(acc, 1, how & ~1u);
    }
};

template <>
__device__ __forceinline__ Pack combine_packs<Any, Any>(const Pack& a, const Pack& b, u32 how) {
    return with_reduction(how, TwoPacks{a, b, how});
}

struct Quotients {
    const Pack& sum;
    u32 world;

    template <typename T, typename Combine>
    __device__ __forceinline__ Pack operator()(T, const Combine&) const {
        return divide_pack<T>(sum, world, 0);
    }
};

template <>
__device__ __forceinline__ Pack divide_pack<Any>(const Pack& sum, u32 world, u32 how) {
    return with_reduction(how, Quotients{sum, world});
}

// Which tile of the ring comes next, and the parity of its barriers' phase.
struct Turn {
    u32 tile = 0, parity = 0;

    __device__ __forceinline__ void advance(u32 ring) {
        if (++tile == ring) tile = 0, parity ^= 1;
    }
};

template <typename T, typename Op>
__device__ __forceinline__ void chain(u64 input, u64 output, u64 count, u32 average, u32 root, const Peers& slots, const Sync& sync) {
    u32 before = rank_after(sync, sync.world - 1), next = rank_after(sync, 1);
    bool is_first = before == root, is_last = sync.rank == root;
    u32 ring = (is_first ? FIRST_UNDER_WAY : UNDER_WAY) / PACKS<T>;
    u64 here = slots.address[sync.rank], there = slots.address[next];
    u64 row = (u64)blockIdx.x * MAX_WORLD;
    u32 lane = threadIdx.x % WARP;

    // The last warp has no part of a tile.
    u64 packs = packs_of<T>(count);
    u32 threads = blockDim.x - WARP, tile_packs = PACKS<T> * threads;
    u64 first = (u64)blockIdx.x * tile_packs, stride = (u64)gridDim.x * tile_packs;
    u32 tiles = first < packs ? (u32)((packs - first + stride - 1) / stride) : 0;

    stall(sync, SITE_ENTER);
    u32 begin = sync.epochs[blockIdx.x];
    __shared__ u64 barriers[2 * UNDER_WAY];
    u32 full = shared_address(barriers), empty = full + UNDER_WAY * sizeof(u64);
    if (threadIdx.x < 2 * UNDER_WAY) init_barrier(full + threadIdx.x * sizeof(u64), threadIdx.x < UNDER_WAY ? threads / WARP : 1);
    __syncthreads();
    stall(sync, SITE_START);

    Turn turn;
    if (threadIdx.x < threads) {
        u32 come = begin;
        for (u32 tile = 1; tile <= tiles; tile++) {
            u32 epoch = begin + tile;
            u64 at = first + (tile - 1) * stride + threadIdx.x;
            Pack own[PACKS<T>], came[PACKS<T>];
#pragma unroll
            for (u32 i = 0; i < PACKS<T>; i++)
                if (at + i * threads < packs) own[i] = load_elements<T>(input, at + i * threads, count);
            if (lane == 0 && !is_first && (i32)(come - epoch) < 0)
                come = wait_at_least<RELEASE_ACQUIRE>(sync, (const u32*)sync.pads.address[sync.rank] + row + before, epoch, before, SITE_END);
            if (lane == 0 && !is_last) wait_phase(empty + turn.tile * sizeof(u64), turn.parity ^ 1);
            __syncwarp();
            if (!is_first) {
#pragma unroll
                for (u32 i = 0; i < PACKS<T>; i++)
                    if (at + i * threads < packs) came[i] = load_pack((const void*)(here + (at + i * threads) * sizeof(Pack)));
            }
#pragma unroll
            for (u32 i = 0; i < PACKS<T>; i++) {
                u64 pack = at + i * threads;
                if (pack >= packs) break;
                Pack sum = is_first ? own[i] : combine_packs<T, Op>(came[i], own[i], average);
                if (is_last)
                    store_elements<T>(output, pack, count, average & 1 ? divide_pack<T>(sum, sync.world, average) : sum);
                else
                    store_pack((void*)(there + pack * sizeof(Pack)), sum);
            }
            __syncwarp();
            if (lane == 0 && !is_last) arrive(full + turn.tile * sizeof(u64));
            turn.advance(ring);
        }
    } else if (lane == 0 && !is_last) {
        u32 told = 0;
        for (u32 tile = 1; tile <= tiles; tile++) {
            wait_phase(full + turn.tile * sizeof(u64), turn.parity);
            turn.advance(ring);
            // One release is for all that are full.
            if (has_ended(full + turn.tile * sizeof(u64), turn.parity)) continue;
            store_signal<RELEASE_ACQUIRE>((u32*)sync.pads.address[next] + row + sync.rank, begin + tile);
            for (; told < tile; told++) arrive(empty + told % ring * sizeof(u64));
        }
    }

    end_barrier<RELEASE_ACQUIRE>(sync, begin + tiles);
}

// Sum with `average` != 0 divides by the world size before the last rounding.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(544, 1)                                                                              \
        reduce_chain_##NAME(u64 input, u64 output, u64 count, u32 average, u32 root, const __grid_constant__ Peers slots,             \
                            const __grid_constant__ Sync sync) {                                                                      \
        chain<T, OP>(input, output, units<T>(count, average), average, root, slots, sync);                                            \
    }
#include "../common/entries.cuh"
