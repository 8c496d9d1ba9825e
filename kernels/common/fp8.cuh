// FP8 for `any`, by the conversions of sm_89 and newer, two at a time: dtype.cuh, which is for all GPUs, takes 20 to 35 instructions for each. Both give
// the same but for the NaN that is widened: it is one, and is narrowed to the same. For kernels whose target is that new.
#pragma once
#include "any.cuh"

#define FP8_BY_HARDWARE(T, NAME)                                                                                          \
    template <>                                                                                                                  \
    __device__ __forceinline__ void widen_lanes<T, LANES<T>>(float(&x)[LANES<T>], const Pack& p) {                               \
        _Pragma("unroll") for (u32 j = 0; j < LANES<T>; j += 2) {                                                                \
            u32 halves;                                                                                                          \
            asm("cvt.rn.f16x2." NAME "x2 %0, %1;" : "=r"(halves) : "h"((u16)(p.word[j / 4] >> 8 * (j % 4))));                    \
            x[j] = F16::widen((u16)halves);                                                                                      \
            x[j + 1] = F16::widen((u16)(halves >> 16));                                                                          \
        }                                                                                                                        \
    }                                                                                                                            \
    template <>                                                                                                                  \
    __device__ __forceinline__ Pack finish_lanes<T, LANES<T>>(const float(&acc)[LANES<T>], u32 world, u32 how) {                 \
        Pack result = {{0, 0, 0, 0}};                                                                                            \
        _Pragma("unroll") for (u32 j = 0; j < LANES<T>; j += 2) {                                                                \
            float low = how & 1 ? divide(acc[j], world) : acc[j], high = how & 1 ? divide(acc[j + 1], world) : acc[j + 1];       \
            u16 pair;                                                                                                            \
            asm("cvt.rn.satfinite." NAME "x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));                               \
            result.word[j / 4] |= (u32)pair << 8 * (j % 4);                                                                      \
        }                                                                                                                        \
        return result;                                                                                                           \
    }
FP8_BY_HARDWARE(E4M3, "e4m3")
FP8_BY_HARDWARE(E5M2, "e5m2")
#undef FP8_BY_HARDWARE
