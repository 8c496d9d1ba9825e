// all_gather/copy_engine_barrier, and the same of all-to-all and broadcast: all ranks meet, in one block. Copies by copy engines lie between two
// of these (crates/kernels/src/exchange.rs).
//
//   (relaxed): what our stream did before, our copies among it, our epoch -> peer's poll. What peers do behind it may read what our copies brought,
//         and write to what our stream has read.
//
// Nothing that this kernel itself wrote is passed on, so no order is asked for: what lies before it and behind it are other operations of the stream.
#include "../common/signals.cuh"

extern "C" __global__ void __launch_bounds__(128, 1) all_gather_copy_engine_barrier(const __grid_constant__ Sync sync) {
    stall<SITE_ENTER>(sync);
    end_barrier<RELAXED>(sync, sync.epochs[blockIdx.x]);
}
