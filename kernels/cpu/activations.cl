/* What makes activations, on CPU devices: norm, quantize and swiglu, each straight into the format
 * OP_ACT (ACT_F32, ACT_Q8 or ACT_Q8T). Work is cut in runs of rows or of blocks of 32 columns. */
#include "cpu/q8t.h"
#include "cpu/vec.h"

#define ROW_Q8(k) (((k) + (k) / 4 + 63) / 64 * 64) /* bytes of a row of ACT_Q8 */

/* Columns 32 b .. 32 b + 31 of row t of y [rows][k]. */
CPU_INLINE void store_32(__global uchar *y, ulong k, uint t, uint b, float16 lo, float16 hi)
{
#if OP_ACT == ACT_F32
    __global float *out = (__global float *)y + t * k + 32 * b;
    vstore16(lo, 0, out);
    vstore16(hi, 1, out);
#else
    const float d = max_16(fmax(fabs(lo), fabs(hi))) / 127.0f;
    const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
    /* truncation of x + 0.5 with the sign of x: to nearest, ties away from zero */
    const int16 q_lo = convert_int16(fma(lo, (float16)(inverse), copysign((float16)(0.5f), lo)));
    const int16 q_hi = convert_int16(fma(hi, (float16)(inverse), copysign((float16)(0.5f), hi)));
    const int8 a = q_lo.lo + q_lo.hi, c = q_hi.lo + q_hi.hi;
    const int4 e = a.lo + a.hi, f = c.lo + c.hi;
    const int sum_lo = (e.x + e.y) + (e.z + e.w), sum = sum_lo + (f.x + f.y) + (f.z + f.w);
#if OP_ACT == ACT_Q8
    __global uchar *row = y + t * ROW_Q8(k);
    vstore16(convert_char16(q_lo), 2 * b, (__global char *)row);
    vstore16(convert_char16(q_hi), 2 * b + 1, (__global char *)row);
    ((__global float *)(row + k))[b] = d;
    ((__global int *)(row + k))[k / 32 + b] = sum;
#else
    __global int *record =
        (__global int *)y + t / ACT_TILE * Q8T_TILE(k) + b * Q8T_RECORD + t % ACT_TILE;
    const int4 quads_lo = as_int4(convert_char16(q_lo)), quads_hi = as_int4(convert_char16(q_hi));
    record[0] = quads_lo.x;
    record[1 * ACT_TILE] = quads_lo.y;
    record[2 * ACT_TILE] = quads_lo.z;
    record[3 * ACT_TILE] = quads_lo.w;
    record[4 * ACT_TILE] = quads_hi.x;
    record[5 * ACT_TILE] = quads_hi.y;
    record[6 * ACT_TILE] = quads_hi.z;
    record[7 * ACT_TILE] = quads_hi.w;
    record[Q8T_D] = as_int(d);
    record[Q8T_SUM] = sum;
    record[Q8T_SUM_16] = sum_lo;
    record[Q8T_D_SUM] = as_int(d * (float)sum);
#endif
#endif
}

