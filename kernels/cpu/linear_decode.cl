/* linear for few tokens as a kernel of its own: linear_decode.inc. */
#include "cpu/linear_decode.inc"

KERNEL(1) void linear_decode(__global uchar *w, ulong w_off, __global uchar *x, ulong x_off,
                              __global uchar *bias, ulong bias_off, __global uchar *y, ulong y_off,
                              struct linear_params p)
{
    linear_decode_step(w + w_off, x + x_off, (const __global float *)(bias + bias_off),
                       (__global float *)(y + y_off), p, get_group_id(0), get_num_groups(0));
}
