/* add: y[i] = a[i] + b[i], i < n; neighbour items take neighbour elements. y may be a or b. */

static void add_plain_step(const __global float *a, const __global float *b, __global float *y,
                           struct add_params p, uint group, uint n_groups)
{
    for (ulong i = (ulong)group * LWS + get_local_id(0); i < p.n; i += (ulong)n_groups * LWS)
        y[i] = a[i] + b[i];
}

KERNEL(LWS) void add_plain(const __global uchar *a, ulong a_offset, const __global uchar *b,
                           ulong b_offset, __global uchar *y, ulong y_offset, struct add_params p)
{
    add_plain_step((const __global float *)(a + a_offset), (const __global float *)(b + b_offset),
                   (__global float *)(y + y_offset), p, get_group_id(0), get_num_groups(0));
}
