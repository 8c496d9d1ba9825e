// one_shot_norm: an all-reduce, the residual and an RMSNorm in one kernel, as serving engines fuse them.
//
//   residual_out[t, h] = residual[t, h] + the sum of all ranks' input[t, h]
//   output[t, h]       = residual_out[t, h] / sqrt(mean of its squares over h + 1e-6) * gamma[h]
//
// A block takes whole rows (tokens) and reads them from every rank. It adds in f32, in rank order, and rounds each output once; the norm is of the sums before they
// are rounded. Ranks meet at the start and at the end as in one_shot_by_value: one word for each (block, peer), and a count of calls for each block.
#include "../../foreign/signals.cuh"

constexpr u32 MOST_RANKS = 8;
constexpr u32 MOST_BLOCKS = 36;
constexpr u32 WARPS = 4;

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

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    one_shot_norm_bf16(const __grid_constant__ Inputs inputs, const __grid_constant__ AllSignals signals, Signals* own,
                       const Pack* residual, const Pack* gamma, Pack* residual_out, Pack* output, u32 rank, u32 world, u32 tokens,
                       u32 hidden) {
    extern __shared__ float sums[];  // of a row
    __shared__ float partial[WARPS];
    u32 block = blockIdx.x, thread = threadIdx.x, packs = hidden / BF16::LANES;
    u32 call = own->calls[block] + 1;
    if (thread < world) {
        store_release(&signals.of[thread]->start[block][rank], call);
        wait_for(&own->start[block][thread], call);
    }
    __syncthreads();

    for (u32 token = block; token < tokens; token += gridDim.x) {
        u64 row = (u64)token * packs;
        float squares = 0;
        for (u32 p = thread; p < packs; p += blockDim.x) {
            float values[BF16::LANES] = {};
            for (u32 of = 0; of < world; of++) {
                Pack pack = inputs.of[of][row + p];
#pragma unroll
                for (u32 lane = 0; lane < BF16::LANES; lane++) values[lane] += BF16::get(pack, lane);
            }
            Pack pack = residual[row + p];
#pragma unroll
            for (u32 lane = 0; lane < BF16::LANES; lane++) {
                values[lane] += BF16::get(pack, lane);
                squares += values[lane] * values[lane];
                sums[p * BF16::LANES + lane] = values[lane];
                BF16::set(pack, lane, values[lane]);
            }
            residual_out[row + p] = pack;
        }
#pragma unroll
        for (u32 distance = 16; distance > 0; distance /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, distance);
        if (thread % 32 == 0) partial[thread / 32] = squares;
        __syncthreads();
        float total = 0;
#pragma unroll
        for (u32 warp = 0; warp < WARPS; warp++) total += partial[warp];
        float scale = 1.0f / sqrtf(total / (float)hidden + 1e-6f);
        for (u32 p = thread; p < packs; p += blockDim.x) {
            Pack weights = gamma[p], pack = {};
#pragma unroll
            for (u32 lane = 0; lane < BF16::LANES; lane++) {
                BF16::set(pack, lane, sums[p * BF16::LANES + lane] * scale * BF16::get(weights, lane));
            }
            output[row + p] = pack;
        }
#ifndef PLANTED_BUG
        __syncthreads();  // the next row's partial sums go where this row's still are
#endif
    }

    __syncthreads();
    if (thread < world) {
        store_release(&signals.of[thread]->end[block][rank], call);
        wait_for(&own->end[block][thread], call);
    }
    __syncthreads();
    if (thread == 0) own->calls[block] = call;
}
