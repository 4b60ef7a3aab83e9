/* matmul in half arithmetic throughout, for devices that have it: an item per element, the sum in a half
 * register.
 *
 *   item = (batch * m + row) * n + col
 */
#include "matmul/matmul.h"

#ifdef CAP_HALF
#ifndef cl_khr_fp16
#define cl_khr_fp16
#endif
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

static void matmul_half_step(const __global half *a, const __global half *b, const __global half *c,
                             __global half *y, struct matmul_params p, uint group, uint n_groups)
{
    const ulong n = (ulong)p.batch * p.m * p.n;
    for (ulong item = (ulong)group * LWS + get_local_id(0); item < n; item += (ulong)n_groups * LWS) {
        const uint col = (uint)(item % p.n), row = (uint)(item / p.n % p.m);
        const uint batch = (uint)(item / p.n / p.m);
        half sum = (half)0.0f;
        for (uint i = 0; i < p.k; i++)
            sum += a[matmul_a(p, batch, row, i)] * b[matmul_b(p, batch, i, col)];
        half v = (half)p.alpha * sum;
        if (p.beta != 0.0f)
            v += (half)p.beta * c[item];
        y[item] = v;
    }
}

KERNEL(LWS) void matmul_half(MATMUL_ARGS)
{
    matmul_half_step((const __global half *)(a + a_offset), (const __global half *)(b + b_offset),
                     (const __global half *)(c + c_offset), (__global half *)(y + y_offset), p,
                     get_group_id(0), get_num_groups(0));
}
#endif
