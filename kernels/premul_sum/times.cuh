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
