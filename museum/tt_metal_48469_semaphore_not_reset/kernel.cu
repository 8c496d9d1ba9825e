// tt-metal 48469: an all-gather's barrier waits for a semaphore that is never reset, and so only the first time.
//
// A push all-gather: each rank adds one to every peer's semaphore and waits until all have added to its own, before it writes and after.
//
//   before, after: bar.sync, atom.release.sys.add on all ranks' words, ld.acquire.sys until ours has all arrivals, bar.sync
//   bug:           `all arrivals` is the number of ranks in every call. The semaphore was zero for the first; later calls find it
//                  satisfied.
//   mend:          each call waits for that many more.
#include "../common.cuh"

static __device__ __forceinline__ void barrier(u32* const* semaphores, u32 which, u32 call, u32 rank, u32 world) {
    __syncthreads();
    u32 at = which * MOST_BLOCKS + blockIdx.x;
    if (threadIdx.x < world) add_release(semaphores[threadIdx.x] + at, 1);
    if (threadIdx.x == 0) {
#ifdef PLANTED_BUG
        wait_for(semaphores[rank] + at, world);
#else
        wait_for(semaphores[rank] + at, world * call);
#endif
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(256, 1)
    all_gather(const Pack* input, Pack* const* outputs, u32* const* semaphores, u32* calls, u32 packs, u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1;
    barrier(semaphores, 0, call, rank, world);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += gridDim.x * blockDim.x) {
        for (u32 to = 0; to < world; to++) outputs[to][rank * packs + i] = input[i];
    }
    barrier(semaphores, 1, call, rank, world);
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}
