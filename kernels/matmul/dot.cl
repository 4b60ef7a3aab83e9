/* matmul over rows in order: first both operands are copied as f32 rows along k, b transposed; then an
 * item per element takes the dot product of two rows, VECTOR numbers at a time (1, 4, 8).
 *
 *   scratch: rows of a [batch][m][kp], then columns of b [batch][n][kp], kp = k padded with zeros
 *   item = (batch * m + row) * n + col
 */
#include "matmul/matmul.h"

#ifndef VECTOR
#define VECTOR 1
#endif

/* An item per number of the scratch. */
static void matmul_rows_step(const __global uchar *a, const __global uchar *b,
                             __global float *scratch, struct matmul_params p, uint group,
                             uint n_groups)
{
    const ulong kp = matmul_padded_k(p), n_a = (ulong)p.batch * p.m * kp;
    const ulong n = n_a + (ulong)p.batch * p.n * kp;
    for (ulong at = (ulong)group * LWS + get_local_id(0); at < n; at += (ulong)n_groups * LWS) {
        const bool of_a = at < n_a;
        const ulong row = (of_a ? at : at - n_a) / kp;
        const uint i = (uint)(at % kp), rows = of_a ? p.m : p.n;
        const uint batch = (uint)(row / rows), r = (uint)(row % rows);
        float v = 0.0f;
        if (i < p.k)
            v = of_a ? real_load(a, matmul_a(p, batch, r, i)) : real_load(b, matmul_b(p, batch, i, r));
        scratch[at] = v;
    }
}

static float matmul_dot(const __global float *x, const __global float *w, ulong kp)
{
#if VECTOR == 8
    float8 acc = (float8)(0.0f);
    for (ulong i = 0; i < kp / 8; i++)
        acc = fma(vload8(i, x), vload8(i, w), acc);
    const float4 v = acc.lo + acc.hi;
    return (v.x + v.y) + (v.z + v.w);
#elif VECTOR == 4
    float4 acc = (float4)(0.0f);
    for (ulong i = 0; i < kp / 4; i++)
        acc = fma(vload4(i, x), vload4(i, w), acc);
    return (acc.x + acc.y) + (acc.z + acc.w);
#else
    float acc = 0.0f;
    for (ulong i = 0; i < kp; i++)
        acc = fma(x[i], w[i], acc);
    return acc;
#endif
}

static void matmul_dot_step(const __global float *scratch, const __global uchar *c,
                            __global uchar *y, struct matmul_params p, uint group, uint n_groups)
{
    const ulong kp = matmul_padded_k(p), n = (ulong)p.batch * p.m * p.n;
    const __global float *columns = scratch + (ulong)p.batch * p.m * kp;
    for (ulong item = (ulong)group * LWS2 + get_local_id(0); item < n;
         item += (ulong)n_groups * LWS2) {
        const ulong row = item / p.n, batch = row / p.m;
        const float sum =
            matmul_dot(scratch + row * kp, columns + (batch * p.n + item % p.n) * kp, kp);
        matmul_finish(y, c, p, item, sum);
    }
}

KERNEL(LWS) void matmul_rows(MATMUL_SCRATCH_ARGS)
{
    matmul_rows_step(a + a_offset, b + b_offset, (__global float *)(scratch + scratch_offset), p,
                     get_group_id(0), get_num_groups(0));
}

KERNEL(LWS2) void matmul_dots(MATMUL_SCRATCH_ARGS)
{
    matmul_dot_step((const __global float *)(scratch + scratch_offset), c + c_offset, y + y_offset, p,
                    get_group_id(0), get_num_groups(0));
}
