/* conv2d by Winograd's minimal filtering (conv2d/winograd.h): transforms of weights and of overlapping
 * input tiles, a product per place of a tile, the inverse transform.
 *
 * LANES tiles (1, or 16 for CPUs) are transformed at once, one per lane.
 */
#include "conv2d/winograd.h"

/* An item per (c, o): 3 x 3 weights, zeros for the padding of o. */
static void winograd_weights_step(const __global uchar *w, struct winograd g, uint group,
                                  uint n_groups)
{
    const ulong n = (ulong)g.c * g.o16;
    for (ulong item = (ulong)group * LWS + get_local_id(0); item < n; item += (ulong)n_groups * LWS) {
        const uint o = (uint)(item % g.o16), c = (uint)(item / g.o16);
        const ulong from = ((ulong)o * g.c + c) * 9;
        float lines[3][WIDE];
        for (uint r = 0; r < 3; r++) {
            float a[3] = {0.0f, 0.0f, 0.0f};
            for (uint s = 0; s < 3 && o < g.o; s++)
                a[s] = real_load(w, from + 3 * r + s);
            transform_weights(a[0], a[1], a[2], lines[r]);
        }
        for (uint i = 0; i < WIDE; i++) {
            float column[WIDE];
            transform_weights(lines[0][i], lines[1][i], lines[2][i], column);
            for (uint j = 0; j < WIDE; j++)
                g.u[(ulong)(j * WIDE + i) * n + item] = column[j];
        }
    }
}

/* An item per channel and LANES tiles. */
static void winograd_input_step(const __global uchar *x, struct conv2d_params p, struct winograd g,
                                uint group, uint n_groups)
{
    const uint parts = g.tiles16 / LANES;
    const ulong n = (ulong)g.c * parts;
    for (ulong item = (ulong)group * LWS2 + get_local_id(0); item < n;
         item += (ulong)n_groups * LWS2) {
        const uint c = (uint)(item / parts), tile0 = (uint)(item % parts) * LANES;
        float numbers[PLACES * LANES];
        lanes d[PLACES];
        for (uint lane = 0; lane < LANES; lane++) {
            const uint tile = min(tile0 + lane, g.tiles - 1), image = tile / g.rows / g.cols;
            const int top = (int)(tile / g.cols % g.rows * EDGE) - (int)p.pad_h;
            const int left = (int)(tile % g.cols * EDGE) - (int)p.pad_w;
#if OP_LAYOUT == CONV_NCHW
            if (top >= 0 && left >= 0 && top + WIDE <= (int)p.h && left + WIDE <= (int)p.w) {
                const ulong from = conv_x(p, image, c, (uint)top, (uint)left);
                for (uint i = 0; i < WIDE; i++)
                    for (uint j = 0; j < WIDE; j++)
                        numbers[(i * WIDE + j) * LANES + lane] = real_load(x, from + i * p.w + j);
                continue;
            }
#endif
            for (uint i = 0; i < PLACES; i++)
                numbers[i * LANES + lane] =
                    conv_load(x, p, image, c, top + (int)(i / WIDE), left + (int)(i % WIDE));
        }
        for (uint i = 0; i < PLACES; i++)
            d[i] = LANES_LOAD(numbers + i * LANES);
        for (uint i = 0; i < WIDE; i++)
            transform_input(d + i * WIDE, 1);
        for (uint i = 0; i < WIDE; i++)
            transform_input(d + i, WIDE);
        for (uint i = 0; i < PLACES; i++)
            LANES_STORE(d[i], g.v + ((ulong)i * g.c + c) * g.tiles16 + tile0);
    }
}

