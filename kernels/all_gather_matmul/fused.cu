// all_gather_matmul/{pull, fused}: C = gather(A) x B. The product starts with the own part of A, read in place, and goes on with the peers' in
// `gathered` as they come. Who brings them:
//
// pull: three warps of each block that neither load nor multiply pull them, all blocks together one row of tiles after the other, in the order in
// which the product needs them.
//
//   start (relaxed): peer's epoch -> our pullers' poll. Its part of A, written before its launch, may be read.
//   rows:            a piece of a row of tiles, barrier of the warp, fence, count -> ld.acquire of the thread that loads by TMA, then
//                    fence.proxy.async: its loads see all pieces.
//   end (relaxed):   our reads, barrier of the pullers, our epoch -> peer's poll. Our reads of its part are over. The pullers wait for it
//                    while the product goes on.
//
// The last block to end sets the counts back, so that a captured launch replays.
//
// fused: copy engines, at a side stream of every rank (algorithms/all_gather_matmul/fused.rs).
//
//   arrived: peer's copy, its stream's word -> ld.acquire.sys of the thread that loads by TMA, then fence.proxy.async. The stream sets the words
//            back behind the kernel.
//
// What was tried: docs/performance/experiments.md.
// target: compute_90a
#include "../common/signals.cuh"
#include "../matmul/matmul.cuh"

enum : u32 { PULLERS = 3, PACKS = 8, PIECE_BYTES = PACKS * 32 * 16, PULLERS_BARRIER = 3 };

__device__ __forceinline__ u32 load_count(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// One more piece is there for whoever acquires the count.
__device__ __forceinline__ void add_to_count(u32* to) {
    asm volatile("fence.acq_rel.gpu;\nred.relaxed.gpu.global.add.u32 [%0], 1;" : : "l"(to) : "memory");
}

// The source of A of a product: its chunks are the ranks' parts.
struct Gathered {
    const TensorMap& own;  // this rank's part, one matrix
    const TensorMap& all;  // gathered A, one matrix a rank
    const Peers& input;
    u64 gathered;
    u64 part_bytes;
    u64 row_bytes;  // of a row of tiles; the last of a part may have less. 0 where streams bring the parts
    u32* counts;    // pieces that came, for each row of tiles; else words that are 1 when a rank's part came
    const Raster& raster;
    const Sync& sync;
    u32 passed = 0xffffffff;

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(own);
        prefetch(all);
    }

    __device__ __forceinline__ bool pulls() const { return row_bytes > 0; }
    __device__ __forceinline__ u32 pieces_of_row() const { return (u32)((row_bytes + PIECE_BYTES - 1) / PIECE_BYTES); }

    __device__ __forceinline__ const TensorMap& rows(const Position& at, u32& chunk) {
        chunk = 0;
        if (at.chunk == sync.rank) return own;
        chunk = at.chunk;
        u32 row = pulls() ? at.chunk * raster.rows + at.row : at.chunk;
        if (row != passed) {
            if (pulls())
                wait_for_row(counts + row);
            else
                wait_at_least<RELEASE_ACQUIRE>(sync, counts + row, 1, at.chunk, SITE_START);
            asm volatile("fence.proxy.async.global;" : : : "memory");
            passed = row;
        }
        return all;
    }

    // The pullers of this GPU count on even when they gave up waiting for a peer, which they report: this bound is for blocks that never ran.
    __device__ __forceinline__ void wait_for_row(const u32* count) const {
        u32 wanted = pieces_of_row();
        if (load_count(count) == wanted) return;
        u64 start = nanoseconds();
        while (load_count(count) != wanted) {
            if (nanoseconds() - start > 2 * sync.limit) {
                *(volatile u32*)sync.stuck = 1;
                return;
            }
        }
    }

    __device__ __forceinline__ void meet_peers(u32 epoch, Site site) const {
        named_barrier(PULLERS_BARRIER, PULLERS * 32);
        u32 peer = threadIdx.x - 32;
        if (peer < sync.world) {
            u64 row = (u64)blockIdx.x * MAX_WORLD;
            store_signal<RELAXED>((u32*)sync.pads.address[peer] + row + sync.rank, epoch);
            wait_at_least<RELAXED>(sync, (const u32*)sync.pads.address[sync.rank] + row + peer, epoch, peer, site);
        }
        named_barrier(PULLERS_BARRIER, PULLERS * 32);
    }

    __device__ __forceinline__ void pull_piece(u32 rank, u64 offset, u64 end) const {
        const u8* from = (const u8*)input.address[rank] + offset;
        u8* to = (u8*)gathered + rank * part_bytes + offset;
        u32 lane = threadIdx.x % 32 * 16;
        if (offset + PIECE_BYTES <= end) {
            Pack packs[PACKS];
#pragma unroll
            for (u32 i = 0; i < PACKS; i++) packs[i] = load_pack(from + lane + i * 512);
#pragma unroll
            for (u32 i = 0; i < PACKS; i++) store_pack(to + lane + i * 512, packs[i]);
        } else {
            for (u64 at = lane; offset + at < end; at += 512) store_pack(to + at, load_pack(from + at));
        }
    }

    __device__ __forceinline__ void assist() const {
        if (!pulls()) return;
        u32 epoch = sync.epochs[blockIdx.x] + 1;
        meet_peers(epoch, SITE_START);
        u32 pieces = pieces_of_row(), of_part = raster.rows * pieces;
        u32 puller = blockIdx.x * PULLERS + threadIdx.x / 32 - 1;
        for (u32 piece = puller; piece < (sync.world - 1) * of_part; piece += gridDim.x * PULLERS) {
            u32 rank = rank_after(sync, 1 + piece / of_part), row = piece % of_part / pieces;
            u64 end = min((row + 1) * row_bytes, part_bytes);
            pull_piece(rank, row * row_bytes + (u64)(piece % pieces) * PIECE_BYTES, end);
            __syncwarp();
            if (threadIdx.x % 32 == 0) add_to_count(counts + rank * raster.rows + row);
        }
        meet_peers(epoch + 1, SITE_END);
        if (threadIdx.x == 32) sync.epochs[blockIdx.x] = epoch + 1;
    }
};

