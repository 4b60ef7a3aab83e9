/* Writers of activations in the format OP_ACT: engine/ops/act.h draws the formats. */
#ifndef ACT_H
#define ACT_H

/* Bytes of a row of k elements. */
static ulong act_row_bytes(uint k)
{
#if OP_ACT == ACT_Q8
    return ((ulong)k + k / 32 * 8 + 63) / 64 * 64;
#elif OP_ACT == ACT_F16
    return 2 * (ulong)k;
#else
    return 4 * (ulong)k;
#endif
}

#if OP_ACT == ACT_Q8

/* Block b (elements 32 b .. 32 b + 31) of a row. */
static void act_store_32(__global uchar *row, uint k, uint b, float16 lo, float16 hi)
{
    const float d = max_16(fmax(fabs(lo), fabs(hi))) / 127.0f;
    const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
    const int16 q_lo = convert_int16(round(lo * inverse)), q_hi = convert_int16(round(hi * inverse));
    vstore16(convert_char16(q_lo), 2 * b, (__global char *)row);
    vstore16(convert_char16(q_hi), 2 * b + 1, (__global char *)row);
    ((__global float *)(row + k))[b] = d;
    const int16 q = q_lo + q_hi;
    const int8 s = q.lo + q.hi;
    const int4 u = s.lo + s.hi;
    ((__global int *)(row + k))[k / 32 + b] = (u.x + u.y) + (u.z + u.w);
}

#else

static void act_store(__global uchar *row, uint i, float v)
{
#if OP_ACT == ACT_F16
    /* saturated: one activation beyond the range of halves would make all sums infinite or NaN */
    vstore_half_rte(v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v, i,
                    (__global half *)row);
#else
    ((__global float *)row)[i] = v;
#endif
}

#endif
#endif
