/* rope_kv for the caches of cpu/kv.h: rotates q in place and k on its way into the cache, copies v. */
#include "cpu/kv.h"

#define ROPE_MAX_HEAD 512 /* k_max in kernels.def; a multiple of 16 */

/* Rotates the pairs of one head: out[0 .. n_rot) from in; table {cos, sin} [n_rot / 2].
 * mode 0: pairs (2i, 2i + 1); 1: pairs (i, i + n_rot / 2). */
CPU_INLINE void rotate_head(const float *in, const __global float *table, uint n_rot, uint mode,
                            float *out)
{
    const uint n_pairs = n_rot / 2;
    uint i = 0;
    for (; i + 16 <= n_pairs; i += 16) {
        const float16 a = vload16(0, table + 2 * i), b = vload16(1, table + 2 * i);
        const float16 c = (float16)(a.even, b.even), s = (float16)(a.odd, b.odd);
        if (mode == 1) {
            const float16 x = vload16(0, in + i), y = vload16(0, in + n_pairs + i);
            vstore16(x * c - y * s, 0, out + i);
            vstore16(x * s + y * c, 0, out + n_pairs + i);
        } else {
            const float16 u = vload16(0, in + 2 * i), v = vload16(1, in + 2 * i);
            const float16 x = (float16)(u.even, v.even), y = (float16)(u.odd, v.odd);
            const float16 p = x * c - y * s, q = x * s + y * c;
            float16 lo, hi;
            lo.even = p.lo;
            lo.odd = q.lo;
            hi.even = p.hi;
            hi.odd = q.hi;
            vstore16(lo, 0, out + 2 * i);
            vstore16(hi, 1, out + 2 * i);
        }
    }
    for (; i < n_pairs; i++) {
        const uint first = mode == 1 ? i : 2 * i, second = mode == 1 ? i + n_pairs : 2 * i + 1;
        const float c = table[2 * i], s = table[2 * i + 1], x = in[first], y = in[second];
        out[first] = x * c - y * s;
        out[second] = x * s + y * c;
    }
}

/* A head of `head_dim` floats (rotated if `table`) -> out. */
CPU_INLINE void load_head(const __global float *in, const __global float *table,
                          const struct rope_kv_params *p, float *out)
{
    float head[ROPE_MAX_HEAD];
    for (uint i = 0; i < p->head_dim; i++)
        head[i] = out[i] = in[i];
    if (table)
        rotate_head(head, table, p->n_rot, p->mode, out);
}

/* qkv [n_tokens][stride], table [n_ctx][n_rot / 2] {cos, sin}, meta [n_tokens] {position, slot}.
 * A unit is a KV head of a token with its query heads. */
static void rope_kv_cpu_step(__global float *qkv, const __global float *table,
                             const __global int *meta, __global uchar *k_cache,
                             __global uchar *v_cache, struct rope_kv_params p, uint group,
                             uint n_groups)
{
    float head[ROPE_MAX_HEAD];
    const uint n_q = p.n_head / p.n_head_kv;
    for (uint unit = group; unit < p.n_tokens * p.n_head_kv; unit += n_groups) {
        const uint t = unit / p.n_head_kv, kv = unit % p.n_head_kv;
        const uint position = (uint)meta[4 * t], slot = (uint)meta[4 * t + 1];
        const __global float *angles = p.rotate ? table + (ulong)position * p.n_rot : 0;
        __global float *row = qkv + (ulong)t * p.stride;
        for (uint h = kv * n_q; angles && h < (kv + 1) * n_q; h++) {
            load_head(row + h * p.head_dim, angles, &p, head);
            for (uint i = 0; i < p.n_rot; i++)
                row[h * p.head_dim + i] = head[i];
        }
        const ulong base = kv_head(slot, kv, p.n_head_kv, p.n_ctx, p.head_dim);
        load_head(row + p.k_col + kv * p.head_dim, angles, &p, head);
        kv_store_k(head, p.head_dim, k_cache + base, position);
        load_head(row + p.v_col + kv * p.head_dim, 0, &p, head);
        kv_store_row(head, p.head_dim, v_cache + base, position);
    }
}

KERNEL(1) void rope_kv_cpu(__global uchar *qkv, ulong qkv_off, __global uchar *table,
                           ulong table_off, __global uchar *meta, ulong meta_off,
                           __global uchar *k_cache, ulong k_off, __global uchar *v_cache,
                           ulong v_off, struct rope_kv_params p)
{
    rope_kv_cpu_step((__global float *)(qkv + qkv_off), (const __global float *)(table + table_off),
                     (const __global int *)(meta + meta_off), k_cache + k_off, v_cache + v_off, p,
                     get_group_id(0), get_num_groups(0));
}
