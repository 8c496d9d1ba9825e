// torchcomms 2661: two phases of an all-reduce divide the same bytes between blocks in two ways.
//
// Each rank adds its shard of all inputs into its own output, and copies that from there to all peers' outputs. Both phases go through the
// shard in chunks that blocks take in turn, so that a block copies what it has itself written and no barrier between blocks is needed.
//
//   start: blocks of one index meet: inputs may be read, outputs written.
//   phase: bar.sync. What a block's threads have added, the block's threads copy.
//   end:   blocks meet again (release, acquire). It publishes the copies, and our reads of inputs are over.
//   bug:   where a shard is not aligned to 16 bytes the sums go through a slower loop, whose chunks are half as long as those of the copy.
//          A block copies what another block is to write.
#include "../common.cuh"

constexpr u32 UNROLL = 4;

// Calls `at` for the elements of a shard that are this block's, in chunks of `chunk`.
template <typename At>
static __device__ __forceinline__ void elements_of_block(u32 elements, u32 chunk, At at) {
    for (u32 first = blockIdx.x * chunk; first < elements; first += gridDim.x * chunk) {
        u32 last = smaller(first + chunk, elements);
        for (u32 i = first + threadIdx.x; i < last; i += blockDim.x) at(i);
    }
}

extern "C" __global__ void __launch_bounds__(64, 1)
    all_reduce_f32(const float* const* inputs, float* const* outputs, u32* const* pads, u32* calls, u32 count, u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1, shard = count / world, from = rank * shard;
    u32 elements = rank + 1 == world ? count - from : shard;
    u32 of_copy = blockDim.x * (16 / sizeof(float)) * UNROLL;
#ifdef PLANTED_BUG
    u32 of_sum = (u64)(outputs[rank] + from) % 16 ? blockDim.x * 2 * UNROLL : of_copy;
#else
    u32 of_sum = of_copy;
#endif
    meet(pads, 0, call, rank, world);
    elements_of_block(elements, of_sum, [&](u32 i) {
        float sum = inputs[0][from + i];
        for (u32 of = 1; of < world; of++) sum += inputs[of][from + i];
        outputs[rank][from + i] = sum;
    });
    __syncthreads();
    elements_of_block(elements, of_copy, [&](u32 i) {
        for (u32 step = 1; step < world; step++) outputs[(rank + step) % world][from + i] = outputs[rank][from + i];
    });
    meet(pads, 1, call, rank, world);
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}
