// PyPTO 2279: a signal that peers add to is reset by storing zero.
//
// A push broadcast, tile by tile: the root adds one to each receiver's signal for each tile, and at the end every receiver adds one to its
// word at the root. All signals are taken back to zero, so that the next call starts afresh. Each root has staging buffers and signals of
// its own.
//
//   tile: bar.sync, atom.release.sys.add on the receivers' words; ld.acquire.sys until they count the tile, bar.sync. It publishes the
//         tile.
//   read: bar.sync, atom.release.sys.add on the root's word; ld.acquire.sys at the root. Staging buffers have been read and may be written
//         again.
//   bug:  the receiver stores zero after it has said `read`. The root may be in the next call by then, and the tile that it has announced
//         is forgotten: the receiver waits for it for ever.
//   mend: the receiver subtracts what it has consumed.
#include "../common.cuh"

static __device__ __forceinline__ void take_back(u32* at, u32 count) {
#ifdef PLANTED_BUG
    *at = 0;
#else
    add_release(at, 0 - count);
#endif
}

static __device__ __forceinline__ void root_sends(const Pack* input, Pack* const* staging, u32* const* pads, Pack* output, u32 packs, u32 most_packs,
                                                  u32 rank, u32 world) {
    u32 peer = threadIdx.x, block = blockIdx.x;
    for (u32 first = block * blockDim.x; first < packs; first += gridDim.x * blockDim.x) {
        u32 i = first + threadIdx.x;
        if (i < packs) {
            for (u32 to = 0; to < world; to++) {
                if (to != rank) staging[to][rank * most_packs + i] = input[i];
            }
            output[i] = input[i];
        }
        __syncthreads();
        if (peer < world && peer != rank) add_release(pads[peer] + word(0, block, rank), 1);
    }
    if (peer < world && peer != rank) {
        u32* at = pads[rank] + word(0, block, peer);
        wait_for(at, 1);
        take_back(at, 1);
    }
}

static __device__ __forceinline__ void others_receive(Pack* const* staging, u32* const* pads, Pack* output, u32 packs, u32 most_packs, u32 rank,
                                                      u32 root) {
    u32 tiles = 0, block = blockIdx.x;
    u32* at = pads[rank] + word(0, block, root);
    for (u32 first = block * blockDim.x; first < packs; first += gridDim.x * blockDim.x) {
        tiles++;
        if (threadIdx.x == 0) wait_for(at, tiles);
        __syncthreads();
        u32 i = first + threadIdx.x;
        if (i < packs) output[i] = staging[rank][root * most_packs + i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        add_release(pads[root] + word(0, block, rank), 1);
        take_back(at, tiles);
    }
}

extern "C" __global__ void __launch_bounds__(128, 1)
    broadcast(const Pack* input, Pack* const* staging, u32* const* pads, Pack* output, u32 packs, u32 most_packs, u32 rank, u32 root, u32 world) {
    if (rank == root) {
        root_sends(input, staging, pads, output, packs, most_packs, rank, world);
    } else {
        others_receive(staging, pads, output, packs, most_packs, rank, root);
    }
}
