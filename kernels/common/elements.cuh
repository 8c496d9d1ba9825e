// A message as packs from its first element on, wherever it lies: elements of one that does not lie on a pack's boundary are moved one by one.
#pragma once
#include "dtype.cuh"

// Packs that `elements` elements take.
template <typename T, typename N>
__device__ __forceinline__ N packs_of(N elements) {
    return (elements + LANES<T> - 1) / LANES<T>;
}

// The elements of pack `pack` of the `count` at `from`, and zeros past the last.
template <typename T, typename N>
__device__ __forceinline__ Pack load_elements(u64 from, N pack, N count) {
    u64 at = from + (u64)pack * sizeof(Pack);
    N first = pack * LANES<T>;
    if ((from & 15) == 0 && first + LANES<T> <= count) return load_pack((const void*)at);
    Pack p = {{0, 0, 0, 0}};
#pragma unroll
    for (u32 j = 0; j < LANES<T>; j++)
        if (first + j < count) set_lane<T>(p, j, ((const typename T::Stored*)at)[j]);
    return p;
}

// Its counterpart for results.
template <typename T, typename N>
__device__ __forceinline__ void store_elements(u64 to, N pack, N count, const Pack& p) {
    u64 at = to + (u64)pack * sizeof(Pack);
    N first = pack * LANES<T>;
    if ((to & 15) == 0 && first + LANES<T> <= count) {
        store_pack((void*)at, p);
    } else {
#pragma unroll
        for (u32 j = 0; j < LANES<T>; j++)
            if (first + j < count) ((typename T::Stored*)at)[j] = lane<T>(p, j);
    }
}
