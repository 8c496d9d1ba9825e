// C (M x N) = A (M x K) times B, sums in f32, rounded once. A and C with their rows contiguous; B either N x K (K contiguous, as weights
// lie in torch) or K x N (N contiguous). Any M, N and K: what of a tile lies outside loads as zeros and is not stored.
//
// One block an SM, three warpgroups. The first is the producer: one thread loads boxes of A and B into a ring of stages.
// The other two multiply, 64 rows of the tile each, and store C through shared memory while the producer loads the next tile.
//
//   full[stage]:  the copies complete on it -> the consumers' wait. Publishes A and B.
//   empty[stage]: every consumer warp arrives, in a cluster at both blocks, once its products have read -> the producer's wait.
//   staging of C: stmatrix, fence.proxy.async, barrier of the warpgroup -> its first thread's store; that thread's wait for
//                 the reads of the store before the last one, barrier of the warpgroup -> stmatrix.
//
// In a cluster of two blocks the tiles of both lie below each other: each loads half of B and multicasts it to both.
//
// What was tried: docs/performance/experiments.md.
#pragma once
#include "tma.cuh"
#include "wgmma.cuh"

// A block is launched with as many registers as its threads can have, each 8 of them: no more can be given out, and a warp that asks for more waits for ever.
enum : u32 { WARPGROUP = 128, MATMUL_THREADS = 3 * WARPGROUP, LAUNCH_REGISTERS = 65536 / MATMUL_THREADS / 8 * 8 };

// Sizes in elements unless they say bytes.
template <u32 N_, u32 CLUSTER_, bool B_ALONG_N_>
struct Tile {
    enum : u32 {
        M = 128,
        N = N_,
        K = 64,
        CLUSTER = CLUSTER_,
        // Of one box of C: the widest swizzled row that divides a tile.
        COLUMNS = N % 64 == 0 ? 64 : N % 32 == 0 ? 32 : 16,
        BOXES = N / COLUMNS,
        // Of B where N is contiguous: rows of 128 bytes, the last of them read in part.
        B_COLUMNS = 64,
        B_BOXES = (N + B_COLUMNS - 1) / B_COLUMNS,
        B_BOX_BYTES = B_COLUMNS * K * 2,
        A_BYTES = M * K * 2,
        B_BYTES = B_ALONG_N_ ? B_BOXES * B_BOX_BYTES : N * K * 2,
        STAGE_BYTES = A_BYTES + B_BYTES,
        STAGES = N <= 128 ? 6 : 4,
        // What the stages leave of 224 KiB stages C: for each consumer two batches of boxes.
        DATA_BYTES = 224 * 1024,
        BOX_BYTES = 64 * COLUMNS * 2,
        BATCH = (DATA_BYTES - STAGES * STAGE_BYTES) / 4 / BOX_BYTES,
        SHARED_BYTES = DATA_BYTES + 2 * STAGES * 8,
    };
    enum : bool { B_ALONG_N = B_ALONG_N_ };
};

// Which tiles there are, and in which order. A and C are `chunks` matrices below each other, of which no tile has rows of two. Their
// order starts at chunk `first` and goes round. In a chunk, `group` rows of tiles at a time (of both blocks of a cluster), down each of
// their columns, so that what runs at a time shares A and B in the L2.
struct Raster {
    u32 chunks, first, rows, columns, group;

    __device__ __forceinline__ u32 tiles() const { return chunks * rows * columns; }
};

// A tile, in tiles of its chunk.
struct Position {
    u32 chunk, row, column;

    __device__ __forceinline__ Position(const Raster& raster, u32 tile) {
        u32 before = tile / (raster.rows * raster.columns);
        tile -= before * raster.rows * raster.columns;
        chunk = raster.first + before < raster.chunks ? raster.first + before : raster.first + before - raster.chunks;
        u32 top = tile / (raster.group * raster.columns) * raster.group;
        u32 height = raster.rows - top < raster.group ? raster.rows - top : raster.group;
        tile -= top * raster.columns;
        column = tile / height;
        row = top + tile - column * height;
    }
};

// A that is there when the kernel starts.
struct Given {
    // Of each thread of the producer's warpgroup; consumers get what is left of those that the block is launched with.
    enum : u32 { REGISTERS = 56 };

    const TensorMap& a;

    // What one thread does before the others go on.
    __device__ __forceinline__ void begin() const { prefetch(a); }
    // Which tensor has the rows of A of a tile, as its matrix `chunk`. The producer's thread asks.
    __device__ __forceinline__ const TensorMap& rows(const Position& at, u32& chunk) {
        chunk = at.chunk;
        return a;
    }
    // Returns when what stage `k` of that tile has of these rows is there.
    __device__ __forceinline__ void await(u32) {}
    // What the three warps do that neither load nor multiply.
    __device__ __forceinline__ void assist() const {}
};