#if LANES == 16
/* A block's sums stay in registers: 16 of 16 floats, or 4 where a float16 takes several. */
#ifdef __AVX512F__
#define BLOCK_O       8
#define BLOCK_VECTORS 2
#else
#define BLOCK_O       4
#define BLOCK_VECTORS 1
#endif
/* A group takes a share of the blocks of BLOCK_O channels x 16 BLOCK_VECTORS tiles of a place. */
static void winograd_product_step(struct winograd g, uint group, uint n_groups)
{
    const uint o_blocks = g.o16 / BLOCK_O, tile_blocks = div_up(g.tiles16, 16 * BLOCK_VECTORS);
    const uint n = PLACES * o_blocks * tile_blocks;
    for (uint block = (uint)((ulong)n * group / n_groups);
         block < (uint)((ulong)n * (group + 1) / n_groups); block++) {
        const uint o0 = block % o_blocks * BLOCK_O;
        const uint tile0 = block / o_blocks % tile_blocks * 16 * BLOCK_VECTORS;
        const uint place = block / o_blocks / tile_blocks;
        /* vectors there are; for more the first is taken again */
        const uint n_vectors = min((uint)BLOCK_VECTORS, (g.tiles16 - tile0) / 16);
        const __global float *u = g.u + (ulong)place * g.c * g.o16 + o0;
        const __global float *v = g.v + (ulong)place * g.c * g.tiles16 + tile0;
        float16 sums[BLOCK_O][BLOCK_VECTORS];
#pragma unroll
        for (uint j = 0; j < BLOCK_O; j++)
#pragma unroll
            for (uint i = 0; i < BLOCK_VECTORS; i++)
                sums[j][i] = (float16)(0.0f);
        for (uint c = 0; c < g.c; c++) {
            float16 vs[BLOCK_VECTORS];
#pragma unroll
            for (uint i = 0; i < BLOCK_VECTORS; i++)
                vs[i] = vload16(i < n_vectors ? i : 0, v);
#pragma unroll
            for (uint j = 0; j < BLOCK_O; j++)
#pragma unroll
                for (uint i = 0; i < BLOCK_VECTORS; i++)
                    sums[j][i] = fma((float16)(u[j]), vs[i], sums[j][i]);
            u += g.o16;
            v += g.tiles16;
        }
#pragma unroll
        for (uint j = 0; j < BLOCK_O; j++) {
            if (o0 + j >= g.o)
                break;
            __global float *m = g.m + ((ulong)place * g.o + o0 + j) * g.tiles16 + tile0;
#pragma unroll
            for (uint i = 0; i < BLOCK_VECTORS; i++)
                if (i < n_vectors)
                    vstore16(sums[j][i], i, m);
        }
    }
}
#else
/* An item per 4 channels x 4 tiles of a place. */
static void winograd_product_step(struct winograd g, uint group, uint n_groups)
{
    const uint o_quads = g.o16 / 4, tile_quads = g.tiles16 / 4;
    const ulong n = (ulong)PLACES * o_quads * tile_quads;
    for (ulong item = (ulong)group * LWS3 + get_local_id(0); item < n;
         item += (ulong)n_groups * LWS3) {
        const uint tile = (uint)(item % tile_quads) * 4, o = (uint)(item / tile_quads % o_quads) * 4;
        const uint place = (uint)(item / tile_quads / o_quads);
        const __global float *u = g.u + (ulong)place * g.c * g.o16 + o;
        const __global float *v = g.v + (ulong)place * g.c * g.tiles16 + tile;
        float4 sums[4] = {(float4)(0.0f), (float4)(0.0f), (float4)(0.0f), (float4)(0.0f)};
        for (uint c = 0; c < g.c; c++) {
            const float4 uv = vload4(0, u), vv = vload4(0, v);
            sums[0] = fma((float4)(uv.x), vv, sums[0]);
            sums[1] = fma((float4)(uv.y), vv, sums[1]);
            sums[2] = fma((float4)(uv.z), vv, sums[2]);
            sums[3] = fma((float4)(uv.w), vv, sums[3]);
            u += g.o16;
            v += g.tiles16;
        }
        for (uint j = 0; j < 4 && o + j < g.o; j++)
            vstore4(sums[j], 0, g.m + ((ulong)place * g.o + o + j) * g.tiles16 + tile);
    }
}
#endif

/* An item per output channel and LANES tiles. */
static void winograd_output_step(const __global uchar *bias, __global uchar *y,
                                 struct conv2d_params p, struct winograd g, uint group,
                                 uint n_groups)
{
    const uint parts = g.tiles16 / LANES;
    const ulong n = (ulong)g.o * parts;
    for (ulong item = (ulong)group * LWS4 + get_local_id(0); item < n;
         item += (ulong)n_groups * LWS4) {
        const uint o = (uint)(item / parts), tile0 = (uint)(item % parts) * LANES;
        lanes m[PLACES];
        float numbers[EDGE * EDGE * LANES];
        for (uint i = 0; i < PLACES; i++)
            m[i] = LANES_LOAD(g.m + ((ulong)i * g.o + o) * g.tiles16 + tile0);
        for (uint i = 0; i < WIDE; i++)
            transform_output(m + i * WIDE, 1);
        for (uint i = 0; i < EDGE; i++)
            transform_output(m + i, WIDE);
        for (uint i = 0; i < EDGE * EDGE; i++)
            LANES_STORE(m[i / EDGE * WIDE + i % EDGE], numbers + i * LANES);
        for (uint lane = 0; lane < LANES && tile0 + lane < g.tiles; lane++) {
            const uint tile = tile0 + lane, image = tile / g.rows / g.cols;
            const uint row = tile / g.cols % g.rows * EDGE, col = tile % g.cols * EDGE;
            for (uint i = 0; i < EDGE * EDGE; i++)
                if (row + i / EDGE < p.ho && col + i % EDGE < p.wo)
                    conv_finish(y, bias, p, image, o, row + i / EDGE, col + i % EDGE,
                                numbers[i * LANES + lane]);
        }
    }
}

KERNEL(LWS) void winograd_weights(CONV_SCRATCH_ARGS)
{
    winograd_weights_step(w + w_offset, WINOGRAD, get_group_id(0), get_num_groups(0));
}

KERNEL(LWS2) void winograd_input(CONV_SCRATCH_ARGS)
{
    winograd_input_step(x + x_offset, p, WINOGRAD, get_group_id(0), get_num_groups(0));
}

KERNEL(LWS3) void winograd_product(CONV_SCRATCH_ARGS)
{
    winograd_product_step(WINOGRAD, get_group_id(0), get_num_groups(0));
}

KERNEL(LWS4) void winograd_output(CONV_SCRATCH_ARGS)
{
    winograd_output_step(bias + bias_offset, y + y_offset, p, WINOGRAD, get_group_id(0),
                         get_num_groups(0));
}
