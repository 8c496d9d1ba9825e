// matmul_reduce_scatter/fused: C = the rank's rows of the sum over ranks of A x B, A having each rank's rows below the other's.
//
// The peers' rows come first, from the next rank on, the own ones last. Tiles go to this rank's slot at the owner of their rows, by TMA; when the last of
// a peer's rows is there, a thread says so. When a consumer has no tile left, it adds what all ranks made of its own tiles of the own rows: in rank order,
// each rounded to the type before, in f32, and rounded once.
//
//   ready:   peer's stream, in order -> our stream's wait before the launch. Its kernel has read its slots of the last call.
//   brought: a consumer's stores have completed, fence, count of the rows' tiles; whoever counts the last, having seen all others' counts, st.release.sys
//            of our word there -> peer's ld.acquire.sys by threads of a consumer, its barrier. Its slots hold our tiles.
//            The stream sets the words back behind the kernel.
//
//   own:     a consumer's stores have completed, fence.proxy.async, its barrier -> its loads from the own slot.
//
// Counts are 0 before and after: whoever counts the last of a rank's rows sets theirs back.
//
// No rank waits before it has told all others: what it waits for never waits for it.
//
// What a block stores to a peer stands before what it loads: while a store waits for the link, so do the loads of the next product. Therefore a tile is staged
// whole, with fewer stages where it must, and leaves box by box while the next one is made, each block's boxes at other steps than most others'.
// What was tried: docs/performance/experiments.md.
// target: compute_90a
#include "../common/signals.cuh"
#include "../matmul/matmul.cuh"

// For each rank, where its rows go: this rank's slot there. Past the world size, anything.
struct Targets {
    TensorMap of[MAX_WORLD];
};

// C that is the sum over ranks: chunks of the product are the ranks' rows.
struct Summed {
    const Targets& targets;
    u64 slots;           // the ranks' products of our rows, each like C
    u64 c;
    u64 height, width;   // of C
    u32* counts;         // for each rank, tiles of its rows that consumers have stored
    const Peers& words;  // one for each rank: 1 when its slot is full
    const Raster& raster;
    const Sync& sync;
    u32 chunk = 0;      // the last that this thread stored a tile of
    u32 uncounted = 0;  // its tiles that are not counted yet
    u32 staged = 0, column = 0, row = 0;  // of that tile
    u32 box = 0xffff;                     // its next box to store

    __device__ __forceinline__ void prefetch_maps() const {
        for (u32 rank = 0; rank < sync.world; rank++) prefetch(targets.of[rank]);
    }

    __device__ __forceinline__ const TensorMap& rows(const Position& at, u32& chunk) const {
        chunk = 0;
        return targets.of[at.chunk];
    }

    // What was staged before is on its way when the next tile is; of another rank's rows, it is there.
    template <class Tile>
    __device__ __forceinline__ void next(const Position& at) {
        static_assert(2 * Tile::BATCH >= Tile::BOXES, "a tile is staged whole");
        while (box < Tile::BOXES) store<Tile>();
        wait_stores_read<0>();
        if (uncounted > 0 && at.chunk != chunk) {
            wait_stores();
            count<Tile>();
        }
        chunk = at.chunk;
        uncounted++;
    }

    __device__ __forceinline__ bool at_once(const Position& at, u32 staging, u32 x, u32 y) {
        if (at.chunk == sync.rank) return true;
        staged = staging, column = x, row = y, box = 0;
        return false;
    }

    // Boxes leave one by one, at another step in each block.
    template <class Tile>
    __device__ __forceinline__ void step(u32 k, u32 depth) {
        if (box >= Tile::BOXES) return;
        u32 turn = blockIdx.x % 16 * depth / 16;
        if (k * Tile::BOXES >= box * depth + turn) store<Tile>();
    }

    template <class Tile>
    __device__ __forceinline__ void store() {
        store_box(targets.of[chunk], staged + box * Tile::BOX_BYTES, column + box * Tile::COLUMNS, row, 0);
        commit_stores();
        box++;
    }

