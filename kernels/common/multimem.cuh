// multimem: one access through a multicast address, which is an access of the same bytes on every rank (PTX ISA 9.7.9.14).
//
// load_reduced returns the reduction of what the ranks hold. In which order it adds and how it rounds is the hardware's; 16-bit sums are
// asked for in f32 (.acc::f32), and come back rounded to 16 bits. store_to_all writes the same bytes on every rank.
//
// The smallest access has 32 bits. So a single element of 16 bits, as there are some at the ends of a region, is loaded from each rank and
// stored to each rank by their own addresses.
//
// PTX calls such addresses of the same memory different proxies (8.6): between accesses of the same bytes by the one and by the other,
// alias_fence must be on the way (8.9.5), whatever barrier there is. No kernel here accesses the same bytes in both ways itself, but the
// kernels and copies before and after it do. That the ends of kernels order proxies too is CUDA's habit and not in PTX: so each kernel has
// a fence on either side of its multimem accesses.
#pragma once
#include "reduce.cuh"

template <typename T, typename Op>
__device__ __forceinline__ Pack load_reduced(u64 from);

#define LOAD_REDUCED(T, OP, FORM)                                                          \
    template <>                                                                            \
    __device__ __forceinline__ Pack load_reduced<T, OP>(u64 from) {                        \
        Pack p;                                                                            \
        asm volatile("multimem.ld_reduce.global." FORM " {%0,%1,%2,%3}, [%4];"             \
                     : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])  \
                     : "l"(from)                                                           \
                     : "memory");                                                          \
        return p;                                                                          \
    }
LOAD_REDUCED(F32, Sum, "add.v4.f32")
LOAD_REDUCED(F16, Sum, "add.acc::f32.v4.f16x2")
LOAD_REDUCED(F16, Min, "min.v4.f16x2")
LOAD_REDUCED(F16, Max, "max.v4.f16x2")
LOAD_REDUCED(BF16, Sum, "add.acc::f32.v4.bf16x2")
LOAD_REDUCED(BF16, Min, "min.v4.bf16x2")
LOAD_REDUCED(BF16, Max, "max.v4.bf16x2")
#undef LOAD_REDUCED

__device__ __forceinline__ void store_to_all(u64 to, const Pack& p) {
    asm volatile("multimem.st.global.v4.f32 [%0], {%1,%2,%3,%4};"
                 :
                 : "l"(to), "r"(p.word[0]), "r"(p.word[1]), "r"(p.word[2]), "r"(p.word[3])
                 : "memory");
}

// The element at byte `offset`, reduced. `input` is the multicast address of what `inputs` are the ranks' own addresses of.
template <typename T, typename Op>
__device__ __forceinline__ typename T::Stored load_reduced_element(u64 input, const Peers& inputs, u64 offset, u32 world) {
    if constexpr (sizeof(typename T::Stored) == 4) {
        u32 sum;
        asm volatile("multimem.ld_reduce.global.add.f32 %0, [%1];" : "=r"(sum) : "l"(input + offset) : "memory");
        return sum;
    } else {
        return reduce_element<T, Op>(inputs, offset, world, false);
    }
}

// Writes the element at byte `offset` on every rank.
template <typename T>
__device__ __forceinline__ void store_element_to_all(u64 output, const Peers& outputs, u64 offset, u32 world, typename T::Stored s) {
    if constexpr (sizeof(typename T::Stored) == 8) {
        asm volatile("multimem.st.global.v2.f32 [%0], {%1,%2};" : : "l"(output + offset), "r"((u32)s), "r"((u32)(s >> 32)) : "memory");
    } else if constexpr (sizeof(typename T::Stored) == 4) {
        asm volatile("multimem.st.global.f32 [%0], %1;" : : "l"(output + offset), "r"(s) : "memory");
    } else {
        for (u32 peer = 0; peer < world; peer++) *(typename T::Stored*)(outputs.address[peer] + offset) = s;
    }
}

__device__ __forceinline__ void alias_fence() { asm volatile("fence.proxy.alias;" : : : "memory"); }
