// broadcast/multimem: the root reads its input once and has the switch store it to every rank's output (multimem.st).
//
// Over the link: count elements out of the root and into each rank, where push has (world - 1) x count out of the root. Two barriers, no
// scratch memory.
//
//   start (relaxed): peer's epoch -> the root's poll, bar.sync, alias fence. Its output may be overwritten by the multicast address.
//   end   (release, acquire): the root's multimem.st, alias fence, bar.sync, its epoch -> peer's poll. The result is there, for the peer's
//         own addresses too. A block that passes has what the root's block of its index wrote; the end of the kernel gathers the blocks.
//
// The others wait for each other too, as in broadcast/push. In place the input is the root's output: the switch writes there too, the bytes
// that each thread has read.
// target: compute_90
#include "../common/copies.cuh"
#include "../common/multimem.cuh"

template <typename T>
__device__ __forceinline__ void multimem(u64 input, u64 output, const Peers& outputs, u64 count, u32 root, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);

    if (sync.rank == root) {
        alias_fence();
        u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
        u64 threads = (u64)gridDim.x * blockDim.x;
        Split part = split<T>(input, output, count);
        u64 packs_at = part.head * sizeof(Stored);
        for (u64 i = thread; i < part.packs; i += threads) {
            u64 offset = packs_at + i * sizeof(Pack);
            store_to_all(output + offset, load_pack((const void*)(input + offset)));
        }
        for (u64 i = thread; i < part.head + part.tail; i += threads) {
            u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
            Stored mine = *(const volatile Stored*)(input + offset);
            store_element_to_all<T>(output, outputs, offset, sync.world, mine);
        }
    }

    alias_fence();
    end_barrier<RELEASE_ACQUIRE>(sync, epoch);
}

// `output` is a multicast address.
#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        broadcast_multimem_##NAME(u64 input, u64 output, u64 count, u32 root, const __grid_constant__ Sync sync,                      \
                                  const __grid_constant__ Peers outputs) {                                                            \
        multimem<T>(input, output, outputs, count, root, sync);                                                                       \
    }
#include "../common/copy_entries.cuh"
