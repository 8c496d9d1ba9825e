// all_reduce/one_shot: every rank pulls `count` elements from every rank and reduces them in ascending rank order. What they are, the plan says,
// each rank's for itself:
//
//   all_reduce/one_shot   the whole input
//   reduce_scatter/pull   this rank's slot of the input
//   reduce/pull           the whole input on the root, and nothing on the others, which wait for each other too: a barrier that is the same
//                         on every rank counts the same epochs whatever root the calls have
//
// Over the link: (world - 1) x count elements into each rank that has some, in one trip between two barriers. All-reduces are better done
// otherwise where bandwidth, not latency, decides.
//
//   start (relaxed): peer's epoch -> our poll. Its input, written before its launch, may be read.
//   end   (relaxed): our reads, bar.sync, our epoch -> peer's poll. Our reads of its input are over, so that whatever follows on its
//         stream may overwrite it. All blocks of the peer wait, and all of our blocks together read all that we read of its input. Nothing
//         that we wrote is for others to read.
//
// The output must not overlap what other ranks are reading. In place, the plan of an all-reduce copies the input aside first. The output of
// a reduce-scatter is this rank's slot of its own input, and that of a reduce is the root's input: only this rank reads those, each thread its
// own elements, which it overwrites after it has read them from all ranks.
#include "../common/reduce.cuh"
#include "../common/signals.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void one_shot(const Peers& input, u64 output, u64 count, u32 average, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);

    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    Split part = split<T>(input.address[sync.rank], output, count);
    u64 packs_at = part.head * sizeof(Stored);
    for (u64 i = thread; i < part.packs; i += threads) {
        u64 offset = packs_at + i * sizeof(Pack);
        store_pack((void*)(output + offset), reduce_pack<T, Op>(input, offset, sync.world, average));
    }
    for (u64 i = thread; i < part.head + part.tail; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        store_element(output + offset, reduce_element<T, Op>(input, offset, sync.world, average));
    }

    end_barrier<RELAXED>(sync, epoch);
}

// Sum with `average` != 0 divides by the world size before the rounding.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_reduce_one_shot_##NAME(const __grid_constant__ Peers input, u64 output, u64 count, u32 average,                           \
                                   const __grid_constant__ Sync sync) {                                                               \
        one_shot<T, OP>(input, output, units<T>(count, average), average, sync);                                                      \
    }
#include "../common/entries.cuh"
