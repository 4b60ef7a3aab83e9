/* What norm, quantize and swiglu of CPU devices need whatever format they write. */
#ifndef CPU_ACTIVATIONS_H
#define CPU_ACTIVATIONS_H

#include "cpu/q8t.h"
#include "cpu/vec.h"

#define ROW_Q8(k) (((k) + (k) / 4 + 63) / 64 * 64) /* bytes of a row of ACT_Q8 */

/* The functions of activations.inc carry the number of their format in their names. */
#define ACT_PASTE_(name, number) name##_##number
#define ACT_PASTE(name, number)  ACT_PASTE_(name, number)
#define ACT_NAME(name)           ACT_PASTE(name, OP_ACT)
#define store_32                 ACT_NAME(store_32)
#define norm_cpu_step            ACT_NAME(norm_cpu_step)
#define quantize_cpu_step        ACT_NAME(quantize_cpu_step)
#define swiglu_cpu_step          ACT_NAME(swiglu_cpu_step)

/* Sum over a row of (x - mean)^2 for the columns below len. */
CPU_INLINE float sum_squares(const __global float *x, uint len, float mean)
{
    float16 a = (float16)(0.0f), b = (float16)(0.0f);
    uint i = 0;
    for (; i + 32 <= len; i += 32) {
        const float16 u = vload16(0, x + i) - mean, v = vload16(0, x + i + 16) - mean;
        a = fma(u, u, a);
        b = fma(v, v, b);
    }
    float sum = sum_16(a + b);
    for (; i < len; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sum;
}

CPU_INLINE float sum_row(const __global float *x, uint len)
{
    float16 a = (float16)(0.0f);
    uint i = 0;
    for (; i + 16 <= len; i += 16)
        a += vload16(0, x + i);
    float sum = sum_16(a);
    for (; i < len; i++)
        sum += x[i];
    return sum;
}

/* gelu_tanh(x) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
CPU_INLINE float16 gated(float16 gate, float16 up, uint act)
{
    if (act == 0)
        return cpu_silu(gate) * up;
    const float16 u = 0.7978845608f * fma(gate * gate * 0.044715f, gate, gate);
    return gate / (1.0f + cpu_exp(-2.0f * u)) * up;
}

#endif
