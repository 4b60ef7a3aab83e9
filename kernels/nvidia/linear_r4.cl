/* linear for few tokens on NVIDIA: y = w x, weights LAYOUT_R4, activations ACT_Q8, dp4a sums.
 *
 *   warp = row group of 4 rows; lane = block of 32 columns of the current chunk:
 *     acc[t][r] += d[r] dx[t] (sum of q[r] * qx[t] - zero * sum of qx[t]) (+ m[r] dx[t] sum of qx[t])
 *   The next chunk's bytes are loaded while this one is computed with; the 32 lanes' sums meet in a
 *   shuffle tree at the end. Weights are read once for TOKENS tokens, 16 bytes a lane, in order.
 */
#include "nvidia/r4_dot.h"

#define WARPS (LWS / 32)

/* One token's block times the lane's block of each row. x: the token's row of ACT_Q8. */
PTX_INLINE void add_block(const struct r4_raw *raw, const __global uchar *x, uint k, uint block,
                          float acc[4])
{
    const __global uint4 *xq = (const __global uint4 *)(x + (ulong)block * 32);
    const uint4 low = xq[0], high = xq[1];
    const uint xs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    r4_add(OP_DTYPE, raw, xs, ((const __global float *)(x + k))[block],
           ((const __global int *)(x + k + k / 32 * 4))[block], acc);
}

/* acc[t][r] += the lane's share of rows 4g + r times tokens t0 + t. */
PTX_INLINE void dot_rows(const __global uchar *w, const __global uchar *x, ulong x_stride, uint k,
                     uint g, uint n_tokens, uint lane, float acc[TOKENS][4])
{
    const uint n_blocks = k / 32;
    const __global uchar *group = w + g * r4_group_bytes(OP_DTYPE, k);
#pragma unroll
    for (uint t = 0; t < TOKENS; t++)
#pragma unroll
        for (uint r = 0; r < 4; r++)
            acc[t][r] = 0.0f;
    struct r4_raw next;
    r4_load(OP_DTYPE, group, min(R4_CHUNK, n_blocks), lane, &next);
    for (uint first = 0; first < n_blocks; first += R4_CHUNK) {
        const struct r4_raw raw = next;
        const uint then = first + R4_CHUNK;
        if (then < n_blocks)
            r4_load(OP_DTYPE, group + R4_BYTES(OP_DTYPE, then), min(R4_CHUNK, n_blocks - then), lane,
                    &next);
        if (first + lane < n_blocks) {
#pragma unroll
            for (uint t = 0; t < TOKENS; t++)
                add_block(&raw, x + min(t, n_tokens - 1) * x_stride, k, first + lane, acc[t]);
        }
    }
}

/* Row groups group * WARPS + warp and on; with LINEAR_SWIGLU, pairs of a gate and an up group. */
static void linear_r4_step(const __global uchar *w, const __global uchar *x,
                           const __global float *bias, __global float *y, struct linear_params p,
                           uint group, uint n_groups)
{
    const uint lane = get_local_id(0) & 31, warp = get_local_id(0) >> 5;
    const bool pairs = p.epilogue == LINEAR_SWIGLU;
    const uint rows = pairs ? p.m / 2 : p.m, row_groups = (rows + 3) / 4;
    const ulong x_stride = ((ulong)p.k + p.k / 32 * 8 + 63) / 64 * 64;
    for (uint g = group * WARPS + warp; g < row_groups; g += n_groups * WARPS) {
        for (uint t0 = 0; t0 < p.n_tokens; t0 += TOKENS) {
            const uint n = min((uint)TOKENS, p.n_tokens - t0);
            float sums[TOKENS][4] = {{0.0f}}, ups[TOKENS][4];
#pragma unroll 1
            for (uint part = 0; part <= pairs; part++) { /* the up group first */
#pragma unroll
                for (uint i = 0; i < 4 * TOKENS; i++)
                    ups[i / 4][i % 4] = sums[i / 4][i % 4];
                dot_rows(w, x + t0 * x_stride, x_stride, p.k, pairs ? 2 * g + 1 - part : g, n, lane,
                         sums);
            }
#pragma unroll
            for (uint t = 0; t < TOKENS; t++) {
#pragma unroll
                for (uint r = 0; r < 4; r++) {
                    const uint row = 4 * g + r, in = pairs ? 8 * g + r : row;
                    float sum = warp_sum(sums[t][r]), up = pairs ? warp_sum(ups[t][r]) : 0.0f;
                    if (lane != r || row >= rows || t >= n)
                        continue;
                    __global float *at = y + (ulong)(t0 + t) * p.y_stride + row;
                    sum += p.has_bias ? bias[in] : 0.0f;
                    if (pairs)
                        *at = sum / (1.0f + exp(-sum)) * (up + (p.has_bias ? bias[in + 4] : 0.0f));
                    else
                        *at = p.epilogue == LINEAR_ADD ? *at + sum : sum;
                }
            }
        }
    }
}

KERNEL(LWS) void linear_r4(const __global uchar *w, ulong w_offset, const __global uchar *x,
                           ulong x_offset, const __global uchar *bias, ulong bias_offset,
                           __global uchar *y, ulong y_offset, struct linear_params p)
{
    linear_r4_step(w + w_offset, x + x_offset, (const __global float *)(bias + bias_offset),
                   (__global float *)(y + y_offset), p, get_group_id(0), get_num_groups(0));
}
