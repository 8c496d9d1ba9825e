// bench/late: one thread lets time pass on its stream, so that what follows is late by that much on this rank. It touches no memory.
#include "../common/types.cuh"

extern "C" __global__ void late(u64 nanoseconds) {
    u64 begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}
