/* matmul, register tile: a group per ROWS x TOKENS tile of y; TILE_K of k at a time through local
 * memory; every item keeps ITEM_ROWS x ITEM_QUADS float4 sums in registers.
 *
 *             TILE_K                      TOKENS
 *          +---------+                +------------+
 *   ROWS   | a       |       TILE_K   | b          |   item lid: quads x + q * COL_ITEMS of the columns,
 *          +---------+                +------------+   rows ITEM_ROWS * z ..;
 *                                                       x = lid % COL_ITEMS, z = lid / COL_ITEMS
 *   block = (batch * row blocks + row block) * column blocks + column block
 *
 * matmul_register_direct reads the operands where they lie, bounds checked: one launch, for small
 * sizes. matmul_register_packed reads panels that matmul_pack made: zeros outside, no checks, whole
 * float4s, for large sizes.
 *   scratch: panels of a [batch][row block][kp][ROWS], then of b [batch][column block][kp][TOKENS]
 */
#include "matmul/matmul.h"

#ifndef ROWS
#define ROWS   64
#define TOKENS 64
#endif
#ifndef TILE_K
#define TILE_K 16 /* a divisor of MATMUL_PAD */
#endif
#ifndef ITEM_COLS
#define ITEM_COLS 4 /* columns of an item where the group is large enough */
#endif
#ifndef PACKED
#define PACKED 0
#endif
#define GROUP      (PACKED ? LWS2 : LWS)
#define COL_ITEMS  (TOKENS / ITEM_COLS < GROUP ? TOKENS / ITEM_COLS : GROUP)
#define ITEM_QUADS (TOKENS / 4 / COL_ITEMS)
#define ITEM_ROWS  (ROWS * COL_ITEMS / GROUP)
#if ROWS * COL_ITEMS < GROUP
#error "the group has more items than the tile has rows for"
#endif
#define A_STRIDE   (ROWS + 4)
#define B_STRIDE   (TOKENS + 4)
/* Four numbers of a tile in local memory: strides and places are multiples of 4, so one wide access. */
#define QUAD(at)   ((__local float4 *)(at))
#define TILE_MEMORY(name, stride) __local float name[TILE_K * (stride)] __attribute__((aligned(16)))

struct tile {
    uint batch, row0, col0;
};

static struct tile tile_at(struct matmul_params p, ulong block)
{
    const uint row_blocks = div_up(p.m, ROWS), col_blocks = div_up(p.n, TOKENS);
    const struct tile t = {(uint)(block / col_blocks / row_blocks),
                           (uint)(block / col_blocks % row_blocks) * ROWS,
                           (uint)(block % col_blocks) * TOKENS};
    return t;
}

/* TILE_K x ROWS of a and TILE_K x TOKENS of b from i0 on into local memory, walked in the order in
 * which they lie. */
static void load_direct(const __global uchar *a, const __global uchar *b, struct matmul_params p,
                        struct tile t, uint i0, __local float *as, __local float *bs)
{
    for (uint at = get_local_id(0); at < ROWS * TILE_K; at += GROUP) {
        const uint i = p.trans_a ? at / ROWS : at % TILE_K, r = p.trans_a ? at % ROWS : at / TILE_K;
        as[i * A_STRIDE + r] = i0 + i < p.k && t.row0 + r < p.m
                                   ? real_load(a, matmul_a(p, t.batch, t.row0 + r, i0 + i))
                                   : 0.0f;
    }
    for (uint at = get_local_id(0); at < TOKENS * TILE_K; at += GROUP) {
        const uint i = p.trans_b ? at % TILE_K : at / TOKENS;
        const uint j = p.trans_b ? at / TILE_K : at % TOKENS;
        bs[i * B_STRIDE + j] = i0 + i < p.k && t.col0 + j < p.n
                                   ? real_load(b, matmul_b(p, t.batch, i0 + i, t.col0 + j))
                                   : 0.0f;
    }
}

/* The same from panels that start at their tile. */
static void load_packed(const __global float *a, const __global float *b, uint i0, __local float *as,
                        __local float *bs)
{
    for (uint at = get_local_id(0); at < ROWS * TILE_K / 4; at += GROUP) {
        const uint i = at / (ROWS / 4), quad = at % (ROWS / 4);
        *QUAD(as + i * A_STRIDE + 4 * quad) =
            *(const __global float4 *)(a + (ulong)(i0 + i) * ROWS + 4 * quad);
    }
    for (uint at = get_local_id(0); at < TOKENS * TILE_K / 4; at += GROUP) {
        const uint i = at / (TOKENS / 4), quad = at % (TOKENS / 4);
        *QUAD(bs + i * B_STRIDE + 4 * quad) =
            *(const __global float4 *)(b + (ulong)(i0 + i) * TOKENS + 4 * quad);
    }
}

