// broadcast/push: the root reads its input once and stores it to every rank's output.
//
// Over the link: (world - 1) x count elements out of the root and count into each other rank. Two barriers, no scratch memory. Each pack goes
// to all ranks in turn, so that the links to all of them are busy from one block on.
//
//   start (relaxed): peer's epoch -> the root's poll. What its stream did before is done: its output may be overwritten.
//   end   (release, acquire): the root's stores, bar.sync, its epoch -> peer's poll. The result is there. A block that passes has what the
//         root's block of its index wrote; the end of the kernel gathers the blocks.
//
// The others wait for each other too, which orders nothing: a barrier that is the same on every rank counts the same epochs whatever root
// the calls have. In place the input is the root's output, where it stays; what lies at the others is overwritten.
#include "../common/copies.cuh"

template <typename T>
__device__ __forceinline__ void push(u64 input, const Peers& output, u64 count, u32 root, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);

    if (sync.rank == root) {
        u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
        u64 threads = (u64)gridDim.x * blockDim.x;
        Split part = split<T>(input, output.address[root], count);
        u32 first = input == output.address[root] ? 1 : 0;
        u64 packs_at = part.head * sizeof(Stored);
        for (u64 i = thread; i < part.packs; i += threads) {
            u64 offset = packs_at + i * sizeof(Pack);
            Pack mine = load_pack((const void*)(input + offset));
            for (u32 step = first; step < sync.world; step++) store_pack((void*)(output.address[rank_after(sync, step)] + offset), mine);
        }
        for (u64 i = thread; i < part.head + part.tail; i += threads) {
            u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
            Stored mine = *(const volatile Stored*)(input + offset);
            for (u32 step = first; step < sync.world; step++) *(Stored*)(output.address[rank_after(sync, step)] + offset) = mine;
        }
    }

    end_barrier<RELEASE_ACQUIRE>(sync, epoch);
}

#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        broadcast_push_##NAME(u64 input, const __grid_constant__ Peers output, u64 count, u32 root, const __grid_constant__ Sync sync) { \
        push<T>(input, output, count, root, sync);                                                                                    \
    }
#include "../common/copy_entries.cuh"
