/* softmax of wide rows, split over groups: a group per piece of ROWS elements finds the state of its
 * piece; then a group per piece merges the states of its row and writes its piece.
 *
 *   x, mask, y [rows][len]   states [rows][ceil(len / ROWS)]   block = row * pieces + piece
 */
#include "softmax/softmax.h"

#ifndef ROWS
#define ROWS 4096
#endif

static void softmax_pieces_step(const __global uchar *x, const __global uchar *mask,
                                __global float2 *states, struct softmax_params p,
                                __local float2 *scratch, uint group, uint n_groups)
{
    const uint pieces = div_up(p.len, ROWS);
    const ulong n = (ulong)pieces * p.rows;
    for (ulong block = group; block < n; block += n_groups) {
        const uint begin = (uint)(block % pieces) * ROWS, end = min(begin + ROWS, p.len);
        const ulong row = block / pieces * p.len;
        float2 state = softmax_nothing();
        for (uint i = begin + get_local_id(0); i < end; i += LWS)
            state = softmax_add(state, softmax_load(x, mask, p, row + i));
        state = softmax_reduce(state, scratch, LWS);
        if (get_local_id(0) == 0)
            states[block] = state;
    }
}

static void softmax_pieces_write_step(const __global uchar *x, const __global uchar *mask,
                                      __global uchar *y, const __global float2 *states,
                                      struct softmax_params p, __local float2 *scratch, uint group,
                                      uint n_groups)
{
    const uint pieces = div_up(p.len, ROWS);
    const ulong n = (ulong)pieces * p.rows;
    for (ulong block = group; block < n; block += n_groups) {
        const uint begin = (uint)(block % pieces) * ROWS, end = min(begin + ROWS, p.len);
        const ulong row = block / pieces;
        float2 state = softmax_nothing();
        for (uint i = get_local_id(0); i < pieces; i += LWS2)
            state = softmax_merge(state, states[row * pieces + i]);
        state = softmax_reduce(state, scratch, LWS2);
        for (uint i = begin + get_local_id(0); i < end; i += LWS2)
            real_store(y, row * p.len + i,
                       softmax_finish(softmax_load(x, mask, p, row * p.len + i), state, p));
    }
}

KERNEL(LWS) void softmax_pieces(SOFTMAX_SCRATCH_ARGS)
{
    __local float2 local_states[LWS];
    softmax_pieces_step(x + x_offset, mask + mask_offset,
                        (__global float2 *)(scratch + scratch_offset), p, local_states,
                        get_group_id(0), get_num_groups(0));
}

KERNEL(LWS2) void softmax_pieces_write(SOFTMAX_SCRATCH_ARGS)
{
    __local float2 local_states[LWS2];
    softmax_pieces_write_step(x + x_offset, mask + mask_offset, y + y_offset,
                              (const __global float2 *)(scratch + scratch_offset), p, local_states,
                              get_group_id(0), get_num_groups(0));
}
