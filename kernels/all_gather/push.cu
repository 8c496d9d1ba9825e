// all_gather/push: every rank reads its input once and stores it to its slot of every rank's output.
//
// Over the link: (world - 1) x count elements out of each rank and as many into it. Two barriers, no scratch memory. Ranks store to
// themselves first and then to the ranks after them, in turn, so that no rank is stored to by all others at once.
//
//   start (relaxed): peer's epoch -> our poll. What its stream did before is done: its output may be overwritten.
//   end   (release, acquire): our stores, bar.sync, our epoch -> peer's poll. Our slot of its output is there. Blocks of one index
//         cover the same part of every slot, so a block of the peer that passes has all that these blocks wrote; the end of its kernel
//         gathers its blocks.
//
// A thread has several packs under way: among four ranks that takes 2 % less time at 256 MiB. All stores to one peer before those to the next took 1 to
// 7 % more (docs/performance/experiments.md).
//
// In place the input is this rank's slot of its own output, where it stays: nobody writes there.
#include "../common/copies.cuh"

// Packs of a thread that are under way at once.
enum : u32 { PACKS = 4 };

template <typename T>
__device__ __forceinline__ void push(u64 input, const Peers& output, u64 count, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);

    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    u64 slot = sync.rank * count * sizeof(Stored);
    Split part = split<T>(input, output.address[sync.rank] + slot, count);
    u32 first = input == output.address[sync.rank] + slot ? 1 : 0;
    u64 packs_at = part.head * sizeof(Stored);
#pragma unroll 1
    for (u64 i = thread; i < part.packs; i += PACKS * threads) {
        u64 offset = packs_at + i * sizeof(Pack), pitch = threads * sizeof(Pack);
        Pack mine[PACKS];
#pragma unroll
        for (u32 k = 0; k < PACKS; k++)
            if (i + k * threads < part.packs) mine[k] = load_pack((const void*)(input + offset + k * pitch));
#pragma unroll 1
        for (u32 step = first; step < sync.world; step++) {
            u64 to = output.address[rank_after(sync, step)] + slot + offset;
#pragma unroll
            for (u32 k = 0; k < PACKS; k++)
                if (i + k * threads < part.packs) store_pack((void*)(to + k * pitch), mine[k]);
        }
    }
    for (u64 i = thread; i < part.head + part.tail; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        Stored mine = *(const volatile Stored*)(input + offset);
        for (u32 step = first; step < sync.world; step++) {
            u32 peer = rank_after(sync, step);
            *(Stored*)(output.address[peer] + slot + offset) = mine;
        }
    }

    end_barrier<RELEASE_ACQUIRE>(sync, epoch);
}

#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_gather_push_##NAME(u64 input, u64 count, const __grid_constant__ Sync sync, const __grid_constant__ Peers output) {       \
        push<T>(input, output, count, sync);                                                                                          \
    }
#include "../common/copy_entries.cuh"
