// conformance/hold: blocks that keep the SMs they run on until a word tells them to go, or until they have had enough of it. What
// ends while they still hold, with as many as a device takes, has run without an SM.
//
//   come (release):  a block's add to `holding` -> the stream that waits until it counts all. No block goes before the word comes or it gives up, so all of
//                    them are resident then.
//   told (relaxed):  the stream's write of `told` -> our poll. Nothing is read after it.
#include "../common/signals.cuh"

// One thread of each block; `limit` in nanoseconds, from the block's start.
extern "C" __global__ void hold(u32* holding, const u32* told, u32* outcomes, u64 limit) {
    if (threadIdx.x != 0) return;
    u64 begin = nanoseconds();
    asm volatile("red.release.sys.global.add.u32 [%0], 1;" : : "l"(holding) : "memory");
    u32 outcome = 0;
    while (outcome == 0) {
        u64 now = nanoseconds();
        if (load_signal<RELAXED>(told)) outcome = TOLD;
        else if (now - begin > limit) outcome = GAVE_UP;
    }
    outcomes[blockIdx.x] = outcome;
}
