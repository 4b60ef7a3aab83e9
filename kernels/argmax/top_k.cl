/* top_k in two stages: a group per piece of ROWS elements of a row finds the k best of its piece, one a
 * round; then a group per row finds the k best of those.
 *
 *   x [rows][len] -> pieces [rows][ceil(len / ROWS)][TOP_K_MAX] {value, index} -> index, found [rows][k]
 *
 * A round gives the best of the candidates that come after the one found last.
 */
#include "argmax/order.h"

#ifndef ROWS
#define ROWS 4096
#endif

#define TOP_K_ARGS                                                                              \
    const __global uchar *x, ulong x_offset, __global uchar *index, ulong index_offset,         \
        __global uchar *found, ulong found_offset, __global uchar *pieces, ulong pieces_offset, \
        struct top_k_params p

static void top_k_pieces_step(const __global float *x, __global struct candidate *pieces,
                              struct top_k_params p, __local struct candidate *best, uint group,
                              uint n_groups)
{
    const uint per_row = div_up(p.len, ROWS), lid = get_local_id(0);
    const ulong n = (ulong)per_row * p.rows;
    for (ulong block = group; block < n; block += n_groups) {
        const __global float *row = x + block / per_row * p.len;
        const uint begin = (uint)(block % per_row) * ROWS, end = min(begin + ROWS, p.len);
        struct candidate last = {0.0f, NO_INDEX};
        for (uint j = 0; j < p.k; j++) {
            struct candidate mine = {0.0f, NO_INDEX};
            for (uint i = begin + lid; i < end; i += LWS) {
                const struct candidate next = {row[i], i};
                if ((j == 0 || argmax_beats(last, next)) && argmax_beats(next, mine))
                    mine = next;
            }
            argmax_reduce(mine, best, LWS);
            last = best[0];
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lid == 0)
                pieces[block * TOP_K_MAX + j] = last;
            if (last.index == NO_INDEX) { /* fewer than k in this piece: the rest is empty too */
                for (uint i = j + lid; i < p.k; i += LWS)
                    pieces[block * TOP_K_MAX + i] = last;
                break;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

static void top_k_merge_step(const __global struct candidate *pieces, __global int *index,
                             __global float *found, struct top_k_params p,
                             __local struct candidate *best, uint group, uint n_groups)
{
    const uint n_candidates = div_up(p.len, ROWS) * p.k, lid = get_local_id(0);
    for (uint r = group; r < p.rows; r += n_groups) {
        const __global struct candidate *row = pieces + (ulong)r * div_up(p.len, ROWS) * TOP_K_MAX;
        struct candidate last = {0.0f, NO_INDEX};
        for (uint j = 0; j < p.k; j++) {
            struct candidate mine = {0.0f, NO_INDEX};
            for (uint i = lid; i < n_candidates; i += LWS2) {
                const struct candidate next = row[i / p.k * TOP_K_MAX + i % p.k];
                if (next.index != NO_INDEX && (j == 0 || argmax_beats(last, next)) &&
                    argmax_beats(next, mine))
                    mine = next;
            }
            argmax_reduce(mine, best, LWS2);
            last = best[0];
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lid == 0) {
                index[(ulong)r * p.k + j] = (int)last.index;
                found[(ulong)r * p.k + j] = last.value;
            }
        }
    }
}

KERNEL(LWS) void top_k_pieces(TOP_K_ARGS)
{
    __local struct candidate best[LWS];
    top_k_pieces_step((const __global float *)(x + x_offset),
                      (__global struct candidate *)(pieces + pieces_offset), p, best,
                      get_group_id(0), get_num_groups(0));
}

KERNEL(LWS2) void top_k_merge(TOP_K_ARGS)
{
    __local struct candidate best[LWS2];
    top_k_merge_step((const __global struct candidate *)(pieces + pieces_offset),
                     (__global int *)(index + index_offset),
                     (__global float *)(found + found_offset), p, best, get_group_id(0),
                     get_num_groups(0));
}
