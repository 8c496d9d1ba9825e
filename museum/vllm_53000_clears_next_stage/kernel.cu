// vLLM 53000, the second half: of three stages of Lamport mailboxes the wrong one is cleared.
//
// A reduce-scatter in which data is its own flag: mailboxes hold -0.0 until data comes, and data never is -0.0. Stages take turns by epoch.
//
//   data:  st.relaxed.sys into each peer's mailbox of this epoch's stage; ld.relaxed.sys of ours until it is no longer -0.0.
//   clear: each call fills one stage with -0.0 for a later call: that of epoch - 1, which is epoch + 2's. No peer writes to it before it
//          has our data of epoch + 1, which we send after this kernel.
//   bug:   it clears the stage of epoch + 1. A peer that is ahead has written there already, its data is gone, and we wait for it for ever.
#include "../common.cuh"

constexpr u32 STAGES = 3;
constexpr u32 EMPTY = 0x80000000;  // -0.0

struct Control {
    u32 epoch, done;
};

extern "C" __global__ void __launch_bounds__(128, 1)
    reduce_scatter_f32(const float* input, u32* const* mail, Control* control, float* output, u32 count, u32 most_count, u32 rank, u32 world) {
    if (count == 0) return;
    u32 epoch = control->epoch, first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    u32 stage = epoch % STAGES * world * most_count;
#ifdef PLANTED_BUG
    u32 cleared = (epoch + 1) % STAGES * world * most_count;
#else
    u32 cleared = (epoch + 2) % STAGES * world * most_count;
#endif
    for (u32 i = first; i < count; i += stride) {
        for (u32 to = 0; to < world; to++) {
            u32 bits = (u32)__float_as_int(input[to * count + i]);
            store_relaxed(mail[to] + stage + rank * most_count + i, bits == EMPTY ? 0 : bits);
        }
    }
    for (u32 i = first; i < world * most_count; i += stride) mail[rank][cleared + i] = EMPTY;
    for (u32 i = first; i < count; i += stride) {
        float sum = 0;
        for (u32 from = 0; from < world; from++) {
            u32 bits;
            do {
                bits = load_relaxed(mail[rank] + stage + from * most_count + i);
            } while (bits == EMPTY);
            sum += __int_as_float((int)bits);
        }
        output[i] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0 && add_on_this_gpu(&control->done, 1) == gridDim.x - 1) {
        control->done = 0;
        control->epoch = epoch + 1;
    }
}