static void multiply_tile(__local float *as, __local float *bs,
                          float4 sums[ITEM_ROWS][ITEM_QUADS])
{
    const uint x = get_local_id(0) % COL_ITEMS, z = get_local_id(0) / COL_ITEMS;
    for (uint i = 0; i < TILE_K; i++) {
        float4 bv[ITEM_QUADS];
#pragma unroll
        for (uint q = 0; q < ITEM_QUADS; q++)
            bv[q] = *QUAD(bs + i * B_STRIDE + 4 * (x + q * COL_ITEMS));
        float row[ITEM_ROWS];
#if ITEM_ROWS % 4 == 0
#pragma unroll
        for (uint r = 0; r < ITEM_ROWS; r += 4) {
            const float4 v = *QUAD(as + i * A_STRIDE + z * ITEM_ROWS + r);
            row[r] = v.x;
            row[r + 1] = v.y;
            row[r + 2] = v.z;
            row[r + 3] = v.w;
        }
#else
#pragma unroll
        for (uint r = 0; r < ITEM_ROWS; r++)
            row[r] = as[i * A_STRIDE + z * ITEM_ROWS + r];
#endif
#pragma unroll
        for (uint r = 0; r < ITEM_ROWS; r++) {
            const float4 av = (float4)(row[r]);
#pragma unroll
            for (uint q = 0; q < ITEM_QUADS; q++)
                sums[r][q] = fma(av, bv[q], sums[r][q]);
        }
    }
}

static void store_tile(__global uchar *y, const __global uchar *c, struct matmul_params p,
                       struct tile t, float4 sums[ITEM_ROWS][ITEM_QUADS])
{
    const uint x = get_local_id(0) % COL_ITEMS, z = get_local_id(0) / COL_ITEMS;
#pragma unroll
    for (uint r = 0; r < ITEM_ROWS; r++) {
        const uint row = t.row0 + z * ITEM_ROWS + r;
        if (row >= p.m)
            break;
#pragma unroll
        for (uint q = 0; q < ITEM_QUADS; q++) {
            const uint col = t.col0 + 4 * (x + q * COL_ITEMS);
            const ulong at = ((ulong)t.batch * p.m + row) * p.n + col;
            float4 v = p.alpha * sums[r][q];
            if (col + 4 <= p.n) {
                if (p.beta != 0.0f)
                    v = fma((float4)(p.beta), real_load4(c, at), v);
                real_store4(y, at, v);
                continue;
            }
            const float one[4] = {sums[r][q].x, sums[r][q].y, sums[r][q].z, sums[r][q].w};
            for (uint j = 0; j < 4 && col + j < p.n; j++)
                matmul_finish(y, c, p, at + j, one[j]);
        }
    }
}

static void clear_tile(float4 sums[ITEM_ROWS][ITEM_QUADS])
{
#pragma unroll
    for (uint r = 0; r < ITEM_ROWS; r++)
#pragma unroll
        for (uint q = 0; q < ITEM_QUADS; q++)
            sums[r][q] = (float4)(0.0f);
}

static ulong tile_count(struct matmul_params p)
{
    return (ulong)p.batch * div_up(p.m, ROWS) * div_up(p.n, TOKENS);
}

#if PACKED
/* Panels are written by tiles of PACK x PACK numbers, turned in local memory, so that both sides are
 * walked in order. */
#define PACK 32

/* A tile of one operand: k from i0 on, its rows (columns of b) from r0 on. */
struct pack_tile {
    bool of_a;
    uint batch, i0, r0;
};

static struct pack_tile pack_tile_at(struct matmul_params p, ulong block, ulong n_a)
{
    const bool of_a = block < n_a;
    const ulong at = of_a ? block : block - n_a;
    const uint k_tiles = div_up((uint)matmul_padded_k(p), PACK);
    const uint row_tiles = of_a ? div_up(p.m, ROWS) * (ROWS / PACK) : div_up(p.n, TOKENS) * (TOKENS / PACK);
    const struct pack_tile t = {of_a, (uint)(at / k_tiles / row_tiles), (uint)(at % k_tiles) * PACK,
                                (uint)(at / k_tiles % row_tiles) * PACK};
    return t;
}

/* Where number (r0, i0) of the tile goes. */
static ulong pack_target(struct matmul_params p, struct pack_tile t)
{
    const ulong kp = matmul_padded_k(p), panels = t.of_a ? div_up(p.m, ROWS) : div_up(p.n, TOKENS);
    const uint width = t.of_a ? ROWS : TOKENS;
    const ulong before = t.of_a ? 0 : (ulong)p.batch * div_up(p.m, ROWS) * kp * ROWS;
    return before + (t.batch * panels + t.r0 / width) * kp * width + (ulong)t.i0 * width + t.r0 % width;
}

