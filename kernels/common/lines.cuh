// Lines: data that carries its own flag. One store over the link delivers eight bytes and tells that they are there.
//
// A line is 16 bytes, {data, flag, data, flag}, stored and loaded as one vector. Flags stand beside the data and not in it, so no bit
// pattern of the data means anything, and a word of a line that was not written yet is told by the flag next to it.
//
// Both sides are strong operations of system scope on the same four words, so there is no race. But PTX takes a vector for scalar accesses in
// unspecified order (PTX ISA 8.2.2), and then a flag says nothing of the word beside it. That aligned eight-byte halves of a vector are
// not torn is what hardware does and what this rests on. That whole lines are not torn is not needed: both flags are looked at.
//
// A pad of lines has a slot for each (line, parity, source), in tiles of a warp's width: pad[tile][parity][source][line of the tile]. So a
// warp's store fills 512 bytes side by side, and where a slot lies does not depend on how many lines there are.
#pragma once
#include "dtype.cuh"
#include "signals.cuh"

// Elements of T in one line.
template <typename T>
constexpr u32 LINE_LANES = 8 / sizeof(typename T::Stored);

// Lines of one tile. Mirrored by src/algorithms/all_reduce/one_shot_push.rs.
enum : u32 { TILE = 32, ROW = TILE * sizeof(Pack) };

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

// Tells of the ranks from `from` up to `to` whose lines were waited for in vain. `slots` is the address of the line's slot of rank 0.
__device__ __forceinline__ void report_missing(const Sync& sync, u64 slots, u32 flag, u32 from, u32 to, Site site) {
#pragma unroll 1
    for (u32 peer = from; peer < to; peer++) {
        const volatile u32* line = (const volatile u32*)(slots + (u64)peer * ROW);
        u32 saw = line[1];
        if (saw == flag) saw = line[3];
        if (peer == sync.rank || saw == flag) continue;
        // Many threads of a block wait for the same peer. One tells of it: flags of others may differ from its own.
        u32 before;
        asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], 0, %2;"
                     : "=r"(before)
                     : "l"(&stuck_entry(sync, peer)->ranks), "r"(sync.rank | sync.world << 16)
                     : "memory");
        if (before == 0) report_stuck(sync, flag, saw, peer, site);
    }
}
