/* Rows of floats in quads of 16 bytes, and of halves in quads of 8. act.h comes first. */
#ifndef QUADS_H
#define QUADS_H

/* Whether all quads of a matrix whose rows are `stride` floats apart lie at multiples of 16 bytes. */
static bool quads_aligned(const __global float *x, uint stride)
{
    return ((ulong)x & 15) == 0 && stride % 4 == 0;
}

static float4 quad_load(const __global float *x, bool aligned)
{
    return aligned ? *(const __global float4 *)x : vload4(0, x);
}

/* Columns i .. i + 3 of a row of ACT_F16, saturated as act_store does. */
static void act_store_quad(__global uchar *row, uint i, float4 v)
{
    v = v > 65504.0f ? (float4)(65504.0f) : v;
    v = v < -65504.0f ? (float4)(-65504.0f) : v;
    vstore_half4_rte(v, 0, (__global half *)(row + 2 * i));
}

#endif
