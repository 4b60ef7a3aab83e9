/* conv2d for CPUs, NCHW: register tiles of ROWS neighbouring outputs of a row x CONV_PANEL channels, weights
 * in panels, input padded once, one item per share, no barriers.
 *
 *   scratch: panels (conv2d/conv2d.h), then x with its padding, f32 [n][c][h + 2 pad_h][w + 2 pad_w]
 *
 *   for each k = (c, r, s):  sums[i][v] += x[..][col + i stride] * panel[k][16 v ..]     i < ROWS, v < 2
 *
 * A 1 x 1 filter sees the image as one row. Without padding f32 input is read where it lies; the last
 * tile of a row then moves left, so that nothing behind the row is read.
 */
#include "cpu/vec.h"
#include "conv2d/conv2d.h"

#ifndef ROWS
#define ROWS 8
#endif

/* The input as the tiles see it. */
struct plane {
    uint h, w, ho, wo; /* padded input, output */
    bool in_place;
};

CPU_INLINE struct plane plane_of(struct conv2d_params p)
{
    struct plane q = {p.h + 2 * p.pad_h, p.w + 2 * p.pad_w, p.ho, p.wo, false};
    const bool point = p.kh == 1 && p.kw == 1 && p.stride_h == 1 && p.stride_w == 1;
    if (point && p.pad_h == 0 && p.pad_w == 0) {
        q.w *= q.h;
        q.wo *= q.ho;
        q.h = q.ho = 1;
    }
#if OP_DTYPE == DT_F32
    q.in_place = p.pad_h == 0 && p.pad_w == 0 && q.wo >= ROWS;
#endif
    return q;
}

CPU_INLINE void conv2d_prepare_step(const __global uchar *x, const __global uchar *w,
                                    __global float *scratch, struct conv2d_params p, uint group,
                                    uint n_groups)
{
    const uint depth = conv_depth(p), per_group = p.o / p.groups;
    uint begin, end;
    cpu_share(p.groups * conv_panels(p), group, n_groups, &begin, &end);
    for (uint panel = begin; panel < end; panel++) {
        __global float *out = scratch + (ulong)panel * depth * CONV_PANEL;
        const uint o0 = panel % conv_panels(p) * CONV_PANEL;
        const ulong first = (ulong)(panel / conv_panels(p)) * per_group + o0;
        for (uint lane = 0; lane < CONV_PANEL; lane++)
            for (uint k = 0; k < depth; k++)
                out[k * CONV_PANEL + lane] =
                    o0 + lane < per_group ? real_load(w, (first + lane) * depth + k) : 0.0f;
    }
    if (plane_of(p).in_place)
        return;
    const uint h = p.h + 2 * p.pad_h, width = p.w + 2 * p.pad_w;
    __global float *padded = scratch + conv_panel_floats(p);
    cpu_share(p.n * p.c * h, group, n_groups, &begin, &end);
    for (uint row = begin; row < end; row++) {
        __global float *out = padded + (ulong)row * width;
        const bool inside = row % h >= p.pad_h && row % h < p.pad_h + p.h;
        const ulong from = ((ulong)(row / h) * p.h + row % h - p.pad_h) * p.w;
        for (uint i = 0; i < width; i++)
            out[i] = 0.0f;
        for (uint i = 0; inside && i < p.w; i++)
            out[p.pad_w + i] = real_load(x, from + i);
    }
}

/* The part of a tile whose sums are in registers at a time. */
#define PART_ROWS    CPU_PART(ROWS)
#define PART_VECTORS (CPU_WIDE ? 2 : 1)

/* x: the first input of the part's first output; step: between outputs; w: its first vector. */
#define PART_SUMS(step)                                                                      \
    for (uint c = 0; c < channels; c++)                                                      \
        for (uint r = 0; r < p.kh; r++)                                                      \
            for (uint s = 0; s < p.kw; s++) {                                                \
                const __global float *at =                                                   \
                    x + (ulong)c * plane + (ulong)(r * p.dil_h) * width + s * p.dil_w;       \
                float16 wv[PART_VECTORS];                                                    \
                CPU_UNROLL                                                                   \
                for (uint v = 0; v < PART_VECTORS; v++)                                      \
                    wv[v] = vload16(v, w);                                                   \
                CPU_UNROLL                                                                   \
                for (uint i = 0; i < PART_ROWS; i++)                                         \
                    CPU_UNROLL                                                               \
                    for (uint v = 0; v < PART_VECTORS; v++)                                  \
                        sums[i][v] = fma((float16)(at[i * (step)]), wv[v], sums[i][v]);      \
                w += CONV_PANEL;                                                             \
            }

