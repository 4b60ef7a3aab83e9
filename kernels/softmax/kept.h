/* softmax of a row of which every item keeps KEEP quads in registers: lid, lid + LWS, ... Of a longer row,
 * and of the up to 3 elements behind the last quad, the rest is read twice.
 */
#ifndef SOFTMAX_KEPT_H
#define SOFTMAX_KEPT_H

#include "softmax/softmax.h"

#ifndef KEEP
#define KEEP 8
#endif

/* Adds the row's rest, from element `first` on, to the state. */
static float2 softmax_rest(const __global uchar *x, const __global uchar *mask,
                           struct softmax_params p, ulong row, uint first, float2 state)
{
    for (uint i = first + get_local_id(0); i < p.len; i += LWS)
        state = softmax_add(state, softmax_load(x, mask, p, row + i));
    return state;
}

static uint softmax_quads(struct softmax_params p)
{
    return min(p.len / 4, (uint)(KEEP * LWS));
}

/* Loads the item's quads of a row; -inf where there are none. */
static void softmax_keep(float4 *kept, const __global uchar *x, const __global uchar *mask,
                         struct softmax_params p, ulong row)
{
    const uint lid = get_local_id(0), n_quads = softmax_quads(p);
#pragma unroll
    for (uint q = 0; q < KEEP; q++)
        kept[q] = lid + q * LWS < n_quads ? softmax_load4(x, mask, p, row + 4 * (lid + q * LWS))
                                          : (float4)(-INFINITY);
}

/* The results of a row whose quads are kept; called by the whole group. scratch: LWS float2. */
static void softmax_kept_row(float4 *kept, const __global uchar *x, const __global uchar *mask,
                             __global uchar *y, struct softmax_params p, ulong row,
                             __local float2 *scratch)
{
    const uint lid = get_local_id(0), n_quads = softmax_quads(p);
    float most = -INFINITY, sum = 0.0f;
#pragma unroll
    for (uint q = 0; q < KEEP; q++)
        most = fmax(most, fmax(fmax(kept[q].x, kept[q].y), fmax(kept[q].z, kept[q].w)));
    const float base = most == -INFINITY ? 0.0f : most;
#pragma unroll
    for (uint q = 0; q < KEEP; q++) {
        const float4 e = exp(kept[q] - base);
        sum += (e.x + e.y) + (e.z + e.w);
        if (!p.log)
            kept[q] = e;
    }
    float2 state = softmax_rest(x, mask, p, row, 4 * n_quads, (float2)(most, sum));
    state = softmax_reduce(state, scratch, LWS);
    const bool nothing = state.x == -INFINITY;
    const float factor = nothing ? 0.0f : exp(base - state.x) / state.y;
    const float less = nothing ? INFINITY : state.x + log(state.y);
#pragma unroll
    for (uint q = 0; q < KEEP; q++)
        if (lid + q * LWS < n_quads)
            softmax_store4(y, row + 4 * (lid + q * LWS), p.log ? kept[q] - less : kept[q] * factor);
    for (uint i = 4 * n_quads + lid; i < p.len; i += LWS)
        real_store(y, row + i, softmax_finish(softmax_load(x, mask, p, row + i), state, p));
}

#endif
