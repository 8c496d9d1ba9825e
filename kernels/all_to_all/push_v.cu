// all_to_all/push_v: every rank stores its part for each rank to where that rank's output has it. Parts have any length, zero
// too, and lie packed on both sides, so at any distance from each other's alignment.
//
// Over the link: what the parts for others come to. Two barriers, no scratch memory.
//
// All threads move one rank's part, then the next one's. The turn starts at the rank after this one and ends at this one.
//
//   start (relaxed): peer's epoch -> our poll. What its stream did before is done: its output may be overwritten.
//   end   (release, acquire): our stores, bar.sync, our epoch -> peer's poll. Our part of its output is there, as far as blocks of this index
//         bring it; the end of its kernel gathers its blocks. Our input is read by nobody else.
#include "../common/copies.cuh"

// Bytes of the part for each rank, and where it starts in the input and in that rank's output.
struct Parts {
    u64 bytes[MAX_RANKS];
    u64 from[MAX_RANKS];
    u64 to[MAX_RANKS];
};

// Moves a part in units of V: its addresses are at the same distance from one.
template <typename V>
__device__ __forceinline__ void move(u64 from, u64 to, u64 bytes, u64 thread, u64 threads) {
    u64 head = min(bytes, (0 - from) & (sizeof(V) - 1));
    u64 whole = (bytes - head) / sizeof(V);
    for (u64 i = thread; i < whole; i += threads) {
        u64 offset = head + i * sizeof(V);
        if constexpr (sizeof(V) == sizeof(Pack))
            store_pack((void*)(to + offset), load_pack((const void*)(from + offset)));
        else
            *(V*)(to + offset) = *(const volatile V*)(from + offset);
    }
    u64 moved = whole * sizeof(V);
    for (u64 i = thread; i < bytes - moved; i += threads) {
        u64 offset = i < head ? i : i + moved;
        *(u8*)(to + offset) = *(const volatile u8*)(from + offset);
    }
}

extern "C" __global__ void __launch_bounds__(512, 1)
    all_to_all_push_v_b8(u64 input, const __grid_constant__ Sync sync, const __grid_constant__ Parts parts,
                         const __grid_constant__ Peers output) {
    u32 epoch = start_barrier(sync);
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
#pragma unroll 1
    for (u32 turn = 1; turn <= sync.world; turn++) {
        u32 peer = rank_after(sync, turn);
        u64 from = input + parts.from[peer], to = output.address[peer] + parts.to[peer], bytes = parts.bytes[peer];
        u64 apart = from ^ to;
        if (apart % sizeof(Pack) == 0) move<Pack>(from, to, bytes, thread, threads);
        else if (apart % sizeof(u64) == 0) move<u64>(from, to, bytes, thread, threads);
        else if (apart % sizeof(u32) == 0) move<u32>(from, to, bytes, thread, threads);
        else if (apart % sizeof(u16) == 0) move<u16>(from, to, bytes, thread, threads);
        else move<u8>(from, to, bytes, thread, threads);
    }
    end_barrier<RELEASE_ACQUIRE>(sync, epoch);
}
