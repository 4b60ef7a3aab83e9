/* linear for few tokens as a kernel of its own: linear_decode.inc for TOKENS, with AVX2 and several
 * tokens for as many as there are at run time. */
#include "cpu/linear.h"
#include "cpu/r16.inc"

#ifndef TOKENS
#define TOKENS 1
#endif
#if CPU_ISA == 1 && TOKENS > 1
#include "cpu/linear_few.inc"
#define LINEAR_STEP linear_few_step
#else
#include "cpu/linear_decode.inc"
#define LINEAR_STEP linear_decode_step
#endif

KERNEL(1) void linear_decode(__global uchar *w, ulong w_off, __global uchar *x, ulong x_off,
                              __global uchar *bias, ulong bias_off, __global uchar *y, ulong y_off,
                              struct linear_params p)
{
    int prepared[PREPARED_WORDS];
    LINEAR_STEP(w + w_off, x + x_off, (const __global float *)(bias + bias_off),
                (__global float *)(y + y_off), p, prepared, get_group_id(0), get_num_groups(0));
}
