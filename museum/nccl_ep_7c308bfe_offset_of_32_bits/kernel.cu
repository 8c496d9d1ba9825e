// NCCL EP 7c308bfe: where a sender's part of the receiver's buffer starts is worked out in 32 bits.
//
// An all-to-all through mailboxes that have room for the largest call of each sender: push, meet, take out.
//
//   blocks of one index meet before (mailboxes may be written: the last call's were taken out) and in between (release, acquire: they have been).
//   bug: the start of a sender's part is an int. Past 2 GiB it lies before the buffer, past 4 GiB in another sender's part.
#include "../common.cuh"

static __device__ __forceinline__ Pack* part(char* mailbox, u32 sender, u64 most) {
#ifdef PLANTED_BUG
    int start = sender * (int)most;
#else
    u64 start = sender * most;
#endif
    return reinterpret_cast<Pack*>(mailbox + start);
}

extern "C" __global__ void __launch_bounds__(256, 1) exchange(const Pack* input, Pack* output, char* const* mailboxes, u32* const* pads, u32* calls,
                                                              u32 packs, u64 most, u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1;
    u32 first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    meet(pads, 0, call, rank, world);
    for (u32 to = 0; to < world; to++) {
        Pack* there = part(mailboxes[to], rank, most);
        for (u32 i = first; i < packs; i += stride) there[i] = input[to * packs + i];
    }
    meet(pads, 1, call, rank, world);
    for (u32 from = 0; from < world; from++) {
        const Pack* here = part(mailboxes[rank], from, most);
        for (u32 i = first; i < packs; i += stride) output[from * packs + i] = here[i];
    }
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}
