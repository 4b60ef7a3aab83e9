/* linear for many tokens on the matrix units of compute capability 9.0a (nvidia/wgmma.h):
 * y = x w^T; activations ACT_F16, weights of any dtype unpacked to halves, sums in float.
 *
 *                    k                 A group makes blocks of TOKENS x ROWS of y. a = x, b = w:
 *          +-------------------+         PRODUCERS teams of four warps fill the ring's stages of 64 k in
 *   TOKENS | x half            |         turns: x by the copy engine, AHEAD of the team's stages
 *          +-------------------+         early; w F16 likewise, by one item alone; other weights by
 *          +-------------------+         items that own rows item / 2 + 64 i and one of the two
 *   ROWS   | w blocks of 32    |         blocks of 32 k of a stage: they load the bytes of their
 *          +-------------------+         RAW_AHEADth next stage while they write the halves of this
 *                                        one; a warpgroup per 64 tokens multiplies, then stores.
 * y[t][r] = sum over k of x[t][k] * w[r][k]. Tiles that share rows of w are worked on at the same time.
 * Needs k % 32 == 0, x and w F16 at multiples of 16 bytes. What is past the end counts as zeros.
 *   scratch: two tensor maps a group, for w F16 or for the second team
 */
#define TILE_M     TOKENS
#define TILE_N     ROWS
#define WGMMA_TYPE "f16.f16"
#include "nvidia/wgmma_bulk.h"
#if OP_LAYOUT == 2 /* LAYOUT_R4 */
#include "nvidia/unpack_r4.h"
#else
#include "nvidia/unpack.h"
#endif

#define COPIED_W  (OP_LAYOUT == 0 && OP_DTYPE == DT_F16) /* what lies as halves needs no unpacking */
#define AHEAD     (PRODUCERS == 1 && STAGES >= 5 ? 2 : 1)
#define W_ITEMS   (ROWS * 2 / TEAM) /* blocks of a stage that an item unpacks */
#if COPIED_W && PRODUCERS != 1 || PRODUCERS > 2
#error "one team copies, or up to two unpack"
#endif
#define RAW_AHEAD (OP_LAYOUT != 2 ? 1 : PRODUCERS == 1 && ROWS <= 128 ? 4 : 2)

/* ---- weights that are unpacked ---- */

/* A row that can be read in place of one past the end, in the same place of a group as row0. */
PTX_INLINE uint existing_row(uint row, uint row0, uint m)
{
#if OP_LAYOUT == 2 /* groups of 4 rows are whole */
    return min(row / 4, (m - 1) / 4) * 4 + row0 % 4;
#else
    return min(row, m - 1);
#endif
}

struct weights_ahead {
    struct unpack_row rows[W_ITEMS];
    struct raw raw[RAW_AHEAD][W_ITEMS];
};

PTX_INLINE void load_weights(struct weights_ahead *a, const uint slot, uint step, uint k)
{
    const uint block = min(2 * step + team_item() % 2, k / 32 - 1);
#pragma unroll
    for (uint i = 0; i < W_ITEMS; i++)
        unpack_load(&a->rows[i], block, &a->raw[slot][i]);
}

/* Writes the item's blocks of stage `step` to the tile, in local memory at `tile`. */
PTX_INLINE void store_weights(const struct weights_ahead *a, const uint slot, __local uchar *tile,
                              uint step, uint k)
{
    const uint item = team_item(), row = item / 2, chunk0 = item % 2 * 4 ^ (row & 7);
    const bool inside = 2 * step + item % 2 < k / 32;
#pragma unroll
    for (uint i = 0; i < W_ITEMS; i++) {
        uint pairs[16];
        unpack_pairs(&a->raw[slot][i], pairs);
        if (!inside)
#pragma unroll
            for (uint j = 0; j < 16; j++)
                pairs[j] = 0;
        __local uchar *line = tile + (row + 64 * i) * LINE_BYTES;
#pragma unroll
        for (uint c = 0; c < 4; c++)
            *(__local uint4 *)(line + ((chunk0 ^ c) << 4)) = (uint4)(
                pairs[4 * c], pairs[4 * c + 1], pairs[4 * c + 2], pairs[4 * c + 3]);
    }
}

