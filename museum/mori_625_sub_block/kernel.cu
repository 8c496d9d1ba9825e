// MORI 625: pieces of work are numbered through, but one index of them is taken from the block.
//
// A pull all-to-all: the slots of all peers are cut into eight pieces each, and blocks take pieces in strides of the grid.
//
//   start: blocks of one index meet (release, acquire): inputs may be read.
//   end:   they meet again: our reads of peers' inputs are over.
//   bug:   which eighth a piece is comes from blockIdx.x in place of the number of the piece. The two agree modulo eight only where the
//          grid is a multiple of eight: elsewhere some pieces are copied twice and others never.
#include "../common.cuh"

constexpr u32 PIECES = 8;

extern "C" __global__ void __launch_bounds__(128, 1)
    all_to_all(const Pack* const* inputs, u32* const* pads, u32* calls, Pack* output, u32 packs, u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1;
    meet(pads, 0, call, rank, world);
    for (u32 piece = blockIdx.x; piece < world * PIECES; piece += gridDim.x) {
        u32 from = piece / PIECES;
#ifdef PLANTED_BUG
        u32 part = blockIdx.x % PIECES;
#else
        u32 part = piece % PIECES;
#endif
        u32 last = (u64)packs * (part + 1) / PIECES;
        for (u32 i = (u64)packs * part / PIECES + threadIdx.x; i < last; i += blockDim.x) output[from * packs + i] = inputs[from][rank * packs + i];
    }
    meet(pads, 1, call, rank, world);
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}
