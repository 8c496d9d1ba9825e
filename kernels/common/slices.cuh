// Slices: which rank owns which part of a collective's elements.
#pragma once
#include "types.cuh"

// The first of `total` units that `rank` owns; it owns those up to the next rank's first. The last ranks may own fewer, or none.
__device__ __forceinline__ u64 slice_begin(u64 total, u32 rank, u32 world) {
    u64 each = (total + world - 1) / world;
    return least(total, each * rank);
}
