/* argmax in two stages: a group per piece of ROWS elements of a row, then a group per row over the
 * results of its pieces.
 *
 *   x [n_rows][x_stride] -> pieces [n_rows][ceil(len / ROWS)] {value, index} -> index, found [n_rows]
 */
#include "argmax/order.h"

#ifndef ROWS
#define ROWS 4096
#endif

static void argmax_pieces_step(const __global float *x, __global struct candidate *pieces,
                               struct argmax_params p, __local struct candidate *best, uint group,
                               uint n_groups)
{
    const uint per_row = div_up(p.len, ROWS), lid = get_local_id(0);
    const ulong n = (ulong)per_row * p.n_rows;
    for (ulong block = group; block < n; block += n_groups) {
        const __global float *row = x + block / per_row * p.x_stride;
        const uint begin = (uint)(block % per_row) * ROWS, end = min(begin + ROWS, p.len);
        struct candidate mine = {0.0f, NO_INDEX};
        for (uint i = begin + lid; i < end; i += LWS) {
            const struct candidate next = {row[i], i};
            if (argmax_beats(next, mine))
                mine = next;
        }
        argmax_reduce(mine, best, LWS);
        if (lid == 0)
            pieces[block] = best[0];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

static void argmax_merge_step(const __global struct candidate *pieces, __global int *index,
                              __global float *found, struct argmax_params p,
                              __local struct candidate *best, uint group, uint n_groups)
{
    const uint per_row = div_up(p.len, ROWS), lid = get_local_id(0);
    for (uint r = group; r < p.n_rows; r += n_groups) {
        struct candidate mine = {0.0f, NO_INDEX};
        for (uint i = lid; i < per_row; i += LWS2) {
            const struct candidate next = pieces[(ulong)r * per_row + i];
            if (argmax_beats(next, mine))
                mine = next;
        }
        argmax_reduce(mine, best, LWS2);
        if (lid == 0) {
            index[r] = (int)best[0].index;
            found[r] = best[0].value;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

KERNEL(LWS) void argmax_pieces(const __global uchar *x, ulong x_offset, __global uchar *index,
                               ulong index_offset, __global uchar *found, ulong found_offset,
                               __global uchar *pieces, ulong pieces_offset, struct argmax_params p)
{
    __local struct candidate best[LWS];
    argmax_pieces_step((const __global float *)(x + x_offset),
                       (__global struct candidate *)(pieces + pieces_offset), p, best,
                       get_group_id(0), get_num_groups(0));
}

KERNEL(LWS2) void argmax_merge(const __global uchar *x, ulong x_offset, __global uchar *index,
                               ulong index_offset, __global uchar *found, ulong found_offset,
                               __global uchar *pieces, ulong pieces_offset, struct argmax_params p)
{
    __local struct candidate best[LWS2];
    argmax_merge_step((const __global struct candidate *)(pieces + pieces_offset),
                      (__global int *)(index + index_offset),
                      (__global float *)(found + found_offset), p, best, get_group_id(0),
                      get_num_groups(0));
}
