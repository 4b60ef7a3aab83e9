/* linear for few tokens on NVIDIA: y = w x, weights F16, BF16 or F32 as in the file, activations
 * ACT_F32, sums in float.
 *
 *   warp = 4 rows; lane = 8 columns of each 256: acc[t][r] += sum of w[r][8] x[t][8]
 *   The next 256 columns are loaded while these are computed with; the 32 lanes' sums meet in a
 *   shuffle tree at the end. Weights are read once for TOKENS tokens, 16 bytes a lane, in order; x
 *   comes from the first cache. Needs k % 8 == 0.
 */
#include "linear/epilogue.h"
#include "nvidia/r4_dot.h"

#ifndef ROWS
#define ROWS   16 /* of a group */
#define TOKENS 1
#endif
#define WARPS     (LWS / 32)
#define WARP_ROWS 4
#define COLUMNS 256 /* of a step */
#define BYTES   (OP_DTYPE == DT_F32 ? 4 : 2)

struct floats_raw {
    uint q[WARP_ROWS][8];
};

/* The lane's 8 columns of a step; lanes past the end read columns that exist. */
PTX_INLINE void load_columns(const __global uchar *const row[WARP_ROWS], uint column, uint k,
                             struct floats_raw *raw)
{
    const ulong at = (ulong)min(column, k - 8) * BYTES;
#pragma unroll
    for (uint r = 0; r < WARP_ROWS; r++) {
        read16(row[r] + at, raw->q[r]);
        if (OP_DTYPE == DT_F32)
            read16(row[r] + at + 16, raw->q[r] + 4);
    }
}

PTX_INLINE void floats_of_row(const uint q[8], float v[8])
{
#pragma unroll
    for (uint i = 0; i < 8; i++) {
        if (OP_DTYPE == DT_F32)
            v[i] = as_float(q[i]);
        else if (OP_DTYPE == DT_F16)
            v[i] = half_of_pair(q[i / 2], i & 1);
        else
            v[i] = as_float(i & 1 ? q[i / 2] & 0xFFFF0000 : q[i / 2] << 16);
    }
}

/* acc[t][r] += the lane's share of the rows times tokens 0 .. n_tokens - 1 of x. */
PTX_INLINE void dot_rows(const __global uchar *const row[WARP_ROWS], const __global float *x, uint k,
                         uint n_tokens, uint lane, float acc[TOKENS][WARP_ROWS])
{
    struct floats_raw next;
    load_columns(row, lane * 8, k, &next);
    for (uint first = 0; first < k; first += COLUMNS) {
        const struct floats_raw raw = next;
        const uint column = first + lane * 8;
        if (first + COLUMNS < k)
            load_columns(row, column + COLUMNS, k, &next);
        if (column >= k)
            continue;
#pragma unroll
        for (uint t = 0; t < TOKENS; t++) {
            const float8 xv = vload8(0, x + (ulong)min(t, n_tokens - 1) * k + column);
            const float xs[8] = {xv.s0, xv.s1, xv.s2, xv.s3, xv.s4, xv.s5, xv.s6, xv.s7};
#pragma unroll
            for (uint r = 0; r < WARP_ROWS; r++) {
                float v[8];
                floats_of_row(raw.q[r], v);
#pragma unroll
                for (uint i = 0; i < 8; i++)
                    acc[t][r] = fma(v[i], xs[i], acc[t][r]);
            }
        }
    }
}

/* Rows past the end repeat the last one; their sums are not stored. */
static void linear_floats_step(const __global uchar *w, const __global float *x,
                               const __global float *bias, __global float *y,
                               struct linear_params p, uint group, uint n_groups)
{
    const uint lane = get_local_id(0) & 31, warp = get_local_id(0) >> 5;
    for (uint r0 = (group * WARPS + warp) * WARP_ROWS; r0 < p.m; r0 += n_groups * WARPS * WARP_ROWS) {
        const __global uchar *row[WARP_ROWS];
#pragma unroll
        for (uint r = 0; r < WARP_ROWS; r++)
            row[r] = w + (ulong)min(r0 + r, p.m - 1) * p.k * BYTES;
        for (uint t0 = 0; t0 < p.n_tokens; t0 += TOKENS) {
            const uint n = min((uint)TOKENS, p.n_tokens - t0);
            float acc[TOKENS][WARP_ROWS];
#pragma unroll
            for (uint i = 0; i < TOKENS * WARP_ROWS; i++)
                acc[i / WARP_ROWS][i % WARP_ROWS] = 0.0f;
            dot_rows(row, x + (ulong)t0 * p.k, p.k, n, lane, acc);
#pragma unroll
            for (uint i = 0; i < TOKENS * WARP_ROWS; i++) {
                const uint t = i / WARP_ROWS, r = i % WARP_ROWS;
                const float sum = warp_sum(acc[t][r]);
                if (lane == i % 32 && r0 + r < p.m && t < n)
                    linear_finish(y, bias, p, t0 + t, r0 + r, sum);
            }
        }
    }
}

KERNEL(LWS) void linear_floats(const __global uchar *w, ulong w_offset, const __global uchar *x,
                               ulong x_offset, const __global uchar *bias, ulong bias_offset,
                               __global uchar *y, ulong y_offset, struct linear_params p)
{
    linear_floats_step(w + w_offset, (const __global float *)(x + x_offset),
                       (const __global float *)(bias + bias_offset),
                       (__global float *)(y + y_offset), p, get_group_id(0), get_num_groups(0));
}
