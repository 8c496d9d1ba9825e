// Primus-Turbo 482, DeepEP on AMD: the tail of a channel is published by a store that releases nothing.
//
// The dispatch of a mixture of experts: a part for each receiver, of any length, goes through a ring in the receiver's memory. A block
// sends to a peer and receives from it in turn, step by step.
//
//   tail: bar.sync, st.release.sys by thread 0; ld.acquire.sys by the receiver's thread 0, bar.sync. It publishes the rows of a step.
//   head: bar.sync, st.release.sys by thread 0; ld.acquire.sys by the sender's thread 0, bar.sync. The step has been read, its place is
//         free.
//   bug:  the tail is stored relaxed. bar.sync orders the block's own threads; to the receiver nothing orders the rows before the tail.
#include "../common.cuh"

constexpr u32 STEP = 256;  // elements
constexpr u32 DEPTH = 4;   // steps
constexpr u32 RANKS = 8;

struct Rings {
    u16 rows[RANKS][DEPTH][STEP];  // by sender
    u32 tail[RANKS];               // steps that each sender has written to us
    u32 head[RANKS];               // steps that each receiver has read of ours
};

struct Steps {
    u32 sent[RANKS], received[RANKS];  // so far, with each peer
};

static __device__ __forceinline__ void publish(u32* tail, u32 steps) {
#ifdef PLANTED_BUG
    store_relaxed(tail, steps);
#else
    store_release(tail, steps);
#endif
}

static __device__ __forceinline__ void send(Rings* to, const Rings* own, u32 step, const u16* rows, u32 length, u32 rank, u32 peer) {
    if (threadIdx.x == 0) wait_for(&own->head[peer], step + 1 - DEPTH);
    __syncthreads();
    for (u32 i = threadIdx.x; i < length; i += blockDim.x) to->rows[rank][step % DEPTH][i] = rows[i];
    __syncthreads();
    if (threadIdx.x == 0) publish(&to->tail[rank], step + 1);
}

static __device__ __forceinline__ void receive(Rings* from, const Rings* own, u32 step, u16* rows, u32 length, u32 rank, u32 peer) {
    if (threadIdx.x == 0) wait_for(&own->tail[peer], step + 1);
    __syncthreads();
    for (u32 i = threadIdx.x; i < length; i += blockDim.x) rows[i] = own->rows[peer][step % DEPTH][i];
    __syncthreads();
    if (threadIdx.x == 0) store_release(&from->head[rank], step + 1);
}

// `sent` and `sent_at` are our parts for each peer in elements, `received` and `received_at` theirs for us.
extern "C" __global__ void __launch_bounds__(128, 1)
    dispatch(const u16* input, Rings* const* rings, Steps* steps, u16* output, const u32* sent, const u32* sent_at, const u32* received,
             const u32* received_at, u32 rank, u32 world) {
    for (u32 peer = blockIdx.x; peer < world; peer += gridDim.x) {
        u32 sends = steps->sent[peer], receives = steps->received[peer];
        for (u32 first = 0; first < sent[peer] || first < received[peer]; first += STEP) {
            if (first < sent[peer]) {
                send(rings[peer], rings[rank], sends++, input + sent_at[peer] + first, smaller(sent[peer] - first, STEP), rank, peer);
            }
            if (first < received[peer]) {
                receive(rings[peer], rings[rank], receives++, output + received_at[peer] + first, smaller(received[peer] - first, STEP), rank, peer);
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            steps->sent[peer] = sends;
            steps->received[peer] = receives;
        }
    }
}
