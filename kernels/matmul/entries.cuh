// The entries of a module of products: ENTRY(NAME, T, N, CLUSTER, B_ALONG_N) for every element type, layout of B and tile. Mirrored by
// algorithms::matmul::Tile.
// A mutant, which is only ever run on one of them, defines PASSMUSTER_ONLY(ENTRY) to build just that one.
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#else
#define TILES(NAME, T, B_ALONG_N)               \
    ENTRY(NAME##_128x2, T, 128, 2, B_ALONG_N)   \
    ENTRY(NAME##_192x2, T, 192, 2, B_ALONG_N)   \
    ENTRY(NAME##_208x2, T, 208, 2, B_ALONG_N)   \
    ENTRY(NAME##_224x2, T, 224, 2, B_ALONG_N)   \
    ENTRY(NAME##_256x2, T, 256, 2, B_ALONG_N)

TILES(bf16_nk, Bf16, false)
TILES(bf16_kn, Bf16, true)
TILES(f16_nk, F16, false)
TILES(f16_kn, F16, true)
#endif
