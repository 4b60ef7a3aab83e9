/* linear for few tokens (mostly 1 to 8): y = w x, weights in LAYOUT_R16, read once for TOKENS tokens.
 *
 *            k                    lanes = 16 rows of a row group; a group of work walks a
 *       +---------+               contiguous share of the row groups, each one a single stream.
 *  16 r | stream  |  x [k] =>     y[t][16 g + lane] = sum over blocks b of
 *       +---------+                   scale[lane][b] * (sum of q * x in b) + min[lane][b] * sum of x
 *
 * OP_ACT is the format of x. ACT_Q8: the inner sums are exact integers (cpu_dot), started at
 * -zero * sum of x; ACT_F32: they are float, and exact weights times exact activations.
 */
#include "cpu/epilogue.h"
#include "cpu/r16.h"

#define X_IS_Q8 (OP_ACT == ACT_Q8)

#ifndef TOKENS
#define TOKENS 1
#endif

/* Bytes ahead of the loads to prefetch: K-quants take more arithmetic per byte. */
#ifndef PREFETCH_BYTES
#if !R16_IS_FLOAT && R16_IS_K
#define PREFETCH_BYTES 8192
#else
#define PREFETCH_BYTES 4096
#endif
#endif

/* What sizes the array of sums: k_max in kernels.def, and the tokens of a round. */
#define R16_MAX_K  32768
#define MAX_TOKENS 8

/* Rows of activations, and what is computed of them once for all row groups. */
struct rows {
    const __global uchar *x; /* first token */
    ulong stride;            /* bytes from token to token */
    uint k, n;               /* columns, tokens */
};

CPU_INLINE const __global uchar *rows_at(const struct rows *x, uint t)
{
    return x->x + x->stride * min(t, x->n - 1);
}

#if R16_IS_FLOAT

/* acc[t] = 16 rows of w times token t, for TOKENS tokens from t0. */
CPU_INLINE void row_group_dot(const __global uchar *w, const struct rows *x, const float *sums,
                              uint t0, float16 *acc)
{
    const __global float *xt[TOKENS];
    float16 odd[TOKENS];
    CPU_UNROLL
    for (uint t = 0; t < TOKENS; t++) {
        xt[t] = (const __global float *)rows_at(x, t0 + t);
        acc[t] = odd[t] = (float16)(0.0f);
    }
    for (uint k = 0; k < x->k; k += 2) {
        float16 columns[2];
        r16_columns(w, k, columns);
        CPU_PREFETCH(w + (ulong)k * 32 * R16_LINES, PREFETCH_BYTES);
        CPU_UNROLL
        for (uint t = 0; t < TOKENS; t++) {
            acc[t] = fma(columns[0], (float16)(xt[t][k]), acc[t]);
            odd[t] = fma(columns[1], (float16)(xt[t][k + 1]), odd[t]);
        }
    }
    CPU_UNROLL
    for (uint t = 0; t < TOKENS; t++)
        acc[t] += odd[t];
}

#elif X_IS_Q8

CPU_INLINE void row_group_dot(const __global uchar *w, const struct rows *x, const short *sums,
                              uint t0, float16 *acc)
{
    const uint n_blocks = x->k / 32;
    const __global int *xq[TOKENS];
    CPU_UNROLL
    for (uint t = 0; t < TOKENS; t++) {
        xq[t] = (const __global int *)rows_at(x, t0 + t);
        acc[t] = (float16)(0.0f);
    }
    for (uint pair = 0; pair < n_blocks / 2; pair++) {
        const uint j = pair % R16_PAIRS;
        const __global uint16 *u =
            (const __global uint16 *)(w + (ulong)(pair / R16_PAIRS) * R16_UNIT_BYTES);
        CPU_UNROLL
        for (uint i = 0; i < (R16_LINES + R16_PAIRS - 1) / R16_PAIRS; i++)
            CPU_PREFETCH(u + j * R16_LINES / R16_PAIRS + i, PREFETCH_BYTES);
        CPU_UNROLL
        for (uint b = 0; b < 2; b++) {
            const uint block = 2 * pair + b;
            CPU_UNROLL
            for (uint s = 0; s < (OP_DTYPE == DT_Q6_K ? 2 : 1); s++) {
                int16 sum[TOKENS];
                CPU_UNROLL
                for (uint t = 0; t < TOKENS; t++) {
#if OP_DTYPE == DT_Q6_K
                    sum[t] = (int16)(-R16_ZERO * sums[(t0 + t) * (R16_MAX_K / 16) + 2 * block + s]);
#elif R16_ZERO
                    sum[t] = (int16)(-R16_ZERO * xq[t][x->k / 4 + n_blocks + block]);
#else
                    sum[t] = (int16)(0);
#endif
                }
                CPU_UNROLL
                for (uint i = 0; i < 8; i++) {
                    if (OP_DTYPE == DT_Q6_K && i / 4 != s)
                        continue;
                    uint16 q = r16_quad(u, j, b, i);
                    CPU_UNROLL
                    for (uint t = 0; t < TOKENS; t++)
                        sum[t] = cpu_dot(sum[t], q, xq[t] + 8 * block + i);
                }
                float16 scale = r16_scale(u, j, b, s);
                CPU_UNROLL
                for (uint t = 0; t < TOKENS; t++) {
                    float d = ((const __global float *)xq[t])[x->k / 4 + block];
                    acc[t] = fma(convert_float16(sum[t]), scale * d, acc[t]);
                }
            }
#if R16_HAS_MIN
            float16 low = r16_min(u, j, b);
            CPU_UNROLL
            for (uint t = 0; t < TOKENS; t++) {
                float d = ((const __global float *)xq[t])[x->k / 4 + block];
                acc[t] = fma(low, (float16)(d * xq[t][x->k / 4 + n_blocks + block]), acc[t]);
            }
#endif
        }
    }
}

