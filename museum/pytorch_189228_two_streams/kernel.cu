// PyTorch 189228: two all-reduces of one group on two streams share the same signal pads.
//
// A one-shot all-reduce of what was copied to a staging buffer. Signals are put by compare-and-swap from 0 to 1 and taken from 1 to 0. The
// host reduces quarters of the input, two on a side stream and two on the main stream; each stream has a staging buffer and a channel.
//
//   start: put with release and take with acquire, a word for each (channel, rank): staging buffers may be read.
//   end:   bar.sync, the same once more: our reads of peers' buffers are over, the next quarter may be copied there.
//   bug:   the kernel ignores its channel. What one stream's kernel puts, the other stream's takes: either goes on without those it was to
//          wait for.
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
        u32* put = pads[peer] + channel * MOST_RANKS + rank;
        u32* take = pads[rank] + channel * MOST_RANKS + peer;
        while (swap(put, 0, 1) != 0) {
        }
        while (swap(take, 1, 0) != 1) {
        }
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(64, 1)
    one_shot_bf16(Pack* const* staging, u32* const* pads, Pack* output, u32 packs, u32 channel, u32 rank, u32 world) {
    barrier(pads, channel, rank, world);
    for (u32 i = threadIdx.x; i < packs; i += blockDim.x) output[i] = sum_of_packs<BF16>([&](u32 of) { return staging[of][i]; }, world);
    barrier(pads, channel, rank, world);
}
