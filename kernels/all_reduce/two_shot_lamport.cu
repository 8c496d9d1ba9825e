// all_reduce/two_shot_lamport: every rank owns one slice; all push their elements of it to its pad in Lamport packs, it reduces them in ascending rank
// order and pushes the result into every rank's pad, in Lamport packs too.
//
// Over the link: 2 x (world - 1) / world x bytes into each rank, in two trips without a barrier or a flag. For messages of middle size among more than
// two ranks, from where one_shot_lamport sends too much.
//
// Slices are of whole packs, all of one length but for the last ones, which end with the elements. A warp has tile i, 512 bytes of every slice: the
// protocol is that of common/lamport.cuh, with slots of each source for the scatter and for the gather.
//
// Why two parities are enough for both: a tile of a call of either trip is sent only after the peer's tile of the call before was had, of the gather.
// The peer sent that in a launch after the one in which it polled the slots of the call before that, and made them empty.
//
// No rank waits in a circle: every warp has sent all of its scatter before it waits, and takes tiles in ascending order, of all the scatter first; what
// it then waits for of the gather is sent by warps that wait for nothing but scatters.
//
// In place, what a thread overwrites are elements that it alone has read: of its own slice before it stores their sum, and of the others before it
// waits for anything.
//
// target: compute_90
#define FEW_ENTRIES
#include "../common/lamport.cuh"

// Slices of a message, in packs, and who has data for whom in pack `pack` of them.
struct Slices {
    u32 packs;  // of the message
    u32 length;
    __device__ __forceinline__ bool has(u32 rank, u32 pack) const { return rank * length + pack < packs; }
};
struct Scatter {
    const Slices& slices;
    u32 pack;
    __device__ __forceinline__ bool has_data(u32, u32 to) const { return slices.has(to, pack); }
};
struct Gather {
    const Slices& slices;
    u32 pack;
    __device__ __forceinline__ bool has_data(u32 from, u32) const { return slices.has(from, pack); }
};

// As store_elements, in less code: it is there for each source.
template <typename T>
__device__ __forceinline__ void store_gathered(u64 to, u32 pack, u32 count, const Pack& p) {
    using Stored = typename T::Stored;
    u64 at = to + (u64)pack * sizeof(Pack);
    u32 first = pack * LANES<T>;
    if ((to & 15) == 0 && first + LANES<T> <= count) {
        store_pack((void*)at, p);
    } else {
        u64 rest = p.word[0] | (u64)p.word[1] << 32, next = p.word[2] | (u64)p.word[3] << 32;
#pragma unroll 1
        for (u32 j = 0; j < LANES<T> && first + j < count; j++) {
            ((Stored*)at)[j] = (Stored)rest;
            if constexpr (sizeof(Stored) == 8) {
                rest = next;
            } else {
                rest = rest >> 8 * sizeof(Stored) | next << (64 - 8 * sizeof(Stored));
                next >>= 8 * sizeof(Stored);
            }
        }
    }
}

