// all_reduce/multimem: every rank owns one slice; it has the switch reduce that slice of all ranks (multimem.ld_reduce) and write the
// result to all of them (multimem.st).
//
// Over the link of each rank: its input out, the output in, its own slice in reduced and out once: (1 + 1 / world) x bytes each way, where
// two_shot has 2 x (world - 1) / world. Two barriers, no scratch memory.
//
//   start (relaxed): peer's epoch -> our poll, bar.sync, alias fence. Its input, written before its launch and by its own address, may be
//         read by the multicast address; its output may be overwritten.
//   end   (release, acquire): our multimem.st, alias fence, bar.sync, our epoch -> peer's poll. Our slice of its output is there, for its
//         own addresses too, and our reads of its input are over. Blocks of one index cover the same part of every slice, so a block of
//         the peer that passes has all that these blocks wrote; the end of its kernel gathers its blocks.
//
// In place is sound without a copy: only the slice's owner reads it (on any rank) and only the owner writes it, each thread its own
// elements, after it has read them reduced.
// target: compute_90
#include "../common/multimem.cuh"
#include "../common/signals.cuh"
#include "../common/slices.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void multimem(u64 input, const Peers& inputs, u64 output, const Peers& outputs, u64 count, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);
    alias_fence();

    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    Split part = split<T>(input, output, count);
    u64 packs_at = part.head * sizeof(Stored);
    u64 packs_end = slice_begin(part.packs, sync.rank + 1, sync.world);
    for (u64 i = slice_begin(part.packs, sync.rank, sync.world) + thread; i < packs_end; i += threads) {
        u64 offset = packs_at + i * sizeof(Pack);
        store_to_all(output + offset, load_reduced<T, Op>(input + offset));
    }
    u64 edge = part.head + part.tail;
    u64 edge_end = slice_begin(edge, sync.rank + 1, sync.world);
    for (u64 i = slice_begin(edge, sync.rank, sync.world) + thread; i < edge_end; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        Stored sum = load_reduced_element<T, Op>(input, inputs, offset, sync.world);
        store_element_to_all<T>(output, outputs, offset, sync.world, sum);
    }

    alias_fence();
    end_barrier<RELEASE_ACQUIRE>(sync, epoch);
}

// `input` and `output` are multicast addresses.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_reduce_multimem_##NAME(u64 input, u64 output, u64 count, const __grid_constant__ Sync sync,                                \
                                   const __grid_constant__ Peers inputs, const __grid_constant__ Peers outputs) {                      \
        multimem<T, OP>(input, inputs, output, outputs, count, sync);                                                                 \
    }
#include "../common/multimem_entries.cuh"
