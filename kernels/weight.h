/* Readers of weights (and caches) in their file layout, for the dtype OP_DTYPE.
 *
 * A row of k elements is k / WEIGHT_BLOCK blocks of WEIGHT_BYTES. Blocks lie at multiples of 2
 * bytes (4 for f32), so nothing wider than a ushort is loaded as one. quant.h draws the blocks.
 */
#ifndef WEIGHT_H
#define WEIGHT_H

#if OP_DTYPE == DT_F32
#define WEIGHT_BLOCK 1
#define WEIGHT_BYTES 4
#elif OP_DTYPE == DT_F16 || OP_DTYPE == DT_BF16
#define WEIGHT_BLOCK 1
#define WEIGHT_BYTES 2
#elif OP_DTYPE == DT_Q4_0
#define WEIGHT_BLOCK 32
#define WEIGHT_BYTES 18
#elif OP_DTYPE == DT_Q4_1
#define WEIGHT_BLOCK 32
#define WEIGHT_BYTES 20
#elif OP_DTYPE == DT_Q5_0
#define WEIGHT_BLOCK 32
#define WEIGHT_BYTES 22
#elif OP_DTYPE == DT_Q5_1
#define WEIGHT_BLOCK 32
#define WEIGHT_BYTES 24
#elif OP_DTYPE == DT_Q8_0
#define WEIGHT_BLOCK 32
#define WEIGHT_BYTES 34
#elif OP_DTYPE == DT_Q4_K
#define WEIGHT_BLOCK 256
#define WEIGHT_BYTES 144
#elif OP_DTYPE == DT_Q5_K
#define WEIGHT_BLOCK 256
#define WEIGHT_BYTES 176
#elif OP_DTYPE == DT_Q6_K
#define WEIGHT_BLOCK 256
#define WEIGHT_BYTES 210
#endif

static ulong weight_row_bytes(uint k)
{
    return (ulong)(k / WEIGHT_BLOCK) * WEIGHT_BYTES;
}

/* weight_at: element i of the row. weight_16: elements i .. i + 15, i a multiple of 16. */
#if WEIGHT_BLOCK == 1

static float weight_at(const __global uchar *row, uint i)
{
#if OP_DTYPE == DT_F32
    return ((const __global float *)row)[i];
#elif OP_DTYPE == DT_F16
    return load_half(row + 2 * (ulong)i);
#else
    return as_float((uint)((const __global ushort *)row)[i] << 16);
#endif
}

static float16 weight_16(const __global uchar *row, uint i)
{
#if OP_DTYPE == DT_F32
    return vload16(0, (const __global float *)row + i);
#elif OP_DTYPE == DT_F16
    return vload_half16(0, (const __global half *)row + i);
#else
    return as_float16(convert_uint16(vload16(0, (const __global ushort *)row + i)) << 16);
#endif
}

#elif OP_DTYPE == DT_Q8_0

static float weight_at(const __global uchar *row, uint i)
{
    const __global uchar *b = row + (ulong)(i / 32) * 34;
    return load_half(b) * (float)as_char(b[2 + i % 32]);
}

static float16 weight_16(const __global uchar *row, uint i)
{
    const __global uchar *b = row + (ulong)(i / 32) * 34;
    return load_half(b) * convert_float16(as_char16(load_bytes16(b + 2 + i % 32)));
}

#elif WEIGHT_BLOCK == 32

/* Offsets inside a block: d 0, (m 2,) (qh,) qs. */
#define BLOCK_HAS_MIN  (OP_DTYPE == DT_Q4_1 || OP_DTYPE == DT_Q5_1)
#define BLOCK_HAS_HIGH (OP_DTYPE == DT_Q5_0 || OP_DTYPE == DT_Q5_1)
#define BLOCK_QH       (BLOCK_HAS_MIN ? 4 : 2)
#define BLOCK_QS       (WEIGHT_BYTES - 16)

/* d * q + m of stored numbers q. */
static float block_offset(const __global uchar *b, float d)
{
#if BLOCK_HAS_MIN
    return load_half(b + 2);
#elif BLOCK_HAS_HIGH
    return -16.0f * d;
#else
    return -8.0f * d;
#endif
}

/* The fifth bits of a block: bit i belongs to element i. */
static uint block_high(const __global uchar *b)
{
    const __global ushort *h = (const __global ushort *)(b + BLOCK_QH);
    return h[0] | (uint)h[1] << 16;
}