// Among WORLD ranks, or as many as there are where that is 0. `sync.pads` are the pads of packs and `sync.epochs` the counts, a word for each tile of a slice.
template <typename T, typename Op, u32 WORLD>
__device__ __forceinline__ void two_shot_lamport_among(u64 input, u64 output, u32 elements, u32 average, const Lamport& pads) {
    using Code = typename CodeOf<T, Op>::Code;
    const Sync& sync = pads.sync;
    u32 world = WORLD ? WORLD : sync.world, lane = threadIdx.x % TILE;
    u32 first = (blockIdx.x * blockDim.x + threadIdx.x) / TILE, warps = gridDim.x * blockDim.x / TILE;
    u32 packs = packs_of<T>(elements);
    Slices slices{packs, (packs + world - 1) / world};
    u32 tiles = (slices.length + TILE - 1) / TILE;
    const Pack none = {{0, 0, 0, 0}};
    // Offset of the slot of rank 0.
    auto scattered = [&](u32 tile, u32 count) { return slot_of(tile, count & 1, lane, 2 * world); };
    auto gathered = [&](u32 tile, u32 count) { return scattered(tile, count) + (u64)world * SOURCE; };
    for (u32 tile = first; tile < tiles; tile += warps) {
        u32 pack = tile * TILE + lane;
        for (u32 rank = 0; rank < world; rank++)
            if (pack < slices.length && slices.has(rank, pack)) prefetch(input + (u64)(rank * slices.length + pack) * sizeof(Pack));
        if (lane == 0) prefetch((u64)(sync.epochs + tile));
    }
    asm volatile("griddepcontrol.wait;" : : : "memory");
    stall<SITE_ENTER>(sync);
    stall<SITE_START>(sync);
#pragma unroll 1
    for (u32 tile = first; tile < tiles; tile += warps) {
        u32 pack = tile * TILE + lane;
        if (pack >= slices.length) continue;
        send_packs<Code, PACKS_LOADED<WORLD, !HAS_OWN_ENTRY<T>>>(
            pads, world, scattered(tile, sync.epochs[tile] + 1) + sync.rank * SOURCE, [&](u32 peer) { return slices.has(peer, pack); },
            [&](u32 peer) { return load_elements<T>(input, peer * slices.length + pack, elements); });
    }
#pragma unroll 1
    for (u32 tile = first; tile < tiles; tile += warps) {
        u32 pack = tile * TILE + lane, at = sync.rank * slices.length + pack, count = sync.epochs[tile] + 1;
        if (pack >= slices.length) continue;
        bool is_mine = slices.has(sync.rank, pack);
        // Where the own slice has no such pack, the first lane takes what says that tiles have come, and says so itself.
        if (!is_mine && lane != 0) continue;
        Pack own = is_mine ? load_elements<T>(input, at, elements) : none;
        Pack sum = ReducedPack<T, Op, WORLD>::of(pads, world, Scatter{slices, pack}, scattered(tile, count), own, count, average);
        send_packs<Code, PACKS_LOADED<WORLD, true>>(
            pads, world, gathered(tile, count) + sync.rank * SOURCE, [](u32) { return true; }, [&](u32) { return sum; });
        if (is_mine) store_elements<T>(output, at, elements, sum);
    }
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
    stall<SITE_END>(sync);
#pragma unroll 1
    for (u32 tile = first; tile < tiles; tile += warps) {
        u32 pack = tile * TILE + lane, count = sync.epochs[tile] + 1;
        if (pack < slices.length)
            receive_packs<PACKS_IN_FLIGHT<WORLD>, Code>(pads, world, Gather{slices, pack}, gathered(tile, count), none, count, [&](u32 rank, bool, const Pack& of_rank) {
                if (rank != sync.rank && slices.has(rank, pack)) store_gathered<T>(output, rank * slices.length + pack, elements, of_rank);
            });
        // All lanes have read the count.
        __syncwarp();
        if (lane == 0) sync.epochs[tile] = count;
    }
    stall<SITE_LEAVE>(sync);
}

template <typename T, typename Op>
__device__ __forceinline__ void two_shot_lamport(u64 input, u64 output, u32 elements, u32 average, const Lamport& pads) {
    if constexpr (HAS_OWN_ENTRY<T>)
        if (pads.sync.world == 4) return two_shot_lamport_among<T, Op, 4>(input, output, elements, average, pads);
    two_shot_lamport_among<T, Op, 0>(input, output, elements, average, pads);
}

// Sum with `average` != 0 divides by the world size before the rounding. At most 2^31 elements, of which lamport.rs lets through fewer.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(MOST_THREADS<T>, 1)                                                                  \
        all_reduce_two_shot_lamport_##NAME(u64 input, u64 output, u32 elements, u32 average, const __grid_constant__ Sync sync,       \
                                           const __grid_constant__ Peers escapes) {                                                   \
        two_shot_lamport<T, OP>(input, output, units<T>(elements, average), average, Lamport{sync, escapes});                         \
    }
#include "../common/entries.cuh"
