// NCCL 1950, RCCL 7711: the reduction of a communicator with one rank drops the tail.
//
// A reduction of one rank is a copy, times a factor for averages. Blocks take equal parts, rounded up to whole packs of 16 bytes.
//
//   sync: none, there are no peers.
//   bug:  the part is the count divided by the blocks and rounded down, and only then rounded up to packs. Where the quotient is whole
//         packs already, what the division left over is nobody's.
#include "../common.cuh"

template <typename Element>
static __device__ __forceinline__ void copy_part(const Element* input, Element* output, u64 count) {
    constexpr u64 PACK = 16 / sizeof(Element);
    u64 blocks = gridDim.x;
#ifdef PLANTED_BUG
    u64 part = count / blocks;
#else
    u64 part = (count + blocks - 1) / blocks;
#endif
    part = (part + PACK - 1) / PACK * PACK;
    u64 first = blockIdx.x * part, last = first + part < count ? first + part : count;
    for (u64 i = first + threadIdx.x; i < last; i += blockDim.x) output[i] = input[i];
}

extern "C" __global__ void __launch_bounds__(128, 1) one_rank_f32(const u32* input, u32* output, u64 count) { copy_part(input, output, count); }
extern "C" __global__ void __launch_bounds__(128, 1) one_rank_bf16(const u16* input, u16* output, u64 count) { copy_part(input, output, count); }
