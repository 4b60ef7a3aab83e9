/* linear, naive: an item per output, weights unpacked one by one. The plain form to compare with.
 *
 *   w [m][k]   x [n_tokens][k]   y[t][r] = sum over i of w[r][i] * x[t][i]
 *   item = t * m + r
 */
#include "weight.h"
#include "linear/epilogue.h"

static void linear_naive_step(const __global uchar *w, const __global float *x,
                              const __global float *bias, __global float *y,
                              struct linear_params p, uint group, uint n_groups)
{
    const ulong n = (ulong)p.m * p.n_tokens, row_bytes = weight_row_bytes(p.k);
    for (ulong i = (ulong)group * LWS + get_local_id(0); i < n; i += (ulong)n_groups * LWS) {
        const uint t = (uint)(i / p.m), r = (uint)(i % p.m);
        const __global uchar *row = w + r * row_bytes;
        const __global float *xt = x + (ulong)t * p.k;
        float sum = 0.0f;
        for (uint j = 0; j < p.k; j++)
            sum = fma(weight_at(row, j), xt[j], sum);
        linear_finish(y, bias, p, t, r, sum);
    }
}

KERNEL(LWS) void linear_naive(const __global uchar *w, ulong w_offset, const __global uchar *x,
                              ulong x_offset, const __global uchar *bias, ulong bias_offset,
                              __global uchar *y, ulong y_offset, struct linear_params p)
{
    linear_naive_step(w + w_offset, (const __global float *)(x + x_offset),
                      (const __global float *)(bias + bias_offset), (__global float *)(y + y_offset),
                      p, get_group_id(0), get_num_groups(0));
}