static void matmul_pack_step(const __global uchar *a, const __global uchar *b,
                             __global float *scratch, struct matmul_params p, __local float *turned,
                             uint group, uint n_groups)
{
    const uint kp = (uint)matmul_padded_k(p), k_tiles = div_up(kp, PACK), lid = get_local_id(0);
    const ulong n_a = (ulong)p.batch * div_up(p.m, ROWS) * (ROWS / PACK) * k_tiles;
    const ulong n = n_a + (ulong)p.batch * div_up(p.n, TOKENS) * (TOKENS / PACK) * k_tiles;
    for (ulong block = group; block < n; block += n_groups) {
        for (uint at = lid; at < PACK * PACK; at += LWS) {
            const struct pack_tile t = pack_tile_at(p, block, n_a);
            const bool k_first = t.of_a ? !p.trans_a : p.trans_b; /* k runs fastest in the operand */
            const uint x = at % PACK, z = at / PACK, i = k_first ? x : z, r = k_first ? z : x;
            float v = 0.0f;
            if (t.i0 + i < p.k && t.r0 + r < (t.of_a ? p.m : p.n))
                v = t.of_a ? real_load(a, matmul_a(p, t.batch, t.r0 + r, t.i0 + i))
                           : real_load(b, matmul_b(p, t.batch, t.i0 + i, t.r0 + r));
            turned[i * (PACK + 1) + r] = v;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint at = lid; at < PACK * PACK; at += LWS) {
            const struct pack_tile t = pack_tile_at(p, block, n_a);
            const uint i = at / PACK, r = at % PACK, width = t.of_a ? ROWS : TOKENS;
            if (t.i0 + i < kp)
                scratch[pack_target(p, t) + (ulong)i * width + r] = turned[i * (PACK + 1) + r];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

static void matmul_packed_step(const __global float *scratch, const __global uchar *c,
                               __global uchar *y, struct matmul_params p, __local float *as,
                               __local float *bs, uint group, uint n_groups)
{
    const ulong kp = matmul_padded_k(p), n = tile_count(p);
    const uint row_blocks = div_up(p.m, ROWS), col_blocks = div_up(p.n, TOKENS);
    const __global float *b_panels = scratch + (ulong)p.batch * row_blocks * kp * ROWS;
    for (ulong block = group; block < n; block += n_groups) {
        const struct tile t = tile_at(p, block);
        const __global float *a =
            scratch + ((ulong)t.batch * row_blocks + t.row0 / ROWS) * kp * ROWS;
        const __global float *b =
            b_panels + ((ulong)t.batch * col_blocks + t.col0 / TOKENS) * kp * TOKENS;
        float4 sums[ITEM_ROWS][ITEM_QUADS];
        clear_tile(sums);
        for (uint i0 = 0; i0 < kp; i0 += TILE_K) {
            load_packed(a, b, i0, as, bs);
            barrier(CLK_LOCAL_MEM_FENCE);
            multiply_tile(as, bs, sums);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        store_tile(y, c, p, t, sums);
    }
}

KERNEL(LWS) void matmul_pack(MATMUL_SCRATCH_ARGS)
{
    __local float turned[PACK * (PACK + 1)];
    matmul_pack_step(a + a_offset, b + b_offset, (__global float *)(scratch + scratch_offset), p,
                     turned, get_group_id(0), get_num_groups(0));
}

KERNEL(LWS2) void matmul_register_packed(MATMUL_SCRATCH_ARGS)
{
    TILE_MEMORY(as, A_STRIDE);
    TILE_MEMORY(bs, B_STRIDE);
    matmul_packed_step((const __global float *)(scratch + scratch_offset), c + c_offset, y + y_offset,
                       p, as, bs, get_group_id(0), get_num_groups(0));
}
#else
static void matmul_direct_step(const __global uchar *a, const __global uchar *b,
                               const __global uchar *c, __global uchar *y, struct matmul_params p,
                               __local float *as, __local float *bs, uint group, uint n_groups)
{
    const ulong n = tile_count(p);
    for (ulong block = group; block < n; block += n_groups) {
        const struct tile t = tile_at(p, block);
        float4 sums[ITEM_ROWS][ITEM_QUADS];
        clear_tile(sums);
        for (uint i0 = 0; i0 < p.k; i0 += TILE_K) {
            load_direct(a, b, p, t, i0, as, bs);
            barrier(CLK_LOCAL_MEM_FENCE);
            multiply_tile(as, bs, sums);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        store_tile(y, c, p, t, sums);
    }
}

KERNEL(LWS) void matmul_register_direct(MATMUL_ARGS)
{
    TILE_MEMORY(as, A_STRIDE);
    TILE_MEMORY(bs, B_STRIDE);
    matmul_direct_step(a + a_offset, b + b_offset, c + c_offset, y + y_offset, p, as, bs,
                       get_group_id(0), get_num_groups(0));
}
#endif
