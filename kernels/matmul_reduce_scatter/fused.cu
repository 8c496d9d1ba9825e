// matmul_reduce_scatter/fused: C = the rank's rows of the sum over ranks of A x B, A having each rank's rows below the other's.
//
// The peers' rows come first, from the next rank on, the own ones last. A tile of a peer's rows is stored to this rank's memory, and a word tells the peer, where three warps of
// each block that neither load nor multiply pull it, all blocks together, in the order in which tiles are made. Between two ranks they pull it into C, to which TMA
// adds the own tile of the same place when that is made: a sum of two values of the type, rounded once, is the same by whatever adds. Among more they pull it into slots,
// and when a consumer has no tile left, it adds what all ranks made of its own tiles of the own rows: in rank order, each rounded to the type before, in f32,
// and rounded once.
//
//   stored:          a consumer's stores of its half of a tile have completed, st.release.cta of the half's word into a mailbox -> ld.acquire.cta of a puller.
//   made:            fence.proxy.async, st.release.sys of that word at the owner -> ld.acquire.sys of each puller of a piece of it, barrier of its warp. A puller tells,
//                    for a consumer that waits for a release of system scope does not multiply.
//   pulled:          a piece of a half, barrier of the warp, count -> ld.acquire of the consumer that made the own half, then fence.proxy.async: its TMA
//                    adds to all pieces; among more than two, barrier of the consumer, whose threads load them.
//   own:             among more than two, a consumer's stores have completed, fence.proxy.async, its barrier -> its loads from the own slot.
//   end:             our reads and the words that we set back, barrier of the pullers, st.release.sys of our epoch -> peer's ld.acquire.sys. Its tiles may be overwritten, and
//                    we be told of new ones. Pullers wait for it while the product goes on.
//
// Words and counts are 0 before and after: who pulls the last piece of a half sets its word back, who waits for a count that.
//
// No consumer waits for a peer's tile before it has posted all of its own for peers, and those of its cluster can go on until they have. Pullers tell of them while
// they wait. So what any of them waits for never waits for it.
//
// What was tried: docs/performance/experiments.md.
// target: compute_90a
#include "../matmul/matmul.cuh"
#include "../matmul/pullers.cuh"

// Steps after which a tile's stores have completed, so that nobody waits for them.
enum : u32 { POSTED_AT = 2 };

// What ranks exchange: halves of tiles, one of each consumer of each block of a cluster.
template <class Tile>
struct Exchange {
    enum : u32 {
        HALVES = Tile::CLUSTER * 2,  // of the tiles of a cluster
        HALF_ROWS = Tile::M / 2,
        ROW_PACKS = Tile::N / 8,
        PACKS = 16,                               // that a lane has under way, each in another row
        ROWS_AT_ONCE = ROW_PACKS <= 16 ? 2 : 1,  // of a warp
        PIECE_ROWS = PACKS * ROWS_AT_ONCE,
        PIECES = HALF_ROWS / PIECE_ROWS,
    };

    const Peers& products;  // of every rank, rows of all ranks: tiles of the peers' rows
    u64 to;                 // between two ranks C, among more a slot like it for each rank
    u64 c;
    u32 height, width;      // of C
    const Peers& words;     // of every rank, for each rank and half of the own rows: 1 when it is made
    u32* counts;            // in the same way, pieces that were pulled
    const Raster& raster;
    const Sync& sync;
    u32 mailboxes;          // in shared memory, for each consumer: the word of a half that it has stored, until a puller tells of it

