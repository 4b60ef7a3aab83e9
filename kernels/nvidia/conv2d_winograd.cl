/* conv2d of f32, NCHW, by Winograd's minimal filtering F(4 x 4, 3 x 3) (conv2d/winograd.h): the products of
 * all places of a tile as one batch by the float units (nvidia/f32_tile.h), transforms by one item per
 * channel and tile, all in registers.
 */
#include "nvidia/capped.h"

#include "conv2d/winograd.h"

#define TILE_M 64 /* output channels */
#define TILE_N 64 /* tiles */
#define STAGES 3
#include "nvidia/f32_tile.h"
#include "nvidia/raster.h"
#if EDGE != 4
#error "tiles are 4 x 4"
#endif

KERNEL(LWS) void winograd_weights(CONV_SCRATCH_ARGS)
{
    const struct winograd g = WINOGRAD;
    const ulong n = (ulong)g.c * g.o16;
    for (ulong item = get_global_id(0); item < n; item += get_global_size(0)) {
        const uint o = (uint)(item % g.o16), c = (uint)(item / g.o16);
        float lines[3][WIDE];
#pragma unroll
        for (uint r = 0; r < 3; r++) {
            float a[3];
#pragma unroll
            for (uint s = 0; s < 3; s++)
                a[s] = o < g.o ? real_load(w + w_offset, ((ulong)o * g.c + c) * 9 + 3 * r + s) : 0.0f;
            transform_weights(a[0], a[1], a[2], lines[r]);
        }
#pragma unroll
        for (uint i = 0; i < WIDE; i++) {
            float column[WIDE];
            transform_weights(lines[0][i], lines[1][i], lines[2][i], column);
#pragma unroll
            for (uint j = 0; j < WIDE; j++)
                g.u[(ulong)(j * WIDE + i) * n + item] = column[j];
        }
    }
}

KERNEL(LWS2) void winograd_input(CONV_SCRATCH_ARGS)
{
    const struct winograd g = WINOGRAD;
    const ulong n = (ulong)g.c * g.tiles16;
    for (ulong item = get_global_id(0); item < n; item += get_global_size(0)) {
        const uint c = (uint)(item / g.tiles16), tile = min((uint)(item % g.tiles16), g.tiles - 1);
        const uint image = tile / g.rows / g.cols;
        const int top = (int)(tile / g.cols % g.rows * EDGE) - (int)p.pad_h;
        const int left = (int)(tile % g.cols * EDGE) - (int)p.pad_w;
        float d[PLACES];
#pragma unroll
        for (uint i = 0; i < PLACES; i++)
            d[i] = conv_load(x + x_offset, p, image, c, top + (int)(i / WIDE), left + (int)(i % WIDE));
#pragma unroll
        for (uint i = 0; i < WIDE; i++)
            transform_input(d + i * WIDE, 1);
#pragma unroll
        for (uint i = 0; i < WIDE; i++)
            transform_input(d + i, WIDE);
#pragma unroll
        for (uint i = 0; i < PLACES; i++)
            g.v[(ulong)i * n + item] = d[i];
    }
}

struct source {
    struct cursor u, v;
};

PTX_INLINE void copy_stage(struct source *s, uint stage)
{
    cursor_copy(&s->u, stage, TILE_M);
    cursor_copy(&s->v, stage + 4 * A_FLOATS, TILE_N);
}

KERNEL(LWS3) void winograd_product(CONV_SCRATCH_ARGS)
{
    ASK_GROUPS;
    __local float memory[STAGES * STAGE_FLOATS] __attribute__((aligned(16)));
    const struct winograd g = WINOGRAD;
    const struct item_place at = item_place();
    const uint o_tiles = div_up(g.o, TILE_M), tile_tiles = div_up(g.tiles16, TILE_N);
    const uint blocks_each = o_tiles * tile_tiles;
    for (ulong block = get_group_id(0); block < (ulong)blocks_each * PLACES; block += get_num_groups(0)) {
        const uint place = (uint)(block / blocks_each);
        const struct tile_place t = tile_order((uint)(block % blocks_each), o_tiles, tile_tiles);
        struct source s = {cursor_open(g.u + (ulong)place * g.c * g.o16, g.o16, t.m * TILE_M, g.o16, g.c,
                                       FORM_QUADS, TILE_M),
                           cursor_open(g.v + (ulong)place * g.c * g.tiles16, g.tiles16, t.n * TILE_N,
                                       g.tiles16, g.c, FORM_QUADS, TILE_N)};
        float sums[64];
        multiply_tile(sums, &s, div_up(g.c, STEP), memory);
#pragma unroll
        for (uint r = 0; r < 8; r++) {
            const uint o = t.m * TILE_M + sums_row(at, r);
#pragma unroll
            for (uint h = 0; h < 2; h++) {
                const uint tile = t.n * TILE_N + at.col + 16 * h;
                if (o < g.o && tile < g.tiles16)
                    *(__global float4 *)(g.m + ((ulong)place * g.o + o) * g.tiles16 + tile) =
                        sums_quad(sums, r, h);
            }
        }
    }
}

KERNEL(LWS4) void winograd_output(CONV_SCRATCH_ARGS)
{
    const struct winograd g = WINOGRAD;
    const ulong n = (ulong)g.o * g.tiles16;
    __global uchar *out = y + y_offset;
    const bool quads = ((ulong)out & 15) == 0 && p.wo % 4 == 0;
    for (ulong item = get_global_id(0); item < n; item += get_global_size(0)) {
        const uint o = (uint)(item / g.tiles16), tile = (uint)(item % g.tiles16);
        const uint image = tile / g.rows / g.cols;
        const uint row = tile / g.cols % g.rows * EDGE, col = tile % g.cols * EDGE;
        if (tile >= g.tiles)
            continue;
        float m[PLACES];
#pragma unroll
        for (uint i = 0; i < PLACES; i++)
            m[i] = g.m[(ulong)i * n + item];
#pragma unroll
        for (uint i = 0; i < WIDE; i++)
            transform_output(m + i * WIDE, 1);
#pragma unroll
        for (uint i = 0; i < EDGE; i++)
            transform_output(m + i, WIDE);
#pragma unroll
        for (uint i = 0; i < EDGE; i++) {
            if (row + i >= p.ho)
                continue;
            float v[EDGE];
#pragma unroll
            for (uint j = 0; j < EDGE; j++)
                v[j] = conv_activate(bias + bias_offset, p, o, m[i * WIDE + j]);
            if (quads) {
                *(__global float4 *)(out + 4 * conv_y(p, image, o, row + i, col)) =
                    (float4)(v[0], v[1], v[2], v[3]);
                continue;
            }
#pragma unroll
            for (uint j = 0; j < EDGE; j++)
                if (col + j < p.wo)
                    real_store(out, conv_y(p, image, o, row + i, col + j), v[j]);
        }
    }
}
