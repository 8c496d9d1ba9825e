// all_gather_matmul/{pull, fused}: C = gather(A) x B. The product starts with the own part of A, read in place, and goes on with the peers' in
// `gathered` as they come. Who brings them:
//
// pull: three warps of each block that neither load nor multiply pull them, all blocks together, in the order in which the product needs them: as many rows
// of tiles as are multiplied at a time, of all of these a slice of their depth after the other. A tile begins with its first slice and goes on as slices come.
//
//   start (relaxed): peer's epoch -> our pullers' poll. Its part of A, written before its launch, may be read.
//   slices:          a piece of a slice of a row of tiles, barrier of the warp, fence, count -> ld.acquire of the thread that loads by TMA, then
//                    fence.proxy.async: its loads see all pieces.
//   end (relaxed):   our reads, barrier of the pullers, our epoch -> peer's poll. Our reads of its part are over. The pullers wait for it
//                    while the product goes on.
//
// The last block to end sets the counts back, so that a captured launch replays.
//
// fused: copy engines, at a side stream of every rank (crates/kernels/src/all_gather_matmul/fused.rs).
//
//   arrived: peer's copy, its stream's word -> ld.acquire.sys of the thread that loads by TMA, then fence.proxy.async. The stream sets the words
//            back behind the kernel.
//
// What was tried: docs/performance/experiments.md.
// target: compute_90a
#include "../matmul/matmul.cuh"
#include "../matmul/pullers.cuh"

enum : u32 {
    PACKS = 8,  // that a lane has under way
    PIECE_ROWS = PACKS * 32 * 16 / SLICE_BYTES,
    STAGES_OF_SLICE = SLICE_BYTES / 128,
};

// One more piece is there for the block that acquires the count.
__device__ __forceinline__ void add_to_count(u32* to) {
    asm volatile("fence.acq_rel.gpu;\nred.relaxed.gpu.global.add.u32 [%0], 1;" : : "l"(to) : "memory");
}

// The source of A of a product: its chunks are the ranks' parts, and a row of tiles has ROWS rows of A.
template <u32 ROWS>
struct Gathered {
    enum : u32 {
        REGISTERS = 56,
        PIECES = ROWS / PIECE_ROWS,  // of a slice of a row of tiles
    };

    const TensorMap& own;  // this rank's part, one matrix
    const TensorMap& all;  // gathered A, one matrix a rank
    const Peers& input;
    u64 gathered;
    u64 part_bytes;
    u64 row_bytes;  // of a row of A. 0 where streams bring the parts
    u32* counts;    // pieces that came, for each slice of each row of tiles; else words that are 1 when a rank's part came
    const Raster& raster;
    const Sync& sync;
    Position at = Position(raster, 0);
    u32 passed = 0xffffffff;  // whose part came, where streams bring them

    __device__ __forceinline__ void begin() const {
        prefetch(own);
        prefetch(all);
    }

    __device__ __forceinline__ bool pulls() const { return row_bytes > 0; }
    __device__ __forceinline__ u32 slices() const { return (u32)((row_bytes + SLICE_BYTES - 1) / SLICE_BYTES); }
    __device__ __forceinline__ u32* count_of(u32 chunk, u32 row, u32 slice) const { return counts + ((u64)chunk * raster.rows + row) * slices() + slice; }

    __device__ __forceinline__ const TensorMap& rows(const Position& next, u32& chunk) {
        at = next;
        chunk = at.chunk == sync.rank ? 0 : at.chunk;
        return at.chunk == sync.rank ? own : all;
    }

    __device__ __forceinline__ void await(u32 k) {
        if (at.chunk == sync.rank) return;
        if (pulls()) {
            if (k % STAGES_OF_SLICE != 0) return;
            wait_for_count(sync, count_of(at.chunk, at.row, k / STAGES_OF_SLICE), PIECES);
        } else {
            if (at.chunk == passed) return;
            wait_at_least<RELEASE_ACQUIRE>(sync, counts + at.chunk, 1, at.chunk, SITE_START);
            passed = at.chunk;
        }
        asm volatile("fence.proxy.async.global;" : : : "memory");
    }

