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
    struct unpack_row r = {w + row / 4 * r4_group_bytes(k), row % 4, k / 32};
    return r;
}

struct raw {
    uint q[4 * R4_PLANES];
#if R4_HIGH
    uint h[R4_HIGH / 4];
#endif
    uint scale, min_; /* halves, or bytes of a K-quant */
#if R4_SUPER
    uint super; /* d, dmin; or d */
#endif
};

PTX_INLINE void unpack_load(const struct unpack_row *row, uint block, struct raw *raw)
{
    const uint first = block & ~(R4_CHUNK - 1u), j = block - first, r = row->r;
    const uint nb = min((uint)R4_CHUNK, row->n_blocks - first);
    const __global uchar *chunk = row->at + R4_BYTES(first);
#pragma unroll
    for (uint plane = 0; plane < R4_PLANES; plane++) {
        uint4 q = *(const __global uint4 *)(chunk + r4_quants(nb, r, plane, j));
        raw->q[4 * plane] = q.x;
        raw->q[4 * plane + 1] = q.y;
        raw->q[4 * plane + 2] = q.z;
        raw->q[4 * plane + 3] = q.w;
    }
#if R4_HIGH
    const __global uint *h = (const __global uint *)(chunk + r4_high(nb, r, j));
#pragma unroll
    for (uint i = 0; i < R4_HIGH / 4; i++)
        raw->h[i] = h[i];
#endif
    const __global uchar *scales = chunk + r4_scales(nb, j);
#if R4_IS_KM
    raw->scale = scales[r];
    raw->min_ = scales[4 + r];
    raw->super = *(const __global uint *)(chunk + r4_super(nb, j) + 4 * r);
#else
    raw->scale = *(const __global ushort *)(scales + 2 * r);
#if R4_HAS_MIN
    raw->min_ = *(const __global ushort *)(scales + 8 + 2 * r);
#endif
#if R4_IS_Q6
    raw->super = *(const __global ushort *)(chunk + r4_super(nb, j) + 2 * r);
#endif
#endif
}

/* Bytes of numbers 16 * half_ + 4i .. + 3. */
PTX_INLINE uint unpack_numbers(const struct raw *raw, uint half_, uint i)
{
#if R4_IS_Q8
    return raw->q[4 * half_ + i] ^ 0x80808080;
#else
    uint q = raw->q[i] >> 4 * half_ & 0x0F0F0F0F;
#if R4_IS_Q5
    q |= (raw->h[0] >> (4 * half_ + i) & 0x01010101) << 4;
#elif R4_IS_Q6
    q |= (raw->h[half_] >> 2 * i & 0x03030303) << 4;
#endif
    return q;
#endif
}

#define UNPACK_MINUS                                                                               \
    (R4_IS_Q8                  ? MINUS_1152                                                        \
     : R4_IS_Q6                ? MINUS_1056                                                        \
     : OP_DTYPE == DT_Q5_0     ? MINUS_1040                                                        \
     : OP_DTYPE == DT_Q4_0     ? MINUS_1032                                                        \
                               : MINUS_1024)

PTX_INLINE void unpack_pairs(const struct raw *raw, uint *out)
{
#pragma unroll
    for (uint half_ = 0; half_ < 2; half_++)
#pragma unroll
        for (uint i = 0; i < 4; i++)
            pairs_of_bytes(unpack_numbers(raw, half_, i), UNPACK_MINUS, out + 8 * half_ + 2 * i);
#if R4_IS_KM
    float d = ptx_float_of((ushort)(raw->super & 0xFFFF)) * (float)raw->scale;
    float m = -ptx_float_of((ushort)(raw->super >> 16)) * (float)raw->min_;
    scale_min_pairs(out, ptx_half2_of(d, d), ptx_half2_of(m, m));
#elif R4_IS_Q6
    float d = ptx_float_of((ushort)raw->super);
    float first = d * (float)(char)(raw->scale & 0xFF), second = d * (float)(char)(raw->scale >> 8);
    scale_pairs(out, 0, 8, ptx_half2_of(first, first));
    scale_pairs(out, 8, 8, ptx_half2_of(second, second));
#elif R4_HAS_MIN
    scale_min_pairs(out, BOTH(raw->scale), BOTH(raw->min_));
#else
    scale_pairs(out, 0, 16, BOTH(raw->scale));
#endif
}

#endif
