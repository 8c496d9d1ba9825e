// Faults to inject, so that the harness can show that it names them.
#include "../common/types.cuh"

// Writes to an address that no allocation holds.
extern "C" __global__ void illegal_address(u64 address) {
    *(volatile u32*)address = 1;
}
