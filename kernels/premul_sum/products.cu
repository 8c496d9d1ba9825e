// premul_sum/products: this rank's input times its factor, element by element, each product rounded to the type of the elements: what a
// pre-multiplied sum adds.
//
// Nothing here waits for a peer, and no peer looks at what is under way: the kernel that follows on the stream tells them.
#include "../common/reduce.cuh"

// The loop over a pack's elements is unrolled where its body is short. Rounding to 8 bits is not, and there four of them share a word.
template <typename T>
__device__ __forceinline__ Pack times(Pack pack, typename T::Acc factor) {
    if constexpr (sizeof(typename T::Stored) == 1) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 products = 0;
#pragma unroll 1
            for (u32 shift = 0; shift < 32; shift += 8)
                products |= (u32)T::narrow(Prod::apply(T::widen((u8)(pack.word[i] >> shift)), factor)) << shift;
            pack.word[i] = products;
        }
    } else {
#pragma unroll
        for (u32 j = 0; j < LANES<T>; j++) set_lane<T>(pack, j, T::narrow(Prod::apply(T::widen(lane<T>(pack, j)), factor)));
    }
    return pack;
}

template <typename T>
__device__ __forceinline__ void products(u64 input, u64 output, u64 count, u64 bits) {
    using Stored = typename T::Stored;
    typename T::Acc factor = T::widen((Stored)bits);
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    Split part = split<T>(input, output, count);
    u64 packs_at = part.head * sizeof(Stored);
    for (u64 i = thread; i < part.packs; i += threads) {
        u64 offset = packs_at + i * sizeof(Pack);
        store_pack((void*)(output + offset), times<T>(load_pack((const void*)(input + offset)), factor));
    }
    for (u64 i = thread; i < part.head + part.tail; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        *(Stored*)(output + offset) = T::narrow(Prod::apply(T::widen(*(const Stored*)(input + offset)), factor));
    }
}

// The factor comes as the bits of an element.
#define ENTRY(NAME, T)                                                                                    \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                  \
        premul_sum_products_##NAME(u64 input, u64 output, u64 count, u64 factor) {                        \
        products<T>(input, output, count, factor);                                                        \
    }
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#else
ENTRY(f32, F32)
ENTRY(f16, F16)
ENTRY(bf16, BF16)
ENTRY(f64, F64)
ENTRY(i32, I32)
ENTRY(e4m3, E4M3)
ENTRY(e5m2, E5M2)
ENTRY(i8, I8)
ENTRY(u8, U8)
ENTRY(u32, U32)
ENTRY(i64, I64)
ENTRY(u64, U64)
#endif
