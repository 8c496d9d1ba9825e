// one_shot_by_value: a one-shot all-reduce whose peers' pointers come by value, in two structs of eight.
//
// It is written as serving engines write theirs: each rank has a block of signals that peers write to, with one word for each (block, peer)
// for the start and for the end, and a count of calls for each block. Counts only grow, so that a captured launch replays.
//
//   start: st.release.sys of the count to every peer's start word; ld.acquire.sys of ours. It publishes what earlier work of the rank's
//          stream wrote to its input, so that peers may read it.
//   end:   bar.sync, st.release.sys to every peer's end word; ld.acquire.sys of ours. Our reads of its input are over, so that its stream
//          may overwrite it.
#include "../packs.cuh"

constexpr u32 MOST_RANKS = 8;
constexpr u32 MOST_BLOCKS = 36;

struct Signals {
    u32 start[MOST_BLOCKS][MOST_RANKS];
    u32 end[MOST_BLOCKS][MOST_RANKS];
    u32 calls[MOST_BLOCKS];  // written by this rank's own blocks only
};

struct Inputs {
    const Pack* of[MOST_RANKS];
};

struct AllSignals {
    Signals* of[MOST_RANKS];
};

static __device__ __forceinline__ void store_release(u32* to, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

static __device__ __forceinline__ u32 load_acquire(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

template <typename T>
static __device__ __forceinline__ void one_shot(const Inputs& inputs, const AllSignals& signals, Signals* own, Pack* output, u32 rank,
                                                u32 world, u32 packs) {
    u32 block = blockIdx.x, peer = threadIdx.x;
    u32 call = own->calls[block] + 1;
    if (peer < world) {
        store_release(&signals.of[peer]->start[block][rank], call);
        while (load_acquire(&own->start[block][peer]) != call) {
        }
    }
    __syncthreads();

    for (u32 i = block * blockDim.x + threadIdx.x; i < packs; i += gridDim.x * blockDim.x) {
#ifdef PLANTED_BUG
        u32 ranks = i + 1 == packs ? world - 1 : world;  // the last rank is left out of the last pack
#else
        u32 ranks = world;
#endif
        output[i] = sum_of_ranks<T>([&](u32 of) { return inputs.of[of]; }, i, ranks);
    }

    __syncthreads();
    if (peer < world) {
        store_release(&signals.of[peer]->end[block][rank], call);
        while (load_acquire(&own->end[block][peer]) != call) {
        }
    }
    // All threads have read the count before bar.sync.
    if (threadIdx.x == 0) own->calls[block] = call;
}

#define ENTRY(NAME, T)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                     \
        one_shot_##NAME(const __grid_constant__ Inputs inputs, const __grid_constant__ AllSignals signals, Signals* own,     \
                        Pack* output, int rank, int world, int packs) {                                                      \
        one_shot<T>(inputs, signals, own, output, (u32)rank, (u32)world, (u32)packs);                                        \
    }

ENTRY(f32, F32)
ENTRY(bf16, BF16)
