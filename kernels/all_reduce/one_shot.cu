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
// Two ranks have code that knows that they are two and has the loads of two packs a thread under way at once: of 16 MiB it takes 55.1 us, and 56.2 without
// (docs/performance/experiments.md).
//
// The output must not overlap what other ranks are reading. In place, the plan of an all-reduce copies the input aside first. The output of
// a reduce-scatter is this rank's slot of its own input, and that of a reduce is the root's input: only this rank reads those, each thread its
// own elements, which it overwrites after it has read them from all ranks.
#include "../common/any.cuh"
#include "../common/signals.cuh"

// The entry `any` has code of all types, which is long enough once.
template <typename T>
constexpr bool HAS_CODE_FOR_TWO_RANKS = true;
template <>
constexpr bool HAS_CODE_FOR_TWO_RANKS<Any> = false;

// Reduces, of two ranks, the packs at byte `offset` and `apart` bytes further on.
template <typename T, typename Op>
__device__ __forceinline__ void reduce_two_packs(const Peers& input, u64 output, u64 offset, u64 apart, u32 average) {
    Pack flight[2][2];
#pragma unroll
    for (u32 i = 0; i < 2; i++)
#pragma unroll
        for (u32 rank = 0; rank < 2; rank++) flight[i][rank] = load_pack((const void*)(input.address[rank] + offset + i * apart));
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        Pack sum;
#pragma unroll
        for (u32 j = 0; j < LANES<T>; j++) {
            typename T::Acc acc = Op::apply(T::widen(lane<T>(flight[i][0], j)), T::widen(lane<T>(flight[i][1], j)));
            set_lane<T>(sum, j, T::narrow(average ? divide(acc, 2) : acc));
        }
        store_pack((void*)(output + offset + i * apart), sum);
    }
}

// Reduces, of two ranks, this thread's share of `packs` packs that begin at byte `at`.
template <typename T, typename Op>
__device__ __forceinline__ void reduce_packs_of_two_ranks(const Peers& input, u64 output, u64 at, u64 packs, u64 thread, u64 threads, u32 average) {
    u64 i = thread;
    for (; i + threads < packs; i += 2 * threads) reduce_two_packs<T, Op>(input, output, at + i * sizeof(Pack), threads * sizeof(Pack), average);
    if (i < packs) {
        u64 offset = at + i * sizeof(Pack);
        store_pack((void*)(output + offset), reduce_pack<T, Op>(input, offset, 2, average));
    }
}

template <typename T, typename Op>
__device__ __forceinline__ void one_shot(const Peers& input, u64 output, u64 count, u32 average, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);

    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    Split part = split<T>(input.address[sync.rank], output, count);
    u64 packs_at = part.head * sizeof(Stored);
    bool is_done = false;
    if constexpr (HAS_CODE_FOR_TWO_RANKS<T>)
        if (sync.world == 2) {
            reduce_packs_of_two_ranks<T, Op>(input, output, packs_at, part.packs, thread, threads, average);
            is_done = true;
        }
    for (u64 i = thread; !is_done && i < part.packs; i += threads) {
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
        all_reduce_one_shot_##NAME(u64 output, u64 count, u32 average, const __grid_constant__ Sync sync,                             \
                                   const __grid_constant__ Peers input) {                                                             \
        one_shot<T, OP>(input, output, units<T>(count, average), average, sync);                                                      \
    }
#include "../common/entries.cuh"
