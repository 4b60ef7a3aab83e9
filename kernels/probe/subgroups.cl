/* Sub-groups: reductions and broadcasts over one, checked by counting through local memory. */
#include "probe/common.h"

#ifdef PROBE
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

__kernel void probe(__global const uchar *in, __global uint *out)
{
    __local uint values[64];
    __local uint groups[64];
    uint id = (uint)get_local_id(0), mine = in[id];
    values[id] = mine;
    groups[id] = get_sub_group_id();
    barrier(CLK_LOCAL_MEM_FENCE);
    uint sum = 0, most = 0, first = 0, n = 0;
    for (uint i = 0; i < get_local_size(0); i++)
        if (groups[i] == groups[id]) {
            first = n == 0 ? values[i] : first;
            sum += values[i];
            most = max(most, values[i]);
            n++;
        }
    bool right = n == get_sub_group_size() && n >= 4;
    right = right && sub_group_reduce_add(mine) == sum && sub_group_reduce_max(mine) == most;
    right = right && sub_group_broadcast(mine, 0u) == first;
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif
