// all_reduce/one_shot_push: every rank pushes its whole input into every rank's pad, in lines that carry their flag, and reduces what it finds
// in its own pad in ascending rank order.
//
// Over the link: 2 x (world - 1) x bytes into each rank, half of them flags, in one trip without a barrier. For small messages.
//
// Thread i has line i, eight bytes of data (common/lines.cuh). A line knows nothing of other lines, blocks or grids: it has a count of its own,
// the number of calls that had this line, which is the flag. It is kept on the device, so that a captured launch replays, and read and
// written by the line's one thread. All ranks make the same calls, so it is the same on all.
//
//   line (relaxed): our data and count -> slot (count's parity, our rank) of the line in the peer's pad -> peer's poll for exactly this count.
//        It is data that the poll has seen. Nothing else is for others to read: inputs and outputs are the rank's own, so that whatever
//        follows on its stream may overwrite them, in place or not.
//
// Why two parities are enough: we store with count c + 2 into a slot only after we have had the peer's line of count c + 1. The peer sent it
// in a launch after the one in which it polled that slot for c, on the same stream, and that launch ended with the poll's success. So
// a rank may be a call ahead of a peer that still reads, which is the other parity, and never two. A slot that is polled for c holds c,
// c - 2 or, before its first use, 0. So exactly c is waited for, and a count that wraps to 0 after 2^32 calls is one like any other:
// by then the slot holds 2^32 - 2.
//
// A call with fewer lines leaves the others' counts and slots alone, on all ranks alike. Lines are taken in ascending order by every thread, so
// there is a least line that some rank waits for, and no rank has anything before it to wait for: grids need not even be the same.
//
// What it should take with 8 KiB, in us: an empty node of a graph 0.54, count and input from L2 0.3, one way over the link 0.75 (half of the
// round trip of a flag), half a turn of polling 0.2, the result's store and the launch's end 0.3, and with eight ranks 0.3 for 114 KB into
// each. So 2.1 with two ranks and 2.4 with eight, plus what ranks drift apart.
#include "../common/lines.cuh"
#include "../common/reduce.cuh"

// Sends a line to all peers, the next rank first, so that not all ranks write to the same one at a time.
__device__ __forceinline__ void send(const Sync& sync, u64 slot, const Pack& own, u32 count) {
#pragma unroll 1
    for (u32 base = 0; base < sync.world; base += FLIGHT) {
#pragma unroll
        for (u32 i = 0; i < FLIGHT; i++) {
            u32 step = base + i;
            if (step == 0 || step >= sync.world) continue;
            u32 peer = sync.rank + step < sync.world ? sync.rank + step : sync.rank + step - sync.world;
            store_line(sync.pads.address[peer] + slot + sync.rank * ROW, own, count);
        }
    }
}

// Waits for the line of every peer and reduces them and our own.
template <typename T, typename Op>
__device__ __forceinline__ Pack receive(const Sync& sync, u64 slots, const Pack& own, u32 count, bool average) {
    typename T::Acc acc[LINE_LANES<T>];
#pragma unroll 1
    for (u32 base = 0; base < sync.world; base += FLIGHT) {
        Pack flight[FLIGHT];
        u64 start = 0;
        while (true) {
#pragma unroll
            for (u32 i = 0; i < FLIGHT; i++)
                if (base + i < sync.world && base + i != sync.rank) flight[i] = load_line(slots + (base + i) * ROW);
            // The clock is read while the loads are under way, and costs nothing.
            u64 now = nanoseconds();
            u32 not_here = 0;
#pragma unroll
            for (u32 i = 0; i < FLIGHT; i++)
                if (base + i < sync.world && base + i != sync.rank) not_here |= missing(flight[i], count);
            if (!not_here) break;
            if (!start) start = now;
            if (is_given_up(sync, now - start)) {
                report_missing(sync, slots, count, base, (u32)least(base + FLIGHT, sync.world), SITE_END);
                break;
            }
        }
#pragma unroll
        for (u32 i = 0; i < FLIGHT; i++)
            if (base + i < sync.world) {
                bool is_own = base + i == sync.rank;
                Pack payload = {{is_own ? own.word[0] : flight[i].word[0], is_own ? own.word[1] : flight[i].word[2], 0, 0}};
#pragma unroll
                for (u32 j = 0; j < LINE_LANES<T>; j++) {
                    typename T::Acc x = T::widen(lane<T>(payload, j));
                    acc[j] = i == 0 && base == 0 ? x : Op::apply(acc[j], x);
                }
            }
    }
    Pack sum = {{0, 0, 0, 0}};
#pragma unroll
    for (u32 j = 0; j < LINE_LANES<T>; j++) set_lane<T>(sum, j, T::narrow(average ? divide(acc[j], sync.world) : acc[j]));
    return sum;
}

// `sync.pads` are the pads of lines and `sync.epochs` the counts, a word for each line.
template <typename T, typename Op>
__device__ __forceinline__ void one_shot_push(u64 input, u64 output, u32 elements, u32 average, const Sync& sync) {
    stall(sync, SITE_ENTER);
    u32 lines = (elements + LINE_LANES<T> - 1) / LINE_LANES<T>;
    for (u32 line = blockIdx.x * blockDim.x + threadIdx.x; line < lines; line += gridDim.x * blockDim.x) {
        u32 count = sync.epochs[line] + 1;
        Pack own = load_payload<T>(input, line, elements);
        stall(sync, SITE_START);
        u64 slot = line_slot(line, count & 1, sync.world);
        send(sync, slot, own, count);
        stall(sync, SITE_END);
        Pack sum = receive<T, Op>(sync, sync.pads.address[sync.rank] + slot, own, count, average);
        sync.epochs[line] = count;
        store_payload<T>(output, line, elements, sum);
    }
    stall(sync, SITE_LEAVE);
}

// Sum with `average` != 0 divides by the world size before the rounding. At most 2^31 elements, of which one_shot_push.rs lets through
// fewer.
#define ENTRY(NAME, T, OP)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_reduce_one_shot_push_##NAME(u64 input, u64 output, u32 elements, u32 average, const __grid_constant__ Sync sync) {        \
        one_shot_push<T, OP>(input, output, elements, average, sync);                                                                 \
    }
#include "../common/entries.cuh"