#else /* quantised weights, float activations */

/* Columns that share a scale, and so a sum of x. */
#define SUM_K (OP_DTYPE == DT_Q6_K ? 16 : 32)

CPU_INLINE void row_group_dot(const __global uchar *w, const struct rows *x, const float *sums,
                              uint t0, float16 *acc)
{
    const __global float *xt[TOKENS];
    CPU_UNROLL
    for (uint t = 0; t < TOKENS; t++) {
        xt[t] = (const __global float *)rows_at(x, t0 + t);
        acc[t] = (float16)(0.0f);
    }
    for (uint pair = 0; pair < x->k / 64; pair++) {
        const uint j = pair % R16_PAIRS;
        const __global uint16 *u =
            (const __global uint16 *)(w + (ulong)(pair / R16_PAIRS) * R16_UNIT_BYTES);
        CPU_UNROLL
        for (uint i = 0; i < (R16_LINES + R16_PAIRS - 1) / R16_PAIRS; i++)
            CPU_PREFETCH(u + j * R16_LINES / R16_PAIRS + i, PREFETCH_BYTES);
        for (uint b = 0; b < 2; b++) {
            for (uint s = 0; s < 32 / SUM_K; s++) {
                /* One sum per byte of the quads: bytes 1 and 2 are masked but not shifted, so
                 * their sums are 2^8 and 2^16 times too large, exactly. */
                float16 sum[TOKENS][4];
                CPU_UNROLL
                for (uint t = 0; t < TOKENS; t++)
                    sum[t][0] = sum[t][1] = sum[t][2] = sum[t][3] = (float16)(0.0f);
                const uint k0 = 64 * pair + 32 * b + SUM_K * s;
                CPU_UNROLL
                for (uint i = 0; i < SUM_K / 4; i++) {
                    uint16 q = r16_quad(u, j, b, SUM_K / 4 * s + i);
                    float16 q0 = convert_float16(as_int16(q & 0xffu));
                    float16 q1 = convert_float16(as_int16(q & 0xff00u));
                    float16 q2 = convert_float16(as_int16(q & 0xff0000u));
                    float16 q3 = convert_float16(as_int16(q >> 24));
                    CPU_UNROLL
                    for (uint t = 0; t < TOKENS; t++) {
                        const __global float *xk = xt[t] + k0 + 4 * i;
                        sum[t][0] = fma(q0, (float16)(xk[0]), sum[t][0]);
                        sum[t][1] = fma(q1, (float16)(xk[1]), sum[t][1]);
                        sum[t][2] = fma(q2, (float16)(xk[2]), sum[t][2]);
                        sum[t][3] = fma(q3, (float16)(xk[3]), sum[t][3]);
                    }
                }
                float16 scale = r16_scale(u, j, b, s);
#if R16_HAS_MIN
                float16 low = r16_min(u, j, b);
#else
                float16 low = scale * -(float)R16_ZERO;
#endif
                CPU_UNROLL
                for (uint t = 0; t < TOKENS; t++) {
                    float16 all = (sum[t][0] + sum[t][3]) +
                                  (sum[t][1] * 0x1p-8f + sum[t][2] * 0x1p-16f);
                    acc[t] = fma(all, scale, acc[t]);
                    float xs = sums[(t0 + t) * (R16_MAX_K / SUM_K) + k0 / SUM_K];
                    acc[t] = fma(low, (float16)(xs), acc[t]);
                }
            }
        }
    }
}

#endif

#if X_IS_Q8 && OP_DTYPE == DT_Q6_K
#define HAS_SUMS 1
typedef short sum_t;
#define SUMS (MAX_TOKENS * R16_MAX_K / 16)