    // Rows `row` and behind it of a rank's part, from byte `column` of each on.
    __device__ __forceinline__ void pull_piece(u32 rank, u32 row, u32 column) const {
        u32 rows = (u32)(part_bytes / row_bytes), lane = threadIdx.x % 32 * 16;
        u64 first = row * row_bytes + column + lane;
        const u8* from = (const u8*)input.address[rank] + first;
        u8* to = (u8*)gathered + rank * part_bytes + first;
        enum : u32 { PACKS_OF_ROW = PACKS / PIECE_ROWS };
        if (row + PIECE_ROWS <= rows && column + SLICE_BYTES <= row_bytes) {
            Pack packs[PIECE_ROWS][PACKS_OF_ROW];
#pragma unroll
            for (u32 i = 0; i < PIECE_ROWS; i++)
#pragma unroll
                for (u32 j = 0; j < PACKS_OF_ROW; j++) packs[i][j] = load_pack(from + i * row_bytes + j * 512);
#pragma unroll
            for (u32 i = 0; i < PIECE_ROWS; i++)
#pragma unroll
                for (u32 j = 0; j < PACKS_OF_ROW; j++) store_pack(to + i * row_bytes + j * 512, packs[i][j]);
        } else {
            u32 end = min(column + SLICE_BYTES, (u32)row_bytes);
            for (u32 i = 0; i < PIECE_ROWS && row + i < rows; i++)
                for (u32 j = 0; column + lane + j < end; j += 512) store_pack(to + i * row_bytes + j, load_pack(from + i * row_bytes + j));
        }
    }

    __device__ __forceinline__ void assist() const {
        if (!pulls()) return;
        u32 epoch = sync.epochs[blockIdx.x] + 1;
        meet_pullers<RELAXED>(sync, epoch, SITE_START);
        // Fewer than 2^31: what is gathered has at most 2^41 bytes.
        u32 of_row = slices() * PIECES, of_part = raster.rows * of_row;
        for (u32 piece = blockIdx.x * PULLERS + threadIdx.x / 32 - 1; piece < (sync.world - 1) * of_part; piece += gridDim.x * PULLERS) {
            u32 rank = rank_after(sync, 1 + piece / of_part), in_part = piece % of_part;
            u32 top = in_part / (raster.group * of_row) * raster.group, height = min(raster.group, raster.rows - top);
            u32 in_group = in_part - top * of_row, slice = in_group / (height * PIECES), in_slice = in_group % (height * PIECES);
            u32 row = top + in_slice / PIECES;
            pull_piece(rank, row * ROWS + in_slice % PIECES * PIECE_ROWS, slice * SLICE_BYTES);
            __syncwarp();
            if (threadIdx.x % 32 == 0) add_to_count(count_of(rank, row, slice));
        }
        meet_pullers<RELAXED>(sync, epoch + 1, SITE_END);
        if (threadIdx.x == 32) sync.epochs[blockIdx.x] = epoch + 1;
    }
};

// `ended`: blocks that ended, 0 before and after.
template <class T, class Tile, class Source>
__device__ __forceinline__ void fused(const Source& source, const TensorMap& b, const TensorMap& c, u32 depth, u32* ended) {
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
        for (u32* count = source.counts + threadIdx.x; count < source.count_of(source.raster.chunks, 0, 0); count += MATMUL_THREADS) *count = 0;
}

#define ENTRY(NAME, T, N, CLUSTER, B_ALONG_N)                                                                                \
    extern "C" __global__ void __launch_bounds__(MATMUL_THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)                           \
        all_gather_matmul_fused_##NAME(const __grid_constant__ TensorMap own, const __grid_constant__ TensorMap all,          \
                                       const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,              \
                                       const __grid_constant__ Raster raster, u32 depth, u64 gathered, u64 part_bytes,        \
                                       u64 row_bytes, u32* counts, u32* ended, const __grid_constant__ Sync sync,             \
                                       const __grid_constant__ Peers input) {                                                 \
        using Tiles = Tile<N, CLUSTER, B_ALONG_N>;                                                                            \
        Gathered<Tiles::M * CLUSTER> source{own, all, input, gathered, part_bytes, row_bytes, counts, raster, sync};          \
        fused<T, Tiles>(source, b, c, depth, ended);                                                                         \
    }
#include "../matmul/entries.cuh"
