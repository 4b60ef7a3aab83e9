/* embed from LAYOUT_R16 (cpu/r16.h): rows of the table that the output matrix reads too, unpacked.
 *
 *   table, 16 rows of a stream; a token's row is one lane of each line:
 *
 *        lane = id % 16
 *        . . x . . .    line 0        y[t][i] = table[ids[t]][i] * scale,
 *        . . x . . .    line 1        zeros for an id outside the table
 *        . . x . . .    ...
 *
 *   item = t * ceil(k / 32) + i / 32: a block of 32 columns; a group takes a contiguous share
 */
#include "cpu/r16.h"

#if R16_IS_FLOAT

/* Columns i .. i + n - 1 of lane `lane` of the stream w, times scale. */
CPU_INLINE void embed_r16_block(const __global uchar *w, uint lane, uint i, uint n, float scale,
                                __global float *y)
{
    for (uint k = i; k < i + n; k++) {
#if OP_DTYPE == DT_F32
        const float x = ((const __global float *)w)[16 * (ulong)k + lane];
#elif OP_DTYPE == DT_F16
        const float x = vload_half(16 * (ulong)k + lane, (const __global half *)w);
#else
        const float x =
            as_float((uint)((const __global ushort *)w)[32 * (ulong)(k / 2) + 2 * lane + k % 2]
                     << 16);
#endif
        y[k - i] = x * scale;
    }
}

#else

/* Dword `lane` of four lines of a unit, from line `line`. */
CPU_INLINE uint4 embed_r16_lines(const __global uint *u, uint line, uint lane)
{
    const __global uint *p = u + 16 * line + lane;
    return (uint4)(p[0], p[16], p[32], p[48]);
}

/* The stored numbers of quads 4h .. 4h + 3 (columns 16h .. 16h + 15) of block s of a unit. */
CPU_INLINE uchar16 embed_r16_numbers(const __global uint *u, uint lane, uint s, uint h)
{
#if OP_DTYPE == DT_Q8_0
    return as_uchar16(embed_r16_lines(u, 8 * s + 4 * h, lane));
#elif OP_DTYPE == DT_Q6_K
    const uint half_block = s / 4, c = s % 4;
    const uint4 low =
        (embed_r16_lines(u, 16 * half_block + 8 * (c & 1) + 4 * h, lane) >> (4 * (c >> 1))) &
        0x0f0f0f0fu;
    const uint4 high =
        (embed_r16_lines(u, 32 + 8 * half_block + 4 * h, lane) >> (2 * c)) & 0x03030303u;
    return as_uchar16(low | high << 4);
#elif R16_IS_K
    uint4 q = (embed_r16_lines(u, 8 * (s / 2) + 4 * h, lane) >> (4 * (s & 1))) & 0x0f0f0f0fu;
#if OP_DTYPE == DT_Q5_K
    q |= ((embed_r16_lines(u, 32 + 4 * h, lane) >> s) & 0x01010101u) << 4;
#endif
    return as_uchar16(q);
#else
    uint4 q = (embed_r16_lines(u, 4 * s, lane) >> (4 * h)) & 0x0f0f0f0fu;
#if OP_DTYPE == DT_Q5_0 || OP_DTYPE == DT_Q5_1
    q |= (((uint4)(u[16 * (8 + s) + lane]) >> ((uint4)(0, 1, 2, 3) + 4 * h)) & 0x01010101u) << 4;
#endif
    return as_uchar16(q);
#endif
}

/* Columns i .. i + 31 of lane `lane` of the stream w, times scale. */
CPU_INLINE void embed_r16_block(const __global uchar *w, uint lane, uint i, uint n, float scale,
                                __global float *y)
{
    const __global uchar *unit = w + (ulong)(i / R16_UNIT_K) * R16_UNIT_BYTES;
    const __global uint *u = (const __global uint *)unit;
    const uint s = i % R16_UNIT_K / 32;
    CPU_UNROLL
    for (uint h = 0; h < n / 16; h++) {
#if R16_IS_K
        const __global half *ends = (const __global half *)(unit + 64 * (R16_LINES - 1));
        const float d = vload_half(lane, ends);
#if OP_DTYPE == DT_Q6_K
        const float weight_scale = d * (float)(char)unit[64 * 48 + 16 * (2 * s + h) + lane];
        const float low = weight_scale * -(float)R16_ZERO;
#else
        const __global uchar *scales = unit + 64 * (R16_LINES - 5) + 16 * s + lane;
        const float weight_scale = d * (float)scales[0];
        const float low = -vload_half(16 + lane, ends) * (float)scales[128];
#endif
#else
        const __global half *scales =
            (const __global half *)(unit + 64 * (R16_LINES - 1 - R16_HAS_MIN)) + 16 * s + lane;
        const float weight_scale = vload_half(0, scales);
#if R16_HAS_MIN
        const float low = vload_half(32, scales);
#else
        const float low = weight_scale * -(float)R16_ZERO;
#endif
#endif
        const float16 q = convert_float16(embed_r16_numbers(u, lane, s, h));
        vstore16(fma(q, (float16)(weight_scale), (float16)(low)) * scale, h, y);
    }
}

#endif

static void embed_r16_step(const __global uchar *table, const __global int *ids,
                           __global float *y, struct embed_params p, uint group, uint n_groups)
{
    const uint pieces = div_up(p.k, 32);
    const ulong row_group_bytes = (ulong)(p.k / R16_UNIT_K) * R16_UNIT_BYTES;
    uint begin, end;
    cpu_share(pieces * p.n_tokens, group, n_groups, &begin, &end);
    for (uint item = begin; item < end; item++) {
        const uint t = item / pieces, i = item % pieces * 32, n = min(32u, p.k - i);
        const uint id = (uint)ids[t];
        __global float *out = y + (ulong)t * p.k + i;
        if (id < p.n_vocab)
            embed_r16_block(table + id / 16 * row_group_bytes, id % 16, i, n, p.scale, out);
        else
            for (uint j = 0; j < n; j++)
                out[j] = 0.0f;
    }
}

KERNEL(1) void embed_r16(const __global uchar *table, ulong table_offset, const __global uchar *ids,
                         ulong ids_offset, __global uchar *y, ulong y_offset,
                         struct embed_params p)
{
    embed_r16_step(table + table_offset, (const __global int *)(ids + ids_offset),
                   (__global float *)(y + y_offset), p, get_group_id(0), get_num_groups(0));
}