/* Sums of 16 activations: q6_K has a scale per 16 columns. */
CPU_INLINE void sum_blocks(const struct rows *x, sum_t *sums)
{
    for (uint t = 0; t < x->n; t++) {
        const __global char *q = (const __global char *)rows_at(x, t);
        for (uint b = 0; b < x->k / 16; b++) {
            short16 v = convert_short16(vload16(b, q));
            short8 a = v.lo + v.hi;
            short4 c = a.lo + a.hi;
            sums[t * (R16_MAX_K / 16) + b] = c.x + c.y + c.z + c.w;
        }
    }
}

#elif !X_IS_Q8 && !R16_IS_FLOAT
#define HAS_SUMS 1
typedef float sum_t;
#define SUMS (MAX_TOKENS * R16_MAX_K / SUM_K)

CPU_INLINE void sum_blocks(const struct rows *x, sum_t *sums)
{
    for (uint t = 0; t < x->n; t++) {
        const __global float *xt = (const __global float *)rows_at(x, t);
        for (uint b = 0; b < x->k / SUM_K; b++) {
            float16 v = vload16(0, xt + SUM_K * b);
            if (SUM_K == 32)
                v += vload16(0, xt + SUM_K * b + 16);
            sums[t * (R16_MAX_K / SUM_K) + b] = sum_16(v);
        }
    }
}

#else
#define HAS_SUMS 0
#if X_IS_Q8
typedef short sum_t;
#else
typedef float sum_t;
#endif
#endif

/* Tokens t0 .. t0 + TOKENS - 1 (those below x->n are stored) of row group g. */
CPU_INLINE void row_group(const __global uchar *w, const struct rows *x, const sum_t *sums,
                          const __global float *bias, __global float *y,
                          const struct linear_params *p, uint g, uint t0)
{
    float16 acc[TOKENS];
    row_group_dot(w + g * r16_group_bytes(p->k), x, sums, t0, acc);
    CPU_UNROLL
    for (uint t = 0; t < TOKENS; t++) {
        if (t0 + t < x->n)
            cpu_finish(y + (ulong)(t0 + t) * p->y_stride, bias, p, g, acc[t]);
    }
}

/* Row groups 2g (gate) and 2g + 1 (up) give 16 columns of y. */
CPU_INLINE void row_group_swiglu(const __global uchar *w, const struct rows *x, const sum_t *sums,
                                 const __global float *bias, __global float *y,
                                 const struct linear_params *p, uint g, uint t0)
{
    const ulong group_bytes = r16_group_bytes(p->k);
    float16 gate[TOKENS], up[TOKENS];
    row_group_dot(w + 2 * g * group_bytes, x, sums, t0, gate);
    row_group_dot(w + (2 * g + 1) * group_bytes, x, sums, t0, up);
    CPU_UNROLL
    for (uint t = 0; t < TOKENS; t++) {
        if (t0 + t < x->n)
            cpu_finish_pair(y + (ulong)(t0 + t) * p->y_stride, bias, p, 2 * g, gate[t], up[t]);
    }
}

/* w: row groups of m rows; x [n_tokens] rows in OP_ACT; bias [m] float; y [n_tokens][y_stride]. */
static void linear_decode_step(const __global uchar *w, const __global uchar *x_rows,
                               const __global float *bias, __global float *y,
                               struct linear_params p, uint group, uint n_groups)
{
    struct rows x;
    x.k = p.k;
    x.stride = X_IS_Q8 ? (p.k + p.k / 4 + 63) / 64 * 64 : p.k * 4;
    const bool swiglu = p.epilogue == LINEAR_SWIGLU;
    uint begin, end;
    cpu_share((p.m + (swiglu ? 31 : 15)) / (swiglu ? 32 : 16), group, n_groups, &begin, &end);
    for (uint first = 0; first < p.n_tokens; first += MAX_TOKENS) {
        x.x = x_rows + first * x.stride;
        x.n = min(p.n_tokens - first, (uint)MAX_TOKENS);
        __global float *out = y + (ulong)first * p.y_stride;
#if HAS_SUMS
        sum_t sums[SUMS];
        sum_blocks(&x, sums);
#else
        const sum_t *sums = 0;
#endif
        for (uint g = begin; g < end; g++) {
            for (uint t0 = 0; t0 < x.n; t0 += TOKENS) {
                if (swiglu)
                    row_group_swiglu(w, &x, sums, bias, out, &p, g, t0);
                else
                    row_group(w, &x, sums, bias, out, &p, g, t0);
            }
        }
    }
}

KERNEL(1) void linear_decode(__global uchar *w, ulong w_off, __global uchar *x, ulong x_off,
                              __global uchar *bias, ulong bias_off, __global uchar *y, ulong y_off,
                              struct linear_params p)
{
    linear_decode_step(w + w_off, x + x_off, (const __global float *)(bias + bias_off),
                       (__global float *)(y + y_off), p, get_group_id(0), get_num_groups(0));
}
