/* conv2d with a filter for each channel (c = o = groups), NCHW: an item makes ROWS outputs below
 * each other, so that neighbouring items read and write neighbouring numbers, and each number of x is
 * read once for the ROWS it serves where the filter is 3 x 3 without stride or dilation.
 */
#include "conv2d/conv2d.h"

#ifndef ROWS
#define ROWS 8
#endif

/* The 3 x 3 case: line i of x adds to the outputs i - 2, i - 1 and i. */
static void depthwise_3x3(const __global uchar *x, const __global uchar *w, struct conv2d_params p,
                          uint plane, uint row0, uint col, float *sums)
{
    const int top = conv_top(p, row0), left = conv_left(p, col);
    const ulong first = (ulong)plane * p.h * p.w;
    bool inside[3];
    float filter[9];
#pragma unroll
    for (uint i = 0; i < 9; i++)
        filter[i] = real_load(w, plane % p.c * 9 + i);
#pragma unroll
    for (uint s = 0; s < 3; s++)
        inside[s] = left + (int)s >= 0 && left + (int)s < (int)p.w;
#pragma unroll
    for (uint i = 0; i < ROWS + 2; i++) {
        const int y = top + (int)i;
        const bool in_rows = y >= 0 && y < (int)p.h;
        const ulong at = first + (ulong)(in_rows ? y : 0) * p.w;
        float v[3];
#pragma unroll
        for (uint s = 0; s < 3; s++)
            v[s] = in_rows && inside[s] ? real_load(x, at + (ulong)(left + (int)s)) : 0.0f;
#pragma unroll
        for (uint r = 0; r < 3; r++)
#pragma unroll
            for (uint s = 0; s < 3; s++)
                if (i >= r && i - r < ROWS)
                    sums[i - r] = fma(v[s], filter[3 * r + s], sums[i - r]);
    }
}

static void depthwise_any(const __global uchar *x, const __global uchar *w, struct conv2d_params p,
                          uint plane, uint row0, uint col, float *sums)
{
    const uint c = plane % p.c, image = plane / p.c;
    for (uint r = 0; r < p.kh; r++)
        for (uint s = 0; s < p.kw; s++) {
            const float weight = real_load(w, ((ulong)c * p.kh + r) * p.kw + s);
#pragma unroll
            for (uint i = 0; i < ROWS; i++)
                if (row0 + i < p.ho)
                    sums[i] = fma(conv_load(x, p, image, c, conv_top(p, row0 + i) + (int)(r * p.dil_h),
                                            conv_left(p, col) + (int)(s * p.dil_w)),
                                  weight, sums[i]);
        }
}

static void conv2d_depthwise_step(const __global uchar *x, const __global uchar *w,
                                  const __global uchar *bias, __global uchar *y,
                                  struct conv2d_params p, uint group, uint n_groups)
{
    const uint parts = div_up(p.ho, ROWS), n_planes = p.n * p.c;
    const ulong n = (ulong)n_planes * parts * p.wo;
    const bool small = p.kh == 3 && p.kw == 3 && p.stride_h == 1 && p.stride_w == 1 &&
                       p.dil_h == 1 && p.dil_w == 1;
    for (ulong item = (ulong)group * LWS + get_local_id(0); item < n; item += (ulong)n_groups * LWS) {
        const uint col = (uint)(item % p.wo), part = (uint)(item / p.wo % parts);
        const uint plane = (uint)(item / p.wo / parts), row0 = part * ROWS;
        float sums[ROWS];
#pragma unroll
        for (uint i = 0; i < ROWS; i++)
            sums[i] = 0.0f;
        if (small)
            depthwise_3x3(x, w, p, plane, row0, col, sums);
        else
            depthwise_any(x, w, p, plane, row0, col, sums);
#pragma unroll
        for (uint i = 0; i < ROWS; i++)
            if (row0 + i < p.ho)
                conv_finish(y, bias, p, plane / p.c, plane % p.c, row0 + i, col, sums[i]);
    }
}

KERNEL(LWS) void conv2d_depthwise(CONV_ARGS)
{
    conv2d_depthwise_step(x + x_offset, w + w_offset, bias + bias_offset, y + y_offset, p,
                          get_group_id(0), get_num_groups(0));
}
