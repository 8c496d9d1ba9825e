// all_to_all/ll_v: as ll.cu for all-to-all-v: parts, some of zero bytes, lie packed on both sides.
//
// Over the link: 2 x (world - 1) x the longest part of any two ranks into each rank, half of it flags, in one trip without a barrier. For small
// messages whose parts are about as long.
//
// Thread i has line i, eight bytes of every part: the protocol is that of common/lines.cuh. It wants as many lines of all ranks, so all have
// those of the longest part of any two of them, and of a shorter part the rest are sent empty: their flags still tell that a slot may be used again.
//
// A line goes by bytes where its part does not start at a multiple of eight, or ends within it.
#include "../common/copies.cuh"
#include "../common/lines.cuh"

// Bytes of the part for each rank, or of each, and where it starts in this rank's input, or output.
struct Parts {
    u64 bytes[MAX_RANKS];
    u64 at[MAX_RANKS];
};

// Parts of fewer than 2^31 bytes: ll.rs lets through none that comes near.
extern "C" __global__ void __launch_bounds__(512, 1)
    all_to_all_ll_v_b8(u64 input, u64 output, u32 lines, const __grid_constant__ Sync sync, const __grid_constant__ Parts sent,
                       const __grid_constant__ Parts received) {
    stall<SITE_ENTER>(sync);
    auto own = [&](u32 line) { return load_payload<B8>(input + sent.at[sync.rank], line, (u32)sent.bytes[sync.rank]); };
    auto payload = [&](u32 peer, u32 line, const Pack&) { return load_payload<B8>(input + sent.at[peer], line, (u32)sent.bytes[peer]); };
    auto take = [&](u32 rank, u32 line, const Pack& payload) {
        store_payload<B8>(output + received.at[rank], line, (u32)received.bytes[rank], payload);
    };
    exchange_lines(sync, lines, own, payload, take);
    stall<SITE_LEAVE>(sync);
}
