/* What the linear kernels of CPU devices share: rows of activations, and what is done with 16
 * finished sums (bias, then store, add or SwiGLU). */
#ifndef CPU_LINEAR_H
#define CPU_LINEAR_H

#include "cpu/r16.h"

/* Is x int8? Float weights never read it so. */
#define X_IS_Q8 (OP_ACT == ACT_Q8 && !R16_IS_FLOAT)

/* Bytes ahead of the loads to prefetch: K-quants take more arithmetic per byte. */
#define PREFETCH_BYTES (R16_IS_K ? 8192 : 4096)

/* What linear_decode.inc makes of x once for all row groups: sums over the columns that share a scale,
 * where x does not come with them (for q6_K, and for quantised weights with float activations), and
 * with AVX2 a packed copy. */
#define HAS_SUMS (!R16_IS_FLOAT && (!X_IS_Q8 || CPU_ISA == 1 || OP_DTYPE == DT_Q6_K))
#define SUM_K    (OP_DTYPE == DT_Q6_K ? 16 : 32)
/* What sizes the room for it: k_max in kernels.def, the tokens of a round, and dwords per 32 columns
 * of a token (records of linear_decode_avx2.inc for q6_K; two sums). */
#define R16_MAX_K      32768
#define MAX_TOKENS     8
#define PREPARED_WORDS (MAX_TOKENS * R16_MAX_K / 32 * (CPU_ISA == 1 ? 11 : 2))

/* Rows of activations. */
struct rows {
    const __global uchar *x; /* first token */
    ulong stride;            /* bytes from token to token */
    uint k, n;               /* columns, tokens */
};

CPU_INLINE const __global uchar *rows_at(const struct rows *x, uint t)
{
    return x->x + x->stride * min(t, x->n - 1);
}

/* y[0 .. min(16, n)) = v, or += v */
CPU_INLINE void cpu_store_rows(__global float *y, float16 v, uint n, bool add)
{
    if (n >= 16) {
        vstore16(add ? v + vload16(0, y) : v, 0, y);
    } else {
        float lanes[16];
        vstore16(v, 0, lanes);
        for (uint i = 0; i < n; i++)
            y[i] = add ? y[i] + lanes[i] : lanes[i];
    }
}

CPU_INLINE float16 cpu_load_rows(const __global float *p, uint n)
{
    if (n >= 16)
        return vload16(0, p);
    float lanes[16];
    for (uint i = 0; i < 16; i++)
        lanes[i] = i < n ? p[i] : 0.0f;
    return vload16(0, lanes);
}

/* Sums of row group g of one token, whose row of y is given; nothing if g is past the end. */
CPU_INLINE void cpu_finish(__global float *y, const __global float *bias,
                           const struct linear_params *p, uint g, float16 v)
{
    const uint row = 16 * g;
    if (row >= p->m)
        return;
    const uint n = min(16u, p->m - row);
    if (p->has_bias)
        v += cpu_load_rows(bias + row, n);
    cpu_store_rows(y + row, v, n, p->epilogue == LINEAR_ADD);
}

/* Sums of row groups g (even) and g + 1: under LINEAR_SWIGLU those of gate and up. */
CPU_INLINE void cpu_finish_pair(__global float *y, const __global float *bias,
                                const struct linear_params *p, uint g, float16 a, float16 b)
{
    if (p->epilogue != LINEAR_SWIGLU) {
        cpu_finish(y, bias, p, g, a);
        cpu_finish(y, bias, p, g + 1, b);
    } else if (16 * g < p->m) {
        if (p->has_bias) {
            a += vload16(0, bias + 16 * g);
            b += vload16(0, bias + 16 * g + 16);
        }
        vstore16(cpu_silu(a) * b, g / 2, y);
    }
}

#endif
