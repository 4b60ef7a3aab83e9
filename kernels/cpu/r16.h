/* LAYOUT_R16: weights for CPU devices, 16 rows interleaved.
 *
 * Rows 16g .. 16g+15 are one contiguous stream of units, scales included, in whole 64-byte lines;
 * the streams of the row groups follow one another. A line holds 16 dwords, one per row ("lane");
 * "quad" below means 4 consecutive k of a row in the 4 bytes of a dword. Missing rows (m not a
 * multiple of 16) are zeros. A unit covers R16_UNIT_K columns:
 *
 *  dtype  k    lines of a unit
 *  q4_0   64    8 nibbles, 1 scales
 *  q4_1   64    8 nibbles, 1 scales, 1 mins
 *  q5_0   64    8 nibbles, 2 high bits, 1 scales
 *  q5_1   64    8 nibbles, 2 high bits, 1 scales, 1 mins
 *  q8_0   64   16 bytes (stored +128, unsigned), 1 scales
 *  q4_K  256   32 nibbles, 2 scales, 2 mins, 1 {d, dmin}
 *  q5_K  256   32 nibbles, 8 high bits, 2 scales, 2 mins, 1 {d, dmin}
 *  q6_K  256   32 nibbles, 16 pairs of high bits, 4 scales, 1 {d, unused}
 *  f32     2    2 of 16 float: one k each
 *  f16     2    1: 16 half of k, then 16 half of k + 1
 *  bf16    2    1: 16 pairs {k, k + 1}, one per row
 *
 * nibbles of 32-blocks: block b, line i (0..3): low half quad i, high half quad i + 4.
 * nibbles of q4_K, q5_K: group of 64 j, line i (0..7): low half quad i of sub-block 2j, high half
 *   of sub-block 2j + 1. q6_K: half h, line i (0..15): low half quad i, high half quad i + 16.
 * high bits of q5_0, q5_1: one line per block: bit j of byte c is the fifth bit of k = 4j + c.
 * high bits of q5_K: line i: bit s of byte c is the fifth bit of k = 4i + c of sub-block s.
 * pairs of q6_K: half h, line i (0..7): bits 2c, 2c+1 of each byte belong to quad 8c + i.
 * scales, mins of 32-blocks: 16 half of block 0, then 16 half of block 1.
 * scales, mins of q4_K, q5_K: 16 uchar per sub-block of 32; of q6_K: 16 char per sub-block of 16.
 *
 * The kernels walk "pairs": 64 columns = 2 blocks of 32, that is one unit of a 32-block dtype or a
 * quarter of a unit of a K-quant.
 */
#ifndef CPU_R16_H
#define CPU_R16_H

#include "cpu/vec.h"

#define R16_IS_FLOAT (OP_DTYPE == DT_F32 || OP_DTYPE == DT_F16 || OP_DTYPE == DT_BF16)
#define R16_IS_K     (OP_DTYPE == DT_Q4_K || OP_DTYPE == DT_Q5_K || OP_DTYPE == DT_Q6_K)
#define R16_HAS_MIN                                                                        \
    (OP_DTYPE == DT_Q4_1 || OP_DTYPE == DT_Q5_1 || OP_DTYPE == DT_Q4_K || OP_DTYPE == DT_Q5_K)

/* R16_LINES: lines of a unit. R16_ZERO: what the stored unsigned number of a zero weight is. */
#if OP_DTYPE == DT_F32
#define R16_LINES 2
#elif OP_DTYPE == DT_F16 || OP_DTYPE == DT_BF16
#define R16_LINES 1
#elif OP_DTYPE == DT_Q4_0
#define R16_LINES 9
#define R16_ZERO  8
#elif OP_DTYPE == DT_Q4_1
#define R16_LINES 10
#define R16_ZERO  0
#elif OP_DTYPE == DT_Q5_0
#define R16_LINES 11
#define R16_ZERO  16
#elif OP_DTYPE == DT_Q5_1
#define R16_LINES 12
#define R16_ZERO  0
#elif OP_DTYPE == DT_Q8_0
#define R16_LINES 17
#define R16_ZERO  128
#elif OP_DTYPE == DT_Q4_K
#define R16_LINES 37
#define R16_ZERO  0
#elif OP_DTYPE == DT_Q5_K
#define R16_LINES 45
#define R16_ZERO  0
#elif OP_DTYPE == DT_Q6_K
#define R16_LINES 53
#define R16_ZERO  32
#endif

#if R16_IS_FLOAT
#define R16_UNIT_K 2
#elif R16_IS_K
#define R16_UNIT_K 256
#else
#define R16_UNIT_K 64
#endif
#define R16_UNIT_BYTES (R16_LINES * 64)

