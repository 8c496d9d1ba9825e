// PyTorch 191858: the barrier of one backend of symmetric memory does nothing, and says nothing.
//
// An all-gather by copies: the host puts a barrier, copies to every peer and a second barrier on the stream. The kernel here is the
// barrier.
//
//   before: all ranks' streams have come here: outputs may be written.
//   after:  all copies of all ranks are done.
//   bug:    the backend's barrier is an empty function. Copies go to outputs that are still in use, and outputs are used before they are
//           there.
#include "../common.cuh"

extern "C" __global__ void __launch_bounds__(32, 1) barrier(u32* const* pads, u32* calls, u32 rank, u32 world) {
#ifndef PLANTED_BUG
    u32 call = calls[0] + 1;
    meet(pads, 0, call, rank, world);
    if (threadIdx.x == 0) calls[0] = call;
#endif
}
