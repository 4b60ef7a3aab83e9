/* What every conv2d kernel uses: where elements lie in OP_LAYOUT, reads with zeros outside, the finish,
 * arguments.
 *
 *   CONV_NCHW: x [n][c][h][w], y [n][o][ho][wo]    CONV_NHWC: x [n][h][w][c], y [n][ho][wo][o]
 *   w [o][c / groups][kh][kw]: a row of `depth` numbers per output channel
 */
#ifndef CONV2D_H
#define CONV2D_H

#include "real.h"

static uint conv_depth(struct conv2d_params p)
{
    return p.c / p.groups * p.kh * p.kw;
}

static ulong conv_x(struct conv2d_params p, uint image, uint c, uint y, uint x)
{
#if OP_LAYOUT == CONV_NHWC
    return (((ulong)image * p.h + y) * p.w + x) * p.c + c;
#else
    return (((ulong)image * p.c + c) * p.h + y) * p.w + x;
#endif
}

static ulong conv_y(struct conv2d_params p, uint image, uint o, uint row, uint col)
{
#if OP_LAYOUT == CONV_NHWC
    return (((ulong)image * p.ho + row) * p.wo + col) * p.o + o;
#else
    return (((ulong)image * p.o + o) * p.ho + row) * p.wo + col;
#endif
}

/* Element of x, zero in the padding. */
static float conv_load(const __global uchar *x, struct conv2d_params p, uint image, uint c, int y,
                       int col)
{
    const bool inside = y >= 0 && col >= 0 && y < (int)p.h && col < (int)p.w;
    return inside ? real_load(x, conv_x(p, image, c, (uint)y, (uint)col)) : 0.0f;
}

/* Where the filter of output (row, col) begins in x. */
static int conv_top(struct conv2d_params p, uint row)
{
    return (int)(row * p.stride_h) - (int)p.pad_h;
}

static int conv_left(struct conv2d_params p, uint col)
{
    return (int)(col * p.stride_w) - (int)p.pad_w;
}

/* Element k of the column of x under the filter for output (row, col); k = (c * kh + r) * kw + s. */
static float conv_column(const __global uchar *x, struct conv2d_params p, uint image, uint group,
                         uint k, uint row, uint col)
{
    const uint s = k % p.kw, r = k / p.kw % p.kh, c = k / p.kw / p.kh;
    return conv_load(x, p, image, group * (p.c / p.groups) + c,
                     conv_top(p, row) + (int)(r * p.dil_h), conv_left(p, col) + (int)(s * p.dil_w));
}

/* Bias and activation of output channel o. */
static float conv_activate(const __global uchar *bias, struct conv2d_params p, uint o, float v)
{
    if (p.has_bias)
        v += real_load(bias, o);
    if (p.act == CONV_RELU)
        return fmax(v, 0.0f);
    return p.act == CONV_SILU ? v / (1.0f + exp(-v)) : v;
}

static void conv_finish(__global uchar *y, const __global uchar *bias, struct conv2d_params p,
                        uint image, uint o, uint row, uint col, float sum)
{
    real_store(y, conv_y(p, image, o, row, col), conv_activate(bias, p, o, sum));
}

/* Panels of weights in private memory: [group][panel of CONV_PANEL channels][depth][CONV_PANEL], zeros
 * where a group has no more channels. */
#define CONV_PANEL 32

static uint conv_panels(struct conv2d_params p)
{
    return div_up(p.o / p.groups, CONV_PANEL);
}

static ulong conv_panel_floats(struct conv2d_params p)
{
    return (ulong)p.groups * conv_panels(p) * conv_depth(p) * CONV_PANEL;
}

/* Number `at` of the panels. */
static float conv_panel_value(const __global uchar *w, struct conv2d_params p, ulong at)
{
    const uint depth = conv_depth(p), lane = (uint)(at % CONV_PANEL);
    const uint k = (uint)(at / CONV_PANEL % depth), panel = (uint)(at / CONV_PANEL / depth);
    const uint per_group = p.o / p.groups, o = panel % conv_panels(p) * CONV_PANEL + lane;
    const uint group = panel / conv_panels(p);
    return o < per_group ? real_load(w, ((ulong)group * per_group + o) * depth + k) : 0.0f;
}

#define CONV_TENSORS                                                                            \
    const __global uchar *x, ulong x_offset, const __global uchar *w, ulong w_offset,           \
        const __global uchar *bias, ulong bias_offset, __global uchar *y, ulong y_offset
#define CONV_ARGS CONV_TENSORS, struct conv2d_params p
#define CONV_SCRATCH_ARGS \
    CONV_TENSORS, __global uchar *scratch, ulong scratch_offset, struct conv2d_params p

#endif
