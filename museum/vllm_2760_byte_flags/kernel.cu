// vLLM 2760: each rank sets its byte of a flag, and all eight bytes are polled as one word.
//
// A one-stage all-reduce of up to eight ranks. A flag has eight bytes, one for each rank; a byte holds the low bits of the count of calls.
//
//   start: every rank sets its byte of every peer's flag (release), and waits until all bytes of its own flag say so (acquire).
//   end:   the same with a second flag: our reads of peers' inputs are over.
//   bug:   thread 0 polls the eight bytes by one load of 64 bits. Accesses that overlap in part are never morally strong (PTX ISA 8.7.1),
//          so the load does not synchronise with the stores of bytes: they race with it.
//   mend:  a thread for each rank polls that rank's own word of 32 bits.
#include "../common.cuh"

#ifdef PLANTED_BUG
static __device__ __forceinline__ void barrier(u32* const* pads, u32 phase, u32 count, u32 rank, u32 world) {
    __syncthreads();
    u32 at = word(phase, blockIdx.x, 0), value = count & 0xff;
    if (threadIdx.x < world) {
        u8* byte = (u8*)(pads[threadIdx.x] + at) + rank;
        asm volatile("st.release.sys.global.u8 [%0], %1;" : : "l"(byte), "h"((u16)value) : "memory");
    }
    if (threadIdx.x == 0) {
        u64 expected = 0, found;
        for (u32 peer = 0; peer < world; peer++) expected |= (u64)value << (8 * peer);
        do {
            asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(found) : "l"(pads[rank] + at) : "memory");
        } while (found != expected);
    }
    __syncthreads();
}
#else
static __device__ __forceinline__ void barrier(u32* const* pads, u32 phase, u32 count, u32 rank, u32 world) {
    meet(pads, phase, count, rank, world);
}
#endif

template <typename T>
static __device__ __forceinline__ void one_stage(Pack* const* inputs, u32* const* pads, u32* calls, Pack* output, u32 packs, u32 rank, u32 world) {
    u32 call = calls[blockIdx.x] + 1;
    // Two flags for each end of the call: a peer that is one call ahead must not change what we still poll.
    u32 phase = 2 * (call % 2);
    barrier(pads, phase, call, rank, world);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += gridDim.x * blockDim.x) {
        output[i] = sum_of_packs<T>([&](u32 of) { return inputs[of][i]; }, world);
    }
    barrier(pads, phase + 1, call, rank, world);
    if (threadIdx.x == 0) calls[blockIdx.x] = call;
}

#define ENTRY(NAME, T)                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                      \
        one_stage_##NAME(Pack* const* inputs, u32* const* pads, u32* calls, Pack* output, u32 packs, u32 rank, u32 world) {   \
        one_stage<T>(inputs, pads, calls, output, packs, rank, world);                                                        \
    }

ENTRY(bf16, BF16)
