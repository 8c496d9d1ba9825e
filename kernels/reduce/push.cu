// reduce/push: every rank stores its input to its slot at the root. A launch of all_reduce/copy_engine's kernel, behind this one on the root's
// stream alone, reduces what has come together there, in ascending rank order.
//
// Over the link: (world - 1) x count elements into the root and count out of each other rank. Two barriers; a slot for each rank at the root.
//
//   start (relaxed): the root's epoch -> our poll. Its stream has come to this call: what reduced its slots in the last one is done, and they may be
//         overwritten.
//   end   (release, acquire): our stores, bar.sync, our epoch -> the root's poll. Our input is there. A block that passes has what our block of its
//         index wrote; the end of the kernel gathers the blocks, for the kernel behind it.
//
// The others wait for each other too, which orders nothing: a barrier that is the same on every rank counts the same epochs whatever root
// the calls have. The root's own input stays where it is, in place too.
#include "../common/copies.cuh"

template <typename T>
__device__ __forceinline__ void push(u64 input, const Peers& slot, u64 count, u32 root, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);

    if (sync.rank != root) {
        u64 to = slot.address[root];
        u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
        u64 threads = (u64)gridDim.x * blockDim.x;
        Split part = split<T>(input, to, count);
        u64 packs_at = part.head * sizeof(Stored);
        for (u64 i = thread; i < part.packs; i += threads) {
            u64 offset = packs_at + i * sizeof(Pack);
            store_pack((void*)(to + offset), load_pack((const void*)(input + offset)));
        }
        for (u64 i = thread; i < part.head + part.tail; i += threads) {
            u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
            *(Stored*)(to + offset) = *(const volatile Stored*)(input + offset);
        }
    }

    end_barrier<RELEASE_ACQUIRE>(sync, epoch);
}

// Bytes: a slot lies at the same distance from a pack's start as the input, whatever its type.
#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        reduce_push_##NAME(u64 input, const __grid_constant__ Peers slot, u64 count, u32 root, const __grid_constant__ Sync sync) {   \
        push<T>(input, slot, count, root, sync);                                                                                      \
    }
ENTRY(b8, B8)
