// all_reduce/mine: every rank pulls every rank's whole input, element by element, in ascending rank order.
//
//   start (relaxed): peer's epoch -> our poll. Its input, written before its launch, may be read.
//   end   (relaxed): our reads, bar.sync, our epoch -> peer's poll. Our reads of its input are over.
#include "passmuster/reduce.cuh"
#include "passmuster/signals.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void mine(const Peers& input, u64 output, u64 count, u32 average, const Sync& sync) {
    u32 epoch = start_barrier(sync);
    u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        u64 offset = i * sizeof(typename T::Stored);
        store_element(output + offset, reduce_element<T, Op>(input, offset, sync.world, average));
    }
    end_barrier<RELAXED>(sync, epoch);
}

#define ENTRY(NAME, T, OP)                                                                                       \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                         \
        all_reduce_mine_##NAME(u64 output, u64 count, u32 average, const __grid_constant__ Sync sync,            \
                               const __grid_constant__ Peers input) {                                            \
        mine<T, OP>(input, output, units<T>(count, average), average, sync);                                     \
    }
#include "passmuster/entries.cuh"