    __device__ __forceinline__ u64 bytes() const { return (u64)height * width * 2; }
    // Whether TMA adds the own tiles to what is pulled.
    __device__ __forceinline__ bool adds_in_place() const { return sync.world == 2; }
    __device__ __forceinline__ u64 slot(u32 rank) const { return sync.world <= 2 ? to : to + rank * bytes(); }
    __device__ __forceinline__ u32 halves() const { return raster.rows * raster.columns * HALVES; }
    __device__ __forceinline__ u32 half(const Position& at, u32 block, u32 consumer) const {
        return (at.row * raster.columns + at.column) * HALVES + block * 2 + consumer;
    }
    __device__ __forceinline__ u32* word(u32 at, u32 from, u32 half) const { return (u32*)words.address[at] + from * halves() + half; }
    __device__ __forceinline__ u32* count(u32 from, u32 half) const { return counts + from * halves() + half; }
    // The first row of a half.
    __device__ __forceinline__ u32 top(const Position& at, u32 block, u32 consumer) const {
        return (at.row * Tile::CLUSTER + block) * Tile::M + consumer * HALF_ROWS;
    }

    __device__ __forceinline__ u64 mail(u32 consumer) const {
        u64 word;
        asm volatile("ld.acquire.cta.shared.u64 %0, [%1];" : "=l"(word) : "r"(mailboxes + consumer * 8) : "memory");
        return word;
    }
    __device__ __forceinline__ void set_mail(u32 consumer, u64 word) const {
        asm volatile("st.release.cta.shared.u64 [%0], %1;" : : "r"(mailboxes + consumer * 8), "l"(word) : "memory");
    }

    // A consumer's thread: a half has been stored, of which its owner is to be told.
    __device__ __forceinline__ void post(u32 consumer, u32* word) const {
        while (mail(consumer) != 0) {}
        set_mail(consumer, (u64)word);
    }

    // A puller: tells of what a consumer has posted. Returns how many words it told.
    __device__ __forceinline__ u32 tell(u32 consumer) const {
        u64 word = mail(consumer);
        if (word == 0) return 0;
        set_mail(consumer, 0);
        asm volatile("fence.proxy.async.global;" : : : "memory");
        store_signal<RELEASE_ACQUIRE>((u32*)word, 1);
        return 1;
    }

    // Pulls the piece of a rank's product of which these are the first row and column.
    __device__ __forceinline__ void pull(u32 from, u32 top, u32 left) const {
        enum : u32 { LANES = 32 / ROWS_AT_ONCE };
        u32 lane = threadIdx.x % LANES, x = left + lane * 8, y = top + threadIdx.x % 32 / LANES;
        if (lane >= ROW_PACKS || x >= width) return;
        u64 first = ((u64)y * width + x) * 2;
        u32 step = width * ROWS_AT_ONCE * 2;
        const u8* source = (const u8*)products.address[from] + sync.rank * bytes() + first;
        u8* target = (u8*)slot(from) + first;
        if (top + PIECE_ROWS <= height) {
            Pack packs[PACKS];
#pragma unroll
            for (u32 i = 0; i < PACKS; i++, source += step) packs[i] = load_pack(source);
#pragma unroll
            for (u32 i = 0; i < PACKS; i++, target += step) store_pack(target, packs[i]);
        } else {
            for (; y < height; y += ROWS_AT_ONCE, source += step, target += step) store_pack(target, load_pack(source));
        }
    }

    // What the warps do that pull: all pieces of the rows of this rank, first those of the rank before, which makes them first.
    __device__ __forceinline__ void pull_all() const {
        u32 puller = threadIdx.x / 32 - 1, untold = 0;
        // Each of the first two tells of one consumer's halves: as many as this block makes of the peers' rows.
        if (threadIdx.x % 32 == 0 && puller < 2) {
            u32 tile = blockIdx.x / Tile::CLUSTER, step = gridDim.x / Tile::CLUSTER, others = (sync.world - 1) * raster.rows * raster.columns;
            untold = tile < others ? (others - tile + step - 1) / step : 0;
        }
        for (u32 back = 1; back < sync.world; back++) {
            u32 from = sync.rank >= back ? sync.rank - back : sync.rank + sync.world - back;
            for (u32 i = blockIdx.x * PULLERS + puller; i < halves() * PIECES; i += gridDim.x * PULLERS) pull_piece(from, i / PIECES, i % PIECES, untold);
        }
        while (untold > 0) untold -= tell(puller);
        __syncwarp();
        u32 epoch = sync.epochs[blockIdx.x] + 1;
        meet_pullers<RELEASE_ACQUIRE>(sync, epoch, SITE_END);
        if (threadIdx.x == 32) sync.epochs[blockIdx.x] = epoch;
    }

