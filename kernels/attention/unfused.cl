/* attention, unfused: three launches with the scores in memory in between. The plain form to
 * compare with.
 *
 *   scores:  s[head][c] = scale q . k[c], capped, of the cells that the token sees; an item a cell
 *   softmax: s[head][c] = e^(s - max) / sum; a group per head
 *   sums:    y[head][i] = sum over c of s[head][c] v[c][i]; an item a dim
 *
 *   head = t * n_head + h; s [n_tokens n_head][kv_max] in private memory, from the first cell seen
 * on
 */
#include "cache.h"

#define UNFUSED_ARGS                                                                        \
    const __global uchar *q, ulong q_offset, const __global uchar *k_cache, ulong k_offset, \
        const __global uchar *v_cache, ulong v_offset, const __global uchar *meta,          \
        ulong meta_offset, __global uchar *unused, ulong unused_offset, __global uchar *y,  \
        ulong y_offset, __global uchar *scores, ulong scores_offset, struct attention_params p

/* What a head looks at: cells [first, first + n) at `base` bytes of the caches. */
struct seen {
    uint first, n;
    ulong base;
};

static struct seen seen_by(const __global int4 *meta, struct attention_params p, ulong head)
{
    const uint t = (uint)(head / p.n_head), h = (uint)(head % p.n_head);
    const uint end = (uint)meta[t].x + 1, first = p.window > 0 ? end - min(end, p.window) : 0;
    const struct seen s = {first, end - first,
                           cache_cell((uint)meta[t].y, h / (p.n_head / p.n_head_kv), first,
                                      p.n_head_kv, p.n_ctx, p.head_dim)};
    return s;
}

KERNEL(LWS) void attention_scores(UNFUSED_ARGS)
{
    const ulong n = (ulong)p.n_head * p.n_tokens;
    for (ulong head = get_group_id(0); head < n; head += get_num_groups(0)) {
        const struct seen s = seen_by((const __global int4 *)(meta + meta_offset), p, head);
        const __global float *q_head = (const __global float *)(q + q_offset) +
                                       head / p.n_head * p.q_stride + head % p.n_head * p.head_dim;
        __global float *row = (__global float *)(scores + scores_offset) + head * p.kv_max;
        for (uint c = get_local_id(0); c < s.n; c += LWS) {
            const __global uchar *cell =
                k_cache + k_offset + s.base + c * weight_row_bytes(p.head_dim);
            float score = 0.0f;
            for (uint i = 0; i < p.head_dim; i++)
                score = fma(weight_at(cell, i), q_head[i], score);
            score *= p.scale;
            row[c] = p.softcap > 0.0f ? p.softcap * tanh(score / p.softcap) : score;
        }
    }
}

KERNEL(LWS2) void attention_softmax(UNFUSED_ARGS)
{
    __local float reduce[LWS2];
    const uint lid = get_local_id(0);
    const ulong n = (ulong)p.n_head * p.n_tokens;
    for (ulong head = get_group_id(0); head < n; head += get_num_groups(0)) {
        const struct seen s = seen_by((const __global int4 *)(meta + meta_offset), p, head);
        __global float *row = (__global float *)(scores + scores_offset) + head * p.kv_max;
        float largest = -INFINITY, sum = 0.0f;
        for (uint c = lid; c < s.n; c += LWS2)
            largest = fmax(largest, row[c]);
        largest = group_max(largest, reduce, LWS2);
        for (uint c = lid; c < s.n; c += LWS2) {
            const float weight = exp(row[c] - largest);
            row[c] = weight;
            sum += weight;
        }
        sum = group_sum(sum, reduce, LWS2);
        for (uint c = lid; c < s.n; c += LWS2)
            row[c] /= sum;
    }
}

KERNEL(LWS3) void attention_sums(UNFUSED_ARGS)
{
    const ulong n = (ulong)p.n_head * p.n_tokens;
    for (ulong head = get_group_id(0); head < n; head += get_num_groups(0)) {
        const struct seen s = seen_by((const __global int4 *)(meta + meta_offset), p, head);
        const __global float *row =
            (const __global float *)(scores + scores_offset) + head * p.kv_max;
        for (uint i = get_local_id(0); i < p.head_dim; i += LWS3) {
            float sum = 0.0f;
            for (uint c = 0; c < s.n; c++)
                sum = fma(
                    row[c],
                    weight_at(v_cache + v_offset + s.base + c * weight_row_bytes(p.head_dim), i),
                    sum);
            ((__global float *)(y + y_offset))[head * p.head_dim + i] = sum;
        }
    }
}
