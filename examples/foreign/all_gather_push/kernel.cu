// all_gather_push: every rank writes its slot to all ranks' outputs, whose addresses come by value in a struct of eight.
//
// Whole packs of 16 bytes are copied, whatever they hold. Each rank has a block of signals that peers write to; counts only grow, so that a
// captured launch replays.
//
//   start: st.release.sys of the count to every peer's start word; ld.acquire.sys of ours. Earlier work of each rank's stream is done with
//          its output, so that peers may write there.
//   end:   bar.sync, st.release.sys to every peer's end word; ld.acquire.sys of ours, bar.sync. It publishes what peers wrote to our
//          output.
#include "../signals.cuh"

constexpr u32 MOST_RANKS = 8;
constexpr u32 MOST_BLOCKS = 128;

struct Signals {
    u32 start[MOST_BLOCKS][MOST_RANKS];
    u32 end[MOST_BLOCKS][MOST_RANKS];
};

struct Outputs {
    Pack* of[MOST_RANKS];
};

struct AllSignals {
    Signals* of[MOST_RANKS];
};

extern "C" __global__ void __launch_bounds__(256, 1)
    all_gather(const Pack* input, const __grid_constant__ Outputs outputs, const __grid_constant__ AllSignals signals, u32* calls, u32 packs, u32 rank,
               u32 world) {
    u32 block = blockIdx.x, peer = threadIdx.x;
    u32 call = calls[block] + 1;
    if (peer < world) {
        store_release(&signals.of[peer]->start[block][rank], call);
        wait_for(&signals.of[rank]->start[block][peer], call);
    }
    __syncthreads();

    for (u32 i = block * blockDim.x + threadIdx.x; i < packs; i += gridDim.x * blockDim.x) {
        Pack pack = input[i];
        for (u32 to = 0; to < world; to++) outputs.of[to][rank * packs + i] = pack;
    }

#ifndef PLANTED_BUG  // with it, the signal says nothing of what other threads of the block have yet to write
    __syncthreads();
#endif
    if (peer < world) {
        store_release(&signals.of[peer]->end[block][rank], call);
        wait_for(&signals.of[rank]->end[block][peer], call);
    }
    __syncthreads();
    if (threadIdx.x == 0) calls[block] = call;
}
