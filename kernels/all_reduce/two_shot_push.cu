// all_reduce/two_shot_push: every rank owns one slice; all push their elements of it to its pad, it reduces them in ascending rank order and pushes
// the result into every rank's pad, both times in LL lines.
//
// Over the link: 4 x (world - 1) / world x bytes into each rank, half of them flags, in two trips without a barrier. For messages of middle size,
// from where one_shot_push sends too much up to where the flags cost more than two_shot's barriers.
//
// Slices are of whole lines, all of one length but for the last, which ends with the elements. Thread i of every rank has line i of every slice;
// where a slice has none, an empty one is sent. The lines are those of common/lines.cuh, with a count each. But here the two slots of a (line, source)
// belong to the two phases, not to two parities, and each phase is what makes the slots of the other free:
//
//   scatter (relaxed): our elements of the peer's slice and count -> slot (SCATTER, our rank) of the line in the peer's pad -> its poll for
//           exactly this count.
//   gather  (relaxed): our reduced slice and count -> slot (GATHER, our rank) of the line in the peer's pad -> its poll for exactly this
//           count. It is data that the polls have seen, and nothing else is for others to read.
//
// We store to a peer's slot of SCATTER with count c + 1 after we have had its line of GATHER of count c, which it sent after its poll of that slot for
// c had succeeded. We store to its slot of GATHER with count c + 1 after we have had its line of SCATTER of count c + 1, which it sent after its
// poll of that slot for c had. So a slot that is polled for c holds c, c - 1 or, before its first use, 0, and a count may wrap to 0.
//
// No rank waits in a circle: lines are taken in ascending order by every thread, of a line SCATTER before GATHER, so there is a least (line, phase)
// that some rank waits for, and no rank has anything before it to wait for.
//
// In place, what a thread overwrites are the elements that it alone has read, all of them before it sent its first line of the gather.
#define FEW_ENTRIES
#include "../common/lines.cuh"

// Which of a line's two slots: they stand where other kernels have its parities.
enum : u32 { SCATTER = 0, GATHER = 1 };

// As store_payload, in less code: it is there for each source.
template <typename T>
__device__ __forceinline__ void store_gathered(u64 to, u32 line, u32 count, const Pack& p) {
    u64 at = to + (u64)line * 8;
    u32 first = line * LINE_LANES<T>;
    if ((to & 7) == 0 && first + LINE_LANES<T> <= count) {
        asm volatile("st.global.v2.u32 [%0], {%1,%2};" : : "l"(at), "r"(p.word[0]), "r"(p.word[1]) : "memory");
    } else {
        using Stored = typename T::Stored;
        u64 rest = p.word[0] | (u64)p.word[1] << 32;
#pragma unroll 1
        for (u32 j = 0; j < LINE_LANES<T> && first + j < count; j++) {
            ((Stored*)at)[j] = (Stored)rest;
            if constexpr (LINE_LANES<T> > 1) rest >>= 8 * sizeof(Stored);
        }
    }
}

// `sync.pads` are the pads of lines and `sync.epochs` the counts, a word for each line of a slice.
template <typename T, typename Op>
__device__ __forceinline__ void two_shot_push(u64 input, u64 output, u32 elements, u32 average, const Sync& sync) {
    stall<SITE_ENTER>(sync);
    u32 slice = (lines_of<T>(elements) + sync.world - 1) / sync.world;
    u64 pad = sync.pads.address[sync.rank];
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < slice; i += gridDim.x * blockDim.x) {
        u32 count = sync.epochs[i] + 1;
        Pack own = load_payload<T>(input, sync.rank * slice + i, elements);
        stall<SITE_START>(sync);
        u64 slot = line_slot(i, SCATTER, sync.world);
        send_lines(sync, slot, count, [&](u32 peer) { return load_payload<T>(input, peer * slice + i, elements); });
        Pack sum = reduce_lines<T, Op>(sync, pad + slot, own, count, average);
        slot = line_slot(i, GATHER, sync.world);
#pragma unroll 1
        for (u32 step = 1; step < sync.world; step++)
            store_line(sync.pads.address[rank_after(sync, step)] + slot + sync.rank * ROW, sum, count);
        stall<SITE_END>(sync);
        receive_lines(sync, pad + slot, sum, count, [&](u32 rank, bool, const Pack& payload) {
            store_gathered<T>(output, rank * slice + i, elements, payload);
        });
        sync.epochs[i] = count;
    }
    stall<SITE_LEAVE>(sync);
}

// Sum with `average` != 0 divides by the world size before the rounding. At most 2^31 elements, of which two_shot_push.rs lets through
// fewer.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_reduce_two_shot_push_##NAME(u64 input, u64 output, u32 elements, u32 average, const __grid_constant__ Sync sync) {        \
        two_shot_push<T, OP>(input, output, units<T>(elements, average), average, sync);                                              \
    }
#include "../common/entries.cuh"
