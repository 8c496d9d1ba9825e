// Instantiates ENTRY(name, dtype, operator) for every combination that multimem reduces: minima and maxima are of 16-bit floats only. A
// mutant defines PASSMUSTER_ONLY(ENTRY), as in entries.cuh.
#ifdef PASSMUSTER_ONLY
PASSMUSTER_ONLY(ENTRY)
#else
ENTRY(f32_sum, F32, Sum)
ENTRY(f16_sum, F16, Sum)
ENTRY(f16_min, F16, Min)
ENTRY(f16_max, F16, Max)
ENTRY(bf16_sum, BF16, Sum)
ENTRY(bf16_min, BF16, Min)
ENTRY(bf16_max, BF16, Max)
#endif
