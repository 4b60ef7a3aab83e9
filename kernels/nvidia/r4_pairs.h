/* Blocks of 32 weights of one row to 16 pairs of halves, from LAYOUT_R4 (nvidia/r4.h). The dtype is a
 * constant argument, so that one program can hold several; unpack_r4.h is the same for a program of
 * one dtype. */
#ifndef OINFER_KERNELS_R4_PAIRS_H
#define OINFER_KERNELS_R4_PAIRS_H

#include "nvidia/pairs.h"
#include "nvidia/r4_dot.h"

/* The bytes of a block; what a dtype does not have stays unused. */
struct r4_piece {
    uint q[8], h[2];
    uint scale[2]; /* a half, and that of the min; K-quants: scales, mins of the 4 rows; Q6_K: two */
    uint super;
};

PTX_INLINE uint read2(const __global uchar *p)
{
    ushort v;
    __asm__ volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(p));
    return v;
}

/* Block j of row r of a chunk of nb blocks. */
PTX_INLINE void r4_piece_load(const uint type, const __global uchar *chunk, uint nb, uint r, uint j,
                              struct r4_piece *p)
{
    read16(chunk + r4_quants(type, nb, r, 0, j), p->q);
    if (R4_IS_Q8(type))
        read16(chunk + r4_quants(type, nb, r, 1, j), p->q + 4);
    if (R4_IS_Q5(type))
        read4(chunk + r4_high(type, nb, r, j), p->h);
    if (R4_IS_Q6(type))
        read8(chunk + r4_high(type, nb, r, j), p->h);
    const __global uchar *scales = chunk + r4_scales(type, nb, j);
    if (R4_IS_KM(type)) {
        read8(scales, p->scale);
        read4(chunk + r4_super(type, nb, j) + 4 * r, &p->super);
    } else {
        p->scale[0] = read2(scales + 2 * r);
        if (R4_HAS_MIN(type))
            p->scale[1] = read2(scales + 8 + 2 * r);
        if (R4_IS_Q6(type))
            p->super = read2(chunk + r4_super(type, nb, j) + 2 * r);
    }
}

/* Numbers 4i .. 4i + 3 (half_ 0) or 16 + 4i .. (half_ 1), a byte each; those of Q8_0 plus 128. */
PTX_INLINE uint r4_piece_numbers(const uint type, const struct r4_piece *p, uint half_, uint i)
{
    if (R4_IS_Q8(type))
        return p->q[4 * half_ + i] ^ 0x80808080;
    uint q = p->q[i] >> 4 * half_ & 0x0F0F0F0F;
    if (R4_IS_Q5(type))
        q |= (p->h[0] >> (4 * half_ + i) & 0x01010101) << 4;
    if (R4_IS_Q6(type))
        q |= (p->h[half_] >> 2 * i & 0x03030303) << 4;
    return q;
}

/* What is added to 1024 + number: numbers then are signed, those of K-quants less their middle, so
 * that the rounded scale and min weigh less in the sum. */
#define R4_PIECE_ADD(type)                                                                         \
    (R4_IS_Q8(type)                                ? MINUS_1152                                    \
     : R4_IS_Q6(type)                              ? MINUS_1056                                    \
     : (type) == DT_Q5_0 || (type) == DT_Q5_K      ? MINUS_1040                                    \
     : (type) == DT_Q4_0 || (type) == DT_Q4_K      ? MINUS_1032                                    \
                                                   : MINUS_1024)
#define R4_PIECE_MIDDLE(type) ((type) == DT_Q4_K ? 8.0f : 16.0f)

/* Weights 16 * half_ .. + 15 of a block of row r in order, as pairs. */
PTX_INLINE void r4_piece_pairs(const uint type, const struct r4_piece *p, uint r, const uint half_,
                               uint out[8])
{
#pragma unroll
    for (uint i = 0; i < 4; i++)
        pairs_of_bytes(r4_piece_numbers(type, p, half_, i), R4_PIECE_ADD(type), out + 2 * i);
    if (R4_IS_KM(type)) {
        const float d = half_of_pair(p->super, 0) * (float)(p->scale[0] >> 8 * r & 0xFF);
        const float m = R4_PIECE_MIDDLE(type) * d -
                        half_of_pair(p->super, 1) * (float)(p->scale[1] >> 8 * r & 0xFF);
        const uint both_d = ptx_half2_of(d, d), both_m = ptx_half2_of(m, m);
#pragma unroll
        for (uint i = 0; i < 8; i++)
            out[i] = ptx_half2_fma(out[i], both_d, both_m);
    } else if (R4_IS_Q6(type)) {
        const float d = half_of_pair(p->super, 0) * (float)(char)(p->scale[0] >> 8 * half_ & 0xFF);
        scale_pairs(out, 0, 8, ptx_half2_of(d, d));
    } else if (R4_HAS_MIN(type)) {
#pragma unroll
        for (uint i = 0; i < 8; i++)
            out[i] = ptx_half2_fma(out[i], BOTH(p->scale[0]), BOTH(p->scale[1]));
    } else {
        scale_pairs(out, 0, 8, BOTH(p->scale[0]));
    }
}

#endif
