// The entries of a module of products: ENTRY(NAME, T, N, CLUSTER, B_ALONG_N) for every element type, layout of B and tile.
// A mutant, which is only ever run on one of them, defines PASSMUSTER_ONLY(ENTRY) to build just that one.
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#else
TILES(ENTRY, bf16_nk, Bf16, false)
TILES(ENTRY, bf16_kn, Bf16, true)
TILES(ENTRY, f16_nk, F16, false)
TILES(ENTRY, f16_kn, F16, true)
#endif
