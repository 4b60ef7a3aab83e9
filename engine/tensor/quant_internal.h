/* What quant.c (the table, the plain types and blocks of 32) and quant_k.c (super-blocks of 256)
 * share. A codec converts whole blocks; src and dst of the quantised side need no alignment. */
#ifndef OINFER_TENSOR_QUANT_INTERNAL_H
#define OINFER_TENSOR_QUANT_INTERNAL_H

#include <stdint.h>

void quant__q4_k_to_f32(const void *src, float *dst, uint64_t n_blocks);
void quant__q5_k_to_f32(const void *src, float *dst, uint64_t n_blocks);
void quant__q6_k_to_f32(const void *src, float *dst, uint64_t n_blocks);
void quant__q4_k_from_f32(const float *src, void *dst, uint64_t n_blocks);
void quant__q5_k_from_f32(const float *src, void *dst, uint64_t n_blocks);
void quant__q6_k_from_f32(const float *src, void *dst, uint64_t n_blocks);

/* The nearest integer in [low, high]; halves go up, NaN gives low. */
static inline int quant__round(float x, int low, int high)
{
    x += 0.5f;
    if (!(x > (float)low))
        return low;
    if (x >= (float)high)
        return high;
    int truncated = (int)x;
    return (float)truncated > x ? truncated - 1 : truncated;
}

/* 1 / x, and 0 for 0: a block of zeros has scale 0. */
static inline float quant__inverse(float x)
{
    return x != 0.0f ? 1.0f / x : 0.0f;
}

#endif
