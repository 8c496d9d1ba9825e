// Lines: data that carries its own flag. One store over the link delivers eight bytes and tells that they are there.
//
// A line is 16 bytes, {data, flag, data, flag}, stored and loaded as one vector. Flags stand beside the data and not in it, so no bit
// pattern of the data means anything, and the flag next to a word says whether it was written.
//
// Both sides are strong operations of system scope on the same four words, so there is no race. But PTX takes a vector for scalar accesses in
// unspecified order (PTX ISA 8.2.2), and then a flag says nothing of the word beside it. That aligned eight-byte halves of a vector are
// not torn is what hardware does and what this rests on. That whole lines are not torn is not needed: both flags are looked at.
//
// The protocol, for kernels in which thread i of every rank sends line i to all peers and takes line i of all peers: a line knows nothing of
// other lines, blocks or grids. It has a count of its own, the number of calls that had this line, which is the flag. It is kept on the
// device, so that a captured launch replays, and read and written by the line's one thread. All ranks make the same calls, so it is the same on all.
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
// A pad of lines has a slot for each (line, parity, source), in tiles of a warp's width: pad[tile][parity][source][line of the tile]. So a
// warp's store fills 512 bytes side by side, and where a slot lies does not depend on how many lines there are.
#pragma once
#include "any.cuh"
#include "signals.cuh"

// Elements of T in one line.
template <typename T>
constexpr u32 LINE_LANES = LINE_BYTES / sizeof(typename T::Stored);

// Lines that `elements` elements take.
template <typename T>
__device__ __forceinline__ u32 lines_of(u32 elements) {
    return (elements + LINE_LANES<T> - 1) / LINE_LANES<T>;
}

// Bytes of a tile's lines.
enum : u32 { ROW = TILE * sizeof(Pack) };

// Byte offset in a pad of the slot of `line` for source 0; those of the next sources follow at distances of ROW.
__device__ __forceinline__ u64 line_slot(u32 line, u32 parity, u32 world) {
    return (u64)(line / TILE * 2 + parity) * world * ROW + line % TILE * sizeof(Pack);
}

// Sends the first two words of a payload.
__device__ __forceinline__ void store_line(u64 to, const Pack& payload, u32 flag) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%2,%3,%2};"
                 :
                 : "l"(to), "r"(payload.word[0]), "r"(flag), "r"(payload.word[1])
                 : "memory");
}

// What is in a slot: words 0 and 2 are data, 1 and 3 flags.
__device__ __forceinline__ Pack load_line(u64 from) {
    Pack p;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
                 : "l"(from)
                 : "memory");
    return p;
}

// Zero where both halves of a line have this flag.
__device__ __forceinline__ u32 missing(const Pack& line, u32 flag) { return (line.word[1] ^ flag) | (line.word[3] ^ flag); }

// The elements that line `line` carries of the `count` at `from`, and zeros past the last.
template <typename T>
__device__ __forceinline__ Pack load_payload(u64 from, u32 line, u32 count) {
    Pack p = {{0, 0, 0, 0}};
    u64 at = from + (u64)line * 8;
    u32 first = line * LINE_LANES<T>;
    if ((from & 7) == 0 && first + LINE_LANES<T> <= count) {
        asm volatile("ld.global.v2.u32 {%0,%1}, [%2];" : "=r"(p.word[0]), "=r"(p.word[1]) : "l"(at) : "memory");
    } else {
#pragma unroll
        for (u32 j = 0; j < LINE_LANES<T>; j++)
            if (first + j < count) set_lane<T>(p, j, ((const typename T::Stored*)at)[j]);
    }
    return p;
}

// Its counterpart for results.
template <typename T>
__device__ __forceinline__ void store_payload(u64 to, u32 line, u32 count, const Pack& p) {
    u64 at = to + (u64)line * 8;
    u32 first = line * LINE_LANES<T>;
    if ((to & 7) == 0 && first + LINE_LANES<T> <= count) {
        asm volatile("st.global.v2.u32 [%0], {%1,%2};" : : "l"(at), "r"(p.word[0]), "r"(p.word[1]) : "memory");
    } else {
#pragma unroll
        for (u32 j = 0; j < LINE_LANES<T>; j++)
            if (first + j < count) ((typename T::Stored*)at)[j] = lane<T>(p, j);
    }
}

