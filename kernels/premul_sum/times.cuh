// Elements times a factor, each product rounded to the type of the elements: what a pre-multiplied sum adds.
#pragma once
#include "../common/reduce.cuh"

template <typename T>
struct Times {
    enum : bool { MULTIPLIES = true };
    enum : u32 { FOLD = 4 };
    typename T::Acc factor;

    // The factor comes as the bits of an element.
    __device__ __forceinline__ explicit Times(u64 bits) : factor(T::widen((typename T::Stored)bits)) {}

    __device__ __forceinline__ typename T::Stored of(typename T::Stored element) const { return T::narrow(Prod::apply(T::widen(element), factor)); }

    __device__ __forceinline__ Pack operator()(Pack pack) const {
#pragma unroll
        for (u32 j = 0; j < LANES<T>; j++) set_lane<T>(pack, j, of(lane<T>(pack, j)));
        return pack;
    }
};

// What multiplies in the way that is the fastest for a type.
template <typename T, bool IS_BYTE = sizeof(typename T::Stored) == 1>
struct Multiplier : Times<T> {
    using Times<T>::Times;
};

// Elements of 8 bits, by the products of all 256, of each lane of a warp in its own bank of shared memory. Then four elements of one word take a load
// each; to multiply and to round them takes longer than memory does.
template <typename T>
struct Multiplier<T, true> {
    enum : bool { MULTIPLIES = true };
    enum : u32 { FOLD = 4, WARP = 32, ELEMENTS = 256, BYTES = ELEMENTS * WARP };
    u8* words;  // Word i of each lane, in turn, has elements 4 i to 4 i + 3.

    __device__ __forceinline__ u8* at(u32 element, u32 lane) const { return words + ((element & 0xfc) * WARP + lane * 4 + (element & 3)); }

    // By all threads of a block.
    __device__ __forceinline__ explicit Multiplier(u64 factor) {
        __shared__ alignas(4) u8 shared[BYTES];
        words = shared;
        Times<T> times(factor);
        for (u32 element = threadIdx.x; element < ELEMENTS; element += blockDim.x) {
            u8 product = times.of((u8)element);
            // Threads whose words are in one bank begin with different lanes.
#pragma unroll 1
            for (u32 i = 0; i < WARP; i++) *at(element, (element / 4 + i) % WARP) = product;
        }
        __syncthreads();
    }

    __device__ __forceinline__ u8 of(u8 element) const { return *at(element, threadIdx.x % WARP); }

    __device__ __forceinline__ Pack operator()(Pack pack) const {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 word = 0;
#pragma unroll
            for (u32 shift = 0; shift < 32; shift += 8) word |= (u32)of((u8)(pack.word[i] >> shift)) << shift;
            pack.word[i] = word;
        }
        return pack;
    }
};
