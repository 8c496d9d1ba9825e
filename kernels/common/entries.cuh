// Instantiates ENTRY(name, dtype, operator) for every combination that the reducing collectives have an entry for, and for Any, which takes the
// others, with `how` in place of `average`. A mutant, which is only ever run on one combination, defines PASSMUSTER_ONLY(ENTRY) to build
// just that one.
#include "any.cuh"
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#else
#define OPERATORS(NAME, T) ENTRY(NAME##_sum, T, Sum) ENTRY(NAME##_min, T, Min) ENTRY(NAME##_max, T, Max)
OPERATORS(f32, F32)
OPERATORS(f16, F16)
OPERATORS(bf16, BF16)
OPERATORS(f64, F64)
OPERATORS(i32, I32)
ENTRY(any, Any, Any)
#endif
