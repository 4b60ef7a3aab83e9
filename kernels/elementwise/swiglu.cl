/* swiglu: gated activation, written in the format OP_ACT. An item per ROWS columns of a token (32
 * for ACT_Q8, whose block it is).
 *
 *   gate_up [n_tokens][x_stride]   y[t][i] = act(gate_up[t][i]) * gate_up[t][n + i]
 *   item = t * ceil(n / ROWS) + i / ROWS
 */
#include "act.h"

#ifndef ROWS
#define ROWS 32
#endif

/* act 0: silu(x) = x / (1 + e^-x); 1: the tanh form of gelu. */
static float swiglu_at(const __global float *gate, uint n, uint act, uint i)
{
    const float x = gate[i];
    const float a = act == 0
                        ? x / (1.0f + exp(-x))
                        : 0.5f * x * (1.0f + tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
    return a * gate[n + i];
}

static void swiglu_plain_step(const __global float *gate_up, __global uchar *y,
                              struct swiglu_params p, uint group, uint n_groups)
{
    const uint pieces = div_up(p.n, ROWS);
    const ulong n = (ulong)pieces * p.n_tokens;
    for (ulong item = (ulong)group * LWS + get_local_id(0); item < n;
         item += (ulong)n_groups * LWS) {
        const uint t = (uint)(item / pieces), i0 = (uint)(item % pieces) * ROWS;
        const __global float *gate = gate_up + (ulong)t * p.x_stride;
        __global uchar *row = y + t * act_row_bytes(p.n);
#if OP_ACT == ACT_Q8
        float v[32];
        for (uint i = 0; i < 32; i++)
            v[i] = swiglu_at(gate, p.n, p.act, i0 + i);
        act_store_32(row, p.n, i0 / 32, vload16(0, v), vload16(1, v));
#else
        for (uint i = i0; i < min(i0 + ROWS, p.n); i++)
            act_store(row, i, swiglu_at(gate, p.n, p.act, i));
#endif
    }
}

KERNEL(LWS) void swiglu_plain(const __global uchar *gate_up, ulong gate_up_offset,
                              __global uchar *y, ulong y_offset, struct swiglu_params p)
{
    swiglu_plain_step((const __global float *)(gate_up + gate_up_offset), y + y_offset, p,
                      get_group_id(0), get_num_groups(0));
}
