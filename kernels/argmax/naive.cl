/* argmax, naive: all items of the grid stride over a row and put their best into index[r] by atomic
 * compare-exchange; argmax_clear comes before, argmax_found looks the value up after.
 *
 *   x [n_rows][x_stride] -> index, found [n_rows]
 */
#include "argmax/order.h"

#define ARGMAX_ARGS                                                                             \
    const __global uchar *x, ulong x_offset, __global uchar *index, ulong index_offset,         \
        __global uchar *found, ulong found_offset, struct argmax_params p

KERNEL(LWS) void argmax_clear(ARGMAX_ARGS)
{
    for (uint r = get_global_id(0); r < p.n_rows; r += get_global_size(0))
        ((__global int *)(index + index_offset))[r] = 0;
}

static void argmax_naive_step(const __global float *x, volatile __global int *index,
                              struct argmax_params p, uint group, uint n_groups)
{
    for (uint r = 0; r < p.n_rows; r++) {
        const __global float *row = x + (ulong)r * p.x_stride;
        struct candidate mine = {0.0f, NO_INDEX};
        for (uint i = group * LWS2 + get_local_id(0); i < p.len; i += n_groups * LWS2) {
            const struct candidate next = {row[i], i};
            if (argmax_beats(next, mine))
                mine = next;
        }
        while (mine.index != NO_INDEX) {
            const int seen = atomic_add(&index[r], 0);
            const struct candidate best = {row[seen], (uint)seen};
            if (!argmax_beats(mine, best) ||
                atomic_cmpxchg(&index[r], seen, (int)mine.index) == seen)
                break;
        }
    }
}

KERNEL(LWS2) void argmax_naive(ARGMAX_ARGS)
{
    argmax_naive_step((const __global float *)(x + x_offset),
                      (volatile __global int *)(index + index_offset), p, get_group_id(0),
                      get_num_groups(0));
}

KERNEL(LWS3) void argmax_found(ARGMAX_ARGS)
{
    for (uint r = get_global_id(0); r < p.n_rows; r += get_global_size(0)) {
        const int i = ((const __global int *)(index + index_offset))[r];
        ((__global float *)(found + found_offset))[r] =
            ((const __global float *)(x + x_offset))[(ulong)r * p.x_stride + i];
    }
}
