/* conv2d with a group per channel for CPUs, NCHW: 16 neighbouring outputs of a row at once.
 *
 *   x [n][c][h][w], w [c][kh][kw], y [n][c][ho][wo]     an item: an output row of a plane
 *
 * Outputs whose filter touches the padding go one by one; so do strides over 1 and short rows. The last
 * vector of a row moves left onto outputs that are there already.
 */
#include "cpu/vec.h"
#include "conv2d/conv2d.h"

/* 16 outputs from col on, all taps inside of x horizontally; rows outside give zeros. */
CPU_INLINE float16 depthwise_16(const __global uchar *x, const __global uchar *w,
                                struct conv2d_params p, ulong plane, uint channel, uint row, uint col)
{
    float16 sum = (float16)(0.0f);
    for (uint r = 0; r < p.kh; r++) {
        const int in_row = conv_top(p, row) + (int)(r * p.dil_h);
        if (in_row < 0 || in_row >= (int)p.h)
            continue;
        const ulong from = plane + (ulong)in_row * p.w + (ulong)conv_left(p, col);
        for (uint s = 0; s < p.kw; s++)
            sum = fma(real_load16(x, from + s * p.dil_w),
                      (float16)(real_load(w, ((ulong)channel * p.kh + r) * p.kw + s)), sum);
    }
    return sum;
}

CPU_INLINE float depthwise_1(const __global uchar *x, const __global uchar *w,
                             struct conv2d_params p, uint image, uint channel, uint row, uint col)
{
    float sum = 0.0f;
    for (uint r = 0; r < p.kh; r++)
        for (uint s = 0; s < p.kw; s++)
            sum = fma(conv_load(x, p, image, channel, conv_top(p, row) + (int)(r * p.dil_h),
                                conv_left(p, col) + (int)(s * p.dil_w)),
                      real_load(w, ((ulong)channel * p.kh + r) * p.kw + s), sum);
    return sum;
}

CPU_INLINE void depthwise_rows_step(const __global uchar *x, const __global uchar *w,
                                    const __global uchar *bias, __global uchar *y,
                                    struct conv2d_params p, uint group, uint n_groups)
{
    /* the last column from which 16 outputs see no padding */
    const uint reach = (p.kw - 1) * p.dil_w;
    const bool vectors = p.stride_w == 1 && p.w >= reach + 16;
    const uint last = vectors ? p.pad_w + p.w - reach - 16 : 0;
    uint begin, end;
    cpu_share(p.n * p.c * p.ho, group, n_groups, &begin, &end);
    for (uint item = begin; item < end; item++) {
        const uint row = item % p.ho, channel = item / p.ho % p.c, image = item / p.ho / p.c;
        const ulong plane = ((ulong)image * p.c + channel) * p.h * p.w, out = (ulong)item * p.wo;
        for (uint col = 0; col < p.wo;) {
            if (vectors && col >= p.pad_w && col < last + 16) {
                col = min(col, last);
                float16 sum = depthwise_16(x, w, p, plane, channel, row, col);
                if (p.has_bias)
                    sum += real_load(bias, channel);
                if (p.act == CONV_RELU)
                    sum = fmax(sum, (float16)(0.0f));
                else if (p.act == CONV_SILU)
                    sum = cpu_silu(sum);
                real_store16(y, out + col, sum);
                col += 16;
                continue;
            }
            const float sum = depthwise_1(x, w, p, image, channel, row, col);
            real_store(y, out + col++, conv_activate(bias, p, channel, sum));
        }
    }
}

KERNEL(LWS) void depthwise_rows(CONV_ARGS)
{
    depthwise_rows_step(x + x_offset, w + w_offset, bias + bias_offset, y + y_offset, p,
                        get_group_id(0), get_num_groups(0));
}
