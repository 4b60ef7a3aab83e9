/* repack: a weight from its file layout into LAYOUT_R4 (nvidia/r4.h). One work-item moves one block
 * of 32 columns of one row; rows that only pad the last row group are written as zeros. */
#include "nvidia/r4.h"
#include "weight.h"

#if R4_IS_KM(OP_DTYPE)
/* Of group g of 32 numbers of super-block b: numbers l and l + 16. */
static uchar2 numbers_of(const __global uchar *b, uint g, uint l)
{
    const __global uchar *qs = b + WEIGHT_BYTES - 128 + 32 * (g / 2);
    const uint shift = g & 1 ? 4 : 0;
    return (uchar2)((uchar)(qs[l] >> shift & 15), (uchar)(qs[l + 16] >> shift & 15));
}
#endif

static void put_half(__global uchar *out, const __global uchar *from)
{
    out[0] = from[0];
    out[1] = from[1];
}

/* Block j of row r of a chunk of nb blocks, from the file's `row`, where it is block `block`. */
static void pack_block(__global uchar *chunk, uint nb, uint r, uint j, const __global uchar *row,
                       uint block)
{
    __global uchar *quants = chunk + r4_quants(OP_DTYPE, nb, r, 0, j);
#if R4_IS_Q5(OP_DTYPE) || R4_IS_Q6(OP_DTYPE)
    __global uchar *high = chunk + r4_high(OP_DTYPE, nb, r, j);
#endif
    __global uchar *scales = chunk + r4_scales(OP_DTYPE, nb, j);
#if R4_IS_Q8(OP_DTYPE)
    const __global uchar *b = row + (ulong)block * WEIGHT_BYTES;
    __global uchar *second = chunk + r4_quants(OP_DTYPE, nb, r, 1, j);
    for (uint i = 0; i < 16; i++) {
        quants[i] = b[2 + i];
        second[i] = b[18 + i];
    }
    put_half(scales + 2 * r, b);
#elif R4_IS_KM(OP_DTYPE)
    const __global uchar *b = row + (ulong)(block / 8) * WEIGHT_BYTES;
    const uint g = block % 8;
    for (uint i = 0; i < 16; i++) {
        uchar2 q = numbers_of(b, g, i);
        quants[i] = (uchar)(q.x | q.y << 4);
    }
#if R4_IS_Q5(OP_DTYPE)
    for (uint c = 0; c < 4; c++) {
        uint bits = 0;
        for (uint i = 0; i < 8; i++)
            bits |= (uint)(b[16 + 4 * i + c] >> g & 1) << i;
        high[c] = (uchar)bits;
    }
#endif
    scales[r] = (uchar)QUANT_K4_SCALE(b + 4, g);
    scales[4 + r] = (uchar)QUANT_K4_MIN(b + 4, g);
    if (g == 0) {
        __global uchar *super = chunk + r4_super(OP_DTYPE, nb, j) + 4 * r;
        put_half(super, b);
        put_half(super + 2, b + 2);
    }
#elif R4_IS_Q6(OP_DTYPE)
    const __global uchar *b = row + (ulong)(block / 8) * WEIGHT_BYTES;
    const uint g = block % 8, half_ = g / 4, c = g % 4;
    const __global uchar *ql = b + 64 * half_ + 32 * (c & 1), *qh = b + 128 + 32 * half_;
    for (uint i = 0; i < 16; i++)
        quants[i] = (uchar)((ql[i] >> (c < 2 ? 0 : 4) & 15) |
                            (ql[i + 16] >> (c < 2 ? 0 : 4) & 15) << 4);
    for (uint v = 0; v < 2; v++) {
        for (uint byte = 0; byte < 4; byte++) {
            uint bits = 0;
            for (uint i = 0; i < 4; i++)
                bits |= (uint)(qh[16 * v + 4 * i + byte] >> 2 * c & 3) << 2 * i;
            high[4 * v + byte] = (uchar)bits;
        }
    }
    scales[2 * r] = b[192 + 2 * g];
    scales[2 * r + 1] = b[193 + 2 * g];
    if (g == 0)
        put_half(chunk + r4_super(OP_DTYPE, nb, j) + 2 * r, b + 208);
#else
    const __global uchar *b = row + (ulong)block * WEIGHT_BYTES;
    for (uint i = 0; i < 16; i++)
        quants[i] = b[BLOCK_QS + i];
#if R4_IS_Q5(OP_DTYPE)
    for (uint byte = 0; byte < 4; byte++) {
        uint bits = 0;
        for (uint i = 0; i < 8; i++)
            bits |= (block_high(b) >> (4 * i + byte) & 1) << i;
        high[byte] = (uchar)bits;
    }
#endif
    put_half(scales + 2 * r, b);
#if R4_HAS_MIN(OP_DTYPE)
    put_half(scales + 8 + 2 * r, b + 2);
#endif
#endif
}

static void zero_block(__global uchar *chunk, uint nb, uint r, uint j)
{
    for (uint plane = 0; plane < R4_PLANES(OP_DTYPE); plane++)
        for (uint i = 0; i < 16; i++)
            chunk[r4_quants(OP_DTYPE, nb, r, plane, j) + i] = 0;
    for (uint i = 0; i < R4_HIGH(OP_DTYPE); i++)
        chunk[r4_high(OP_DTYPE, nb, r, j) + i] = 0;
    __global uchar *scales = chunk + r4_scales(OP_DTYPE, nb, j);
#if R4_IS_KM(OP_DTYPE)
    scales[r] = scales[4 + r] = 0;
#else
    for (uint i = 0; i < R4_SCALES(OP_DTYPE); i += 8)
        scales[i + 2 * r] = scales[i + 2 * r + 1] = 0;
#endif
#if R4_SUPER(OP_DTYPE)
    if (j % 8 == 0)
        for (uint i = 0; i < R4_SUPER(OP_DTYPE) / 4; i++)
            chunk[r4_super(OP_DTYPE, nb, j) + R4_SUPER(OP_DTYPE) / 4 * r + i] = 0;
#endif
}

/* Item `item` of n_rows (rounded up to whole row groups) x k / 32. */
static void repack_r4_step(const __global uchar *src, __global uchar *dst, struct repack_params p,
                           uint item)
{
    const uint n_blocks = p.k / 32, r = item / n_blocks, block = item % n_blocks;
    const uint row = p.row0 + r / p.group * p.group_stride + r % p.group;
    const uint j = block % R4_CHUNK, first = block - j, nb = min(R4_CHUNK, n_blocks - first);
    if (r >= p.n_rows && row < p.m_total)
        return;
    __global uchar *chunk = dst + row / 4 * r4_group_bytes(OP_DTYPE, p.k) + R4_BYTES(OP_DTYPE, first);
    if (r < p.n_rows)
        pack_block(chunk, nb, row % 4, j, src + r * weight_row_bytes(p.k), block);
    else if (row < (p.m_total + 3) / 4 * 4)
        zero_block(chunk, nb, row % 4, j);
}

KERNEL(LWS) void repack_r4(const __global uchar *src, ulong src_offset, __global uchar *dst,
                           ulong dst_offset, struct repack_params p)
{
    const ulong items = (ulong)((p.n_rows + 3) / 4 * 4) * (p.k / 32);
    for (ulong item = get_global_id(0); item < items; item += get_global_size(0))
        repack_r4_step(src + src_offset, dst + dst_offset, p, (uint)item);
}