    // A piece of the half of this number in the order in which they are made.
    __device__ __forceinline__ void pull_piece(u32 from, u32 number, u32 piece, u32& untold) const {
        u32 consumer = number % 2, block = number / 2 % Tile::CLUSTER;
        Position at(raster, number / HALVES);
        number = half(at, block, consumer);
        if (threadIdx.x % 32 == 0) {
            u64 start = nanoseconds();
            do {
                if (untold > 0) untold -= tell(threadIdx.x / 32 - 1);
            } while (load_signal<RELAXED>(word(sync.rank, from, number)) == 0 && nanoseconds() - start < sync.limit);
            wait_at_least<RELEASE_ACQUIRE>(sync, word(sync.rank, from, number), 1, from, SITE_START);
        }
        __syncwarp();
        pull(from, top(at, block, consumer) + piece * PIECE_ROWS, at.column * Tile::N);
        __syncwarp();
        if (threadIdx.x % 32 != 0) return;
        u32 before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(count(from, number)) : "memory");
        if (before == PIECES - 1) *word(sync.rank, from, number) = 0;
    }

    // Until a half was pulled, to which this thread's TMA and, behind a barrier, this consumer's threads may add.
    __device__ __forceinline__ void wait_for_half(u32 from, u32 half) const {
        wait_for_count(sync, count(from, half), PIECES);
        *count(from, half) = 0;
        asm volatile("fence.proxy.async.global;" : : : "memory");
    }
};

// A that is there, beside which warps pull.
template <class Tile>
struct Pulling : Given {
    enum : u32 { REGISTERS = 88 };

    const Exchange<Tile>& exchange;

    __device__ __forceinline__ Pulling(const TensorMap& a, const Exchange<Tile>& exchange) : Given{a}, exchange(exchange) {}
    __device__ __forceinline__ void begin() const {
        Given::begin();
        for (u32 consumer = 0; consumer < 2; consumer++) exchange.set_mail(consumer, 0);
    }
    __device__ __forceinline__ void assist() const { exchange.pull_all(); }
};

// C that is the sum over ranks: chunks of the product are the ranks' rows.
template <class Tile>
struct Summed {
    const TensorMap& products;  // this rank's, as one matrix for each rank's rows
    const TensorMap& own;       // where the own tiles go
    const Exchange<Tile>& exchange;
    u32* unposted = 0;  // the word of the half that was stored last
    bool adds = false;  // the tile that is stored to what was pulled

    __device__ __forceinline__ void begin() const {
        prefetch(products);
        prefetch(own);
    }

    __device__ __forceinline__ const TensorMap& rows(const Position& at, u32& chunk) const {
        bool is_own = at.chunk == exchange.sync.rank;
        chunk = is_own ? 0 : at.chunk;
        return is_own ? own : products;
    }

    __device__ __forceinline__ u32 consumer() const { return threadIdx.x / WARPGROUP - 1; }

    __device__ __forceinline__ void next(const Position& at) {
        const Sync& sync = exchange.sync;
        post();
        u32 half = exchange.half(at, Tile::CLUSTER == 1 ? 0 : block_of_cluster(), consumer());
        adds = at.chunk == sync.rank && exchange.adds_in_place();
        if (adds) exchange.wait_for_half(sync.rank ^ 1, half);
        if (at.chunk != sync.rank) unposted = exchange.word(at.chunk, sync.rank, half);
    }

