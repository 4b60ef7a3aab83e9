/* Half arithmetic: sums, products, quotients and rounding give the bits IEEE 754 asks for; overflow
 * gives infinity. Built with -DPROBE, since not every compiler knows the type. */
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
    bool right = as_ushort((half)(one / three)) == 0x3555;
    right = right && as_ushort((half)(three * three + one)) == 0x4900;
    right = right && as_ushort((half)(one - three)) == 0xC000;
    right = right && as_ushort((half)(big + big)) == 0x7C00;
    right = right && as_ushort((half)(big * tiny)) == 0x4900; /* 48000 / 4800 */
    right = right && (float)(three / (half)7.0f) == 0.428466796875f;
    half4 v = (half4)(one, three, one, three) * (half4)(three) + (half4)(one);
    right = right && as_ushort(v.s0) == 0x4400 && as_ushort(v.s3) == 0x4900;
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif
