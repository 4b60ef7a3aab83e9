/* Static local memory of BYTES bytes: every word is written by one item and read by another. */
#include "probe/common.h"

#ifndef BYTES
#define BYTES 1024
#endif

__kernel void probe(__global const uchar *in, __global uint *out)
{
    __local uint words[BYTES / 4];
    uint id = (uint)get_local_id(0), n = (uint)get_local_size(0), bad = 0;
    for (uint i = id; i < BYTES / 4; i += n)
        words[i] = i * 2654435761u + in[i % PROBE_IN_BYTES];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = n - 1 - id; i < BYTES / 4; i += n)
        bad += words[i] != i * 2654435761u + in[i % PROBE_IN_BYTES];
    out[get_global_id(0)] = bad == 0 ? PROBE_OK : PROBE_BAD;
}
