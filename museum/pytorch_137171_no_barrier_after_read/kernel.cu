// PyTorch 137171: a workspace is written again before all peers have read what was in it.
//
// An all-to-all by copies: each rank copies its slots to the peers' workspaces, a barrier follows, and each copies its workspace to its
// output. The kernel here is the barrier; the host launches it after the writes and after the reads.
//
//   written: all copies to workspaces are done: they may be read.
//   read:    all workspaces have been read: they may be written again.
//   bug:     there is no barrier after the reads. The next operation of a rank that is ahead overwrites what a slower one still copies
//            from.
#include "../common.cuh"

extern "C" __global__ void __launch_bounds__(32, 1) barrier(u32* const* pads, u32* calls, u32 after, u32 rank, u32 world) {
#ifdef PLANTED_BUG
    if (after == 1) return;  // the reads
#endif
    u32 call = calls[after] + 1;
    meet(pads, after, call, rank, world);
    if (threadIdx.x == 0) calls[after] = call;
}
