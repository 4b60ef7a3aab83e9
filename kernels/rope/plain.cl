/* rope_kv: a group per head (of q, then k, then v) and token.
 *
 *   qkv [n_tokens][stride], head h of q at column h * head_dim, of k at k_col + .., of v at v_col + ..
 *   block = t * (n_head + 2 n_head_kv) + head; the head lies in local memory while it is rotated
 *
 *   pair i of n_rot / 2:  a' = a cos - b sin,  b' = a sin + b cos,  {cos, sin} = table[position][i]
 */
#include "cache.h"

#define ROPE_MAX_HEAD 512 /* k_max in kernels.def */

static void rope_rotate(__local float *head, const __global float2 *angles, uint n_rot, uint mode)
{
    for (uint i = get_local_id(0); i < n_rot / 2; i += LWS) {
        const uint ia = mode == 0 ? 2 * i : i, ib = mode == 0 ? 2 * i + 1 : i + n_rot / 2;
        const float a = head[ia], b = head[ib], c = angles[i].x, s = angles[i].y;
        head[ia] = a * c - b * s;
        head[ib] = a * s + b * c;
    }
}

static void rope_kv_plain_step(__global float *qkv, const __global float2 *table,
                               const __global int4 *meta, __global uchar *k_cache,
                               __global uchar *v_cache, struct rope_kv_params p,
                               __local float *head, uint group, uint n_groups)
{
    const uint heads = p.n_head + 2 * p.n_head_kv, lid = get_local_id(0);
    const ulong n = (ulong)heads * p.n_tokens;
    for (ulong block = group; block < n; block += n_groups) {
        const uint t = (uint)(block / heads), h = (uint)(block % heads);
        const bool is_q = h < p.n_head, is_v = h >= p.n_head + p.n_head_kv;
        const uint hk = h - p.n_head - (is_v ? p.n_head_kv : 0); /* of k and v only */
        const uint column = is_q ? h * p.head_dim : (is_v ? p.v_col : p.k_col) + hk * p.head_dim;
        __global float *row = qkv + (ulong)t * p.stride + column;
        const int4 at = meta[t];
        for (uint i = lid; i < p.head_dim; i += LWS)
            head[i] = row[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (p.rotate && !is_v)
            rope_rotate(head, table + (ulong)(uint)at.x * (p.n_rot / 2), p.n_rot, p.mode);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (is_q) {
            for (uint i = lid; i < p.head_dim; i += LWS)
                row[i] = head[i];
        } else {
            cache_store((is_v ? v_cache : k_cache) + cache_cell((uint)at.y, hk, (uint)at.x,
                                                                p.n_head_kv, p.n_ctx, p.head_dim),
                        head, p.head_dim);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

KERNEL(LWS) void rope_kv_plain(__global uchar *qkv, ulong qkv_offset, const __global uchar *table,
                               ulong table_offset, const __global uchar *meta, ulong meta_offset,
                               __global uchar *k_cache, ulong k_offset, __global uchar *v_cache,
                               ulong v_offset, struct rope_kv_params p)
{
    __local float head[ROPE_MAX_HEAD];
    rope_kv_plain_step((__global float *)(qkv + qkv_offset),
                       (const __global float2 *)(table + table_offset),
                       (const __global int4 *)(meta + meta_offset), k_cache + k_offset,
                       v_cache + v_offset, p, head, get_group_id(0), get_num_groups(0));
}
