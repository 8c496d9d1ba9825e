// reduce/chain: the rank behind the root stores its input to the next rank, which adds its own and stores the sums to the one after it, and so on to the
// root. Tile by tile: all ranks are at work at once, but for the time that the first tile takes to come.
//
// Over each link: as many bytes as the message has, in one direction and from one rank to one. The root sends nothing. A sum is rounded to the element type by
// each rank that it passes, as in NCCL's ring; what `push` and `two_shot` add is rounded once. As much scratch memory as the input takes.
//
// Warps are on their own: each takes its part of a tile when the tile has come and stores it to the next rank's slots. One more warp tells that rank how far
// all of them are.
//
//   done  (release, acquire, of the block): a warp's stores of a tile, its epoch in shared memory -> the telling warp's poll.
//   tile  (release, acquire): what the block's warps stored, the least of their epochs -> poll of the next rank's warps, for this tile or a later one.
//   end   (release, acquire): our reads of our slots are over, bar.sync, our epoch -> peer's poll. The rank before us may write to them in its next
//         launch: its blocks have met all of ours then. A release, because a poll for a tile may see this epoch in place of the tile's.
//
// No start barrier: nothing of a peer is touched but its slots, and those its last end barrier has given us. Inputs and the output are the rank's own.
//
// The first rank waits for nobody, and would fill the link's queue with stores. All that follows would stand behind them, arrivals too, once for each rank: so it
// begins a tile when it has told of all but AHEAD of those before.
//
// Slots begin where packs do, so packs are counted from a message's first element, wherever it lies.
//
// What was tried: docs/performance/experiments.md.
#define FEW_ENTRIES
#include "../common/any.cuh"
#include "../common/elements.cuh"
#include "../common/signals.cuh"

// How many warps of a block there may be that reduce.
enum : u32 { WARP = 32, MOST_WARPS = 16 };

// How many tiles the first rank may have under way.
enum : u32 { AHEAD = 3 };

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

// An epoch that threads of a block tell each other.
__device__ __forceinline__ void tell(u32* shared, u32 epoch) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" : : "r"((u32)__cvta_generic_to_shared(shared)), "r"(epoch) : "memory");
}
__device__ __forceinline__ u32 told(const u32* shared) {
    u32 epoch;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(epoch) : "r"((u32)__cvta_generic_to_shared(shared)) : "memory");
    return epoch;
}

template <typename T, typename Op>
__device__ __forceinline__ void chain(u64 input, u64 output, u64 count, u32 average, u32 root, const Peers& slots, const Sync& sync) {
    u32 before = rank_after(sync, sync.world - 1), next = rank_after(sync, 1);
    bool is_first = before == root, is_last = sync.rank == root;
    u64 row = (u64)blockIdx.x * MAX_WORLD;
    u32 lane = threadIdx.x % WARP;

    // A tile is of one pack a thread. The last warp has none.
    u64 packs = packs_of<T>(count);
    u32 threads = blockDim.x - WARP;
    u64 first = (u64)blockIdx.x * threads, stride = (u64)gridDim.x * threads;
    u32 tiles = first < packs ? (u32)((packs - first + stride - 1) / stride) : 0;

    stall(sync, SITE_ENTER);
    u32 begin = sync.epochs[blockIdx.x];
    __shared__ u32 done[MOST_WARPS], sent;
    if (threadIdx.x < MOST_WARPS) done[threadIdx.x] = begin;
    if (threadIdx.x == 0) sent = begin;
    __syncthreads();
    stall(sync, SITE_START);

    if (threadIdx.x < threads) {
        u32 come = begin;
        for (u32 tile = 1; tile <= tiles; tile++) {
            u32 epoch = begin + tile;
            u64 at = first + (tile - 1) * stride + threadIdx.x;
            Pack sum;
            if (at < packs) sum = load_elements<T>(input, at, count);
            if (lane == 0 && is_first && !is_last)
                while (epoch - told(&sent) > AHEAD) {}
            if (lane == 0 && !is_first && (i32)(come - epoch) < 0)
                come = wait_at_least<RELEASE_ACQUIRE>(sync, (const u32*)sync.pads.address[sync.rank] + row + before, epoch, before, SITE_END);
            __syncwarp();
            if (at < packs) {
                u64 slot = at * sizeof(Pack);
                if (!is_first) sum = combine_packs<T, Op>(load_pack((const void*)(slots.address[sync.rank] + slot)), sum, average);
                if (is_last)
                    store_elements<T>(output, at, count, average & 1 ? divide_pack<T>(sum, sync.world, average) : sum);
                else
                    store_pack((void*)(slots.address[next] + slot), sum);
            }
            __syncwarp();
            if (lane == 0) tell(done + threadIdx.x / WARP, epoch);
        }
    } else if (!is_last) {
        u32 of_all = 0;
        while (of_all != tiles) {
            u32 least = lane < threads / WARP ? told(done + lane) - begin : tiles;
            asm volatile("redux.sync.min.u32 %0, %0, 0xffffffff;" : "+r"(least));
            if (least == of_all) continue;
            of_all = least;
            // The minimum orders nothing between lanes.
            __syncwarp();
            if (lane == 0) {
                store_signal<RELEASE_ACQUIRE>((u32*)sync.pads.address[next] + row + sync.rank, begin + of_all);
                tell(&sent, begin + of_all);
            }
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
