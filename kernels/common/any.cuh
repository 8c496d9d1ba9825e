// Any: reductions of the types, and with the operators, that have no entry of their own. One entry a kernel does them all.
//
// To a kernel, elements of Any are bytes: it counts bytes, and where packs and lines begin, what is moved and which thread does it does not depend on
// the type. Only where elements are combined it is looked at what they are. In place of `average` such an entry takes `how` (abi.cuh).
#pragma once
#include "reduce.cuh"

struct Any {
    using Stored = u8;
};

__device__ __forceinline__ u32 log_size(u32 how) { return how >> TYPE_BITS & 3; }

template <>
__device__ __forceinline__ u64 units<Any, u64>(u64 count, u32 how) { return count << log_size(how); }
template <>
__device__ __forceinline__ u32 units<Any, u32>(u32 count, u32 how) { return count << log_size(how); }

// Combines accumulators with as many others.
template <typename Op>
struct Only {
    template <typename A, u32 N>
    __device__ __forceinline__ void operator()(A (&acc)[N], const A (&x)[N]) const {
#pragma unroll
        for (u32 j = 0; j < N; j++) acc[j] = Op::apply(acc[j], x[j]);
    }
};

struct RuntimeOp {
    u32 op;
    template <typename A, u32 N>
    __device__ __forceinline__ void operator()(A (&acc)[N], const A (&x)[N]) const {
        switch (op) {
            case SUM: Only<Sum>()(acc, x); break;
            case PROD: Only<Prod>()(acc, x); break;
            case MIN: Only<Min>()(acc, x); break;
            default: Only<Max>()(acc, x);
        }
    }
};

// Of types with entries of their own, only products come to `any`; where few are, everything does.
#ifdef FEW_ENTRIES
#define OTHERS chosen
#else
#define OTHERS Only<Prod>{}
#endif

// What f gives for the type, and for what combines accumulators of it.
template <typename F>
__device__ __forceinline__ auto with_reduction(u32 how, const F& f) {
    RuntimeOp chosen{how >> OPERATOR_BITS & 3};
    switch (how >> TYPE_BITS & 15) {
#define OTHER(T) \
    case TYPE_##T: return f(T{}, chosen);
#define COMMON(T) \
    case TYPE_##T: return f(T{}, OTHERS);
#define LAST(T) \
    default: return f(T{}, OTHERS);
        OTHER_TYPES(OTHER)
        COMMON_TYPES(COMMON, LAST)
#undef LAST
#undef COMMON
#undef OTHER
    }
}

// Fewer than FLIGHT: with all types and operators, this is most of the code.
enum : u32 { IN_FLIGHT = 4 };

template <typename T, u32 N>
__device__ __forceinline__ void widen_lanes(typename T::Acc (&x)[N], const Pack& p) {
#pragma unroll
    for (u32 j = 0; j < N; j++) x[j] = T::widen(lane<T>(p, j));
}

// What an integer's sum has wrapped to: that is divided.
template <typename T>
__device__ __forceinline__ float wrapped(float a) { return a; }
template <typename T>
__device__ __forceinline__ double wrapped(double a) { return a; }
template <typename T, typename A>
__device__ __forceinline__ A wrapped(A a) { return T::widen(T::narrow(a)); }

template <typename T>
__device__ __forceinline__ typename T::Stored finish(typename T::Acc acc, u32 world, u32 how) {
    return T::narrow(how & AVERAGE ? divide(wrapped<T>(acc), world) : acc);
}

template <typename T, u32 N>
__device__ __forceinline__ Pack finish_lanes(const typename T::Acc (&acc)[N], u32 world, u32 how) {
    Pack result = {{0, 0, 0, 0}};
#pragma unroll
    for (u32 j = 0; j < N; j++) set_lane<T>(result, j, finish<T>(acc[j], world, how));
    return result;
}

// The pack at byte `offset` of every rank, reduced.
struct OnePack {
    const Peers& from;
    u64 offset;
    u32 world, how;

    template <typename T, typename Combine>
    __device__ __forceinline__ Pack operator()(T, const Combine& combine) const {
        typename T::Acc acc[LANES<T>];
#pragma unroll 1
        for (u32 base = 0; base < world; base += IN_FLIGHT) {
            Pack flight[IN_FLIGHT];
#pragma unroll
            for (u32 i = 0; i < IN_FLIGHT; i++)
                if (base + i < world) flight[i] = load_pack((const void*)(from.address[base + i] + offset));
#pragma unroll
            for (u32 i = 0; i < IN_FLIGHT; i++) {
                if (base + i >= world) continue;
                typename T::Acc x[LANES<T>];
                widen_lanes<T>(x, flight[i]);
                if (base + i == 0) {
#pragma unroll
                    for (u32 j = 0; j < LANES<T>; j++) acc[j] = x[j];
                } else {
                    combine(acc, x);
                }
            }
        }
        return finish_lanes<T>(acc, world, how);
    }
};

template <>
__device__ __forceinline__ Pack reduce_pack<Any, Any>(const Peers& from, u64 offset, u32 world, u32 how) {
    return with_reduction(how, OnePack{from, offset, world, how});
}

// An element of `size` bytes; of none if the byte that was asked for is not an element's first.
struct AnyElement {
    u64 bits;
    u32 size;
};

struct OneElement {
    const Peers& from;
    u64 offset;
    u32 world, how;

    template <typename T>
    __device__ __forceinline__ typename T::Acc load(u32 rank) const {
        return T::widen(*(const volatile typename T::Stored*)(from.address[rank] + offset));
    }

    template <typename T, typename Combine>
    __device__ __forceinline__ AnyElement operator()(T, const Combine& combine) const {
        typename T::Acc acc[1] = {load<T>(0)};
#pragma unroll 1
        for (u32 rank = 1; rank < world; rank++) {
            typename T::Acc x[1] = {load<T>(rank)};
            combine(acc, x);
        }
        return AnyElement{finish<T>(acc[0], world, how), sizeof(typename T::Stored)};
    }
};

template <>
__device__ __forceinline__ auto reduce_element<Any, Any>(const Peers& from, u64 offset, u32 world, u32 how) {
    if ((from.address[0] + offset) & ((1 << log_size(how)) - 1)) return AnyElement{0, 0};
    return with_reduction(how, OneElement{from, offset, world, how});
}

template <>
__device__ __forceinline__ void store_element(u64 to, AnyElement element) {
    switch (element.size) {
        case 1: *(u8*)to = (u8)element.bits; break;
        case 2: *(u16*)to = (u16)element.bits; break;
        case 4: *(u32*)to = (u32)element.bits; break;
        case 8: *(u64*)to = element.bits;
    }
}
