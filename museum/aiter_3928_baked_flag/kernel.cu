// aiter 3928, vLLM 46913, sglang 29508: a captured graph replays the flag that the host passed when it was captured.
//
// Each block pushes its tiles of the input to all peers' mailboxes, sets its flag there to the colour of the tile, waits for theirs and
// adds. Mailboxes take turns by colour: a peer that is one tile ahead writes to the other one.
//
//   ready: bar.sync, st.release.sys of the colour to every peer, ld.acquire.sys until it is there, bar.sync. It publishes the tile. It also
//          says that the reads of the tile before are over, so that the peer may write to that mailbox again.
//   bug:   the first colour is an argument that the host counts up, which replays do not: each finds the flags of the last one, and does
//          not wait.
//   mend:  colours are counted on the device, for each block.
#include "../common.cuh"

constexpr u32 TILE = 128;  // packs, a thread each
constexpr u32 SLOTS = 8;   // of a mailbox, one for each rank

template <typename T>
static __device__ __forceinline__ void all_reduce(const Pack* input, Pack* const* mail, u32* const* pads, u32* colours, Pack* output, u32 packs, u32 baked,
                                                  u32 rank, u32 world) {
    u32 block = blockIdx.x;
#ifdef PLANTED_BUG
    u32 colour = baked;
#else
    u32 colour = colours[block] + 1;
#endif
    for (u32 first = block * TILE; first < packs; first += gridDim.x * TILE, colour++) {
        u32 i = first + threadIdx.x, turn = colour % 2;
        u32 slot = ((block * 2 + turn) * SLOTS + rank) * TILE + threadIdx.x;
        if (i < packs) {
            for (u32 peer = 0; peer < world; peer++) mail[peer][slot] = input[i];
        }
        __syncthreads();
        if (threadIdx.x < world) {
            u32 peer = threadIdx.x;
            store_release(pads[peer] + word(turn, block, rank), colour);
            while (load_acquire(pads[rank] + word(turn, block, peer)) != colour) {
            }
        }
        __syncthreads();
        if (i < packs) {
            const Pack* own = mail[rank] + (block * 2 + turn) * SLOTS * TILE + threadIdx.x;
            output[i] = sum_of_packs<T>([&](u32 of) { return own[of * TILE]; }, world);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) colours[block] = colour - 1;
}

#define ENTRY(NAME, T)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(128, 1)                                                                             \
        all_reduce_##NAME(const Pack* input, Pack* const* mail, u32* const* pads, u32* colours, Pack* output, u32 packs, u32 baked,  \
                          u32 rank, u32 world) {                                                                                     \
        all_reduce<T>(input, mail, pads, colours, output, packs, baked, rank, world);                                                \
    }

ENTRY(bf16, BF16)
