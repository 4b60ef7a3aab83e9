/* matmul, the plain forms: an item per element of y, neighbour items in neighbour columns.
 *
 *   item = (batch * m + row) * n + col
 *
 * matmul_naive adds every product to y in global memory (f16: in a register, as half would lose the
 * digits); matmul_private_sum keeps the sum in a register.
 */
#include "matmul/matmul.h"

static void matmul_naive_step(const __global uchar *a, const __global uchar *b,
                              const __global uchar *c, __global uchar *y, struct matmul_params p,
                              bool in_memory, uint group, uint n_groups)
{
    const ulong n = (ulong)p.batch * p.m * p.n;
    for (ulong item = (ulong)group * LWS + get_local_id(0); item < n; item += (ulong)n_groups * LWS) {
        const uint col = (uint)(item % p.n), row = (uint)(item / p.n % p.m);
        const uint batch = (uint)(item / p.n / p.m);
        float sum = 0.0f;
        if (in_memory && OP_DTYPE == DT_F32) {
            const float start = p.beta != 0.0f ? p.beta * real_load(c, item) : 0.0f;
            real_store(y, item, start);
            for (uint i = 0; i < p.k; i++)
                real_store(y, item, fma(p.alpha * real_load(a, matmul_a(p, batch, row, i)),
                                        real_load(b, matmul_b(p, batch, i, col)),
                                        real_load(y, item)));
            continue;
        }
        for (uint i = 0; i < p.k; i++)
            sum = fma(real_load(a, matmul_a(p, batch, row, i)),
                      real_load(b, matmul_b(p, batch, i, col)), sum);
        matmul_finish(y, c, p, item, sum);
    }
}

KERNEL(LWS) void matmul_naive(MATMUL_ARGS)
{
    matmul_naive_step(a + a_offset, b + b_offset, c + c_offset, y + y_offset, p, true,
                      get_group_id(0), get_num_groups(0));
}

KERNEL(LWS) void matmul_private_sum(MATMUL_ARGS)
{
    matmul_naive_step(a + a_offset, b + b_offset, c + c_offset, y + y_offset, p, false,
                      get_group_id(0), get_num_groups(0));
}
