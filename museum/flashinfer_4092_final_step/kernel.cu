// FlashInfer 4092: the last step of a packet is published while other threads of the block still write it.
//
// An all-to-all through queues: a block writes steps of packs into the receiver's queue and counts them up; the receiver reads what is
// counted and says how far it is. A block sends to a peer and receives from it in turn, step by step.
//
//   head: bar.sync, st.release.sys by thread 0; ld.acquire.sys by the receiver's thread 0, bar.sync. It publishes steps.
//   tail: bar.sync, st.release.sys by thread 0; ld.acquire.sys by the sender's thread 0, bar.sync. The step has been read, its place is
//         free.
//   bug:  there is no bar.sync before the head of the last step, which is not full as a rule.
#include "../common.cuh"

constexpr u32 STEP = 128;  // packs, a thread each
constexpr u32 DEPTH = 4;   // steps
constexpr u32 RANKS = 8;

struct Queues {
    Pack steps[RANKS][DEPTH][STEP];  // by sender
    u32 head[RANKS];                 // steps that each sender has written to us
    u32 tail[RANKS];                 // steps that each receiver has read of ours
};

static __device__ __forceinline__ void send_step(Queues* to, const Queues* own, u32 step, const Pack* packs, u32 length, bool last, u32 rank, u32 peer) {
    if (threadIdx.x == 0) wait_for(&own->tail[peer], step + 1 - DEPTH);
    __syncthreads();
    if (threadIdx.x < length) to->steps[rank][step % DEPTH][threadIdx.x] = packs[threadIdx.x];
#ifdef PLANTED_BUG
    if (!last) __syncthreads();
#else
    __syncthreads();
#endif
    if (threadIdx.x == 0) store_release(&to->head[rank], step + 1);
}

static __device__ __forceinline__ void receive_step(Queues* from, const Queues* own, u32 step, Pack* packs, u32 length, u32 rank, u32 peer) {
    if (threadIdx.x == 0) wait_for(&own->head[peer], step + 1);
    __syncthreads();
    if (threadIdx.x < length) packs[threadIdx.x] = own->steps[peer][step % DEPTH][threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) store_release(&from->tail[rank], step + 1);
}

extern "C" __global__ void __launch_bounds__(128, 1)
    all_to_all(const Pack* input, Queues* const* queues, u32* sent, Pack* output, u32 packs, u32 rank, u32 world) {
    for (u32 peer = blockIdx.x; peer < world; peer += gridDim.x) {
        u32 step = sent[peer];
        for (u32 first = 0; first < packs; first += STEP, step++) {
            u32 length = smaller(packs - first, STEP);
            send_step(queues[peer], queues[rank], step, input + peer * packs + first, length, first + STEP >= packs, rank, peer);
            receive_step(queues[peer], queues[rank], step, output + peer * packs + first, length, rank, peer);
        }
        __syncthreads();
        if (threadIdx.x == 0) sent[peer] = step;
    }
}
