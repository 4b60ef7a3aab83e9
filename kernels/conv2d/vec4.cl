/* conv2d, output channels in fours: weights go into panels first, then an item per output place computes
 * four channels with one float4 of weights per input number.
 *
 *   panels: conv2d/conv2d.h      item = ((image * quads + quad) * ho + row) * wo + col (NHWC: quad fastest)
 */
#include "conv2d/conv2d.h"

KERNEL(LWS) void conv2d_panels(CONV_SCRATCH_ARGS)
{
    const ulong n = conv_panel_floats(p);
    for (ulong at = get_global_id(0); at < n; at += get_global_size(0))
        ((__global float *)(scratch + scratch_offset))[at] = conv_panel_value(w + w_offset, p, at);
}

static void conv2d_vec4_step(const __global uchar *x, const __global float *panels,
                             const __global uchar *bias, __global uchar *y, struct conv2d_params p,
                             uint group, uint n_groups)
{
    const uint channels = p.c / p.groups, per_group = p.o / p.groups, depth = conv_depth(p);
    const uint quads = div_up(per_group, 4), all_quads = quads * p.groups;
    const ulong n = (ulong)p.n * all_quads * p.ho * p.wo;
    for (ulong item = (ulong)group * LWS2 + get_local_id(0); item < n;
         item += (ulong)n_groups * LWS2) {
#if OP_LAYOUT == CONV_NHWC
        const uint q = (uint)(item % all_quads), place = (uint)(item / all_quads % (p.ho * p.wo));
        const uint image = (uint)(item / all_quads / (p.ho * p.wo));
#else
        const uint place = (uint)(item % (p.ho * p.wo)), q = (uint)(item / (p.ho * p.wo) % all_quads);
        const uint image = (uint)(item / (p.ho * p.wo) / all_quads);
#endif
        const uint row = place / p.wo, col = place % p.wo, g = q / quads, o0 = q % quads * 4;
        const __global float *w = panels +
                                  ((ulong)g * conv_panels(p) + o0 / CONV_PANEL) * depth * CONV_PANEL +
                                  o0 % CONV_PANEL;
        float4 sum = (float4)(0.0f);
        for (uint c = 0; c < channels; c++)
            for (uint r = 0; r < p.kh; r++)
                for (uint s = 0; s < p.kw; s++) {
                    const float v =
                        conv_load(x, p, image, g * channels + c, conv_top(p, row) + (int)(r * p.dil_h),
                                  conv_left(p, col) + (int)(s * p.dil_w));
                    sum = fma((float4)(v), vload4(0, w), sum);
                    w += CONV_PANEL;
                }
        const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
        for (uint j = 0; j < 4 && o0 + j < per_group; j++)
            conv_finish(y, bias, p, image, g * per_group + o0 + j, row, col, sums[j]);
    }
}

KERNEL(LWS2) void conv2d_vec4(CONV_SCRATCH_ARGS)
{
    conv2d_vec4_step(x + x_offset, (const __global float *)(scratch + scratch_offset),
                     bias + bias_offset, y + y_offset, p, get_group_id(0), get_num_groups(0));
}
