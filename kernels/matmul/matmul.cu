// target: compute_90a
#include "matmul.cuh"

#define ENTRY(NAME, T, N, CLUSTER, B_ALONG_N)                                                                            \
    extern "C" __global__ void __launch_bounds__(MATMUL_THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)                       \
        matmul_##NAME(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,                          \
                      const __grid_constant__ TensorMap c, const __grid_constant__ Raster raster, u32 depth) {           \
        matmul<T, Tile<N, CLUSTER, B_ALONG_N>>(Given{a}, b, Stored{c}, raster, depth);                                           \
    }
#include "entries.cuh"