/* ---- filling ---- */

/* A tile being filled. maps: of x, then of w F16. */
struct filling {
    const __global uchar *maps;
    struct tile_place place;
    uint n_steps, k;
#if !COPIED_W
    struct weights_ahead w;
    struct ring ahead; /* the stage that x is copied to next, by the team's first warp */
    bool copies_x;
#endif
};

#if COPIED_W
PTX_INLINE void fill_step(struct filling *f, struct ring *r, uint step)
{
    const uint tile = ring_tile(r);
    ring_wait_empty(r);
    if (ptx_elect()) {
        bulk_arrive(r, STAGE_BYTES);
        bulk_tile(r, tile, f->maps, f->place.m * TILE_M, TILE_M, step * STEP, 0, false);
        bulk_tile(r, tile + A_BYTES, f->maps + MAP_BYTES, f->place.n * TILE_N, TILE_N, step * STEP, 0,
                  false);
    }
    ring_skip(r, PRODUCERS);
}
#else
PTX_INLINE void copy_ahead(struct filling *f, uint step)
{
    if (f->copies_x && step < f->n_steps) {
        ring_wait_empty(&f->ahead);
        if (ptx_elect()) {
            bulk_expect(&f->ahead, A_BYTES);
            bulk_tile(&f->ahead, ring_tile(&f->ahead), f->maps, f->place.m * TILE_M, TILE_M, step * STEP,
                      0, false);
        }
        ring_skip(&f->ahead, PRODUCERS);
    }
}

/* Completes stage `step`, whose weights are in `slot`. */
PTX_INLINE void fill_step(struct filling *f, struct ring *r, uint step, const uint slot,
                          __local uchar *local_memory)
{
    copy_ahead(f, step + AHEAD * PRODUCERS);
    ring_wait_empty(r);
    store_weights(&f->w, slot, local_memory + r->stage * STAGE_BYTES + A_BYTES, step, f->k);
    ring_publish(r);
    ring_skip(r, PRODUCERS);
    load_weights(&f->w, slot, step + RAW_AHEAD * PRODUCERS, f->k);
}
#endif

/* Fills the team's stages of a tile, the first of which is `step`; gives that of the next tile. */
PTX_INLINE uint fill_tile(struct ring *r, const __global uchar *maps, const __global uchar *w,
                          struct linear_params p, struct tile_place t, uint step, bool first_warp,
                          __local uchar *local_memory)
{
    struct filling f;
    f.maps = maps;
    f.place = t;
    f.n_steps = (p.k + STEP - 1) / STEP;
    f.k = p.k;
#if COPIED_W
    for (; step < f.n_steps; step += PRODUCERS)
        fill_step(&f, r, step);
#else
    const uint row0 = t.n * TILE_N + team_item() / 2;
    f.ahead = *r;
    f.copies_x = first_warp;
#pragma unroll
    for (uint i = 0; i < W_ITEMS; i++)
        f.w.rows[i] = unpack_row_of(w, existing_row(row0 + 64 * i, row0, p.m), p.k);
#pragma unroll
    for (uint slot = 0; slot < RAW_AHEAD; slot++)
        load_weights(&f.w, slot, step + slot * PRODUCERS, p.k);
    for (uint i = 0; i < AHEAD; i++)
        copy_ahead(&f, step + i * PRODUCERS);
    while (step < f.n_steps) {
#pragma unroll
        for (uint slot = 0; slot < RAW_AHEAD; slot++)
            if (step < f.n_steps) {
                fill_step(&f, r, step, slot, local_memory);
                step += PRODUCERS;
            }
    }
#endif
    return step - f.n_steps;
}

/* Writes the team's maps, by its first warp, which alone reads them. */
PTX_INLINE void write_maps(__global uchar *maps, const __global uchar *w, const __global uchar *x,
                           struct linear_params p)
{
    uint have[2];
    bulk_maps_read(maps, have, COPIED_W ? 2 : 1);
    const struct bulk_matrix m[2] = {{x, MAP_F16, p.k, p.n_tokens, 2 * p.k, TILE_M},
                                     {w, MAP_F16, p.k, p.m, 2 * p.k, TILE_N}};
    bulk_maps(maps, have, m, COPIED_W ? 2 : 1);
}

