/* What every softmax kernel uses: a masked element, the running state, the finish, arguments.
 *
 * State of a part of a row: .x its maximum m, .y the sum of e^(v - m). Nothing seen: (-inf, 0).
 */
#ifndef SOFTMAX_H
#define SOFTMAX_H

#include "real.h"

/* scale * x + mask of element `at` of the whole matrix, and of the 4 from there on. */
static float softmax_load(const __global uchar *x, const __global uchar *mask,
                          struct softmax_params p, ulong at)
{
    const float v = p.scale * real_load(x, at);
    return p.has_mask ? v + real_load(mask, at) : v;
}

static float4 softmax_load4(const __global uchar *x, const __global uchar *mask,
                            struct softmax_params p, ulong at)
{
#if OP_DTYPE == DT_F32
    const bool aligned = ((ulong)(x + 4 * at) & 15) == 0; /* then in one access */
    const float4 v =
        p.scale * (aligned ? *(const __global float4 *)(x + 4 * at) : real_load4(x, at));
#else
    const float4 v = p.scale * real_load4(x, at);
#endif
    return p.has_mask ? v + real_load4(mask, at) : v;
}

static float2 softmax_nothing(void)
{
    return (float2)(-INFINITY, 0.0f);
}

static float2 softmax_merge(float2 a, float2 b)
{
    const float m = fmax(a.x, b.x);
    if (m == -INFINITY)
        return softmax_nothing();
    return (float2)(m, a.y * exp(a.x - m) + b.y * exp(b.x - m));
}

static float2 softmax_add(float2 a, float v)
{
    return softmax_merge(a, (float2)(v, 1.0f));
}

/* The state of the whole group, from those of its n items (a power of two). scratch: n float2. */
static float2 softmax_reduce(float2 mine, __local float2 *scratch, uint n)
{
    const uint lid = get_local_id(0);
    scratch[lid] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_n = n / 2; half_n > 0; half_n /= 2) {
        if (lid < half_n)
            scratch[lid] = softmax_merge(scratch[lid], scratch[lid + half_n]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    mine = scratch[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return mine;
}

/* The result for a masked element of a row in the final state; a row of -inf gives 0 (log: -inf). */
static float softmax_finish(float v, float2 state, struct softmax_params p)
{
    if (state.x == -INFINITY)
        return p.log ? -INFINITY : 0.0f;
    return p.log ? v - state.x - log(state.y) : exp(v - state.x) / state.y;
}

static void softmax_store4(__global uchar *y, ulong at, float4 v)
{
#if OP_DTYPE == DT_F32
    if (((ulong)(y + 4 * at) & 15) == 0) {
        *(__global float4 *)(y + 4 * at) = v;
        return;
    }
#endif
    real_store4(y, at, v);
}

static float4 softmax_finish4(float4 v, float2 state, struct softmax_params p)
{
    if (state.x == -INFINITY)
        return (float4)(p.log ? -INFINITY : 0.0f);
    return p.log ? v - (state.x + log(state.y)) : exp(v - state.x) / state.y;
}

#define SOFTMAX_TENSORS                                                               \
    const __global uchar *x, ulong x_offset, const __global uchar *mask, ulong mask_offset, \
        __global uchar *y, ulong y_offset
#define SOFTMAX_ARGS SOFTMAX_TENSORS, struct softmax_params p
#define SOFTMAX_SCRATCH_ARGS \
    SOFTMAX_TENSORS, __global uchar *scratch, ulong scratch_offset, struct softmax_params p

#endif
