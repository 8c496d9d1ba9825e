// A vector load past the end of the input, whose last elements are thrown away: frameworks' allocators leave bytes there. -DBUG also stores there.
#include "w.cuh"
KERNEL copy(u16* in, u16* out, u32 n) {
    for (u32 i = threadIdx.x * 8; i < n; i += blockDim.x * 8) {
        uint4 pack = *(const uint4*)(in + i);
        const u16* each = (const u16*)&pack;
        for (u32 k = 0; k < 8; k++)
            if (i + k < n) out[i + k] = each[k];
#ifdef BUG
        *(uint4*)(in + i) = make_uint4(pack.x, pack.y, pack.z, pack.w ^ (i + 8 > n ? 0x10000 : 0));
#endif
    }
}
