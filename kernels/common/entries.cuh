// Instantiates ENTRY(name, dtype, operator) for every combination that the reducing collectives have an entry for, and for Any, which takes the
// others, with `how` in place of `average`. A kernel that defines FEW_ENTRIES before it includes anything has entries of its own for what most calls
// are: sums of f32, f16 and bf16. A mutant, which is only ever run on one combination, defines PASSMUSTER_ONLY(ENTRY) to build
// just that one.
#include "any.cuh"
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#elif defined(FEW_ENTRIES)
ENTRY(f32_sum, F32, Sum)
ENTRY(f16_sum, F16, Sum)
ENTRY(bf16_sum, BF16, Sum)
ENTRY(any, Any, Any)
#else
#define OPERATORS(NAME, T) ENTRY(NAME##_sum, T, Sum) ENTRY(NAME##_min, T, Min) ENTRY(NAME##_max, T, Max)
OPERATORS(f32, F32)
OPERATORS(f16, F16)
OPERATORS(bf16, BF16)
OPERATORS(f64, F64)
OPERATORS(i32, I32)
ENTRY(any, Any, Any)
#endif