    __device__ __forceinline__ void store(const TensorMap& to, u32 from, u32 x, u32 y, u32 chunk) const {
        if (adds)
            add_box(to, from, x, y, chunk);
        else
            store_box(to, from, x, y, chunk);
    }

    // By this step stores have completed.
    __device__ __forceinline__ void step(u32 k, u32 depth) {
        if (k == min(POSTED_AT, depth - 1)) post();
    }

    __device__ __forceinline__ void post() {
        if (unposted == 0) return;
        wait_stores();
        exchange.post(consumer(), unposted);
        unposted = 0;
    }

    // Among more than two ranks: adds the products of this consumer's tiles of our rows.
    template <class T>
    __device__ __forceinline__ void finish(u32 consumer, u32 block, u32 step) {
        const Sync& sync = exchange.sync;
        const Raster& raster = exchange.raster;
        u32 thread = threadIdx.x % WARPGROUP, of_chunk = raster.rows * raster.columns;
        if (thread == 0) {
            post();
            asm volatile("fence.proxy.async.global;" : : : "memory");
        }
        if (sync.world <= 2) return;
        // They are the last of the order.
        u32 first = blockIdx.x / Tile::CLUSTER, others = raster.tiles() - of_chunk;
        if (first < others) first += (others - first + step - 1) / step * step;
        for (u32 tile = first; tile < raster.tiles(); tile += step) {
            Position at(raster, tile);
            if (thread < sync.world && thread != sync.rank) exchange.wait_for_half(thread, exchange.half(at, block, consumer));
            named_barrier(1 + consumer, WARPGROUP);
            u64 top = exchange.top(at, block, consumer), left = at.column * Tile::N;
            enum : u32 { OF_HALF = Exchange<Tile>::HALF_ROWS * Exchange<Tile>::ROW_PACKS, AT_ONCE = 8 };
#pragma unroll 1
            for (u32 pack = thread; pack < OF_HALF; pack += AT_ONCE * WARPGROUP) {
                u64 offsets[AT_ONCE];
                bool there[AT_ONCE];
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; i++) {
                    u64 y = top + (pack + i * WARPGROUP) / Exchange<Tile>::ROW_PACKS, x = left + (pack + i * WARPGROUP) % Exchange<Tile>::ROW_PACKS * 8;
                    there[i] = pack + i * WARPGROUP < OF_HALF && y < exchange.height && x < exchange.width;
                    offsets[i] = (y * exchange.width + x) * 2;
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
        for (u32 rank = 0; rank < exchange.sync.world; rank++) {
            u64 slot = exchange.slot(rank);
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
            if (there[i]) store_pack((void*)(exchange.c + offsets[i]), sum);
        }
    }
};

// Behind what the product has in shared memory.
template <class Tile>
__device__ __forceinline__ u32 mailboxes() {
    extern __shared__ __align__(1024) u8 shared[];
    return shared_address(shared) + Tile::SHARED_BYTES;
}

#define ENTRY(NAME, T, N, CLUSTER, B_ALONG_N)                                                                                               \
    extern "C" __global__ void __launch_bounds__(MATMUL_THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)                                          \
        matmul_reduce_scatter_fused_##NAME(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,                        \
                                           const __grid_constant__ TensorMap made, const __grid_constant__ TensorMap own,                   \
                                           const __grid_constant__ Raster raster, u32 depth, u64 to, u64 c, u32 height,                     \
                                           u32 width, u32* counts, const __grid_constant__ Sync sync,                                       \
                                           const __grid_constant__ Peers products, const __grid_constant__ Peers words) {                   \
        using Tiles = Tile<N, CLUSTER, B_ALONG_N>;                                                                                          \
        Exchange<Tiles> exchange{products, to, c, height, width, words, counts, raster, sync, mailboxes<Tiles>()};                              \
        matmul<T, Tiles>(Pulling<Tiles>(a, exchange), b, Summed<Tiles>{made, own, exchange}, raster, depth);                                  \
    }
#include "../matmul/entries.cuh"