// Whether a wait of this many nanoseconds is given up, as wait_at_least does. (Called from there, it would change that loop's code.)
__device__ __forceinline__ bool is_given_up(const Sync& sync, u64 waited) {
    return waited > sync.limit || (waited > 1000000 && *(volatile u32*)sync.stuck);
}

// Many threads of a block wait for the same peer. One tells of it: what others wait for may differ.
__device__ __forceinline__ void report_by_one(const Sync& sync, u32 want, u32 saw, u32 peer, Site site) {
    u32 before;
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], 0, %2;"
                 : "=r"(before)
                 : "l"(&stuck_entry(sync, peer)->ranks), "r"(sync.rank | sync.world << 16)
                 : "memory");
    if (before == 0) report_stuck(sync, want, saw, peer, site);
}

// Tells of the ranks from `from` up to `to` whose lines were waited for in vain. `slots` is the address of the line's slot of rank 0.
__device__ __forceinline__ void report_missing(const Sync& sync, u64 slots, u32 flag, u32 from, u32 to, Site site) {
#pragma unroll 1
    for (u32 peer = from; peer < to; peer++) {
        const volatile u32* line = (const volatile u32*)(slots + (u64)peer * ROW);
        u32 saw = line[1];
        if (saw == flag) saw = line[3];
        if (peer == sync.rank || saw == flag) continue;
        report_by_one(sync, flag, saw, peer, site);
    }
}

// Sends a line to every peer, the next rank first, so that not all ranks write to the same one at a time. `payload(peer)` is what that peer is
// sent.
template <typename F>
__device__ __forceinline__ void send_lines(const Sync& sync, u64 slot, u32 flag, F payload) {
#pragma unroll 1
    for (u32 base = 0; base < sync.world; base += FLIGHT) {
        Pack flight[FLIGHT];
#pragma unroll
        for (u32 i = 0; i < FLIGHT; i++) {
            u32 step = base + i;
            if (step == 0 || step >= sync.world) continue;
            flight[i] = payload(rank_after(sync, step));
        }
#pragma unroll
        for (u32 i = 0; i < FLIGHT; i++) {
            u32 step = base + i;
            if (step == 0 || step >= sync.world) continue;
            store_line(sync.pads.address[rank_after(sync, step)] + slot + sync.rank * ROW, flight[i], flag);
        }
    }
}

// Waits for the line of every peer and calls `take(rank, is_first, payload)` for each rank in ascending order, with `own` for this one. `slots`
// is the address of the line's slot of rank 0. N ranks at a time are waited for together.
template <u32 N = FLIGHT, typename F>
__device__ __forceinline__ void receive_lines(const Sync& sync, u64 slots, const Pack& own, u32 flag, F take) {
#pragma unroll 1
    for (u32 base = 0; base < sync.world; base += N) {
        Pack flight[N];
        u64 start = 0;
        while (true) {
#pragma unroll
            for (u32 i = 0; i < N; i++)
                if (base + i < sync.world && base + i != sync.rank) flight[i] = load_line(slots + (base + i) * ROW);
            // The clock is read while the loads are under way, and costs nothing.
            u64 now = nanoseconds();
            u32 not_here = 0;
#pragma unroll
            for (u32 i = 0; i < N; i++)
                if (base + i < sync.world && base + i != sync.rank) not_here |= missing(flight[i], flag);
            if (!not_here) break;
            if (!start) start = now;
            if (is_given_up(sync, now - start)) {
                report_missing(sync, slots, flag, base, (u32)min(base + N, sync.world), SITE_END);
                break;
            }
        }
#pragma unroll
        for (u32 i = 0; i < N; i++)
            if (base + i < sync.world) {
                bool is_own = base + i == sync.rank;
                take(base + i, i == 0 && base == 0, Pack{{is_own ? own.word[0] : flight[i].word[0], is_own ? own.word[1] : flight[i].word[2], 0, 0}});
            }
    }
}

