// all_reduce/multimem_one_shot: every rank has the switch reduce `count` elements of all ranks (multimem.ld_reduce) into its own output: all of the
// input, or, for reduce_scatter/multimem, whose plan passes that, its slot of it.
//
// Over the link of each rank: world x count elements out, for every rank reads as many of its input, and count in, in one trip between two
// barriers. All-reduces are better done otherwise where bandwidth, not latency, decides.
//
//   start (relaxed): peer's epoch -> our poll, bar.sync, alias fence. Its input, written before its launch and by its own address, may be
//         read by the multicast address.
//   end   (relaxed): our reads, alias fence, bar.sync, our epoch -> peer's poll. Our reads of its input are over, so that whatever follows
//         on its stream may overwrite it. All blocks of the peer wait, and all of our blocks together read all that we read of its input.
//         Nothing that we wrote is for others to read.
//
// The output must not overlap what other ranks are reading. In place, the plan of an all-reduce copies the input aside first. The output of
// a reduce-scatter is this rank's slot of its own input: only this rank reads that slot, on any rank, each thread its own elements, which it
// overwrites after it has read them reduced.
// target: compute_90
#include "../common/multimem.cuh"
#include "../common/signals.cuh"

template <typename T, typename Op>
__device__ __forceinline__ void multimem_one_shot(u64 input, const Peers& inputs, u64 output, u64 count, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);
    alias_fence();

    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    Split part = split<T>(input, output, count);
    u64 packs_at = part.head * sizeof(Stored);
    for (u64 i = thread; i < part.packs; i += threads) {
        u64 offset = packs_at + i * sizeof(Pack);
        store_pack((void*)(output + offset), load_reduced<T, Op>(input + offset));
    }
    for (u64 i = thread; i < part.head + part.tail; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        *(Stored*)(output + offset) = load_reduced_element<T, Op>(input, inputs, offset, sync.world);
    }

    alias_fence();
    end_barrier<RELAXED>(sync, epoch);
}

// `input` is a multicast address, `output` this rank's own.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_reduce_multimem_one_shot_##NAME(u64 input, u64 output, u64 count, const __grid_constant__ Sync sync,                      \
                                            const __grid_constant__ Peers inputs) {                                                   \
        multimem_one_shot<T, OP>(input, inputs, output, count, sync);                                                                 \
    }
#include "../common/multimem_entries.cuh"