/* ---- storing ---- */

/* Where sums go, and whether quads of columns of y lie at multiples of 16 bytes. */
struct target {
    const __global float *bias;
    __global float *y;
    bool in_quads;
};

PTX_INLINE float4 biased(float4 s, const struct target *to, uint r, struct linear_params p)
{
    if (p.has_bias) {
        s.x += to->bias[min(r, p.m - 1)];
        s.y += to->bias[min(r + 1, p.m - 1)];
        s.z += to->bias[min(r + 2, p.m - 1)];
        s.w += to->bias[min(r + 3, p.m - 1)];
    }
    return s;
}

/* Four sums, or those that are inside, to column r of a row of n numbers. */
PTX_INLINE void store_quad(const struct target *to, uint t, uint r, uint n, float4 s,
                           struct linear_params p)
{
    __global float *at = to->y + (ulong)t * p.y_stride + r;
    const bool add = p.epilogue == LINEAR_ADD;
    if (to->in_quads && r + 4 <= n) {
        if (add)
            s += *(__global float4 *)at;
        *(__global float4 *)at = s;
        return;
    }
    const float one[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
    for (uint i = 0; i < 4; i++)
        if (r + i < n)
            at[i] = add ? at[i] + one[i] : one[i];
}

PTX_INLINE float4 swiglu(float4 gate, float4 up)
{
    return gate / (1.0f + exp(-gate)) * up;
}

/* Stores a piece: 16 tokens from t0, 32 rows of w from r0. With LINEAR_SWIGLU rows come as 4 gates,
 * then their 4 ups, and y gets half of the columns. */
PTX_INLINE void store_piece(const __local float *piece, const struct target *to, uint t0, uint r0,
                            struct linear_params p)
{
    const uint lane = ptx_item() & 31;
    const bool halved = p.epilogue == LINEAR_SWIGLU;
    const uint width = halved ? 8 : 4, shift = halved ? 2 : 3; /* quads in a line: 1 << shift */
#pragma unroll 1
    for (uint i = lane; i < 16u << shift; i += 32) {
        const uint line = i >> shift, column = (i & ((1u << shift) - 1)) * width, r = r0 + column;
        const __local float *at = piece + line * PIECE_STRIDE + column;
        float4 s = biased(*(const __local float4 *)at, to, r, p);
        if (halved)
            s = swiglu(s, biased(*(const __local float4 *)(at + 4), to, r + 4, p));
        if (t0 + line < p.n_tokens)
            store_quad(to, t0 + line, halved ? r / 2 : r, halved ? p.m / 2 : p.m, s, p);
    }
}

/* The same of all columns of the warp's 16 tokens, straight from registers, where they are inside of y,
 * its rows at multiples of 16 bytes, and there is no bias. A quad of lanes writes 32 bytes of a row.
 * Of two groups of 4 gates and 4 ups, which lie with lanes 0, 1 and 2, 3 of a quad, those lanes make
 * the outputs of the first and of the second. */
PTX_INLINE void store_rows(const float *d, __global float *y, uint t0, uint r0, struct linear_params p)
{
    const uint lane = ptx_item() & 31, quad = lane & 3;
    const bool ups = quad >= 2;
    const uint column = (p.epilogue == LINEAR_SWIGLU ? r0 / 2 : r0) + 2 * quad;
    __global float *first = y + (ulong)(t0 + lane / 4) * p.y_stride + column;
#pragma unroll
    for (uint below = 0; below < 2; below++) {
        __global float *row = first + below * 8ul * p.y_stride;
        if (p.epilogue == LINEAR_SWIGLU) {
#pragma unroll
            for (uint j = 0; j < TILE_N / 8; j += 2) {
                const uint at = 4 * j + 2 * below;
                const float a0 = d[at], a1 = d[at + 1], b0 = d[at + 4], b1 = d[at + 5];
                const float got0 = ptx_shuffle_xor(ups ? a0 : b0, 2);
                const float got1 = ptx_shuffle_xor(ups ? a1 : b1, 2);
                const float2 gate = (float2)(ups ? got0 : a0, ups ? got1 : a1);
                const float2 up = (float2)(ups ? b0 : got0, ups ? b1 : got1);
                *(__global float2 *)(row + 4 * j) = gate / (1.0f + exp(-gate)) * up;
            }
        } else if (p.epilogue == LINEAR_ADD) {
#pragma unroll
            for (uint j = 0; j < TILE_N / 8; j++)
                *(__global float2 *)(row + 8 * j) +=
                    (float2)(d[4 * j + 2 * below], d[4 * j + 2 * below + 1]);
        } else {
#pragma unroll
            for (uint j = 0; j < TILE_N / 8; j++)
                *(__global float2 *)(row + 8 * j) =
                    (float2)(d[4 * j + 2 * below], d[4 * j + 2 * below + 1]);
        }
    }
}

PTX_INLINE void multiply_tile(struct ring *r, const struct target *to, struct linear_params p,
                              struct tile_place place, uint warp, __local uchar *local_memory)
{
    __local float *piece = sums_piece(local_memory, warp);
    float d[N_SUMS];
    wgmma_steps(d, r, warp / 4, (p.k + STEP - 1) / STEP, false, false, !COPIED_W);
    const uint t0 = place.m * TILE_M + 16 * warp, r0 = place.n * TILE_N;
    if (to->in_quads && !p.has_bias && t0 + 16 <= p.n_tokens && r0 + TILE_N <= p.m) {
        store_rows(d, to->y, t0, r0, p);
        return;
    }
#pragma unroll
    for (uint i = 0; i < TILE_N / PIECE; i++) {
        sums_put(d, i, piece);
        store_piece(piece, to, t0, r0 + PIECE * i, p);
    }
}

PTX_INLINE void linear_wgmma_step(const __global uchar *w, const __global uchar *x,
                              const __global float *bias, __global float *y, __global uchar *maps,
                              struct linear_params p, uint group, uint n_groups,
                              __local uchar *local_memory)
{
    struct ring ring = ring_open(local_memory, COPIED_W ? 1 : TEAM / 32);
    const uint m_tiles = div_up(p.n_tokens, TILE_M), n_tiles = div_up(p.m, TILE_N);
    const uint warp = ptx_uniform(ptx_item() / 32), warps_that_fill = PRODUCERS * TEAM / 32;
    if (warp < warps_that_fill) {
        uint step = warp / (TEAM / 32);
        const bool first_warp = warp % (TEAM / 32) == 0;
        maps += step * MAP_BYTES;
        if (COPIED_W && !first_warp)
            return;
        if (first_warp)
            write_maps(maps, w, x, p);
        ring_skip(&ring, step);
        for (uint block = group; block < m_tiles * n_tiles; block += n_groups)
            step = fill_tile(&ring, maps, w, p, tile_order(block, m_tiles, n_tiles), step, first_warp,
                             local_memory);
    } else {
        const struct target to = {bias, y, ((ulong)y & 15) == 0 && p.y_stride % 4 == 0};
        for (uint block = group; block < m_tiles * n_tiles; block += n_groups)
            multiply_tile(&ring, &to, p, tile_order(block, m_tiles, n_tiles), warp - warps_that_fill,
                          local_memory);
    }
}

KERNEL(LWS) void linear_wgmma(const __global uchar *w, ulong w_offset, const __global uchar *x,
             ulong x_offset, const __global uchar *bias, ulong bias_offset, __global uchar *y, ulong y_offset,
             __global uchar *scratch, ulong scratch_offset, struct linear_params p)
{
    __local uchar local_memory[LOCAL_BYTES] __attribute__((aligned(1024)));
    linear_wgmma_step(w + w_offset, x + x_offset, (const __global float *)(bias + bias_offset),
                      (__global float *)(y + y_offset),
                      scratch + scratch_offset + get_group_id(0) * 2 * MAP_BYTES, p, get_group_id(0),
                      get_num_groups(0), local_memory);
}
