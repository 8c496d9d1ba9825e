// Slices: which rank owns which part of a collective's elements.
#pragma once
#include "types.cuh"

// The first of `total` units that `rank` owns; it owns those up to the next rank's first. The last ranks may own fewer, or none.
__device__ __forceinline__ u64 slice_begin(u64 total, u32 rank, u32 world) {
    u64 each = (total + world - 1) / world;
    return min(total, each * rank);
}

__device__ __forceinline__ u32 nth(Ranks ranks, u32 n, u32 world) {
    u32 rank = ranks.first + n;
    return rank < world ? rank : rank - world;
}

// Which of them a rank is: `count` or more where it is none of them.
__device__ __forceinline__ u32 place(Ranks ranks, u32 rank, u32 world) {
    return rank < ranks.first ? rank + world - ranks.first : rank - ranks.first;
}
