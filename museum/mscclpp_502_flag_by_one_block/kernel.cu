// MSCCL++ 502: one block counts up the flag of the LL protocol while others have yet to read it.
//
// An all-pairs all-reduce by packets of eight bytes, each half data and half flag: who sees the flag has the data, and no barrier is
// needed. All blocks of all ranks take the flag of a call from one word of device memory; mailboxes take turns by its lowest bit.
//
//   packet: st.relaxed.sys of 64 bits to each peer's mailbox, ld.relaxed.sys until the flag is there.
//   reuse:  who writes to a mailbox for call n + 2 has had all packets of call n + 1, and these were sent after call n had been read.
//   bug:    block 0 counts up the flag as soon as it is done. A block that starts late reads the next call's flag, which no peer will send
//           in this call.
//   mend:   the block that is done last counts it up.
#include "../common.cuh"

struct Control {
    u32 flag, done;
};

template <typename T>
static __device__ __forceinline__ void all_pairs(const Pack* input, u64* const* first, u64* const* second, Control* control, Pack* output, u32 packs, u32 rank,
                                                 u32 world) {
    if (packs == 0) return;
    u32 flag = control->flag + 1, stride = gridDim.x * blockDim.x;
    u64* const* mail = flag % 2 ? first : second;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += stride) {
        Pack pack = input[i];
        for (u32 to = 0; to < world; to++) {
            for (u32 k = 0; k < 4; k++) store_relaxed(mail[to] + (u64)(rank * packs + i) * 4 + k, (u64)flag << 32 | pack.word[k]);
        }
    }
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += stride) {
        output[i] = sum_of_packs<T>(
            [&](u32 of) {
                Pack pack;
                for (u32 k = 0; k < 4; k++) {
                    u64 found;
                    do {
                        found = load_relaxed(mail[rank] + (u64)(of * packs + i) * 4 + k);
                    } while ((u32)(found >> 32) != flag);
                    pack.word[k] = (u32)found;
                }
                return pack;
            },
            world);
    }
    __syncthreads();
#ifdef PLANTED_BUG
    if (blockIdx.x == 0 && threadIdx.x == 0) control->flag = flag;
#else
    if (threadIdx.x == 0 && add_on_this_gpu(&control->done, 1) == gridDim.x - 1) {
        control->done = 0;
        control->flag = flag;
    }
#endif
}

#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(128, 1)                                                                              \
        all_pairs_##NAME(const Pack* input, u64* const* first, u64* const* second, Control* control, Pack* output, u32 packs,         \
                         u32 rank, u32 world) {                                                                                       \
        all_pairs<T>(input, first, second, control, output, packs, rank, world);                                                      \
    }

ENTRY(bf16, BF16)