// Waits for the line of every peer and reduces them and our own in ascending rank order.
template <typename T, typename Op>
__device__ __forceinline__ Pack reduce_lines(const Sync& sync, u64 slots, const Pack& own, u32 count, u32 average) {
    typename T::Acc acc[LINE_LANES<T>];
    receive_lines(sync, slots, own, count, [&](u32, bool is_first, const Pack& payload) {
#pragma unroll
        for (u32 j = 0; j < LINE_LANES<T>; j++) {
            typename T::Acc x = T::widen(lane<T>(payload, j));
            acc[j] = is_first ? x : Op::apply(acc[j], x);
        }
    });
    Pack sum = {{0, 0, 0, 0}};
#pragma unroll
    for (u32 j = 0; j < LINE_LANES<T>; j++) set_lane<T>(sum, j, T::narrow(average ? divide(acc[j], sync.world) : acc[j]));
    return sum;
}

struct OneLine {
    const Sync& sync;
    u64 slots;
    const Pack& own;
    u32 count, how;

    template <typename T, typename Combine>
    __device__ __forceinline__ Pack operator()(T, const Combine& combine) const {
        typename T::Acc acc[LINE_LANES<T>];
        receive_lines<IN_FLIGHT>(sync, slots, own, count, [&](u32, bool first, const Pack& payload) {
            typename T::Acc x[LINE_LANES<T>];
            widen_lanes<T>(x, payload);
            if (first) {
#pragma unroll
                for (u32 j = 0; j < LINE_LANES<T>; j++) acc[j] = x[j];
            } else {
                combine(acc, x);
            }
        });
        return finish_lanes<T>(acc, sync.world, how);
    }
};

template <>
__device__ __forceinline__ Pack reduce_lines<Any, Any>(const Sync& sync, u64 slots, const Pack& own, u32 count, u32 how) {
    return with_reduction(how, OneLine{sync, slots, own, count, how});
}

// A call of one trip, line by line: `own_of(line)` is the rank's own payload and `payload(peer, line, own)` a peer's, `receive(line, slots, own, count)` has
// the lines of all ranks, and `store(line, received)` keeps what that made of them. `sync.pads` are the pads of lines and `sync.epochs` the counts, a word
// for each line.
template <typename Own, typename Payload, typename Receive, typename Store>
__device__ __forceinline__ void one_trip(const Sync& sync, u32 lines, Own own_of, Payload payload, Receive receive, Store store) {
    for (u32 line = blockIdx.x * blockDim.x + threadIdx.x; line < lines; line += gridDim.x * blockDim.x) {
        u32 count = sync.epochs[line] + 1;
        Pack own = own_of(line);
        stall<SITE_START>(sync);
        u64 slot = line_slot(line, count & 1, sync.world);
        send_lines(sync, slot, count, [&](u32 peer) { return payload(peer, line, own); });
        stall<SITE_END>(sync);
        Pack received = receive(line, sync.pads.address[sync.rank] + slot, own, count);
        sync.epochs[line] = count;
        store(line, received);
    }
}

// One whose lines are copied: `take(rank, line, payload)` stores that of each rank.
template <typename Own, typename Payload, typename Take>
__device__ __forceinline__ void exchange_lines(const Sync& sync, u32 lines, Own own_of, Payload payload, Take take) {
    auto receive = [&](u32 line, u64 slots, const Pack& own, u32 count) {
        receive_lines(sync, slots, own, count, [&](u32 rank, bool, const Pack& of_rank) { take(rank, line, of_rank); });
        return own;
    };
    one_trip(sync, lines, own_of, payload, receive, [](u32, const Pack&) {});
}

// One whose lines are reduced into the `elements` of `output`.
template <typename T, typename Op, typename Own, typename Payload>
__device__ __forceinline__ void reduce_exchanged(const Sync& sync, u32 lines, u64 output, u32 elements, u32 average, Own own_of,
                                                 Payload payload) {
    auto receive = [&](u32, u64 slots, const Pack& own, u32 count) { return reduce_lines<T, Op>(sync, slots, own, count, average); };
    auto store = [&](u32 line, const Pack& sum) { store_payload<T>(output, line, elements, sum); };
    one_trip(sync, lines, own_of, payload, receive, store);
}
