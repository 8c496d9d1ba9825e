// all_reduce/two_shot: every rank owns one slice; it pulls that slice from all ranks, reduces it in ascending rank order and pushes
// the result to all ranks.
//
// Over the link: (world - 1) / world x bytes in and as many out of each rank. Two barriers, no scratch memory.
//
// reduce/two_shot is the same with the root as the only receiver and the others as owners: as many bytes into each rank and out of it as the message
// has. A slice that the root owned would come to it from all others, and not once, as their sum. Of two ranks the root is the only owner.
//
//   start (relaxed): peer's epoch -> our poll. Its input, written before its launch, may be read; its output may be overwritten.
//   end   (release, acquire): our pushes, bar.sync, our epoch -> peer's poll. Our slice of its output is there, and our reads of its input
//         are over. Blocks of one index cover the same part of every slice, so a block of the peer that passes has all that these blocks
//         wrote; the end of its kernel gathers its blocks.
//
// In place is sound without a copy: only the slice's owner reads it (on any rank) and only the owner writes it, each thread its own
// elements, after it has read them from all ranks.
//
// What was tried: docs/performance/experiments-lamport.md.
#include "../common/reduce.cuh"
#include "../common/signals.cuh"
#include "../common/slices.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void two_shot(const Peers& input, const Peers& output, u64 count, u32 average, Ranks owners, Ranks receivers,
                                         const Sync& sync) {
    using Stored = typename T::Stored;
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    Split part = split<T>(input.address[sync.rank], output.address[sync.rank], count);
    u64 packs_at = part.head * sizeof(Stored);
    u64 edge = part.head + part.tail;
    u32 own = place(owners, sync.rank, sync.world);
    // Either all of them or one: they do not go round.
    u32 receivers_end = receivers.first + receivers.count;
    u64 packs_begin = slice_begin(part.packs, own, owners.count), packs_end = slice_begin(part.packs, own + 1, owners.count);
    u64 edge_begin = slice_begin(edge, own, owners.count), edge_end = slice_begin(edge, own + 1, owners.count);
    u32 epoch = start_barrier(sync);

    for (u64 i = packs_begin + thread; i < packs_end; i += threads) {
        u64 offset = packs_at + i * sizeof(Pack);
        Pack sum = reduce_pack<T, Op>(input, offset, sync.world, average);
        for (u32 peer = receivers.first; peer < receivers_end; peer++) store_pack((void*)(output.address[peer] + offset), sum);
    }
    for (u64 i = edge_begin + thread; i < edge_end; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        auto sum = reduce_element<T, Op>(input, offset, sync.world, average);
        for (u32 peer = receivers.first; peer < receivers_end; peer++) store_element(output.address[peer] + offset, sum);
    }

    end_barrier<RELEASE_ACQUIRE>(sync, epoch);
}

// Sum with `average` != 0 divides by the world size before the rounding.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_reduce_two_shot_##NAME(u64 count, u32 average, Ranks owners, Ranks receivers, const __grid_constant__ Sync sync,          \
                                   const __grid_constant__ Peers input, const __grid_constant__ Peers output) {                       \
        two_shot<T, OP>(input, output, units<T>(count, average), average, owners, receivers, sync);                                   \
    }
#include "../common/entries.cuh"
