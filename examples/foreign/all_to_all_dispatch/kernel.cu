// all_to_all_dispatch: every rank writes a part of its input, of any length, to each peer's output, as the dispatch of a mixture of experts
// does.
//
// Parts lie packed in inputs and outputs. A struct in device memory holds the addresses, and another what the host knows of the parts: how
// long each is, where it begins in our input, and where in its receiver's output. Elements have 16 bits.
//
//   barrier: bar.sync; st.release.sys of the count to every peer's pad; ld.acquire.sys until ours has theirs; bar.sync
//   first:   earlier work of each rank's stream is done with its output, so that peers may write there
//   second:  publishes what peers wrote to our output
#include "../signals.cuh"

constexpr u32 MOST_RANKS = 8;

struct Group {
    u16* outputs[MOST_RANKS];
    u32* pads[MOST_RANKS];  // a word for each block and peer
    u32* counts;            // barriers of each of this rank's blocks
    u32 rank, world;
};

struct Parts {
    u64 length[MOST_RANKS];  // elements, by receiver
    u64 from[MOST_RANKS];    // where the part begins in our input
    u64 to[MOST_RANKS];      // where it begins in the receiver's output
};

static __device__ __forceinline__ void barrier(const Group& group, u32 count) {
    __syncthreads();
    u32 peer = threadIdx.x;
    if (peer < group.world) {
        store_release(group.pads[peer] + blockIdx.x * MOST_RANKS + group.rank, count);
        wait_for(group.pads[group.rank] + blockIdx.x * MOST_RANKS + peer, count);
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(256, 1) dispatch(const u16* input, const Group* group, const Parts* parts) {
    u32 count = group->counts[blockIdx.x];
    barrier(*group, count + 1);
    for (u32 step = 0; step < group->world; step++) {
        u32 peer = (group->rank + step) % group->world;  // all begin with another receiver
#ifdef PLANTED_BUG
        u16* to = group->outputs[peer] + parts->from[peer];  // where it lies in the sender's input
#else
        u16* to = group->outputs[peer] + parts->to[peer];
#endif
        const u16* from = input + parts->from[peer];
        for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < parts->length[peer]; i += gridDim.x * blockDim.x) to[i] = from[i];
    }
    barrier(*group, count + 2);
    if (threadIdx.x == 0) group->counts[blockIdx.x] = count + 2;
}
