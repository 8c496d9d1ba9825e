// Instantiates ENTRY(name, width) for every width of elements that the copying collectives move. A mutant, which is only ever run on one
// width, defines PASSMUSTER_ONLY(ENTRY) to build just that one.
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#else
ENTRY(b8, B8)
ENTRY(b16, B16)
ENTRY(b32, B32)
ENTRY(b64, B64)
#endif
