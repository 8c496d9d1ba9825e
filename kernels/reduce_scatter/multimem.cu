// reduce_scatter/multimem: every rank has the switch reduce its slot of all ranks' inputs (multimem.ld_reduce).
//
// Over the link of each rank: its input out, world x count elements, and count in, where pull has (world - 1) x count in. Two barriers, no
// scratch memory.
//
//   start (relaxed): peer's epoch -> our poll, bar.sync, alias fence. Its input, written before its launch and by its own address, may be
//         read by the multicast address.
//   end   (relaxed): our reads, alias fence, bar.sync, our epoch -> peer's poll. Our reads of its input are over, so that whatever follows
//         on its stream may overwrite it. All blocks of the peer wait, and all of our blocks together read all of our slot of its input.
//         Nothing that we wrote is for others to read.
//
// In place the output is this rank's slot of its own input: only this rank reads that slot, on any rank, each thread its own elements,
// which it overwrites after it has read them reduced.
// target: compute_90
#include "../common/multimem.cuh"
#include "../common/signals.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void multimem(u64 input, const Peers& inputs, u64 output, u64 count, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);
    alias_fence();

    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    u64 slot = sync.rank * count * sizeof(Stored);
    Split part = split<T>(input + slot, output, count);
    u64 packs_at = part.head * sizeof(Stored);
    for (u64 i = thread; i < part.packs; i += threads) {
        u64 offset = packs_at + i * sizeof(Pack);
        store_pack((void*)(output + offset), load_reduced<T, Op>(input + slot + offset));
    }
    for (u64 i = thread; i < part.head + part.tail; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        *(Stored*)(output + offset) = load_reduced_element<T, Op>(input, inputs, slot + offset, sync.world);
    }

    alias_fence();
    end_barrier<RELAXED>(sync, epoch);
}

// `input` is a multicast address, `output` this rank's own.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        reduce_scatter_multimem_##NAME(u64 input, const __grid_constant__ Peers inputs, u64 output, u64 count,                        \
                                       const __grid_constant__ Sync sync) {                                                           \
        multimem<T, OP>(input, inputs, output, count, sync);                                                                          \
    }
#include "../common/multimem_entries.cuh"
