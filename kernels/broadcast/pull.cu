// broadcast/pull: every rank loads the root's input and stores it to its own output.
//
// Over the link: (world - 1) x count elements out of the root and count into each other rank, as in broadcast/push; but all ranks' threads move
// them, each its own rank's, and not the root's alone. Two barriers, no scratch memory.
//
//   start (relaxed): the root's epoch -> our poll. Its input, written before its launch, may be read.
//   end   (relaxed): our reads, bar.sync, our epoch -> the root's poll. Reads of its input are over, so that whatever follows on its stream may
//         overwrite it. All of the root's blocks wait, each for ours of its index. What we wrote is for nobody else to read.
//
// The others wait for each other too, which orders nothing: a barrier that is the same on every rank counts the same epochs whatever root
// the calls have. In place the input is the root's output, where it stays; what lies at the others is overwritten, and nobody reads it.
#include "../common/copies.cuh"

template <typename T>
__device__ __forceinline__ void pull(const Peers& input, u64 output, u64 count, u32 root, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);

    u64 from = input.address[root];
    if (from != output) {
        u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
        u64 threads = (u64)gridDim.x * blockDim.x;
        Split part = split<T>(from, output, count);
        u64 packs_at = part.head * sizeof(Stored);
        for (u64 i = thread; i < part.packs; i += threads) {
            u64 offset = packs_at + i * sizeof(Pack);
            store_pack((void*)(output + offset), load_pack((const void*)(from + offset)));
        }
        for (u64 i = thread; i < part.head + part.tail; i += threads) {
            u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
            *(Stored*)(output + offset) = *(const volatile Stored*)(from + offset);
        }
    }

    end_barrier<RELAXED>(sync, epoch);
}

#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        broadcast_pull_##NAME(u64 output, u64 count, u32 root, const __grid_constant__ Sync sync,                                        \
                              const __grid_constant__ Peers input) {                                                                     \
        pull<T>(input, output, count, root, sync);                                                                                    \
    }
#include "../common/copy_entries.cuh"
