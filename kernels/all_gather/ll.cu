// all_gather/ll: every rank pushes its input to every rank in LL lines, and stores what it finds in its own pad to its output.
//
// Over the link: 2 x (world - 1) x count elements into each rank, half of them flags, in one trip without a barrier. For small messages.
//
// Thread i has line i, eight bytes of every rank's slot: the protocol is that of common/lines.cuh. In place the own slot is overwritten with
// itself.
#include "../common/copies.cuh"
#include "../common/lines.cuh"

// `sync.pads` are the pads of lines and `sync.epochs` the counts, a word for each line.
template <typename T>
__device__ __forceinline__ void ll(u64 input, u64 output, u32 elements, const Sync& sync) {
    stall(sync, SITE_ENTER);
    u32 lines = lines_of<T>(elements);
    u64 slot_bytes = (u64)elements * sizeof(typename T::Stored);
    for (u32 line = blockIdx.x * blockDim.x + threadIdx.x; line < lines; line += gridDim.x * blockDim.x) {
        u32 count = sync.epochs[line] + 1;
        Pack own = load_payload<T>(input, line, elements);
        stall(sync, SITE_START);
        u64 slot = line_slot(line, count & 1, sync.world);
        send_lines(sync, slot, count, [&](u32) { return own; });
        stall(sync, SITE_END);
        receive_lines(sync, sync.pads.address[sync.rank] + slot, own, count, [&](u32 rank, bool, const Pack& payload) {
            store_payload<T>(output + rank * slot_bytes, line, elements, payload);
        });
        sync.epochs[line] = count;
    }
    stall(sync, SITE_LEAVE);
}

// Slots of at most 2^31 elements, of which ll.rs lets through fewer.
#define ENTRY(NAME, T)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                              \
        all_gather_ll_##NAME(u64 input, u64 output, u32 elements, const __grid_constant__ Sync sync) {                                \
        ll<T>(input, output, elements, sync);                                                                                         \
    }
#include "../common/copy_entries.cuh"
