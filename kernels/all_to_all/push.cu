// all_to_all/push: every rank stores its slot k to slot r of rank k's output, where r is itself.
//
// Over the link: (world - 1) x count elements out of each rank and as many into it. Two barriers, no scratch memory.
//
// A thread moves the same part of every slot, one rank after the other, and not all of one rank's slot. So each block sends to all ranks
// at once and as much to one as to another: the links to all of them are busy from one block on, whatever their number, where blocks that are
// dealt out to peers need a multiple of world - 1 and leave links idle when the last of them end. Loads of up to FLIGHT slots are in flight
// together. The turn starts at the rank after this one and ends at this one: at each step ranks store to different ranks, and none is stored
// to by all others at once.
//
//   start (relaxed): peer's epoch -> our poll. What its stream did before is done: its output may be overwritten.
//   end   (release, acquire): our stores, bar.sync, our epoch -> peer's poll. Our slot of its output is there. Blocks of one index
//         cover the same part of every slot, so a block of the peer that passes has all that these blocks wrote; the end of its kernel
//         gathers its blocks. Our input is read by nobody else.
//
// There is no call in place: slot k of the input would have to leave before slot k of the output comes.
#include "../common/copies.cuh"

template <typename V>
__device__ __forceinline__ V load(u64 from) {
    if constexpr (sizeof(V) == sizeof(Pack))
        return load_pack((const void*)from);
    else
        return *(const volatile V*)from;
}

template <typename V>
__device__ __forceinline__ void store(u64 to, const V& value) {
    if constexpr (sizeof(V) == sizeof(Pack))
        store_pack((void*)to, value);
    else
        *(V*)to = value;
}

// Moves what lies at byte `offset` of every slot of `slot` bytes: a pack or an element.
template <typename V>
__device__ __forceinline__ void exchange(u64 input, const Peers& output, u64 slot, u64 offset, const Sync& sync) {
    for (u32 base = 1; base <= sync.world; base += FLIGHT) {
        V flight[FLIGHT];
#pragma unroll
        for (u32 i = 0; i < FLIGHT; i++)
            if (base + i <= sync.world) flight[i] = load<V>(input + rank_after(sync, base + i) * slot + offset);
#pragma unroll
        for (u32 i = 0; i < FLIGHT; i++)
            if (base + i <= sync.world) store<V>(output.address[rank_after(sync, base + i)] + sync.rank * slot + offset, flight[i]);
    }
}

template <typename T>
__device__ __forceinline__ void push(u64 input, const Peers& output, u64 count, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);

    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    u64 slot = count * sizeof(Stored);
    // Slots that are no multiple of a pack start at different distances from one: they move element by element.
    Split part = slot % sizeof(Pack) ? Split{count, 0, 0} : split<T>(input, output.address[sync.rank], count);
    for (u64 i = thread; i < part.packs; i += threads)
        exchange<Pack>(input, output, slot, part.head * sizeof(Stored) + i * sizeof(Pack), sync);
    for (u64 i = thread; i < part.head + part.tail; i += threads)
        exchange<Stored>(input, output, slot, (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored), sync);

    end_barrier<RELEASE_ACQUIRE>(sync, epoch);
}

#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_to_all_push_##NAME(u64 input, u64 count, const __grid_constant__ Sync sync, const __grid_constant__ Peers output) {       \
        push<T>(input, output, count, sync);                                                                                          \
    }
#include "../common/copy_entries.cuh"
