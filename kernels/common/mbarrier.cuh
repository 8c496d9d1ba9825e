// Barriers in shared memory for which nobody spins: who waits is suspended (sm_90).
#pragma once
#include "types.cuh"

__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

__device__ __forceinline__ void init_barrier(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}

// Whether the phase of this parity has ended. Of a barrier that nobody has arrived at, the phase of parity 1 has.
__device__ __forceinline__ bool has_ended(u32 barrier, u32 parity) {
    u32 done;
    asm volatile("{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done;
}

// Until the phase of this parity has ended.
__device__ __forceinline__ void wait_phase(u32 barrier, u32 parity) {
    u32 done;
    do {
        asm volatile("{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}
