// all_reduce/one_shot: every rank pulls every rank's whole input and reduces it in ascending rank order.
//
// Over the link: (world - 1) x bytes into each rank, in one trip between two barriers. Good while latency, not bandwidth, decides.
//
//   start (relaxed): peer's epoch -> our poll. Its input, written before its launch, may be read.
//   end   (relaxed): our reads, bar.sync, our epoch -> peer's poll. Our reads of its input are over, so that whatever follows on its
//         stream may overwrite it. All blocks of the peer wait, and all of our blocks together read all of its input. Nothing that we
//         wrote is for others to read.
//
// The output must not overlap the input that peers are reading: in place, the plan copies the input aside first.
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