/* Sum over a row of (x - mean)^2 for the columns below len. */
CPU_INLINE float sum_squares(const __global float *x, uint len, float mean)
{
    float16 a = (float16)(0.0f), b = (float16)(0.0f);
    uint i = 0;
    for (; i + 32 <= len; i += 32) {
        const float16 u = vload16(0, x + i) - mean, v = vload16(0, x + i + 16) - mean;
        a = fma(u, u, a);
        b = fma(v, v, b);
    }
    float sum = sum_16(a + b);
    for (; i < len; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sum;
}

CPU_INLINE float sum_row(const __global float *x, uint len)
{
    float16 a = (float16)(0.0f);
    uint i = 0;
    for (; i + 16 <= len; i += 16)
        a += vload16(0, x + i);
    float sum = sum_16(a);
    for (; i < len; i++)
        sum += x[i];
    return sum;
}

/* x [n_rows][x_stride], weight [len], bias [len] -> y [n_rows][len] in OP_ACT. */
static void norm_step(const __global float *x, const __global float *weight,
                      const __global float *bias, __global uchar *y, struct norm_params p,
                      uint group, uint n_groups)
{
    uint begin, end;
    cpu_share(p.n_rows, group, n_groups, &begin, &end);
    for (uint t = begin; t < end; t++) {
        const __global float *row = x + (ulong)t * p.x_stride;
        const float mean = p.kind == 1 ? sum_row(row, p.len) / (float)p.len : 0.0f;
        const float scale = 1.0f / sqrt(sum_squares(row, p.len, mean) / (float)p.len + p.eps);
        uint i = 0;
        for (; i + 32 <= p.len; i += 32) {
            float16 lo = (vload16(0, row + i) - mean) * scale * vload16(0, weight + i);
            float16 hi = (vload16(0, row + i + 16) - mean) * scale * vload16(0, weight + i + 16);
            if (p.has_bias) {
                lo += vload16(0, bias + i);
                hi += vload16(0, bias + i + 16);
            }
            store_32(y, p.len, t, i / 32, lo, hi);
        }
#if OP_ACT == ACT_F32
        for (; i < p.len; i++)
            ((__global float *)y)[(ulong)t * p.len + i] =
                (row[i] - mean) * scale * weight[i] + (p.has_bias ? bias[i] : 0.0f);
#endif
    }
}

KERNEL(1) void norm_cpu(__global uchar *x, ulong x_off, __global uchar *weight, ulong weight_off,
                        __global uchar *bias, ulong bias_off, __global uchar *y, ulong y_off,
                        struct norm_params p)
{
    norm_step((const __global float *)(x + x_off), (const __global float *)(weight + weight_off),
              (const __global float *)(bias + bias_off), y + y_off, p, get_group_id(0),
              get_num_groups(0));
}

/* x [n_rows][x_stride] -> y [n_rows][len] in OP_ACT; len is a multiple of 32. */
static void quantize_step(const __global float *x, __global uchar *y, struct quantize_params p,
                          uint group, uint n_groups)
{
    const uint n_blocks = p.len / 32;
    uint begin, end;
    cpu_share(p.n_rows * n_blocks, group, n_groups, &begin, &end);
    for (uint i = begin; i < end; i++) {
        const uint t = i / n_blocks, b = i % n_blocks;
        const __global float *in = x + (ulong)t * p.x_stride + 32 * b;
        store_32(y, p.len, t, b, vload16(0, in), vload16(1, in));
    }
}

KERNEL(1) void quantize_cpu(__global uchar *x, ulong x_off, __global uchar *y, ulong y_off,
                            struct quantize_params p)
{
    quantize_step((const __global float *)(x + x_off), y + y_off, p, get_group_id(0),
                  get_num_groups(0));
}

/* gelu_tanh(x) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
CPU_INLINE float16 gated(float16 gate, float16 up, uint act)
{
    if (act == 0)
        return cpu_silu(gate) * up;
    const float16 u = 0.7978845608f * fma(gate * gate * 0.044715f, gate, gate);
    return gate / (1.0f + cpu_exp(-2.0f * u)) * up;
}

/* gate_up [n_tokens][x_stride] -> y [n_tokens][n] in OP_ACT; n is a multiple of 32. */
static void swiglu_step(const __global float *gate_up, __global uchar *y, struct swiglu_params p,
                        uint group, uint n_groups)
{
    const uint n_blocks = p.n / 32;
    uint begin, end;
    cpu_share(p.n_tokens * n_blocks, group, n_groups, &begin, &end);
    for (uint i = begin; i < end; i++) {
        const uint t = i / n_blocks, b = i % n_blocks;
        const __global float *gate = gate_up + (ulong)t * p.x_stride + 32 * b, *up = gate + p.n;
        store_32(y, p.n, t, b, gated(vload16(0, gate), vload16(0, up), p.act),
                 gated(vload16(1, gate), vload16(1, up), p.act));
    }
}

KERNEL(1) void swiglu_cpu(__global uchar *gate_up, ulong gate_up_off, __global uchar *y,
                          ulong y_off, struct swiglu_params p)
{
    swiglu_step((const __global float *)(gate_up + gate_up_off), y + y_off, p, get_group_id(0),
                get_num_groups(0));
}
