/* quantize: rows of floats into the format OP_ACT. An item per 32 columns (ACT_Q8: one block) of a
 * row.
 *
 *   x [n_rows][x_stride] -> y [n_rows] rows of len elements; item = r * ceil(len / 32) + i / 32
 */
#include "act.h"

static void quantize_plain_step(const __global float *x, __global uchar *y,
                                struct quantize_params p, uint group, uint n_groups)
{
    const uint blocks = div_up(p.len, 32);
    const ulong n = (ulong)blocks * p.n_rows;
    for (ulong item = (ulong)group * LWS + get_local_id(0); item < n;
         item += (ulong)n_groups * LWS) {
        const uint r = (uint)(item / blocks), b = (uint)(item % blocks);
        const __global float *from = x + (ulong)r * p.x_stride;
        __global uchar *row = y + r * act_row_bytes(p.len);
#if OP_ACT == ACT_Q8
        act_store_32(row, p.len, b, vload16(2 * b, from), vload16(2 * b + 1, from));
#else
        for (uint i = 32 * b; i < min(32 * b + 32, p.len); i++)
            act_store(row, i, from[i]);
#endif
    }
}

KERNEL(LWS) void quantize_plain(const __global uchar *x, ulong x_offset, __global uchar *y,
                                ulong y_offset, struct quantize_params p)
{
    quantize_plain_step((const __global float *)(x + x_offset), y + y_offset, p, get_group_id(0),
                        get_num_groups(0));
}
