/* 32 weights of one row, from LAYOUT_R4 (nvidia/r4.h) to 16 pairs of halves: the counterpart of
 * unpack.h, with aligned reads of 16 bytes. */
#ifndef OINFER_KERNELS_UNPACK_R4_H
#define OINFER_KERNELS_UNPACK_R4_H

#include "nvidia/pairs.h"
#include "nvidia/r4.h"

struct unpack_row {
    const __global uchar *at; /* of the row group */
    uint r, n_blocks;
};

PTX_INLINE struct unpack_row unpack_row_of(const __global uchar *w, uint row, uint k)
{
    struct unpack_row r = {w + row / 4 * r4_group_bytes(OP_DTYPE, k), row % 4, k / 32};
    return r;
}

struct raw {
    uint q[4 * R4_PLANES(OP_DTYPE)];
#if R4_HIGH(OP_DTYPE)
    uint h[R4_HIGH(OP_DTYPE) / 4];
#endif
    uint scale, min_; /* halves, or bytes of a K-quant */
#if R4_SUPER(OP_DTYPE)
    uint super; /* d, dmin; or d */
#endif
};

PTX_INLINE void unpack_load(const struct unpack_row *row, uint block, struct raw *raw)
{
    const uint first = block & ~(R4_CHUNK - 1), j = block - first, r = row->r;
    const uint nb = min(R4_CHUNK, row->n_blocks - first);
    const __global uchar *chunk = row->at + R4_BYTES(OP_DTYPE, first);
#pragma unroll
    for (uint plane = 0; plane < R4_PLANES(OP_DTYPE); plane++) {
        uint4 q = *(const __global uint4 *)(chunk + r4_quants(OP_DTYPE, nb, r, plane, j));
        raw->q[4 * plane] = q.x;
        raw->q[4 * plane + 1] = q.y;
        raw->q[4 * plane + 2] = q.z;
        raw->q[4 * plane + 3] = q.w;
    }
#if R4_HIGH(OP_DTYPE)
    const __global uint *h = (const __global uint *)(chunk + r4_high(OP_DTYPE, nb, r, j));
#pragma unroll
    for (uint i = 0; i < R4_HIGH(OP_DTYPE) / 4; i++)
        raw->h[i] = h[i];
#endif
    const __global uchar *scales = chunk + r4_scales(OP_DTYPE, nb, j);
#if R4_IS_KM(OP_DTYPE)
    raw->scale = scales[r];
    raw->min_ = scales[4 + r];
    raw->super = *(const __global uint *)(chunk + r4_super(OP_DTYPE, nb, j) + 4 * r);
#else
    raw->scale = *(const __global ushort *)(scales + 2 * r);
#if R4_HAS_MIN(OP_DTYPE)
    raw->min_ = *(const __global ushort *)(scales + 8 + 2 * r);
#endif
#if R4_IS_Q6(OP_DTYPE)
    raw->super = *(const __global ushort *)(chunk + r4_super(OP_DTYPE, nb, j) + 2 * r);
#endif
#endif
}

/* Bytes of numbers 16 * half_ + 4i .. + 3. */
PTX_INLINE uint unpack_numbers(const struct raw *raw, uint half_, uint i)
{
#if R4_IS_Q8(OP_DTYPE)
    return raw->q[4 * half_ + i] ^ 0x80808080;
#else
    uint q = raw->q[i] >> 4 * half_ & 0x0F0F0F0F;
#if R4_IS_Q5(OP_DTYPE)
    q |= (raw->h[0] >> (4 * half_ + i) & 0x01010101) << 4;
#elif R4_IS_Q6(OP_DTYPE)
    q |= (raw->h[half_] >> 2 * i & 0x03030303) << 4;
#endif
    return q;
#endif
}

#define UNPACK_MIDDLE (OP_DTYPE == DT_Q4_K ? 8.0f : 16.0f)
#if OP_DTYPE == DT_Q8_0
#define UNPACK_MINUS MINUS_1152
#elif OP_DTYPE == DT_Q6_K
#define UNPACK_MINUS MINUS_1056
#elif OP_DTYPE == DT_Q5_0 || OP_DTYPE == DT_Q5_K
#define UNPACK_MINUS MINUS_1040
#elif OP_DTYPE == DT_Q4_0 || OP_DTYPE == DT_Q4_K
#define UNPACK_MINUS MINUS_1032
#else
#define UNPACK_MINUS MINUS_1024
#endif

PTX_INLINE void unpack_pairs(const struct raw *raw, uint *out)
{
#pragma unroll
    for (uint half_ = 0; half_ < 2; half_++)
#pragma unroll
        for (uint i = 0; i < 4; i++)
            pairs_of_bytes(unpack_numbers(raw, half_, i), UNPACK_MINUS, out + 8 * half_ + 2 * i);
#if R4_IS_KM(OP_DTYPE)
    /* numbers less their middle, so that the rounded scale and min weigh less in the sum */
    float d = ptx_float_of((ushort)(raw->super & 0xFFFF)) * (float)raw->scale;
    float m = UNPACK_MIDDLE * d - ptx_float_of((ushort)(raw->super >> 16)) * (float)raw->min_;
    scale_min_pairs(out, ptx_half2_of(d, d), ptx_half2_of(m, m));
#elif R4_IS_Q6(OP_DTYPE)
    float d = ptx_float_of((ushort)raw->super);
    float first = d * (float)(char)(raw->scale & 0xFF), second = d * (float)(char)(raw->scale >> 8);
    scale_pairs(out, 0, 8, ptx_half2_of(first, first));
    scale_pairs(out, 8, 8, ptx_half2_of(second, second));
#elif R4_HAS_MIN(OP_DTYPE)
    scale_min_pairs(out, BOTH(raw->scale), BOTH(raw->min_));
#else
    scale_pairs(out, 0, 16, BOTH(raw->scale));
#endif
}

#endif
