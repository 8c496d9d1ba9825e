// reduce/pull: the root pulls every rank's input and reduces it in ascending rank order. The others' outputs stay as they are.
//
// Over the link: (world - 1) x count elements into the root and count out of each other rank. Two barriers, no scratch memory.
//
//   start (relaxed): peer's epoch -> the root's poll. Its input, written before its launch, may be read.
//   end   (relaxed): the root's reads, bar.sync, its epoch -> peer's poll. Reads of its input are over, so that whatever follows on its
//         stream may overwrite it. All blocks of the peer wait, and all of the root's blocks together read all of its input. Nothing that
//         the root wrote is for others to read.
//
// The others wait for each other too, which orders nothing: a barrier that is the same on every rank counts the same epochs whatever root
// the calls have. In place the output is the root's input: only the root reads it, each thread its own elements, which it overwrites after it
// has read them from all ranks.
#include "../common/reduce.cuh"
#include "../common/signals.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void pull(const Peers& input, u64 output, u64 count, u32 average, u32 root, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);

    if (sync.rank == root) {
        u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
        u64 threads = (u64)gridDim.x * blockDim.x;
        Split part = split<T>(input.address[root], output, count);
        u64 packs_at = part.head * sizeof(Stored);
        for (u64 i = thread; i < part.packs; i += threads) {
            u64 offset = packs_at + i * sizeof(Pack);
            store_pack((void*)(output + offset), reduce_pack<T, Op>(input, offset, sync.world, average));
        }
        for (u64 i = thread; i < part.head + part.tail; i += threads) {
            u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
            store_element(output + offset, reduce_element<T, Op>(input, offset, sync.world, average));
        }
    }

    end_barrier<RELAXED>(sync, epoch);
}

// Sum with `average` != 0 divides by the world size before the rounding.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        reduce_pull_##NAME(const __grid_constant__ Peers input, u64 output, u64 count, u32 average, u32 root,                         \
                           const __grid_constant__ Sync sync) {                                                                       \
        pull<T, OP>(input, output, units<T>(count, average), average, root, sync);                                                    \
    }
#include "../common/entries.cuh"
