/* linear, rows: a group per ROWS rows and a token, its items striding over pieces of 16 columns.
 * For decode: every weight is read once, x comes from the cache.
 *
 *              k: item i takes pieces i, i + LWS, ...
 *        +----+----+----+----+
 *  ROWS  |  0 |  1 |  2 | .. |  .  x[t]  ->  LWS partial sums per row  ->  tree  ->  y[t][r]
 *        +----+----+----+----+
 *  block = t * ceil(m / ROWS) + row block
 */
#include "weight.h"
#include "linear/epilogue.h"

#ifndef ROWS
#define ROWS 2
#endif

static void linear_rows_step(const __global uchar *w, const __global float *x,
                             const __global float *bias, __global float *y, struct linear_params p,
                             __local float *scratch, uint group, uint n_groups)
{
    const uint row_blocks = div_up(p.m, ROWS), lid = get_local_id(0), pieces = p.k / 16;
    const ulong row_bytes = weight_row_bytes(p.k), n = (ulong)row_blocks * p.n_tokens;
    for (ulong block = group; block < n; block += n_groups) {
        const uint t = (uint)(block / row_blocks), r0 = (uint)(block % row_blocks) * ROWS;
        const __global float *xt = x + (ulong)t * p.k;
        float16 acc[ROWS];
        for (uint r = 0; r < ROWS; r++)
            acc[r] = (float16)(0.0f);
        for (uint piece = lid; piece < pieces; piece += LWS) {
            const float16 xs = vload16(piece, xt);
            for (uint r = 0; r < ROWS; r++) /* past the last row: that one again, not stored */
                acc[r] = fma(weight_16(w + min(r0 + r, p.m - 1) * row_bytes, 16 * piece), xs, acc[r]);
        }
        for (uint r = 0; r < ROWS; r++) {
            float sum = sum_16(acc[r]);
#if WEIGHT_BLOCK == 1
            for (uint i = 16 * pieces + lid; i < p.k; i += LWS)
                sum = fma(weight_at(w + min(r0 + r, p.m - 1) * row_bytes, i), xt[i], sum);
#endif
            sum = group_sum(sum, scratch, LWS);
            if (lid == 0 && r0 + r < p.m)
                linear_finish(y, bias, p, t, r0 + r, sum);
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
