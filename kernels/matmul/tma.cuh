// Copies of boxes between tensors and shared memory by the tensor memory accelerator, which complete on barriers (sm_90).
#pragma once
#include "../common/mbarrier.cuh"

// CUtensorMap: which memory is a tensor, its shape, the box of one copy and how the box is swizzled.
struct alignas(64) TensorMap {
    u64 word[16];
};

__device__ __forceinline__ void prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory");
}

// Initialised barriers are seen by the other blocks of the cluster and by the copies.
__device__ __forceinline__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory"); }

// Arrives, and expects `bytes` of copies before the phase can end.
__device__ __forceinline__ void expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
}

// Arrives at the barrier that lies at the same place in block `block` of the cluster. Without a scope of the cluster, which would cost a
// fence of the whole device each time: it says that copies have been read, and orders no writes of this thread.
__device__ __forceinline__ void arrive_at(u32 barrier, u32 block) {
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}"
                 :
                 : "r"(barrier), "r"(block)
                 : "memory");
}

// Loads the box at column `x`, row `y`; what of it lies outside the tensor becomes zeros, and counts as bytes all the same.
__device__ __forceinline__ void load_box(const TensorMap& map, u32 to, u32 x, u32 y, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 :
                 : "r"(to), "l"(&map), "r"(x), "r"(y), "r"(barrier)
                 : "memory");
}

// The same of matrix `z` of several.
__device__ __forceinline__ void load_box(const TensorMap& map, u32 to, u32 x, u32 y, u32 z, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                 :
                 : "r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier)
                 : "memory");
}

// The same into all blocks of the cluster in the mask `blocks`, each at the same place, completing on the barrier of each.
__device__ __forceinline__ void multicast_box(const TensorMap& map, u32 to, u32 x, u32 y, u32 barrier, u16 blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
        :
        : "r"(to), "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
        : "memory");
}

// Stores a box of matrix `z`; what lies outside it is left out.
__device__ __forceinline__ void store_box(const TensorMap& map, u32 from, u32 x, u32 y, u32 z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];"
                 :
                 : "l"(&map), "r"(x), "r"(y), "r"(z), "r"(from)
                 : "memory");
}

// Adds a box to matrix `z`, each element's sum rounded to the type once.
__device__ __forceinline__ void add_box(const TensorMap& map, u32 from, u32 x, u32 y, u32 z) {
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3}], [%4];"
                 :
                 : "l"(&map), "r"(x), "r"(y), "r"(z), "r"(from)
                 : "memory");
}

__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" : : : "memory"); }

// Until no more than GROUPS of this thread's groups of stores still read shared memory.
template <u32 GROUPS>
__device__ __forceinline__ void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(GROUPS) : "memory");
}

__device__ __forceinline__ void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" : : : "memory"); }

// What this thread wrote to shared memory may be read by copies and products that are started after a barrier.
__device__ __forceinline__ void publish_to_copies() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

__device__ __forceinline__ u32 block_of_cluster() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" : : : "memory");
}

// Barrier `name` between `threads` threads of the block.
__device__ __forceinline__ void named_barrier(u32 name, u32 threads) {
    asm volatile("bar.sync %0, %1;" : : "r"(name), "r"(threads) : "memory");
}