// C that is one tensor.
struct Stored {
    const TensorMap& c;

    __device__ __forceinline__ void begin() const { prefetch(c); }
    // Which tensor a tile is stored to, as its matrix `chunk`.
    __device__ __forceinline__ const TensorMap& rows(const Position& at, u32& chunk) const {
        chunk = at.chunk;
        return c;
    }
    // A consumer's thread that stores is about to store a tile.
    __device__ __forceinline__ void next(const Position&) const {}
    // It stores a box of it.
    __device__ __forceinline__ void store(const TensorMap& to, u32 from, u32 x, u32 y, u32 chunk) const { store_box(to, from, x, y, chunk); }
    // It is at this step of the next one.
    __device__ __forceinline__ void step(u32, u32) const {}
    // What a consumer's threads do when all its stores have completed, as the thread that stores knows.
    template <class T>
    __device__ __forceinline__ void finish(u32, u32, u32) const {}
};

// Where the ring of stages is: the stage, and the parity of its round.
template <class Tile>
struct Place {
    u32 stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == Tile::STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

template <class Tile>
__device__ __forceinline__ void load_stage(const TensorMap& a, const TensorMap& b, u32 stage, u32 full, u32 k, u32 chunk, u32 row, u32 column, u32 block) {
    expect(full, Tile::STAGE_BYTES);
    load_box(a, stage, k, row, chunk, full);
    u32 to = stage + Tile::A_BYTES;
    if constexpr (Tile::B_ALONG_N) {
        enum : u32 { DEEP = Tile::K / Tile::CLUSTER };
#pragma unroll
        for (u32 box = 0; box < Tile::B_BOXES; box++) {
            u32 at = to + box * Tile::B_BOX_BYTES + block * DEEP * Tile::B_COLUMNS * 2;
            if constexpr (Tile::CLUSTER == 1)
                load_box(b, at, column + box * Tile::B_COLUMNS, k, full);
            else
                multicast_box(b, at, column + box * Tile::B_COLUMNS, k + block * DEEP, full, 3);
        }
    } else if constexpr (Tile::CLUSTER == 1) {
        load_box(b, to, k, column, full);
    } else {
        enum : u32 { HALF = Tile::N / 2 };
        multicast_box(b, to + block * HALF * Tile::K * 2, k, column + block * HALF, full, 3);
    }
}

// One consumer's sums of one tile.
template <class T, class Tile>
__device__ __forceinline__ void multiply_stage(float (&sums)[Tile::N / 2], u32 stage, u32 consumer, bool keep) {
    u64 a = descriptor(stage + consumer * 64 * Tile::K * 2, 16);
    u32 at = stage + Tile::A_BYTES;
    // 16 of K are 16 rows of B where N is contiguous, else 32 bytes of every row.
    enum : u32 { B_STEP = Tile::B_ALONG_N ? 16 * 128 : 32 };
    u64 b = descriptor(at, Tile::B_ALONG_N ? Tile::B_BOX_BYTES : 16);
#pragma unroll
    for (u32 k = 0; k < Tile::K / 16; k++)
        multiply<T, Tile::N, Tile::B_ALONG_N>(sums, a + (k * 32 >> 4), b + (k * B_STEP >> 4), keep || k > 0);
}

// Rounds a consumer's sums and stores them at (row, column) of its chunk of C.
template <class T, class Tile, class Sink>
__device__ __forceinline__ void store_tile(Sink& sink, const Position& at, const float (&sums)[Tile::N / 2], u32 staging, u32& batches, u32 barrier,
                                           u32 column, u32 row) {
    u32 chunk;
    const TensorMap& c = sink.rows(at, chunk);
    enum : u32 { PITCH = Tile::COLUMNS * 2, SWIZZLE = PITCH / 16 - 1 };
    u32 thread = threadIdx.x % WARPGROUP, lane = thread % 32;
    // The row of 16 bytes that this thread addresses in stmatrix: matrices 0 and 1 are below each other, 2 and 3 to their right.
    u32 in_row = (thread / 32) * 16 + lane % 16, in_chunk = lane / 16;
#pragma unroll
    for (u32 first = 0; first < Tile::BOXES; first += Tile::BATCH) {
        u32 half = staging + (batches++ & 1) * Tile::BATCH * Tile::BOX_BYTES;
        if (thread == 0) wait_stores_read<1>();
        named_barrier(barrier, WARPGROUP);
#pragma unroll
        for (u32 box = first; box < first + Tile::BATCH && box < Tile::BOXES; box++) {
#pragma unroll
            for (u32 j = 0; j < Tile::COLUMNS; j += 16) {
                const float* s = sums + (box * Tile::COLUMNS + j) / 2;
                u32 offset = in_row * PITCH + (j / 8 + in_chunk) * 16;
                offset ^= (offset >> 7 & SWIZZLE) << 4;
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                             :
                             : "r"(half + (box - first) * Tile::BOX_BYTES + offset), "r"(T::pack(s[0], s[1])), "r"(T::pack(s[2], s[3])),
                               "r"(T::pack(s[4], s[5])), "r"(T::pack(s[6], s[7]))
                             : "memory");
            }
        }
        publish_to_copies();
        named_barrier(barrier, WARPGROUP);
        if (thread == 0) {
            for (u32 box = first; box < first + Tile::BATCH && box < Tile::BOXES; box++)
                sink.store(c, half + (box - first) * Tile::BOX_BYTES, column + box * Tile::COLUMNS, row, chunk);
            commit_stores();
        }
    }
}