CPU_INLINE void part_sums(const __global float *x, const __global float *w, struct conv2d_params p,
                          ulong plane, uint width, float16 sums[PART_ROWS][PART_VECTORS])
{
    const uint channels = p.c / p.groups;
    CPU_UNROLL
    for (uint i = 0; i < PART_ROWS; i++)
        CPU_UNROLL
        for (uint v = 0; v < PART_VECTORS; v++)
            sums[i][v] = (float16)(0.0f);
    if (p.stride_w == 1) {
        PART_SUMS(1)
    } else if (p.stride_w == 2) {
        PART_SUMS(2)
    } else {
        PART_SUMS(p.stride_w)
    }
}

CPU_INLINE void conv2d_panel_step(const __global uchar *x, const __global float *scratch,
                                  const __global uchar *bias, __global uchar *y,
                                  struct conv2d_params p, uint group, uint n_groups)
{
    const struct plane q = plane_of(p);
    const uint per_group = p.o / p.groups, channels = p.c / p.groups, panels = conv_panels(p);
    const uint tiles = div_up(q.wo, ROWS);
    const ulong plane = (ulong)q.h * q.w, out_plane = (ulong)q.ho * q.wo;
    const __global float *input =
        q.in_place ? (const __global float *)x : scratch + conv_panel_floats(p);
    uint begin, end;
    cpu_share(p.n * p.groups * q.ho, group, n_groups, &begin, &end);
    for (uint item = begin; item < end; item++) {
        const uint row = item % q.ho, g = item / q.ho % p.groups, image = item / q.ho / p.groups;
        const __global float *line = input + ((ulong)image * p.c + g * channels) * plane +
                                     (ulong)(row * p.stride_h) * q.w;
        for (uint block = 0; block < panels * tiles; block++) {
            const uint panel = block % panels;
            uint col0 = block / panels * ROWS;
            if (q.in_place && col0 + ROWS > q.wo)
                col0 = q.wo - ROWS;
            float numbers[ROWS * CONV_PANEL];
            CPU_NO_UNROLL
            for (uint part = 0; part < ROWS / PART_ROWS * (2 / PART_VECTORS); part++) {
                const uint i0 = part / (2 / PART_VECTORS) * PART_ROWS;
                const uint v0 = part % (2 / PART_VECTORS) * PART_VECTORS;
                float16 sums[PART_ROWS][PART_VECTORS];
                part_sums(line + (col0 + i0) * p.stride_w,
                          scratch + ((ulong)g * panels + panel) * conv_depth(p) * CONV_PANEL +
                              16 * v0,
                          p, plane, q.w, sums);
                CPU_UNROLL
                for (uint i = 0; i < PART_ROWS; i++)
                    CPU_UNROLL
                    for (uint v = 0; v < PART_VECTORS; v++)
                        vstore16(sums[i][v], 2 * (i0 + i) + v0 + v, numbers);
            }
            const uint n_o = min((uint)CONV_PANEL, per_group - panel * CONV_PANEL);
            const uint n_cols = min((uint)ROWS, q.wo - col0);
            for (uint j = 0; j < n_o; j++) {
                const uint o = g * per_group + panel * CONV_PANEL + j;
                const ulong at = ((ulong)image * p.o + o) * out_plane + (ulong)row * q.wo + col0;
                for (uint i = 0; i < n_cols; i++)
                    real_store(y, at + i, conv_activate(bias, p, o, numbers[i * CONV_PANEL + j]));
            }
        }
    }
}

KERNEL(LWS) void conv2d_prepare(CONV_SCRATCH_ARGS)
{
    conv2d_prepare_step(x + x_offset, w + w_offset, (__global float *)(scratch + scratch_offset), p,
                        get_group_id(0), get_num_groups(0));
}

KERNEL(LWS2) void conv2d_panel(CONV_SCRATCH_ARGS)
{
    conv2d_panel_step(x + x_offset, (const __global float *)(scratch + scratch_offset),
                      bias + bias_offset, y + y_offset, p, get_group_id(0), get_num_groups(0));
}
