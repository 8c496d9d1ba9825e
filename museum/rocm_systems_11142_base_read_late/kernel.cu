// RCCL tests 11142: a receiver reads the base of its signal after the signal may already have come.
//
// A push broadcast: block 0 of the root writes everything to the others' staging buffers and adds one to their signals; all blocks of a
// receiver wait for base plus one and copy their part.
//
//   start: blocks of one index meet (release, acquire): staging buffers have been read.
//   put:   bar.sync, atom.release.sys.add; ld.acquire.sys by thread 0 of each block. It publishes the data.
//   bug:   each block reads the base for itself after it has met, but it has met only the root's block of its own index. The root's block 0
//          may have put by then: the base is too high by one, and the wait never ends.
//   mend:  the base is counted from call to call.
#include "../common.cuh"

extern "C" __global__ void __launch_bounds__(256, 1)
    broadcast(const Pack* input, Pack* const* staging, u32* const* signals, u32* const* pads, u32* calls, Pack* output, u32 packs, u32 rank, u32 root,
              u32 world) {
    u32 call = calls[blockIdx.x] + 1;
    meet(pads, 0, call, rank, world);
#ifdef PLANTED_BUG
    u32 base = load_acquire(signals[rank]);
#else
    u32 base = calls[MOST_BLOCKS];
#endif
    if (rank == root && blockIdx.x == 0) {
        for (u32 i = threadIdx.x; i < packs; i += blockDim.x) {
            for (u32 to = 0; to < world; to++) staging[to][i] = input[i];
        }
        __syncthreads();
        if (threadIdx.x < world) add_release(signals[threadIdx.x], 1);
    }
    if (threadIdx.x == 0) wait_for(signals[rank], base + 1);
    __syncthreads();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += gridDim.x * blockDim.x) output[i] = staging[rank][i];
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
    // The block that is done last counts: all have read the base by then.
    if (threadIdx.x == 0 && add_on_this_gpu(&calls[MOST_BLOCKS + 1], 1) == gridDim.x - 1) {
        calls[MOST_BLOCKS + 1] = 0;
        calls[MOST_BLOCKS] = calls[MOST_BLOCKS] + 1;
    }
}
