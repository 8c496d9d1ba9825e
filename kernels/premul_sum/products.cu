// premul_sum/products: this rank's input times its factor, element by element, each product rounded to the type of the elements: what a
// pre-multiplied sum adds.
//
// Nothing here waits for a peer, and no peer looks at what is under way: the kernel that follows on the stream tells them.
#include "times.cuh"

// Of elements of 8 bits: the products of all 256, of each lane of a warp in its own bank of shared memory. Then four elements of one word take a load
// each; to multiply and to round them takes longer than memory does.
template <typename T>
struct Table {
    enum : u32 { WARP = 32, ELEMENTS = 256, BYTES = ELEMENTS * WARP };
    u8* words;  // Word i of each lane, in turn, has elements 4 i to 4 i + 3.

    __device__ __forceinline__ u8* at(u32 element, u32 lane) const { return words + ((element & 0xfc) * WARP + lane * 4 + (element & 3)); }

    __device__ __forceinline__ void fill(const Times<T>& times) const {
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

template <typename T, typename F>
__device__ __forceinline__ void products(u64 input, u64 output, u64 count, const F& times) {
    using Stored = typename T::Stored;
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    Split part = split<T>(input, output, count);
    u64 packs_at = part.head * sizeof(Stored);
    for (u64 i = thread; i < part.packs; i += threads) {
        u64 offset = packs_at + i * sizeof(Pack);
        store_pack((void*)(output + offset), times(load_pack((const void*)(input + offset))));
    }
    for (u64 i = thread; i < part.head + part.tail; i += threads) {
        u64 offset = (i < part.head ? i : i + part.packs * LANES<T>) * sizeof(Stored);
        *(Stored*)(output + offset) = times.of(*(const Stored*)(input + offset));
    }
}

template <typename T>
__device__ __forceinline__ void products(u64 input, u64 output, u64 count, u64 factor) {
    Times<T> times(factor);
    if constexpr (sizeof(typename T::Stored) == 1) {
        __shared__ alignas(4) u8 words[Table<T>::BYTES];
        Table<T> table{words};
        table.fill(times);
        products<T>(input, output, count, table);
    } else {
        products<T>(input, output, count, times);
    }
}

#define ENTRY(NAME, T)                                                                                    \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                  \
        premul_sum_products_##NAME(u64 input, u64 output, u64 count, u64 factor) {                        \
        products<T>(input, output, count, factor);                                                        \
    }
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#else
DTYPES(ENTRY)
#endif
