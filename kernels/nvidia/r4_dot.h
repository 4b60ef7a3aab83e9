/* Products of LAYOUT_R4 weights with int8 activations by dp4a: what a lane loads of a chunk, and what
 * it adds to the sums of the four rows. The dtype is a constant argument (nvidia/r4.h). */
#ifndef OINFER_KERNELS_R4_DOT_H
#define OINFER_KERNELS_R4_DOT_H

#include "nvidia/ptx.h"
#include "nvidia/r4.h"

/* A block of each of the 4 rows; what a dtype does not have stays unused. */
struct r4_raw {
    uint q[4][8], h[4][2], s[4], super[4];
};

/* Reads of weights: once, so they need no place in the first cache. */
PTX_INLINE void read16(const __global uchar *p, uint *w)
{
    __asm__ volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "l"(p));
}

PTX_INLINE void read8(const __global uchar *p, uint *w)
{
    __asm__ volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                     : "=r"(w[0]), "=r"(w[1])
                     : "l"(p));
}

PTX_INLINE void read4(const __global uchar *p, uint *w)
{
    __asm__ volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(w[0]) : "l"(p));
}

/* The lane's block of a chunk of nb blocks; lanes past the end read a block that exists. */
PTX_INLINE void r4_load(const uint type, const __global uchar *chunk, uint nb, uint lane,
                        struct r4_raw *raw)
{
    const uint j = min(lane, nb - 1);
#pragma unroll
    for (uint r = 0; r < 4; r++) {
        read16(chunk + r4_quants(type, nb, r, 0, j), raw->q[r]);
        if (R4_IS_Q8(type))
            read16(chunk + r4_quants(type, nb, r, 1, j), raw->q[r] + 4);
        if (R4_IS_Q5(type))
            read4(chunk + r4_high(type, nb, r, j), raw->h[r]);
        if (R4_IS_Q6(type))
            read8(chunk + r4_high(type, nb, r, j), raw->h[r]);
    }
    if (R4_SCALES(type) == 16)
        read16(chunk + r4_scales(type, nb, j), raw->s);
    else
        read8(chunk + r4_scales(type, nb, j), raw->s);
    if (R4_IS_KM(type))
        read16(chunk + r4_super(type, nb, j), raw->super);
    if (R4_IS_Q6(type))
        read8(chunk + r4_super(type, nb, j), raw->super);
}

/* Numbers 4i .. 4i + 3 (half_ 0) or 16 + 4i .. (half_ 1) of row r, a byte each. */
PTX_INLINE uint r4_numbers(const uint type, const struct r4_raw *raw, uint r, uint half_, uint i)
{
    if (R4_IS_Q8(type))
        return raw->q[r][4 * half_ + i];
    uint q = raw->q[r][i] >> 4 * half_ & 0x0F0F0F0F;
    if (R4_IS_Q5(type))
        q |= (raw->h[r][0] >> (4 * half_ + i) & 0x01010101) << 4;
    if (R4_IS_Q6(type))
        q |= (raw->h[r][half_] >> 2 * i & 0x03030303) << 4;
    return q;
}

PTX_INLINE int dot4(const uint type, uint q, uint x, int sum)
{
    int r;
    if (R4_IS_Q8(type))
        __asm__("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(q), "r"(x), "r"(sum));
    else
        __asm__("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(q), "r"(x), "r"(sum));
    return r;
}

PTX_INLINE float half_of_pair(uint pair, uint which)
{
    return ptx_float_of((ushort)(which ? pair >> 16 : pair & 0xFFFF));
}

/* acc[r] += the block of row r times one token's block: its bytes xs, its scale dx, its sum. Exact
 * but for float rounding: integer sums of a block stay below 2^23. */
PTX_INLINE void r4_add(const uint type, const struct r4_raw *raw, const uint xs[8], float dx,
                       int sum, float acc[4])
{
    int low = 0, high = 0; /* sums of x over the two halves, which Q6_K scales apart */
    if (R4_IS_Q6(type)) {
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            low = dot4(DT_Q8_0, 0x01010101, xs[i], low);
            high = dot4(DT_Q8_0, 0x01010101, xs[4 + i], high);
        }
    }
#pragma unroll
    for (uint r = 0; r < 4; r++) {
        int a = -R4_ZERO(type) * (R4_IS_Q6(type) ? low : sum);
        int b = R4_IS_Q6(type) ? -R4_ZERO(type) * high : 0;
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            a = dot4(type, r4_numbers(type, raw, r, 0, i), xs[i], a);
            if (R4_IS_Q6(type))
                b = dot4(type, r4_numbers(type, raw, r, 1, i), xs[4 + i], b);
            else
                a = dot4(type, r4_numbers(type, raw, r, 1, i), xs[4 + i], a);
        }
        if (R4_IS_Q6(type)) {
            const uint scales = raw->s[r / 2] >> 16 * (r & 1);
            a = a * (char)(scales & 0xFF) + b * (char)(scales >> 8 & 0xFF);
            acc[r] = fma(half_of_pair(raw->super[r / 2], r & 1) * dx, (float)a, acc[r]);
        } else if (R4_IS_KM(type)) {
            const int scale = (int)(raw->s[0] >> 8 * r & 0xFF);
            const int min_ = (int)(raw->s[1] >> 8 * r & 0xFF);
            acc[r] = fma(half_of_pair(raw->super[r], 0) * dx, (float)(a * scale), acc[r]);
            acc[r] = fma(-half_of_pair(raw->super[r], 1) * dx, (float)(sum * min_), acc[r]);
        } else {
            acc[r] = fma(half_of_pair(raw->s[r / 2], r & 1) * dx, (float)a, acc[r]);
            if (R4_HAS_MIN(type))
                acc[r] = fma(half_of_pair(raw->s[2 + r / 2], r & 1) * dx, (float)sum, acc[r]);
        }
    }
}

PTX_INLINE float warp_sum(float v)
{
#pragma unroll
    for (uint mask = 16; mask > 0; mask >>= 1)
        v += ptx_shuffle_xor(v, mask);
    return v;
}

#endif
