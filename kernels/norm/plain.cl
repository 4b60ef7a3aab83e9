/* norm: a group per row, written in the format OP_ACT.
 *
 *   x [n_rows][x_stride]   rms:   y[r][i] = x[r][i] / sqrt(mean(x[r]^2) + eps) * w[i]
 *                          layer: y[r][i] = (x[r][i] - mean) / sqrt(var + eps) * w[i] + b[i]
 */
#include "act.h"

/* The finished element i of a row. */
static float norm_at(const __global float *x, const __global float *weight,
                     const __global float *bias, struct norm_params p, float mean, float scale,
                     uint i)
{
    const float v = (x[i] - mean) * scale * weight[i];
    return p.has_bias ? v + bias[i] : v;
}

static void norm_plain_step(const __global float *x, const __global float *weight,
                            const __global float *bias, __global uchar *y, struct norm_params p,
                            __local float *scratch, uint group, uint n_groups)
{
    const uint lid = get_local_id(0);
    for (uint r = group; r < p.n_rows; r += n_groups) {
        const __global float *row = x + (ulong)r * p.x_stride;
        __global uchar *out = y + r * act_row_bytes(p.len);
        float mean = 0.0f, square = 0.0f;
        if (p.kind == 1) {
            for (uint i = lid; i < p.len; i += LWS)
                mean += row[i];
            mean = group_sum(mean, scratch, LWS) / (float)p.len;
        }
        for (uint i = lid; i < p.len; i += LWS)
            square = fma(row[i] - mean, row[i] - mean, square);
        const float scale = 1.0f / sqrt(group_sum(square, scratch, LWS) / (float)p.len + p.eps);
#if OP_ACT == ACT_Q8
        for (uint b = lid; b < p.len / 32; b += LWS) {
            float v[32];
            for (uint i = 0; i < 32; i++)
                v[i] = norm_at(row, weight, bias, p, mean, scale, 32 * b + i);
            act_store_32(out, p.len, b, vload16(0, v), vload16(1, v));
        }
#else
        for (uint i = lid; i < p.len; i += LWS)
            act_store(out, i, norm_at(row, weight, bias, p, mean, scale, i));
#endif
    }
}

KERNEL(LWS) void norm_plain(const __global uchar *x, ulong x_offset, const __global uchar *weight,
                            ulong weight_offset, const __global uchar *bias, ulong bias_offset,
                            __global uchar *y, ulong y_offset, struct norm_params p)
{
    __local float scratch[LWS];
    norm_plain_step((const __global float *)(x + x_offset),
                    (const __global float *)(weight + weight_offset),
                    (const __global float *)(bias + bias_offset), y + y_offset, p, scratch,
                    get_group_id(0), get_num_groups(0));
}
