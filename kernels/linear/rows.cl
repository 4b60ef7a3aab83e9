/* linear, rows: a group per ROWS rows and TOKENS tokens, its items striding over runs of RUN pieces of
 * 16 columns. For few tokens: a weight is unpacked once for the tokens of a block, x comes from the
 * cache.
 *
 *              k: item i takes runs i, i + LWS, ...
 *        +----+----+----+----+
 *  ROWS  |  0 |  1 |  2 | .. |  .  x[t]  ->  LWS partial sums per output  ->  tree  ->  y[t][r]
 *        +----+----+----+----+
 *  block = token block * ceil(m / ROWS) + row block
 */
#include "weight.h"
#include "linear/epilogue.h"

#ifndef ROWS
#define ROWS   2
#define TOKENS 1
#endif
#ifndef RUN
#define RUN 1 /* pieces an item reads in one go */
#endif
#ifndef UNROLL
#define UNROLL 1 /* runs in one turn of the loop */
#endif

/* Rows and tokens past the end repeat the last one; their sums are not stored. */
static void linear_rows_step(const __global uchar *w, const __global float *x,
                             const __global float *bias, __global float *y, struct linear_params p,
                             __local float *scratch, uint group, uint n_groups)
{
    const uint row_blocks = div_up(p.m, ROWS), lid = get_local_id(0), pieces = p.k / 16;
    const ulong row_bytes = weight_row_bytes(p.k);
    const ulong n = (ulong)row_blocks * div_up(p.n_tokens, TOKENS);
    for (ulong block = group; block < n; block += n_groups) {
        const uint r0 = (uint)(block % row_blocks) * ROWS, t0 = (uint)(block / row_blocks) * TOKENS;
        const __global uchar *row[ROWS];
        const __global float *xt[TOKENS];
        float16 acc[TOKENS][ROWS];
        for (uint r = 0; r < ROWS; r++)
            row[r] = w + min(r0 + r, p.m - 1) * row_bytes;
        for (uint t = 0; t < TOKENS; t++) {
            xt[t] = x + (ulong)min(t0 + t, p.n_tokens - 1) * p.k;
            for (uint r = 0; r < ROWS; r++)
                acc[t][r] = (float16)(0.0f);
        }
#if UNROLL > 1
#pragma unroll UNROLL
#endif
        for (uint first = lid * RUN; first < pieces; first += LWS * RUN)
            for (uint piece = first; piece < min(first + RUN, pieces); piece++)
                for (uint r = 0; r < ROWS; r++) {
                    const float16 weights = weight_16(row[r], 16 * piece);
                    for (uint t = 0; t < TOKENS; t++)
                        acc[t][r] = fma(weights, vload16(piece, xt[t]), acc[t][r]);
                }
        for (uint t = 0; t < TOKENS; t++)
            for (uint r = 0; r < ROWS; r++) {
                float sum = sum_16(acc[t][r]);
#if WEIGHT_BLOCK == 1
                for (uint i = 16 * pieces + lid; i < p.k; i += LWS)
                    sum = fma(weight_at(row[r], i), xt[t][i], sum);
#endif
                sum = group_sum(sum, scratch, LWS);
                if (lid == 0 && r0 + r < p.m && t0 + t < p.n_tokens)
                    linear_finish(y, bias, p, t0 + t, r0 + r, sum);
            }
    }
}

KERNEL(LWS) void linear_rows(const __global uchar *w, ulong w_offset, const __global uchar *x,
                             ulong x_offset, const __global uchar *bias, ulong bias_offset,
                             __global uchar *y, ulong y_offset, struct linear_params p)
{
    __local float scratch[LWS];
    linear_rows_step(w + w_offset, (const __global float *)(x + x_offset),
                     (const __global float *)(bias + bias_offset), (__global float *)(y + y_offset),
                     p, scratch, get_group_id(0), get_num_groups(0));
}
