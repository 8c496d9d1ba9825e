// PyTorch 189228: two all-reduces of one group on two streams share the same signal pads.
//
// A one-shot all-reduce whose signals are put by compare-and-swap from 0 to 1 and taken from 1 to 0. The host reduces one half of the input on a side stream and the
// other on the main stream, each by a kernel with a channel of its own.
//
//   start: put with release and take with acquire, a word for each (channel, block, rank): inputs may be read.
//   end:   bar.sync, the same once more: our reads of peers' inputs are over.
//   bug:   the kernel ignores its channel. What one stream's kernel puts, the other stream's takes: either goes on without those it was to wait for.
#include "../common.cuh"

static __device__ __forceinline__ u32 swap(u32* at, u32 from, u32 to) {
    u32 found;
    asm volatile("atom.acq_rel.sys.global.cas.b32 %0, [%1], %2, %3;" : "=r"(found) : "l"(at), "r"(from), "r"(to) : "memory");
    return found;
}

static __device__ __forceinline__ void barrier(u32* const* pads, u32 channel, u32 rank, u32 world) {
    __syncthreads();
#ifdef PLANTED_BUG
    channel = 0;
#endif
    u32 peer = threadIdx.x;
    if (peer < world) {
        u32* put = pads[peer] + word(channel, blockIdx.x, rank);
        u32* take = pads[rank] + word(channel, blockIdx.x, peer);
        while (swap(put, 0, 1) != 0) {
        }
        while (swap(take, 1, 0) != 1) {
        }
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(128, 1)
    one_shot_bf16(Pack* const* inputs, u32* const* pads, Pack* output, u32 first, u32 last, u32 channel, u32 rank, u32 world) {
    barrier(pads, channel, rank, world);
    for (u32 i = first + blockIdx.x * blockDim.x + threadIdx.x; i < last; i += gridDim.x * blockDim.x) {
        output[i] = sum_of_packs<BF16>([&](u32 of) { return inputs[of][i]; }, world);
    }
    barrier(pads, channel, rank, world);
}
