// all_gather/multimem: every rank reads its input once and has the switch store it to its slot of every rank's output (multimem.st).
//
// Over the link: count elements out of each rank, where push has (world - 1) x count, and world x count into it. Two barriers, no scratch
// memory.
//
//   start (relaxed): peer's epoch -> our poll, bar.sync, alias fence. Its output may be overwritten by the multicast address.
//   end   (release, acquire): our multimem.st, alias fence, bar.sync, our epoch -> peer's poll. Our slot of its output is there, for its
//         own addresses too. Blocks of one index cover the same part of every slot, so a block of the peer that passes has all that these
//         blocks wrote; the end of its kernel gathers its blocks.
//
// In place the input is this rank's slot of its own output: the switch writes there too, the bytes that each thread has read.
// target: compute_90
#include "../common/copies.cuh"
#include "../common/multimem.cuh"

template <typename T>
__device__ __forceinline__ void multimem(u64 input, u64 output, const Peers& outputs, u64 count, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);
    alias_fence();

    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    u64 slot = sync.rank * count * sizeof(Stored);
    Split part = split<T>(input, output + slot, count);
    u64 packs_at = part.head * sizeof(Stored);
    for (u64 i = thread; i < part.packs; i += threads) {
        u64 offset = packs_at + i * sizeof(Pack);
        store_to_all(output + slot + offset, load_pack((const void*)(input + offset)));
    }
    for (u64 i = thread; i < part.head + part.tail; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        Stored mine = *(const volatile Stored*)(input + offset);
        store_element_to_all<T>(output, outputs, slot + offset, sync.world, mine);
    }

    alias_fence();
    end_barrier<RELEASE_ACQUIRE>(sync, epoch);
}

// `output` is a multicast address.
#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_gather_multimem_##NAME(u64 input, u64 output, u64 count, const __grid_constant__ Sync sync,                               \
                                   const __grid_constant__ Peers outputs) {                                                           \
        multimem<T>(input, output, outputs, count, sync);                                                                             \
    }
#include "../common/copy_entries.cuh"