static float weight_at(const __global uchar *row, uint i)
{
    const __global uchar *b = row + (ulong)(i / 32) * WEIGHT_BYTES;
    const float d = load_half(b);
    uint q = (b[BLOCK_QS + i % 16] >> (i % 32 < 16 ? 0 : 4)) & 15;
#if BLOCK_HAS_HIGH
    q |= (block_high(b) >> (i % 32) & 1) << 4;
#endif
    return d * (float)q + block_offset(b, d);
}

static float16 weight_16(const __global uchar *row, uint i)
{
    const __global uchar *b = row + (ulong)(i / 32) * WEIGHT_BYTES;
    const float d = load_half(b);
    uchar16 q = (load_bytes16(b + BLOCK_QS) >> (uchar)(i % 32 < 16 ? 0 : 4)) & (uchar)15;
#if BLOCK_HAS_HIGH
    const uint high = block_high(b) >> (i % 32);
    const uchar16 low_bits = (uchar16)(1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0);
    const uchar16 high_bits = low_bits.s89abcdef01234567;
    const uchar16 set = ((uchar16)((uchar)high) & low_bits) |
                        ((uchar16)((uchar)(high >> 8)) & high_bits);
    q |= as_uchar16(set != (uchar16)(0)) & (uchar)16;
#endif
    return fma((float16)(d), convert_float16(q), (float16)(block_offset(b, d)));
}

#elif OP_DTYPE == DT_Q6_K

static float weight_at(const __global uchar *row, uint i)
{
    const __global uchar *b = row + (ulong)(i / 256) * 210;
    const uint at = i % 256, h = at / 128, c = at / 32 % 4, l = at % 32;
    const uint low = b[64 * h + 32 * (c & 1) + l] >> (c < 2 ? 0 : 4) & 15;
    const uint high = b[128 + 32 * h + l] >> (2 * c) & 3;
    return load_half(b + 208) * (float)as_char(b[192 + at / 16]) *
           (float)((int)(low | high << 4) - 32);
}

static float16 weight_16(const __global uchar *row, uint i)
{
    const __global uchar *b = row + (ulong)(i / 256) * 210;
    const uint at = i % 256, h = at / 128, c = at / 32 % 4, l = at % 32;
    const uchar16 low =
        load_bytes16(b + 64 * h + 32 * (c & 1) + l) >> (uchar)(c < 2 ? 0 : 4) & (uchar)15;
    const uchar16 high = load_bytes16(b + 128 + 32 * h + l) >> (uchar)(2 * c) & (uchar)3;
    return load_half(b + 208) * (float)as_char(b[192 + at / 16]) *
           convert_float16(convert_char16(low | high << (uchar)4) - (char)32);
}

#else /* q4_K, q5_K */

/* Scale and offset of group g of 32 elements of super-block b: x = scale * q + offset. */
static float2 super_scale(const __global uchar *b, uint g)
{
    const __global uchar *s = b + 4;
    return (float2)(load_half(b) * (float)(uint)QUANT_K4_SCALE(s, g),
                    -load_half(b + 2) * (float)(uint)QUANT_K4_MIN(s, g));
}

static float weight_at(const __global uchar *row, uint i)
{
    const __global uchar *b = row + (ulong)(i / 256) * WEIGHT_BYTES;
    const uint g = i % 256 / 32, l = i % 32;
    const float2 s = super_scale(b, g);
    uint q = b[WEIGHT_BYTES - 128 + 32 * (g / 2) + l] >> (g & 1 ? 4 : 0) & 15;
#if OP_DTYPE == DT_Q5_K
    q |= (b[16 + l] >> g & 1) << 4;
#endif
    return s.x * (float)q + s.y;
}

static float16 weight_16(const __global uchar *row, uint i)
{
    const __global uchar *b = row + (ulong)(i / 256) * WEIGHT_BYTES;
    const uint g = i % 256 / 32, l = i % 32;
    const float2 s = super_scale(b, g);
    uchar16 q = load_bytes16(b + WEIGHT_BYTES - 128 + 32 * (g / 2) + l) >>
                    (uchar)(g & 1 ? 4 : 0) & (uchar)15;
#if OP_DTYPE == DT_Q5_K
    q |= (load_bytes16(b + 16 + l) >> (uchar)g & (uchar)1) << (uchar)4;
#endif
    return fma((float16)(s.x), convert_float16(q), (float16)(s.y));
}

#endif
#endif