template <class T, class Tile, class Source, class Sink>
__device__ __forceinline__ void matmul(Source source, const TensorMap& b, Sink sink, const Raster& raster, u32 depth) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 stages = shared_address(shared), full = stages + Tile::DATA_BYTES, empty = full + Tile::STAGES * 8;
    u32 block = Tile::CLUSTER == 1 ? 0 : block_of_cluster();
    u32 warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP, 0);
    if (threadIdx.x == 0) {
        source.begin();
        prefetch(b);
        sink.begin();
        for (u32 stage = 0; stage < Tile::STAGES; stage++) {
            init_barrier(full + stage * 8, 1);
            init_barrier(empty + stage * 8, 2 * 4 * Tile::CLUSTER);
        }
        publish_barriers();
    }
    if constexpr (Tile::CLUSTER == 1)
        __syncthreads();
    else
        cluster_barrier();

    u32 tiles = raster.tiles(), step = gridDim.x / Tile::CLUSTER;
    Place<Tile> place;
    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"((u32)Source::REGISTERS));
        if (threadIdx.x == 0) {
            for (u32 tile = blockIdx.x / Tile::CLUSTER; tile < tiles; tile += step) {
                Position at(raster, tile);
                u32 row = (at.row * Tile::CLUSTER + block) * Tile::M, column = at.column * Tile::N, chunk;
                const TensorMap& a = source.rows(at, chunk);
                for (u32 k = 0; k < depth; k++, place.advance()) {
                    source.await(k);
                    wait_phase(empty + place.stage * 8, place.parity ^ 1);
                    load_stage<Tile>(a, b, stages + place.stage * Tile::STAGE_BYTES, full + place.stage * 8, k * Tile::K, chunk, row, column, block);
                }
            }
        } else if (threadIdx.x >= 32) {
            source.assist();
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"((3 * LAUNCH_REGISTERS - (u32)Source::REGISTERS) / 2 / 8 * 8));
        u32 consumer = warpgroup - 1, batches = 0;
        u32 staging = stages + Tile::STAGES * Tile::STAGE_BYTES + consumer * 2 * Tile::BATCH * Tile::BOX_BYTES;
        // The first CLUSTER lanes of a warp say to one block each that it has read a stage.
        auto release = [&](u32 stage) {
            if constexpr (Tile::CLUSTER == 1) {
                if (threadIdx.x % 32 == 0) arrive(empty + stage * 8);
            } else {
                if (threadIdx.x % 32 < Tile::CLUSTER) arrive_at(empty + stage * 8, threadIdx.x % 32);
            }
        };
        for (u32 tile = blockIdx.x / Tile::CLUSTER; tile < tiles; tile += step) {
            Position at(raster, tile);
            u32 row = (at.row * Tile::CLUSTER + block) * Tile::M + consumer * 64;
            float sums[Tile::N / 2];
            u32 before = 0;
            for (u32 k = 0; k < depth; k++) {
                wait_phase(full + place.stage * 8, place.parity);
                begin_products();
                multiply_stage<T, Tile>(sums, stages + place.stage * Tile::STAGE_BYTES, consumer, k > 0);
                commit_products();
                // One group stays under way, so that the tensor cores never wait for a release.
                wait_products<1>();
                if (k > 0) release(before);
                if (threadIdx.x % WARPGROUP == 0) sink.step(k, depth);
                before = place.stage;
                place.advance();
            }
            wait_products<0>();
            settle(sums);
            release(before);
            if (threadIdx.x % WARPGROUP == 0) sink.next(at);
            store_tile<T, Tile>(sink, at, sums, staging, batches, 1 + consumer, at.column * Tile::N, row);
        }
        if (threadIdx.x % WARPGROUP == 0) wait_stores();
        sink.template finish<T>(consumer, block, step);
    }
    // No block may end while the other still arrives at its barriers or multicasts into it.
    __syncwarp();
    if constexpr (Tile::CLUSTER != 1) cluster_barrier();
}
