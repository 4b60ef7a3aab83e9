/* linear, x in local memory: a group per ROWS rows and a token; x comes CHUNK columns at a time
 * into local memory, where it serves all rows of the block. ASYNC: by async_work_group_copy instead
 * of loads.
 *
 *   chunk:  items take pieces of 16 columns, lid, lid + LWS, ...   block = token * ceil(m / ROWS) +
 * row block
 */
#include "linear/epilogue.h"
#include "weight.h"

#ifndef ROWS
#define ROWS 2
#endif
#define CHUNK 2048 /* a multiple of every weight block */

/* n floats of x; called by all items, none of whom reads an earlier chunk any more. */
static void stage_x(__local float *xs, const __global float *x, uint n)
{
#ifdef ASYNC
    event_t copied = async_work_group_copy(xs, x, n, 0);
    wait_group_events(1, &copied);
#else
    for (uint i = get_local_id(0); i < n; i += LWS)
        xs[i] = x[i];
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

/* Rows past the end repeat the last one; their sums are not stored. */
static void linear_local_step(const __global uchar *w, const __global float *x,
                              const __global float *bias, __global float *y, struct linear_params p,
                              __local float *xs, __local float *scratch, uint group, uint n_groups)
{
    const uint row_blocks = div_up(p.m, ROWS), lid = get_local_id(0);
    const ulong row_bytes = weight_row_bytes(p.k), n = (ulong)row_blocks * p.n_tokens;
    for (ulong block = group; block < n; block += n_groups) {
        const uint r0 = (uint)(block % row_blocks) * ROWS, t = (uint)(block / row_blocks);
        const __global uchar *row[ROWS];
        float16 acc[ROWS];
        float tail[ROWS];
        for (uint r = 0; r < ROWS; r++) {
            row[r] = w + min(r0 + r, p.m - 1) * row_bytes;
            acc[r] = (float16)(0.0f);
            tail[r] = 0.0f;
        }
        for (uint k0 = 0; k0 < p.k; k0 += CHUNK) {
            const uint columns = min((uint)CHUNK, p.k - k0), pieces = columns / 16;
            stage_x(xs, x + (ulong)t * p.k + k0, columns);
            for (uint piece = lid; piece < pieces; piece += LWS) {
                const float16 v = vload16(piece, xs);
                for (uint r = 0; r < ROWS; r++)
                    acc[r] = fma(weight_16(row[r], k0 + 16 * piece), v, acc[r]);
            }
#if WEIGHT_BLOCK == 1
            for (uint i = 16 * pieces + lid; i < columns; i += LWS)
                for (uint r = 0; r < ROWS; r++)
                    tail[r] = fma(weight_at(row[r], k0 + i), xs[i], tail[r]);
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        for (uint r = 0; r < ROWS; r++) {
            const float sum = group_sum(sum_16(acc[r]) + tail[r], scratch, LWS);
            if (lid == 0 && r0 + r < p.m)
                linear_finish(y, bias, p, t, r0 + r, sum);
        }
    }
}

KERNEL(LWS)
void linear_local_x(const __global uchar *w, ulong w_offset, const __global uchar *x,
                    ulong x_offset, const __global uchar *bias, ulong bias_offset,
                    __global uchar *y, ulong y_offset, struct linear_params p)
{
    __local float xs[CHUNK], scratch[LWS];
    linear_local_step(w + w_offset, (const __global float *)(x + x_offset),
                      (const __global float *)(bias + bias_offset),
                      (__global float *)(y + y_offset), p, xs, scratch, get_group_id(0),
                      get_num_groups(0));
}
