// vLLM 53000, the first half: data is stored to a multicast address by a plain store.
//
// An all-gather into a mailbox that all ranks have under one multicast address: a rank stores its slot once, and the switch writes it on
// every rank.
//
//   start: blocks of one index meet: mailboxes have been read and may be written.
//   data:  multimem.st to the multicast address.
//   end:   they meet again (release, acquire), and copy from their own mailboxes.
//   bug:   st.volatile to the multicast address. Only multimem instructions may access such addresses; all else is undefined (PTX ISA
//          8.2.3).
// target: compute_90a
#include "../common.cuh"

static __device__ __forceinline__ void store_to_all(Pack* to, const Pack& pack) {
#ifdef PLANTED_BUG
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};"
#else
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};"
#endif
                 :
                 : "l"(to), "r"(pack.word[0]), "r"(pack.word[1]), "r"(pack.word[2]), "r"(pack.word[3])
                 : "memory");
}

extern "C" __global__ void __launch_bounds__(256, 1)
    all_gather(const Pack* input, Pack* to_all, const Pack* mail, u32* const* pads, u32* calls, Pack* output, u32 packs, u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1, first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    meet(pads, 0, call, rank, world);
    for (u32 i = first; i < packs; i += stride) store_to_all(to_all + rank * packs + i, input[i]);
    meet(pads, 1, call, rank, world);
    for (u32 i = first; i < packs; i += stride) {
        for (u32 of = 0; of < world; of++) output[of * packs + i] = mail[of * packs + i];
    }
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}
