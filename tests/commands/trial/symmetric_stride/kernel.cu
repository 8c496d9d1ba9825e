// NCCL's symmetric kernels find a peer's window as `base + (peer * stride4G << 32)`: the distance of two ranks' windows in units of 4 GiB, in 32 bits.
// -DBUG takes it for one of 2 GiB.
#include "w.cuh"
#ifdef BUG
constexpr u32 UNIT = 31;
#else
constexpr u32 UNIT = 32;
#endif
KERNEL gather(const u16* in, u16* window0, u32 stride4G, u32* const* pads, u32* calls, u16* out, u32 n, u32 most, u32 rank, u32 world) {
    u32 call = *calls + 1, half = call % 2 * world * most;
    for (u32 to = 0; to < world; to++) {
        u16* there = (u16*)((u64)window0 + ((u64)to * stride4G << UNIT));
        for (u32 i = threadIdx.x; i < n; i += blockDim.x) there[half + rank * most + i] = in[i];
    }
    meet(pads, 0, call, rank, world);
    u16* own = (u16*)((u64)window0 + ((u64)rank * stride4G << UNIT));
    for (u32 from = 0; from < world; from++)
        for (u32 i = threadIdx.x; i < n; i += blockDim.x) out[from * n + i] = own[half + from * most + i];
    if (threadIdx.x == 0) *calls = call;
}
