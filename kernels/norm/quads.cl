/* norm to halves for devices of many narrow items: a group per row, quads of columns side by side; a
 * row of up to QUADS x LWS quads is read once.
 *
 *   x [n_rows][x_stride]   rms:   y[r][i] = x[r][i] / sqrt(mean(x[r]^2) + eps) * w[i]
 *   len % 4 == 0           layer: y[r][i] = (x[r][i] - mean) / sqrt(var + eps) * w[i] + b[i]
 */
#include "act.h"
#include "quads.h"

#define QUADS 8 /* that an item keeps */

static float quad_sum(float4 v)
{
    return (v.x + v.y) + (v.z + v.w);
}

static void norm_quads_step(const __global float *x, const __global float *weight,
                            const __global float *bias, __global uchar *y, struct norm_params p,
                            __local float *scratch, uint group, uint n_groups)
{
    const uint lid = get_local_id(0), quads = p.len / 4;
    const bool aligned = quads_aligned(x, p.x_stride), weights_aligned = quads_aligned(weight, 4);
    for (uint r = group; r < p.n_rows; r += n_groups) {
        const __global float *row = x + (ulong)r * p.x_stride;
        __global uchar *out = y + r * act_row_bytes(p.len);
        float4 kept[QUADS];
        float mean = 0.0f, square = 0.0f;
#pragma unroll
        for (uint k = 0; k < QUADS; k++) {
            const uint q = lid + k * LWS;
            kept[k] = q < quads ? quad_load(row + 4 * q, aligned) : (float4)(0.0f);
        }
        if (p.kind == 1) {
#pragma unroll
            for (uint k = 0; k < QUADS; k++)
                mean += quad_sum(kept[k]);
            for (uint q = lid + QUADS * LWS; q < quads; q += LWS)
                mean += quad_sum(quad_load(row + 4 * q, aligned));
            mean = group_sum(mean, scratch, LWS) / (float)p.len;
        }
#pragma unroll
        for (uint k = 0; k < QUADS; k++) {
            const float4 v = kept[k] - mean;
            square += lid + k * LWS < quads ? quad_sum(v * v) : 0.0f;
        }
        for (uint q = lid + QUADS * LWS; q < quads; q += LWS) {
            const float4 v = quad_load(row + 4 * q, aligned) - mean;
            square += quad_sum(v * v);
        }
        const float scale = 1.0f / sqrt(group_sum(square, scratch, LWS) / (float)p.len + p.eps);
#pragma unroll
        for (uint k = 0; k < QUADS; k++) {
            const uint i = 4 * (lid + k * LWS);
            if (i >= p.len)
                continue;
            float4 v = (kept[k] - mean) * scale * quad_load(weight + i, weights_aligned);
            if (p.has_bias)
                v += vload4(0, bias + i);
            act_store_quad(out, i, v);
        }
        for (uint i = 4 * (lid + QUADS * LWS); i < p.len; i += 4 * LWS) {
            float4 v = (quad_load(row + i, aligned) - mean) * scale * quad_load(weight + i, weights_aligned);
            if (p.has_bias)
                v += vload4(0, bias + i);
            act_store_quad(out, i, v);
        }
    }
}

KERNEL(LWS) void norm_quads(const __global uchar *x, ulong x_offset, const __global uchar *weight,
                            ulong weight_offset, const __global uchar *bias, ulong bias_offset,
                            __global uchar *y, ulong y_offset, struct norm_params p)
{
    __local float scratch[LWS];
    norm_quads_step((const __global float *)(x + x_offset),
                    (const __global float *)(weight + weight_offset),
                    (const __global float *)(bias + bias_offset), y + y_offset, p, scratch,
                    get_group_id(0), get_num_groups(0));
}
