/* argmax, tree: a group per row, its items striding over it, reduced in local memory.
 *
 *   x [n_rows][x_stride] -> index, found [n_rows]
 */
#include "argmax/order.h"

#define ARGMAX_ARGS                                                                             \
    const __global uchar *x, ulong x_offset, __global uchar *index, ulong index_offset,         \
        __global uchar *found, ulong found_offset, struct argmax_params p

static void argmax_tree_step(const __global float *x, __global int *index, __global float *found,
                             struct argmax_params p, __local struct candidate *best, uint group,
                             uint n_groups)
{
    for (uint r = group; r < p.n_rows; r += n_groups) {
        const __global float *row = x + (ulong)r * p.x_stride;
        struct candidate mine = {0.0f, NO_INDEX};
        for (uint i = get_local_id(0); i < p.len; i += LWS) {
            const struct candidate next = {row[i], i};
            if (argmax_beats(next, mine))
                mine = next;
        }
        argmax_reduce(mine, best, LWS);
        if (get_local_id(0) == 0) {
            index[r] = (int)best[0].index;
            found[r] = best[0].value;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

KERNEL(LWS) void argmax_tree(ARGMAX_ARGS)
{
    __local struct candidate best[LWS];
    argmax_tree_step((const __global float *)(x + x_offset), (__global int *)(index + index_offset),
                     (__global float *)(found + found_offset), p, best, get_group_id(0),
                     get_num_groups(0));
}