// `ended`: blocks that ended, 0 before and after.
template <class T, class Tile>
__device__ __forceinline__ void fused(const Gathered& source, const TensorMap& b, const TensorMap& c, u32 depth, u32* ended) {
    matmul<T, Tile>(source, b, Stored{c}, source.raster, depth);
    if (!source.pulls()) return;
    // Nobody waits for a count any more when all blocks are here, and nobody counts.
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
        u32 before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(ended) : "memory");
        last = before == gridDim.x - 1;
        if (last) *ended = 0;
    }
    last = __syncthreads_or(last);
    if (last)
        for (u32 i = threadIdx.x; i < source.raster.chunks * source.raster.rows; i += MATMUL_THREADS) source.counts[i] = 0;
}

#define ENTRY(NAME, T, N, CLUSTER, B_ALONG_N)                                                                                \
    extern "C" __global__ void __launch_bounds__(MATMUL_THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)                           \
        all_gather_matmul_fused_##NAME(const __grid_constant__ TensorMap own, const __grid_constant__ TensorMap all,          \
                                      const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,              \
                                      const __grid_constant__ Raster raster, u32 depth, const __grid_constant__ Peers input, \
                                      u64 gathered, u64 part_bytes, u64 row_bytes, u32* counts, u32* ended,                  \
                                      const __grid_constant__ Sync sync) {                                                   \
        fused<T, Tile<N, CLUSTER, B_ALONG_N>>(Gathered{own, all, input, gathered, part_bytes, row_bytes, counts, raster, sync}, b, c, \
                                             depth, ended);                                                                  \
    }
#include "../matmul/entries.cuh"
