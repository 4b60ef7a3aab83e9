/* softmax, a group per row, items striding over it.
 *
 *   x, mask, y [rows][len]     item lid takes elements lid, lid + LWS, ... (VECTOR 4: fours of them)
 *
 * softmax_three_pass: maximum, then the sum, then the division; softmax_online: maximum and sum in one
 * pass, a running sum being rescaled when the maximum grows.
 */
#include "softmax/softmax.h"

#ifndef VECTOR
#define VECTOR 1
#endif

static void softmax_write(const __global uchar *x, const __global uchar *mask, __global uchar *y,
                          struct softmax_params p, ulong row, float2 state)
{
    uint done = 0;
#if VECTOR == 4
    done = p.len / 4 * 4;
    for (uint i = 4 * get_local_id(0); i < done; i += 4 * LWS)
        softmax_store4(y, row + i, softmax_finish4(softmax_load4(x, mask, p, row + i), state, p));
#endif
    for (uint i = done + get_local_id(0); i < p.len; i += LWS)
        real_store(y, row + i, softmax_finish(softmax_load(x, mask, p, row + i), state, p));
}

static float2 softmax_row_online(const __global uchar *x, const __global uchar *mask,
                                 struct softmax_params p, ulong row)
{
    float2 state = softmax_nothing();
    uint done = 0;
#if VECTOR == 4
    done = p.len / 4 * 4;
    for (uint i = 4 * get_local_id(0); i < done; i += 4 * LWS) {
        const float4 v = softmax_load4(x, mask, p, row + i);
        const float m = fmax(state.x, fmax(fmax(v.x, v.y), fmax(v.z, v.w)));
        if (m == -INFINITY)
            continue;
        if (m > state.x) /* a new maximum: rare after the first few */
            state = (float2)(m, state.y * exp(state.x - m));
        const float4 e = exp(v - m);
        state.y += (e.x + e.y) + (e.z + e.w);
    }
#endif
    for (uint i = done + get_local_id(0); i < p.len; i += LWS)
        state = softmax_add(state, softmax_load(x, mask, p, row + i));
    return state;
}

static void softmax_online_step(const __global uchar *x, const __global uchar *mask,
                                __global uchar *y, struct softmax_params p, __local float2 *scratch,
                                uint group, uint n_groups)
{
    for (uint r = group; r < p.rows; r += n_groups) {
        const ulong row = (ulong)r * p.len;
        const float2 state = softmax_reduce(softmax_row_online(x, mask, p, row), scratch, LWS);
        softmax_write(x, mask, y, p, row, state);
    }
}

static void softmax_three_step(const __global uchar *x, const __global uchar *mask, __global uchar *y,
                               struct softmax_params p, __local float *scratch, uint group,
                               uint n_groups)
{
    for (uint r = group; r < p.rows; r += n_groups) {
        const ulong row = (ulong)r * p.len;
        float m = -INFINITY, sum = 0.0f;
        for (uint i = get_local_id(0); i < p.len; i += LWS)
            m = fmax(m, softmax_load(x, mask, p, row + i));
        m = group_max(m, scratch, LWS);
        for (uint i = get_local_id(0); i < p.len && m != -INFINITY; i += LWS)
            sum += exp(softmax_load(x, mask, p, row + i) - m);
        sum = group_sum(sum, scratch, LWS);
        softmax_write(x, mask, y, p, row, (float2)(m, sum));
    }
}

KERNEL(LWS) void softmax_three_pass(SOFTMAX_ARGS)
{
    __local float scratch[LWS];
    softmax_three_step(x + x_offset, mask + mask_offset, y + y_offset, p, scratch, get_group_id(0),
                       get_num_groups(0));
}

KERNEL(LWS) void softmax_online(SOFTMAX_ARGS)
{
    __local float2 scratch[LWS];
    softmax_online_step(x + x_offset, mask + mask_offset, y + y_offset, p, scratch, get_group_id(0),
                        get_num_groups(0));
}
