// Elements that are only moved: their width is all that is known of them, and no bit of them changes.
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
