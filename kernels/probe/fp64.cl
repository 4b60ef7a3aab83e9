/* Double arithmetic: 1/3 to the last bit, and a sum that float cannot hold. */
#include "probe/common.h"

#ifdef PROBE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

__kernel void probe(__global const uchar *in, __global uint *out)
{
    double one = (double)(in[0] - 10), three = (double)(in[1] - 45);
    bool right = as_ulong(one / three) == 0x3FD5555555555555ul;
    double sum = (double)16777216 + one;
    right = right && (ulong)sum == 16777217ul;
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif
