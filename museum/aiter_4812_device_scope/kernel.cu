// aiter 4812: the start barrier stores relaxed and loads at the scope of one device, though the flag comes from another.
//
// A one-stage all-reduce over registered staging buffers: before the launch the input is copied to the staging buffer, which peers read.
//
//   start: st.release.sys of the count to every peer, ld.acquire.sys of theirs. It publishes the copies to the staging buffers.
//   end:   the same once more. Our reads of peers' buffers are over, so that their streams may copy the next inputs there.
//   bug:   at the start the store is relaxed and the load is ld.relaxed.gpu. That scope does not include the peer that writes, so the two
//          are a race themselves and order nothing; the count can be seen before the copy.
#include "../common.cuh"

#ifdef PLANTED_BUG
static __device__ __forceinline__ u32 load_relaxed_on_this_gpu(const u32* from) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

static __device__ __forceinline__ void start(u32* const* pads, u32 count, u32 rank, u32 world) {
    u32 peer = threadIdx.x;
    if (peer < world) {
        store_relaxed(pads[peer] + word(0, blockIdx.x, rank), count);
        while (!reached(load_relaxed_on_this_gpu(pads[rank] + word(0, blockIdx.x, peer)), count)) {
        }
    }
    __syncthreads();
}
#else
static __device__ __forceinline__ void start(u32* const* pads, u32 count, u32 rank, u32 world) { meet(pads, 0, count, rank, world); }
#endif

template <typename T>
static __device__ __forceinline__ void one_stage(Pack* const* staging, u32* const* pads, u32* calls, Pack* output, u32 packs, u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1;
    start(pads, call, rank, world);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += gridDim.x * blockDim.x) {
        output[i] = sum_of_packs<T>([&](u32 of) { return staging[of][i]; }, world);
    }
    meet(pads, 1, call, rank, world);
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}

#define ENTRY(NAME, T)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                       \
        one_stage_##NAME(Pack* const* staging, u32* const* pads, u32* calls, Pack* output, u32 packs, u32 rank, u32 world) {   \
        one_stage<T>(staging, pads, calls, output, packs, rank, world);                                                        \
    }

ENTRY(bf16, BF16)
