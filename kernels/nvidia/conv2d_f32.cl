/* conv2d of f32, NCHW, as a matrix product by the float units (nvidia/f32_tile.h), per group of channels:
 * y [o][places] = w [o][depth] x columns [depth][places], places = outputs of all images in a row.
 *
 *            depth                   ROWS places
 *         +---------+             +-------------+   A group makes blocks of TOKENS x ROWS of y. An item
 *  TOKENS | w       |      depth  | columns     |   copies numbers of one place, which lie at the
 *         +---------+             +-------------+   place's corner in x + an offset that k gives.
 *
 * What k gives lies in local memory, STEP of k for each stage, and is written one stage early. POINTWISE
 * (a 1 x 1 filter): the columns are x itself.
 */
#include "conv2d/conv2d.h"

#ifndef POINTWISE
#define POINTWISE 0
#endif
#define TILE_M TOKENS
#define TILE_N ROWS
#include "nvidia/f32_tile.h"
#include "nvidia/raster.h"

#define PLACE_ITEMS  (GROUP / TILE_N)       /* items that share a place */
#define PLACE_COPIES (STEP / PLACE_ITEMS)   /* numbers of a stage that one of them copies */
#if GROUP % TILE_N != 0
#error "every place of a tile needs an item"
#endif

#define NO_TAP (1u << 31) /* bit of k behind the last */

/* outside: bits of the filter's rows (from kw on) and columns that lie in the padding for this place.
 * taps: of a number k of a column, its distance from the corner in x, and the bits of its row and
 * column of the filter; slot: those of the next stage, which begins at k. */
struct source {
    struct cursor w;
#if POINTWISE
    struct cursor x;
#else
    const __global float *corner;
    uint outside, to, k, depth, slot, by_kw, by_area;
    __local uint2 *taps; /* [STAGES][STEP] */
    struct conv2d_params p;
#endif
};

#if POINTWISE
PTX_INLINE void copy_stage(struct source *s, uint stage)
{
    cursor_copy(&s->w, stage, TILE_M);
    cursor_copy(&s->x, stage + 4 * A_FLOATS, TILE_N);
}
#else
/* What a division by n has to multiply with: k / n is the upper half of the product, for n > 1 and
 * k n under 2^32. */
PTX_INLINE uint reciprocal(uint n)
{
    return 0xFFFFFFFFu / n + 1;
}

PTX_INLINE uint divide(uint k, uint n, uint by)
{
    return n == 1 ? k : mul_hi(k, by);
}

PTX_INLINE void write_taps(const struct source *s, uint slot, uint first)
{
    const uint item = (uint)get_local_id(0), k = first + item;
    if (item >= STEP)
        return;
    const uint area = s->p.kw * s->p.kh, c = divide(k, area, s->by_area), at = k - c * area;
    const uint row = divide(at, s->p.kw, s->by_kw), col = at - row * s->p.kw;
    s->taps[slot * STEP + item] =
        (uint2)((c * s->p.h + row * s->p.dil_h) * s->p.w + col * s->p.dil_w,
                k < s->depth ? 1u << col | 1u << (s->p.kw + row) : NO_TAP);
}

PTX_INLINE void copy_place(const struct source *s, uint to, uint offset, uint bits)
{
    ptx_copy4(to, s->corner + offset, (bits & s->outside) == 0 ? 4 : 0);
}

PTX_INLINE void copy_stage(struct source *s, uint stage)
{
    const __local uint2 *taps =
        s->taps + s->slot * STEP + (uint)get_local_id(0) / TILE_N * PLACE_COPIES;
    uint to = stage + s->to;
    HIDE_INT(to);
    cursor_copy(&s->w, stage, TILE_M);
#pragma unroll
    for (uint j = 0; j < PLACE_COPIES; j += 4) { /* loads between copies make these wait */
        const uint4 t = *(const __local uint4 *)(taps + j), u = *(const __local uint4 *)(taps + j + 2);
        copy_place(s, to + 4 * j * PITCH_N, t.x, t.y);
        copy_place(s, to + 4 * (j + 1) * PITCH_N, t.z, t.w);
        copy_place(s, to + 4 * (j + 2) * PITCH_N, u.x, u.y);
        copy_place(s, to + 4 * (j + 3) * PITCH_N, u.z, u.w);
    }
    s->slot = s->slot + 1 == STAGES ? 0 : s->slot + 1;
    s->k += STEP;
    write_taps(s, s->slot, s->k);
}

/* Bits of the lines of a filter, `n` of them `dilation` apart, that lie outside of `length` when the
 * first is at `first`. */
PTX_INLINE uint lines_outside(int first, uint n, uint dilation, uint length)
{
    uint bits = 0;
    for (uint i = 0; i < n; i++) {
        const int at = first + (int)(i * dilation);
        bits |= at < 0 || at >= (int)length ? 1u << i : 0;
    }
    return bits;
}
#endif

/* A block of y: from channel o0 of group g and from place place0 on. */
struct block {
    uint g, o0, place0;
};

