/* linear, tile: a group per ROWS x TOKENS tile of y, for prefill. Weights are unpacked to f32 once
 * per tile into local memory and used for all its tokens.
 *
 *            k, TILE_K at a time                 rows 4 a .. 4 a + 3 of item lid, a = lid % (ROWS/4)
 *        +-------+                            +--------+
 *  ROWS  | w     |   ->  ws [TILE_K][ROWS]    | y tile |  tokens b * PER_ITEM ..
 *        +-------+                            +--------+  b = lid / (ROWS/4)
 * TOKENS | x     |   ->  xs [TILE_K][TOKENS]
 *        +-------+
 *  block = token block * ceil(m / ROWS) + row block
 */
#include "weight.h"
#include "linear/epilogue.h"

#ifndef ROWS
#define ROWS   64
#define TOKENS 64
#endif
#define TILE_K     32
#define ROW_ITEMS  (ROWS / 4 < LWS ? ROWS / 4 : LWS) /* items side by side along the rows */
#define ROW_QUADS  (ROWS / 4 / ROW_ITEMS)            /* rows of an item, in fours */
#define PER_ITEM   (TOKENS * ROW_ITEMS / LWS)        /* tokens of an item */
#define WS_STRIDE  (ROWS + 4)
#define XS_STRIDE  (TOKENS + 1)
#define TILE_LOCAL (TILE_K * (WS_STRIDE + XS_STRIDE))

/* 16 columns of a row of w from column i; columns past k are zeros. */
static float16 tile_weights(const __global uchar *row, uint i, uint k)
{
#if WEIGHT_BLOCK == 1
    if (i + 16 > k) {
        float v[16];
        for (uint j = 0; j < 16; j++)
            v[j] = i + j < k ? weight_at(row, i + j) : 0.0f;
        return vload16(0, v);
    }
#endif
    return weight_16(row, i);
}

static void linear_tile_step(const __global uchar *w, const __global float *x,
                             const __global float *bias, __global float *y, struct linear_params p,
                             __local float *ws, __local float *xs, uint group, uint n_groups)
{
    const uint row_blocks = div_up(p.m, ROWS), lid = get_local_id(0);
    const ulong n = (ulong)row_blocks * div_up(p.n_tokens, TOKENS), row_bytes = weight_row_bytes(p.k);
    const uint a = lid % ROW_ITEMS, b = lid / ROW_ITEMS;
    for (ulong block = group; block < n; block += n_groups) {
        const uint r0 = (uint)(block % row_blocks) * ROWS, t0 = (uint)(block / row_blocks) * TOKENS;
        float4 acc[PER_ITEM][ROW_QUADS];
        for (uint t = 0; t < PER_ITEM; t++)
            for (uint q = 0; q < ROW_QUADS; q++)
                acc[t][q] = (float4)(0.0f);
        for (uint k0 = 0; k0 < p.k; k0 += TILE_K) {
            for (uint i = lid; i < ROWS * (TILE_K / 16); i += LWS) {
                const uint r = i % ROWS, piece = i / ROWS * 16;
                float v[16];
                vstore16(tile_weights(w + min(r0 + r, p.m - 1) * row_bytes, k0 + piece, p.k), 0, v);
                for (uint j = 0; j < 16; j++)
                    ws[(piece + j) * WS_STRIDE + r] = v[j];
            }
            for (uint i = lid; i < TOKENS * TILE_K; i += LWS) {
                const uint j = i % TILE_K, t = i / TILE_K;
                xs[j * XS_STRIDE + t] = t0 + t < p.n_tokens && k0 + j < p.k
                                            ? x[(ulong)(t0 + t) * p.k + k0 + j]
                                            : 0.0f;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint j = 0; j < TILE_K; j++) {
                float4 wv[ROW_QUADS];
                for (uint q = 0; q < ROW_QUADS; q++)
                    wv[q] = vload4(a + q * ROW_ITEMS, ws + j * WS_STRIDE);
                for (uint t = 0; t < PER_ITEM; t++) {
                    const float xv = xs[j * XS_STRIDE + b * PER_ITEM + t];
                    for (uint q = 0; q < ROW_QUADS; q++)
                        acc[t][q] = fma(wv[q], (float4)(xv), acc[t][q]);
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        for (uint t = 0; t < PER_ITEM; t++)
            for (uint q = 0; q < ROW_QUADS; q++) {
                const uint token = t0 + b * PER_ITEM + t, r = r0 + 4 * (a + q * ROW_ITEMS);
                float sums[4];
                vstore4(acc[t][q], 0, sums);
                for (uint i = 0; i < 4; i++)
                    if (token < p.n_tokens && r + i < p.m)
                        linear_finish(y, bias, p, token, r + i, sums[i]);
            }
    }
}

KERNEL(LWS) void linear_tile(const __global uchar *w, ulong w_offset, const __global uchar *x,
                             ulong x_offset, const __global uchar *bias, ulong bias_offset,
                             __global uchar *y, ulong y_offset, struct linear_params p)
{
    __local float tiles[TILE_LOCAL];
    linear_tile_step(w + w_offset, (const __global float *)(x + x_offset),
                     (const __global float *)(bias + bias_offset), (__global float *)(y + y_offset),
                     p, tiles, tiles + TILE_K * WS_STRIDE, get_group_id(0), get_num_groups(0));
}
