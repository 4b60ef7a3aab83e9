/* argmax, tree with vectors: a group per row; an item compares four numbers at once and keeps four maxima
 * with their indices. An item that saw nothing above -inf looks again with the full order (NaN, -inf).
 *
 *   x [n_rows][x_stride] -> index, found [n_rows]     item lid takes the fours lid, lid + LWS, ...
 */
#include "argmax/order.h"

/* The numbers at row[i .. i + 3], in one access where the row is aligned. */
static float4 argmax_load4(const __global float *row, uint i, bool aligned)
{
    return aligned ? *(const __global float4 *)(row + i) : vload4(0, row + i);
}

/* The best of an item's numbers: in its order of indices the first of equals stays. */
static struct candidate argmax_item(const __global float *row, uint len)
{
    const uint fours = len / 4;
    const bool aligned = ((ulong)row & 15) == 0;
    float4 best = (float4)(-INFINITY);
    uint4 at = (uint4)(NO_INDEX);
    for (uint q = get_local_id(0); q < fours; q += LWS) {
        const float4 v = argmax_load4(row, 4 * q, aligned);
        const int4 better = v > best;
        best = select(best, v, better);
        at = select(at, (uint4)(4 * q, 4 * q + 1, 4 * q + 2, 4 * q + 3), better);
    }
    struct candidate mine = {0.0f, NO_INDEX};
    const struct candidate lanes[4] = {
        {best.x, at.x}, {best.y, at.y}, {best.z, at.z}, {best.w, at.w}};
    for (uint j = 0; j < 4; j++)
        if (argmax_beats(lanes[j], mine))
            mine = lanes[j];
    const uint tail = 4 * fours + get_local_id(0);
    if (tail < len) {
        const struct candidate last = {row[tail], tail};
        if (argmax_beats(last, mine))
            mine = last;
    }
    const bool again = !(mine.value > -INFINITY) || mine.index == NO_INDEX;
    for (uint q = get_local_id(0); again && q < fours; q += LWS)
        for (uint i = 4 * q; i < 4 * q + 4; i++) {
            const struct candidate next = {row[i], i};
            if (argmax_beats(next, mine))
                mine = next;
        }
    return mine;
}

static void argmax_vec4_step(const __global float *x, __global int *index, __global float *found,
                             struct argmax_params p, __local struct candidate *best, uint group,
                             uint n_groups)
{
    for (uint r = group; r < p.n_rows; r += n_groups) {
        argmax_reduce(argmax_item(x + (ulong)r * p.x_stride, p.len), best, LWS);
        if (get_local_id(0) == 0) {
            index[r] = (int)best[0].index;
            found[r] = best[0].value;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

KERNEL(LWS)
void argmax_vec4(const __global uchar *x, ulong x_offset, __global uchar *index, ulong index_offset,
                 __global uchar *found, ulong found_offset, struct argmax_params p)
{
    __local struct candidate best[LWS];
    argmax_vec4_step((const __global float *)(x + x_offset), (__global int *)(index + index_offset),
                     (__global float *)(found + found_offset), p, best, get_group_id(0),
                     get_num_groups(0));
}
