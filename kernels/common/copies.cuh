// Elements that are only moved: their width is all that is known of them, and no bit of them changes. And the turn that ranks take in
// storing them to all.
#pragma once
#include "reduce.cuh"
#include "signals.cuh"

struct B8 {
    using Stored = u8;
};
struct B16 {
    using Stored = u16;
};
struct B32 {
    using Stored = u32;
};
struct B64 {
    using Stored = u64;
};

// The rank that comes `step` ranks after this one, going round; this one again after as many steps as there are ranks.
__device__ __forceinline__ u32 rank_after(const Sync& sync, u32 step) {
    u32 rank = sync.rank + step;
    return rank < sync.world ? rank : rank - sync.world;
}
