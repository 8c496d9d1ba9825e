// Instantiates ENTRY(name, dtype, operator) for every combination that the reducing collectives have an entry for, and for Any, which takes the
// others, with `how` in place of `average`. A kernel that defines FEW_ENTRIES before it includes anything has entries of its own for what most calls
// are: sums of f32, f16 and bf16. A mutant, which is only ever run on one combination, defines PASSMUSTER_ONLY(ENTRY) to build
// just that one.
#include "any.cuh"
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#elif defined(FEW_ENTRIES)
#define SUM_OF_TYPE(NAME, T) ENTRY(NAME##_sum, T, Sum)
FEW_DTYPES(SUM_OF_TYPE)
ENTRY(any, Any, Any)
#else
#define OF_OPERATOR(OP, OPERATOR, NAME, T) ENTRY(NAME##_##OP, T, OPERATOR)
#define OF_TYPE(NAME, T) COMMON_OPERATORS(OF_OPERATOR, NAME, T)
COMMON_DTYPES(OF_TYPE)
ENTRY(any, Any, Any)
#endif
