// reduce_scatter/pull: every rank pulls its slot from all ranks and reduces it in ascending rank order.
//
// Over the link: (world - 1) x count elements into each rank and as many out of it. Two barriers, no scratch memory.
//
//   start (relaxed): peer's epoch -> our poll. Its input, written before its launch, may be read.
//   end   (relaxed): our reads, bar.sync, our epoch -> peer's poll. Our reads of its input are over, so that whatever follows on its
//         stream may overwrite it. All blocks of the peer wait, and all of our blocks together read all of our slot of its input.
//         Nothing that we wrote is for others to read.
//
// In place the output is this rank's slot of its own input: only this rank reads that slot, on any rank, each thread its own elements,
// which it overwrites after it has read them from all ranks.
#include "../common/reduce.cuh"
#include "../common/signals.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void pull(const Peers& input, u64 output, u64 count, u32 average, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);

    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    u64 slot = sync.rank * count * sizeof(Stored);
    Split part = split<T>(input.address[sync.rank] + slot, output, count);
    u64 packs_at = part.head * sizeof(Stored);
    for (u64 i = thread; i < part.packs; i += threads) {
        u64 offset = packs_at + i * sizeof(Pack);
        store_pack((void*)(output + offset), reduce_pack<T, Op>(input, slot + offset, sync.world, average));
    }
    for (u64 i = thread; i < part.head + part.tail; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        store_element(output + offset, reduce_element<T, Op>(input, slot + offset, sync.world, average));
    }

    end_barrier<RELAXED>(sync, epoch);
}

// Sum with `average` != 0 divides by the world size before the rounding.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        reduce_scatter_pull_##NAME(const __grid_constant__ Peers input, u64 output, u64 count, u32 average,                           \
                                   const __grid_constant__ Sync sync) {                                                               \
        pull<T, OP>(input, output, units<T>(count, average), average, sync);                                                          \
    }
#include "../common/entries.cuh"