PTX_INLINE struct source source_of(const __global uchar *x, const __global uchar *w,
                                   struct conv2d_params p, struct block b, __local uint2 *taps)
{
    const uint depth = conv_depth(p), per_group = p.o / p.groups, area = p.ho * p.wo;
    const uint item = (uint)get_local_id(0);
    const __global float *weights = (const __global float *)w + (ulong)b.g * per_group * depth;
    struct source s;
    s.w = cursor_open(weights, depth, b.o0, per_group, depth, FORM_K_FIRST, TILE_M);
#if POINTWISE
    /* quads where no quad has places of two images, else numbers of one place */
    const bool quads = ((ulong)x & 15) == 0 && area % 4 == 0;
    const uint width = quads ? TILE_N / 4 : TILE_N;
    const uint first = item % width * (quads ? 4 : 1), i = item / width;
    const uint place = min(b.place0 + first, p.n * area - 1), image = place / area;
    s.x.form = quads ? FORM_QUADS : FORM_PLACE;
    s.x.from = (const __global float *)x + ((ulong)image * depth + i) * area + place % area;
    s.x.pass = GROUP / width * area;
    s.x.step = STEP * area;
    s.x.to = 4 * (i * PITCH_N + first);
    s.x.n = b.place0 + first < p.n * area ? 1 : 0;
    s.x.k_left = (int)depth - (int)i;
#else
    const uint place = min(b.place0 + item % TILE_N, p.n * area - 1), image = place / area;
    const int top = conv_top(p, place % area / p.wo), left = conv_left(p, place % area % p.wo);
    s.corner = (const __global float *)x + (ulong)(image * p.c + b.g * (p.c / p.groups)) * p.h * p.w +
               (long)top * p.w + left;
    s.outside = NO_TAP | lines_outside(left, p.kw, p.dil_w, p.w) |
                lines_outside(top, p.kh, p.dil_h, p.h) << p.kw;
    s.to = 4 * (A_FLOATS + item / TILE_N * PLACE_COPIES * PITCH_N + item % TILE_N);
    s.k = s.slot = 0;
    s.depth = depth;
    s.by_kw = reciprocal(p.kw);
    s.by_area = reciprocal(p.kw * p.kh);
    s.taps = taps;
    s.p = p;
    barrier(CLK_LOCAL_MEM_FENCE); /* the block before has read its taps */
#pragma unroll 1
    for (uint i = 0; i < STAGES; i++)
        write_taps(&s, i, i * STEP);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    return s;
}

PTX_INLINE void store_sums(const float *sums, const __global uchar *bias, __global uchar *y,
                           struct conv2d_params p, struct block b)
{
    const struct item_place at = item_place();
    const uint area = p.ho * p.wo, per_group = p.o / p.groups;
    const bool quads = ((ulong)y & 15) == 0 && area % 4 == 0;
#pragma unroll
    for (uint h = 0; h < 2; h++) {
        const uint place = b.place0 + at.col + 16 * h;
        if (place >= p.n * area)
            continue;
#pragma unroll
        for (uint r = 0; r < 8; r++) {
            const uint in_group = b.o0 + sums_row(at, r), o = b.g * per_group + in_group;
            if (in_group >= per_group)
                continue;
            if (quads) {
                const float4 v = sums_quad(sums, r, h);
                const float4 done = {conv_activate(bias, p, o, v.x), conv_activate(bias, p, o, v.y),
                                     conv_activate(bias, p, o, v.z), conv_activate(bias, p, o, v.w)};
                *(__global float4 *)(y + 4 * (((ulong)(place / area) * p.o + o) * area + place % area)) =
                    done;
                continue;
            }
#pragma unroll
            for (uint j = 0; j < 4; j++) {
                const uint one = place + j;
                if (one < p.n * area)
                    real_store(y, ((ulong)(one / area) * p.o + o) * area + one % area,
                               conv_activate(bias, p, o, sums[8 * r + 4 * h + j]));
            }
        }
    }
}

KERNEL(LWS) void conv2d_f32(CONV_ARGS)
{
    ASK_GROUPS;
    __local float memory[STAGES * STAGE_FLOATS] __attribute__((aligned(16)));
#if POINTWISE
    __local uint2 *taps = 0;
#else
    __local uint2 taps[STAGES * STEP] __attribute__((aligned(16)));
#endif
    const uint per_group = p.o / p.groups, o_tiles = div_up(per_group, TILE_M);
    const uint place_tiles = div_up(p.n * p.ho * p.wo, TILE_N), tiles = o_tiles * place_tiles;
    const ulong blocks = (ulong)tiles * p.groups;
    for (ulong block = get_group_id(0); block < blocks; block += get_num_groups(0)) {
        const struct tile_place t = tile_order((uint)(block % tiles), o_tiles, place_tiles);
        const struct block b = {(uint)(block / tiles), t.m * TILE_M, t.n * TILE_N};
        struct source s = source_of(x + x_offset, w + w_offset, p, b, taps);
        float sums[64];
        multiply_tile(sums, &s, div_up(conv_depth(p), STEP), memory);
        store_sums(sums, bias + bias_offset, y + y_offset, p, b);
    }
}