/* Bytes of the stream of one row group. */
CPU_INLINE ulong r16_group_bytes(uint k)
{
    return (ulong)(k / R16_UNIT_K) * R16_UNIT_BYTES;
}

#if !R16_IS_FLOAT

#define R16_PAIRS (R16_UNIT_K / 64) /* pairs in a unit */

/* Quad i (0..7) of block b (0, 1) of pair j of the unit at u, as unsigned bytes of 16 rows. */
CPU_INLINE uint16 r16_quad(const __global uint16 *u, uint j, uint b, uint i)
{
#if OP_DTYPE == DT_Q8_0
    return u[8 * b + i];
#elif OP_DTYPE == DT_Q4_K || OP_DTYPE == DT_Q5_K
    uint16 q = (u[8 * j + i] >> (4 * b)) & 0x0f0f0f0fu;
#if OP_DTYPE == DT_Q5_K
    q |= ((u[32 + i] >> (2 * j + b)) & 0x01010101u) << 4;
#endif
    return q;
#elif OP_DTYPE == DT_Q6_K
    uint h = j >> 1, c = 2 * (j & 1) + b;
    uint16 low = (u[16 * h + 8 * b + i] >> (4 * (j & 1))) & 0x0f0f0f0fu;
    return low | (((u[32 + 8 * h + i] >> (2 * c)) & 0x03030303u) << 4);
#else
    uint16 q = (u[4 * b + (i & 3)] >> (4 * (i >> 2))) & 0x0f0f0f0fu;
#if OP_DTYPE == DT_Q5_0 || OP_DTYPE == DT_Q5_1
    q |= ((u[8 + b] >> i) & 0x01010101u) << 4;
#endif
    return q;
#endif
}

/* Scale of the 16 rows for block b of pair j; for q6_K of its half s (0, 1), else s is ignored. */
CPU_INLINE float16 r16_scale(const __global uint16 *u, uint j, uint b, uint s)
{
#if R16_IS_K
    float16 d = vload_half16(0, (const __global half *)(u + R16_LINES - 1));
#if OP_DTYPE == DT_Q6_K
    return d * convert_float16(((const __global char16 *)(u + 48))[4 * j + 2 * b + s]);
#else
    return d * convert_float16(((const __global uchar16 *)(u + R16_LINES - 5))[2 * j + b]);
#endif
#else
    return vload_half16(b, (const __global half *)(u + R16_LINES - 1 - R16_HAS_MIN));
#endif
}

#if R16_HAS_MIN
/* What a weight of stored number 0 is worth, per row, in block b of pair j. */
CPU_INLINE float16 r16_min(const __global uint16 *u, uint j, uint b)
{
#if R16_IS_K
    float16 dmin = vload_half16(1, (const __global half *)(u + R16_LINES - 1));
    return -dmin * convert_float16(((const __global uchar16 *)(u + R16_LINES - 3))[2 * j + b]);
#else
    return vload_half16(b, (const __global half *)(u + R16_LINES - 1));
#endif
}
#endif

#define R16_COLUMNS 4

/* The weights of 16 rows in columns k (a multiple of 4) .. k + 3 of the stream at w. */
CPU_INLINE void r16_columns(const __global uchar *w, uint k, float16 *columns)
{
    const uint j = k / 64 % R16_PAIRS, b = k / 32 % 2, i = k / 4 % 8;
    const __global uint16 *u =
        (const __global uint16 *)(w + (ulong)(k / R16_UNIT_K) * R16_UNIT_BYTES);
    const uint16 q = r16_quad(u, j, b, i);
    const float16 scale = r16_scale(u, j, b, i / 4);
#if R16_HAS_MIN
    const float16 low = r16_min(u, j, b);
#else
    const float16 low = scale * -(float)R16_ZERO;
#endif
    CPU_UNROLL
    for (uint c = 0; c < 4; c++)
        columns[c] = fma(convert_float16(as_int16((q >> (8 * c)) & 0xffu)), scale, low);
}

#else /* float dtypes */

#define R16_COLUMNS 2

/* The weights of 16 rows in columns k (even) and k + 1 of the stream at w. */
CPU_INLINE void r16_columns(const __global uchar *w, uint k, float16 *columns)
{
#if OP_DTYPE == DT_F32
    columns[0] = ((const __global float16 *)w)[k];
    columns[1] = ((const __global float16 *)w)[k + 1];
#elif OP_DTYPE == DT_F16
    columns[0] = vload_half16(k, (const __global half *)w);
    columns[1] = vload_half16(k + 1, (const __global half *)w);
#else
    const uint16 pairs = ((const __global uint16 *)w)[k / 2];
    columns[0] = as_float16(pairs << 16);
    columns[1] = as_float16(pairs & 0xffff0000u);
#endif
}

#endif
#endif
