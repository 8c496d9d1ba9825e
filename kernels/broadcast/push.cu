// broadcast/push: the root stores one slice to each other rank, which stores it to the rest. Tile by tile: a rank passes one on while the root stores
// the next.
//
// Over the link: as many bytes out of the root as the message has, and into each other rank; (world - 2) / (world - 1) of them out of each of those. A
// root that stores everything to everybody has (world - 1) x bytes to send, and its link is what all wait for. Between two ranks both are the same,
// and nothing is passed on: tiles have no arrivals. Two barriers and, from three ranks on, an arrival for each tile, no scratch memory.
//
//   start (relaxed): peer's epoch -> our poll. What its stream did before is done: its output may be overwritten.
//   tile  (release, acquire): the root's stores, bar.sync, its epoch -> the owner's poll. The tile is in the owner's output.
//   end   (release, acquire): our stores, bar.sync, our epoch -> peer's poll. The result is there. A block that passes has what the blocks of its
//         index wrote; the end of the kernel gathers the blocks.
//
// In place the input is the root's output, where it stays; what lies at the others is overwritten. Elements beside whole packs are few, unless input
// and output lie at different distances from packs: the root stores them to everybody.
//
// Tiles are of one pack a thread. What has not been passed on when the root is done is lost, as is what owners wait for at first.
// What was tried: docs/performance/experiments.md.
#include "../common/copies.cuh"
#include "../common/slices.cuh"

template <typename T>
__device__ __forceinline__ void push(u64 input, const Peers& output, u64 count, u32 root, const Sync& sync) {
    using Stored = typename T::Stored;
    u32 epoch = start_barrier(sync);

    u64 own = output.address[sync.rank];
    Split part = split<T>(input, own, count);
    u64 packs_at = part.head * sizeof(Stored);
    // The rank after the root owns the first slice; a root without peers keeps it.
    Ranks owners = {nth(Ranks{root, 0}, 1, sync.world), sync.world > 1 ? sync.world - 1 : 1};
    u64 each = slice_begin(part.packs, 1, owners.count);
    auto begin_of = [&](u32 owner) { return min(part.packs, each * owner); };
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    u64 row = (u64)blockIdx.x * MAX_RANKS;

    if (sync.rank == root) {
        for (u64 tile = (u64)blockIdx.x * blockDim.x; tile < each; tile += threads) {
#pragma unroll 1
            for (u32 owner = 0; owner < owners.count; owner++) {
                u64 i = begin_of(owner) + tile + threadIdx.x;
                if (i >= begin_of(owner + 1)) continue;
                u64 offset = packs_at + i * sizeof(Pack);
                Pack mine = load_pack((const void*)(input + offset));
                store_pack((void*)(output.address[nth(owners, owner, sync.world)] + offset), mine);
                if (input != own) store_pack((void*)(own + offset), mine);
            }
            if (owners.count == 1) continue;
            __syncthreads();
            epoch++;
            if (threadIdx.x < sync.world && threadIdx.x != root)
                store_signal<RELEASE_ACQUIRE>((u32*)sync.pads.address[threadIdx.x] + row + root, epoch);
        }
        u32 first = input == own ? 1 : 0;
        for (u64 i = thread; i < part.head + part.tail; i += threads) {
            u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
            Stored mine = *(const volatile Stored*)(input + offset);
#pragma unroll 1
            for (u32 step = first; step < sync.world; step++) *(Stored*)(output.address[rank_after(sync, step)] + offset) = mine;
        }
    } else if (owners.count > 1) {
        u32 owner = place(owners, sync.rank, sync.world);
        for (u64 tile = (u64)blockIdx.x * blockDim.x; tile < each; tile += threads) {
            epoch++;
            if (threadIdx.x == root)
                wait_at_least<RELEASE_ACQUIRE>(sync, (const u32*)sync.pads.address[sync.rank] + row + root, epoch, root, SITE_END);
            __syncthreads();
            u64 i = begin_of(owner) + tile + threadIdx.x;
            if (i >= begin_of(owner + 1)) continue;
            u64 offset = packs_at + i * sizeof(Pack);
            Pack mine = load_pack((const void*)(own + offset));
#pragma unroll 1
            for (u32 step = 1; step < sync.world; step++) {
                u32 peer = rank_after(sync, step);
                if (peer != root) store_pack((void*)(output.address[peer] + offset), mine);
            }
        }
    }

    end_barrier<RELEASE_ACQUIRE>(sync, epoch);
}

#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        broadcast_push_##NAME(u64 input, u64 count, u32 root, const __grid_constant__ Sync sync,                                         \
                              const __grid_constant__ Peers output) {                                                                    \
        push<T>(input, output, count, root, sync);                                                                                    \
    }
#include "../common/copy_entries.cuh"