    // Counts what this thread has stored, all of which has completed.
    template <class Tile>
    __device__ __forceinline__ void count() {
        u32 tiles = uncounted, before;
        uncounted = 0;
        if (chunk == sync.rank) return;
        asm volatile("fence.proxy.async.global;\nfence.acq_rel.sys;" : : : "memory");
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counts + chunk), "r"(tiles) : "memory");
        // Both consumers of every block of a cluster count each of its tiles.
        if (before + tiles != raster.rows * raster.columns * Tile::CLUSTER * 2) return;
        counts[chunk] = 0;
        store_signal<RELEASE_ACQUIRE>((u32*)words.address[chunk] + sync.rank, 1);
    }

    // Adds the products of this consumer's tiles of our rows.
    template <class T, class Tile>
    __device__ __forceinline__ void finish(u32 consumer, u32 block, u32 step) {
        u32 thread = threadIdx.x % WARPGROUP, of_chunk = raster.rows * raster.columns;
        if (thread == 0) {
            while (box < Tile::BOXES) store<Tile>();
            wait_stores();
            if (uncounted > 0) count<Tile>();
            asm volatile("fence.proxy.async.global;" : : : "memory");
        }
        if (thread < sync.world && thread != sync.rank)
            wait_at_least<RELEASE_ACQUIRE>(sync, (const u32*)words.address[sync.rank] + thread, 1, thread, SITE_END);
        named_barrier(1 + consumer, WARPGROUP);
        // They are the last of the order.
        u32 first = blockIdx.x / Tile::CLUSTER, others = raster.tiles() - of_chunk;
        if (first < others) first += (others - first + step - 1) / step * step;
        for (u32 tile = first; tile < raster.tiles(); tile += step) {
            Position at(raster, tile);
            u64 top = (at.row * Tile::CLUSTER + block) * Tile::M + consumer * 64, left = at.column * Tile::N;
            enum : u32 { OF_ROW = Tile::N / 8, OF_TILE = 64 * OF_ROW, AT_ONCE = 8 };
#pragma unroll 1
            for (u32 pack = thread; pack < OF_TILE; pack += AT_ONCE * WARPGROUP) {
                u64 offsets[AT_ONCE];
                bool there[AT_ONCE];
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; i++) {
                    u64 y = top + (pack + i * WARPGROUP) / OF_ROW, x = left + (pack + i * WARPGROUP) % OF_ROW * 8;
                    there[i] = pack + i * WARPGROUP < OF_TILE && y < height && x < width;
                    offsets[i] = (y * width + x) * 2;
                }
                add<T>(offsets, there);
            }
        }
    }

    // The sums in rank order, of the packs that are there.
    template <class T, u32 COUNT>
    __device__ __forceinline__ void add(const u64 (&offsets)[COUNT], const bool (&there)[COUNT]) const {
        float sums[COUNT][8];
        // To which whatever is added stays what it is, +0 and -0 too.
#pragma unroll
        for (u32 i = 0; i < COUNT * 8; i++) sums[i / 8][i % 8] = -0.0f;
#pragma unroll 1
        for (u32 rank = 0; rank < sync.world; rank++) {
            u64 slot = slots + rank * height * width * 2;
            Pack packs[COUNT];
#pragma unroll
            for (u32 i = 0; i < COUNT; i++)
                if (there[i]) packs[i] = load_pack((const void*)(slot + offsets[i]));
#pragma unroll
            for (u32 i = 0; i < COUNT; i++)
#pragma unroll
                for (u32 j = 0; j < 8; j++) {
                    u32 word = packs[i].word[j / 2];
                    sums[i][j] = __fadd_rn(sums[i][j], j % 2 ? T::high(word) : T::low(word));
                }
        }
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            Pack sum;
#pragma unroll
            for (u32 j = 0; j < 4; j++) sum.word[j] = T::pack(sums[i][2 * j], sums[i][2 * j + 1]);
            if (there[i]) store_pack((void*)(c + offsets[i]), sum);
        }
    }
};

#define ENTRY(NAME, T, N, CLUSTER, B_ALONG_N)                                                                                             \
    extern "C" __global__ void __launch_bounds__(MATMUL_THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)                                        \
        matmul_reduce_scatter_fused_##NAME(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,                      \
                                          const __grid_constant__ Targets targets, const __grid_constant__ Raster raster, u32 depth,      \
                                          u64 slots, u64 c, u64 height, u64 width, u32* counts, const __grid_constant__ Peers words,      \
                                          const __grid_constant__ Sync sync) {                                                            \
        Summed sink{targets, slots, c, height, width, counts, words, raster, sync};                                                          \
        matmul<T, Tile<N, CLUSTER, B_ALONG_N, N <= 128 ? 6 : N <= 192 ? 4 : 3>>(Given{a}, b, sink, raster, depth);                        \
    }
#include "../matmul/entries.cuh"
