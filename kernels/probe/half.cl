/* Half arithmetic: sums, products, quotients and rounding give the values IEEE 754 asks for, and
 * overflow gives infinity. Built with -DPROBE, since not every compiler knows the type. */
#include "probe/common.h"

#ifdef PROBE
#ifndef cl_khr_fp16
#define cl_khr_fp16 /* some drivers have the arithmetic and do not list it */
#endif
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

__kernel void probe(__global const uchar *in, __global uint *out)
{
    /* in[0] is 11 and in[1] is 48 */
    half one = (half)(in[0] - 10), three = (half)(in[1] - 45);
    half big = (half)(in[1] * 1000), tiny = one / (half)(in[1] * 100);
    bool right = (float)(one / three) == 0.333251953125f;
    right = right && (float)(three * three + one) == 10.0f && (float)(one - three) == -2.0f;
    right = right && (float)(big + big) == INFINITY;
    right = right && (float)(big * tiny) == 10.0f; /* 48000 / 4800 */
    right = right && (float)(three / (half)7.0f) == 0.428466796875f;
    half4 v = (half4)(one, three, one, three) * (half4)(three) + (half4)(one);
    right = right && (float)v.s0 == 4.0f && (float)v.s3 == 10.0f;
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif
