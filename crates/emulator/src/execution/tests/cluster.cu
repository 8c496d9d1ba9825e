// Each block of a cluster of two passes on what its neighbour has in shared memory, and counts in that of the first.
// cluster.ptx is what NVRTC 13.0 makes of it with --gpu-architecture=compute_90.
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(unsigned* out, const unsigned* in) {
    __shared__ unsigned values[32];
    __shared__ unsigned count;
    unsigned t = threadIdx.x;
    if (t == 0) count = 0;
    values[t] = in[blockIdx.x * 32 + t];
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    unsigned other = __clusterRelativeBlockRank() ^ 1;
    const unsigned* theirs = (const unsigned*)__cluster_map_shared_rank(values, other);
    unsigned* counter = (unsigned*)__cluster_map_shared_rank(&count, 0);
    atomicAdd(counter, 1);
    unsigned got = theirs[31 - t];
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    unsigned total = __clusterRelativeBlockRank() == 0 ? count : 0;
    out[blockIdx.x * 32 + t] = got + (total << 16) + (__isClusterShared(theirs) << 24) + (__cluster_query_shared_rank(theirs) << 28);
}
